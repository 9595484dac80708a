//! Archives for those who package the project, and for sites without a compiler of Rust.
//!
//! The *relocatable* archive is an installation ([`install`](crate::install)), which works
//! wherever it is unpacked. The *source* archive is what version control has, with all crates that it needs
//! beside it, so that it builds without a network, as builders of packages demand.
//!
//! Both are the same bytes for the same content: entries are sorted, owned by root, and dated by
//! `SOURCE_DATE_EPOCH`, else by the last commit.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

pub use flate2::Compression;
use flate2::GzBuilder;

use crate::VERSION;
use crate::build::{Products, workspace};
use crate::error::Error;
use crate::glibc::Glibc;
use crate::install::{Destination, files_below, install};
use crate::wheel;

/// What makes cargo take the crates from the tree itself.
const VENDORED: &str = r#"
# The crates are in this tree: building needs no network.
[source.crates-io]
replace-with = "vendored-sources"

[source.vendored-sources]
directory = "vendor"
"#;

/// An archive that was made.
#[derive(Debug)]
pub struct Archive {
    /// Where it is.
    pub path: PathBuf,
    /// The newest version of glibc that a program in it asks for.
    pub glibc: Option<Glibc>,
}

/// A directory that goes with this value.
struct Staging(PathBuf);

impl Staging {
    /// An empty one below `dir`.
    fn new(dir: &Path) -> Result<Self, Error> {
        let path = dir.join(format!(".dist.{}", std::process::id()));
        fs::create_dir_all(&path).map_err(|e| Error::io("make directory", &path, e))?;
        let absolute = fs::canonicalize(&path).map_err(|e| Error::io("find", &path, e))?;
        Ok(Self(absolute))
    }
}

impl Drop for Staging {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

/// Packs an installation of `products` into `dir`. What is published is compressed best, which takes long.
///
/// # Errors
/// At the first file that cannot be read or written.
pub fn relocatable(
    products: &Products,
    dir: &Path,
    compression: Compression,
) -> Result<Archive, Error> {
    let staging = Staging::new(dir)?;
    let name = format!("shmem-{VERSION}-{}-linux-gnu", products.machine.arch);
    let glibc = stage(products, &staging.0.join(&name))?;
    let path = pack(&staging.0, &name, date()?, dir, compression)?;
    Ok(Archive { path, glibc })
}

/// Packs an installation of `products` into `dir` as a wheel, for environments of Python.
///
/// # Errors
/// At the first file that cannot be read or written; if the programs ask for no glibc.
pub fn wheel(products: &Products, dir: &Path) -> Result<Archive, Error> {
    let staging = Staging::new(dir)?;
    let root = staging.0.join("root");
    let glibc = stage(products, &root)?;
    let known = glibc.ok_or_else(|| {
        Error::Place("wheels are for glibc, which these programs do not use".into())
    })?;
    let path = wheel::pack(&root, products.machine.arch, known, dir)?;
    Ok(Archive { path, glibc })
}

/// Installs `products` at `root`; gives the newest version of glibc that they ask for.
fn stage(products: &Products, root: &Path) -> Result<Option<Glibc>, Error> {
    install(products, &Destination::new(root, None)?)?;
    Ok(products.glibc()?.map(|(_, need)| need.version))
}
/// Packs what version control has, and the crates that it needs, into `dir`.
///
/// # Errors
/// This is no checkout of git; cargo cannot get at the crates; a file cannot be read or written.
pub fn source(dir: &Path) -> Result<Archive, Error> {
    let staging = Staging::new(dir)?;
    let name = format!("shmem-{VERSION}");
    let root = staging.0.join(&name);
    let listed = output(Command::new("git").args(["ls-files", "-z"]))?;
    for file in listed.split(|&b| b == 0).filter(|f| !f.is_empty()) {
        let file = Path::new(std::str::from_utf8(file).map_err(|_| Error::Name)?);
        let (from, to) = (workspace().join(file), root.join(file));
        let parent = to.parent().unwrap_or(&root);
        fs::create_dir_all(parent).map_err(|e| Error::io("make directory", parent, e))?;
        fs::copy(&from, &to).map_err(|e| Error::io("copy", &from, e))?;
    }
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let vendor = [
        "vendor",
        "--quiet",
        "--locked",
        "--versioned-dirs",
        "vendor",
    ];
    output(Command::new(cargo).args(vendor).current_dir(&root))?;
    let config = root.join(".cargo/config.toml");
    fs::OpenOptions::new()
        .append(true)
        .open(&config)
        .and_then(|mut file| file.write_all(VENDORED.as_bytes()))
        .map_err(|e| Error::io("write", &config, e))?;
    let path = pack(&staging.0, &name, date()?, dir, Compression::best())?;
    Ok(Archive { path, glibc: None })
}

/// When what is packed was made, in seconds since 1970.
fn date() -> Result<u64, Error> {
    let text = match std::env::var("SOURCE_DATE_EPOCH") {
        Ok(text) => text,
        // An unpacked source archive has no history.
        Err(_) => output(Command::new("git").args(["log", "-1", "--format=%ct"]))
            .map(|out| String::from_utf8_lossy(&out).into_owned())
            .unwrap_or_else(|_| "0".into()),
    };
    let seconds = text.trim().parse();
    seconds.map_err(|_| {
        Error::Place(format!(
            "SOURCE_DATE_EPOCH '{text}' is no number of seconds"
        ))
    })
}

/// What a command in the workspace prints.
fn output(command: &mut Command) -> Result<Vec<u8>, Error> {
    if command.get_current_dir().is_none() {
        command.current_dir(workspace());
    }
    let program = PathBuf::from(command.get_program());
    let ran = command
        .stdin(Stdio::null())
        .stderr(Stdio::inherit())
        .output();
    let ran = ran.map_err(|e| Error::io("run", &program, e))?;
    match ran.status.success() {
        true => Ok(ran.stdout),
        false => Err(Error::Command(program, ran.status)),
    }
}

/// Writes `dir/NAME.tar.gz` of the tree `staging/NAME`.
fn pack(
    staging: &Path,
    name: &str,
    date: u64,
    dir: &Path,
    compression: Compression,
) -> Result<PathBuf, Error> {
    let path = dir.join(format!("{name}.tar.gz"));
    let fresh = staging.join("archive");
    let write = || -> io::Result<()> {
        let file = io::BufWriter::new(fs::File::create(&fresh)?);
        let packer = GzBuilder::new().write(file, compression);
        let mut archive = tar::Builder::new(packer);
        let root = staging.join(name);
        for file in files_below(&root).map_err(io::Error::other)? {
            add(
                &mut archive,
                &root.join(&file),
                &Path::new(name).join(&file),
                date,
            )?;
        }
        archive.into_inner()?.finish()?.flush()
    };
    write()
        .and_then(|()| fs::rename(&fresh, &path))
        .map_err(|e| Error::io("write", &path, e))?;
    Ok(path)
}

/// Adds a file, or a symbolic link as such.
fn add(
    archive: &mut tar::Builder<impl Write>,
    from: &Path,
    name: &Path,
    date: u64,
) -> io::Result<()> {
    let facts = fs::symlink_metadata(from)?;
    let mut header = tar::Header::new_gnu();
    header.set_mtime(date);
    header.set_uid(0);
    header.set_gid(0);
    if facts.is_symlink() {
        header.set_entry_type(tar::EntryType::Symlink);
        header.set_mode(0o777);
        header.set_size(0);
        return archive.append_link(&mut header, name, fs::read_link(from)?);
    }
    let runs = facts.permissions().mode() & 0o100 != 0;
    header.set_mode(if runs { 0o755 } else { 0o644 });
    header.set_size(facts.len());
    archive.append_data(&mut header, name, fs::File::open(from)?)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_tree_gives_the_same_bytes() {
        let dir = std::env::temp_dir().join(format!("shmem-dist-{}", std::process::id()));
        let tree = dir.join("t");
        fs::create_dir_all(tree.join("bin")).unwrap();
        fs::write(tree.join("bin/run"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(tree.join("bin/run"), fs::Permissions::from_mode(0o700)).unwrap();
        std::os::unix::fs::symlink("run", tree.join("bin/also")).unwrap();
        let first = fs::read(pack(&dir, "t", 5, &dir, Compression::fast()).unwrap()).unwrap();
        let later = fs::File::open(tree.join("bin/run")).unwrap();
        later
            .set_modified(std::time::SystemTime::UNIX_EPOCH)
            .unwrap();
        let second = fs::read(pack(&dir, "t", 5, &dir, Compression::fast()).unwrap()).unwrap();
        assert_eq!(first, second);

        let mut archive = tar::Archive::new(flate2::read::GzDecoder::new(&first[..]));
        let entries = archive.entries().unwrap().map(|e| {
            let e = e.unwrap();
            let h = e.header();
            let path = e.path().unwrap().display().to_string();
            (
                path,
                h.mode().unwrap(),
                h.mtime().unwrap(),
                h.uid().unwrap(),
            )
        });
        let want = [("t/bin/also", 0o777), ("t/bin/run", 0o755)];
        let want = want.map(|(path, mode)| (path.to_owned(), mode, 5, 0));
        assert_eq!(entries.collect::<Vec<_>>(), want);
        fs::remove_dir_all(&dir).unwrap();
    }
}
