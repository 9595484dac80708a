//! The exchange of addresses over the PMI server of another launcher.
//!
//! # Startup does not wait
//! Each PE puts its address into the key-value space, begins a fence, and goes on. A thread of its own
//! takes the end of the fence, and gets the job's key, which PE 0 has made up and put. From then on
//! a peer's address is one request to the server of this node, made when the first operation needs the
//! peer: a PE asks for as many addresses as it has peers ("Non-blocking PMI Extensions", 2014).
//!
//! A PE that is asked to connect before it has the key keeps the request meanwhile
//! ([`Endpoint::set_identity`]): the fence has ended, since the peer is through it, so the key is
//! on its way.
//!
//! # With MPI in the process
//! What is exchanged over MPI itself, or over a descriptor that MPI is going to use ([`Process::is_shared`]), is over when
//! init returns: init waits for all PEs, and each has a table of all addresses. Nothing is asked for later, and nothing is
//! said in finalize. That MPI's end closes the connection is no sign of the server's.
//!
//! # Values
//! Are lower-case hexadecimal digits, at most 96 of them: PMI-1 knows no quoting, and the least that its
//! servers take is above 600. Each life of the PEs has keys of its own, because a server may refuse to
//! put a key again.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use shmem_ib::connect::endpoint::Endpoint;
use shmem_ib::device::Device;
use shmem_node::contract::{hex, unhex};
use shmem_node::sys;
use shmem_pmi::id::{self, Ended, Place, UniqueId};
use shmem_pmi::process::{Process, ProcessError, Request};

use super::found::{Found, Identity, read};
use crate::error::Error;

/// Stack of the thread that takes the end of the fence.
const STACK: usize = 256 << 10;
/// Stack of the thread that watches the server.
const WATCH_STACK: usize = 64 << 10;
/// How long the launcher gets to pass on what was said last, before it is asked to end the job: it may
/// drop the rest.
const LAST_WORDS: Duration = Duration::from_millis(100);
/// How long a process that hosts the job, and exits, waits for the others, which are in their finalize; and for the end
/// of the job to be told.
const LEAVING: Duration = Duration::from_secs(30);
const TELLING: Duration = Duration::from_secs(5);
/// Key of the job's name and key.
const JOB: &str = "shmem-job";
/// Bytes of both.
const JOB_LEN: usize = 48;

/// This PE as the PMI server of another launcher knows it.
pub(crate) struct Foreign {
    process: Process,
    me: u32,
    /// Whose connection this is: a child inherits it.
    pid: u32,
    /// The job's, once it is known.
    identity: OnceLock<Identity>,
    /// The end of the connection is expected: this process has said that it exits.
    leaves: Arc<AtomicBool>,
}

fn refused(what: &'static str) -> impl FnOnce(ProcessError) -> Error {
    move |e| Error::Launch(format!("cannot {what}: {e}"))
}

impl Foreign {
    /// For rank `me` of a job.
    pub(crate) fn new(process: Process, me: u32) -> Self {
        Self {
            process,
            me,
            pid: std::process::id(),
            identity: OnceLock::new(),
            leaves: Arc::default(),
        }
    }

    /// For a PE of a job without a launcher. Waits until all have come. Everybody derives the job's key from the id.
    pub(crate) fn join(id: &UniqueId, place: Place<'_>) -> Result<Self, Error> {
        let (name, key) = id.identity();
        let key = sys::secret(&key).map_err(|source| Error::Os {
            what: "get memory for the key of the job",
            source,
        })?;
        let (me, leaves) = (place.rank, Arc::<AtomicBool>::default());
        let expected = Arc::clone(&leaves);
        let ends = move |Ended { status, why }: Ended| {
            if !expected.load(Ordering::Acquire) {
                crate::stderr::write(&format!("PE {me}: the job ends: {why}"));
                sys::end_at_once(status);
            }
        };
        let process = Process::join(id, place, ends).map_err(|e| Error::Launch(e.to_string()))?;
        Ok(Self {
            process,
            me,
            pid: std::process::id(),
            identity: OnceLock::from((name, key)),
            leaves,
        })
    }

    pub(crate) fn process(&self) -> &Process {
        &self.process
    }

    /// This PE is the one that has made up the job's identity.
    pub(crate) fn identify(&self, made_up: Identity) {
        self.identity.get_or_init(|| made_up);
    }

    /// Starts the thread that ends this process when the server dies. PEs that wait for each other, in
    /// init already, talk to no server, and where its death is not that of its processes, nobody else
    /// ends them.
    pub(crate) fn watch(self: &Arc<Self>) -> Result<(), Error> {
        if self.process.id().is_some() {
            // The thread that talks to the host does.
            return Ok(());
        }
        let foreign = Arc::clone(self);
        sys::spawn_thread(WATCH_STACK, move || {
            let watched = foreign.process.wait_hangup();
            if watched.is_err()
                || foreign.leaves.load(Ordering::Acquire)
                || foreign.process.was_ended_by_mpi()
            {
                return;
            }
            // Standard error may have gone with the server.
            crate::stderr::write(&format!(
                "PE {}: the launcher's PMI server is gone; this process ends",
                foreign.me
            ));
            sys::end_at_once(1);
        })
        .map_err(|source| Error::Os {
            what: "start the thread that watches the PMI server",
            source,
        })
    }

    pub(super) fn identity(&self) -> Option<Identity> {
        self.identity.get().copied()
    }

    pub(super) fn addresses(self: &Arc<Self>, life: u32) -> Arc<KvsAddresses> {
        Arc::new(KvsAddresses {
            foreign: Arc::clone(self),
            life,
            exchange: Mutex::new(Exchange::UnderWay),
            over: Condvar::new(),
        })
    }

    /// Gets the job's name and key, unless they are known. Only after the fence.
    fn learn_identity(&self) -> Result<Identity, String> {
        if let Some(known) = self.identity.get() {
            return Ok(*known);
        }
        let value = self.process.get_of(0, JOB).map_err(|e| e.to_string())?;
        let bytes = value.as_deref().and_then(unhex).unwrap_or_default();
        match (
            bytes.first_chunk::<16>(),
            bytes
                .get(16..)
                .and_then(|rest| <&[u8; 32]>::try_from(rest).ok()),
        ) {
            (Some(id), Some(key)) => {
                let key = sys::secret(key).map_err(|e| e.to_string())?;
                Ok(*self.identity.get_or_init(|| (*id, key)))
            }
            _ => Err(format!(
                "PE 0 has not put a key of {JOB_LEN} bytes for this job"
            )),
        }
    }

    /// Foreign launchers say at most that there was an end, and not why.
    pub(super) fn abort(&self, status: i32, message: &str) {
        self.leaves.store(true, Ordering::Release);
        if status != 0 {
            crate::stderr::write(&format!("{message}; the job ends"));
        }
        abort(&self.process, status, message);
    }

    pub(crate) fn init_failed(&self, why: &Error) {
        self.leaves.store(true, Ordering::Release);
        give_up(&self.process, why);
    }

    /// This process is no PE any more, and may become one again.
    pub(super) fn leave(&self) {
        self.process.leave();
    }

    /// It is about to.
    pub(super) fn return_again(&self) -> Result<(), Error> {
        let returned = self.process.return_again();
        returned.map_err(refused("become a PE of the job again"))
    }

    /// Launchers end a job when a process goes that has not taken its leave of PMI, and some do not
    /// when one goes that has left its peers waiting; so both are told.
    pub(super) fn process_exits(&self, status: i32, is_pe: bool) {
        if std::process::id() != self.pid {
            return;
        }
        if is_pe {
            let why = format!(
                "PE {} exits without finalize, with status {status}",
                self.me
            );
            self.abort(if status == 0 { 1 } else { status }, &why);
        } else {
            self.leaves.store(true, Ordering::Release);
            let _ = self.process.finalize();
            if let Some(id) = self.process.id() {
                id::let_others_leave(id, LEAVING);
            }
        }
    }
}

/// Ends the job because this process does not become a PE of it: the others would wait, and not every
/// launcher would end them. It may end this process, too, before anybody else could say why.
pub(crate) fn give_up(process: &Process, why: &Error) {
    let text = format!("PE {} cannot initialise: {why}", process.rank());
    crate::stderr::write(&format!("{text}; the job ends"));
    abort(process, 1, &text);
}

fn abort(process: &Process, status: i32, message: &str) {
    std::thread::sleep(LAST_WORDS);
    // The process exits with the status anyway.
    let _ = process.abort_job(status, message);
    if let Some(id) = process.id() {
        id::let_end_be_told(id, TELLING);
    }
}

/// How far the exchange of a life is.
enum Exchange {
    UnderWay,
    /// The server has the addresses.
    Done,
    /// All are here, by PE, since the server is not to be asked.
    Here(Vec<Option<Vec<u8>>>),
    Failed(String),
}

/// The addresses of one life.
pub(crate) struct KvsAddresses {
    foreign: Arc<Foreign>,
    life: u32,
    exchange: Mutex<Exchange>,
    over: Condvar,
}

impl KvsAddresses {
    fn key(&self, pe: u32) -> String {
        format!("shmem-{}-{pe}", self.life)
    }

    fn state(&self) -> MutexGuard<'_, Exchange> {
        self.exchange.lock().unwrap_or_else(|e| e.into_inner())
    }

    /// Tells everybody this PE's address. Returns at once, and a thread takes the end; where MPI is waiting for its turn,
    /// returns at the end.
    pub(super) fn exchange(
        self: &Arc<Self>,
        address: &[u8],
        endpoint: &Arc<Endpoint<Device>>,
    ) -> Result<(), Error> {
        let Foreign {
            process,
            me,
            identity,
            ..
        } = &*self.foreign;
        if self.life == 1
            && *me == 0
            && process.id().is_none()
            && let Some((id, key)) = identity.get()
        {
            process
                .put(JOB, (hex(id) + &hex(*key)).as_bytes())
                .map_err(refused("give the job's key to PMI"))?;
        }
        process
            .put(&self.key(*me), hex(address).as_bytes())
            .map_err(refused("give this PE's address to PMI"))?;
        let fence = process
            .ifence()
            .map_err(refused("begin the exchange of addresses over PMI"))?;
        if process.is_shared() {
            return self.finish_now(fence, endpoint);
        }
        let (this, endpoint) = (Arc::clone(self), Arc::clone(endpoint));
        sys::spawn_thread(STACK, move || {
            let ended = fence.wait().map_err(|e| e.to_string());
            let learned = ended.and_then(|()| this.foreign.learn_identity());
            *this.state() = match learned {
                Ok((id, key)) => {
                    endpoint.set_identity(id, key);
                    Exchange::Done
                }
                Err(why) => Exchange::Failed(format!("the exchange over PMI failed: {why}")),
            };
            this.over.notify_all();
        })
        .map_err(|source| Error::Os {
            what: "start the thread that waits for PMI",
            source,
        })
    }

    /// Takes the end of the exchange, and all that there is to be known.
    fn finish_now(
        &self,
        fence: Request<()>,
        endpoint: &Arc<Endpoint<Device>>,
    ) -> Result<(), Error> {
        let process = &self.foreign.process;
        let all = fence.wait().and_then(|()| {
            let address = |pe| process.get_of(pe, &self.key(pe));
            (0..process.size()).map(address).collect()
        });
        let all = all.map_err(refused("exchange addresses"))?;
        let (id, key) = self.foreign.learn_identity().map_err(Error::Launch)?;
        endpoint.set_identity(id, key);
        *self.state() = Exchange::Here(all);
        self.over.notify_all();
        Ok(())
    }

    pub(super) fn find(&self, pe: u32) -> Found {
        match &*self.state() {
            Exchange::UnderWay => return Found::Pending,
            Exchange::Failed(why) => return Found::Unknown(why.clone()),
            Exchange::Here(all) => {
                return understood(all.get(pe as usize).and_then(Option::as_deref));
            }
            Exchange::Done => {}
        }
        match self.foreign.process.get_of(pe, &self.key(pe)) {
            Ok(value) => understood(value.as_deref()),
            Err(e) => Found::Unknown(e.to_string()),
        }
    }

    pub(super) fn wait(&self, max: Duration) {
        let state = self.state();
        let pending = |state: &mut Exchange| matches!(state, Exchange::UnderWay);
        drop(self.over.wait_timeout_while(state, max, pending));
    }
}

/// The address in what a PE has put.
fn understood(value: Option<&[u8]>) -> Found {
    match value {
        Some(value) => match unhex(value) {
            Some(bytes) => read(&bytes),
            None => Found::Unknown("its address in PMI is damaged".into()),
        },
        None => Found::Unknown("it has put no address into PMI".into()),
    }
}
