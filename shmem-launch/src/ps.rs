//! `shmrun --ps`: from another terminal, which jobs of this user run on this machine, and what one waits for.
//!
//! Each launcher listens on a Unix socket in the abstract namespace, so there is no file that could be left
//! behind, and the kernel's list of sockets is the list of jobs. The name says user and process. Anybody
//! may take any name, and try any socket: both sides ask the kernel who the other is, and talk to the same
//! user only (launchers to root, too). Who asks sends a word and gets text until the end. Network
//! namespaces, such as those of most containers, have sockets of their own: a job is asked for inside.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::{SocketAddr, UnixStream};
use std::time::Duration;

use shmem_node::sys::{connect_now, peer_user};

use crate::census::text::time;
use crate::exit;
use crate::sys;

/// Longest word that somebody may send.
pub(crate) const WORD_MAX: usize = 64;

/// How long a launcher may take to say what its job is.
const SOON: Duration = Duration::from_secs(2);
/// How long it may take to find out what the PEs wait for.
const LATER: Duration = Duration::from_secs(15);

/// What is asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Question {
    /// What job is it?
    Job,
    /// What do its PEs wait for?
    Waits,
    /// The same, with stacks.
    Stacks,
}

impl Question {
    const ALL: [(Self, &str); 3] = [
        (Self::Job, "job\n"),
        (Self::Waits, "waits\n"),
        (Self::Stacks, "stacks\n"),
    ];

    fn word(self) -> &'static str {
        let found = Self::ALL.iter().find(|(question, _)| *question == self);
        found.map_or("", |(_, word)| word)
    }

    /// The question that bytes are, once they are one.
    ///
    /// # Errors
    /// They never will be.
    pub(crate) fn parse(bytes: &[u8]) -> Result<Option<Self>, ()> {
        match Self::ALL.iter().find(|(_, word)| word.as_bytes() == bytes) {
            Some((question, _)) => Ok(Some(*question)),
            None if bytes.contains(&b'\n') || bytes.len() >= WORD_MAX => Err(()),
            None => Ok(None),
        }
    }
}

/// The socket of the launcher with this process id.
fn name(user: u32, pid: u32) -> String {
    format!("shmrun-{user}-{pid}")
}

/// This launcher's own.
///
/// # Errors
/// The operating system's.
pub(crate) fn own_address() -> io::Result<SocketAddr> {
    SocketAddr::from_abstract_name(name(sys::user(), std::process::id()))
}

/// Whether a user may ask this launcher.
pub(crate) fn may_ask(user: u32) -> bool {
    user == 0 || user == sys::user()
}

/// A job as its launcher describes it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Running {
    pub(crate) n_pes: u32,
    pub(crate) n_nodes: u32,
    pub(crate) age_ns: u64,
    pub(crate) state: String,
    pub(crate) program: String,
}

impl Running {
    pub(crate) fn encode(&self) -> String {
        let Self {
            n_pes,
            n_nodes,
            age_ns,
            state,
            program,
        } = self;
        format!("{n_pes}\t{n_nodes}\t{age_ns}\t{state}\t{program}\n")
    }

    fn decode(line: &str) -> Option<Self> {
        let mut fields = line.trim_end().splitn(5, '\t');
        let mut field = || fields.next();
        Some(Self {
            n_pes: field()?.parse().ok()?,
            n_nodes: field()?.parse().ok()?,
            age_ns: field()?.parse().ok()?,
            state: printable(field()?),
            program: printable(field()?),
        })
    }
}

/// What comes from another process is shown without what could move a terminal's cursor.
fn printable(text: &str) -> String {
    text.chars()
        .map(|c| if c.is_control() { '?' } else { c })
        .collect()
}

/// The same for a text of several lines.
fn printable_lines(text: &str) -> String {
    let lines = text.split_inclusive('\n');
    let shown = lines.map(|line| match line.strip_suffix('\n') {
        Some(line) => printable(line) + "\n",
        None => printable(line),
    });
    shown.collect()
}

/// Users and processes of launchers, from the kernel's list of Unix sockets.
fn launchers(sockets: &str) -> Vec<(u32, u32)> {
    let named = sockets.lines().filter_map(|line| {
        let name = line.split_ascii_whitespace().nth(7)?;
        let (user, pid) = name.strip_prefix("@shmrun-")?.split_once('-')?;
        Some((user.parse().ok()?, pid.parse().ok()?))
    });
    let mut found: Vec<(u32, u32)> = named.collect();
    found.sort_unstable();
    found.dedup();
    found
}

/// Whether there is a process `pid`, and it belongs to this user. If /proc is missing, this is false.
fn is_of(pid: u32, user: u32) -> bool {
    std::fs::metadata(format!("/proc/{pid}")).is_ok_and(|process| process.uid() == user)
}

/// Asks the launcher of a job.
fn ask(user: u32, pid: u32, question: Question) -> io::Result<String> {
    let patience = match question {
        Question::Job => SOON,
        Question::Waits => LATER,
        Question::Stacks => 3 * LATER,
    };
    // Without waiting: another user may have taken the name, and accept nobody.
    let mut stream = UnixStream::from(connect_now(name(user, pid).as_bytes())?);
    stream.set_nonblocking(false)?;
    if peer_user(stream.as_fd())? != user {
        let e = "the socket of that name is another user's";
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, e));
    }
    stream.set_read_timeout(Some(patience))?;
    stream.set_write_timeout(Some(patience))?;
    stream.write_all(question.word().as_bytes())?;
    let mut answer = Vec::new();
    stream.take(16 << 20).read_to_end(&mut answer)?;
    Ok(String::from_utf8_lossy(&answer).into_owned())
}

/// A table of jobs.
fn table(jobs: &[(u32, Option<Running>)]) -> String {
    let mut text = format!(
        "{:>8} {:>7} {:>6} {:>9}  {:<9} PROGRAM\n",
        "JOB", "PES", "NODES", "FOR", "STATE"
    );
    for (pid, job) in jobs {
        text += &match job {
            Some(job) => format!(
                "{pid:>8} {:>7} {:>6} {:>9}  {:<9} {}\n",
                job.n_pes,
                job.n_nodes,
                time(job.age_ns),
                job.state,
                job.program
            ),
            None => format!(
                "{pid:>8} {:>7} {:>6} {:>9}  no answer (stopped?)\n",
                "", "", ""
            ),
        };
    }
    text
}

/// Does what `--ps` asks for: text and status.
///
/// # Errors
/// What to tell, and the status.
pub(crate) fn run(job: Option<&str>, stacks: bool) -> Result<String, (String, u8)> {
    let sockets = std::fs::read_to_string("/proc/net/unix")
        .map_err(|e| (format!("/proc/net/unix: {e}"), exit::LAUNCHER))?;
    let mine = sys::user();
    let mut found = launchers(&sockets);
    found.retain(|&(user, _)| mine == 0 || user == mine);
    let Some(job) = job else {
        let described: Vec<(u32, Option<Running>)> = found
            .into_iter()
            .filter_map(|(user, pid)| match ask(user, pid, Question::Job) {
                Ok(line) => Some((pid, Running::decode(&line))),
                // It has ended meanwhile, or is none of this user's.
                Err(e) if e.kind() == io::ErrorKind::ConnectionRefused => None,
                Err(e) if e.kind() == io::ErrorKind::PermissionDenied => None,
                // Nobody accepts, so the kernel cannot name the user of that socket, and any user may have taken the name.
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !is_of(pid, user) => None,
                Err(_) => Some((pid, None)),
            })
            .collect();
        return Ok(match described.is_empty() {
            true => "no job of this user runs here\n".into(),
            false => table(&described),
        });
    };
    let known = job
        .parse::<u32>()
        .ok()
        .and_then(|pid| found.into_iter().find(|&(_, other)| other == pid));
    let Some((user, pid)) = known else {
        let what = format!(
            "--ps {job}: no such job; a job is named by the process id of its shmrun, and shmrun --ps \
             lists those of this user on this machine"
        );
        return Err((what, exit::USAGE));
    };
    let question = match stacks {
        true => Question::Stacks,
        false => Question::Waits,
    };
    match ask(user, pid, question) {
        Ok(text) => Ok(printable_lines(&text)),
        Err(e) => Err((
            format!("--ps {job}: its shmrun does not answer: {e}"),
            exit::LAUNCHER,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn questions_are_whole_words() {
        assert_eq!(Question::parse(b"waits\n"), Ok(Some(Question::Waits)));
        assert_eq!(Question::parse(b"job\n"), Ok(Some(Question::Job)));
        assert_eq!(Question::parse(b"wai"), Ok(None));
        assert_eq!(Question::parse(b""), Ok(None));
        assert_eq!(Question::parse(b"what\n"), Err(()));
        assert_eq!(Question::parse(&[b'x'; WORD_MAX]), Err(()));
    }

    #[test]
    fn answers_move_no_cursor() {
        let answer = "PE 0\n\u{1b}]0;title\u{7}\r\u{9b}2J\n\nend";
        let shown = "PE 0\n?]0;title???2J\n\nend";
        assert_eq!(printable_lines(answer), shown);
    }

    #[test]
    fn launchers_are_found_among_sockets() {
        let sockets = "Num       RefCount Protocol Flags    Type St Inode Path\n\
             0000: 00000002 00000000 00010000 0001 01 21 /run/x.sock\n\
             0000: 00000002 00000000 00010000 0001 01 22 @shmrun-1000-77\n\
             0000: 00000003 00000000 00000000 0001 03 23 @shmrun-1000-77\n\
             0000: 00000002 00000000 00010000 0001 01 24 @shmrun-0-5\n\
             0000: 00000002 00000000 00010000 0001 01 25 @shmrun-x-5\n\
             0000: 00000003 00000000 00000000 0002 01 26\n";
        assert_eq!(launchers(sockets), [(0, 5), (1000, 77)]);
    }

    #[test]
    fn a_process_belongs_to_its_user_alone() {
        let (own, user) = (std::process::id(), sys::user());
        assert!(is_of(own, user) && !is_of(own, user + 1));
        // More than any kernel numbers.
        assert!(!is_of(1 << 30, user));
    }

    #[test]
    fn a_job_describes_itself_in_a_line() {
        let job = Running {
            n_pes: 64,
            n_nodes: 8,
            age_ns: 12_300_000_000,
            state: "running".into(),
            program: "./a b\tc".into(),
        };
        let shown = Running::decode(&job.encode()).unwrap();
        assert_eq!(shown.program, "./a b?c");
        assert_eq!(Running::decode("1\t2\n"), None);
        let text = table(&[(4711, Some(shown)), (4712, None)]);
        assert!(text.contains("12.3 s"), "{text}");
        assert!(text.contains("4712"), "{text}");
    }
}
