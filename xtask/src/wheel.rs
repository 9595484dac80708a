//! A wheel for Python's package managers: an installation that lands in the environment's own `bin`, `lib` and
//! `include`, so that `shmrun` is there, and packages that are built against libshmem find it.
//!
//! A wheel is a zip file with a list of digests. It cannot have symbolic links, so the shared library has one name
//! only, its own, and `libshmem.so` is two words for the linker. Static libraries are left out for their size, and
//! what only C programs link with is left to the library's own name.

use std::fmt::Write as _;
use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use base64::Engine;
use base64::prelude::BASE64_URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};
use zip::write::SimpleFileOptions;
use zip::{CompressionMethod, DateTime, ZipWriter};

use crate::VERSION;
use crate::error::Error;
use crate::glibc::Glibc;
use crate::install::{MANIFEST, PMI_REAL_NAME, REAL_NAME, SONAME, files_below};

/// What the package is called: the project's own name is that of another one.
const NAME: &str = "shmem_runtime";

/// What linkers find under `-lshmem`.
const LINKER_SCRIPT: &str = "/* libshmem.so.1 beside it */\nINPUT ( -l:libshmem.so.1 )\n";

/// What is left out: what other files stand for, what has a static copy of everything, and the list that `cargo
/// xtask uninstall` goes by, as pip has its own.
const LEFT_OUT: &[&str] = &[
    "lib/libshmem.a",
    "lib/libshmem_pmi2.a",
    "lib/libshmem_pmi2.so",
    MANIFEST,
];

/// A file of the wheel.
struct Entry {
    name: String,
    content: Vec<u8>,
    runs: bool,
}

/// Packs the installation at `root`, which is for `arch` and asks for this version of glibc, into `dir`. Gives the
/// wheel's path.
///
/// # Errors
/// At the first file that cannot be read or written.
pub(crate) fn pack(root: &Path, arch: &str, glibc: Glibc, dir: &Path) -> Result<PathBuf, Error> {
    let platform = format!("manylinux_{}_{}_{arch}", glibc.major, glibc.minor);
    let tag = format!("py3-none-{platform}");
    let mut entries = entries(root).map_err(|e| Error::io("read", root, e))?;
    let info = format!("{NAME}-{VERSION}.dist-info");
    let mut add = |name: &str, content: String| {
        entries.push(Entry {
            name: format!("{info}/{name}"),
            content: content.into_bytes(),
            runs: false,
        });
    };
    add(
        "METADATA",
        format!(
            "Metadata-Version: 2.1\nName: {}\nVersion: {VERSION}\n\
             Summary: OpenSHMEM: libshmem with its headers and compiler wrappers, and the launcher shmrun\n\
             License: MIT OR Apache-2.0\n\
             Requires-Python: >=3.8\nDescription-Content-Type: text/markdown\n\n\
             `shmrun -n 4 python program.py` starts a job; `pip install shmem4py` builds the\n\
             binding for Python against this library.\n",
            NAME.replace('_', "-")
        ),
    );
    add(
        "WHEEL",
        format!(
            "Wheel-Version: 1.0\nGenerator: xtask {VERSION}\nRoot-Is-Purelib: false\nTag: {tag}\n"
        ),
    );
    let mut record = String::new();
    for Entry { name, content, .. } in &entries {
        let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(content));
        let _ = writeln!(record, "{name},sha256={digest},{}", content.len());
    }
    let _ = writeln!(record, "{info}/RECORD,,");
    entries.push(Entry {
        name: format!("{info}/RECORD"),
        content: record.into_bytes(),
        runs: false,
    });
    let path = dir.join(format!("{NAME}-{VERSION}-{tag}.whl"));
    write(&path, &entries).map_err(|e| Error::io("write", &path, e))?;
    Ok(path)
}

/// The files of an installation, sorted, below the directory of data that goes into an environment's root.
fn entries(root: &Path) -> io::Result<Vec<Entry>> {
    let mut entries = Vec::new();
    for file in files_below(root).map_err(io::Error::other)? {
        let name = file.display().to_string();
        let behind = [REAL_NAME, PMI_REAL_NAME].map(|file| format!("lib/{file}"));
        if LEFT_OUT.contains(&name.as_str()) || behind.contains(&name) {
            continue;
        }
        let path = root.join(&file);
        // Of links, what they lead to.
        let content = match name == "lib/libshmem.so" {
            true => LINKER_SCRIPT.into(),
            false => fs::read(&path)?,
        };
        let mode = fs::metadata(&path)?.permissions().mode();
        entries.push(Entry {
            runs: mode & 0o100 != 0 && name != "lib/libshmem.so",
            name: format!("{NAME}-{VERSION}.data/data/{name}"),
            content,
        });
    }
    debug_assert!(entries.iter().any(|e| e.name.ends_with(SONAME)));
    Ok(entries)
}

/// Writes the zip file: the same bytes for the same content, as it has no dates.
fn write(path: &Path, entries: &[Entry]) -> io::Result<()> {
    let mut zip = ZipWriter::new(io::BufWriter::new(fs::File::create(path)?));
    for entry in entries {
        let mode = if entry.runs { 0o755 } else { 0o644 };
        let options = SimpleFileOptions::default()
            .compression_method(CompressionMethod::Deflated)
            .last_modified_time(DateTime::default())
            .unix_permissions(mode);
        zip.start_file(&entry.name, options)?;
        zip.write_all(&entry.content)?;
    }
    zip.finish()?.flush()
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn a_wheel_has_no_links_and_digests_of_all() {
        let dir = std::env::temp_dir().join(format!("shmem-wheel-{}", std::process::id()));
        let root = dir.join("root");
        fs::create_dir_all(root.join("lib")).unwrap();
        fs::create_dir_all(root.join("bin")).unwrap();
        fs::create_dir_all(root.join("share/shmem")).unwrap();
        fs::write(root.join(MANIFEST), "list").unwrap();
        fs::write(root.join("lib/libshmem.a"), "static").unwrap();
        fs::write(root.join("lib").join(REAL_NAME), "code").unwrap();
        symlink(REAL_NAME, root.join("lib").join(SONAME)).unwrap();
        symlink(SONAME, root.join("lib/libshmem.so")).unwrap();
        fs::write(root.join("bin/oshcc"), "#!/bin/sh\n").unwrap();
        fs::set_permissions(root.join("bin/oshcc"), fs::Permissions::from_mode(0o755)).unwrap();
        symlink("oshcc", root.join("bin/oshCC")).unwrap();

        let glibc = Glibc {
            major: 2,
            minor: 34,
        };
        let path = pack(&root, "aarch64", glibc, &dir).unwrap();
        let first = fs::read(&path).unwrap();
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(
            name.ends_with("-py3-none-manylinux_2_34_aarch64.whl"),
            "{name}"
        );
        let again = pack(&root, "aarch64", glibc, &dir).unwrap();
        assert_eq!(fs::read(again).unwrap(), first);

        let mut zip = zip::ZipArchive::new(io::Cursor::new(first)).unwrap();
        let mut found = Vec::new();
        let mut record = String::new();
        for i in 0..zip.len() {
            let mut file = zip.by_index(i).unwrap();
            let mut content = String::new();
            file.read_to_string(&mut content).unwrap();
            let name = file.name().to_owned();
            if name.ends_with("/RECORD") {
                record = content;
            } else {
                let short = name.split_once(".data/data/").map(|(_, n)| n.to_owned());
                found.push((short, file.unix_mode().unwrap() & 0o777, content, name));
            }
        }
        let data: Vec<_> = found
            .iter()
            .filter_map(|(short, mode, content, _)| Some((short.as_deref()?, *mode, &content[..])))
            .collect();
        let want = [
            ("bin/oshCC", 0o755, "#!/bin/sh\n"),
            ("bin/oshcc", 0o755, "#!/bin/sh\n"),
            ("lib/libshmem.so", 0o644, LINKER_SCRIPT),
            ("lib/libshmem.so.1", 0o644, "code"),
        ];
        assert_eq!(data, want);
        for (.., content, name) in &found {
            let digest = BASE64_URL_SAFE_NO_PAD.encode(Sha256::digest(content.as_bytes()));
            let line = format!("{name},sha256={digest},{}\n", content.len());
            assert!(record.contains(&line), "{line} in {record}");
        }
        assert_eq!(record.lines().count(), found.len() + 1);
        fs::remove_dir_all(&dir).unwrap();
    }
}
