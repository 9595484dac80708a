//! A process of a job as libpmix knows it: the calls of a client, safe to make.
//!
//! All of them may be made by several threads at once. The library has a thread of its own, on which the ends
//! of fences and the loss of the server are told; what runs there only sets a flag and wakes.

use std::ffi::{CStr, CString, c_char, c_void};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::abi::{
    EventDone, Info, KEY_LEN, NAMESPACE_LEN, Proc, Published, RANK_UNDEFINED, RANK_WILDCARD, Rank,
    Scope, Value, kind, range, text_field,
};
use crate::{Data, InfoArray, Library, Status, key};

/// Longest key in bytes.
pub const KEY_MAX: usize = KEY_LEN - 1;

/// How long the library may take to note a handler of events, which it does by itself.
const REGISTERED: Duration = Duration::from_secs(10);

/// This process, from its init to its finalize.
///
/// There may be several: the library counts them, and talks to the server until the last is finalized.
#[derive(Debug)]
pub struct Client {
    library: &'static Library,
    me: Proc,
}

/// Whose value is asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Whose {
    /// That of the job itself.
    Job,
    /// That of a process.
    Rank(Rank),
}

/// For how long a value is waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Patience {
    /// Only what this process knows: the attributes of the job, which came with init.
    Known,
    /// Only what the server of this node knows already.
    Node,
    /// So many seconds: as long as its server may take to ask that of another node.
    Seconds(u16),
}

impl Patience {
    fn is_over(self, after: Duration) -> bool {
        matches!(self, Self::Seconds(n) if after >= Duration::from_secs(n.into()))
    }
}

impl Client {
    /// Becomes a process of the job that the environment tells of.
    ///
    /// # Errors
    ///
    /// The server is not there, or does not accept this process.
    pub fn init(library: &'static Library) -> Result<Self, Status> {
        let mut me = Proc {
            namespace: [0; NAMESPACE_LEN],
            rank: RANK_UNDEFINED,
        };
        // SAFETY: the place is a process's; there are no attributes.
        unsafe { (library.init)(&raw mut me, std::ptr::null_mut(), 0) }.ok()?;
        Ok(Self { library, me })
    }

    /// The library that it speaks through.
    pub fn library(&self) -> &'static Library {
        self.library
    }

    /// Rank in the job.
    pub fn rank(&self) -> Rank {
        self.me.rank
    }

    /// The job's name.
    pub fn namespace(&self) -> String {
        self.me.namespace()
    }

    /// A value; `None` if there is none.
    ///
    /// # Errors
    ///
    /// The server is gone, or something else is wrong than that there is none.
    pub fn get(&self, whose: Whose, key: &str, patience: Patience) -> Result<Option<Data>, Status> {
        let key = CString::new(key).map_err(|_| Status::BAD_PARAM)?;
        let proc = self.me.peer(match whose {
            Whose::Job => RANK_WILDCARD,
            Whose::Rank(rank) => rank,
        });
        let mut how = InfoArray::new();
        match patience {
            Patience::Known => how = how.with(key::OPTIONAL, Data::Bool(true)),
            Patience::Node => how = how.with(key::IMMEDIATE, Data::Bool(true)),
            Patience::Seconds(n) => how = how.with(key::TIMEOUT, Data::Int(n.into())),
        }
        let began = Instant::now();
        let mut value: *mut Value = std::ptr::null_mut();
        // SAFETY: all of these are there until it returns.
        let status = unsafe {
            let (infos, n) = (how.as_mut_ptr(), how.len());
            (self.library.get)(&raw const proc, key.as_ptr(), infos, n, &raw mut value)
        };
        match status {
            Status::NOT_FOUND | Status::EXISTS_OUTSIDE_SCOPE | Status::TIMEOUT => return Ok(None),
            // How PRRTE says that the time is over.
            Status::ERROR if patience.is_over(began.elapsed()) => return Ok(None),
            status => status.ok()?,
        }
        if value.is_null() {
            return Ok(None);
        }
        // SAFETY: a value that the library has given and does not know any more.
        Ok(Some(unsafe { take(value) }))
    }

    /// Puts bytes under a key, for [`Client::commit`] to send.
    ///
    /// # Errors
    ///
    /// The key is too long, or the library does not take it.
    pub fn put(&self, scope: Scope, key: &str, bytes: &[u8]) -> Result<(), Status> {
        let key: [c_char; KEY_LEN] = text_field(key.as_bytes()).ok_or(Status::BAD_PARAM)?;
        let mut value = Data::Bytes(bytes.to_vec()).pack();
        // SAFETY: the key ends with a zero; the library copies both.
        unsafe { (self.library.put)(scope as u8, key.as_ptr(), value.as_mut_ptr()) }.ok()
    }

    /// Sends what was put to the server of this node.
    ///
    /// # Errors
    ///
    /// The server is gone.
    pub fn commit(&self) -> Result<(), Status> {
        // SAFETY: this is initialised.
        unsafe { (self.library.commit)() }.ok()
    }

    /// Starts a fence of the whole job, which brings to every node what was committed before. No other one
    /// may be under way: the server would take the second for that of another process.
    ///
    /// # Errors
    ///
    /// It cannot be started.
    pub fn start_fence(&self) -> Result<Arc<Fence>, Status> {
        let infos = InfoArray::new().with(key::COLLECT_DATA, Data::Bool(true));
        let fence = Arc::new(Fence {
            infos: Mutex::new(infos),
            ended: Flag::new(),
        });
        let (infos, n) = {
            let mut infos = lock(&fence.infos);
            (infos.as_mut_ptr(), infos.len())
        };
        let told = Arc::into_raw(Arc::clone(&fence)).cast_mut().cast();
        // SAFETY: without processes it is of all; the attributes stay as long as the fence, of which the
        // library has a share that its callback gives back.
        let status = unsafe {
            (self.library.fence_nb)(std::ptr::null(), 0, infos, n, Some(fence_ended), told)
        };
        if status != Status::SUCCESS {
            // SAFETY: there will be no callback, so the share is still what it was made of.
            drop(unsafe { Arc::<Fence>::from_raw(told.cast()) });
            status.ok()?;
            fence.ended.set(status);
        }
        Ok(fence)
    }

    /// Names of the job's nodes.
    ///
    /// # Errors
    ///
    /// The server does not say.
    pub fn nodes(&self) -> Result<Vec<String>, Status> {
        let mut list: *mut c_char = std::ptr::null_mut();
        let namespace = self.me.namespace.as_ptr();
        // SAFETY: the namespace ends with a zero.
        unsafe { (self.library.resolve_nodes)(namespace, &raw mut list) }.ok()?;
        // SAFETY: text from malloc that is ours now, or null.
        let text = unsafe { take_text(list) };
        Ok(text
            .split(',')
            .filter(|node| !node.is_empty())
            .map(str::to_owned)
            .collect())
    }

    /// Ranks of this job on a node.
    ///
    /// # Errors
    ///
    /// The server does not say.
    pub fn ranks_of(&self, node: &str) -> Result<Vec<Rank>, Status> {
        let node = CString::new(node).map_err(|_| Status::BAD_PARAM)?;
        let (mut procs, mut n): (*mut Proc, usize) = (std::ptr::null_mut(), 0);
        let namespace = self.me.namespace.as_ptr();
        // SAFETY: both names end with a zero.
        let status = unsafe {
            (self.library.resolve_peers)(node.as_ptr(), namespace, &raw mut procs, &raw mut n)
        };
        status.ok()?;
        if procs.is_null() {
            return Ok(Vec::new());
        }
        // SAFETY: so many processes, from malloc, that are ours now.
        unsafe {
            let ranks = (0..n).map(|at| (*procs.add(at)).rank).collect();
            libc::free(procs.cast());
            Ok(ranks)
        }
    }

    /// Has the launcher end the job.
    ///
    /// # Errors
    ///
    /// The server is gone, or does not do that.
    pub fn abort(&self, status: i32, message: &str) -> Result<(), Status> {
        let message = CString::new(message.replace('\0', " ")).unwrap_or_default();
        // SAFETY: the text ends with a zero; without processes it is of all.
        unsafe { (self.library.abort)(status, message.as_ptr(), std::ptr::null_mut(), 0) }.ok()
    }

    /// Shows bytes under a name to all jobs of this launcher.
    ///
    /// # Errors
    ///
    /// The launcher does not do that, the name is too long, or it is taken.
    pub fn publish(&self, name: &str, bytes: &[u8]) -> Result<(), Status> {
        check_key(name)?;
        let mut infos = InfoArray::new()
            .with(name, Data::Bytes(bytes.to_vec()))
            .with(key::RANGE, Data::Range(range::SESSION));
        // SAFETY: the attributes are there until it returns.
        unsafe { (self.library.publish)(infos.as_mut_ptr(), infos.len()) }.ok()
    }

    /// What somebody has published under a name.
    ///
    /// # Errors
    ///
    /// The launcher does not do that, or nobody has.
    pub fn lookup(&self, name: &str) -> Result<Data, Status> {
        let mut found = Box::new(Published {
            proc: self.me.peer(RANK_UNDEFINED),
            key: text_field(name.as_bytes()).ok_or(Status::BAD_PARAM)?,
            value: Value::UNDEFINED,
        });
        found.proc.namespace = [0; NAMESPACE_LEN];
        let mut infos = InfoArray::new().with(key::RANGE, Data::Range(range::SESSION));
        // SAFETY: the place and the attributes are there until it returns.
        unsafe { (self.library.lookup)(&raw mut *found, 1, infos.as_mut_ptr(), infos.len()) }
            .ok()?;
        if found.value.kind == kind::UNDEFINED {
            return Err(Status::NOT_FOUND);
        }
        // SAFETY: what the value points to is ours now.
        Ok(unsafe { take_contents(&found.value) })
    }

    /// Takes a name back.
    ///
    /// # Errors
    ///
    /// The launcher does not do that, or nobody has published it.
    pub fn unpublish(&self, name: &str) -> Result<(), Status> {
        let name = CString::new(name).map_err(|_| Status::BAD_PARAM)?;
        let mut names = [name.as_ptr().cast_mut(), std::ptr::null_mut()];
        let mut infos = InfoArray::new().with(key::RANGE, Data::Range(range::SESSION));
        // SAFETY: the names end with null, and are there until it returns; they are read only.
        unsafe { (self.library.unpublish)(names.as_mut_ptr(), infos.as_mut_ptr(), infos.len()) }
            .ok()
    }

    /// Sleeps until the connection to the server is lost, which may be never.
    ///
    /// # Errors
    ///
    /// The library does not tell.
    pub fn wait_for_loss(&self) -> Result<(), Status> {
        static NOTED: Mutex<Option<Status>> = Mutex::new(None);
        lock(&NOTED).get_or_insert_with(|| self.note_loss()).ok()?;
        LOST.wait();
        Ok(())
    }

    /// Has the library set the flag when the server is gone.
    fn note_loss(&self) -> Status {
        static CODES: [Status; 2] = [Status::LOST_CONNECTION_TO_SERVER, Status::LOST_CONNECTION];
        let registered = Arc::new(Flag::new());
        let told = Arc::into_raw(Arc::clone(&registered)).cast_mut().cast();
        // SAFETY: the codes, which are only read, and the functions stay; the library has a share of the flag
        // that its callback gives back.
        unsafe {
            (self.library.register_event_handler)(
                CODES.as_ptr().cast_mut(),
                CODES.len(),
                std::ptr::null_mut(),
                0,
                Some(server_lost),
                Some(handler_registered),
                told,
            );
        }
        registered.wait_for(REGISTERED).unwrap_or(Status::TIMEOUT)
    }

    /// Takes leave of the server.
    ///
    /// # Errors
    ///
    /// The server is gone.
    pub fn finalize(&self) -> Result<(), Status> {
        // SAFETY: this is initialised; there are no attributes.
        unsafe { (self.library.finalize)(std::ptr::null(), 0) }.ok()
    }
}

/// A fence that was started.
pub struct Fence {
    /// Read by the library.
    infos: Mutex<InfoArray>,
    ended: Flag,
}

impl Fence {
    /// Whether it is over.
    pub fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Waits until it is over.
    ///
    /// # Errors
    ///
    /// It has failed, as when a process has ended that had not joined it.
    pub fn wait(&self) -> Result<(), Status> {
        self.ended.wait().ok()
    }
}

impl std::fmt::Debug for Fence {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Fence")
            .field("ended", &self.ended.get())
            .finish()
    }
}

/// Set once, by a thread of the library.
#[derive(Debug)]
struct Flag {
    status: Mutex<Option<Status>>,
    set: Condvar,
}

/// The server is gone.
static LOST: Flag = Flag::new();

impl Flag {
    const fn new() -> Self {
        Self {
            status: Mutex::new(None),
            set: Condvar::new(),
        }
    }

    fn set(&self, status: Status) {
        lock(&self.status).get_or_insert(status);
        self.set.notify_all();
    }

    fn get(&self) -> Option<Status> {
        *lock(&self.status)
    }

    fn wait(&self) -> Status {
        let mut status = lock(&self.status);
        loop {
            if let Some(status) = *status {
                return status;
            }
            status = self
                .set
                .wait(status)
                .unwrap_or_else(PoisonError::into_inner);
        }
    }

    fn wait_for(&self, max: Duration) -> Option<Status> {
        let unset = |status: &mut Option<Status>| status.is_none();
        let waited = self.set.wait_timeout_while(lock(&self.status), max, unset);
        *waited.unwrap_or_else(PoisonError::into_inner).0
    }
}

fn lock<T>(mutex: &Mutex<T>) -> std::sync::MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// [`OpCallback`](crate::abi::OpCallback) of a fence, on the library's thread.
unsafe extern "C" fn fence_ended(status: Status, fence: *mut c_void) {
    // SAFETY: the share that was given to the library with the call, and comes back once.
    let fence = unsafe { Arc::<Fence>::from_raw(fence.cast()) };
    fence.ended.set(status);
}

/// [`EventRegistered`](crate::abi::EventRegistered), on the library's thread.
unsafe extern "C" fn handler_registered(status: Status, _: usize, flag: *mut c_void) {
    // SAFETY: the share that was given to the library with the call, and comes back once.
    let flag = unsafe { Arc::<Flag>::from_raw(flag.cast()) };
    flag.set(status);
}

/// [`EventHandler`](crate::abi::EventHandler) for the loss of the server, on the library's thread.
unsafe extern "C" fn server_lost(
    _: usize,
    status: Status,
    _: *const Proc,
    _: *mut Info,
    _: usize,
    _: *mut Info,
    _: usize,
    done: Option<EventDone>,
    data: *mut c_void,
) {
    LOST.set(status);
    if let Some(done) = done {
        let none = std::ptr::null_mut();
        // SAFETY: as the library wants to be told that the event has been dealt with; there are no results.
        unsafe {
            done(
                Status::EVENT_ACTION_COMPLETE,
                none,
                0,
                None,
                none.cast(),
                data,
            )
        };
    }
}

fn check_key(key: &str) -> Result<(), Status> {
    match key.is_empty() || key.len() > KEY_MAX || key.contains('\0') {
        true => Err(Status::BAD_PARAM),
        false => Ok(()),
    }
}

/// Text of the library's that is ours now.
///
/// # Safety
///
/// It is from malloc, ends with a zero, and nobody else frees it; or null.
unsafe fn take_text(text: *mut c_char) -> String {
    if text.is_null() {
        return String::new();
    }
    // SAFETY: by the caller's promise.
    unsafe {
        let copy = CStr::from_ptr(text).to_string_lossy().into_owned();
        libc::free(text.cast());
        copy
    }
}

/// A value of the library's that is ours now.
///
/// # Safety
///
/// It is from malloc, and nobody else frees it or what it points to.
unsafe fn take(value: *mut Value) -> Data {
    // SAFETY: by the caller's promise.
    unsafe {
        let data = take_contents(&*value);
        libc::free(value.cast());
        data
    }
}

/// Reads a value, and frees what it points to, as far as that is one piece of memory; lists of attributes
/// are not asked for.
///
/// # Safety
///
/// What it points to is from malloc, and nobody else frees or uses it.
unsafe fn take_contents(value: &Value) -> Data {
    // SAFETY: by the caller's promise; the kind says which member is meant, and free takes null.
    unsafe {
        let data = Data::read(value);
        match value.kind {
            kind::STRING => libc::free(value.data.string.cast()),
            kind::PROC => libc::free(value.data.proc.cast()),
            kind::BYTE_OBJECT | kind::REGEX => libc::free(value.data.bo.bytes.cast()),
            _ => {}
        }
        data
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flag_is_set_once_and_wakes() {
        let flag = Arc::new(Flag::new());
        assert_eq!(flag.wait_for(Duration::from_millis(1)), None);
        let waiter = std::thread::spawn({
            let flag = Arc::clone(&flag);
            move || flag.wait()
        });
        // As the library would.
        let share = Arc::into_raw(Arc::clone(&flag)).cast_mut().cast();
        // SAFETY: a share of a flag.
        unsafe { handler_registered(Status::TIMEOUT, 1, share) };
        flag.set(Status::SUCCESS);
        assert_eq!(waiter.join().unwrap(), Status::TIMEOUT);
        assert_eq!(flag.get(), Some(Status::TIMEOUT));
        assert_eq!(Arc::strong_count(&flag), 1);
    }

    #[test]
    fn what_the_library_gives_is_read_and_freed() {
        // SAFETY: memory from malloc, big enough for what is written.
        unsafe {
            let bytes = libc::malloc(3).cast::<c_char>();
            std::ptr::copy_nonoverlapping(c"abc".as_ptr(), bytes, 3);
            let value = libc::malloc(size_of::<Value>()).cast::<Value>();
            let mut bo = Value::UNDEFINED;
            bo.kind = kind::BYTE_OBJECT;
            bo.data.bo = crate::abi::ByteObject { bytes, size: 3 };
            value.write(bo);
            assert_eq!(take(value), Data::Bytes(b"abc".to_vec()));
            assert_eq!(take_text(libc::strdup(c"n1,n2".as_ptr())), "n1,n2");
            assert_eq!(take_text(std::ptr::null_mut()), "");
        }
        assert_eq!(check_key(&"k".repeat(KEY_MAX + 1)), Err(Status::BAD_PARAM));
    }
}
