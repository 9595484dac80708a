//! How the PEs of a node meet where no launch agent has made their node segment: under launchers that
//! only speak PMI.
//!
//! The first PE of the node (by rank) makes the segment and hands its descriptors to the others over a
//! Unix socket in the abstract namespace. Such a name is in no file system, and goes with the socket that
//! has it: nothing can be left behind, however the processes end. It is made of the job's PMI name, the
//! node's number and the user's, so that jobs do not meet, nor the nodes of a job that share a machine.
//!
//! A name can be taken by anybody. So both sides ask the kernel who the other is (`SO_PEERCRED`): the
//! first PE gives the descriptors to processes of its own user only, and the others take them from
//! such a process only. Where the kernel cannot tell users apart, nobody is let in. Somebody else who takes the name first can prevent the job from starting,
//! which says so then, and no more.
//!
//! # The conversation
//! A PE sends 16 bytes: `SHMJ`, the [contract](crate::contract::NODE_CONTRACT)'s number, its rank, and
//! the number of PEs in the job, all big-endian. The answer is one byte: 0 with the descriptors of tables,
//! heap and XRC domain, or the number of a refusal.

use std::io::{self, Read, Write};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener, UnixStream};
use std::time::{Duration, Instant};

use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, FromZeros, Immutable, IntoBytes};

use crate::contract::NODE_CONTRACT;
use crate::segment::NodeSegment;
use crate::sys;

const MAGIC: [u8; 4] = *b"SHMJ";

/// What a PE says first.
#[derive(FromBytes, IntoBytes, Immutable)]
#[repr(C)]
struct Hello {
    magic: [u8; 4],
    contract: U32,
    rank: U32,
    n_pes: U32,
}

const WELCOME: u8 = 0;

/// How long a PE that has connected may take to say who it is, and the first PE to answer it.
const CONVERSATION: Duration = Duration::from_secs(10);
/// Shortest and longest sleep of a PE whose first one has not opened the meeting yet.
const FIRST_NAP: Duration = Duration::from_micros(100);
const LAST_NAP: Duration = Duration::from_millis(10);

/// Where the PEs of one node meet.
#[derive(Debug, Clone)]
pub struct Meeting {
    /// The job's name, different from that of any other job of this user on this machine that runs at
    /// the same time.
    pub job: String,
    /// Number of the node in the job.
    pub node: u32,
    /// Ranks of the node's PEs, ascending: the first makes the segment.
    pub ranks: Vec<u32>,
    /// Number of PEs in the job.
    pub n_pes: u32,
    /// How long to wait for each other.
    pub patience: Duration,
}

/// Why a PE was not let in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
enum Refusal {
    /// It speaks another version.
    Version = 1,
    /// It is not of this node, or the jobs differ.
    Stranger = 2,
    /// A PE of its rank is in already.
    Twice = 3,
}

/// PEs of a node that do not come together.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum RendezvousError {
    /// The first PE does not know what became of the others.
    #[error(
        "{} of node {node} {} not called init within {waited:?}: all PEs of a job must initialise. If \
         the PEs of one host run in containers of their own, they cannot share memory: give each host \
         one container, or one PE",
        pes(.missing), if .missing.len() == 1 { "has" } else { "have" }
    )]
    Missing {
        /// The node.
        node: u32,
        /// Ranks.
        missing: Vec<u32>,
        /// How long it has waited.
        waited: Duration,
    },
    /// The first PE has not come.
    #[error(
        "PE {first}, which makes the memory of node {node}, has not called init within {waited:?}: all \
         PEs of a job must initialise. If the PEs of one host run in containers of their own, they \
         cannot share memory: give each host one container, or one PE"
    )]
    NoFirst {
        /// Its rank.
        first: u32,
        /// The node.
        node: u32,
        /// How long this PE has waited.
        waited: Duration,
    },
    /// Another user has the name.
    #[error(
        "the socket where the PEs of node {node} meet belongs to user {uid}, which is not the user of \
         this job; that user hinders it"
    )]
    OtherUser {
        /// The node.
        node: u32,
        /// The other one.
        uid: u32,
    },
    /// The first PE did not let this one in.
    #[error("PE {first} does not share the memory of node {node} with this PE: {why}")]
    Refused {
        /// Its rank.
        first: u32,
        /// The node.
        node: u32,
        /// Its reason.
        why: &'static str,
    },
    /// Something took the name before.
    #[error(
        "the socket where the PEs of node {node} meet is taken already: another process believes to be \
         PE {first} of this job ({job})"
    )]
    Taken {
        /// The node.
        node: u32,
        /// Rank of the first PE.
        first: u32,
        /// The job's name.
        job: String,
    },
    /// The first PE ended in the middle.
    #[error("PE {first}, which makes the memory of node {node}, has ended")]
    FirstEnded {
        /// Its rank.
        first: u32,
        /// The node.
        node: u32,
    },
    /// A system call failed.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn os(what: &'static str) -> impl FnOnce(io::Error) -> RendezvousError {
    move |source| RendezvousError::Os { what, source }
}

/// "PE 3", or "PEs 3, 4 and 12 others".
fn pes(ranks: &[u32]) -> String {
    const SHOWN: usize = 8;
    let shown: Vec<String> = ranks.iter().take(SHOWN).map(u32::to_string).collect();
    let more = match ranks.len().saturating_sub(SHOWN) {
        0 => String::new(),
        more => format!(" and {more} others"),
    };
    let s = if ranks.len() == 1 { "" } else { "s" };
    format!("PE{s} {}{more}", shown.join(", "))
}

impl Meeting {
    fn first(&self) -> u32 {
        self.ranks.first().copied().unwrap_or(0)
    }

    /// The name of the socket, without the zero byte before it.
    fn name(&self) -> String {
        // The name of a job may be longer than that of a socket. The number is that of FNV-1a.
        let job = self
            .job
            .bytes()
            .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
                (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
            });
        let readable: String = self
            .job
            .chars()
            .filter(char::is_ascii_alphanumeric)
            .collect();
        let readable = &readable[..readable.len().min(32)];
        format!("shmem-{}-{readable}-{job:016x}-{}", sys::user(), self.node)
    }

    fn address(&self) -> Result<SocketAddr, RendezvousError> {
        SocketAddr::from_abstract_name(self.name()).map_err(os("name the socket of the node's PEs"))
    }

    fn hello(&self, rank: u32) -> Hello {
        Hello {
            magic: MAGIC,
            contract: contract().into(),
            rank: rank.into(),
            n_pes: self.n_pes.into(),
        }
    }
}

fn contract() -> u32 {
    NODE_CONTRACT.parse().unwrap_or(u32::MAX)
}

/// The first PE's side.
#[derive(Debug)]
pub struct Host<'a> {
    meeting: &'a Meeting,
    listener: UnixListener,
}

impl<'a> Host<'a> {
    /// Opens the meeting: from here on the others find it.
    ///
    /// # Errors
    /// The name is taken, or the system refuses a socket.
    pub fn open(meeting: &'a Meeting) -> Result<Self, RendezvousError> {
        let listener =
            UnixListener::bind_addr(&meeting.address()?).map_err(|source| match source.kind() {
                io::ErrorKind::AddrInUse => RendezvousError::Taken {
                    node: meeting.node,
                    first: meeting.first(),
                    job: meeting.job.clone(),
                },
                _ => os("open the socket where the PEs of this node meet")(source),
            })?;
        listener
            .set_nonblocking(true)
            .map_err(os("prepare the socket where the PEs of this node meet"))?;
        Ok(Self { meeting, listener })
    }

    /// Gives the segment to all others, and closes the meeting. Waits for them.
    ///
    /// # Errors
    /// Some have not come in time.
    pub fn share(self, segment: &NodeSegment) -> Result<(), RendezvousError> {
        let began = Instant::now();
        let mut missing: Vec<u32> = self.meeting.ranks.get(1..).unwrap_or_default().to_vec();
        while !missing.is_empty() {
            let waited = began.elapsed();
            let left = self.meeting.patience.saturating_sub(waited);
            if left.is_zero() {
                return Err(RendezvousError::Missing {
                    node: self.meeting.node,
                    missing,
                    waited: self.meeting.patience,
                });
            }
            match self.listener.accept() {
                Ok((stream, _)) => {
                    // What goes wrong with one conversation is that PE's affair: it is told, or it
                    // is seen to be missing.
                    let _ = self.converse(stream, segment, &mut missing);
                }
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    sys::wait_readable(self.listener.as_fd(), left)
                        .map_err(os("wait for the PEs of this node"))?;
                }
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(os("accept a PE of this node")(e)),
            }
        }
        Ok(())
    }

    fn converse(
        &self,
        mut stream: UnixStream,
        segment: &NodeSegment,
        missing: &mut Vec<u32>,
    ) -> io::Result<()> {
        if sys::peer_user(stream.as_fd())? != sys::user() {
            return Ok(());
        }
        stream.set_nonblocking(false)?;
        stream.set_read_timeout(Some(CONVERSATION))?;
        stream.set_write_timeout(Some(CONVERSATION))?;
        let mut hello = Hello::new_zeroed();
        stream.read_exact(hello.as_mut_bytes())?;
        match self.judge(&hello, missing) {
            Ok(at) => {
                let fds = [segment.tables_fd(), segment.heap_fd(), segment.xrc_fd()];
                sys::send_with_fds(stream.as_fd(), &[WELCOME], &fds)?;
                missing.swap_remove(at);
                Ok(())
            }
            Err(refusal) => stream.write_all(&[refusal as u8]),
        }
    }

    /// Where among the missing the sender is.
    fn judge(&self, hello: &Hello, missing: &[u32]) -> Result<usize, Refusal> {
        let rank = hello.rank.get();
        if hello.magic != MAGIC || hello.contract != contract() {
            return Err(Refusal::Version);
        }
        if hello.n_pes != self.meeting.n_pes || !self.meeting.ranks.contains(&rank) {
            return Err(Refusal::Stranger);
        }
        let at = missing.iter().position(|&r| r == rank);
        at.ok_or(Refusal::Twice)
    }
}

/// What a PE gets from the first of its node.
#[derive(Debug)]
pub struct Shared {
    /// The tables, for reading only.
    pub tables: OwnedFd,
    /// The heap memory.
    pub heap: OwnedFd,
    /// The file of the XRC domain.
    pub xrc: OwnedFd,
}

/// PE `rank`, which is not the first of its node, gets the node segment. Waits for the first.
///
/// # Errors
/// It has not come in time, belongs to another user, or does not want this PE.
pub fn join(meeting: &Meeting, rank: u32) -> Result<Shared, RendezvousError> {
    let mut stream = connect(meeting)?;
    let (node, first) = (meeting.node, meeting.first());
    let user = sys::peer_user(stream.as_fd()).map_err(os("see who offers the node's memory"))?;
    if user != sys::user() {
        return Err(RendezvousError::OtherUser { node, uid: user });
    }
    // It talks with one PE after the other.
    let patience = meeting.patience.max(CONVERSATION);
    let ended = |e: io::Error| match e.kind() {
        io::ErrorKind::BrokenPipe
        | io::ErrorKind::ConnectionReset
        | io::ErrorKind::UnexpectedEof => RendezvousError::FirstEnded { first, node },
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => RendezvousError::NoFirst {
            first,
            node,
            waited: patience,
        },
        _ => os("talk to the first PE of this node")(e),
    };
    stream.set_read_timeout(Some(patience)).map_err(ended)?;
    stream
        .write_all(meeting.hello(rank).as_bytes())
        .map_err(ended)?;
    let mut answer = [0];
    let (len, fds) = sys::recv_with_fds(stream.as_fd(), &mut answer).map_err(ended)?;
    if len == 0 {
        return Err(RendezvousError::FirstEnded { first, node });
    }
    let refused = |why| RendezvousError::Refused { first, node, why };
    match (answer[0], <[OwnedFd; 3]>::try_from(fds)) {
        (WELCOME, Ok([tables, heap, xrc])) => Ok(Shared { tables, heap, xrc }),
        (n, _) if n == Refusal::Stranger as u8 => Err(refused(
            "by what it was told by the launcher, this PE is not on this node",
        )),
        (n, _) if n == Refusal::Twice as u8 => {
            Err(refused("another process came with the rank of this one"))
        }
        _ => Err(refused(
            "its program was built with another version of this library",
        )),
    }
}

fn connect(meeting: &Meeting) -> Result<UnixStream, RendezvousError> {
    let name = meeting.name();
    let began = Instant::now();
    let mut nap = FIRST_NAP;
    loop {
        match sys::connect_now(name.as_bytes()).map(UnixStream::from) {
            Ok(stream) => {
                let blocking = stream.set_nonblocking(false).map(|()| stream);
                return blocking.map_err(os("talk to the first PE of this node"));
            }
            // Not there yet, or busy.
            Err(e) if is_early(&e) => {}
            Err(e) => return Err(os("connect to the first PE of this node")(e)),
        }
        let waited = began.elapsed();
        if waited >= meeting.patience {
            return Err(RendezvousError::NoFirst {
                first: meeting.first(),
                node: meeting.node,
                waited: meeting.patience,
            });
        }
        std::thread::sleep(nap.min(meeting.patience - waited));
        nap = (nap * 2).min(LAST_NAP);
    }
}

fn is_early(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::NotFound
            | io::ErrorKind::WouldBlock
            | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod user_tests;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hca_address::HcaAddresses;
    use crate::kvs::StorePlan;
    use crate::segment::{JobFacts, NodeView};
    use crate::settings::{HeapCommit, HeapPages};
    use crate::template::marker::StaticsRoom;

    const PATIENCE: Duration = Duration::from_secs(60);

    #[test]
    fn a_first_pe_that_accepts_nobody_is_not_waited_for_without_end() {
        let meeting = meeting("full", 0, &[0, 1]);
        let host = Host::open(&meeting).unwrap();
        // As many as may wait to be accepted do, also those that have gone.
        let error = loop {
            if let Err(e) = sys::connect_now(meeting.name().as_bytes()) {
                break e;
            }
        };
        assert_eq!(error.kind(), io::ErrorKind::WouldBlock, "{error}");
        let mut late = meeting.clone();
        late.patience = Duration::from_millis(50);
        let (told, said) = std::sync::mpsc::channel();
        std::thread::spawn(move || told.send(join(&late, 1).map(drop)));
        let outcome = said.recv_timeout(PATIENCE).expect("it waits without end");
        assert!(
            matches!(outcome, Err(RendezvousError::NoFirst { .. })),
            "{outcome:?}"
        );
        drop(host);
    }

    pub(super) fn meeting(job: &str, node: u32, ranks: &[u32]) -> Meeting {
        Meeting {
            job: format!("test {job} {}", std::process::id()),
            node,
            ranks: ranks.to_vec(),
            n_pes: 5,
            patience: PATIENCE,
        }
    }

    /// Of a job of 5 PEs, the first 3 of which are on node 0.
    pub(super) fn segment(node: u32) -> NodeSegment {
        NodeSegment::create(&JobFacts {
            job_id: [1; 16],
            job_key: [2; 32],
            node_of: &[0, 0, 0, 1, 1],
            n_nodes: 2,
            node,
            on_machine: 5,
            heap_size: 4096,
            statics: StaticsRoom::default(),
            heap_commit: HeapCommit::Lazy,
            heap_pages: HeapPages::Default,
            store: StorePlan::NONE,
            hca_addresses: HcaAddresses::shared(std::net::Ipv4Addr::LOCALHOST.into()),
            spins: 0,
            report: false,
            calls: 0,
        })
        .unwrap()
    }

    #[test]
    fn two_nodes_of_a_job_meet_apart() {
        let nodes = [
            meeting("nodes", 0, &[0, 1, 2]),
            meeting("nodes", 1, &[3, 4]),
        ];
        std::thread::scope(|s| {
            for m in &nodes {
                // In any order: those who come early wait.
                for &rank in &m.ranks[1..] {
                    s.spawn(move || {
                        let got = join(m, rank).unwrap();
                        let view = NodeView::attach(got.tables.as_fd(), got.heap.as_fd()).unwrap();
                        assert_eq!(view.node(), m.node as usize);
                        assert_eq!(view.ranks(), m.ranks);
                    });
                }
                s.spawn(move || {
                    let host = Host::open(m).unwrap();
                    host.share(&segment(m.node)).unwrap();
                });
            }
        });
        // The names are free again.
        Host::open(&nodes[0]).unwrap();
    }

    #[test]
    fn who_does_not_come_is_named() {
        let mut m = meeting("missing", 0, &[0, 1, 2]);
        m.patience = Duration::from_millis(300);
        loop {
            let (came, text) = std::thread::scope(|s| {
                let comes = s.spawn(|| join(&m, 1).is_ok());
                let error = Host::open(&m).unwrap().share(&segment(0)).unwrap_err();
                (comes.join().unwrap(), error.to_string())
            });
            if came {
                assert!(
                    text.starts_with("PE 2 of node 0 has not called init"),
                    "{text}"
                );
                break;
            }
            // PE 1 had no processor in time.
            assert!(m.patience < PATIENCE, "{text}");
            m.patience *= 2;
        }
        let error = join(&m, 1).unwrap_err().to_string();
        assert!(error.starts_with("PE 0, which makes the memory"), "{error}");
    }

    #[test]
    fn strangers_get_nothing_and_hold_up_nobody() {
        let m = meeting("strangers", 0, &[0, 1]);
        std::thread::scope(|s| {
            s.spawn(|| Host::open(&m).unwrap().share(&segment(0)).unwrap());
            let wrong = |rank, n_pes| {
                let m = Meeting { n_pes, ..m.clone() };
                join(&m, rank).unwrap_err().to_string()
            };
            assert!(wrong(3, 5).contains("not on this node"));
            assert!(wrong(1, 6).contains("not on this node"));
            assert!(wrong(0, 5).contains("with the rank of this one"));
            let mut other = connect(&m).unwrap();
            other.write_all(b"GET / HTTP/1.1\r\n\r\n").unwrap();
            let mut answer = [0];
            other.read_exact(&mut answer).unwrap();
            assert_eq!(answer, [Refusal::Version as u8]);
            // Says nothing, and goes.
            drop(connect(&m).unwrap());
            join(&m, 1).unwrap();
        });
    }

    #[test]
    fn a_name_serves_one_job() {
        let m = meeting("taken", 0, &[0, 1]);
        let _host = Host::open(&m).unwrap();
        let error = Host::open(&m).unwrap_err().to_string();
        assert!(error.contains("taken already"), "{error}");
        // Another job of this user, and one whose name is long.
        Host::open(&meeting("other", 0, &[0, 1])).unwrap();
        Host::open(&meeting(&"x".repeat(300), 0, &[0, 1])).unwrap();
        Host::open(&meeting(&format!("{}y", "x".repeat(300)), 0, &[0, 1])).unwrap();
    }

    #[test]
    fn an_end_in_the_middle_is_noticed() {
        let m = meeting("ended", 0, &[0, 1]);
        let host = Host::open(&m).unwrap();
        std::thread::scope(|s| {
            let joins = s.spawn(|| join(&m, 1).unwrap_err().to_string());
            while host.listener.accept().is_err() {
                std::thread::yield_now();
            }
            let error = joins.join().unwrap();
            assert_eq!(error, "PE 0, which makes the memory of node 0, has ended");
        });
    }
}
