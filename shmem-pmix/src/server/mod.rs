//! A node's PMIx server: libpmix serves the processes, and asks its host for what it cannot do alone.
//!
//! What it asks for comes as an [`Upcall`], on a thread of the library, which must not be kept: whoever
//! takes it hands it to another thread. Each is answered once, from whatever thread, by the handle in it;
//! the process concerned waits until then.

mod upcall;

use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::time::Duration;

pub use upcall::{Done, Members, ModexDone, Upcall};

use crate::abi::{NAMESPACE_LEN, Proc};
use crate::{InfoArray, Library, Status};

/// How long the library may take for what needs nobody else.
const PATIENCE: Duration = Duration::from_secs(60);

/// The server of a process, of which it has one at most.
#[derive(Debug)]
pub struct Server {
    library: &'static Library,
    /// Any process of the job.
    job: Proc,
}

/// Waits for what a call has begun.
struct Begun(Receiver<Status>, *mut SyncSender<Status>);

impl Begun {
    fn new() -> Self {
        let (to, from) = sync_channel(1);
        Self(from, Box::into_raw(Box::new(to)))
    }

    /// What the library is to give to [`done`].
    fn data(&self) -> *mut c_void {
        self.1.cast()
    }

    /// The outcome, where `status` is what the call itself gave.
    fn wait(self, status: Status) -> Result<(), Status> {
        if status != Status::SUCCESS {
            // SAFETY: made above, and without success the library does not call back.
            drop(unsafe { Box::from_raw(self.1) });
            return status.ok();
        }
        // Where it never calls back, what it would use stays.
        let outcome = self.0.recv_timeout(PATIENCE);
        outcome.unwrap_or(Status::TIMEOUT).ok()
    }
}

/// An operation is over.
unsafe extern "C" fn done(status: Status, data: *mut c_void) {
    // SAFETY: `data` is that of a `Begun`, and the library calls back once.
    let waits = unsafe { Box::from_raw(data.cast::<SyncSender<Status>>()) };
    // Who does not wait any more needs no answer.
    let _ = waits.try_send(status);
}

/// What a process of this node has put, for whoever asked.
type PutBy = Box<dyn FnOnce(Status, Vec<u8>) + Send>;

unsafe extern "C" fn put_by(status: Status, bytes: *mut c_char, len: usize, data: *mut c_void) {
    // SAFETY: made by `Server::put_by`, for one call back; the bytes are the library's until we return.
    let (then, bytes) = unsafe {
        (
            Box::from_raw(data.cast::<PutBy>()),
            upcall::copied(bytes, len),
        )
    };
    then(status, bytes);
}

impl Server {
    /// Begins to serve the processes of the job `namespace`; `upcalls` gets what the library asks for.
    ///
    /// # Errors
    ///
    /// The library's; and that there is one already, or the name is none.
    pub fn start(
        library: &'static Library,
        namespace: &str,
        mut infos: InfoArray,
        upcalls: impl Fn(Upcall) + Send + Sync + 'static,
    ) -> Result<Self, Status> {
        let job = Proc::new(namespace, 0).ok_or(Status::BAD_PARAM)?;
        let mut module = upcall::module(namespace, Box::new(upcalls)).ok_or(Status::EXISTS)?;
        // Clients of earlier releases wait for ever for the answer to what they log, if the host has a say in it.
        if library.version().numbers() < Some((5, 0)) {
            module.log = None;
        }
        // SAFETY: module and attributes are whole and outlive the call, which copies them.
        let status =
            unsafe { (library.server_init)(&raw mut module, infos.as_mut_ptr(), infos.len()) };
        status.ok()?;
        Ok(Self { library, job })
    }

    /// Describes the job, of which `n_local` processes are on this node.
    ///
    /// # Errors
    ///
    /// The library's.
    pub fn register_job(&self, n_local: u32, mut infos: InfoArray) -> Result<(), Status> {
        let begun = Begun::new();
        // SAFETY: the namespace ends with a zero; the attributes stay until the end is known, or for ever.
        let status = unsafe {
            (self.library.server_register_nspace)(
                self.job.namespace.as_ptr(),
                n_local.try_into().map_err(|_| Status::BAD_PARAM)?,
                infos.as_mut_ptr(),
                infos.len(),
                Some(done),
                begun.data(),
            )
        };
        let outcome = begun.wait(status);
        if outcome == Err(Status::TIMEOUT) {
            std::mem::forget(infos);
        }
        outcome
    }

    /// Announces a process of this node, which will be this user's, and gives the variables by which it
    /// finds the server, as `NAME=value`.
    ///
    /// # Errors
    ///
    /// The library's.
    pub fn register_process(&self, rank: u32, user: (u32, u32)) -> Result<Vec<CString>, Status> {
        let proc = self.job.peer(rank);
        let begun = Begun::new();
        // SAFETY: the process is copied; nothing is attached to it.
        let status = unsafe {
            (self.library.server_register_client)(
                &raw const proc,
                user.0,
                user.1,
                ptr::null_mut(),
                Some(done),
                begun.data(),
            )
        };
        begun.wait(status)?;
        let mut list: *mut *mut c_char = ptr::null_mut();
        // SAFETY: the array, which is none yet, is the library's to make with malloc.
        let status = unsafe { (self.library.server_setup_fork)(&raw const proc, &raw mut list) };
        // SAFETY: that is what it has made.
        let variables = unsafe { take_list(list) };
        status.ok().map(|()| variables)
    }

    /// Asks for what a process of this node has put; the answer comes when it has, on any thread.
    pub fn put_by(&self, rank: u32, then: impl FnOnce(Status, Vec<u8>) + Send + 'static) {
        let proc = self.job.peer(rank);
        let then: *mut PutBy = Box::into_raw(Box::new(Box::new(then)));
        // SAFETY: the process is copied; `put_by` takes what it is given once.
        let status = unsafe {
            (self.library.server_dmodex_request)(&raw const proc, Some(put_by), then.cast())
        };
        if status != Status::SUCCESS {
            // SAFETY: made above, and without success the library does not call back.
            unsafe { Box::from_raw(then)(status, Vec::new()) };
        }
    }

    /// Names of nodes as the library wants them in [`crate::key::NODE_MAP`].
    ///
    /// # Errors
    ///
    /// The library's.
    pub fn node_map(&self, names: &str) -> Result<Vec<u8>, Status> {
        // SAFETY: of this type.
        unsafe { generate(self.library.generate_regex, names) }
    }

    /// The ranks of each node, with commas between them and semicolons between nodes, as the library wants
    /// them in [`crate::key::PROC_MAP`].
    ///
    /// # Errors
    ///
    /// The library's.
    pub fn proc_map(&self, ranks: &str) -> Result<Vec<u8>, Status> {
        // SAFETY: of this type.
        unsafe { generate(self.library.generate_ppn, ranks) }
    }

    /// Ends it. What processes have asked the library to remove goes with that.
    pub fn finish(self) {
        let begun = Begun::new();
        // SAFETY: the namespace ends with a zero and is copied.
        unsafe {
            (self.library.server_deregister_nspace)(
                self.job.namespace.as_ptr(),
                Some(done),
                begun.data(),
            );
        }
        // It gives no status by itself; where it fails, the end does it.
        let _ = begun.wait(Status::SUCCESS);
        // SAFETY: it was initialised once, and nothing uses it from here on.
        unsafe {
            (self.library.server_finalize)();
        }
    }
}

/// Text made by one of the library's two functions for that.
///
/// # Safety
///
/// `by` is one of them.
unsafe fn generate(
    by: unsafe extern "C" fn(*const c_char, *mut *mut c_char) -> Status,
    text: &str,
) -> Result<Vec<u8>, Status> {
    let text = CString::new(text).map_err(|_| Status::BAD_PARAM)?;
    let mut made = ptr::null_mut();
    // SAFETY: the text ends with a zero; what is made is ours.
    unsafe { by(text.as_ptr(), &raw mut made) }.ok()?;
    if made.is_null() {
        return Err(Status::ERROR);
    }
    // SAFETY: the library has made it, with malloc.
    unsafe {
        let bytes = regex_bytes(made);
        libc::free(made.cast());
        Ok(bytes)
    }
}

/// All of a map that the library has made: text with its zero, or, where it compresses long ones, three
/// texts, of which the third tells how many bytes follow.
///
/// # Safety
///
/// It is such a map.
unsafe fn regex_bytes(made: *const c_char) -> Vec<u8> {
    // SAFETY: by the caller's promise there is a text here, and behind it another, if it is of that kind.
    unsafe {
        let text = |at: usize| CStr::from_ptr(made.add(at)).to_bytes_with_nul();
        let first = text(0);
        let mut len = first.len();
        if first == b"blob:\0" {
            len += text(len).len();
            let size = text(len);
            len += size.len();
            let digits = size.strip_prefix(b"size=").unwrap_or_default();
            let digits = digits.split(|&byte| byte == b':').next();
            let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
            len += digits.and_then(|d| d.parse::<usize>().ok()).unwrap_or(0);
        }
        std::slice::from_raw_parts(made.cast(), len).to_vec()
    }
}

/// The texts of an array that ends with null, which is freed with them.
///
/// # Safety
///
/// Array and texts are from malloc; or it is null.
unsafe fn take_list(list: *mut *mut c_char) -> Vec<CString> {
    let mut all = Vec::new();
    if list.is_null() {
        return all;
    }
    // SAFETY: by the caller's promise.
    unsafe {
        let mut at = list;
        while !(*at).is_null() {
            all.push(CStr::from_ptr(*at).to_owned());
            libc::free((*at).cast());
            at = at.add(1);
        }
        libc::free(list.cast());
    }
    all
}

const _: () = assert!(NAMESPACE_LEN > 64, "names of jobs have 39 letters");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_are_taken_whole() {
        let text = |bytes: &[u8]| {
            // What is behind must not be taken along.
            let all = [bytes, b"more"].concat();
            // SAFETY: texts with their zeros, as the library makes them.
            unsafe { regex_bytes(all.as_ptr().cast()) == bytes }
        };
        assert!(text(b"pmix[n[1:0-3]]\0"));
        assert!(text(b"blob:\0component=zlib:\0size=5:\0\0\x01\0\x02\0"));
        assert!(text(b"blob:\0component=zlib:\0size=x\0"));
    }

    #[test]
    fn lists_are_taken_with_their_texts() {
        // SAFETY: from malloc, as the library's are.
        unsafe {
            let list: *mut *mut c_char = libc::malloc(3 * size_of::<*mut c_char>()).cast();
            *list = libc::strdup(c"A=1".as_ptr());
            *list.add(1) = libc::strdup(c"B=".as_ptr());
            *list.add(2) = ptr::null_mut();
            assert_eq!(take_list(list), [c"A=1".to_owned(), c"B=".to_owned()]);
            assert!(take_list(ptr::null_mut()).is_empty());
        }
    }
}
