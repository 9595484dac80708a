//! Files that the user names, which may lie where other users write, too.

use std::fs::{self, File};
use std::io::{self, ErrorKind};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

/// Anybody may write to a directory, and only owners remove what is in it: `/tmp`.
const SHARED: u32 = 0o1002;

/// Makes or empties a file, as [`File::create`] does. In a directory such as `/tmp` it takes neither files nor links of
/// other users, which could lead to a file of this user. Kernels hold to the same rule where `fs.protected_symlinks`
/// and `fs.protected_regular` are set.
///
/// # Errors
/// Those of the file system, and `PermissionDenied` for what belongs to others.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = fs::metadata(parent.unwrap_or(Path::new(".")))?;
    if parent.mode() & SHARED != SHARED {
        return File::create(path);
    }
    match path.symlink_metadata() {
        // Nobody but its owner and the directory's can replace it meanwhile.
        Ok(there) if [rustix::process::geteuid().as_raw(), parent.uid()].contains(&there.uid()) => {
            File::create(path)
        }
        Ok(there) => {
            let uid = there.uid();
            let why = format!("it belongs to user {uid}, in a directory that all users write to");
            Err(io::Error::new(ErrorKind::PermissionDenied, why))
        }
        Err(e) if e.kind() == ErrorKind::NotFound => File::create_new(path),
        Err(e) => Err(e),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::{PermissionsExt, lchown, symlink};

    use shmem_testkit::needs::skipped;

    use super::*;

    const STRANGER: u32 = 54321;

    #[test]
    fn no_link_or_file_of_another_user_is_taken_where_all_may_write() {
        let dir = std::env::temp_dir().join(format!("shmrun-create-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        let set = |mode| fs::set_permissions(&dir, fs::Permissions::from_mode(mode)).unwrap();
        set(0o1777);
        let (victim, link, file) = (dir.join("victim"), dir.join("link"), dir.join("file"));
        fs::write(&victim, "precious").unwrap();
        // What is the user's own is followed and overwritten, as by any program.
        symlink(dir.join("behind"), &link).unwrap();
        for path in [&link, &file, &file] {
            create(path).unwrap();
        }
        assert!(dir.join("behind").exists());
        // The directory is somebody else's: its owner may do as he likes.
        let others = [&dir, &link, &file].map(|path| lchown(path, Some(STRANGER), None));
        if others.iter().all(Result::is_ok) {
            create(&file).unwrap();
            lchown(&dir, Some(STRANGER + 1), None).unwrap();
            fs::remove_file(&link).unwrap();
            symlink(&victim, &link).unwrap();
            lchown(&link, Some(STRANGER), None).unwrap();
            for path in [&link, &file] {
                let e = create(path).unwrap_err();
                assert_eq!(e.kind(), ErrorKind::PermissionDenied, "{path:?}");
                assert!(e.to_string().contains("user 54321"), "{e}");
            }
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            set(0o755);
            create(&link).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "");
        } else {
            skipped("root", "no file can be given to another user");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
