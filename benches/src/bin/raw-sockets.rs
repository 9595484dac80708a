//! What sockets of this machine allow: the rows of `p2p` between two processes that spin on their sockets and
//! do nothing else. The figure `p2p` puts it beside the libraries, as the limit.
//!
//! `raw-sockets [--over udp|tcp] [MILLISECONDS] [--table]`. The output is that of `p2p`. Small rows are one message there and
//! one back; `pingpong` is half of that.
//!
//! Over UDP long ones go in datagrams of 60 KiB straight from one memory and into the other, four of them on their way; a put is
//! acknowledged every second datagram, a get asks for two at a time. Nothing is sent again. Over TCP a message is written and read whole.
//! With `BENCH_BIND` in the environment each process stays on a core of its own. The partner may be elsewhere:
//! `ip netns exec A raw-sockets --over tcp --address 10.0.0.1 --partner-address 10.0.0.2 --through 'ip netns exec B'`.

use std::io::{self, BufRead, BufReader, ErrorKind, IoSlice, IoSliceMut};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::{Parser, ValueEnum};
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use shmem_benches::batches::Batches;
use shmem_benches::counts::Counters;
use shmem_benches::cpu::{Whose, bind_if_asked, cpu_time};

const LARGEST: usize = 4 << 20;
/// Payload of a datagram.
const DATAGRAM: usize = 60 << 10;
/// Bytes that are acknowledged, or asked for, together over UDP, and how many such groups are on their way.
const GROUP: usize = 2 * DATAGRAM;
const GROUPS: usize = 2;
/// As long as those of RoCE for a short write.
const HEAD: usize = 32;
/// Who hears nothing for so long has lost a datagram, or its partner.
const PATIENCE: Duration = Duration::from_secs(5);

/// What sockets speak.
#[derive(Clone, Copy, PartialEq, Eq, Debug, ValueEnum)]
enum Over {
    Udp,
    Tcp,
}

impl Over {
    /// Bytes of a piece of a message, and of pieces that are acknowledged or asked for together.
    const fn pieces(self) -> (usize, usize) {
        match self {
            Self::Udp => (DATAGRAM, GROUP),
            Self::Tcp => (LARGEST, LARGEST),
        }
    }
}

/// What a datagram is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// So many bytes of a message of which so many are left; the last of a group.
    Data { len: usize, left: usize, last: bool },
    /// As many bytes are wanted.
    Want { at: usize, len: usize },
    /// A group has come; of the one that acts: this is the end.
    Ack,
    /// The CPU time since the last of these.
    Spent { cpu_ns: u64 },
}

impl What {
    fn encode(self) -> [u8; HEAD] {
        let words: [u64; 4] = match self {
            Self::Data { len, left, last } => [1, left as u64, last.into(), len as u64],
            Self::Want { at, len } => [2, at as u64, len as u64, 0],
            Self::Ack => [3, 0, 0, 0],
            Self::Spent { cpu_ns } => [4, cpu_ns, 0, 0],
        };
        let mut head = [0; HEAD];
        for (bytes, word) in head.chunks_exact_mut(8).zip(words) {
            bytes.copy_from_slice(&word.to_ne_bytes());
        }
        head
    }

    fn decode(head: &[u8; HEAD]) -> Self {
        let word = |n: usize| {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&head[8 * n..8 * n + 8]);
            u64::from_ne_bytes(bytes)
        };
        match word(0) {
            1 => Self::Data {
                len: word(3) as usize,
                left: word(1) as usize,
                last: word(2) != 0,
            },
            2 => Self::Want {
                at: word(1) as usize,
                len: word(2) as usize,
            },
            3 => Self::Ack,
            _ => Self::Spent { cpu_ns: word(1) },
        }
    }

    /// Bytes that follow it.
    const fn len(self) -> usize {
        match self {
            Self::Data { len, .. } => len,
            _ => 0,
        }
    }
}

/// One end, which is connected to the other.
struct End {
    over: Over,
    socket: OwnedFd,
    memory: Vec<u8>,
}

/// A socket that waits for its partner.
enum Unconnected {
    Udp(UdpSocket),
    Tcp(TcpListener),
}

impl Unconnected {
    fn new(over: Over, ip: IpAddr) -> io::Result<Self> {
        Ok(match over {
            Over::Udp => Self::Udp(UdpSocket::bind((ip, 0))?),
            Over::Tcp => Self::Tcp(TcpListener::bind((ip, 0))?),
        })
    }

    fn address(&self) -> io::Result<SocketAddr> {
        match self {
            Self::Udp(socket) => socket.local_addr(),
            Self::Tcp(listener) => listener.local_addr(),
        }
    }

    /// The end whose partner is at `address`, or will say where it is (TCP).
    fn connected(self, address: SocketAddr) -> io::Result<End> {
        match self {
            Self::Udp(socket) => {
                socket.connect(address)?;
                End::udp(socket)
            }
            Self::Tcp(listener) => End::tcp(listener.accept()?.0),
        }
    }
}

impl End {
    fn udp(socket: UdpSocket) -> io::Result<Self> {
        socket.set_nonblocking(true)?;
        set_socket_recv_buffer_size(&socket, 4 << 20)?;
        Ok(Self::new(Over::Udp, socket.into()))
    }

    fn tcp(stream: TcpStream) -> io::Result<Self> {
        stream.set_nonblocking(true)?;
        stream.set_nodelay(true)?;
        Ok(Self::new(Over::Tcp, stream.into()))
    }

    fn new(over: Over, socket: OwnedFd) -> Self {
        let memory = vec![0; LARGEST];
        Self {
            over,
            socket,
            memory,
        }
    }

    /// Calls until there is room, or something to read: `call` says how many bytes went.
    fn spin(mut call: impl FnMut() -> Result<usize, Errno>) -> io::Result<usize> {
        let mut looks = 0_u32;
        let mut since = None;
        loop {
            match call() {
                Ok(bytes) => return Ok(bytes),
                Err(Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            looks += 1;
            if looks.is_multiple_of(1 << 16)
                && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                let why = "a datagram was lost, or the partner is gone";
                return Err(io::Error::new(ErrorKind::TimedOut, why));
            }
        }
    }

    fn send(&self, what: What, at: usize, len: usize) -> io::Result<()> {
        let head = what.encode();
        let mut sent = 0;
        while sent < HEAD + len {
            let bytes = [
                IoSlice::new(&head[sent.min(HEAD)..]),
                IoSlice::new(&self.memory[at + sent.saturating_sub(HEAD)..at + len]),
            ];
            sent += Self::spin(|| {
                let mut none = SendAncillaryBuffer::default();
                let flags = SendFlags::DONTWAIT;
                sendmsg(self.socket.as_fd(), &bytes, &mut none, flags)
            })?;
        }
        Ok(())
    }

    /// The next message, whose bytes are put to `at` if it has some.
    fn receive(&mut self, at: usize) -> io::Result<(What, usize)> {
        let mut head = [0; HEAD];
        let mut have = 0;
        loop {
            // Whoever sends waits for an answer, so nothing else follows.
            let end = (at + self.over.pieces().0).min(LARGEST);
            let mut bytes = [
                IoSliceMut::new(&mut head[have.min(HEAD)..]),
                IoSliceMut::new(&mut self.memory[at + have.saturating_sub(HEAD)..end]),
            ];
            let got = Self::spin(|| {
                let mut none = RecvAncillaryBuffer::default();
                let flags = RecvFlags::DONTWAIT;
                Ok(recvmsg(self.socket.as_fd(), &mut bytes, &mut none, flags)?.bytes)
            })?;
            have += got;
            let what = What::decode(&head);
            match self.over {
                Over::Udp if got >= HEAD => return Ok((what, got - HEAD)),
                Over::Udp => have = 0,
                Over::Tcp if got == 0 => return Err(ErrorKind::UnexpectedEof.into()),
                Over::Tcp if have >= HEAD && have == HEAD + what.len() => {
                    return Ok((what, what.len()));
                }
                Over::Tcp => {}
            }
        }
    }

    /// Sends what lies from `at` on, as one group of a message that ends at `all`.
    fn give(&self, mut at: usize, len: usize, all: usize) -> io::Result<()> {
        let end = at + len;
        loop {
            let next = (at + self.over.pieces().0).min(end);
            let (last, left, len) = (next == end, all - next, next - at);
            self.send(What::Data { len, left, last }, at, len)?;
            if last {
                return Ok(());
            }
            at = next;
        }
    }

    /// Puts the first `len` bytes to the partner.
    fn put(&mut self, len: usize) -> io::Result<()> {
        let (mut at, mut unheard) = (0, 0);
        let (_, most) = self.over.pieces();
        while at < len || unheard > 0 {
            if at < len && unheard < GROUPS {
                let group = most.min(len - at);
                self.give(at, group, len)?;
                at += group;
                unheard += 1;
            } else {
                let (what, _) = self.receive(0)?;
                assert_eq!(what, What::Ack);
                unheard -= 1;
            }
        }
        Ok(())
    }

    /// Gets the first `len` bytes of the partner.
    fn get(&mut self, len: usize) -> io::Result<()> {
        let (mut asked, mut have) = (0, 0);
        let (_, most) = self.over.pieces();
        while have < len {
            while asked < len && asked < have + GROUPS * most {
                let group = most.min(len - asked);
                let want = What::Want {
                    at: asked,
                    len: group,
                };
                self.send(want, 0, 0)?;
                asked += group;
            }
            let (what, got) = self.receive(have)?;
            assert!(matches!(what, What::Data { .. }));
            have += got;
        }
        Ok(())
    }

    /// Measures calls, each of which is `weight` operations.
    fn measure(
        &mut self,
        batches: &Batches,
        row: &str,
        bytes: usize,
        weight: usize,
        call: impl Fn(&mut Self) -> io::Result<()>,
    ) -> io::Result<()> {
        let mut result = Ok(());
        // After a failure nothing is worth measuring.
        let mut call = |end: &mut Self| {
            if result.is_ok() {
                result = call(end);
            }
        };
        let per_batch = batches.warm_up(bytes * weight, || call(self));
        self.spent()?;
        let run = batches.run(per_batch, weight, || call(self));
        let of_partner = self.spent()?;
        batches.print(row, bytes, &run, of_partner);
        result
    }

    /// CPU time of the partner since it was asked the last time.
    fn spent(&mut self) -> io::Result<Duration> {
        self.send(What::Spent { cpu_ns: 0 }, 0, 0)?;
        match self.receive(0)? {
            (What::Spent { cpu_ns }, _) => Ok(Duration::from_nanos(cpu_ns)),
            (other, _) => Err(io::Error::other(format!("{other:?} is no answer"))),
        }
    }

    /// Does what the partner asks for, until the end.
    fn serve(&mut self) -> io::Result<()> {
        let (mut at, mut before) = (0, cpu_time(Whose::Own));
        loop {
            match self.receive(at)? {
                (What::Data { left, last, .. }, len) => {
                    if last {
                        self.send(What::Ack, 0, 0)?;
                    }
                    at = if left == 0 { 0 } else { at + len };
                }
                (What::Want { at, len }, _) => self.give(at, len, at + len)?,
                (What::Spent { .. }, _) => {
                    let now = cpu_time(Whose::Own);
                    let cpu_ns = (now - before).as_nanos() as u64;
                    before = now;
                    self.send(What::Spent { cpu_ns }, 0, 0)?;
                }
                (What::Ack, _) => return Ok(()),
            }
        }
    }
}

#[derive(Parser)]
#[command(about = "What sockets of this machine allow")]
struct Options {
    /// Milliseconds of measurement per row.
    #[arg(default_value_t = 50.0)]
    milliseconds: f64,
    /// Print a table of medians, not the samples.
    #[arg(long)]
    table: bool,
    /// What the sockets speak.
    #[arg(long, value_enum, default_value_t = Over::Udp)]
    over: Over,
    /// Address of this end.
    #[arg(long, default_value_t = IpAddr::V4(Ipv4Addr::LOCALHOST))]
    address: IpAddr,
    /// Address of the partner; this one's if it is not said.
    #[arg(long)]
    partner_address: Option<IpAddr>,
    /// Nothing but puts of 1 MiB for so many milliseconds; prints MiB per second.
    #[arg(long)]
    rate: Option<u64>,
    /// A command that starts the partner elsewhere: words that come before it.
    #[arg(long, default_value = "")]
    through: String,
    /// Be the partner of the process at this address.
    #[arg(long, hide = true)]
    partner: Option<SocketAddr>,
}

/// The partner, ended with this.
struct Partner(Child);

impl Drop for Partner {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn main() -> io::Result<()> {
    let options = Options::parse();
    if let Some(address) = options.partner {
        bind_if_asked(1, 2);
        let mut end = match options.over {
            Over::Udp => {
                let socket = UdpSocket::bind((options.address, 0))?;
                println!("{}", socket.local_addr()?);
                socket.connect(address)?;
                End::udp(socket)?
            }
            Over::Tcp => {
                println!("{address}");
                End::tcp(TcpStream::connect(address)?)?
            }
        };
        return end.serve();
    }
    let own = Unconnected::new(options.over, options.address)?;
    let program = std::env::current_exe()?;
    let mut words: Vec<_> = options.through.split_whitespace().map(Into::into).collect();
    words.push(program.into_os_string());
    let mut partner = Command::new(&words[0]);
    let over = match options.over {
        Over::Udp => "udp",
        Over::Tcp => "tcp",
    };
    let address = options.partner_address.unwrap_or(options.address);
    partner.args(&words[1..]).args(["--over", over]).args([
        format!("--address={address}"),
        format!("--partner={}", own.address()?),
    ]);
    let mut partner = Partner(partner.stdout(Stdio::piped()).spawn()?);
    let said = partner.0.stdout.take().map(BufReader::new);
    let mut address = String::new();
    said.map_or(Ok(0), |mut said| said.read_line(&mut address))?;
    let mut end = own.connected(address.trim().parse().map_err(io::Error::other)?)?;
    // Not before: the partner would have been bound to the same core.
    bind_if_asked(0, 2);

    if let Some(milliseconds) = options.rate {
        let (time, start) = (Duration::from_millis(milliseconds), Instant::now());
        let mut puts = 0;
        while start.elapsed() < time {
            end.put(1 << 20)?;
            puts += 1;
        }
        println!("{:.1}", f64::from(puts) / start.elapsed().as_secs_f64());
        return end.send(What::Ack, 0, 0);
    }
    let batches = Batches {
        row_time: Duration::try_from_secs_f64(options.milliseconds / 1e3).unwrap_or_default(),
        table: options.table,
        calls: None,
        counters: Counters::default(),
    };
    batches.head();
    for bytes in [8, 64, 256, 1024, 4096, 16_384, 65_536, 1 << 20, LARGEST] {
        end.measure(&batches, "put+quiet", bytes, 1, |end| end.put(bytes))?;
        end.measure(&batches, "get", bytes, 1, |end| end.get(bytes))?;
    }
    end.measure(&batches, "fetch_add", 8, 1, |end| end.put(8))?;
    end.measure(&batches, "pingpong", 8, 2, |end| end.put(8))?;
    end.send(What::Ack, 0, 0)
}
