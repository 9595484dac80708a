//! Processes that are started again, when that takes its time.

use std::fs::{self, File};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use shmem_testkit::wait_until;

use crate::support::shmrun;

/// Of `fcntl`, which the crate does not name: the signal that tells of a lease that is to end.
const F_SETSIG: i32 = 10;

/// A program that nobody can start while it is held: the kernel has whoever executes a file wait for the
/// one who has a lease on it.
struct Held {
    program: PathBuf,
    file: File,
}

impl Held {
    fn new(program: &Path) -> Self {
        let held = Self {
            program: program.to_owned(),
            file: File::open(program).unwrap(),
        };
        // What tells the holder that somebody waits would end this process.
        held.control(F_SETSIG, libc::SIGURG).unwrap();
        // Not while a shell has the script open.
        wait_until(
            "nobody reads the program",
            || held.control(libc::F_SETLEASE, libc::F_WRLCK).is_ok(),
            || format!("{:?}", held.program),
        );
        held
    }

    fn control(&self, command: i32, value: i32) -> std::io::Result<i32> {
        // SAFETY: the descriptor is open; these commands take numbers.
        match unsafe { libc::fcntl(self.file.as_raw_fd(), command, value) } {
            -1 => Err(std::io::Error::last_os_error()),
            done => Ok(done),
        }
    }

    fn wait_until_somebody_waits(&self) {
        wait_until(
            "the program is executed",
            || self.control(libc::F_GETLEASE, 0).unwrap() != libc::F_WRLCK,
            || "nobody does".to_owned(),
        );
    }

    fn release(self) {
        self.control(libc::F_SETLEASE, libc::F_UNLCK).unwrap();
    }
}

/// Directory with the program `name`: its first PE copies its input; the second dies when `go` is there,
/// and is content when it is started again.
fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("shmrun-{name}-{}", std::process::id()));
    let _ = fs::remove_dir_all(&dir);
    fs::create_dir(&dir).unwrap();
    let script = "#!/bin/sh\nexec /bin/sh -c '\
        [ $PMI_RANK = 0 ] && exec cat\n\
        [ $PMI_RESPAWNED ] && { echo again; exit 0; }\n\
        until [ -e $GO ]; do sleep 0.01; done\n\
        kill -9 $$'\n";
    fs::write(dir.join("program"), script).unwrap();
    fs::set_permissions(dir.join("program"), fs::Permissions::from_mode(0o755)).unwrap();
    dir
}

#[test]
fn the_others_are_served_while_a_process_is_started_again() {
    let dir = directory("slow-respawn");
    let (program, go) = (dir.join("program"), dir.join("go"));
    let job = shmrun(&["-n", "2", "--respawn", "1", program.to_str().unwrap()])
        .env("GO", go.to_str().unwrap());
    let mut job = job.stdin(Stdio::piped()).start();
    let (mut stdin, mut stdout) = (job.stdin(), job.stdout());
    let mut echo = |line: &[u8]| {
        stdin.write_all(line).unwrap();
        let mut back = vec![0; line.len()];
        stdout.read_exact(&mut back).unwrap();
        assert_eq!(back, line);
    };
    echo(b"before\n");
    job.wait_for("cat", 1);
    job.wait_for("sh", 1);
    let held = Held::new(&program);
    fs::write(&go, "").unwrap();
    held.wait_until_somebody_waits();
    echo(b"meanwhile\n");
    held.release();
    let mut again = [0; 6];
    stdout.read_exact(&mut again).unwrap();
    assert_eq!(&again, b"again\n");
    drop(stdin);
    let out = job.wait();
    assert_eq!(out.code(), 0, "{out:?}");
    assert_eq!(out.messages().len(), 1, "{out:?}");
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn a_job_ends_while_a_process_is_started_again() {
    let dir = directory("ended-respawn");
    let (program, go) = (dir.join("program"), dir.join("go"));
    let job = shmrun(&["-n", "2", "--respawn", "1", program.to_str().unwrap()])
        .env("GO", go.to_str().unwrap());
    let job = job.stdin(Stdio::piped()).start();
    job.wait_for("cat", 1);
    job.wait_for("sh", 1);
    let held = Held::new(&program);
    fs::write(&go, "").unwrap();
    held.wait_until_somebody_waits();
    job.kill(libc::SIGTERM);
    let out = job.wait();
    assert_eq!(out.code(), 128 + libc::SIGTERM, "{out:?}");
    // Nothing had to be released for it.
    held.release();
    fs::remove_dir_all(dir).unwrap();
}

#[test]
fn what_a_process_wrote_last_is_read_before_it_is_started_again() {
    // Nobody takes output, so it writes until there is no room on the way, nor in its pipe.
    let script = "[ $PMI_RESPAWNED ] && { echo again; exit 0; }\n\
        full=0; while [ $full -lt 10 ]; do\n\
        dd if=/dev/zero bs=4096 count=1000 oflag=nonblock 2> $COUNTS.last; cat $COUNTS.last >> $COUNTS\n\
        full=$((full + 1)); grep -q '^0+0 records out' $COUNTS.last || full=0; sleep 0.02; done\n\
        rm $COUNTS.last; kill -9 $$";
    let counts = std::env::temp_dir().join(format!("shmrun-counts-{}", std::process::id()));
    let args = ["-n", "1", "--respawn", "1", "/bin/sh", "-c", script];
    let job = shmrun(&args).env("COUNTS", counts.to_str().unwrap());
    let mut job = job.start();
    let (mut stdout, mut stderr) = (job.stdout(), job.stderr());
    let mut said = String::new();
    while !said.contains("starting it again") {
        let mut part = [0; 512];
        let n = stderr.read(&mut part).unwrap();
        assert!(n > 0, "{said}");
        said.push_str(std::str::from_utf8(&part[..n]).unwrap());
    }
    // For whoever would start it at once.
    std::thread::sleep(std::time::Duration::from_millis(200));
    let mut text = Vec::new();
    stdout.read_to_end(&mut text).unwrap();
    let out = job.wait();
    assert_eq!(out.code(), 0, "{out:?}");
    let counted = fs::read_to_string(&counts).unwrap();
    fs::remove_file(counts).unwrap();
    let counted = counted
        .lines()
        .filter_map(|l| l.strip_suffix("+0 records out"));
    let records = counted
        .map(|n| n.parse::<usize>().unwrap())
        .collect::<Vec<_>>();
    let written = 4096 * records.iter().sum::<usize>();
    assert!(written > 0 && records.last() == Some(&0), "{records:?}");
    assert_eq!(text.len(), written + "again\n".len(), "{records:?}");
    assert!(text.ends_with(b"\0again\n"));
}
