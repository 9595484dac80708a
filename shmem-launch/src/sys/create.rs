//! Files that the user names, which may lie where other users write, too.

use std::fs::{self, File, OpenOptions};
use std::io::{self, ErrorKind};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::Path;

/// Anybody may write to a directory.
const SHARED: u32 = 0o2;
/// Only owners remove what is in a directory: `/tmp`.
const STICKY: u32 = 0o1000;

/// Makes or empties a file, as [`File::create`] does. In a directory that all users write to, it takes neither files nor
/// links of other users, which could lead to a file of this user. Kernels hold to the same rule where `fs.protected_symlinks`,
/// `fs.protected_hardlinks` and `fs.protected_regular` are set.
///
/// # Errors
/// Those of the file system, and `PermissionDenied` for what belongs to others or may have been put there by them.
pub(crate) fn create(path: &Path) -> io::Result<File> {
    let parent = path.parent().filter(|p| !p.as_os_str().is_empty());
    let parent = fs::metadata(parent.unwrap_or(Path::new(".")))?;
    if parent.mode() & SHARED == 0 {
        return File::create(path);
    }
    let check = |there: &fs::Metadata| {
        let uid = there.uid();
        let why = if ![rustix::process::geteuid().as_raw(), parent.uid()].contains(&uid) {
            format!("it belongs to user {uid}")
        } else if there.is_file() && there.nlink() > 1 {
            "it has several names".into()
        } else if there.is_symlink() && parent.mode() & STICKY == 0 {
            "it is a link that anybody can replace".into()
        } else {
            return Ok(());
        };
        let why = format!("{why}, in a directory that all users write to");
        Err(io::Error::new(ErrorKind::PermissionDenied, why))
    };
    let there = match path.symlink_metadata() {
        Err(e) if e.kind() == ErrorKind::NotFound => return File::create_new(path),
        there => there?,
    };
    check(&there)?;
    if there.is_symlink() {
        // Nobody but its owner and the directory's can replace it meanwhile.
        return File::create(path);
    }
    // Without the sticky bit anybody can have replaced it since.
    let file = OpenOptions::new()
        .write(true)
        .custom_flags(libc::O_NOFOLLOW)
        .open(path)?;
    let opened = file.metadata()?;
    check(&opened)?;
    if opened.is_file() {
        file.set_len(0)?;
    }
    Ok(file)
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
            // A file of the user's own has another name there, and a link can be replaced by anybody.
            fs::remove_file(&file).unwrap();
            fs::hard_link(&victim, &file).unwrap();
            let e = create(&file).unwrap_err();
            assert!(e.to_string().contains("several names"), "{e}");
            set(0o777);
            let e = create(&link).unwrap_err();
            assert!(e.to_string().contains("user 54321"), "{e}");
            lchown(&link, Some(rustix::process::geteuid().as_raw()), None).unwrap();
            let e = create(&link).unwrap_err();
            assert!(e.to_string().contains("anybody can replace"), "{e}");
            assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
            set(0o755);
            create(&link).unwrap();
            assert_eq!(fs::read_to_string(&victim).unwrap(), "");
        } else {
            skipped("users", "no file can be given to another user");
        }
        fs::remove_dir_all(&dir).unwrap();
    }
}
