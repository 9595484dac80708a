//! Where libpmix may be.
//!
//! The best one is what the launcher itself has loaded, since the two have to understand each other and
//! the dynamic loader often does not know its directory: launchers bring a libpmix of their own along. Then
//! what variables say of the installation, then what the loader finds, then directories in which
//! distributions hide it.

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};

/// The name under which the dynamic loader knows it, in every release.
pub(crate) const NAME: &str = "libpmix.so.2";

/// Variables that name an installation, in which the library lies in one of [`LIB_DIRS`].
const PREFIXES: [&str; 4] = [
    "PMIX_PREFIX",
    "PMIX_INSTALL_PREFIX",
    "OPAL_PREFIX",
    "PRTE_PREFIX",
];
/// Variables that name the directory.
const DIRS: [&str; 2] = ["PMIX_LIBDIR", "OPAL_LIBDIR"];
const LIB_DIRS: [&str; 4] = ["lib", "lib64", "lib/openmpi", "lib64/openmpi"];
/// Directories of distributions that are not always among the loader's.
const HIDDEN: [&str; 7] = [
    "/usr/lib/x86_64-linux-gnu/pmix2/lib",
    "/usr/lib/aarch64-linux-gnu/pmix2/lib",
    "/usr/lib64/openmpi/lib",
    "/usr/lib64/pmix/lib",
    "/usr/local/lib",
    "/opt/pmix/lib",
    "/opt/openmpi/lib",
];

/// How many processes above this one are looked at: there may be shells and wrappers in between.
const ANCESTORS: usize = 12;

/// A file that may be the library, and why it should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Candidate {
    pub(crate) path: PathBuf,
    pub(crate) why: String,
}

/// The places to look at, in this order; `lookup` gives the value of a variable, `launchers` the library
/// of a process above this one. [`NAME`] alone is the loader's search.
pub(crate) fn candidates(
    lookup: &dyn Fn(&str) -> Option<OsString>,
    launchers: Option<PathBuf>,
) -> Vec<Candidate> {
    let mut found = Vec::new();
    if let Some(path) = launchers {
        let why = "what the launcher has loaded".to_owned();
        found.push(Candidate { path, why });
    }
    for name in DIRS {
        if let Some(dir) = lookup(name).filter(|dir| !dir.is_empty()) {
            found.push(Candidate {
                path: Path::new(&dir).join(NAME),
                why: name.to_owned(),
            });
        }
    }
    for name in PREFIXES {
        if let Some(prefix) = lookup(name).filter(|prefix| !prefix.is_empty()) {
            found.extend(LIB_DIRS.map(|dir| Candidate {
                path: Path::new(&prefix).join(dir).join(NAME),
                why: name.to_owned(),
            }));
        }
    }
    found.push(Candidate {
        path: NAME.into(),
        why: "the dynamic loader's directories, LD_LIBRARY_PATH among them".to_owned(),
    });
    found.extend(HIDDEN.map(|dir| Candidate {
        path: Path::new(dir).join(NAME),
        why: "usual directory".to_owned(),
    }));
    found
}

/// The libpmix that a process above this one has loaded: the launcher's. `None` if none has, or none
/// may be looked into, as Slurm's, which is the administrator's.
pub(crate) fn of_the_launcher() -> Option<PathBuf> {
    let mut process = std::os::unix::process::parent_id();
    for _ in 0..ANCESTORS {
        if process <= 1 {
            return None;
        }
        let maps = std::fs::read(format!("/proc/{process}/maps")).unwrap_or_default();
        if let Some(path) = mapped(&maps).filter(|path| path.exists()) {
            return Some(path);
        }
        let status = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
        let parent = status.lines().find_map(|line| line.strip_prefix("PPid:"))?;
        process = parent.trim().parse().ok()?;
    }
    None
}

/// The path of libpmix among the files that a process has mapped.
fn mapped(maps: &[u8]) -> Option<PathBuf> {
    maps.split(|&byte| byte == b'\n').find_map(|line| {
        let path = &line[line.iter().position(|&byte| byte == b'/')?..];
        let name = path.rsplit(|&byte| byte == b'/').next()?;
        let is_it = name.starts_with(b"libpmix.so") && !name.ends_with(b" (deleted)");
        is_it.then(|| PathBuf::from(OsString::from_vec(path.to_vec())))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_own_comes_first_and_the_loader_before_hidden_places() {
        let lookup = |name: &str| match name {
            "PMIX_PREFIX" => Some("/opt/wheel".into()),
            "OPAL_LIBDIR" => Some("/x".into()),
            "PRTE_PREFIX" => Some("".into()),
            _ => None,
        };
        let found = candidates(&lookup, Some("/l/libpmix.so.2.9".into()));
        let paths: Vec<_> = found.iter().map(|c| c.path.to_str().unwrap()).collect();
        assert_eq!(
            paths[..3],
            [
                "/l/libpmix.so.2.9",
                "/x/libpmix.so.2",
                "/opt/wheel/lib/libpmix.so.2"
            ]
        );
        let loader = paths.iter().position(|path| *path == NAME).unwrap();
        assert!(paths[..loader].contains(&"/opt/wheel/lib/openmpi/libpmix.so.2"));
        assert!(paths[loader..].contains(&"/usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"));
        assert!(!paths.contains(&"lib/libpmix.so.2"));
    }

    #[test]
    fn a_mapped_library_is_found_by_its_name() {
        let maps = b"7f0 r--p 00000000 08:01 12   /usr/lib/libc.so.6\n\
            7f1 r--p 00000000 08:01 13                         /opt/my mpi/lib/libpmix.so.2.9.4\n\
            7f2 r--p 00000000 08:01 13   /other/libpmix.so.2\n\
            7f3 rw-p 00000000 00:00 0   [stack]\n";
        assert_eq!(
            mapped(maps),
            Some("/opt/my mpi/lib/libpmix.so.2.9.4".into())
        );
        assert_eq!(
            mapped(b"7f0 r--p 0 0:0 1 /l/libpmix.so.2 (deleted)\n\xff/\xff\n"),
            None
        );
        assert_eq!(mapped(b"7f0 r--p 0 0:0 1 /l/libpmixd.so\n\n/\n"), None);
    }
}
