//! What the library asks of its host, as types of Rust, and the C functions that it calls.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::ptr;
use std::sync::OnceLock;

use crate::abi::{
    Info, InfoCallback, ModexCallback, OpCallback, Proc, RANK_UNDEFINED, RANK_WILDCARD,
    ServerModule,
};
use crate::{Status, key, value};

/// Something that the library asks for.
#[derive(Debug)]
pub enum Upcall {
    /// A process of this node has initialised.
    Connected {
        /// Its rank.
        rank: u32,
        /// It waits for this.
        done: Done,
    },
    /// A process of this node has finalized.
    Finalized {
        /// Its rank.
        rank: u32,
        /// It waits for this.
        done: Done,
    },
    /// A process ends the job, or a part of it.
    Abort {
        /// Its rank.
        rank: u32,
        /// The status that it gives.
        status: i32,
        /// Its words; may be empty.
        message: String,
        /// It waits for this.
        done: Done,
    },
    /// All of this node who belong to a fence have joined it.
    Fence {
        /// Whom it is of.
        members: Members,
        /// What they give.
        data: Vec<u8>,
        /// They wait for this.
        done: ModexDone,
    },
    /// A process has words for the user.
    Log {
        /// Its rank.
        rank: u32,
        /// They.
        text: String,
        /// It waits for this.
        done: Done,
    },
    /// What has a process of another node put?
    Fetch {
        /// Its rank.
        rank: u32,
        /// Who asks waits for this.
        done: ModexDone,
    },
}

/// Processes of the job.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Members {
    /// All of them.
    All,
    /// These.
    Ranks(Vec<u32>),
}

/// For the outcome of an operation.
#[derive(Debug)]
pub struct Done {
    then: Option<OpCallback>,
    data: *mut c_void,
}

impl Done {
    /// Tells it.
    pub fn answer(self, status: Status) {
        if let Some(then) = self.then {
            // SAFETY: the library's own function and datum, from whatever thread, called once.
            unsafe { then(status, self.data) };
        }
    }
}

// SAFETY: the library lets its host answer from any thread.
unsafe impl Send for Done {}

/// For what others have given.
#[derive(Debug)]
pub struct ModexDone {
    then: Option<ModexCallback>,
    data: *mut c_void,
}

impl ModexDone {
    /// Hands it over.
    pub fn answer(self, status: Status, bytes: Vec<u8>) {
        let Some(then) = self.then else { return };
        let (first, len) = match bytes.len() {
            0 => (ptr::null(), 0),
            len => (bytes.as_ptr().cast(), len),
        };
        let held = Box::into_raw(Box::new(bytes));
        // SAFETY: the library's own function and datum, from whatever thread, called once. The bytes stay
        // until the library says that it has no more use for them.
        unsafe { then(status, first, len, self.data, Some(release), held.cast()) };
    }
}

// SAFETY: the library lets its host answer from any thread.
unsafe impl Send for ModexDone {}

unsafe extern "C" fn release(data: *mut c_void) {
    // SAFETY: made by `ModexDone::answer`; the library releases once.
    drop(unsafe { Box::from_raw(data.cast::<Vec<u8>>()) });
}

type Upcalls = Box<dyn Fn(Upcall) + Send + Sync>;

/// The C functions have no datum of the host's: the job, and who takes what they bring.
static HOST: OnceLock<(String, Upcalls)> = OnceLock::new();

/// The module by which `upcalls` gets what concerns the job; none if there is one already.
pub(super) fn module(namespace: &str, upcalls: Upcalls) -> Option<ServerModule> {
    HOST.set((namespace.to_owned(), upcalls)).ok()?;
    Some(ServerModule {
        client_connected: Some(connected),
        client_finalized: Some(finalized),
        abort: Some(abort),
        fence_nb: Some(fence),
        direct_modex: Some(fetch),
        publish: None,
        lookup: None,
        unpublish: None,
        spawn: None,
        connect: None,
        disconnect: None,
        before_log: [None; 6],
        log: Some(log),
        allocate: None,
        job_control: Some(job_control),
        others: [None; 8],
        later: [None; 32],
    })
}

/// Hands something to the host. The library goes on at once, and hears of the outcome later.
fn tell(upcall: Upcall) -> Status {
    match HOST.get() {
        Some((_, upcalls)) => {
            upcalls(upcall);
            Status::SUCCESS
        }
        None => Status::INIT,
    }
}

/// The rank of a process of our job.
///
/// # Safety
///
/// It is a process, or null.
unsafe fn rank_of(proc: *const Proc) -> Option<u32> {
    // SAFETY: by the caller's promise.
    let proc = unsafe { proc.as_ref() }?;
    let (namespace, _) = HOST.get()?;
    (proc.namespace() == *namespace).then_some(proc.rank)
}

/// A copy of bytes of the library.
///
/// # Safety
///
/// There are as many, or it is null.
pub(super) unsafe fn copied(bytes: *const c_char, len: usize) -> Vec<u8> {
    match bytes.is_null() {
        true => Vec::new(),
        // SAFETY: by the caller's promise.
        false => unsafe { std::slice::from_raw_parts(bytes.cast(), len) }.to_vec(),
    }
}

unsafe extern "C" fn connected(
    proc: *const Proc,
    _object: *mut c_void,
    then: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives a process.
    match unsafe { rank_of(proc) } {
        Some(rank) => tell(Upcall::Connected {
            rank,
            done: Done { then, data },
        }),
        None => Status::OPERATION_SUCCEEDED,
    }
}

unsafe extern "C" fn finalized(
    proc: *const Proc,
    _object: *mut c_void,
    then: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives a process.
    match unsafe { rank_of(proc) } {
        Some(rank) => tell(Upcall::Finalized {
            rank,
            done: Done { then, data },
        }),
        None => Status::OPERATION_SUCCEEDED,
    }
}

/// Whomever a process wants to be ended: others of an MPI job cannot go on without them, so the job ends.
unsafe extern "C" fn abort(
    proc: *const Proc,
    _object: *mut c_void,
    status: c_int,
    message: *const c_char,
    _procs: *mut Proc,
    _n: usize,
    then: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives a process, and text or null.
    let (rank, message) = unsafe {
        let message = match message.is_null() {
            true => String::new(),
            false => CStr::from_ptr(message).to_string_lossy().into_owned(),
        };
        (rank_of(proc), message)
    };
    tell(Upcall::Abort {
        rank: rank.unwrap_or(RANK_UNDEFINED),
        status,
        message,
        done: Done { then, data },
    })
}

unsafe extern "C" fn log(
    proc: *const Proc,
    infos: *const Info,
    n: usize,
    _directives: *const Info,
    _n_directives: usize,
    then: Option<OpCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives so many attributes.
    let infos = unsafe { value::read_infos(infos, n) };
    let said = infos
        .iter()
        .filter(|(name, _)| key::LOG.contains(&&name[..]));
    let text: String = said.filter_map(|(_, data)| data.text()).collect();
    // SAFETY: the library gives a process.
    let rank = unsafe { rank_of(proc) };
    let done = Done { then, data };
    match rank {
        Some(rank) if rank < RANK_WILDCARD && !text.is_empty() => {
            tell(Upcall::Log { rank, text, done });
        }
        // Nobody's, or for a file or a mailbox, which there is none.
        _ => done.answer(Status::NOT_SUPPORTED),
    }
    Status::SUCCESS
}

unsafe extern "C" fn fence(
    procs: *const Proc,
    n: usize,
    _infos: *const Info,
    _n_infos: usize,
    bytes: *mut c_char,
    len: usize,
    then: Option<ModexCallback>,
    data: *mut c_void,
) -> Status {
    let mut ranks = Vec::with_capacity(n);
    for at in 0..n {
        // SAFETY: the library gives so many processes.
        match unsafe { rank_of(procs.add(at)) } {
            Some(rank) => ranks.push(rank),
            // Of several jobs.
            None => return Status::NOT_SUPPORTED,
        }
    }
    let members = match ranks.contains(&RANK_WILDCARD) {
        true => Members::All,
        false => Members::Ranks(ranks),
    };
    tell(Upcall::Fence {
        members,
        // SAFETY: the library gives so many bytes.
        data: unsafe { copied(bytes, len) },
        done: ModexDone { then, data },
    })
}

unsafe extern "C" fn fetch(
    proc: *const Proc,
    _infos: *const Info,
    _n_infos: usize,
    then: Option<ModexCallback>,
    data: *mut c_void,
) -> Status {
    // SAFETY: the library gives a process.
    match unsafe { rank_of(proc) } {
        Some(rank) if rank < RANK_WILDCARD => tell(Upcall::Fetch {
            rank,
            done: ModexDone { then, data },
        }),
        _ => Status::NOT_FOUND,
    }
}

/// That the library offers this at all makes it remember the files that processes ask it to remove when they
/// end. The rest is not for it to do.
unsafe extern "C" fn job_control(
    _proc: *const Proc,
    _targets: *const Proc,
    _n: usize,
    _infos: *const Info,
    _n_infos: usize,
    _then: Option<InfoCallback>,
    _data: *mut c_void,
) -> Status {
    Status::NOT_SUPPORTED
}
