//! How a process joins: it finds the host, shows that it has the key, waits for all, and then passes on
//! between the host and its client of PMI, in a thread of its own.

use std::io::{self, Read, Write};
use std::net::{TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::{Duration, Instant};

use shmem_node::sys;

use super::guest::{Guest, News};
use super::hello::{Claim, Kind, Seals, ending};
use super::unique_id::{At, Listener, MakeError, UniqueId};
use super::{MAX_SIZE, serve};

/// Bytes of the stack of the thread that passes on.
const STACK: usize = 128 << 10;
/// How long one address may take to answer, and a host to show that it has the key.
const ANSWER: Duration = Duration::from_secs(10);
/// Shortest and longest sleep between two attempts to connect.
const FIRST_NAP: Duration = Duration::from_millis(2);
const LAST_NAP: Duration = Duration::from_millis(500);
/// How often who listens may close the connection before it has shown the key: a host whose strangers are many
/// does.
const REFUSALS: u32 = 20;
/// How much longer than the host's limit a process waits, so that the host can say who is missing.
const LONGER: Duration = Duration::from_secs(30);

/// This process's place in a job.
#[derive(Debug, Clone, Copy)]
pub struct Place<'a> {
    /// Rank of the process.
    pub rank: u32,
    /// Number of processes of the job.
    pub size: u32,
    /// What names the machine: the same for processes that share memory, and for no others.
    pub machine: &'a str,
    /// How long processes wait for each other to come.
    pub patience: Duration,
}

/// Why a process cannot join.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum JoinError {
    /// A rank or size that cannot be.
    #[error(
        "PE {rank} of {size}: a job has from 1 to {MAX_SIZE} PEs, and their ranks are from 0 to less than their number"
    )]
    Place {
        /// The rank.
        rank: u32,
        /// The size.
        size: u32,
    },
    /// PE 0 cannot listen.
    #[error("PE 0 listens where the job's id says, and {0}")]
    Host(#[from] MakeError),
    /// Nobody listens.
    #[error("cannot connect to {at}, where the processes of the job's id meet, within {waited:?}: {source}. {}", whose(*.listener))]
    Connect {
        /// Where the listener is.
        at: String,
        /// Who listens.
        listener: Listener,
        /// How long it was tried.
        waited: Duration,
        /// What came of it last.
        source: io::Error,
    },
    /// Somebody else listens.
    #[error(
        "who listens at {at} does not know the key of the job's id, or has too much to do: the id is of another job, or \
         another program has the port"
    )]
    Stranger {
        /// Where the listener is.
        at: String,
    },
    /// The job has ended.
    #[error("the job has ended: {0}")]
    Ended(String),
    /// The host has gone.
    #[error(
        "the connection to {at}, where the processes of the job's id meet, has ended ({why}). {} or its machine cannot be \
         reached any more",
        who_ended(*.listener)
    )]
    Lost {
        /// Where the listener is.
        at: String,
        /// Who listened.
        listener: Listener,
        /// How the connection ended.
        why: String,
    },
    /// The operating system refused something.
    #[error("cannot {what}: {source}")]
    Os {
        /// What was tried.
        what: &'static str,
        /// Why it failed.
        source: io::Error,
    },
}

fn whose(listener: Listener) -> &'static str {
    match listener {
        Listener::Maker => {
            "The process that made the id listens there: it must live until all have finalized, and the address must be one \
             that this machine reaches (SHMEM_SOFT_ADDRESS where the id is made)"
        }
        Listener::FirstPe => {
            "PE 0 listens there, from its init on: it must have been started, and the address must be one that this machine \
             reaches"
        }
    }
}

fn who_ended(listener: Listener) -> &'static str {
    match listener {
        Listener::Maker => {
            "The process that made the id, and must live until all have finalized, has ended,"
        }
        Listener::FirstPe => "PE 0, which listens there, has ended,",
    }
}

/// Why a job has ended for a process that is in it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ended {
    /// Status with which the process is to exit.
    pub status: i32,
    /// Why, as a sentence's part.
    pub why: String,
}

/// What a process that has joined holds.
#[derive(Debug)]
pub(crate) struct Member {
    id: UniqueId,
    /// Frames that are sent: by the thread that passes on, and by who finalizes.
    sending: Mutex<Sending>,
    /// Between init and finalize.
    is_in: AtomicBool,
    ended: OnceLock<Ended>,
}

struct Sending {
    stream: TcpStream,
    seals: Seals,
}

impl std::fmt::Debug for Sending {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Sending").field(&self.stream).finish()
    }
}

impl Member {
    fn sending(&self) -> MutexGuard<'_, Sending> {
        self.sending.lock().unwrap_or_else(|e| e.into_inner())
    }

    fn send(&self, kind: Kind, bytes: &[u8]) -> io::Result<()> {
        let mut sending = self.sending();
        let mut frames = Vec::new();
        sending.seals.seal(kind, bytes, &mut frames);
        sending.stream.write_all(&frames)
    }

    pub(crate) fn id(&self) -> &UniqueId {
        &self.id
    }

    /// Tells the host that this process has finalized.
    pub(crate) fn leaves(&self) {
        if self.is_in.swap(false, Ordering::AcqRel) {
            // A host that has gone has nobody to wait for.
            let _ = self.send(Kind::Leaves, &[]);
        }
    }

    /// Tells the host that this process wants the job to end.
    pub(crate) fn ends_job(&self, status: i32, why: &str) {
        // Where the host has gone, the job has ended.
        let _ = self.send(Kind::End, &ending(status, why));
    }

    /// Tells the host that this process initialises again.
    pub(crate) fn returns(&self) -> Result<(), JoinError> {
        if !self.is_in.swap(true, Ordering::AcqRel) {
            let sent = self.send(Kind::Returns, &[]);
            if let Some(ended) = self.ended.get() {
                return Err(JoinError::Ended(ended.why.clone()));
            }
            sent.map_err(|e| lost(&self.id, &e))?;
        }
        Ok(())
    }
}

fn at(id: &UniqueId) -> String {
    let (host, port) = id.address();
    At(host, port).to_string()
}

fn lost(id: &UniqueId, why: &dyn std::fmt::Display) -> JoinError {
    JoinError::Lost {
        at: at(id),
        listener: id.listener(),
        why: why.to_string(),
    }
}

fn os(what: &'static str) -> impl Fn(io::Error) -> JoinError {
    move |source| JoinError::Os { what, source }
}

/// A process that has joined: its end of a socket that speaks PMI-1, and the node of each rank.
pub(crate) struct Joined {
    pub(crate) socket: UnixStream,
    pub(crate) nodes: Vec<u32>,
    pub(crate) member: Arc<Member>,
}

/// Joins the job; returns when all have. `on_end` is called when the job ends while this process is between init and
/// finalize.
pub(crate) fn join(
    id: &UniqueId,
    place: Place<'_>,
    on_end: impl FnOnce(Ended) + Send + 'static,
) -> Result<Joined, JoinError> {
    let Place {
        rank,
        size,
        machine,
        patience,
    } = place;
    if rank >= size || size > MAX_SIZE {
        return Err(JoinError::Place { rank, size });
    }
    if rank == 0 && id.listener() == Listener::FirstPe && !serve::hosts(id) {
        serve::listen_for(id, patience)?;
    }
    let claim = Claim {
        rank,
        size,
        pid: std::process::id(),
        hosts: serve::hosts(id),
        machine: id.key().mac("machine", &[machine.as_bytes()]),
    };
    let (stream, mut guest) = meet(id, &claim, patience)?;
    let seals = guest.take_seals().ok_or_else(|| stranger(id))?;
    let (nodes, late) = gather(id, &stream, &mut guest, patience)?;
    stream.set_read_timeout(None).map_err(os(PREPARE))?;
    let (socket, own) = UnixStream::pair().map_err(os("make a pair of sockets"))?;
    let sending = stream.try_clone().map_err(os(PREPARE))?;
    let member = Arc::new(Member {
        id: id.clone(),
        sending: Mutex::new(Sending {
            stream: sending,
            seals,
        }),
        is_in: AtomicBool::new(true),
        ended: OnceLock::new(),
    });
    let relay = Relay {
        stream,
        guest,
        own,
        member: Arc::clone(&member),
    };
    sys::spawn_thread(STACK, move || relay.run(late, on_end))
        .map_err(os("start the thread that talks to the job's host"))?;
    Ok(Joined {
        socket,
        nodes,
        member,
    })
}

const PREPARE: &str = "prepare the connection to the job's host";

fn stranger(id: &UniqueId) -> JoinError {
    JoinError::Stranger { at: at(id) }
}

/// Connects to the host; it has shown that it has the key, and been shown the same.
fn meet(id: &UniqueId, claim: &Claim, patience: Duration) -> Result<(TcpStream, Guest), JoinError> {
    let began = Instant::now();
    let mut nap = FIRST_NAP;
    let mut refusals = 0;
    loop {
        let limit = ANSWER
            .min(patience.saturating_sub(began.elapsed()))
            .max(LAST_NAP);
        let source = match connect(id, limit) {
            Ok(stream) => match greet(id, stream, claim, limit)? {
                Some(met) => return Ok(met),
                None => {
                    refusals += 1;
                    if refusals == REFUSALS || began.elapsed() >= patience {
                        return Err(stranger(id));
                    }
                    None
                }
            },
            Err(e) => Some(e),
        };
        // Whoever makes an id listens before others can know it.
        let in_vain = |e: &io::Error| {
            e.kind() == io::ErrorKind::ConnectionRefused && id.listener() == Listener::Maker
        };
        if let Some(source) = source
            && (in_vain(&source) || began.elapsed() >= patience)
        {
            return Err(JoinError::Connect {
                at: at(id),
                listener: id.listener(),
                waited: began.elapsed().min(patience),
                source,
            });
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(LAST_NAP);
    }
}

fn connect(id: &UniqueId, limit: Duration) -> io::Result<TcpStream> {
    let mut last = io::Error::from(io::ErrorKind::NotFound);
    // Looked up each time: names of machines that start may appear later.
    for at in id.address().to_socket_addrs()? {
        match TcpStream::connect_timeout(&at, limit) {
            // While nobody listens at a port from which the system takes some for connections, one may meet itself.
            Ok(stream) if stream.local_addr().ok() == stream.peer_addr().ok() => {
                last = io::ErrorKind::ConnectionRefused.into();
            }
            Ok(stream) => return Ok(stream),
            Err(e) => last = e,
        }
    }
    Err(last)
}

/// None: it closed the connection, said nothing, or something else.
fn greet(
    id: &UniqueId,
    mut stream: TcpStream,
    claim: &Claim,
    limit: Duration,
) -> Result<Option<(TcpStream, Guest)>, JoinError> {
    let prepared = stream
        .set_nodelay(true)
        .and_then(|()| stream.set_read_timeout(Some(limit)))
        .and_then(|()| sys::keep_alive(stream.as_fd(), serve::SILENCE));
    prepared.map_err(os(PREPARE))?;
    let mut nonce = [0; 32];
    sys::random(&mut nonce).map_err(os("read random bytes"))?;
    let (mut guest, hello) = Guest::new(id.key(), claim, nonce);
    if stream.write_all(&hello).is_err() {
        return Ok(None);
    }
    let mut buffer = [0; Guest::ANSWER];
    loop {
        // No more than the answer, so that there is no frame behind it.
        let room = guest.answer_missing();
        let Ok(n @ 1..) = stream.read(&mut buffer[..room]) else {
            return Ok(None);
        };
        match guest.handle(&buffer[..n]).as_deref() {
            Ok([News::Proof(proof)]) => {
                let sent = stream.write_all(proof);
                return Ok(sent.is_ok().then_some((stream, guest)));
            }
            Ok([]) => {}
            _ => return Ok(None),
        }
    }
}

/// Waits until all have come. Gives the node of each rank, and what came behind.
fn gather(
    id: &UniqueId,
    mut stream: &TcpStream,
    guest: &mut Guest,
    patience: Duration,
) -> Result<(Vec<u32>, Vec<News>), JoinError> {
    // All must come, and the host says who has not.
    let until = Instant::now() + patience + LONGER;
    let mut buffer = [0; CHUNK];
    loop {
        let left = until.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(lost(
                id,
                &"it has not said for too long whether all have come",
            ));
        }
        stream
            .set_read_timeout(Some(left.max(FIRST_NAP)))
            .map_err(os(PREPARE))?;
        let n = match stream.read(&mut buffer) {
            Ok(0) => return Err(lost(id, &"it was closed")),
            Ok(n) => n,
            Err(e) if may_go_on(&e) => continue,
            Err(e) => return Err(lost(id, &e)),
        };
        let forged = |_| lost(id, &"it carries what the host has not sent");
        let mut news = guest.handle(&buffer[..n]).map_err(forged)?;
        for (behind, new) in news.iter_mut().enumerate() {
            match new {
                News::Nodes(nodes) => {
                    let nodes = std::mem::take(nodes);
                    return Ok((nodes, news.split_off(behind + 1)));
                }
                News::End { why, .. } => return Err(JoinError::Ended(std::mem::take(why))),
                News::Proof(_) | News::Pmi(_) => {}
            }
        }
    }
}

const CHUNK: usize = 16 << 10;

/// Passes on between the host and this process's client of PMI.
struct Relay {
    stream: TcpStream,
    guest: Guest,
    own: UnixStream,
    member: Arc<Member>,
}

impl Relay {
    fn run(mut self, late: Vec<News>, on_end: impl FnOnce(Ended)) {
        let ended = match self.take(late) {
            Some(ended) => ended,
            None => self.pass_on(),
        };
        let ended = self.member.ended.get_or_init(|| ended).clone();
        if self.member.is_in.load(Ordering::Acquire) {
            on_end(ended);
        }
        // Who talks PMI finds the socket closed.
    }

    /// Until the job's end, or the host's.
    fn pass_on(&mut self) -> Ended {
        let mut buffer = [0; CHUNK];
        // The client's end closes with the process at the earliest.
        let mut own_is_open = true;
        loop {
            let own = own_is_open.then_some((self.own.as_fd(), false));
            let fds = std::iter::once((self.stream.as_fd(), false)).chain(own);
            let Ok(ready) = sys::wait_any(fds, None) else {
                std::thread::sleep(LAST_NAP);
                continue;
            };
            if ready.get(1) == Some(&true) {
                match self.own.read(&mut buffer) {
                    Ok(0) => own_is_open = false,
                    // Where the host has gone, the other descriptor says so.
                    Ok(n) => drop(self.member.send(Kind::Pmi, &buffer[..n])),
                    Err(e) => own_is_open = may_go_on(&e),
                }
            }
            if ready[0] {
                let n = match self.stream.read(&mut buffer) {
                    Ok(n @ 1..) => n,
                    Ok(0) => return self.host_gone("it was closed"),
                    Err(e) if may_go_on(&e) => continue,
                    Err(e) => return self.host_gone(&e.to_string()),
                };
                let Ok(news) = self.guest.handle(&buffer[..n]) else {
                    return self.host_gone("it carries what the host has not sent");
                };
                if let Some(ended) = self.take(news) {
                    return ended;
                }
            }
        }
    }

    fn take(&mut self, news: Vec<News>) -> Option<Ended> {
        for new in news {
            match new {
                // Its reader may have gone.
                News::Pmi(bytes) => drop(self.own.write_all(&bytes)),
                News::End { status, why } => return Some(Ended { status, why }),
                News::Proof(_) | News::Nodes(_) => {}
            }
        }
        None
    }

    fn host_gone(&self, why: &str) -> Ended {
        Ended {
            status: 1,
            why: lost(&self.member.id, &why).to_string(),
        }
    }
}

fn may_go_on(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}
