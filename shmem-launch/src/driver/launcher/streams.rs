//! Standard streams of `shmrun`, and what becomes of them.
//!
//! They may be anything: terminals that take no output for hours, files (which epoll does not know),
//! pipes shared with other programs (whose blocking mode is not ours to change, and which may have
//! been made non-blocking by anybody). So each has a thread, which waits where waiting is what the
//! stream asks for, and otherwise tells why it cannot go on.

use std::ffi::OsStr;
use std::io::{self, IsTerminal, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;
use std::sync::mpsc::{Sender, channel};
use std::sync::{Arc, Condvar, Mutex};
use std::time::Duration;

use shmem_node::sys::file_id;

use super::files::Files;
use crate::exit;
use crate::frame::{STDIN_WINDOW, Stream};
use crate::stdio::Separate;
use crate::sys;

/// How often a background process looks whether it got the terminal.
const FOREGROUND_CHECK: Duration = Duration::from_millis(250);

/// Longest sleep in a wait for a stream, after which the call is tried again.
const NAP: Duration = Duration::from_secs(60);

/// What the threads tell the main loop.
pub(super) enum Note {
    Written(Stream, usize),
    /// Nobody reads the stream, or it fails, there and for this reason.
    Closed(Stream, Option<String>),
    Stdin(Vec<u8>),
    /// There is no more input, for this reason if it should not have ended.
    StdinEnd(Option<String>),
}

/// What is to be written: by all to one stream, and by each PE to its file.
#[derive(Debug)]
pub(super) struct Text {
    pub(super) mixed: Vec<u8>,
    pub(super) separate: Separate,
}

/// The thread that writes a stream, as the main loop knows it.
pub(super) struct Writer {
    texts: Sender<Text>,
    /// Whether it has a text that it has not reported.
    pub(super) is_busy: bool,
}

impl Writer {
    /// Gives it a text, which it will report.
    pub(super) fn write(&mut self, text: Text) {
        self.is_busy = true;
        // A writer that has gone has said so.
        let _ = self.texts.send(text);
    }
}

#[derive(Clone)]
pub(super) struct Notes {
    pub(super) sender: Sender<Note>,
    pub(super) wake: Arc<OwnedFd>,
}

impl Notes {
    fn send(&self, note: Note) {
        // Only fails when the main loop is over.
        if self.sender.send(note).is_ok() {
            let _ = rustix::io::write(&self.wake, &1u64.to_ne_bytes());
        }
    }
}

/// Writes all of it, however long that takes.
fn write_all(fd: BorrowedFd<'_>, mut bytes: &[u8]) -> io::Result<()> {
    if sys::was_closed(fd) && !bytes.is_empty() {
        return Err(io::Error::from_raw_os_error(libc::EBADF));
    }
    while !bytes.is_empty() {
        match rustix::io::write(fd, bytes).map_err(io::Error::from) {
            Ok(0) => return Err(io::ErrorKind::WriteZero.into()),
            Ok(n) => bytes = &bytes[n..],
            Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                sys::poll_writable(fd, NAP);
            }
            Err(e) => return Err(e),
        }
    }
    Ok(())
}

/// Why a stream fails; `None` if its reader has gone, as readers may.
fn reason(e: &io::Error) -> Option<String> {
    (e.kind() != io::ErrorKind::BrokenPipe).then(|| e.to_string())
}

/// Starts what writes the texts of each stream as they come. Where both are the same terminal, pipe or
/// file, one text is written after the other, so that lines stay whole there, too.
/// What is for the `files` of PEs goes there.
///
/// # Errors
/// If a thread cannot be started.
pub(super) fn writers(notes: &Notes, files: Option<[Files; 2]>) -> io::Result<[Writer; 2]> {
    let (out, err) = (Arc::default(), Arc::default());
    let same = match (file_id(io::stdout()), file_id(io::stderr())) {
        (Ok(out), Ok(err)) => out == err,
        _ => false,
    };
    let turn = if same { Arc::clone(&out) } else { err };
    let [out_files, err_files] = files.map_or([None, None], |files| files.map(Some));
    Ok([
        writer(Stream::Out, notes.clone(), out, out_files)?,
        writer(Stream::Err, notes.clone(), turn, err_files)?,
    ])
}

fn writer(
    stream: Stream,
    notes: Notes,
    turn: Arc<Mutex<()>>,
    mut files: Option<Files>,
) -> io::Result<Writer> {
    let (texts_to, texts) = channel::<Text>();
    let what = match stream {
        Stream::Out => "writes standard output",
        Stream::Err => "writes standard error",
    };
    sys::start_thread(what, move || {
        let (out, err) = (io::stdout(), io::stderr());
        let fd = of(stream, &out, &err);
        for text in texts {
            let Text { mixed, separate } = text;
            let alone = turn.lock().expect("no panic under the lock");
            let written = write_all(fd, &mixed);
            drop(alone);
            let place = |e| reason(&e).map(|why| format!("{}: {why}", stream.name()));
            let written = written.map_err(place).and_then(|()| match &mut files {
                Some(files) => files.write(&separate).map_err(Some),
                None => Ok(()),
            });
            match written {
                Ok(()) => notes.send(Note::Written(stream, mixed.len() + separate.len())),
                Err(why) => {
                    notes.send(Note::Closed(stream, why));
                    return;
                }
            }
        }
    })?;
    Ok(Writer {
        texts: texts_to,
        is_busy: false,
    })
}

/// Room for input: the main loop raises it, the reader uses it up.
#[derive(Default)]
pub(super) struct Room {
    bytes: Mutex<u32>,
    raised: Condvar,
}

impl Room {
    pub(super) fn set(&self, bytes: u32) {
        *self.bytes.lock().expect("no panic under the lock") = bytes;
        self.raised.notify_one();
    }

    fn wait(&self) -> u32 {
        let guard = self.bytes.lock().expect("no panic under the lock");
        let mut guard = self
            .raised
            .wait_while(guard, |b| *b == 0)
            .expect("no panic under the lock");
        std::mem::take(&mut *guard)
    }
}

pub(super) fn reader(notes: Notes, room: Arc<Room>) -> io::Result<()> {
    sys::start_thread("reads standard input", move || {
        let mut buf = vec![0; STDIN_WINDOW as usize];
        let input = io::stdin();
        let why = loop {
            let n = (room.wait() as usize).min(buf.len());
            // What is typed is for the foreground.
            while sys::in_background(input.as_fd()) {
                std::thread::sleep(FOREGROUND_CHECK);
            }
            match rustix::io::read(&input, &mut buf[..n]).map_err(io::Error::from) {
                Ok(0) => break None,
                Ok(n) => notes.send(Note::Stdin(buf[..n].to_vec())),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => room.set(n as u32),
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    sys::poll_readable(input.as_fd(), NAP);
                    room.set(n as u32);
                }
                // Sent to the background between the look and the read; SIGTTIN is blocked.
                Err(_) if sys::in_background(input.as_fd()) => room.set(n as u32),
                Err(e) => break (!has_none(&e)).then(|| e.to_string()),
            }
        };
        notes.send(Note::StdinEnd(why));
    })
}

/// Whether there never was input, or its end has come: a directory, something that is open for
/// writing alone (nohup leaves that), a terminal that was hung up.
fn has_none(e: &io::Error) -> bool {
    match e.raw_os_error() {
        Some(libc::EISDIR | libc::EBADF) => true,
        Some(libc::EIO) => io::stdin().is_terminal() || sys::is_hung_up(io::stdin().as_fd()),
        _ => false,
    }
}

/// Text that could not be written.
#[derive(Debug)]
pub(crate) struct Lost {
    /// What to say, unless the reader has gone.
    pub(crate) message: Option<String>,
    /// The exit status that tells it.
    pub(crate) status: u8,
}

impl Lost {
    fn of(place: &str, e: &io::Error) -> Self {
        let message = reason(e).map(|why| format!("cannot write to {place}: {why}"));
        let status = match message {
            Some(_) => exit::OUTPUT,
            None => 128 + libc::SIGPIPE as u8,
        };
        Self { message, status }
    }
}

/// Writes a text of shmrun's own to a standard stream.
///
/// # Errors
/// When it is lost.
pub(crate) fn put(stream: Stream, text: impl AsRef<[u8]>) -> Result<(), Lost> {
    let (out, err) = (io::stdout(), io::stderr());
    write_all(of(stream, &out, &err), text.as_ref()).map_err(|e| Lost::of(stream.name(), &e))
}

/// The descriptor of a stream. Nothing goes through the library's buffers: what is written is out.
fn of<'a>(stream: Stream, out: &'a io::Stdout, err: &'a io::Stderr) -> BorrowedFd<'a> {
    match stream {
        Stream::Out => out.as_fd(),
        Stream::Err => err.as_fd(),
    }
}

/// Writes a text to a file.
///
/// # Errors
/// When it cannot be written.
pub(super) fn put_file(file: &OsStr, content: &[u8]) -> Result<(), Lost> {
    sys::create(Path::new(file))
        .and_then(|mut to| to.write_all(content))
        .map_err(|e| Lost::of(&format!("the file {}", file.display()), &e))
}
