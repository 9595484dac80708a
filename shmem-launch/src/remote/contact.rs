//! A host whose agent is wanted: attempts to start it, what its remote shell says, and its greeting.
//!
//! # The greeting
//! The first bytes on the link are the agent's: eight that no shell prints, then the version of the
//! link protocol and the name of its build. Text that a shell's start-up files print and agents of
//! other versions are thereby told from what frames would make of them. Until the greeting has
//! come nothing runs on that host, and its parent has a deadline for it.
//!
//! # Attempts
//! Not all hosts are started at once, and a connection that is refused or reset before anything has come from
//! the host is tried again after a while: an sshd refuses those that come too many at a time. What the remote
//! shell says until then is held back; of an attempt that failed for good the last line goes into the
//! message.

use super::RemoteShell;
use crate::exit::End;
use crate::frame::LAUNCH_VERSION;

/// What no text begins with; the number in it never changes.
const MAGIC: [u8; 8] = *b"\x7fshmrun\x01";

/// Bytes of the greeting before the build's name: magic, version, length of that name. These stay as
/// they are in all versions.
const HEAD: usize = 8 + 4 + 1;

/// Printed text that is shown to the user.
const SHOWN: usize = 120;

/// Text of a remote shell that is held back at most.
const HELD: usize = 4096;

/// Pause before the second attempt; it doubles with each.
const PAUSE_NS: u64 = 500_000_000;

/// What remote shells say where another attempt may succeed, and where none will, in small letters.
const PASSES: [&str; 8] = [
    "connection refused",
    "connection reset",
    "connection closed",
    "closed by remote host",
    "timed out",
    "temporarily unavailable",
    "unable to contact",
    "try again",
];
const STAYS: [&str; 7] = [
    "permission denied",
    "verification failed",
    "could not resolve",
    "name or service not known",
    "unrecognized option",
    "not found",
    "no such file",
];

/// What is no news: srun was asked to bind nothing, and cannot bind.
const NOISE: &str = "cluster configuration lacks support for cpu binding";

/// What an agent that was started by a remote shell sends first.
pub fn greeting() -> Vec<u8> {
    let build = env!("CARGO_PKG_VERSION").as_bytes();
    let (version, len) = (LAUNCH_VERSION.to_le_bytes(), [build.len() as u8]);
    [&MAGIC[..], &version, &len, build].concat()
}

/// A host whose agent is wanted.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    host: String,
    command: String,
    /// The remote shell's name.
    shell: String,
    state: State,
    /// When the greeting must have come, once the first attempt was made.
    deadline: Option<u64>,
    timeout_ns: u64,
    retries: u32,
    /// Attempts that have failed.
    failed: u32,
    /// The part of the greeting that has come.
    got: Vec<u8>,
    /// What the remote shell has said so far.
    said: Vec<u8>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// To be started from some time on.
    Paused(u64),
    /// To be started when it is its turn, for which it has waited since then.
    Waiting(u64),
    /// The remote shell was started.
    Asked,
    Greeted,
}

impl Contact {
    /// An agent on `host`, which the remote shell calls `target`, that is still to be started.
    pub fn new(shell: &RemoteShell, host: &str, target: &str) -> Self {
        Self {
            host: host.to_owned(),
            command: shell.shown(target),
            shell: shell.name().to_owned(),
            state: State::Waiting(0),
            deadline: None,
            timeout_ns: shell.timeout_ns,
            retries: shell.retries,
            failed: 0,
            got: Vec::new(),
            said: Vec::new(),
        }
    }

    /// The remote shell is started.
    #[must_use]
    pub fn begun(mut self, now: u64) -> Self {
        self.begin(now);
        self
    }

    /// The remote shell is started. That others had their turns before does not count.
    pub fn begin(&mut self, now: u64) {
        if let State::Waiting(since) = self.state {
            self.postpone(now.saturating_sub(since));
        }
        self.state = State::Asked;
        self.deadline
            .get_or_insert(now.saturating_add(self.timeout_ns));
    }

    /// Whether it is still to be started.
    pub fn is_waiting(&self) -> bool {
        matches!(self.state, State::Paused(_) | State::Waiting(_))
    }

    /// Whether it is to be started now, or as soon as others have answered.
    pub fn is_due(&mut self, now: u64) -> bool {
        if matches!(self.state, State::Paused(from) if from <= now) {
            self.state = State::Waiting(now);
        }
        matches!(self.state, State::Waiting(_))
    }

    /// Whether it was started and has not answered.
    pub fn is_asked(&self) -> bool {
        self.state == State::Asked
    }

    /// Whether the agent has answered.
    pub fn greeted(&self) -> bool {
        self.state == State::Greeted
    }

    /// When to ask [`Self::overdue`] or [`Self::is_due`].
    pub fn deadline(&self) -> Option<u64> {
        match self.state {
            State::Paused(from) => Some(from),
            State::Asked => self.deadline,
            State::Waiting(_) | State::Greeted => None,
        }
    }

    /// The greeting may come so many nanoseconds later.
    pub fn postpone(&mut self, by: u64) {
        if let Some(at) = &mut self.deadline {
            *at = at.saturating_add(by);
        }
    }

    /// The remote shell says something. Gives what is to be passed on.
    pub fn shell_text(&mut self, text: &[u8]) -> Vec<u8> {
        self.said.extend_from_slice(text);
        match self.greeted() || self.said.len() > HELD {
            true => self.take_said(),
            false => Vec::new(),
        }
    }

    /// What it has said and what was not passed on, as far as it is news.
    pub fn take_said(&mut self) -> Vec<u8> {
        let mut said = std::mem::take(&mut self.said);
        let noise = |line: &[u8]| String::from_utf8_lossy(line).contains(NOISE);
        if noise(&said) {
            let lines = said.split_inclusive(|&b| b == b'\n');
            said = lines
                .filter(|line| !noise(line))
                .flatten()
                .copied()
                .collect();
        }
        said
    }

    /// Whether the link's end is no reason to give up: the host has said nothing, and another attempt may
    /// succeed, which is made after a while.
    pub fn try_again(&mut self, end: Option<End>, now: u64) -> bool {
        let said = String::from_utf8_lossy(&self.said).to_lowercase();
        let has = |words: &[&str]| words.iter().any(|w| said.contains(w));
        // 255 is how ssh and its like tell of their own failures.
        let may_pass = has(&PASSES) || end == Some(End::Code(255));
        let ended = end.is_some_and(|end| end != End::Code(0));
        let pause = PAUSE_NS << self.failed.min(8);
        let in_time = self
            .deadline
            .is_none_or(|at| now.saturating_add(pause) < at);
        let again = self.is_asked() && self.got.is_empty() && self.failed < self.retries;
        if !(again && ended && may_pass && in_time) || has(&STAYS) {
            return false;
        }
        self.failed += 1;
        self.said.clear();
        self.state = State::Paused(now.saturating_add(pause));
        true
    }

    /// What to say if the greeting should have come by now and has not.
    pub fn overdue(&self, now: u64) -> Option<String> {
        let over = self.deadline.is_some_and(|at| now >= at);
        (self.is_asked() && over).then(|| {
            format!(
                "no launch agent answered on host {} within {} s (SHMEM_LAUNCHER_TIMEOUT): {}",
                self.host,
                self.timeout_ns as f64 / 1e9,
                self.command
            )
        })
    }

    /// Takes the greeting from the front of what the host sent; what is left belongs to the link.
    ///
    /// # Errors
    /// What to say when it sent another thing.
    pub fn take_greeting(&mut self, bytes: &mut &[u8]) -> Result<(), String> {
        while !self.greeted()
            && let Some((&first, rest)) = bytes.split_first()
        {
            let at = self.got.len();
            if at < MAGIC.len() && first != MAGIC[at] {
                let text = [&self.got[..], bytes].concat();
                return Err(self.chatter(&text));
            }
            *bytes = rest;
            self.got.push(first);
            let Some(head) = self.got.first_chunk::<HEAD>() else {
                continue;
            };
            let build_end = HEAD + usize::from(head[HEAD - 1]);
            if self.got.len() == build_end {
                self.check_version()?;
                self.state = State::Greeted;
                self.got = Vec::new();
            }
        }
        Ok(())
    }

    fn check_version(&self) -> Result<(), String> {
        let (head, build) = self.got.split_at(HEAD);
        let version = head[MAGIC.len()..].first_chunk().expect("four bytes");
        let version = u32::from_le_bytes(*version);
        if version == LAUNCH_VERSION {
            return Ok(());
        }
        Err(format!(
            "the shmrun on host {} is of another version ({}, link protocol {version}; this one is \
             {}, link protocol {LAUNCH_VERSION}); install the same one there, or name it with \
             --remote-shmrun",
            self.host,
            String::from_utf8_lossy(build),
            env!("CARGO_PKG_VERSION"),
        ))
    }

    /// Text where the greeting should be.
    fn chatter(&self, text: &[u8]) -> String {
        let line = text.split(|&b| b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(&line[..line.len().min(SHOWN)]);
        format!(
            "on host {} something printed '{}' before the launch agent could answer; start-up files of \
             the shell there must print nothing when no terminal is there, and the remote shell must not \
             either: {}",
            self.host,
            line.trim_end().escape_debug(),
            self.command
        )
    }

    /// What to say when the link and the remote shell have ended.
    pub fn lost(&self, end: Option<End>) -> String {
        let how = match end {
            Some(end) => end.to_string(),
            None => "closed its link".into(),
        };
        if self.greeted() {
            return format!(
                "the launch agent on host {} is gone: {} {how}: {}",
                self.host, self.shell, self.command
            );
        }
        let hint = match end {
            Some(End::Code(126 | 127)) => {
                "; is there a shmrun at that path? (--remote-shmrun names another)"
            }
            Some(End::Code(2)) => "; is the shmrun there too old to know --agent?",
            Some(End::Code(255)) => "; can the host be reached, without a password?",
            _ => "",
        };
        let said = match self.last_line() {
            Some(line) => format!(" after '{line}'"),
            None => String::new(),
        };
        let attempts = match self.failed {
            0 => String::new(),
            n => format!(" ({} attempts)", n + 1),
        };
        format!(
            "cannot start the launch agent on host {}: {} {how}{said}{attempts}: {}{hint}",
            self.host, self.shell, self.command
        )
    }

    /// The last thing that the remote shell has said.
    fn last_line(&self) -> Option<String> {
        let lines = self.said.split(|&b| b == b'\n').rev();
        let mut lines = lines.map(|line| String::from_utf8_lossy(line));
        let last = lines.find(|line| !line.trim().is_empty() && !line.contains(NOISE))?;
        let last: String = last.trim().chars().take(SHOWN).collect();
        Some(last.escape_debug().to_string())
    }

    /// Whether its last line is all that the remote shell has said.
    pub fn is_told(&self) -> bool {
        let said = String::from_utf8_lossy(&self.said);
        let news = said
            .lines()
            .filter(|l| !l.trim().is_empty() && !l.contains(NOISE));
        news.count() <= 1
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::shell;
    use super::*;
    use proptest::prelude::*;

    fn contact() -> Contact {
        Contact::new(&shell(), "b", "b").begun(100)
    }

    proptest! {
        #[test]
        fn the_greeting_survives_any_fragmentation(cut in 1usize..30, more: Vec<u8>) {
            let wire = [greeting(), more.clone()].concat();
            let mut c = contact();
            let mut rest = Vec::new();
            for piece in wire.chunks(cut) {
                let mut bytes = piece;
                c.take_greeting(&mut bytes).unwrap();
                rest.extend_from_slice(bytes);
            }
            prop_assert!(c.greeted());
            prop_assert_eq!(rest, more);
        }

        #[test]
        fn anything_else_is_refused_or_waited_for(bytes: Vec<u8>) {
            let mut c = contact();
            let mut rest = &bytes[..];
            if c.take_greeting(&mut rest).is_ok() {
                prop_assert!(bytes.iter().zip(MAGIC).all(|(a, b)| *a == b));
            }
        }
    }

    #[test]
    fn chatter_and_other_versions_are_told() {
        let e = contact().take_greeting(&mut &b"Welcome to b!\nLast login"[..]);
        let e = e.unwrap_err();
        assert!(e.contains("host b") && e.contains("'Welcome to b!'"), "{e}");
        let mut other = greeting();
        other[8] ^= 0x40;
        let e = contact().take_greeting(&mut &other[..]).unwrap_err();
        assert!(
            e.contains("another version") && e.contains("--remote-shmrun"),
            "{e}"
        );
    }

    #[test]
    fn failures_name_host_and_command() {
        let c = contact();
        assert_eq!(c.overdue(100), None);
        let late = c.overdue(5_000_000_100).unwrap();
        assert!(
            late.contains("host b within 5 s") && late.contains("ssh -x b"),
            "{late}"
        );
        let lost = c.lost(Some(End::Code(127)));
        assert!(
            lost.contains("status 127") && lost.contains("--remote-shmrun"),
            "{lost}"
        );
        let mut c = c;
        c.take_greeting(&mut &greeting()[..]).unwrap();
        assert_eq!((c.deadline(), c.overdue(u64::MAX)), (None, None));
        assert!(c.lost(None).contains("is gone: ssh closed its link"));
    }

    #[test]
    fn connections_are_tried_again_until_something_has_come() {
        let ssh = Some(End::Code(255));
        let mut c = contact();
        assert_eq!(
            c.shell_text(b"ssh: connect to host b port 22: Connection refused\r\n"),
            b""
        );
        assert!(c.try_again(ssh, 200) && c.is_waiting());
        assert_eq!(c.deadline(), Some(200 + PAUSE_NS));
        assert!(!c.is_due(200) && c.is_due(200 + PAUSE_NS));
        assert_eq!(c.deadline(), None);
        c.begin(200 + PAUSE_NS);
        // The time is for all attempts together.
        assert_eq!(c.deadline(), Some(5_000_000_100));
        assert!(c.try_again(ssh, 1_000_000_000));
        assert!(c.is_due(2_000_000_000) && c.overdue(9_000_000_000).is_none());
        let mut late = c.clone();
        late.begin(9_000_000_000);
        // While others had their turns it had none.
        assert_eq!(late.deadline(), Some(12_000_000_100));
        c.begin(2_000_000_000);
        c.shell_text(b"banner\nkex_exchange_identification: read: Connection reset by peer\n");
        assert!(!c.try_again(ssh, 2_100_000_000) && !c.is_told());
        let lost = c.lost(ssh);
        assert!(
            lost.contains("Connection reset by peer' (3 attempts): "),
            "{lost}"
        );

        let again = |said: &str, end| {
            let mut c = contact();
            c.shell_text(said.as_bytes());
            c.try_again(end, 200)
        };
        assert!(again("", ssh) && again("srun: error: Socket timed out", Some(End::Code(1))));
        assert!(!again("", Some(End::Code(127))) && !again("Permission denied (publickey)", ssh));
        assert!(!again("Connection reset", None) && !again("", Some(End::Code(0))));
        let mut late = contact();
        assert!(!late.try_again(ssh, 4_900_000_000));
        let mut answered = contact();
        answered.take_greeting(&mut &greeting()[..3]).unwrap();
        assert!(!answered.try_again(ssh, 200));
    }

    #[test]
    fn what_is_said_before_the_greeting_is_held_back() {
        let mut c = contact();
        let noise = b"srun: cluster configuration lacks support for cpu binding\n";
        assert_eq!(c.shell_text(noise), b"");
        assert_eq!(c.shell_text(b"banner\n"), b"");
        c.take_greeting(&mut &greeting()[..]).unwrap();
        assert_eq!(c.take_said(), b"banner\n");
        assert_eq!(c.shell_text(b"later"), b"later");
        let mut c = contact();
        assert_eq!(c.shell_text(&[b'x'; HELD + 1]).len(), HELD + 1);
    }
}
