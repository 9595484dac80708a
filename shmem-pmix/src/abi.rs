//! The C types of libpmix, which are the same in every release from 3.2 to 6.1 on a machine with
//! pointers of 64 bits, and the order of a server's call-backs.
//!
//! A change of any size or offset here would be a change of what the library reads and writes, so they
//! are asserted when this is compiled.

use std::ffi::{c_char, c_int, c_void};
use std::mem::{offset_of, size_of};

use crate::Status;

/// Bytes of a namespace's name with its zero.
pub const NAMESPACE_LEN: usize = 256;
/// Bytes of a key with its zero.
pub const KEY_LEN: usize = 512;

/// Rank of a process in its namespace.
pub type Rank = u32;
/// No process.
pub const RANK_UNDEFINED: Rank = 0xffff_ffff;
/// All processes of a namespace; the job itself, when attributes are asked for.
pub const RANK_WILDCARD: Rank = 0xffff_fffe;

/// Kinds of value; see [`crate::Data`].
#[allow(missing_docs, reason = "the standard's names")]
pub mod kind {
    pub const UNDEFINED: u16 = 0;
    pub const BOOL: u16 = 1;
    pub const BYTE: u16 = 2;
    pub const STRING: u16 = 3;
    pub const SIZE: u16 = 4;
    pub const PID: u16 = 5;
    pub const INT: u16 = 6;
    pub const INT8: u16 = 7;
    pub const INT16: u16 = 8;
    pub const INT32: u16 = 9;
    pub const INT64: u16 = 10;
    pub const UINT: u16 = 11;
    pub const UINT8: u16 = 12;
    pub const UINT16: u16 = 13;
    pub const UINT32: u16 = 14;
    pub const UINT64: u16 = 15;
    pub const STATUS: u16 = 20;
    pub const PROC: u16 = 22;
    pub const INFO: u16 = 24;
    pub const BYTE_OBJECT: u16 = 27;
    pub const PERSISTENCE: u16 = 30;
    pub const POINTER: u16 = 31;
    pub const RANGE: u16 = 33;
    pub const DATA_ARRAY: u16 = 39;
    pub const RANK: u16 = 40;
    pub const REGEX: u16 = 49;
}

/// To whom a pair is visible that a process puts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Scope {
    /// Processes of its node.
    Local = 1,
    /// Processes of other nodes.
    Remote = 2,
    /// All processes of the job.
    Global = 3,
}

/// To whom a published name is visible: [`crate::key::RANGE`].
#[allow(missing_docs, reason = "the standard's names")]
pub mod range {
    pub const NAMESPACE: u8 = 3;
    pub const SESSION: u8 = 4;
    pub const GLOBAL: u8 = 5;
}

/// Until when a published name stays: [`crate::key::PERSISTENCE`].
#[allow(missing_docs, reason = "the standard's names")]
pub mod persistence {
    pub const INDEFINITE: u8 = 0;
    pub const APP: u8 = 3;
    pub const SESSION: u8 = 4;
}

/// `pmix_proc_t`: a process, by namespace and rank.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Proc {
    /// Name of the job, with a zero behind.
    pub namespace: [c_char; NAMESPACE_LEN],
    /// Its rank there.
    pub rank: Rank,
}

/// `pmix_byte_object_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct ByteObject {
    /// The first of them.
    pub bytes: *mut c_char,
    /// Their number.
    pub size: usize,
}

/// `pmix_data_array_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct DataArray {
    /// What the elements are, of [`kind`].
    pub kind: u16,
    /// Number of elements.
    pub size: usize,
    /// The first of them.
    pub array: *mut c_void,
}

/// The union in a `pmix_value_t`, as far as its members are used.
#[derive(Clone, Copy)]
#[repr(C)]
#[allow(missing_docs, reason = "the C names")]
pub union ValueData {
    pub flag: bool,
    pub byte: u8,
    pub int8: i8,
    pub int16: i16,
    pub int32: i32,
    pub int64: i64,
    pub uint16: u16,
    pub uint32: u32,
    pub uint64: u64,
    pub size: usize,
    pub string: *mut c_char,
    pub proc: *mut Proc,
    pub bo: ByteObject,
    pub darray: *mut DataArray,
    pub ptr: *mut c_void,
    pub whole: [u64; 3],
}

/// `pmix_value_t`.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Value {
    /// Of [`kind`].
    pub kind: u16,
    /// What is meant depends on the kind.
    pub data: ValueData,
}

impl Value {
    /// No value.
    pub const UNDEFINED: Self = Self {
        kind: kind::UNDEFINED,
        data: ValueData { whole: [0; 3] },
    };
}

/// `pmix_info_t`: an attribute.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Info {
    /// Its name, with a zero behind.
    pub key: [c_char; KEY_LEN],
    /// [`INFO_REQUIRED`] or nothing.
    pub flags: u32,
    /// Its value.
    pub value: Value,
}

/// Flag of an attribute: a call must fail that cannot heed it.
pub const INFO_REQUIRED: u32 = 1;

/// `pmix_pdata_t`: a published pair, and who has published it.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct Published {
    /// Who has.
    pub proc: Proc,
    /// The name.
    pub key: [c_char; KEY_LEN],
    /// What it says.
    pub value: Value,
}

/// `pmix_app_t`: a program to be started.
#[derive(Clone, Copy)]
#[repr(C)]
pub struct App {
    /// The program's file.
    pub cmd: *mut c_char,
    /// Its arguments with its name, and null.
    pub argv: *mut *mut c_char,
    /// Variables besides those of the launcher, and null.
    pub env: *mut *mut c_char,
    /// Its directory, or null.
    pub cwd: *mut c_char,
    /// How many processes.
    pub maxprocs: c_int,
    /// Attributes.
    pub info: *mut Info,
    /// Their number.
    pub ninfo: usize,
}

/// `pmix_op_cbfunc_t`: an operation is over.
pub type OpCallback = unsafe extern "C" fn(status: Status, data: *mut c_void);
/// `pmix_value_cbfunc_t`: the value that was asked for, or null.
pub type ValueCallback = unsafe extern "C" fn(status: Status, value: *mut Value, data: *mut c_void);
/// `pmix_release_cbfunc_t`: the receiver has no more use for what it got.
pub type ReleaseCallback = unsafe extern "C" fn(data: *mut c_void);
/// `pmix_modex_cbfunc_t`: the outcome of a fence or of a direct modex, for the library; it calls
/// `release` with `release_data` when it has no more use for `bytes`.
pub type ModexCallback = unsafe extern "C" fn(
    status: Status,
    bytes: *const c_char,
    len: usize,
    data: *mut c_void,
    release: Option<ReleaseCallback>,
    release_data: *mut c_void,
);
/// `pmix_dmodex_response_fn_t`: what a process of this node has put; the library's until it returns.
pub type DmodexCallback =
    unsafe extern "C" fn(status: Status, bytes: *mut c_char, len: usize, data: *mut c_void);
/// `pmix_lookup_cbfunc_t`: the pairs that were found.
pub type LookupCallback =
    unsafe extern "C" fn(status: Status, found: *mut Published, n: usize, data: *mut c_void);
/// `pmix_spawn_cbfunc_t`: the namespace of the new job.
pub type SpawnCallback =
    unsafe extern "C" fn(status: Status, namespace: *mut c_char, data: *mut c_void);
/// `pmix_info_cbfunc_t`: attributes that were asked for.
pub type InfoCallback = unsafe extern "C" fn(
    status: Status,
    infos: *mut Info,
    n: usize,
    data: *mut c_void,
    release: Option<ReleaseCallback>,
    release_data: *mut c_void,
);

/// `pmix_event_notification_cbfunc_fn_t`: an event has been dealt with.
pub type EventDone = unsafe extern "C" fn(
    status: Status,
    results: *mut Info,
    n: usize,
    done: Option<OpCallback>,
    own_data: *mut c_void,
    data: *mut c_void,
);
/// `pmix_notification_fn_t`: something has happened.
pub type EventHandler = unsafe extern "C" fn(
    handler: usize,
    status: Status,
    source: *const Proc,
    infos: *mut Info,
    n_infos: usize,
    results: *mut Info,
    n_results: usize,
    done: Option<EventDone>,
    data: *mut c_void,
);
/// `pmix_hdlr_reg_cbfunc_t`: a handler has its number.
pub type EventRegistered = unsafe extern "C" fn(status: Status, handler: usize, data: *mut c_void);

/// `client_connected`, `client_finalized`: of a process of this node.
pub type ClientUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    object: *mut c_void,
    done: Option<OpCallback>,
    data: *mut c_void,
) -> Status;
/// `abort`: a process wants others to be ended.
pub type AbortUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    object: *mut c_void,
    status: c_int,
    message: *const c_char,
    procs: *mut Proc,
    n: usize,
    done: Option<OpCallback>,
    data: *mut c_void,
) -> Status;
/// `fence_nb`: all members of this node have come, with `len` bytes for the others.
pub type FenceUpcall = unsafe extern "C" fn(
    procs: *const Proc,
    n: usize,
    infos: *const Info,
    n_infos: usize,
    bytes: *mut c_char,
    len: usize,
    done: Option<ModexCallback>,
    data: *mut c_void,
) -> Status;
/// `direct_modex`: what a process of another node has put is asked for.
pub type DirectModexUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    infos: *const Info,
    n_infos: usize,
    done: Option<ModexCallback>,
    data: *mut c_void,
) -> Status;
/// `publish`.
pub type PublishUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    infos: *const Info,
    n_infos: usize,
    done: Option<OpCallback>,
    data: *mut c_void,
) -> Status;
/// `lookup`; the keys end with null.
pub type LookupUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    keys: *mut *mut c_char,
    infos: *const Info,
    n_infos: usize,
    done: Option<LookupCallback>,
    data: *mut c_void,
) -> Status;
/// `unpublish`; the keys end with null.
pub type UnpublishUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    keys: *mut *mut c_char,
    infos: *const Info,
    n_infos: usize,
    done: Option<OpCallback>,
    data: *mut c_void,
) -> Status;
/// `spawn`.
pub type SpawnUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    infos: *const Info,
    n_infos: usize,
    apps: *const App,
    n_apps: usize,
    done: Option<SpawnCallback>,
    data: *mut c_void,
) -> Status;
/// `connect`, `disconnect`.
pub type ConnectUpcall = unsafe extern "C" fn(
    procs: *const Proc,
    n: usize,
    infos: *const Info,
    n_infos: usize,
    done: Option<OpCallback>,
    data: *mut c_void,
) -> Status;
/// `job_control`: something is to be done with processes.
pub type JobControlUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    targets: *const Proc,
    n: usize,
    infos: *const Info,
    n_infos: usize,
    done: Option<InfoCallback>,
    data: *mut c_void,
) -> Status;
/// `log`: a process has something to be told. Releases before 5 expect no status.
pub type LogUpcall = unsafe extern "C" fn(
    proc: *const Proc,
    infos: *const Info,
    n: usize,
    directives: *const Info,
    n_directives: usize,
    done: Option<OpCallback>,
    data: *mut c_void,
) -> Status;
/// A call-back that is not used.
pub type OtherUpcall = unsafe extern "C" fn();

/// `pmix_server_module_t`: what the library asks of its server. Absent ones are not offered.
///
/// The first 28 have one order in every release; those behind differ, and stay absent. The library copies
/// as many as it knows of.
#[repr(C)]
#[allow(missing_docs, reason = "the C names")]
pub struct ServerModule {
    pub client_connected: Option<ClientUpcall>,
    pub client_finalized: Option<ClientUpcall>,
    pub abort: Option<AbortUpcall>,
    pub fence_nb: Option<FenceUpcall>,
    pub direct_modex: Option<DirectModexUpcall>,
    pub publish: Option<PublishUpcall>,
    pub lookup: Option<LookupUpcall>,
    pub unpublish: Option<UnpublishUpcall>,
    pub spawn: Option<SpawnUpcall>,
    pub connect: Option<ConnectUpcall>,
    pub disconnect: Option<ConnectUpcall>,
    /// register_events to tool_connected.
    pub before_log: [Option<OtherUpcall>; 6],
    pub log: Option<LogUpcall>,
    pub allocate: Option<OtherUpcall>,
    pub job_control: Option<JobControlUpcall>,
    /// monitor to client_connected2.
    pub others: [Option<OtherUpcall>; 8],
    /// What later releases have besides, and room for what is to come.
    pub later: [Option<OtherUpcall>; 32],
}

const _: () = {
    assert!(size_of::<Proc>() == 260 && offset_of!(Proc, rank) == 256);
    assert!(size_of::<Value>() == 32 && offset_of!(Value, data) == 8);
    assert!(size_of::<ValueData>() == 24);
    assert!(size_of::<Info>() == 552);
    assert!(offset_of!(Info, flags) == 512 && offset_of!(Info, value) == 520);
    assert!(size_of::<ByteObject>() == 16 && offset_of!(ByteObject, size) == 8);
    assert!(size_of::<DataArray>() == 24);
    assert!(offset_of!(DataArray, size) == 8 && offset_of!(DataArray, array) == 16);
    assert!(size_of::<Published>() == 808 && offset_of!(Published, value) == 776);
    assert!(size_of::<App>() == 56 && offset_of!(App, info) == 40);
    assert!(size_of::<Status>() == 4 && size_of::<Scope>() == 1);
    assert!(size_of::<ServerModule>() == 60 * size_of::<usize>());
    assert!(offset_of!(ServerModule, disconnect) == 10 * size_of::<usize>());
    assert!(offset_of!(ServerModule, log) == 17 * size_of::<usize>());
    assert!(offset_of!(ServerModule, job_control) == 19 * size_of::<usize>());
    assert!(offset_of!(ServerModule, later) == 28 * size_of::<usize>());
};

impl Proc {
    /// A process of a namespace; `None` if the name is too long or has a zero in it.
    pub fn new(namespace: &str, rank: Rank) -> Option<Self> {
        let namespace = text_field(namespace.as_bytes())?;
        Some(Self { namespace, rank })
    }

    /// Its namespace.
    pub fn namespace(&self) -> String {
        field_text(&self.namespace)
    }

    /// Another process of the same namespace.
    pub fn peer(&self, rank: Rank) -> Self {
        Self { rank, ..*self }
    }
}

impl PartialEq for Proc {
    fn eq(&self, other: &Self) -> bool {
        self.rank == other.rank && self.namespace() == other.namespace()
    }
}

impl std::fmt::Debug for Proc {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.namespace(), self.rank)
    }
}

/// Text in a field of the library; `None` if it does not fit with its zero, or has one in it.
pub(crate) fn text_field<const N: usize>(text: &[u8]) -> Option<[c_char; N]> {
    if text.len() >= N || text.contains(&0) {
        return None;
    }
    let mut field = [0; N];
    for (place, &byte) in field.iter_mut().zip(text) {
        *place = byte as c_char;
    }
    Some(field)
}

/// The text of a field of the library, to its zero or its end.
pub(crate) fn field_text(field: &[c_char]) -> String {
    let len = field.iter().position(|&c| c == 0).unwrap_or(field.len());
    let bytes: Vec<u8> = field[..len].iter().flat_map(|c| c.to_ne_bytes()).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_fit_or_are_refused() {
        let longest = "n".repeat(NAMESPACE_LEN - 1);
        let proc = Proc::new(&longest, 3).unwrap();
        assert_eq!((proc.namespace(), proc.rank), (longest, 3));
        assert_eq!(Proc::new(&"n".repeat(NAMESPACE_LEN), 0), None);
        assert_eq!(Proc::new("a\0b", 0), None);
        assert_eq!(proc.peer(4).namespace(), proc.namespace());
        // A field without a zero is read to its end.
        assert_eq!(field_text(&[b'x' as c_char; 4]), "xxxx");
    }
}
