//! Both sides of an attack: a job whose PEs check all that they read, and strangers to it.
//!
//! * `pe`: a PE. The job goes on until the standard input of PE 0 ends.
//! * `child`: a program that a PE executes: prints which descriptors it has.
//! * `record FILE`: writes all UDP datagrams that this network namespace sends and receives to a file.
//! * `replay HOW FROM EARLIER LIVE`: sends the datagrams again that came from the address FROM: all of the file EARLIER, which was
//!   recorded in a job before, and of the file LIVE, which is being recorded, what makes, changes or ends connections.
//!   With the queue pairs found in LIVE it forges invitations, too. HOW is `USER`, the number of a user that the process becomes
//!   before, or `raw` for a host that may send from any address.
//! * `look USER UID PID...`: tries, as that user, to look into processes, to signal them, and to ask the job's `shmrun`.
//!
//! Strangers go on until their standard input ends, and print what they did.

use std::collections::BTreeSet;
use std::fs::{self, File, OpenOptions};
use std::io::{self, Read, Write};
use std::net::{Ipv4Addr, SocketAddrV4, TcpListener, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::process::Command;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::sleep;
use std::time::Duration;

use shmem_ib::verbs::{AddressVector, Gid, Psn, Qpn};
use shmem_ib::wire::{Bth, Ext, Flow, Header, Invite, Opcode, PACKET_MAX};
use shmem_node::contract::{self, ENV_NODE};
use shmem_node::segment::NodeView;
use shmem_node::sys;

/// Long enough for a stream.
const LONG: usize = 128 << 10;
/// Between two rounds of PEs, or of a stranger.
const PAUSE: Duration = Duration::from_millis(2);

static ENDED: AtomicBool = AtomicBool::new(false);

/// Has [`ENDED`] tell of the end of standard input.
fn watch_input() {
    std::thread::spawn(|| {
        let _ = io::copy(&mut io::stdin(), &mut io::sink());
        ENDED.store(true, Ordering::Relaxed);
    });
}

fn ended() -> bool {
    ENDED.load(Ordering::Relaxed)
}

fn say(text: &str) {
    println!("{text}");
    io::stdout().flush().expect("standard output");
}

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    match args[..] {
        ["pe"] => pe().expect("a PE of a job"),
        ["child"] => say(&format!("child {:?}", descriptors())),
        ["record", file] => record(file).expect("a recording"),
        ["replay", how, from, earlier, live] => {
            let from = from.parse().expect("an address");
            let sender = Sender::new(how, from);
            replay(&sender, from, earlier, live);
        }
        ["look", user, uid, ref pids @ ..] => look(user, uid, pids),
        _ => panic!("what is {args:?}?"),
    }
}

/// The job's key, with all bits turned around, so that no other place than the job's own holds the key itself.
fn turned_key() -> String {
    let offer = std::env::var(ENV_NODE).expect("shmrun has started this");
    let fds = contract::offered(&offer).expect("of this version");
    let [tables, heap] =
        [fds.tables(), fds.heap()].map(|fd| sys::lent(fd).expect("not taken before init"));
    let node = NodeView::attach(tables, heap).expect("the node segment can be mapped");
    let turned = node.job_key().iter().map(|byte| format!("{:02x}", !byte));
    turned.collect()
}

/// What the descriptors of this process lead to, but for standard input, output and error, the socket for PMI, which is left to
/// any library that speaks PMI, and the folder that is read here.
fn descriptors() -> Vec<String> {
    let pmi = std::env::var("PMI_FD").expect("the number of a descriptor");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").expect("/proc") {
        let path = entry.expect("a descriptor").path();
        let number = path.file_name().and_then(|name| name.to_str());
        let known = number.is_some_and(|n| ["0", "1", "2", &pmi].contains(&n));
        let link = fs::read_link(&path).expect("a link");
        if !known && !link.starts_with("/proc") {
            found.push(format!("{number:?} {}", link.display()));
        }
    }
    found
}

fn pe() -> Result<(), shmem::Error> {
    let key = turned_key();
    let world = shmem::init()?;
    let (me, n) = (world.my_pe(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let words = shmem::alloc::<u64>(3)?;
    let [inbox, counter, stop] = [0, 1, 2].map(|i| words.elem(i));
    let bulk = shmem::alloc::<u8>(LONG)?;
    if me == 0 {
        let program = std::env::current_exe().expect("a path");
        let child = Command::new(program).arg("child").status();
        assert!(child.expect("a child").success());
        watch_input();
        say(&format!("key {key}"));
    }
    for round in 0u64.. {
        let value = |pe: usize| round * 1000 + pe as u64;
        let byte = |pe: usize| (round as u8).wrapping_mul(7).wrapping_add(pe as u8);
        let long = round % 16 == 0;
        shmem::p(inbox, value(me), right);
        assert_eq!(shmem::atomic_fetch_add(counter, 1, right), round);
        if long {
            shmem::put(bulk, &vec![byte(me); LONG], right);
        }
        if me == 0 && ended() {
            (0..n).for_each(|pe| shmem::p(stop, 1, pe));
        }
        world.barrier();
        assert_eq!(shmem::g(inbox, me), value(left));
        assert_eq!(shmem::g(inbox, right), value(me));
        if long {
            let mut got = vec![0; LONG];
            shmem::get(&mut got, bulk, me);
            assert!(got.iter().all(|b| *b == byte(left)), "PE {me}, {round}");
        }
        let over = shmem::g(stop, me) == 1;
        world.barrier();
        if over {
            break;
        }
        if me == 0 && round == 20 {
            say("running");
        }
        sleep(PAUSE);
    }
    say("ok");
    Ok(())
}

/// A datagram that was recorded.
struct Datagram {
    from: SocketAddrV4,
    to: SocketAddrV4,
    bytes: Vec<u8>,
}

const RECORD_HEAD: usize = 16;

impl Datagram {
    /// From an IP packet, unless it is something else.
    fn of(packet: &[u8]) -> Option<Self> {
        let head = usize::from(packet.first()? & 15) * 4;
        let is_udp = packet[0] >> 4 == 4 && *packet.get(9)? == 17;
        let udp = packet.get(head..).filter(|_| is_udp)?;
        let ip = |at: usize| {
            Ipv4Addr::from([packet[at], packet[at + 1], packet[at + 2], packet[at + 3]])
        };
        let port = |at: usize| u16::from_be_bytes([udp[at], udp[at + 1]]);
        (udp.len() > 8 + 16).then(|| Self {
            from: SocketAddrV4::new(ip(12), port(0)),
            to: SocketAddrV4::new(ip(16), port(2)),
            bytes: udp[8..].to_vec(),
        })
    }

    fn write(&self, file: &mut File) -> io::Result<()> {
        let mut out = Vec::new();
        for at in [self.from, self.to] {
            out.extend(at.ip().octets());
            out.extend(at.port().to_be_bytes());
        }
        out.extend((self.bytes.len() as u32).to_be_bytes());
        out.extend(&self.bytes);
        file.write_all(&out)
    }

    /// All that a file holds so far.
    fn read(file: &str) -> Vec<Self> {
        let bytes = fs::read(file).expect("a recording");
        let mut rest = &bytes[..];
        let mut all = Vec::new();
        while let Some((head, behind)) = rest.split_first_chunk::<RECORD_HEAD>() {
            let at = |i: usize| {
                let ip = Ipv4Addr::from([head[i], head[i + 1], head[i + 2], head[i + 3]]);
                SocketAddrV4::new(ip, u16::from_be_bytes([head[i + 4], head[i + 5]]))
            };
            let len = u32::from_be_bytes([head[12], head[13], head[14], head[15]]) as usize;
            // The last one may not be there as a whole yet.
            let Some(bytes) = behind.get(..len) else {
                break;
            };
            all.push(Self {
                from: at(0),
                to: at(6),
                bytes: bytes.to_vec(),
            });
            rest = &behind[len..];
        }
        all
    }

    /// Whether it makes, changes or ends a connection.
    fn is_about_connections(&self) -> bool {
        let opcodes = [Opcode::UdSendOnly, Opcode::UdSendOnlyImm, Opcode::Invite];
        opcodes.iter().any(|code| *code as u8 == self.bytes[0])
    }

    fn queue_pair(&self) -> Qpn {
        Qpn(u32::from_be_bytes([
            0,
            self.bytes[5],
            self.bytes[6],
            self.bytes[7],
        ]))
    }
}

/// A result of a system call.
fn done(result: i32, what: &str) -> i32 {
    assert!(result >= 0, "{what}: {}", io::Error::last_os_error());
    result
}

fn socket(family: i32, kind: i32, protocol: i32) -> OwnedFd {
    // SAFETY: the call has no memory for arguments, and what it returns is nobody else's.
    unsafe { OwnedFd::from_raw_fd(done(libc::socket(family, kind, protocol), "socket")) }
}

fn record(file: &str) -> io::Result<()> {
    let mut file = OpenOptions::new().create(true).append(true).open(file)?;
    // Of all protocols, because only then there is what the namespace sends, too.
    let all = i32::from((libc::ETH_P_ALL as u16).to_be());
    let socket = UdpSocket::from(socket(libc::AF_PACKET, libc::SOCK_DGRAM, all));
    socket.set_read_timeout(Some(Duration::from_millis(20)))?;
    watch_input();
    say("recording");
    let mut buf = vec![0; 1 << 17];
    while !ended() {
        if let Ok(len) = socket.recv(&mut buf)
            && let Some(datagram) = Datagram::of(&buf[..len])
        {
            datagram.write(&mut file)?;
        }
    }
    Ok(())
}

/// Becomes another user, for good.
fn become_user(user: &str) {
    let user = user.parse().expect("the number of a user");
    // SAFETY: the calls change numbers of this process, which has no other thread.
    unsafe {
        done(libc::setgroups(0, std::ptr::null()), "setgroups");
        done(libc::setresgid(user, user, user), "setresgid");
        done(libc::setresuid(user, user, user), "setresuid");
    }
}

/// Sends from an address that is another process's.
enum Sender {
    /// As a user of its host may: a socket at another address and the same port, and a note that says which address is meant.
    User(Ipv4Addr),
    /// With headers of its own making.
    Raw(OwnedFd),
}

impl Sender {
    fn new(how: &str, from: Ipv4Addr) -> Self {
        if how == "raw" {
            return Self::Raw(socket(libc::AF_INET, libc::SOCK_RAW, libc::IPPROTO_RAW));
        }
        become_user(how);
        Self::User(from)
    }

    /// Whatever does not arrive is lost, as is what no socket of this host takes.
    fn send(&self, datagram: &Datagram) {
        let _ = match self {
            Self::User(from) => self.send_as(*from, datagram),
            Self::Raw(socket) => send_raw(socket, datagram),
        };
    }

    fn send_as(&self, from: Ipv4Addr, datagram: &Datagram) -> io::Result<()> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, datagram.from.port()))?;
        let mut to = name(datagram.to);
        let mut part = libc::iovec {
            iov_base: datagram.bytes.as_ptr().cast_mut().cast(),
            iov_len: datagram.bytes.len(),
        };
        // SAFETY: numbers alone, for which zeros are right.
        let mut info: libc::in_pktinfo = unsafe { std::mem::zeroed() };
        info.ipi_spec_dst.s_addr = u32::from(from).to_be();
        // Of words, because a header has to be aligned.
        let mut control = [0u64; 8];
        // SAFETY: as above; the pointers are set below.
        let mut message: libc::msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut to).cast();
        message.msg_namelen = size_of_val(&to) as u32;
        (message.msg_iov, message.msg_iovlen) = (&raw mut part, 1);
        let len = size_of_val(&info) as u32;
        // SAFETY: `control` has room for a header and the note, and both it and all that the message points to live until the
        // call returns.
        let sent = unsafe {
            message.msg_control = control.as_mut_ptr().cast();
            message.msg_controllen = libc::CMSG_SPACE(len) as _;
            let head = libc::CMSG_FIRSTHDR(&raw const message);
            (*head).cmsg_level = libc::IPPROTO_IP;
            (*head).cmsg_type = libc::IP_PKTINFO;
            (*head).cmsg_len = libc::CMSG_LEN(len) as _;
            libc::CMSG_DATA(head)
                .cast::<libc::in_pktinfo>()
                .write_unaligned(info);
            libc::sendmsg(socket.as_raw_fd(), &raw const message, 0)
        };
        match sent {
            0.. => Ok(()),
            _ => Err(io::Error::last_os_error()),
        }
    }
}

fn name(at: SocketAddrV4) -> libc::sockaddr_in {
    libc::sockaddr_in {
        sin_family: libc::AF_INET as u16,
        sin_port: at.port().to_be(),
        sin_addr: libc::in_addr {
            s_addr: u32::from(*at.ip()).to_be(),
        },
        sin_zero: [0; 8],
    }
}

fn send_raw(socket: &OwnedFd, datagram: &Datagram) -> io::Result<()> {
    let Datagram { from, to, bytes } = datagram;
    // The kernel fills in the length, the identification and the check sum of the header. UDP needs no check sum.
    let mut packet = vec![0x45, 0, 0, 0, 0, 0, 0, 0, 64, 17, 0, 0];
    packet.extend(from.ip().octets());
    packet.extend(to.ip().octets());
    packet.extend(from.port().to_be_bytes());
    packet.extend(to.port().to_be_bytes());
    packet.extend((8 + bytes.len() as u16).to_be_bytes());
    packet.extend([0, 0]);
    packet.extend(bytes);
    let to = name(*to);
    // SAFETY: the call reads the packet and the address, whose lengths these are.
    let sent = unsafe {
        libc::sendto(
            socket.as_raw_fd(),
            packet.as_ptr().cast(),
            packet.len(),
            0,
            (&raw const to).cast(),
            size_of_val(&to) as u32,
        )
    };
    match sent {
        0.. => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// An invitation to a stranger's port, right in all but what needs the job's key.
fn invitation(template: &Datagram, guess: u8, port: u16) -> Datagram {
    let av = |at: SocketAddrV4| AddressVector {
        gid: Gid::from(*at.ip()),
        udp_port: at.port(),
    };
    let header = Header {
        bth: Bth::new(
            Opcode::Invite,
            template.queue_pair(),
            Psn(guess.into()),
            false,
        ),
        ext: Ext::None,
    };
    let invite = Invite {
        attempt: 4,
        port,
        token: [guess; 16],
    };
    let text = invite.encode(|_| [guess; 16]);
    let mut packet = vec![0; PACKET_MAX];
    let at = header.encode(&mut packet, text.len());
    packet[at..at + text.len()].copy_from_slice(&text);
    let flow = Flow {
        src: av(template.from),
        dst: av(template.to),
    };
    let len = header.seal(&mut packet, text.len(), &flow);
    packet.truncate(len);
    Datagram {
        bytes: packet,
        ..*template
    }
}

fn replay(sender: &Sender, from: Ipv4Addr, earlier: &str, live: &str) {
    // A PE that takes an invitation connects to the address of its peer, which only a user of that host has.
    let listener = match sender {
        Sender::User(_) => Some(TcpListener::bind((from, 0)).expect("a port")),
        Sender::Raw(_) => None,
    };
    let port = listener.as_ref().map_or(9, |listener| {
        listener.set_nonblocking(true).expect("a socket");
        listener.local_addr().expect("its address").port()
    });
    watch_input();
    let mut earlier = Datagram::read(earlier);
    earlier.retain(|datagram| *datagram.from.ip() == from);
    for pass in (0..=u8::MAX).cycle() {
        let mut live = Datagram::read(live);
        live.retain(|datagram| *datagram.from.ip() == from);
        let mut queue_pairs = BTreeSet::new();
        for datagram in &live {
            if queue_pairs.insert(datagram.queue_pair().0) {
                sender.send(&invitation(datagram, pass, port));
            }
        }
        live.retain(Datagram::is_about_connections);
        earlier
            .iter()
            .chain(&live)
            .for_each(|datagram| sender.send(datagram));
        say(&format!(
            "{} {} {}",
            earlier.len(),
            live.len(),
            queue_pairs.len()
        ));
        if let Some(Ok((_, who))) = listener.as_ref().map(TcpListener::accept) {
            say(&format!("{who} connected"));
        }
        if ended() {
            break;
        }
        sleep(5 * PAUSE);
    }
}

/// What the `shmrun` of a job answers to a question.
fn asked(name: &str, question: &str) -> Vec<u8> {
    let address = SocketAddr::from_abstract_name(name).expect("a name");
    let mut stream = UnixStream::connect_addr(&address).expect("anybody can connect");
    let _ = stream.write_all(question.as_bytes());
    let mut heard = Vec::new();
    let _ = stream.read_to_end(&mut heard);
    heard
}

fn look(user: &str, uid: &str, pids: &[&str]) {
    become_user(user);
    let mut could = Vec::new();
    for pid in pids {
        for file in ["mem", "environ", "maps", "auxv"] {
            let path = format!("/proc/{pid}/{file}");
            could.extend(File::open(&path).is_ok().then_some(path));
        }
        let fds = format!("/proc/{pid}/fd");
        could.extend(fs::read_dir(&fds).is_ok().then_some(fds));
        let number = pid.parse().expect("the number of a process");
        // SAFETY: the signal 0 does nothing but to ask whether a signal may be sent.
        let signalled = unsafe { libc::kill(number, 0) } == 0;
        could.extend(signalled.then(|| format!("kill {pid}")));
    }
    let shmrun = format!("shmrun-{uid}-{}", pids[0]);
    for question in ["job\n", "waits\n", "stacks\n", ""] {
        let heard = asked(&shmrun, question);
        could.extend((!heard.is_empty()).then(|| format!("{question:?}: {heard:?}")));
    }
    say(&format!("looked at {}, could {could:?}", pids.len()));
}
