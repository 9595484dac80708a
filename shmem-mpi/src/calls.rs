//! MPI's functions, called: the one place that knows how they are declared.
//!
//! Handles are `int` in one interface and pointers in the others, so the table of functions is generic over what a
//! handle is, and [`Calls`] hides which. Its methods are safe: buffers are slices, which say how long they are; that MPI
//! may be called now, by this thread, is said by [`Entered`].

use std::ffi::{CStr, c_char, c_double, c_int, c_void};
use std::marker::PhantomData;

use crate::abi::{Constants, Handle, InC, Status};
use crate::element::{Element, Kind};
use crate::entered::Entered;
use crate::error::Error;

/// Longest text that MPI gives: of a library's version.
const TEXT_MAX: usize = 8192;

/// Of no message: MPI libraries move messages in a probe only if it finds none. What is probed for is a message that the
/// process has sent itself with this tag; every library has tags up to 32767.
const ABSENT_TAG: c_int = 31_337;

macro_rules! functions {
    ($($name:ident: $symbol:literal fn($($arg:ty),*) -> $ret:ty;)*) => {
        /// The functions, with handles of type `H`.
        pub(crate) struct Functions<H> {
            $($name: unsafe extern "C" fn($($arg),*) -> $ret,)*
            constants: Constants<Handle>,
        }

        impl<H: InC> Functions<H> {
            /// Looks them up; `find` gives the address of a name.
            ///
            /// # Safety
            /// The names are those of an MPI library that stays loaded and whose handles are of type `H`, and the
            /// constants are its.
            pub(crate) unsafe fn resolve(
                find: &dyn Fn(&CStr) -> Option<*mut c_void>,
                constants: Constants<Handle>,
            ) -> Result<Self, &'static str> {
                Ok(Self {
                    $($name: {
                        let name = CStr::from_bytes_with_nul(concat!($symbol, "\0").as_bytes());
                        let found = name.ok().and_then(find).ok_or($symbol)?;
                        // SAFETY: the standard declares the function so, by the caller's promise.
                        unsafe {
                            std::mem::transmute::<*mut c_void, unsafe extern "C" fn($($arg),*) -> $ret>(found)
                        }
                    },)*
                    constants,
                })
            }
        }
    };
}

functions! {
    // What no program has asked for is not shown to a tool that stands between it and MPI.
    initialized: "PMPI_Initialized" fn(*mut c_int) -> c_int;
    finalized: "PMPI_Finalized" fn(*mut c_int) -> c_int;
    query_thread: "PMPI_Query_thread" fn(*mut c_int) -> c_int;
    is_thread_main: "PMPI_Is_thread_main" fn(*mut c_int) -> c_int;
    own_rank: "PMPI_Comm_rank" fn(H, *mut c_int) -> c_int;
    iprobe: "PMPI_Iprobe" fn(c_int, c_int, H, *mut c_int, *mut c_void) -> c_int;
    init_thread: "MPI_Init_thread" fn(*mut c_int, *mut *mut *mut c_char, c_int, *mut c_int) -> c_int;
    finalize: "MPI_Finalize" fn() -> c_int;
    abort: "MPI_Abort" fn(H, c_int) -> c_int;
    wtime: "MPI_Wtime" fn() -> c_double;
    error_string: "MPI_Error_string" fn(c_int, *mut c_char, *mut c_int) -> c_int;
    comm_rank: "MPI_Comm_rank" fn(H, *mut c_int) -> c_int;
    comm_size: "MPI_Comm_size" fn(H, *mut c_int) -> c_int;
    comm_dup: "MPI_Comm_dup" fn(H, *mut H) -> c_int;
    comm_free: "MPI_Comm_free" fn(*mut H) -> c_int;
    comm_split_type: "MPI_Comm_split_type" fn(H, c_int, c_int, H, *mut H) -> c_int;
    comm_set_errhandler: "MPI_Comm_set_errhandler" fn(H, H) -> c_int;
    barrier: "MPI_Barrier" fn(H) -> c_int;
    ibarrier: "MPI_Ibarrier" fn(H, *mut H) -> c_int;
    test: "MPI_Test" fn(*mut H, *mut c_int, *mut c_void) -> c_int;
    wait: "MPI_Wait" fn(*mut H, *mut c_void) -> c_int;
    bcast: "MPI_Bcast" fn(*mut c_void, c_int, H, c_int, H) -> c_int;
    allreduce: "MPI_Allreduce" fn(*const c_void, *mut c_void, c_int, H, H, H) -> c_int;
    iallreduce: "MPI_Iallreduce" fn(*const c_void, *mut c_void, c_int, H, H, H, *mut H) -> c_int;
    allgather: "MPI_Allgather" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H) -> c_int;
    alltoall: "MPI_Alltoall" fn(*const c_void, c_int, H, *mut c_void, c_int, H, H) -> c_int;
    alltoallv: "MPI_Alltoallv" fn(*const c_void, *const c_int, *const c_int, H, *mut c_void, *const c_int, *const c_int, H, H) -> c_int;
    send: "MPI_Send" fn(*const c_void, c_int, H, c_int, c_int, H) -> c_int;
    recv: "MPI_Recv" fn(*mut c_void, c_int, H, c_int, c_int, H, *mut c_void) -> c_int;
    get_count: "MPI_Get_count" fn(*const c_void, H, *mut c_int) -> c_int;
}

/// A slice to be read, and how many numbers of it a call takes.
#[derive(Clone, Copy)]
pub(crate) struct In<'a> {
    at: *const c_void,
    count: c_int,
    kind: Kind,
    slice: PhantomData<&'a [u8]>,
}

/// A slice to be written.
pub(crate) struct Out<'a> {
    at: *mut c_void,
    count: c_int,
    kind: Kind,
    slice: PhantomData<&'a mut [u8]>,
}

/// There are more numbers than an `int` can count.
pub(crate) struct TooMany(pub(crate) usize);

impl TooMany {
    pub(crate) fn error(&self, call: &'static str) -> Error {
        let fault = format!(
            "{} numbers are more than MPI can count ({})",
            self.0,
            i32::MAX
        );
        Error::Argument { call, fault }
    }
}

fn count(len: usize) -> Result<c_int, TooMany> {
    c_int::try_from(len).map_err(|_| TooMany(len))
}

impl<'a> In<'a> {
    pub(crate) fn of<T: Element>(slice: &'a [T]) -> Result<Self, TooMany> {
        Ok(Self {
            at: slice.as_ptr().cast(),
            count: count(slice.len())?,
            kind: T::KIND,
            slice: PhantomData,
        })
    }
}

impl<'a> Out<'a> {
    pub(crate) fn of<T: Element>(slice: &'a mut [T]) -> Result<Self, TooMany> {
        Ok(Self {
            at: slice.as_mut_ptr().cast(),
            count: count(slice.len())?,
            kind: T::KIND,
            slice: PhantomData,
        })
    }
}

/// Where in a slice the numbers of each process are.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'a> {
    pub(crate) counts: &'a [c_int],
    pub(crate) starts: &'a [c_int],
}

impl Parts<'_> {
    /// Whether all of `n` parts are within `len` numbers.
    fn fit(&self, n: usize, len: c_int) -> bool {
        self.counts.len() == n
            && self.starts.len() == n
            && self.counts.iter().zip(self.starts).all(|(&count, &start)| {
                let end = start.checked_add(count);
                count >= 0 && start >= 0 && end.is_some_and(|end| end <= len)
            })
    }
}

/// MPI's answer: zero is success.
pub(crate) type Code = c_int;

/// What came with a message.
#[derive(Clone, Copy)]
pub(crate) struct Envelope {
    pub(crate) source: c_int,
    pub(crate) tag: c_int,
    pub(crate) count: c_int,
}

/// The functions, whatever handles are. What takes [`Entered`] may be called between init and finalize only.
pub(crate) trait Calls: Send + Sync {
    fn is_initialized(&self) -> bool;
    fn is_finalized(&self) -> bool;
    /// To be called once at most, which the caller sees to.
    fn init_thread(&self, level: c_int) -> Result<c_int, Code>;
    /// MPI is initialised, which the caller sees to.
    fn query_thread(&self) -> Result<c_int, Code>;
    fn is_thread_main(&self) -> bool;
    /// To be called once at most, and with nobody in a call, which the caller sees to.
    fn finalize(&self) -> Code;
    fn abort(&self, entered: &Entered<'_>, comm: Handle, status: c_int) -> Code;
    fn wtime(&self) -> f64;
    fn error_text(&self, entered: &Entered<'_>, code: Code) -> String;
    fn rank(&self, entered: &Entered<'_>, comm: Handle) -> Result<c_int, Code>;
    fn size(&self, entered: &Entered<'_>, comm: Handle) -> Result<c_int, Code>;
    fn dup(&self, entered: &Entered<'_>, comm: Handle) -> Result<Handle, Code>;
    fn free(&self, entered: &Entered<'_>, comm: Handle) -> Code;
    fn split_shared(&self, entered: &Entered<'_>, comm: Handle, key: c_int)
    -> Result<Handle, Code>;
    fn return_errors(&self, entered: &Entered<'_>, comm: Handle) -> Code;
    fn barrier(&self, entered: &Entered<'_>, comm: Handle) -> Code;
    fn ibarrier(&self, entered: &Entered<'_>, comm: Handle) -> Result<Handle, Code>;
    fn test(&self, entered: &Entered<'_>, request: &mut Handle) -> Result<bool, Code>;
    fn wait(&self, entered: &Entered<'_>, request: &mut Handle) -> Code;
    fn bcast(&self, entered: &Entered<'_>, comm: Handle, buffer: Out<'_>, root: c_int) -> Code;
    /// Without `from`, what is combined is in `to`. The slices have the same length, which the caller sees to.
    fn allreduce(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        from: Option<In<'_>>,
        to: Out<'_>,
        op: usize,
    ) -> Code;
    /// # Safety
    /// The slices stay, and are left alone, until the request is complete.
    unsafe fn iallreduce(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: Out<'_>,
        op: usize,
    ) -> Result<Handle, Code>;
    /// `to` has as many times the numbers of `from` as there are processes.
    fn allgather(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: Out<'_>,
        processes: c_int,
    ) -> Code;
    /// Both have the same multiple of the number of processes.
    fn alltoall(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: Out<'_>,
        processes: c_int,
    ) -> Code;
    fn alltoallv(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        from: (In<'_>, Parts<'_>),
        to: (Out<'_>, Parts<'_>),
        processes: c_int,
    ) -> Code;
    fn send(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: c_int,
        tag: c_int,
    ) -> Code;
    fn recv(
        &self,
        entered: &Entered<'_>,
        comm: Handle,
        to: Out<'_>,
        source: Option<c_int>,
        tag: Option<c_int>,
    ) -> Result<Envelope, Code>;
    /// Has messages of the process move.
    fn poll(&self, entered: &Entered<'_>, comm: Handle) -> Result<(), Code>;
}

/// The answer of a call, with what it has written if that is success.
fn answer<T>(code: Code, written: T) -> Result<T, Code> {
    match code {
        0 => Ok(written),
        code => Err(code),
    }
}

/// A call whose arguments do not fit each other: what its callers must have seen.
const NOT_FITTING: Code = -1;

impl<H: InC> Functions<H> {
    fn kind(&self, kind: Kind) -> H {
        H::from(self.constants.kinds[kind as usize])
    }

    fn op(&self, op: usize) -> H {
        H::from(self.constants.ops[op])
    }

    fn ignore(&self) -> *mut c_void {
        std::ptr::without_provenance_mut(self.constants.status_ignore)
    }

    /// Calls a function that says something by an `int`.
    fn ask(&self, function: unsafe extern "C" fn(*mut c_int) -> c_int) -> Result<c_int, Code> {
        let mut said = 0;
        // SAFETY: the function writes an `int`, and has no other condition.
        let code = unsafe { function(&raw mut said) };
        answer(code, said)
    }
}

// Of the blocks below: the functions are declared as in the table; buffers are slices that are as long as is said, or
// longer, and borrowed for the call; results go to variables of this frame; `Entered` says that MPI is initialised, is
// not finalized meanwhile, and that this thread may call it.
impl<H: InC> Calls for Functions<H>
where
    Self: Send + Sync,
{
    fn is_initialized(&self) -> bool {
        self.ask(self.initialized).is_ok_and(|said| said != 0)
    }

    fn is_finalized(&self) -> bool {
        self.ask(self.finalized).is_ok_and(|said| said != 0)
    }

    fn init_thread(&self, level: c_int) -> Result<c_int, Code> {
        let mut provided = 0;
        let none = std::ptr::null_mut();
        // SAFETY: see above; the arguments of `main` may be null.
        let code = unsafe { (self.init_thread)(none, none.cast(), level, &raw mut provided) };
        answer(code, provided)
    }

    fn query_thread(&self) -> Result<c_int, Code> {
        self.ask(self.query_thread)
    }

    fn is_thread_main(&self) -> bool {
        self.ask(self.is_thread_main).is_ok_and(|said| said != 0)
    }

    fn finalize(&self) -> Code {
        // SAFETY: see above; the caller has seen to the conditions.
        unsafe { (self.finalize)() }
    }

    fn abort(&self, _: &Entered<'_>, comm: Handle, status: c_int) -> Code {
        // SAFETY: see above.
        unsafe { (self.abort)(H::from(comm), status) }
    }

    fn wtime(&self) -> f64 {
        // SAFETY: a clock has no condition.
        unsafe { (self.wtime)() }
    }

    fn error_text(&self, _: &Entered<'_>, code: Code) -> String {
        text(|to, len| {
            // SAFETY: see above; there is room for the longest text.
            unsafe { (self.error_string)(code, to, len) }
        })
    }

    fn rank(&self, _: &Entered<'_>, comm: Handle) -> Result<c_int, Code> {
        let mut rank = 0;
        // SAFETY: see above.
        let code = unsafe { (self.comm_rank)(H::from(comm), &raw mut rank) };
        answer(code, rank)
    }

    fn size(&self, _: &Entered<'_>, comm: Handle) -> Result<c_int, Code> {
        let mut size = 0;
        // SAFETY: see above.
        let code = unsafe { (self.comm_size)(H::from(comm), &raw mut size) };
        answer(code, size)
    }

    fn dup(&self, _: &Entered<'_>, comm: Handle) -> Result<Handle, Code> {
        let mut new = H::from(comm);
        // SAFETY: see above.
        let code = unsafe { (self.comm_dup)(H::from(comm), &raw mut new) };
        answer(code, new.into())
    }

    fn free(&self, _: &Entered<'_>, comm: Handle) -> Code {
        let mut comm = H::from(comm);
        // SAFETY: see above.
        unsafe { (self.comm_free)(&raw mut comm) }
    }

    fn split_shared(&self, _: &Entered<'_>, comm: Handle, key: c_int) -> Result<Handle, Code> {
        let mut new = H::from(comm);
        let (shared, info) = (self.constants.shared, H::from(self.constants.no_info));
        // SAFETY: see above.
        let code =
            unsafe { (self.comm_split_type)(H::from(comm), shared, key, info, &raw mut new) };
        answer(code, new.into())
    }

    fn return_errors(&self, _: &Entered<'_>, comm: Handle) -> Code {
        let handler = H::from(self.constants.errors_return);
        // SAFETY: see above.
        unsafe { (self.comm_set_errhandler)(H::from(comm), handler) }
    }

    fn barrier(&self, _: &Entered<'_>, comm: Handle) -> Code {
        // SAFETY: see above.
        unsafe { (self.barrier)(H::from(comm)) }
    }

    fn ibarrier(&self, _: &Entered<'_>, comm: Handle) -> Result<Handle, Code> {
        let mut request = H::from(self.constants.no_request);
        // SAFETY: see above.
        let code = unsafe { (self.ibarrier)(H::from(comm), &raw mut request) };
        answer(code, request.into())
    }

    fn test(&self, _: &Entered<'_>, request: &mut Handle) -> Result<bool, Code> {
        let (mut handle, mut over) = (H::from(*request), 0);
        // SAFETY: see above; a request that is complete has become the null request, which may be tested.
        let code = unsafe { (self.test)(&raw mut handle, &raw mut over, self.ignore()) };
        *request = handle.into();
        answer(code, over != 0)
    }

    fn poll(&self, _: &Entered<'_>, comm: Handle) -> Result<(), Code> {
        let comm = H::from(comm);
        let (mut me, mut there) = (0, 0);
        // SAFETY: see above.
        let code = unsafe { (self.own_rank)(comm, &raw mut me) };
        answer(code, ())?;
        // SAFETY: see above.
        let code = unsafe { (self.iprobe)(me, ABSENT_TAG, comm, &raw mut there, self.ignore()) };
        answer(code, ())
    }

    fn wait(&self, _: &Entered<'_>, request: &mut Handle) -> Code {
        let mut handle = H::from(*request);
        // SAFETY: as for `test`.
        let code = unsafe { (self.wait)(&raw mut handle, self.ignore()) };
        *request = handle.into();
        code
    }

    fn bcast(&self, _: &Entered<'_>, comm: Handle, buffer: Out<'_>, root: c_int) -> Code {
        let kind = self.kind(buffer.kind);
        // SAFETY: see above.
        unsafe { (self.bcast)(buffer.at, buffer.count, kind, root, H::from(comm)) }
    }

    fn allreduce(
        &self,
        _: &Entered<'_>,
        comm: Handle,
        from: Option<In<'_>>,
        to: Out<'_>,
        op: usize,
    ) -> Code {
        let fits = |from: &In<'_>| (from.count, from.kind) == (to.count, to.kind);
        if !from.as_ref().is_none_or(fits) {
            return NOT_FITTING;
        }
        let in_place = std::ptr::without_provenance(self.constants.in_place as usize);
        let at = from.map_or(in_place, |from| from.at);
        let (kind, op) = (self.kind(to.kind), self.op(op));
        // SAFETY: see above.
        unsafe { (self.allreduce)(at, to.at, to.count, kind, op, H::from(comm)) }
    }

    unsafe fn iallreduce(
        &self,
        _: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: Out<'_>,
        op: usize,
    ) -> Result<Handle, Code> {
        if (from.count, from.kind) != (to.count, to.kind) {
            return Err(NOT_FITTING);
        }
        let mut request = H::from(self.constants.no_request);
        let (kind, op) = (self.kind(to.kind), self.op(op));
        // SAFETY: see above; the caller leaves the slices alone until the request is complete.
        let code = unsafe {
            (self.iallreduce)(
                from.at,
                to.at,
                to.count,
                kind,
                op,
                H::from(comm),
                &raw mut request,
            )
        };
        answer(code, request.into())
    }

    fn allgather(
        &self,
        _: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: Out<'_>,
        processes: c_int,
    ) -> Code {
        if from.count.checked_mul(processes) != Some(to.count) || from.kind != to.kind {
            return NOT_FITTING;
        }
        let (n, kind, comm) = (from.count, self.kind(from.kind), H::from(comm));
        // SAFETY: see above.
        unsafe { (self.allgather)(from.at, n, kind, to.at, n, kind, comm) }
    }

    fn alltoall(
        &self,
        _: &Entered<'_>,
        comm: Handle,
        from: In<'_>,
        to: Out<'_>,
        processes: c_int,
    ) -> Code {
        let fits = processes > 0 && from.count % processes == 0;
        if !fits || (from.count, from.kind) != (to.count, to.kind) {
            return NOT_FITTING;
        }
        let n = from.count / processes;
        let (kind, comm) = (self.kind(from.kind), H::from(comm));
        // SAFETY: see above.
        unsafe { (self.alltoall)(from.at, n, kind, to.at, n, kind, comm) }
    }

    fn alltoallv(
        &self,
        _: &Entered<'_>,
        comm: Handle,
        (from, sent): (In<'_>, Parts<'_>),
        (to, received): (Out<'_>, Parts<'_>),
        processes: c_int,
    ) -> Code {
        let n = processes.max(0) as usize;
        if !sent.fit(n, from.count) || !received.fit(n, to.count) || from.kind != to.kind {
            return NOT_FITTING;
        }
        let kind = self.kind(from.kind);
        // SAFETY: see above; all parts are within the slices.
        unsafe {
            (self.alltoallv)(
                from.at,
                sent.counts.as_ptr(),
                sent.starts.as_ptr(),
                kind,
                to.at,
                received.counts.as_ptr(),
                received.starts.as_ptr(),
                kind,
                H::from(comm),
            )
        }
    }

    fn send(&self, _: &Entered<'_>, comm: Handle, from: In<'_>, to: c_int, tag: c_int) -> Code {
        let kind = self.kind(from.kind);
        // SAFETY: see above.
        unsafe { (self.send)(from.at, from.count, kind, to, tag, H::from(comm)) }
    }

    fn recv(
        &self,
        _: &Entered<'_>,
        comm: Handle,
        to: Out<'_>,
        source: Option<c_int>,
        tag: Option<c_int>,
    ) -> Result<Envelope, Code> {
        let kind = self.kind(to.kind);
        let source = source.unwrap_or(self.constants.any_source);
        let tag = tag.unwrap_or(self.constants.any_tag);
        let (mut status, mut count) = (Status::default(), 0);
        let at = (&raw mut status).cast();
        // SAFETY: see above; there is room for any status.
        let code = unsafe { (self.recv)(to.at, to.count, kind, source, tag, H::from(comm), at) };
        answer(code, ())?;
        // SAFETY: see above; the call before has filled in the status.
        let code = unsafe { (self.get_count)(at, kind, &raw mut count) };
        let first = self.constants.source_at;
        answer(
            code,
            Envelope {
                source: status.ints[first],
                tag: status.ints[first + 1],
                count,
            },
        )
    }
}

/// Text that a function writes, with its length.
pub(crate) fn text(write: impl FnOnce(*mut c_char, *mut c_int) -> c_int) -> String {
    let mut bytes = vec![0u8; TEXT_MAX + 1];
    let mut len = 0;
    let code = write(bytes.as_mut_ptr().cast(), &raw mut len);
    if code != 0 {
        return String::new();
    }
    bytes.truncate(len.clamp(0, TEXT_MAX as c_int) as usize);
    let text = String::from_utf8_lossy(&bytes);
    text.trim_end_matches(['\0', '\n', ' ']).to_owned()
}
