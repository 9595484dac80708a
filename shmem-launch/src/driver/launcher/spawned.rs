//! Launchers of spawned jobs: how they are started, heard and reaped; and how one of them finds the
//! launcher that started it.
//!
//! Such a launcher has its link as standard input, pipes that are read here as standard output and
//! error, and a process group of its own, so that the terminal's signals are for this one alone. It
//! ends at once when its link does, and its agents with it.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::Command;
use std::time::Duration;

use rustix::net::SocketType;

use shmem_pmi::question::Answer;

use super::{LauncherProcess, OUTER};
use crate::driver::link::{self, Got, LinkIo};
use crate::exit::End;
use crate::frame::{Frame, OutBuf, SpawnedJob, Stream};
use crate::root::Event;
use crate::sys::{self, Interest, Waited};

/// Tokens: this, four times the number of the job, and what it is about.
pub(super) const SPAWNED: u64 = 1 << 40;
const LINK: u64 = 2;

/// How long the launcher that started this one may take to say what is to run.
const ORDERS: Duration = Duration::from_secs(300);

/// The launcher of a spawned job, as the driver sees it.
#[derive(Debug)]
pub(super) struct SpawnedIo {
    number: u32,
    pid: i32,
    link: LinkIo,
    output: [Option<OwnedFd>; 2],
    /// Which of `output` are read.
    reading: [bool; 2],
}

fn token(number: u32, about: u64) -> u64 {
    SPAWNED + 4 * u64::from(number) + about
}

fn start(options: &[OsString]) -> io::Result<(i32, OwnedFd, [OwnedFd; 2])> {
    let (ours, theirs) = sys::socketpair(SocketType::STREAM)?;
    let (out, out_end) = sys::pipe()?;
    let (err, err_end) = sys::pipe()?;
    // What runs, even if its file has been replaced.
    for fd in [&out, &err] {
        sys::set_nonblocking(fd.as_fd())?;
    }
    // Its PEs are to have the limits that this launcher began with.
    let child = sys::with_first_limits(&mut Command::new("/proc/self/exe"))
        .arg0("shmrun")
        .arg("--spawned")
        .args(options)
        .stdin(theirs)
        .stdout(out_end)
        .stderr(err_end)
        .process_group(0)
        .spawn()?;
    Ok((child.id() as i32, ours, [out, err]))
}

impl LauncherProcess {
    pub(super) fn start_spawned(&mut self, number: u32) {
        let (pid, link, output) = match start(&self.spawn_options) {
            Ok(started) => started,
            Err(e) => return self.handle(Event::SpawnedEnded(number, Err(e.to_string()))),
        };
        let mut io = SpawnedIo {
            number,
            pid,
            link: LinkIo::socket(link, token(number, LINK)),
            output: output.map(Some),
            reading: [true; 2],
        };
        if self.watch(&io).is_err() {
            // It cannot be heard: it ends with its link, and is reaped as any other.
            io.link.close();
            io.output = [None, None];
        }
        self.spawned.push(io);
    }

    fn watch(&self, io: &SpawnedIo) -> io::Result<()> {
        io.link.watch(&self.epoll)?;
        for stream in Stream::ALL {
            let at = stream as usize;
            if let Some(fd) = &io.output[at] {
                self.epoll
                    .add(fd, token(io.number, at as u64), Interest::Read)?;
            }
        }
        Ok(())
    }

    pub(super) fn spawned_ready(&mut self, token: u64, buf: &mut [u8]) {
        let (number, about) = ((token - SPAWNED) / 4, token % 4);
        let at = self
            .spawned
            .iter()
            .position(|s| u64::from(s.number) == number);
        let Some(at) = at else { return };
        match about {
            LINK => drop(self.read_spawned_link(at, buf)),
            about => drop(self.read_spawned(at, Stream::ALL[about as usize & 1], buf)),
        }
    }

    /// Reads the link once. False if there is nothing more for now.
    fn read_spawned_link(&mut self, at: usize, buf: &mut [u8]) -> bool {
        let io = &mut self.spawned[at];
        let number = io.number;
        let Got::Bytes(n) = io.link.receive(buf) else {
            return false;
        };
        self.handle(Event::FromSpawned(number, &buf[..n]));
        true
    }

    /// Reads output once. False if there is nothing more for now.
    fn read_spawned(&mut self, at: usize, stream: Stream, buf: &mut [u8]) -> bool {
        let io = &mut self.spawned[at];
        let number = io.number;
        let Got::Bytes(n) = link::read(&mut io.output[stream as usize], buf) else {
            return false;
        };
        self.handle(Event::SpawnedText(number, stream, &buf[..n]));
        true
    }

    /// Reaps launchers that have ended, after the last of what they said. Theirs is at most what a
    /// pipe holds, so it is taken even while older text waits.
    pub(super) fn reap_spawned(&mut self, buf: &mut [u8]) {
        let mut at = 0;
        while let Some(SpawnedIo { number, pid, .. }) = self.spawned.get(at) {
            let (number, Waited::Child(_, status)) = (*number, sys::wait(*pid)) else {
                at += 1;
                continue;
            };
            while self.read_spawned_link(at, buf) {}
            for stream in Stream::ALL {
                while self.read_spawned(at, stream, buf) {}
            }
            self.spawned.swap_remove(at);
            let end = End::from_wait(status);
            self.handle(Event::SpawnedEnded(number, Ok(end)));
        }
    }

    /// While text waits for a blocked terminal, no more of it is read.
    pub(super) fn watch_spawned(&mut self) -> io::Result<()> {
        for io in &mut self.spawned {
            for stream in Stream::ALL {
                let at = stream as usize;
                let may_read = self.root.may_read_spawned(stream);
                let Some(fd) = io.output[at]
                    .as_ref()
                    .filter(|_| io.reading[at] != may_read)
                else {
                    continue;
                };
                io.reading[at] = may_read;
                let interest = match may_read {
                    true => Interest::Read,
                    false => Interest::Nothing,
                };
                self.epoll
                    .change(fd, token(io.number, at as u64), interest)?;
            }
        }
        Ok(())
    }

    pub(super) fn flush_spawned(&mut self) -> io::Result<()> {
        for io in &mut self.spawned {
            let Some(out) = self.root.outgoing_spawned(io.number) else {
                continue;
            };
            io.link.flush(out, &self.epoll)?;
        }
        Ok(())
    }
}

/// What the launcher of a spawned job finds when it starts.
#[derive(Debug)]
pub(crate) struct Outer {
    /// To the launcher that started this one.
    pub(super) link: LinkIo,
    pub(crate) job: SpawnedJob,
}

impl Outer {
    /// Takes the link, which is standard input, and the job. From then on standard input is empty.
    ///
    /// # Errors
    /// When this process was not started by another launcher.
    pub(crate) fn find() -> io::Result<Self> {
        let bad =
            |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
        let link = LinkIo::socket(sys::take_stdin()?, OUTER);
        let content = link.read_one_frame(ORDERS)?;
        let Frame::Job(body) = Frame::decode(&content).map_err(|e| bad(&e))? else {
            return Err(bad(&"the first frame is not a Job"));
        };
        let job = SpawnedJob::decode(body).map_err(|e| bad(&e))?;
        Ok(Self { link, job })
    }

    /// Tells the launcher that started this one that the job does not run, and why.
    pub(crate) fn refuse(&self, reason: &dyn std::fmt::Display) {
        let answer = Answer::Refused {
            rc: 1,
            reason: reason.to_string(),
        };
        let mut out = OutBuf::default();
        out.send(&Frame::Answer {
            asker: 0,
            ticket: 0,
            answer: &answer.encode(),
        });
        self.link.send_all(&mut out);
    }
}
