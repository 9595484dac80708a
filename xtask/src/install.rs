//! Puts the C library, its headers and its tools under a prefix, and takes them away again.
//!
//! Nothing that is installed knows the prefix: the compiler wrappers and the pkg-config file find it
//! from where they lie, so the tree can be staged with a destination directory, and moved.

use std::collections::HashSet;
use std::fs;
use std::io;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::{Component, Path, PathBuf};

use shmem_node::template::marker::Note;
use shmem_table::routines::functions;

use crate::archive::weaken;
use crate::build::{Products, workspace};
use crate::error::Error;
use crate::object::note_object;
use crate::{VERSION, pages};

/// The shared library's own name: 1 is the major version of the OpenSHMEM interface.
pub const SONAME: &str = "libshmem.so.1";
/// The name of the file behind it.
pub(crate) const REAL_NAME: &str = "libshmem.so.1.6.0";
/// The same of the library of PMI-2: the calls have been what they are since its first version.
pub(crate) const PMI_SONAME: &str = "libshmem_pmi2.so.1";
pub(crate) const PMI_REAL_NAME: &str = "libshmem_pmi2.so.1.0.0";
/// The list of what was installed, which uninstall goes by.
pub(crate) const MANIFEST: &str = "share/shmem/manifest";

const WRAPPER: &str = include_str!("../files/oshcc");
const PKG_CONFIG: &str = include_str!("../files/shmem.pc");
const PMI_PKG_CONFIG: &str = include_str!("../files/shmem_pmi2.pc");
const MODULE: &str = include_str!("../files/module");

/// Where to install.
#[derive(Debug, Clone)]
pub struct Destination {
    root: PathBuf,
}

impl Destination {
    /// Below `prefix`, an absolute path, with `destdir` in front of it.
    ///
    /// # Errors
    /// If the prefix is not absolute, or goes upwards.
    pub fn new(prefix: &Path, destdir: Option<&Path>) -> Result<Self, Error> {
        if !prefix.is_absolute() || prefix.components().any(|c| c == Component::ParentDir) {
            let shown = prefix.display();
            return Err(Error::Place(format!(
                "--prefix {shown} must be an absolute path without `..`"
            )));
        }
        let root = match destdir {
            None => prefix.to_owned(),
            Some(dir) => dir.join(prefix.strip_prefix("/").unwrap_or(prefix)),
        };
        Ok(Self { root })
    }

    /// Makes the directory and tries to write there, before a build that takes minutes.
    ///
    /// # Errors
    /// If that is not possible.
    pub fn prepare(&self) -> Result<(), Error> {
        let root = self.root();
        fs::create_dir_all(root).map_err(|e| Error::io("make directory", root, e))?;
        let probe = root.join(format!(".xtask.{}", std::process::id()));
        fs::write(&probe, [])
            .and_then(|()| fs::remove_file(&probe))
            .map_err(|e| Error::io("write to", root, e))
    }

    /// The directory that gets `bin`, `lib`, `include` and `share`.
    pub fn root(&self) -> &Path {
        &self.root
    }
}

/// What is put into one place.
enum Content {
    Copy(PathBuf),
    Bytes(Vec<u8>),
    Link(&'static str),
}

struct Entry {
    /// Below the prefix.
    path: PathBuf,
    content: Content,
    mode: u32,
}

impl Entry {
    fn new(path: impl Into<PathBuf>, content: Content, mode: u32) -> Self {
        Self {
            path: path.into(),
            content,
            mode,
        }
    }

    /// Puts it below `root`. A file that is there is replaced in one step, so that programs that
    /// have it mapped keep theirs.
    fn put(&self, root: &Path) -> Result<(), Error> {
        let target = root.join(&self.path);
        let dir = target.parent().unwrap_or(root);
        fs::create_dir_all(dir).map_err(|e| Error::io("make directory", dir, e))?;
        let name = target.file_name().unwrap_or_default().to_string_lossy();
        let fresh = dir.join(format!(".{name}.{}", std::process::id()));
        let written = match &self.content {
            Content::Copy(from) => fs::copy(from, &fresh).map(drop),
            Content::Bytes(bytes) => fs::write(&fresh, bytes),
            Content::Link(to) => symlink(to, &fresh),
        };
        let moved = written
            .and_then(|()| match self.content {
                Content::Link(_) => Ok(()),
                _ => fs::set_permissions(&fresh, fs::Permissions::from_mode(self.mode)),
            })
            .and_then(|()| fs::rename(&fresh, &target));
        moved.map_err(|e| {
            let _ = fs::remove_file(&fresh);
            Error::io("write", &target, e)
        })
    }
}

/// All files below `dir`, relative to it, in order.
pub(crate) fn files_below(dir: &Path) -> Result<Vec<PathBuf>, Error> {
    let read = |e| Error::io("read", dir, e);
    let mut entries = fs::read_dir(dir)
        .and_then(Iterator::collect::<io::Result<Vec<_>>>)
        .map_err(read)?;
    entries.sort_by_key(fs::DirEntry::file_name);
    let mut files = Vec::new();
    for entry in entries {
        let name = PathBuf::from(entry.file_name());
        if entry.file_type().map_err(read)?.is_dir() {
            let inner = files_below(&entry.path())?;
            files.extend(inner.iter().map(|f| name.join(f)));
        } else {
            files.push(name);
        }
    }
    Ok(files)
}

/// The static library, with functions that a program may define itself.
fn archive(path: &Path) -> Result<Vec<u8>, Error> {
    let mut bytes = fs::read(path).map_err(|e| Error::io("read", path, e))?;
    let names: HashSet<String> = functions()
        .into_iter()
        .map(|(_, function)| function.proto.name)
        .collect();
    match weaken(&mut bytes, |name| names.contains(name)) {
        Ok(_) => Ok(bytes),
        Err(e) => Err(Error::Archive(path.to_owned(), e)),
    }
}

fn entries(products: &Products) -> Result<Vec<Entry>, Error> {
    use Content::{Bytes, Copy, Link};
    let text = |text: &str| Bytes(text.as_bytes().to_vec());
    let versioned = |template: &str| text(&template.replace("@VERSION@", VERSION));
    let note = Note::WITH_STATICS.to_bytes();
    let note = note_object(products.machine, ".note.shmem", &note, "shmem_init");
    let mut entries = vec![
        Entry::new("bin/shmrun", Copy(products.shmrun.clone()), 0o755),
        Entry::new("bin/shmem-info", Copy(products.shmem_info.clone()), 0o755),
        Entry::new("bin/oshcc", text(WRAPPER), 0o755),
        Entry::new("bin/oshc++", Link("oshcc"), 0),
        Entry::new("bin/oshCC", Link("oshcc"), 0),
        // The command that the specification suggests. A script would hide the program from debuggers, and a
        // shell that runs it may drop variables of the environment.
        Entry::new("bin/oshrun", Link("shmrun"), 0),
        Entry::new(
            Path::new("lib").join(REAL_NAME),
            Copy(products.shared.clone()),
            0o755,
        ),
        Entry::new(Path::new("lib").join(SONAME), Link(REAL_NAME), 0),
        Entry::new("lib/libshmem.so", Link(SONAME), 0),
        Entry::new("lib/libshmem.a", Bytes(archive(&products.archive)?), 0o644),
        Entry::new(
            Path::new("lib").join(PMI_REAL_NAME),
            Copy(products.pmi_shared.clone()),
            0o755,
        ),
        Entry::new(Path::new("lib").join(PMI_SONAME), Link(PMI_REAL_NAME), 0),
        Entry::new("lib/libshmem_pmi2.so", Link(PMI_SONAME), 0),
        Entry::new(
            "lib/libshmem_pmi2.a",
            Copy(products.pmi_archive.clone()),
            0o644,
        ),
        Entry::new("lib/shmem/note.o", Bytes(note), 0o644),
        Entry::new("lib/pkgconfig/shmem.pc", versioned(PKG_CONFIG), 0o644),
        Entry::new(
            "lib/pkgconfig/shmem_pmi2.pc",
            versioned(PMI_PKG_CONFIG),
            0o644,
        ),
        Entry::new(
            Path::new("share/modulefiles/shmem").join(VERSION),
            versioned(MODULE),
            0o644,
        ),
    ];
    for (path, page) in pages::all() {
        entries.push(Entry::new(path, Bytes(page), 0o644));
    }
    for include in ["shmem-capi/include", "shmem-pmi/c/include"] {
        let include = workspace().join(include);
        for header in files_below(&include)? {
            let from = Copy(include.join(&header));
            entries.push(Entry::new(Path::new("include").join(header), from, 0o644));
        }
    }
    for (document, name) in [
        ("LICENSE-MIT", "LICENSE-MIT"),
        ("LICENSE-APACHE", "LICENSE-APACHE"),
        // The libraries have code of it.
        ("third-party/rdma-sys/LICENSE", "LICENSE-rdma-sys"),
        ("README.md", "README.md"),
    ] {
        let from = Copy(workspace().join(document));
        let to = Path::new("share/doc/shmem").join(name);
        entries.push(Entry::new(to, from, 0o644));
    }
    Ok(entries)
}

/// Installs `products`, the headers and the tools. Files of an earlier installation are replaced, and
/// those of them that are no longer installed removed. Gives the paths, relative to the prefix.
///
/// # Errors
/// At the first file that cannot be written.
pub fn install(products: &Products, destination: &Destination) -> Result<Vec<PathBuf>, Error> {
    let root = destination.root();
    let before = match manifest(root) {
        Ok(files) => files,
        Err(Error::NotInstalled(_)) => Vec::new(),
        Err(e) => return Err(e),
    };
    let entries = entries(products)?;
    for entry in &entries {
        entry.put(root)?;
    }
    let mut files: Vec<PathBuf> = entries.into_iter().map(|e| e.path).collect();
    files.push(MANIFEST.into());
    for stale in before.iter().filter(|f| !files.contains(f)) {
        remove(root, stale)?;
    }
    let mut list = String::new();
    for file in &files {
        list += &format!("{}\n", file.display());
    }
    Entry::new(MANIFEST, Content::Bytes(list.into_bytes()), 0o644).put(root)?;
    Ok(files)
}

/// Removes what [`install`] has put there, and the directories that are empty then. Gives the number of
/// files.
///
/// # Errors
/// If nothing is installed there, or a file cannot be removed.
pub fn uninstall(destination: &Destination) -> Result<usize, Error> {
    let root = destination.root();
    let files = manifest(root)?;
    // The list itself goes last: a removal that fails can be repeated.
    let (list, others): (Vec<_>, Vec<_>) = files.iter().partition(|f| *f == Path::new(MANIFEST));
    let mut removed = 0;
    for file in others.into_iter().chain(list) {
        removed += usize::from(remove(root, file)?);
    }
    Ok(removed)
}

/// Reads the list of installed files.
fn manifest(root: &Path) -> Result<Vec<PathBuf>, Error> {
    let path = root.join(MANIFEST);
    let list = match fs::read_to_string(&path) {
        Ok(list) => list,
        Err(e) if e.kind() == io::ErrorKind::NotFound => return Err(Error::NotInstalled(path)),
        Err(e) => return Err(Error::io("read", &path, e)),
    };
    list.lines()
        .map(|line| {
            let file = PathBuf::from(line);
            let below = file.components().all(|c| matches!(c, Component::Normal(_)));
            match below && !line.is_empty() {
                true => Ok(file),
                false => Err(Error::Manifest(path.clone(), line.to_owned())),
            }
        })
        .collect()
}

/// Removes a file, if it is there, and the directories around it, if they are empty.
fn remove(root: &Path, file: &Path) -> Result<bool, Error> {
    let path = root.join(file);
    let removed = match fs::remove_file(&path) {
        Ok(()) => true,
        Err(e) if e.kind() == io::ErrorKind::NotFound => false,
        Err(e) => return Err(Error::io("remove", &path, e)),
    };
    let mut dir = file.parent();
    while let Some(d) = dir.filter(|d| !d.as_os_str().is_empty()) {
        if fs::remove_dir(root.join(d)).is_err() {
            break;
        }
        dir = d.parent();
    }
    Ok(removed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_destination_is_below_the_staging_directory() {
        let at = |prefix: &str, destdir: Option<&str>| {
            Destination::new(Path::new(prefix), destdir.map(Path::new)).map(|d| d.root)
        };
        assert_eq!(at("/usr", None).unwrap(), Path::new("/usr"));
        assert_eq!(at("/usr", Some("/stage")).unwrap(), Path::new("/stage/usr"));
        assert_eq!(at("/usr", Some("stage")).unwrap(), Path::new("stage/usr"));
        for wrong in ["usr", "", "/usr/../etc"] {
            assert!(at(wrong, None).is_err(), "{wrong}");
        }
    }

    #[test]
    fn a_place_of_no_use_is_known_before_the_build() {
        let root = std::env::temp_dir().join(format!("shmem-place-{}", std::process::id()));
        let place = |dir: &Path| Destination::new(dir, None).unwrap();
        place(&root.join("a/b")).prepare().unwrap();
        assert_eq!(files_below(&root).unwrap(), Vec::<PathBuf>::new());
        fs::write(root.join("file"), []).unwrap();
        for wrong in [root.join("file"), root.join("file/c")] {
            let e = place(&wrong).prepare().unwrap_err();
            assert!(e.to_string().contains("cannot make directory"), "{e}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[test]
    fn a_damaged_list_removes_nothing() {
        let root = std::env::temp_dir().join(format!("shmem-manifest-{}", std::process::id()));
        fs::create_dir_all(root.join("share/shmem")).unwrap();
        for line in ["/etc/passwd", "bin/../../x", ""] {
            fs::write(root.join(MANIFEST), format!("bin/oshcc\n{line}\nlib/x\n")).unwrap();
            assert!(
                matches!(manifest(&root), Err(Error::Manifest(..))),
                "{line}"
            );
        }
        fs::remove_dir_all(&root).unwrap();
    }
}
