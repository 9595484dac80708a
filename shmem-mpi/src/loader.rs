//! The dynamic loader: finds MPI among what the process has loaded, or loads it, and tells which interface it has.

use std::ffi::{CStr, CString, OsStr, OsString, c_char, c_int, c_void};
use std::os::unix::ffi::{OsStrExt as _, OsStringExt as _};
use std::path::{Path, PathBuf};

use crate::abi::{Constants, Handle, Interface, Predefined};
use crate::calls::{self, Calls, Functions};
use crate::error::LoadError;
use crate::search;

/// An MPI library that is loaded and stays so.
pub(crate) struct Loaded {
    pub(crate) interface: Interface,
    pub(crate) constants: Constants<Handle>,
    pub(crate) calls: Box<dyn Calls>,
    pub(crate) path: PathBuf,
    pub(crate) version: String,
}

/// What makes a library MPI's: no tool that stands between a program and MPI has the names with P.
const KNOWN_BY: &CStr = c"PMPI_Initialized";

/// The MPI that this process has loaded, if it has.
pub(crate) fn present() -> Option<Result<Loaded, LoadError>> {
    if find(libc::RTLD_DEFAULT, KNOWN_BY).is_some() {
        return Some(library_of(libc::RTLD_DEFAULT));
    }
    // Interpreters' modules keep what they load to themselves.
    let path = loaded_file(search::is_mpi)?;
    let handle = open(&path, libc::RTLD_NOLOAD).ok()?;
    Some(library_of(handle))
}

/// The file of the first loaded library whose name is as wanted. To ask the loader for each name would have it
/// look for files.
fn loaded_file(is_wanted: fn(&str) -> bool) -> Option<PathBuf> {
    struct Search {
        is_wanted: fn(&str) -> bool,
        found: Option<PathBuf>,
    }
    unsafe extern "C" fn look(
        info: *mut libc::dl_phdr_info,
        _size: usize,
        data: *mut c_void,
    ) -> c_int {
        // SAFETY: the loader gives a library, and what the caller gave it.
        let (name, search) = unsafe { ((*info).dlpi_name, &mut *data.cast::<Search>()) };
        if name.is_null() {
            return 0;
        }
        // SAFETY: a string of the loader's.
        let path = Path::new(OsStr::from_bytes(
            unsafe { CStr::from_ptr(name) }.to_bytes(),
        ));
        let file = path.file_name().unwrap_or_default().to_string_lossy();
        if (search.is_wanted)(&file) {
            search.found = Some(path.to_owned());
        }
        c_int::from(search.found.is_some())
    }
    let mut search = Search {
        is_wanted,
        found: None,
    };
    // SAFETY: `look` gets the search, which outlives the call.
    unsafe { libc::dl_iterate_phdr(Some(look), (&raw mut search).cast()) };
    search.found
}

/// Loads the one that is named, or the first that can be.
pub(crate) fn load(named: Option<&str>) -> Result<Loaded, LoadError> {
    let lookup = |name: &str| std::env::var(name).ok();
    let set = lookup(search::ENV_LIBRARY).filter(|path| !matches!(&path[..], "" | "auto"));
    if let Some(path) = named.or(set.as_deref()) {
        return match open(Path::new(path), 0) {
            Ok(handle) => library_of(handle),
            Err(reason) => Err(LoadError::Named {
                path: path.to_owned(),
                reason,
            }),
        };
    }
    let mut looked = Vec::new();
    for name in search::candidates(&lookup) {
        match open(&name, 0) {
            Ok(handle) => return library_of(handle),
            // That a file is not there goes without saying.
            Err(reason) if reason.contains("No such file") => {
                looked.push(name.display().to_string())
            }
            Err(reason) => looked.push(format!("{} ({reason})", name.display())),
        }
    }
    let looked = looked.join(", ");
    Err(LoadError::Nowhere { looked })
}

fn library_of(handle: *mut c_void) -> Result<Loaded, LoadError> {
    let origin = find(handle, KNOWN_BY).and_then(file_of);
    let path = origin.unwrap_or_else(|| "the program".into());
    let unusable = |fault: String| LoadError::Unusable {
        path: path.display().to_string(),
        fault,
    };
    let lacks = |symbol: &str| unusable(format!("it has no symbol {symbol}"));
    let version = version(handle).ok_or_else(|| lacks("MPI_Get_library_version"))?;
    let interface = interface(&path, &version).ok_or_else(|| {
        unusable(format!(
            "it is {}, whose binary interface is neither MPICH's nor Open MPI's nor that of MPI 5",
            version.lines().next().unwrap_or("an unknown MPI")
        ))
    })?;
    let constants = interface
        .constants()
        .try_map(|predefined| match predefined {
            Predefined::Number(number) => Ok(Handle(number)),
            Predefined::Symbol(name) => {
                let address = CString::new(name).ok().and_then(|name| find(handle, &name));
                let address = address.ok_or_else(|| lacks(name))?;
                Ok(Handle(address.expose_provenance() as isize))
            }
        })?;
    let find = |name: &CStr| find(handle, name);
    let calls: Box<dyn Calls> = match interface.has_int_handles() {
        // SAFETY: it is MPI, nobody unloads it, and its interface has handles of this type and these constants.
        true => unsafe { Box::new(Functions::<c_int>::resolve(&find, constants).map_err(lacks)?) },
        // SAFETY: as above.
        false => unsafe {
            Box::new(Functions::<*mut c_void>::resolve(&find, constants).map_err(lacks)?)
        },
    };
    Ok(Loaded {
        interface,
        constants,
        calls,
        path,
        version,
    })
}

/// Which interface a library has, by its file and by what it says of itself. Symbols say less: objects of Open MPI's that
/// a program refers to are in the program.
fn interface(path: &Path, version: &str) -> Option<Interface> {
    let file = path.file_name().unwrap_or_default().to_string_lossy();
    // Open MPI and MPICH offer it beside their own, with the same names.
    if file.starts_with("libmpi_abi") {
        return Some(Interface::Standard);
    }
    if version.starts_with("Open MPI v") {
        return Some(Interface::OpenMpi);
    }
    let of_mpich = ["MPICH", "MVAPICH", "Intel(R) MPI"];
    let is_mpich = of_mpich.iter().any(|name| version.contains(name));
    is_mpich.then_some(Interface::Mpich)
}

fn version(handle: *mut c_void) -> Option<String> {
    let symbol = find(handle, c"MPI_Get_library_version")?;
    // SAFETY: the standard declares it so. It may be called at any time.
    let function = unsafe {
        std::mem::transmute::<*mut c_void, unsafe extern "C" fn(*mut c_char, *mut c_int) -> c_int>(
            symbol,
        )
    };
    Some(calls::text(|to, len| {
        // SAFETY: there is room for the longest text of any of the interfaces.
        unsafe { function(to, len) }
    }))
}

/// Loads a file, or finds one that is loaded (`RTLD_NOLOAD`).
fn open(path: &Path, flags: c_int) -> Result<*mut c_void, String> {
    let Ok(path) = CString::new(path.as_os_str().as_bytes()) else {
        return Err("there is a zero byte in its name".into());
    };
    // Plugins of MPI libraries use symbols of the library without saying where they are.
    let flags = flags | libc::RTLD_NOW | libc::RTLD_GLOBAL;
    // SAFETY: the name ends with a zero byte; initialisers of MPI libraries have no preconditions.
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

fn find(handle: *mut c_void, name: &CStr) -> Option<*mut c_void> {
    // SAFETY: the handle is of a library that nobody unloads, or stands for all; the name ends with a zero byte.
    let found = unsafe { libc::dlsym(handle, name.as_ptr()) };
    (!found.is_null()).then_some(found)
}

/// The file from which a symbol was loaded.
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
    fn interfaces_are_told_apart() {
        let of = |path: &str, version: &str| interface(Path::new(path), version);
        let mpich = "MPICH Version:      5.0.2";
        assert_eq!(of("/l/libmpi.so.12", mpich), Some(Interface::Mpich));
        assert_eq!(of("/l/libmpi_abi.so.1", mpich), Some(Interface::Standard));
        let intel = "Intel(R) MPI Library 2021.11 for Linux* OS";
        assert_eq!(of("/l/libmpi.so.12", intel), Some(Interface::Mpich));
        let open = "Open MPI v5.0.11, package: x";
        assert_eq!(of("/l/libmpi.so.40", open), Some(Interface::OpenMpi));
        assert_eq!(of("/l/libmpi_abi.so.1", open), Some(Interface::Standard));
        assert_eq!(of("/l/libmpi.so", "Some MPI 1.0"), None);
    }

    #[test]
    fn what_is_no_mpi_is_named() {
        let text = load(Some("/nowhere/libmpi.so")).err().unwrap().to_string();
        assert!(
            text.contains("/nowhere/libmpi.so cannot be loaded"),
            "{text}"
        );
        let text = load(Some("libc.so.6")).err().unwrap().to_string();
        assert!(text.contains("MPI_Get_library_version"), "{text}");
    }
}
