//! The libraries that a program will load when it starts, as far as its file tells: found as the dynamic
//! loader does it, without running anything.

use std::collections::{HashSet, VecDeque};
use std::ffi::{OsStr, OsString};
use std::fs::File;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use shmem_node::elf::{self, PT_LOAD, ProgramHeader};

/// The segment that says what a program needs.
const PT_DYNAMIC: u32 = 2;
/// Its entries, as far as they are of use.
const DT_NEEDED: u64 = 1;
const DT_STRTAB: u64 = 5;
const DT_STRSZ: u64 = 10;
const DT_RPATH: u64 = 15;
const DT_RUNPATH: u64 = 29;

/// What is read of a file at most: a table, or its strings.
const TABLE_MAX: u64 = 1 << 20;

/// Libraries that are looked at, at most.
const LIBRARIES_MAX: usize = 512;

/// Parts of the C library, by the beginnings of their names: they need nothing else.
const LEAVES: [&str; 8] = [
    "libc.so.",
    "libm.so.",
    "libdl.so.",
    "libpthread.so.",
    "librt.so.",
    "libgcc_s.so.",
    "ld-linux",
    "libutil.so.",
];

/// Where the loader looks last.
const LAST: [&str; 4] = ["/lib64", "/usr/lib64", "/lib", "/usr/lib"];

/// The loader's list of what is in the system's directories.
const CACHE: &str = "/etc/ld.so.cache";

/// A library.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Needed {
    /// Its name, as others ask for it.
    pub name: String,
    /// Where it is, if it was found.
    pub path: Option<PathBuf>,
}

/// The dynamic loader's ways.
#[derive(Debug)]
pub struct Loader {
    /// `LD_LIBRARY_PATH`.
    dirs: Vec<PathBuf>,
    cache: std::cell::OnceCell<Vec<u8>>,
}

/// What a file asks for.
#[derive(Debug, Default)]
struct Dynamic {
    needed: Vec<String>,
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

impl Loader {
    /// The loader of a process with this `LD_LIBRARY_PATH`.
    pub fn new(library_path: Option<OsString>) -> Self {
        let dirs = library_path.map_or_else(Vec::new, |p| std::env::split_paths(&p).collect());
        Self {
            dirs: dirs
                .into_iter()
                .filter(|d| !d.as_os_str().is_empty())
                .collect(),
            cache: std::cell::OnceCell::new(),
        }
    }

    /// The libraries that the program needs, and those that they need, each once. None if it is no program
    /// of this machine, or needs none.
    pub fn libraries_of(&self, program: &Path) -> Vec<Needed> {
        let mut known = HashSet::new();
        let mut all = Vec::new();
        // Files to look at, with the directories in which all that they bring is looked for.
        let mut files = VecDeque::from([(program.to_owned(), Vec::new())]);
        while let Some((file, inherited)) = files.pop_front() {
            let Some(dynamic) = Dynamic::read(&file) else {
                continue;
            };
            let mut rpath = inherited;
            // Those with the newer one have no use for the older.
            if dynamic.runpath.is_empty() {
                rpath.splice(0..0, dynamic.rpath.iter().cloned());
            }
            for name in dynamic.needed {
                if all.len() >= LIBRARIES_MAX || !known.insert(name.clone()) {
                    continue;
                }
                let leaf = LEAVES.iter().any(|leaf| name.starts_with(leaf));
                let path = match leaf {
                    true => None,
                    false => self.find(&name, &rpath, &dynamic.runpath),
                };
                if let Some(path) = &path {
                    files.push_back((path.clone(), rpath.clone()));
                }
                all.push(Needed { name, path });
            }
        }
        all
    }

    fn find(&self, name: &str, rpath: &[PathBuf], runpath: &[PathBuf]) -> Option<PathBuf> {
        if name.contains('/') {
            return Some(name.into());
        }
        let dirs = rpath.iter().chain(&self.dirs).chain(runpath);
        let listed = dirs.map(|dir| dir.join(name)).find(|path| path.is_file());
        let last = || {
            let dirs = LAST.iter().map(|dir| Path::new(dir).join(name));
            dirs.into_iter().find(|path| path.is_file())
        };
        listed.or_else(|| self.in_cache(name)).or_else(last)
    }

    /// Looks a library up in the loader's list: of two with the same name the first is that for this machine's
    /// words, since the list is sorted so.
    fn in_cache(&self, name: &str) -> Option<PathBuf> {
        let cache = self
            .cache
            .get_or_init(|| std::fs::read(CACHE).unwrap_or_default());
        cached(cache, name.as_bytes())
    }
}

fn number<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at.checked_add(N)?)?.try_into().ok()
}

fn text(bytes: &[u8], at: usize) -> Option<&[u8]> {
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|&b| b == 0)?;
    Some(&rest[..end])
}

/// How the loader's list (of glibc 2.2 and later) begins.
const MAGIC: &[u8] = b"glibc-ld.so.cache1.1";
const HEADER: usize = 48;
const ENTRY: usize = 24;

/// What an entry of the loader's list is for: ELF of this machine with words of 64 bits.
const FOR_US: u32 = match cfg!(target_arch = "aarch64") {
    true => 0x0a03,
    false => 0x0303,
};

/// The path of a library of 64 bits in the loader's list.
fn cached(list: &[u8], name: &[u8]) -> Option<PathBuf> {
    // An older list may stand before it.
    let start = list.windows(MAGIC.len()).position(|w| w == MAGIC)?;
    let list = &list[start..];
    let count = u32::from_le_bytes(number(list, MAGIC.len())?) as usize;
    for at in (0..count).map(|i| HEADER + i * ENTRY) {
        let flags = u32::from_le_bytes(number(list, at)?);
        let key = u32::from_le_bytes(number(list, at + 4)?) as usize;
        let value = u32::from_le_bytes(number(list, at + 8)?) as usize;
        if flags == FOR_US && text(list, key) == Some(name) {
            let path = text(list, value)?.to_vec();
            return Some(OsString::from_vec(path).into());
        }
    }
    None
}

impl Dynamic {
    /// What the file at `path` asks for; `None` if it is nothing that the loader loads here.
    fn read(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let read = |offset: u64, len: u64| {
            let mut bytes = vec![0; len.min(TABLE_MAX) as usize];
            let mut done = 0;
            while done < bytes.len() {
                match file.read_at(&mut bytes[done..], offset + done as u64) {
                    Ok(0) | Err(_) => break,
                    Ok(n) => done += n,
                }
            }
            bytes.truncate(done);
            bytes
        };
        let headers = elf::program_headers(&read(0, 4096));
        let table = headers.iter().find(|h| h.kind == PT_DYNAMIC)?;
        let table = read(table.offset, table.file_len);
        let (entries, _) = table.as_chunks::<16>();
        let entries = entries.iter().filter_map(|entry| {
            let tag = u64::from_le_bytes(number(entry, 0)?);
            Some((tag, u64::from_le_bytes(number(entry, 8)?)))
        });
        let entries: Vec<(u64, u64)> = entries.take_while(|(tag, _)| *tag != 0).collect();
        let value = |tag| entries.iter().find(|(t, _)| *t == tag).map(|(_, v)| *v);
        let strings = offset_of(&headers, value(DT_STRTAB)?)?;
        let strings = read(strings, value(DT_STRSZ)?);
        let mut dynamic = Self::default();
        let origin = path.canonicalize().ok();
        let origin = origin.as_deref().and_then(Path::parent);
        for (tag, at) in entries {
            let Some(found) = text(&strings, at as usize) else {
                continue;
            };
            match tag {
                DT_NEEDED => {
                    let name = String::from_utf8_lossy(found).into_owned();
                    dynamic.needed.push(name);
                }
                DT_RPATH => dynamic.rpath = directories(found, origin),
                DT_RUNPATH => dynamic.runpath = directories(found, origin),
                _ => {}
            }
        }
        Some(dynamic)
    }
}

/// Where in the file lies what is at this address in memory.
fn offset_of(headers: &[ProgramHeader], address: u64) -> Option<u64> {
    let loads = headers.iter().filter(|h| h.kind == PT_LOAD);
    let mut holds = loads.filter(|h| {
        let end = h.address.saturating_add(h.file_len);
        (h.address..end).contains(&address)
    });
    holds
        .next()
        .and_then(|h| h.offset.checked_add(address - h.address))
}

/// The directories of a search path, in which `$ORIGIN` is that of the file.
fn directories(list: &[u8], origin: Option<&Path>) -> Vec<PathBuf> {
    let parts = list.split(|&b| b == b':').filter(|dir| !dir.is_empty());
    let expand = |dir: &[u8]| {
        let rest = [&b"$ORIGIN"[..], b"${ORIGIN}"]
            .iter()
            .find_map(|word| dir.strip_prefix(*word));
        match (rest, origin) {
            (Some(rest), Some(origin)) => {
                let mut whole = origin.as_os_str().as_bytes().to_vec();
                whole.extend_from_slice(rest);
                Some(OsString::from_vec(whole).into())
            }
            (Some(_), None) => None,
            (None, _) => Some(OsStr::from_bytes(dir).into()),
        }
    };
    parts.filter_map(expand).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn libraries_of_a_program_are_found_with_theirs() {
        let own = std::env::current_exe().unwrap();
        let names = |all: &[Needed]| all.iter().map(|n| n.name.clone()).collect::<Vec<_>>();
        let loader = Loader::new(None);
        let all = loader.libraries_of(&own);
        assert!(names(&all).contains(&"libc.so.6".to_owned()), "{all:?}");
        assert_eq!(loader.libraries_of(Path::new("/etc/passwd")), []);
        assert_eq!(loader.libraries_of(Path::new("/nonexistent")), []);
        // What ls needs on all distributions that have it so.
        let ls = loader.libraries_of(Path::new("/bin/ls"));
        for needed in ls.iter().filter(|n| n.name.starts_with("libselinux")) {
            let path = needed.path.as_ref().expect("found as the loader finds it");
            assert!(path.is_file());
        }
    }

    #[test]
    fn search_paths_are_relative_to_the_file() {
        let dirs = directories(b"$ORIGIN/../lib::/abs:${ORIGIN}", Some(Path::new("/a/b")));
        let want = ["/a/b/../lib", "/abs", "/a/b"].map(PathBuf::from);
        assert_eq!(dirs, want);
        assert_eq!(directories(b"$ORIGIN/x", None), Vec::<PathBuf>::new());
    }

    #[test]
    fn of_two_with_one_name_that_of_this_machine_is_found() {
        const OF_32_BITS: u32 = 0x0003;
        let strings = b"libx.so.1\0/lib32/libx.so.1\0/lib64/libx.so.1\0";
        let begin = HEADER + 2 * ENTRY;
        let mut list = MAGIC.to_vec();
        list.extend(2u32.to_le_bytes());
        list.resize(HEADER, 0);
        for (flags, value) in [(OF_32_BITS, 10), (FOR_US, 27)] {
            list.extend(u32::to_le_bytes(flags));
            list.extend((begin as u32).to_le_bytes());
            list.extend((begin as u32 + value).to_le_bytes());
            list.resize(list.len() + 12, 0);
        }
        list.extend(strings);
        let found = cached(&list, b"libx.so.1");
        assert_eq!(found.as_deref(), Some(Path::new("/lib64/libx.so.1")));
        assert_eq!(cached(&list, b"liby.so.1"), None);
    }

    proptest! {
        #[test]
        fn damaged_lists_and_files_are_harmless(mut bytes: Vec<u8>, name in "[a-z.]{1,8}", count: u32) {
            let mut list = MAGIC.to_vec();
            list.extend(count.to_le_bytes());
            list.append(&mut bytes);
            let _ = cached(&list, name.as_bytes());
        }
    }
}
