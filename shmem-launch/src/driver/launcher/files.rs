//! `--output`: a file for each PE and stream, `DIR/rank.0007.out` and `.err`.
//!
//! They are written by `shmrun`, so all of them are on its machine whatever the hosts share, and a disk that is
//! full is told as for any other output. A file is made when a PE writes for the first time; those that
//! an earlier job has left under such names are removed at the start. Few are open at a time: a PE that
//! comes again has its file opened again.
//!
//! Other users may write to the directory, too. So the first write to a file makes a new one, and one that is opened
//! again has to be the one that was made: no link leads anywhere else.

use std::collections::{HashMap, VecDeque};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use shmem_node::sys::{FileId, file_id};

use crate::frame::Stream;
use crate::stdio::Separate;

/// Files of a stream that are open at a time: together with all else, far from what any account may have.
const OPEN: usize = 128;

const BEGINNING: &str = "rank.";

fn ending(stream: Stream) -> &'static str {
    match stream {
        Stream::Out => ".out",
        Stream::Err => ".err",
    }
}

/// The files of one stream.
#[derive(Debug)]
pub(super) struct Files {
    dir: PathBuf,
    stream: Stream,
    /// Digits of a rank.
    width: usize,
    /// The one used last at the end.
    open: VecDeque<(u32, File)>,
    /// Device and number of each file that was made.
    made: HashMap<u32, FileId>,
}

impl Files {
    /// Makes the directory, if it is not there, and removes what an earlier job has left.
    ///
    /// # Errors
    /// When there can be no such files.
    pub(super) fn prepare(dir: &Path, n_pes: u32) -> io::Result<[Self; 2]> {
        let failed = |path: &Path, e: io::Error| {
            io::Error::new(e.kind(), format!("--output {}: {e}", path.display()))
        };
        fs::create_dir_all(dir).map_err(|e| failed(dir, e))?;
        for entry in fs::read_dir(dir).map_err(|e| failed(dir, e))? {
            let path = entry.map_err(|e| failed(dir, e))?.path();
            let name = path.file_name().unwrap_or_default().to_string_lossy();
            if is_ours(&name) {
                fs::remove_file(&path).map_err(|e| failed(&path, e))?;
            }
        }
        Ok(Stream::ALL.map(|stream| Self {
            dir: dir.to_owned(),
            stream,
            width: (n_pes - 1).to_string().len(),
            open: VecDeque::with_capacity(OPEN),
            made: HashMap::new(),
        }))
    }

    fn path(&self, rank: u32) -> PathBuf {
        let (width, ending) = (self.width, ending(self.stream));
        self.dir.join(format!("{BEGINNING}{rank:0width$}{ending}"))
    }

    /// Writes it all.
    ///
    /// # Errors
    /// The file that cannot be written, and why.
    pub(super) fn write(&mut self, text: &Separate) -> Result<(), String> {
        for (rank, data) in text.pieces() {
            self.write_one(rank, data)
                .map_err(|e| format!("the file {}: {e}", self.path(rank).display()))?;
        }
        Ok(())
    }

    /// The file of a PE, made if it was not yet.
    fn file_of(&mut self, rank: u32) -> io::Result<File> {
        let path = self.path(rank);
        let mut how = OpenOptions::new();
        how.append(true);
        if let Some(made) = self.made.get(&rank) {
            // What is a pipe by now must not make this wait.
            how.custom_flags(libc::O_NOFOLLOW | libc::O_NONBLOCK);
            let same = |file: &File| file_id(file).is_ok_and(|found| found == *made);
            match how.open(&path) {
                Ok(file) if same(&file) => return Ok(file),
                // The user may have removed what is not needed any more.
                Err(e) if e.kind() == io::ErrorKind::NotFound => {}
                _ => return Err(io::Error::other("another file has taken its place")),
            }
        }
        let file = how
            .create_new(true)
            .open(path)
            .map_err(|e| match e.kind() {
                io::ErrorKind::AlreadyExists => {
                    io::Error::new(e.kind(), "another process has made it since the job began")
                }
                _ => e,
            })?;
        self.made.insert(rank, file_id(&file)?);
        Ok(file)
    }

    fn write_one(&mut self, rank: u32, data: &[u8]) -> io::Result<()> {
        let known = self.open.iter().position(|(of, _)| *of == rank);
        let mut file = match known.and_then(|at| self.open.remove(at)) {
            Some((_, file)) => file,
            None => {
                if self.open.len() == OPEN {
                    self.open.pop_front();
                }
                self.file_of(rank)?
            }
        };
        let written = file.write_all(data);
        self.open.push_back((rank, file));
        written
    }
}

/// Whether a file has a name as a PE's has.
fn is_ours(name: &str) -> bool {
    let rank = name.strip_prefix(BEGINNING).and_then(|rest| {
        let mut endings = Stream::ALL.into_iter().map(ending);
        endings.find_map(|ending| rest.strip_suffix(ending))
    });
    rank.is_some_and(|rank| !rank.is_empty() && rank.bytes().all(|b| b.is_ascii_digit()))
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use super::*;

    #[test]
    fn more_pes_than_open_files_keep_their_order() {
        let dir = std::env::temp_dir().join(format!("shmrun-files-{}", std::process::id()));
        fs::create_dir_all(&dir).unwrap();
        for name in ["rank.7.err", "rank.out", "rank.7.out.old", "ranks.7.out"] {
            fs::write(dir.join(name), "old").unwrap();
        }
        let n = 3 * OPEN as u32;
        let [mut out, _] = Files::prepare(&dir, n).unwrap();
        let mut text = Separate::default();
        for round in 0..3 {
            (0..n).for_each(|rank| text.add(rank, format!("{round}\n").as_bytes()));
        }
        out.write(&text).unwrap();
        assert_eq!(out.open.len(), OPEN);
        let mut names: Vec<_> = fs::read_dir(&dir)
            .unwrap()
            .map(|e| e.unwrap().file_name())
            .collect();
        names.sort();
        assert_eq!(names.len(), n as usize + 3);
        for rank in 0..n {
            let text = fs::read_to_string(dir.join(format!("rank.{rank:03}.out"))).unwrap();
            assert_eq!(text, "0\n1\n2\n", "{rank}");
        }
        fs::remove_dir_all(&dir).unwrap();
    }

    #[test]
    fn no_link_or_file_of_others_is_written_to() {
        let dir = std::env::temp_dir().join(format!("shmrun-planted-{}", std::process::id()));
        let victim = dir.join("victim");
        fs::create_dir_all(&dir).unwrap();
        fs::write(&victim, "precious").unwrap();
        let [mut out, _] = Files::prepare(&dir, 200).unwrap();
        let write = |out: &mut Files, rank: u32| {
            let mut text = Separate::default();
            text.add(rank, b"line\n");
            out.write(&text)
        };
        let planted: [(u32, &dyn Fn(PathBuf)); 4] = [
            (0, &|path| symlink(&victim, path).unwrap()),
            (1, &|path| symlink(dir.join("new"), path).unwrap()),
            (2, &|path| fs::hard_link(&victim, path).unwrap()),
            (3, &|path| fs::write(path, "theirs").unwrap()),
        ];
        for (rank, plant) in planted {
            // Before the PE writes for the first time.
            plant(out.path(rank));
            let said = write(&mut out, rank).unwrap_err();
            assert!(said.contains("another process has made it"), "{said}");
        }
        for (rank, plant) in planted {
            // When its file is closed meanwhile.
            let rank = rank + 10;
            write(&mut out, rank).unwrap();
            (20..20 + OPEN as u32).for_each(|other| write(&mut out, other).unwrap());
            fs::rename(out.path(rank), dir.join("away")).unwrap();
            plant(out.path(rank));
            let said = write(&mut out, rank).unwrap_err();
            assert!(said.contains("another file has taken its place"), "{said}");
        }
        write(&mut out, 15).unwrap();
        (20..20 + OPEN as u32).for_each(|other| write(&mut out, other).unwrap());
        fs::remove_file(out.path(15)).unwrap();
        write(&mut out, 15).unwrap();
        assert_eq!(fs::read_to_string(out.path(15)).unwrap(), "line\n");
        assert_eq!(fs::read_to_string(&victim).unwrap(), "precious");
        assert!(!dir.join("new").exists());
        fs::remove_dir_all(&dir).unwrap();
    }
}
