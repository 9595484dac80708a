//! Reading files that users and batch systems name: hosts, programs. A file that never ends, or a pipe into which
//! nobody writes, gives an error.

use std::fs::{File, OpenOptions};
use std::io::{self, IsTerminal, Read};
use std::os::fd::AsFd;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;
use std::time::Duration;

use crate::sys;

/// Bytes of a file, at most: more than the hosts of the largest jobs take.
const MOST: usize = 64 << 20;

/// How long a pipe may bring nothing.
const PATIENCE: Duration = Duration::from_secs(30);

/// What some editors put in front of a text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

/// The bytes of a file, without a byte order mark.
///
/// # Errors
/// Of the operating system, and those that the module describes.
pub(crate) fn read(path: &Path) -> io::Result<Vec<u8>> {
    let how = libc::O_NONBLOCK | libc::O_NOCTTY;
    let file = OpenOptions::new().read(true).custom_flags(how).open(path)?;
    let mut text = read_all(file, MOST, PATIENCE)?;
    if text.starts_with(BYTE_ORDER_MARK) {
        text.drain(..BYTE_ORDER_MARK.len());
    }
    Ok(text)
}

/// The same of a file that holds text.
///
/// # Errors
/// As of [`read`], and if it holds something else.
pub(crate) fn read_text(path: &Path) -> io::Result<String> {
    String::from_utf8(read(path)?)
        .map_err(|_| io::Error::new(io::ErrorKind::InvalidData, "the file is no text in UTF-8"))
}

fn read_all(mut file: File, most: usize, patience: Duration) -> io::Result<Vec<u8>> {
    // What is typed may take any time.
    let patience = match file.is_terminal() {
        true => Duration::MAX,
        false => patience,
    };
    let (mut text, mut part) = (Vec::new(), [0; 64 << 10]);
    loop {
        // Opening a pipe does not wait for a writer, and a read would end before the writer comes.
        if !sys::poll_readable(file.as_fd(), patience) {
            let why = format!(
                "nothing has come from this pipe for {} s",
                patience.as_secs()
            );
            return Err(io::Error::new(io::ErrorKind::TimedOut, why));
        }
        match file.read(&mut part) {
            Ok(0) => return Ok(text),
            Ok(n) => text.extend_from_slice(&part[..n]),
            Err(e)
                if [io::ErrorKind::Interrupted, io::ErrorKind::WouldBlock].contains(&e.kind()) => {}
            Err(e) => return Err(e),
        }
        if text.len() > most {
            let why = format!("the file has more than {} MiB", most >> 20);
            return Err(io::Error::new(io::ErrorKind::FileTooLarge, why));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn texts_come_whole_and_without_a_mark() {
        let path = std::env::temp_dir().join(format!("shmrun-given-{}", std::process::id()));
        std::fs::write(&path, "\u{feff}a\nb").unwrap();
        assert_eq!(read_text(&path).unwrap(), "a\nb");
        std::fs::write(&path, b"a\xff").unwrap();
        assert_eq!(read(&path).unwrap(), b"a\xff");
        assert!(read_text(&path).unwrap_err().to_string().contains("UTF-8"));
        std::fs::remove_file(&path).unwrap();
        assert_eq!(read(Path::new("/dev/null")).unwrap(), b"");
        assert!(read(Path::new("/")).is_err());
    }

    #[test]
    fn files_without_an_end_are_refused() {
        let zeros = File::open("/dev/zero").unwrap();
        let why = read_all(zeros, 1 << 20, PATIENCE).unwrap_err().to_string();
        assert_eq!(why, "the file has more than 1 MiB");
    }

    #[test]
    fn pipes_are_waited_for_a_while() {
        let (read, mut write) = io::pipe().unwrap();
        write.write_all(b"a").unwrap();
        let read = File::from(std::os::fd::OwnedFd::from(read));
        let (moment, again) = (Duration::from_millis(1), read.try_clone().unwrap());
        let why = read_all(again, MOST, moment).unwrap_err().to_string();
        assert!(why.contains("nothing has come"), "{why}");
        let writer = std::thread::spawn(move || write.write_all(b"bc").unwrap());
        assert_eq!(read_all(read, MOST, PATIENCE).unwrap(), b"bc");
        writer.join().unwrap();
    }
}
