//! The process's connection, and the operations that are under way.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};

use shmem_pmi::process::{Gathered, Process, ProcessError, Request};

use crate::arguments::Out;
use crate::status::{Code, Fault};

/// Between init and finalize.
static JOB: Mutex<Option<Arc<Job>>> = Mutex::new(None);

/// The job that this process is one of.
#[derive(Debug)]
pub(crate) struct Job {
    pub(crate) process: Process,
    id: OnceLock<String>,
    requests: Mutex<Requests>,
}

#[derive(Debug, Default)]
struct Requests {
    /// Number of the last one. Handles are numbers and never used again, so that a stale one is known.
    last: usize,
    open: HashMap<usize, Pending>,
}

/// An operation under way.
#[derive(Debug)]
pub(crate) enum Pending {
    Fence(Request<()>),
    /// Values of `width` bytes each go to the buffer when the operation is waited for.
    Gather {
        request: Request<Gathered>,
        width: usize,
        buffer: Out<u8>,
    },
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Makes this process one of a job.
pub(crate) fn init() -> Result<Arc<Job>, Fault> {
    let mut job = lock(&JOB);
    if job.is_some() {
        drop(job);
        return Err(Fault::new(Code::Fail, "called a second time"));
    }
    let made = Arc::new(Job {
        process: Process::init()?,
        id: OnceLock::new(),
        requests: Mutex::default(),
    });
    Ok(Arc::clone(job.insert(made)))
}

pub(crate) fn current() -> Option<Arc<Job>> {
    lock(&JOB).clone()
}

pub(crate) fn job() -> Result<Arc<Job>, Fault> {
    current().ok_or_else(not_running)
}

/// The job, which this process leaves. What is under way is abandoned.
pub(crate) fn take() -> Result<Arc<Job>, Fault> {
    lock(&JOB).take().ok_or_else(not_running)
}

fn not_running() -> Fault {
    Fault::new(Code::Init, "called before PMI2_Init or after PMI2_Finalize")
}

impl Job {
    /// The job's id, which is asked for once.
    pub(crate) fn id(&self) -> Result<&str, ProcessError> {
        if let Some(id) = self.id.get() {
            return Ok(id);
        }
        let id = self.process.job_id()?;
        Ok(self.id.get_or_init(|| id))
    }

    /// Gives an operation a handle.
    pub(crate) fn register(&self, pending: Pending) -> usize {
        let mut requests = lock(&self.requests);
        requests.last += 1;
        let handle = requests.last;
        requests.open.insert(handle, pending);
        handle
    }

    /// Waits for an operation, whose handle is none any more then. Other threads may wait for others.
    pub(crate) fn wait(&self, handle: usize) -> Result<(), Fault> {
        let pending = lock(&self.requests).open.remove(&handle);
        pending.ok_or_else(unknown)?.wait(self.process.size())
    }

    /// Whether an operation is complete.
    pub(crate) fn test(&self, handle: usize) -> Result<bool, Fault> {
        let mut requests = lock(&self.requests);
        let pending = requests.open.get_mut(&handle).ok_or_else(unknown)?;
        Ok(match pending {
            Pending::Fence(request) => request.test()?,
            Pending::Gather { request, .. } => request.test()?,
        })
    }
}

fn unknown() -> Fault {
    Fault::new(
        Code::InvalidArg,
        "request is none that is under way: each is waited for once",
    )
}

impl Pending {
    pub(crate) fn wait(self, size: u32) -> Result<(), Fault> {
        match self {
            Self::Fence(request) => Ok(request.wait()?),
            Self::Gather {
                request,
                width,
                buffer,
            } => {
                let gathered = request.wait()?;
                for rank in 0..size {
                    let value = gathered.value(rank);
                    let value = value.filter(|value| value.len() == width);
                    let value = value.ok_or_else(|| {
                        let why = format!("PE {rank} has given no value of {width} bytes");
                        Fault::new(Code::Fail, why)
                    })?;
                    buffer.write(rank as usize * width, &value);
                }
                Ok(())
            }
        }
    }
}
