//! The process of a node's PMIx server: libpmix, and threads that carry what it asks for to the agent and the
//! answers back.
//!
//! ```text
//! agent ==socket==> main thread: answers handed to libpmix
//!       <==socket== writer thread <--queue-- libpmix's own thread: upcalls
//! ```
//! What a process waits for because it initialises, finalizes or ends the job is answered when the agent can
//! read of it: so the agent knows before the process can end.

use std::collections::HashMap;
use std::io::{self, Read, Write};
use std::os::fd::{BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::PathBuf;
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use shmem_pmi::process_mapping::ProcessMapping;
use shmem_pmix::server::{Done, Members, ModexDone, Server, Upcall};
use shmem_pmix::{Data, InfoArray, Library, Status, key};

use super::{NAME, SOCKET_FD};
use crate::frame::{FrameReader, FromServer, PmixJob, ToServer};
use crate::sys;

/// How long libpmix may take to end.
const LAST_WORDS: Duration = Duration::from_secs(2);

/// What waits to be said to the agent.
struct Said {
    frame: Vec<u8>,
    /// Who waits until the agent can read it.
    done: Option<Done>,
}

/// Processes that wait for an answer of other nodes, by the number of the question.
#[derive(Default)]
struct Waiting {
    next: u64,
    open: HashMap<u64, ModexDone>,
}

/// The life of the server, in the process executed for it.
///
/// # Safety
/// The process was executed as [`super::execute`] does it: its socket is at [`SOCKET_FD`], and nobody else's.
pub(crate) unsafe fn serve() -> u8 {
    // SAFETY: a number that the call tells whether it is open.
    let there = rustix::net::getpeername(unsafe { BorrowedFd::borrow_raw(SOCKET_FD) });
    if there.is_err() {
        crate::log!("shmrun: --pmix-server is for shmrun itself");
        return crate::exit::USAGE;
    }
    // SAFETY: as promised by the caller.
    let socket: OwnedFd = unsafe { sys::own(SOCKET_FD) };
    sys::set_name(NAME);
    sys::leave_no_core_file();
    // For what the library opens, too.
    let _ = rustix::io::fcntl_setfd(&socket, rustix::io::FdFlags::CLOEXEC);
    let mut agent = Agent {
        socket: socket.into(),
        reader: FrameReader::default(),
        dir: None,
    };
    // Why that is, the agent knows.
    let _ = agent.serve();
    agent.remove_dir();
    // Nothing of a library that is loaded is run any more.
    sys::exit_now(0)
}

/// The way to the agent, as the main thread has it.
struct Agent {
    socket: UnixStream,
    reader: FrameReader,
    dir: Option<PathBuf>,
}

impl Agent {
    /// Serves until the agent goes away.
    fn serve(&mut self) -> io::Result<()> {
        let mut job = None;
        self.until(|message| {
            if let ToServer::Serve(wanted) = message {
                job = Some(wanted);
            }
            job.is_none()
        })?;
        let Some(job) = job else { return Ok(()) };
        self.dir = Some(PathBuf::from(&job.dir));
        let (to_agent, said) = channel();
        let waiting = Arc::new(Mutex::new(Waiting::default()));
        let server = match begin(&job, &to_agent, &waiting) {
            Ok((server, ready)) => {
                self.socket.write_all(&ready)?;
                server
            }
            Err(what) => {
                let mut frame = Vec::new();
                FromServer::Failed(what).encode(&mut frame);
                return self.socket.write_all(&frame);
            }
        };
        let writes_to = self.socket.try_clone()?;
        sys::start_thread("answers for libpmix", move || write(&writes_to, &said))?;
        self.until(|message| {
            answer(message, &server, &to_agent, &waiting);
            true
        })?;
        // Should the library hang, what it leaves goes nevertheless.
        let dir = self.dir.clone();
        sys::start_thread("ends a server whose libpmix hangs", move || {
            std::thread::sleep(LAST_WORDS);
            remove(dir);
            sys::exit_now(0)
        })?;
        server.finish();
        Ok(())
    }

    /// Reads messages until `each` has enough of them, or there are no more.
    fn until(&mut self, mut each: impl FnMut(ToServer<'_>) -> bool) -> io::Result<()> {
        let bad = |e: &dyn std::fmt::Display| io::Error::other(e.to_string());
        let mut buf = vec![0; 64 << 10];
        loop {
            let n = match self.socket.read(&mut buf) {
                Ok(0) => return Ok(()),
                Ok(n) => n,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            };
            let mut bytes = &buf[..n];
            let mut more = true;
            while let Some(content) = self.reader.next_frame(&mut bytes).map_err(|e| bad(&e))? {
                more &= each(ToServer::decode(content).map_err(|e| bad(&e))?);
            }
            if !more {
                return Ok(());
            }
        }
    }

    fn remove_dir(&self) {
        remove(self.dir.clone());
    }
}

fn remove(dir: Option<PathBuf>) {
    if let Some(dir) = dir {
        super::dir::remove(&dir);
    }
}

/// Writes what is said, and lets those go on who wait for that.
fn write(mut socket: &UnixStream, said: &Receiver<Said>) {
    while let Ok(Said { frame, done }) = said.recv() {
        // An agent that is gone has the main thread end this process.
        let _ = socket.write_all(&frame);
        if let Some(done) = done {
            done.answer(Status::SUCCESS);
        }
    }
}

fn frame(message: &FromServer<'_>, done: Option<Done>) -> Said {
    let mut frame = Vec::new();
    message.encode(&mut frame);
    Said { frame, done }
}

/// The library asks for something, on its own thread.
fn upcall(upcall: Upcall, to_agent: &Sender<Said>, waiting: &Mutex<Waiting>) {
    let wait = |done| {
        let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let id = waiting.next;
        waiting.next += 1;
        waiting.open.insert(id, done);
        id
    };
    let said = match upcall {
        Upcall::Connected { rank, done } => frame(&FromServer::Connected(rank), Some(done)),
        Upcall::Finalized { rank, done } => frame(&FromServer::Finalized(rank), Some(done)),
        Upcall::Abort {
            rank,
            status,
            message,
            done: _,
        } => {
            let message = FromServer::Abort {
                rank,
                status,
                message,
            };
            // Nobody answers: the process waits until the job's end ends it. If it exited at once, peers on other nodes might
            // fail of that, and the launcher hear of them first.
            frame(&message, None)
        }
        Upcall::Fence {
            members,
            data,
            done,
        } => {
            let ranks = match members {
                Members::All => Vec::new(),
                Members::Ranks(ranks) => ranks,
            };
            let message = FromServer::Fence {
                id: wait(done),
                ranks,
                data: &data,
            };
            frame(&message, None)
        }
        Upcall::Log { rank, text, done } => frame(&FromServer::Log { rank, text }, Some(done)),
        Upcall::Fetch { rank, done } => {
            let id = wait(done);
            frame(&FromServer::Fetch { id, rank }, None)
        }
    };
    // The writer ends with the process.
    let _ = to_agent.send(said);
}

/// The agent says something.
fn answer(
    message: ToServer<'_>,
    server: &Server,
    to_agent: &Sender<Said>,
    waiting: &Mutex<Waiting>,
) {
    match message {
        ToServer::Serve(_) => {}
        ToServer::Fenced { id, status, data } | ToServer::Fetched { id, status, data } => {
            let mut waiting = waiting.lock().unwrap_or_else(PoisonError::into_inner);
            let done = waiting.open.remove(&id);
            drop(waiting);
            if let Some(done) = done {
                done.answer(Status(status), data.to_vec());
            }
        }
        // All threads of this process take part in the answer, but libpmix's own.
        ToServer::Ping(number) => {
            let _ = to_agent.send(frame(&FromServer::Pong(number), None));
        }
        ToServer::Lookup { id, rank } => {
            let to_agent = to_agent.clone();
            server.put_by(rank, move |Status(status), data| {
                let data = &data[..];
                let answer = FromServer::PutBy { id, status, data };
                let _ = to_agent.send(frame(&answer, None));
            });
        }
    }
}

/// Starts the library, tells it of the job, and gives what the agent is told then.
fn begin(
    job: &PmixJob,
    to_agent: &Sender<Said>,
    waiting: &Arc<Mutex<Waiting>>,
) -> Result<(Server, Vec<u8>), String> {
    let library = Library::load(job.library.as_deref()).map_err(|e| e.to_string())?;
    let failed = |what: &'static str| {
        move |e: Status| {
            let (path, version) = (library.path().display(), library.version());
            format!("{path} ({version}) cannot {what}: {e}")
        }
    };
    let host = job.nodes[job.node as usize].0.clone();
    let text = |text: &str| Data::Text(text.to_owned());
    let infos = InfoArray::new()
        .with(key::SERVER_TMPDIR, text(&job.dir))
        .with(key::SYSTEM_TMPDIR, text(&job.dir))
        .with(key::HOSTNAME, Data::Text(host));
    let (to, open) = (to_agent.clone(), Arc::clone(waiting));
    let server = Server::start(library, &job.namespace, infos, move |asked| {
        upcall(asked, &to, &open);
    })
    .map_err(failed("start a server"))?;
    let ranks = job.ranks(job.node);
    let infos = describe(job, &server).map_err(failed("describe the nodes"))?;
    server
        .register_job(ranks.len() as u32, infos)
        .map_err(failed("take up the job"))?;
    let user = (
        rustix::process::getuid().as_raw(),
        rustix::process::getgid().as_raw(),
    );
    let mut own = Vec::with_capacity(ranks.len());
    for rank in ranks {
        let variables = server.register_process(rank, user);
        let variables = variables.map_err(failed("take up a process"))?;
        let bytes = variables.into_iter().map(std::ffi::CString::into_bytes);
        own.push(bytes.collect::<Vec<_>>());
    }
    let common = common_of(&mut own);
    let mut ready = Vec::new();
    FromServer::Ready { common, own }.encode(&mut ready);
    Ok((server, ready))
}

/// Takes out what all have in common.
fn common_of(own: &mut [Vec<Vec<u8>>]) -> Vec<Vec<u8>> {
    let Some((first, rest)) = own.split_first() else {
        return Vec::new();
    };
    let in_all = |v: &&Vec<u8>| rest.iter().all(|other| other.contains(v));
    let common: Vec<Vec<u8>> = first.iter().filter(in_all).cloned().collect();
    for list in own {
        list.retain(|v| !common.contains(v));
    }
    common
}

/// The job in PMIx's terms.
fn describe(job: &PmixJob, server: &Server) -> Result<InfoArray, Status> {
    let n_nodes = job.nodes.len() as u32;
    let (n_pes, local) = (job.n_pes(), job.ranks(job.node));
    let list = |ranks: std::ops::Range<u32>| {
        let ranks: Vec<String> = ranks.map(|rank| rank.to_string()).collect();
        ranks.join(",")
    };
    let names: Vec<&str> = job.nodes.iter().map(|n| n.0.as_str()).collect();
    let mut next = 0;
    let ranks = job.nodes.iter().map(|&(_, pes)| {
        next += pes;
        next - pes..next
    });
    let ranks: Vec<std::ops::Range<u32>> = ranks.collect();
    let all: Vec<String> = ranks.iter().cloned().map(list).collect();
    let node_of: Vec<u32> = (0u32..)
        .zip(&ranks)
        .flat_map(|(node, ranks)| ranks.clone().map(move |_| node))
        .collect();
    let text = |text: &str| Data::Text(text.to_owned());
    let dir = format!("{}/job", job.dir);
    let mut infos = vec![
        (key::JOB_ID, text(&job.namespace)),
        (key::UNIV_SIZE, Data::U32(n_pes)),
        (key::JOB_SIZE, Data::U32(n_pes)),
        (key::MAX_PROCS, Data::U32(n_pes)),
        (key::NUM_NODES, Data::U32(n_nodes)),
        (key::LOCAL_SIZE, Data::U32(local.len() as u32)),
        (key::NODE_SIZE, Data::U32(local.len() as u32)),
        (key::LOCAL_PEERS, Data::Text(list(local.clone()))),
        (key::LOCAL_LEADER, Data::Rank(local.start)),
        (
            key::NODE_MAP,
            Data::Regex(server.node_map(&names.join(","))?),
        ),
        (key::PROC_MAP, Data::Regex(server.proc_map(&all.join(";"))?)),
        (
            key::ANL_MAP,
            Data::Text(ProcessMapping::from_nodes(&node_of).to_string()),
        ),
        (key::TMPDIR, text(&job.dir)),
        (key::NAMESPACE_DIR, text(&dir)),
    ];
    // Where it cannot be made, its users say so.
    let _ = std::fs::create_dir(&dir);
    let mut program = Program::default();
    for (rank, &node) in (0u32..).zip(&node_of) {
        let (appnum, app_rank) = program.place(rank, &job.programs);
        let on_node = (rank - ranks[node as usize].start) as u16;
        let own = vec![
            (key::RANK, Data::Rank(rank)),
            (key::APPNUM, Data::U32(appnum)),
            (key::GLOBAL_RANK, Data::Rank(rank)),
            (key::APP_RANK, Data::Rank(app_rank)),
            (key::LOCAL_RANK, Data::U16(on_node)),
            (key::NODE_RANK, Data::U16(on_node)),
            (key::NODE_ID, Data::U32(node)),
            (key::HOSTNAME, text(names[node as usize])),
        ];
        let own = own.into_iter().map(|(k, v)| (k.to_owned(), v)).collect();
        infos.push((key::PROC_DATA, Data::Infos(own)));
    }
    Ok(infos.into_iter().collect())
}

/// The program of one process after the other.
#[derive(Default)]
struct Program {
    number: u32,
    first: u32,
}

impl Program {
    /// Number of the program of `rank`, and its rank there.
    fn place(&mut self, rank: u32, programs: &[u32]) -> (u32, u32) {
        while let Some(&count) = programs.get(self.number as usize)
            && rank >= self.first + count
        {
            self.first += count;
            self.number += 1;
        }
        (self.number, rank - self.first)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_all_have_is_said_once() {
        let v = |text: &str| text.as_bytes().to_vec();
        let mut own = vec![
            vec![v("A=1"), v("R=0"), v("B=2")],
            vec![v("A=1"), v("R=1"), v("B=2")],
        ];
        assert_eq!(common_of(&mut own), [v("A=1"), v("B=2")]);
        assert_eq!(own, [[v("R=0")], [v("R=1")]]);
        assert!(common_of(&mut []).is_empty());
    }

    #[test]
    fn programs_follow_each_other() {
        let mut program = Program::default();
        let places: Vec<_> = (0..5).map(|r| program.place(r, &[2, 3])).collect();
        assert_eq!(places, [(0, 0), (0, 1), (1, 0), (1, 1), (1, 2)]);
    }
}
