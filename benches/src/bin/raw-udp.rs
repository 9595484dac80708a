//! What UDP sockets of this machine allow: the rows of `p2p` between two processes that spin on their sockets and
//! do nothing else. `compare network` puts it beside the libraries, as the limit.
//!
//! `raw-udp [MILLISECONDS] [--table]`. The output is that of `p2p`. Small rows are one datagram there and one back; `pingpong`
//! is half of that. Long ones go in datagrams of 60 KiB straight from one memory and into the other, four of them on
//! their way; a put is acknowledged every second datagram, a get asks for two at a time. With `BENCH_BIND` in the environment each process
//! stays on a core of its own.

use std::io::{self, BufRead, BufReader, IoSlice, IoSliceMut};
use std::net::{Ipv4Addr, SocketAddr, UdpSocket};
use std::os::fd::AsFd;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use clap::Parser;
use rustix::io::Errno;
use rustix::net::sockopt::set_socket_recv_buffer_size;
use rustix::net::{
    RecvAncillaryBuffer, RecvFlags, SendAncillaryBuffer, SendFlags, recvmsg, sendmsg,
};
use shmem_benches::batches::Batches;
use shmem_benches::cpu::{Whose, bind_if_asked, cpu_time};

const LARGEST: usize = 4 << 20;
/// Payload of a datagram.
const DATAGRAM: usize = 60 << 10;
/// Datagrams that are acknowledged, or asked for, together, and how many such groups are on their way.
const GROUP: usize = 2 * DATAGRAM;
const GROUPS: usize = 2;
/// As long as those of RoCE for a short write.
const HEAD: usize = 32;
/// Who hears nothing for so long has lost a datagram, or its partner.
const PATIENCE: Duration = Duration::from_secs(2);

/// What a datagram is about.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum What {
    /// Bytes of a message of which so many are left; the last of a group.
    Data { left: usize, last: bool },
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
            Self::Data { left, last } => [1, left as u64, last.into(), 0],
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
}

/// One end.
struct End {
    socket: UdpSocket,
    memory: Vec<u8>,
}

impl End {
    fn new() -> io::Result<Self> {
        let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0))?;
        socket.set_nonblocking(true)?;
        set_socket_recv_buffer_size(&socket, 4 << 20)?;
        Ok(Self {
            socket,
            memory: vec![0; LARGEST],
        })
    }

    fn send(&self, what: What, at: usize, len: usize) -> io::Result<()> {
        let head = what.encode();
        let bytes = [
            IoSlice::new(&head),
            IoSlice::new(&self.memory[at..at + len]),
        ];
        let mut none = SendAncillaryBuffer::default();
        sendmsg(self.socket.as_fd(), &bytes, &mut none, SendFlags::DONTWAIT)?;
        Ok(())
    }

    /// The next datagram, whose bytes are put to `at` if it has some.
    fn receive(&mut self, at: usize) -> io::Result<(What, usize)> {
        let mut head = [0; HEAD];
        let end = (at + DATAGRAM).min(LARGEST);
        let mut looks = 0_u32;
        let mut since = None;
        loop {
            let mut bytes = [
                IoSliceMut::new(&mut head),
                IoSliceMut::new(&mut self.memory[at..end]),
            ];
            let mut none = RecvAncillaryBuffer::default();
            match recvmsg(
                self.socket.as_fd(),
                &mut bytes,
                &mut none,
                RecvFlags::DONTWAIT,
            ) {
                Ok(got) if got.bytes >= HEAD => {
                    return Ok((What::decode(&head), got.bytes - HEAD));
                }
                Ok(_) | Err(Errno::AGAIN) => {}
                Err(e) => return Err(e.into()),
            }
            looks += 1;
            if looks.is_multiple_of(1 << 16)
                && since.get_or_insert_with(Instant::now).elapsed() > PATIENCE
            {
                return Err(io::Error::other(
                    "a datagram was lost, or the partner is gone",
                ));
            }
        }
    }

    /// Sends what lies from `at` on, as one group of a message that ends at `all`.
    fn give(&self, mut at: usize, len: usize, all: usize) -> io::Result<()> {
        let end = at + len;
        loop {
            let next = (at + DATAGRAM).min(end);
            let (last, left) = (next == end, all - next);
            self.send(What::Data { left, last }, at, next - at)?;
            if last {
                return Ok(());
            }
            at = next;
        }
    }

    /// Puts the first `len` bytes to the partner.
    fn put(&mut self, len: usize) -> io::Result<()> {
        let (mut at, mut unheard) = (0, 0);
        while at < len || unheard > 0 {
            if at < len && unheard < GROUPS {
                let group = GROUP.min(len - at);
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
        while have < len {
            while asked < len && asked < have + GROUPS * GROUP {
                let group = GROUP.min(len - asked);
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
        let per_batch = batches.warm_up(|| call(self));
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
                (What::Data { left, last }, len) => {
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
#[command(about = "What UDP sockets of this machine allow")]
struct Options {
    /// Milliseconds of measurement per row.
    #[arg(default_value_t = 50.0)]
    milliseconds: f64,
    /// Print a table of medians, not the samples.
    #[arg(long)]
    table: bool,
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
    let mut end = End::new()?;
    if let Some(partner) = options.partner {
        bind_if_asked(1, 2);
        end.socket.connect(partner)?;
        println!("{}", end.socket.local_addr()?);
        return end.serve();
    }
    let mut partner = Command::new(std::env::current_exe()?);
    partner.arg(format!("--partner={}", end.socket.local_addr()?));
    let mut partner = Partner(partner.stdout(Stdio::piped()).spawn()?);
    let said = partner.0.stdout.take().map(BufReader::new);
    let mut address = String::new();
    said.map_or(Ok(0), |mut said| said.read_line(&mut address))?;
    let address: SocketAddr = address.trim().parse().map_err(io::Error::other)?;
    end.socket.connect(address)?;
    // Not before: the partner would have been bound to the same core.
    bind_if_asked(0, 2);

    let batches = Batches {
        row_time: Duration::try_from_secs_f64(options.milliseconds / 1e3).unwrap_or_default(),
        table: options.table,
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
