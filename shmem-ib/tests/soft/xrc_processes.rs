//! An XRC domain of real processes: an initiator here, and on the "other node" two processes, of which
//! one has the target queue pair and the other has the memory. What is written, read and added reaches
//! the memory although its owner never moves the wire.
//!
//! The test starts itself again as those processes ([`child`]), with the domain's file and the shared
//! memory as inherited descriptors. They take commands, a line each, from standard input.

use std::io::{BufRead, BufReader, Lines, Write};
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::str::FromStr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use shmem_ib::soft::xrc::{FILE_LEN, SharedWindow};
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, AddressVector, Completion, Cq, Hca, Mtu, Psn, QpAttr, QpInit, QpType, Qpn, RcDest,
    RcStart, Rkey, SendOp, SendWr, SrqInit, SrqKind, SrqNum, WcStatus,
};
use shmem_ib_kit::conformance::Region;

const WINDOW: usize = 1 << 20;
const ROLE: &str = "XRC_TEST_ROLE";
/// Name of the test [`child`].
const CHILD: &str = "xrc_processes::child";
const PATIENCE: Duration = Duration::from_secs(60);
const PSN: Psn = Psn(5);

fn memfd(name: &std::ffi::CStr, len: usize) -> OwnedFd {
    // SAFETY: a valid name. Without CLOEXEC: the children inherit it.
    let fd = unsafe { libc::memfd_create(name.as_ptr(), 0) };
    assert!(fd >= 0);
    // SAFETY: a new descriptor.
    let fd = unsafe { OwnedFd::from_raw_fd(fd) };
    // SAFETY: plain system call.
    assert_eq!(unsafe { libc::ftruncate(fd.as_raw_fd(), len as i64) }, 0);
    fd
}

/// Maps the window, behind `skip` pages, so that processes have it at different addresses.
fn map(fd: RawFd, skip: usize) -> *mut u8 {
    let (access, len) = (libc::PROT_READ | libc::PROT_WRITE, WINDOW + skip * 4096);
    let none = std::ptr::null_mut();
    // SAFETY: a new mapping anywhere, then the file over the end of it.
    unsafe {
        let kind = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        let room = libc::mmap(none, len, libc::PROT_NONE, kind, -1, 0);
        assert!(room != libc::MAP_FAILED);
        let at = room.byte_add(skip * 4096);
        let fixed = libc::MAP_SHARED | libc::MAP_FIXED;
        assert_eq!(libc::mmap(at, WINDOW, access, fixed, fd, 0), at);
        at.cast()
    }
}

fn attrs(ini: bool, av: AddressVector, qpn: Qpn) -> Vec<QpAttr> {
    let dest = RcDest {
        max_dest_rd_atomic: 4,
        ..RcDest::new(av, qpn, PSN, Mtu::M1024)
    };
    let attrs = RcStart::new(dest, PSN).attrs();
    attrs[..if ini { 3 } else { 2 }].to_vec()
}

fn parse<T: FromStr>(word: Option<&str>) -> T {
    let word = word.expect("another word");
    word.parse().unwrap_or_else(|_| panic!("{word}"))
}

fn av(port: u16) -> AddressVector {
    AddressVector {
        gid: std::net::Ipv4Addr::LOCALHOST.into(),
        udp_port: port,
    }
}

/// The processes of the other node. No test of its own.
#[test]
#[ignore = "started by the other tests"]
fn child() {
    let Ok(role) = std::env::var(ROLE) else {
        return;
    };
    let mut words = role.split(' ');
    let (domain, heap, skip): (RawFd, RawFd, usize) = (
        parse(words.next()),
        parse(words.next()),
        parse(words.next()),
    );
    let base = map(heap, skip);
    // SAFETY: mapped until the process ends, by every process of the domain.
    let window = unsafe { SharedWindow::new(base, WINDOW) };
    let config = SoftConfig {
        shared: Some(window),
        ..SoftConfig::loopback(skip as u64 + 100)
    };
    let hca = Arc::new(SoftHca::open(&config).unwrap());
    // SAFETY: inherited, and nobody else's here.
    let domain = unsafe { OwnedFd::from_raw_fd(domain) };
    let xrcd = hca.open_xrcd(Some(domain.as_fd())).unwrap();
    let cq = hca.create_cq(16).unwrap();
    let kind = SrqKind::Xrc { xrcd, cq };
    let (max_wr, max_sge) = (16, 1);
    let srq = hca.create_srq(&SrqInit {
        max_wr,
        max_sge,
        kind,
    });
    let srqn = hca.srq_num(srq.unwrap()).unwrap();
    // Its part of the window: half of it each.
    let own = base.wrapping_add(skip.min(1) * WINDOW / 2);
    // SAFETY: mapped until the process ends, and accessed with atomics only.
    let mr = unsafe { hca.reg_mr(own, WINDOW / 2, Access::ALL) }.unwrap();
    let byte = |i: usize| {
        // SAFETY: within the own half.
        unsafe { AtomicU8::from_ptr(own.wrapping_add(i)) }
    };
    // SAFETY: within the own half, and aligned.
    let word = unsafe { AtomicU64::from_ptr(own.cast()) };
    println!("hello {} {} {}", srqn.0, mr.rkey.0, mr.addr);
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        let mut words = line.split(' ');
        match words.next().unwrap() {
            // A target for the initiator at a port with a number; served by a thread from now on.
            "target" => {
                let init = QpInit {
                    xrcd: Some(xrcd),
                    ..QpInit::new(QpType::XrcTgt, cq)
                };
                let qp = hca.create_qp(&init).unwrap();
                let (port, qpn) = (parse(words.next()), Qpn(parse(words.next())));
                for attr in attrs(false, av(port), qpn) {
                    hca.modify_qp(qp, &attr).unwrap();
                }
                let server = Arc::clone(&hca);
                std::thread::spawn(move || {
                    loop {
                        server.wait(Duration::from_secs(1));
                    }
                });
                println!("target {} {}", hca.port().av.udp_port, qp.0);
            }
            "sum" => {
                let (at, len): (usize, usize) = (parse(words.next()), parse(words.next()));
                let load = |i| u64::from(byte(i).load(Ordering::Relaxed));
                let sum = (0..len).fold(0, |s: u64, i| s.wrapping_mul(31) + load(at + i));
                println!("sum {sum} {}", hca.counters().packets_received);
            }
            "add" => {
                for _ in 0..parse::<u64>(words.next()) {
                    word.fetch_add(1, Ordering::Relaxed);
                    std::thread::yield_now();
                }
                println!("added");
            }
            "word" => println!("word {}", word.load(Ordering::Relaxed)),
            // Ends the registration while others write, and looks whether they still do.
            "end" => {
                hca.dereg_mr(&mr).unwrap();
                (0..WINDOW / 2).for_each(|i| byte(i).store(0xa5, Ordering::Relaxed));
                std::thread::sleep(Duration::from_millis(50));
                let changed = (0..WINDOW / 2).any(|i| byte(i).load(Ordering::Relaxed) != 0xa5);
                println!("ended {changed}");
            }
            other => panic!("{other}"),
        }
    }
}

/// A process of the other node.
struct Process {
    child: Child,
    input: ChildStdin,
    output: Lines<BufReader<ChildStdout>>,
    srqn: SrqNum,
    rkey: Rkey,
    va: u64,
}

impl Process {
    fn start(domain: &OwnedFd, heap: &OwnedFd, skip: usize) -> Self {
        let (domain, heap) = (domain.as_raw_fd(), heap.as_raw_fd());
        let mut child = Command::new(std::env::current_exe().unwrap())
            .args(["--exact", CHILD, "--ignored", "--nocapture"])
            .env(ROLE, format!("{domain} {heap} {skip}"))
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let input = child.stdin.take().unwrap();
        let output = BufReader::new(child.stdout.take().unwrap()).lines();
        let mut process = Self {
            child,
            input,
            output,
            srqn: SrqNum(0),
            rkey: Rkey(0),
            va: 0,
        };
        let hello = process.answer("hello");
        let mut words = hello.split(' ');
        process.srqn = SrqNum(parse(words.next()));
        process.rkey = Rkey(parse(words.next()));
        process.va = parse(words.next());
        process
    }

    fn command(&mut self, line: &str) {
        writeln!(self.input, "{line}").unwrap();
    }

    /// The rest of the next line that begins with `word`; the test harness prints lines, too.
    fn answer(&mut self, word: &str) -> String {
        loop {
            let line = self.output.next().expect("the process lives").unwrap();
            if let Some((_, rest)) = line.split_once(&format!("{word} ")) {
                return rest.to_owned();
            }
        }
    }

    fn ask(&mut self, line: &str, word: &str) -> String {
        self.command(line);
        self.answer(word)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The initiator, connected with a target in `x`.
struct Initiator {
    hca: SoftHca,
    cq: Cq,
    qp: Qpn,
    mem: Region,
}

impl Initiator {
    fn new(x: &mut Process) -> Self {
        let hca = SoftHca::open(&SoftConfig::loopback(7)).unwrap();
        let cq = hca.create_cq(256).unwrap();
        let init = QpInit {
            max_send_wr: 64,
            ..QpInit::new(QpType::XrcIni, cq)
        };
        let qp = hca.create_qp(&init).unwrap();
        let mem = Region::new(&hca, 1 << 16, Access::ALL);
        let answer = x.ask(
            &format!("target {} {}", hca.port().av.udp_port, qp.0),
            "target",
        );
        let mut words = answer.split(' ');
        let (port, tgt) = (parse(words.next()), Qpn(parse(words.next())));
        for attr in attrs(true, av(port), tgt) {
            hca.modify_qp(qp, &attr).unwrap();
        }
        Self { hca, cq, qp, mem }
    }

    fn post(&self, op: SendOp, srqn: SrqNum, at: usize, len: usize) {
        let sges = [self.mem.sge(at, len)];
        let wr = SendWr {
            srqn: Some(srqn),
            ..SendWr::new(1, op, &sges)
        };
        // SAFETY: regions are never freed.
        unsafe { self.hca.post_send(self.qp, &wr) }.unwrap();
    }

    fn next(&self) -> WcStatus {
        let start = Instant::now();
        let mut out = [Completion::EMPTY; 1];
        while self.hca.poll_cq(self.cq, &mut out) == 0 {
            assert!(start.elapsed() < PATIENCE, "no completion");
        }
        out[0].status
    }

    fn run(&self, op: SendOp, srqn: SrqNum, at: usize, len: usize) -> WcStatus {
        self.post(op, srqn, at, len);
        self.next()
    }
}

fn node() -> (OwnedFd, OwnedFd, Process, Process) {
    let (domain, heap) = (memfd(c"domain", 0), memfd(c"heap", WINDOW));
    let x = Process::start(&domain, &heap, 0);
    let y = Process::start(&domain, &heap, 3);
    assert_ne!(x.srqn, y.srqn, "numbers are unique in a domain");
    (domain, heap, x, y)
}

const fn write(p: &Process, offset: u64) -> SendOp {
    SendOp::write(p.va + offset, p.rkey)
}

#[test]
fn the_target_of_one_process_serves_the_memory_of_another() {
    let (_domain, _heap, mut x, mut y) = node();
    let ini = Initiator::new(&mut x);
    let data: Vec<u8> = (0..10_000).map(|i| (i * 7 % 251) as u8).collect();
    ini.mem.fill(0, &data);
    let sum = |data: &[u8]| {
        data.iter()
            .fold(0_u64, |s, b| s.wrapping_mul(31) + u64::from(*b))
    };
    for (len, at) in [(8, 64), (1, 77), (10_000, 4096)] {
        assert_eq!(ini.run(write(&y, at), y.srqn, 0, len), WcStatus::Success);
        let want = format!("{} 0", sum(&data[..len]));
        assert_eq!(
            y.ask(&format!("sum {at} {len}"), "sum"),
            want,
            "of {len} bytes"
        );
        let read = SendOp::Read {
            raddr: y.va + at,
            rkey: y.rkey,
        };
        assert_eq!(ini.run(read, y.srqn, 20_000, len), WcStatus::Success);
        assert_eq!(ini.mem.bytes(20_000, len), data[..len]);
    }
    // Additions over the wire and by the owner's processor, on one word at once.
    const N: u64 = 2000;
    y.command(&format!("add {N}"));
    let add = SendOp::fetch_add(y.va, y.rkey, 1);
    for _ in 0..N {
        assert_eq!(ini.run(add, y.srqn, 0, 8), WcStatus::Success);
    }
    y.command("word");
    assert_eq!(y.answer("word"), (2 * N).to_string());
    // A stated limit: receives of other processes are out of reach.
    let send = SendOp::Send { imm: None };
    assert_eq!(ini.run(send, y.srqn, 0, 8), WcStatus::RemInvReqErr);
}

#[test]
fn a_region_that_its_owner_ends_is_written_no_more() {
    let (_domain, _heap, mut x, mut y) = node();
    let ini = Initiator::new(&mut x);
    ini.mem.fill(0, &[0x11; 8192]);
    assert_eq!(ini.run(write(&y, 0), y.srqn, 0, 8192), WcStatus::Success);
    y.command("end");
    let mut in_flight = 0;
    let refused = loop {
        while in_flight < 16 {
            ini.post(write(&y, 8192 * in_flight), y.srqn, 0, 8192);
            in_flight += 1;
        }
        match ini.next() {
            WcStatus::Success => in_flight -= 1,
            refused => break refused,
        }
    };
    assert_eq!(refused, WcStatus::RemAccessErr);
    assert_eq!(y.answer("ended"), "false", "somebody wrote after the end");
}

#[test]
fn a_process_that_dies_takes_nobody_with_it() {
    let (domain, heap, mut x, mut y) = node();
    let ini = Initiator::new(&mut x);
    let (op, srqn) = (write(&y, 64), y.srqn);
    assert_eq!(ini.run(op, srqn, 0, 8), WcStatus::Success);
    y.child.kill().unwrap();
    y.child.wait().unwrap();
    // Its memory is the domain's: the write goes where nobody looks.
    assert_eq!(ini.run(op, srqn, 0, 8), WcStatus::Success);
    let mut z = Process::start(&domain, &heap, 5);
    assert!(z.srqn != x.srqn && z.srqn != y.srqn);
    ini.mem.set_word(0, 42);
    assert_eq!(ini.run(write(&z, 0), z.srqn, 0, 8), WcStatus::Success);
    assert_eq!(z.ask("word", "word"), "42");
    let word = ini.run(write(&x, 0), x.srqn, 0, 8);
    assert_eq!(
        (word, x.ask("word", "word").as_str()),
        (WcStatus::Success, "42")
    );
}

#[test]
fn a_file_that_is_no_domain_is_refused() {
    let hca = SoftHca::open(&SoftConfig::loopback(1)).unwrap();
    let refused = |fd: &OwnedFd, why: &str| {
        let error = hca.open_xrcd(Some(fd.as_fd())).unwrap_err();
        let source = std::error::Error::source(&error).map(ToString::to_string);
        let said = format!("{error}: {}", source.unwrap_or_default());
        assert!(said.contains("XRC domain") && said.contains(why), "{said}");
    };
    refused(&memfd(c"short", 100), "100 bytes");
    let other = memfd(c"other", FILE_LEN);
    let noise = [7_u8; 8];
    // SAFETY: 8 bytes of the stack.
    let wrote = unsafe { libc::pwrite(other.as_raw_fd(), noise.as_ptr().cast(), 8, 0) };
    assert_eq!(wrote, 8);
    refused(&other, "something else");
    let fine = memfd(c"fine", FILE_LEN);
    let xrcd = hca.open_xrcd(Some(fine.as_fd())).unwrap();
    hca.close_xrcd(xrcd).unwrap();
}
