//! libpmix as it was loaded: its functions.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::fmt;
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, OnceLock, PoisonError};

use crate::Status;
use crate::abi::{
    App, DmodexCallback, EventHandler, EventRegistered, Info, OpCallback, Proc, Published,
    ServerModule, Value, ValueCallback,
};
use crate::search::{self, Candidate, NAME};

/// The oldest release whose types are those of [`crate::abi`].
const OLDEST: (u16, u16) = (3, 2);

/// Most places that an error names.
const NAMED_MAX: usize = 6;

macro_rules! functions {
    ($($(#[$doc:meta])* $name:ident: $symbol:literal fn($($arg:ty),*) $(-> $ret:ty)?;)*) => {
        /// The library's functions, as its headers declare them, and where it was found.
        ///
        /// All are the library's own: unsafe to call, and to be called as the standard says.
        pub struct Library {
            path: PathBuf,
            version: Version,
            $($(#[$doc])* pub $name: unsafe extern "C" fn($($arg),*) $(-> $ret)?,)*
        }

        impl Library {
            /// # Safety
            /// `handle` is a loaded libpmix that stays loaded.
            unsafe fn resolve(handle: *mut c_void, path: PathBuf, version: Version) -> Result<Self, &'static str> {
                // SAFETY: the handle is valid by the caller's promise. Each symbol has the type that the
                // library's headers declare, in every release, which is the one given here.
                unsafe {
                    Ok(Self {
                        path,
                        version,
                        $($name: {
                            let found = find(handle, concat!($symbol, "\0")).ok_or($symbol)?;
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($arg),*) $(-> $ret)?,
                            >(found)
                        },)*
                    })
                }
            }
        }
    };
}

functions! {
    // For any process.
    /// Which attributes are the job's, and the first round to the server.
    init: "PMIx_Init" fn(*mut Proc, *mut Info, usize) -> Status;
    /// Of several inits the last one's leaves.
    finalize: "PMIx_Finalize" fn(*const Info, usize) -> Status;
    /// Not zero after init.
    initialized: "PMIx_Initialized" fn() -> c_int;
    /// Ends processes: all of the namespace if none are given.
    abort: "PMIx_Abort" fn(c_int, *const c_char, *mut Proc, usize) -> Status;
    /// Copies a value, to be sent with the next commit.
    put: "PMIx_Put" fn(u8, *const c_char, *mut Value) -> Status;
    /// Sends what was put to the node's server.
    commit: "PMIx_Commit" fn() -> Status;
    /// Without processes: of all of the namespace.
    fence: "PMIx_Fence" fn(*const Proc, usize, *const Info, usize) -> Status;
    /// The same without waiting.
    fence_nb: "PMIx_Fence_nb" fn(*const Proc, usize, *const Info, usize, Option<OpCallback>, *mut c_void) -> Status;
    /// The value is the caller's, who frees it.
    get: "PMIx_Get" fn(*const Proc, *const c_char, *const Info, usize, *mut *mut Value) -> Status;
    /// The same without waiting.
    get_nb: "PMIx_Get_nb" fn(*const Proc, *const c_char, *const Info, usize, Option<ValueCallback>, *mut c_void) -> Status;
    /// Names of the nodes, with commas; the caller's, who frees them.
    resolve_nodes: "PMIx_Resolve_nodes" fn(*const c_char, *mut *mut c_char) -> Status;
    /// Processes of a node; the caller's, who frees them.
    resolve_peers: "PMIx_Resolve_peers" fn(*const c_char, *const c_char, *mut *mut Proc, *mut usize) -> Status;
    /// Shows pairs to other jobs.
    publish: "PMIx_Publish" fn(*const Info, usize) -> Status;
    /// What others have published under the keys.
    lookup: "PMIx_Lookup" fn(*mut Published, usize, *const Info, usize) -> Status;
    /// The keys end with null.
    unpublish: "PMIx_Unpublish" fn(*mut *mut c_char, *const Info, usize) -> Status;
    /// The name of the new namespace goes to an array of [`crate::abi::NAMESPACE_LEN`] bytes.
    spawn: "PMIx_Spawn" fn(*const Info, usize, *const App, usize, *mut c_char) -> Status;
    /// For events of the codes, or any if there are none. Releases from 4 on give a status, too.
    register_event_handler: "PMIx_Register_event_handler" fn(*mut Status, usize, *mut Info, usize, Option<EventHandler>, Option<EventRegistered>, *mut c_void);

    // For a server.
    /// The module is copied; upcalls come on a thread of the library.
    server_init: "PMIx_server_init" fn(*mut ServerModule, *mut Info, usize) -> Status;
    /// Ends its threads and closes its sockets.
    server_finalize: "PMIx_server_finalize" fn() -> Status;
    /// The namespace is an array of [`crate::abi::NAMESPACE_LEN`] bytes; the attributes must stay until
    /// the callback has come.
    server_register_nspace: "PMIx_server_register_nspace" fn(*const c_char, c_int, *mut Info, usize, Option<OpCallback>, *mut c_void) -> Status;
    /// The opposite.
    server_deregister_nspace: "PMIx_server_deregister_nspace" fn(*const c_char, Option<OpCallback>, *mut c_void);
    /// The user and group are of the process to come.
    server_register_client: "PMIx_server_register_client" fn(*const Proc, u32, u32, *mut c_void, Option<OpCallback>, *mut c_void) -> Status;
    /// The opposite.
    server_deregister_client: "PMIx_server_deregister_client" fn(*const Proc, Option<OpCallback>, *mut c_void);
    /// Appends the process's variables to an array that ends with null and is from malloc, or null.
    server_setup_fork: "PMIx_server_setup_fork" fn(*const Proc, *mut *mut *mut c_char) -> Status;
    /// What a process of this node has put.
    server_dmodex_request: "PMIx_server_dmodex_request" fn(*const Proc, Option<DmodexCallback>, *mut c_void) -> Status;
    /// Nodes with commas, as the library wants them; the caller's, who frees it.
    generate_regex: "PMIx_generate_regex" fn(*const c_char, *mut *mut c_char) -> Status;
    /// Ranks per node, with commas and semicolons; the caller's, who frees it.
    generate_ppn: "PMIx_generate_ppn" fn(*const c_char, *mut *mut c_char) -> Status;
}

impl fmt::Debug for Library {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Library({} {})", self.path.display(), self.version)
    }
}

/// A release of the library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Version {
    /// As the library says it.
    text: String,
    /// Major and minor number, if there are any in it.
    numbers: Option<(u16, u16)>,
}

impl Version {
    fn parse(text: &str) -> Self {
        let word = text
            .split_whitespace()
            .find(|word| word.starts_with(|c: char| c.is_ascii_digit()));
        let mut parts = word.into_iter().flat_map(|word| word.split('.'));
        let mut number = || -> Option<u16> {
            let part = parts.next()?;
            let end = part.find(|c: char| !c.is_ascii_digit());
            part[..end.unwrap_or(part.len())].parse().ok()
        };
        Self {
            numbers: number().and_then(|major| Some((major, number()?))),
            text: text
                .split(['(', ','])
                .next()
                .unwrap_or(text)
                .trim()
                .to_owned(),
        }
    }

    /// Major and minor number, if the library says any.
    pub fn numbers(&self) -> Option<(u16, u16)> {
        self.numbers
    }
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

/// Why there is no libpmix.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum LoadError {
    /// The one that was named cannot be loaded.
    #[error("SHMEM_PMIX_LIBRARY={path} cannot be loaded: {reason}")]
    Named {
        /// What was named.
        path: String,
        /// The loader's words.
        reason: String,
    },
    /// There is none.
    #[error(
        "{NAME} was found nowhere; looked for it: {looked}. Install it (libpmix2, pmix), or name the \
         launcher's with SHMEM_PMIX_LIBRARY=PATH"
    )]
    Nowhere {
        /// Where.
        looked: String,
    },
    /// There is one that cannot be used.
    #[error(
        "{path} is {version}, and cannot be used: {fault}; name another with SHMEM_PMIX_LIBRARY=PATH"
    )]
    Unusable {
        /// Its file.
        path: String,
        /// What it says of itself.
        version: String,
        /// Why not.
        fault: String,
    },
}

impl Library {
    /// The library, loaded at the first call and never unloaded. One that this process has loaded
    /// already is taken, since two would get in each other's way; then the one that is `named`, and no
    /// other; then the launcher's own, what the environment says of an installation, and the loader's.
    ///
    /// # Errors
    ///
    /// There is none, or it is too old.
    pub fn load(named: Option<&str>) -> Result<&'static Self, LoadError> {
        static LIBRARY: OnceLock<Library> = OnceLock::new();
        static LOADING: Mutex<()> = Mutex::new(());
        let _alone = LOADING.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(library) = LIBRARY.get() {
            return Ok(library);
        }
        let library = find_and_load(named)?;
        Ok(LIBRARY.get_or_init(|| library))
    }

    /// Its file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Its release.
    pub fn version(&self) -> &Version {
        &self.version
    }
}

fn find_and_load(named: Option<&str>) -> Result<Library, LoadError> {
    if let Ok(handle) = open(OsStr::new(NAME), libc::RTLD_NOLOAD) {
        return library_of(handle);
    }
    if let Some(path) = named {
        let handle = open(OsStr::new(path), 0).map_err(|reason| LoadError::Named {
            path: path.to_owned(),
            reason,
        })?;
        return library_of(handle);
    }
    let lookup = |name: &str| std::env::var_os(name);
    let mut tried: Vec<(Candidate, Option<String>)> = Vec::new();
    for candidate in search::candidates(&lookup, search::of_the_launcher()) {
        let by_loader = candidate.path == Path::new(NAME);
        let why_not = match by_loader || candidate.path.exists() {
            true => match open(candidate.path.as_os_str(), 0) {
                Ok(handle) => return library_of(handle),
                // That the loader finds nothing goes without saying.
                Err(reason) => (!by_loader).then_some(reason),
            },
            false => None,
        };
        tried.push((candidate, why_not));
    }
    let looked = told(&tried);
    Err(LoadError::Nowhere { looked })
}

/// Where it was looked for, in few words: files that could not be loaded with the reason.
fn told(tried: &[(Candidate, Option<String>)]) -> String {
    let mut places: Vec<String> = Vec::new();
    let mut last_why = "";
    for (candidate, why_not) in tried {
        let path = candidate.path.display();
        match why_not {
            Some(reason) => places.push(format!(
                "{path} ({}) cannot be loaded: {reason}",
                candidate.why
            )),
            None if candidate.path == Path::new(NAME) => places.push(candidate.why.clone()),
            // One line for all directories of an installation.
            None if candidate.why == last_why => {}
            None => places.push(format!("{path} ({})", candidate.why)),
        }
        last_why = &candidate.why;
    }
    let more = places.len().saturating_sub(NAMED_MAX);
    places.truncate(NAMED_MAX);
    let mut text = places.join("; ");
    if more > 0 {
        text += &format!("; and {more} more");
    }
    text
}

/// Loads a file, or finds one that is loaded (`RTLD_NOLOAD`).
fn open(path: &OsStr, flags: c_int) -> Result<*mut c_void, String> {
    let Ok(path) = CString::new(path.as_bytes()) else {
        return Err("there is a zero byte in its name".into());
    };
    // Plugins of some builds use symbols of libpmix without saying where they are: RTLD_GLOBAL.
    let flags = flags | libc::RTLD_NOW | libc::RTLD_GLOBAL;
    // SAFETY: the name ends with a zero byte; initialisers of libpmix have no preconditions.
    let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
    if !handle.is_null() {
        return Ok(handle);
    }
    // SAFETY: after a failed dlopen it gives a string that stays until the next call of this thread to the
    // dynamic loader, or null.
    unsafe {
        let text = libc::dlerror();
        match text.is_null() {
            true => Err("no reason given".to_owned()),
            false => Err(CStr::from_ptr(text).to_string_lossy().into_owned()),
        }
    }
}

/// The functions of a library that was loaded and stays so.
fn library_of(handle: *mut c_void) -> Result<Library, LoadError> {
    let unusable = |path: &Path, version: &str, fault: String| LoadError::Unusable {
        path: path.display().to_string(),
        version: version.to_owned(),
        fault,
    };
    // SAFETY: it was loaded and nobody unloads it.
    let Some(symbol) = (unsafe { find(handle, "PMIx_Get_version\0") }) else {
        let fault = "it has no function PMIx_Get_version".to_owned();
        return Err(unusable(Path::new(NAME), "no libpmix", fault));
    };
    let path = file_of(symbol).unwrap_or_else(|| NAME.into());
    // SAFETY: that is the type of the function in every release; it may be called before init, and gives
    // text that stays.
    let text = unsafe {
        let version: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(symbol);
        let text = version();
        match text.is_null() {
            true => String::new(),
            false => CStr::from_ptr(text).to_string_lossy().into_owned(),
        }
    };
    let version = Version::parse(&text);
    if version.numbers.is_some_and(|numbers| numbers < OLDEST) {
        let fault = format!("releases before {}.{} have other types", OLDEST.0, OLDEST.1);
        return Err(unusable(&path, &version.text, fault));
    }
    let words = version.text.clone();
    // SAFETY: as above.
    let library = unsafe { Library::resolve(handle, path.clone(), version) };
    library.map_err(|symbol| unusable(&path, &words, format!("it has no function {symbol}")))
}

/// # Safety
/// `handle` is a loaded library, and `symbol` ends with a zero byte.
unsafe fn find(handle: *mut c_void, symbol: &str) -> Option<*mut c_void> {
    // SAFETY: by the caller's promise.
    let found = unsafe { libc::dlsym(handle, symbol.as_ptr().cast()) };
    (!found.is_null()).then_some(found)
}

/// The file from which a function was loaded.
fn file_of(symbol: *mut c_void) -> Option<PathBuf> {
    // SAFETY: the loader fills in a record that is ours; all zero is one. The name stays as long as the
    // library does.
    unsafe {
        let mut info: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(symbol, &raw mut info) == 0 || info.dli_fname.is_null() {
            return None;
        }
        let name = CStr::from_ptr(info.dli_fname).to_bytes().to_vec();
        Some(OsString::from_vec(name).into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_read() {
        for (text, short, numbers) in [
            (
                "OpenPMIx 4.2.2 (PMIx Standard: 4.2, Stable ABI: 0.0, Provisional ABI: 0.0)",
                "OpenPMIx 4.2.2",
                Some((4, 2)),
            ),
            ("PMIx 3.2.5rc1", "PMIx 3.2.5rc1", Some((3, 2))),
            (
                "OpenPMIx 6.1rc2, repo rev: gitX",
                "OpenPMIx 6.1rc2",
                Some((6, 1)),
            ),
            ("OpenPMIx master", "OpenPMIx master", None),
            ("", "", None),
        ] {
            let version = Version::parse(text);
            assert_eq!(
                (version.to_string().as_str(), version.numbers()),
                (short, numbers)
            );
        }
    }

    #[test]
    fn a_library_that_is_none_is_named() {
        let text = find_and_load(Some("/nowhere/libpmix.so.2")).err();
        // Where the tests' process has one, that is taken.
        if let Some(error) = text {
            let text = error.to_string();
            for part in ["SHMEM_PMIX_LIBRARY=/nowhere/libpmix.so.2", "No such file"] {
                assert!(text.contains(part), "{text}");
            }
        }
        let handle = open(OsStr::new("libc.so.6"), 0).unwrap();
        let text = library_of(handle).unwrap_err().to_string();
        assert!(text.contains("PMIx_Get_version"), "{text}");
    }

    #[test]
    fn the_places_are_told_in_few_words() {
        let lookup = |name: &str| (name == "PMIX_PREFIX").then(|| "/opt/a".into());
        let tried: Vec<_> = search::candidates(&lookup, Some("/l/libpmix.so.2".into()))
            .into_iter()
            .enumerate()
            .map(|(at, candidate)| {
                (
                    candidate,
                    (at == 0).then(|| "libevent is missing".to_owned()),
                )
            })
            .collect();
        assert_eq!(
            told(&tried),
            "/l/libpmix.so.2 (what the launcher has loaded) cannot be loaded: libevent is missing; \
             /opt/a/lib/libpmix.so.2 (PMIX_PREFIX); the dynamic loader's directories, \
             LD_LIBRARY_PATH among them; /usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2 (usual directory)"
        );
    }
}
