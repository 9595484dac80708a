//! Remote shells: how an agent on another host is called, and what its parent knows of it until it
//! has answered. Pure; `driver::shell` starts the processes.
//!
//! # The command
//! `CMD... HOST 'exec SHMRUN --agent'`: the shell on the other host gets one command line, quoted for
//! it, as ssh, dbclient and rsh take it. Standard input and output are the link. `exec` leaves no
//! shell between the remote shell's server and the agent.
//!
//! # The greeting
//! The first bytes on the link are the agent's: eight that no shell prints, then the version of the
//! link protocol and the name of its build. Text that a shell's start-up files print and agents of
//! other versions are thereby told from what frames would make of them. Until the greeting has
//! come nothing runs on that host, and its parent has a deadline for it.

use serde::{Deserialize, Serialize};

use crate::exit::End;
use crate::frame::LAUNCH_VERSION;

/// What no text begins with; the number in it never changes.
const MAGIC: [u8; 8] = *b"\x7fshmrun\x01";

/// Bytes of the greeting before the build's name: magic, version, length of that name. These stay as
/// they are in all versions.
const HEAD: usize = 8 + 4 + 1;

/// Printed text that is shown to the user.
const SHOWN: usize = 120;

/// How agents on other hosts are started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteShell {
    /// The command and its options.
    pub words: Vec<String>,
    /// What is executed on the host: a path, or a name that is in `PATH` there.
    pub shmrun: Vec<u8>,
    /// How long an agent may take to send its greeting.
    pub timeout_ns: u64,
}

impl RemoteShell {
    /// The arguments of the remote shell, with the zeroth.
    pub fn argv(&self, host: &str) -> Vec<Vec<u8>> {
        let line = [b"exec ", &quote(&self.shmrun)[..], b" --agent"].concat();
        let words = self.words.iter().map(|w| w.as_bytes().to_vec());
        words.chain([host.as_bytes().to_vec(), line]).collect()
    }

    /// The call as a user would type it.
    pub fn shown(&self, host: &str) -> String {
        let argv = self.argv(host);
        let words = argv
            .iter()
            .map(|w| String::from_utf8_lossy(&quote(w)).into_owned());
        words.collect::<Vec<_>>().join(" ")
    }
}

/// One word for a shell: in single quotes unless no character of it means anything to one.
pub fn quote(word: &[u8]) -> Vec<u8> {
    let plain = |&b: &u8| b.is_ascii_alphanumeric() || b"/._-+=:@%,".contains(&b);
    if !word.is_empty() && word.iter().all(plain) {
        return word.to_vec();
    }
    let mut out = vec![b'\''];
    for &b in word {
        match b {
            b'\'' => out.extend_from_slice(b"'\\''"),
            b => out.push(b),
        }
    }
    out.push(b'\'');
    out
}

/// What an agent that was started by a remote shell sends first.
pub fn greeting() -> Vec<u8> {
    let build = env!("CARGO_PKG_VERSION").as_bytes();
    let (version, len) = (LAUNCH_VERSION.to_le_bytes(), [build.len() as u8]);
    [&MAGIC[..], &version, &len, build].concat()
}

/// A host whose agent was asked for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Contact {
    host: String,
    command: String,
    /// When the greeting must have come.
    deadline: u64,
    timeout_ns: u64,
    /// The part of the greeting that has come.
    got: Vec<u8>,
    greeted: bool,
}

impl Contact {
    /// The remote shell was started at `now`.
    pub fn new(shell: &RemoteShell, host: &str, now: u64) -> Self {
        Self {
            host: host.to_owned(),
            command: shell.shown(host),
            deadline: now.saturating_add(shell.timeout_ns),
            timeout_ns: shell.timeout_ns,
            got: Vec::new(),
            greeted: false,
        }
    }

    /// Whether the agent has answered.
    pub fn greeted(&self) -> bool {
        self.greeted
    }

    /// When to ask [`Self::overdue`].
    pub fn deadline(&self) -> Option<u64> {
        (!self.greeted).then_some(self.deadline)
    }

    /// The greeting may come so many nanoseconds later.
    pub fn postpone(&mut self, by: u64) {
        self.deadline = self.deadline.saturating_add(by);
    }

    /// What to say if the greeting should have come by now and has not.
    pub fn overdue(&self, now: u64) -> Option<String> {
        (!self.greeted && now >= self.deadline).then(|| {
            format!(
                "no launch agent answered on host {} within {} s (SHMEM_RSH_TIMEOUT): {}",
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
        while !self.greeted
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
                self.greeted = true;
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
        if self.greeted {
            return format!(
                "the launch agent on host {} is gone: its remote shell {how}: {}",
                self.host, self.command
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
        format!(
            "cannot start the launch agent on host {}: the remote shell {how}: {}{hint}",
            self.host, self.command
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::unix::ffi::OsStrExt;

    fn shell() -> RemoteShell {
        RemoteShell {
            words: vec!["ssh".into(), "-x".into()],
            shmrun: b"/opt/my apps/shmrun".to_vec(),
            timeout_ns: 5_000_000_000,
        }
    }

    fn contact() -> Contact {
        Contact::new(&shell(), "b", 100)
    }

    #[test]
    fn the_command_is_one_word_for_the_remote_shell() {
        let argv = shell().argv("b");
        let want: [&[u8]; 4] = [b"ssh", b"-x", b"b", b"exec '/opt/my apps/shmrun' --agent"];
        assert_eq!(argv, want);
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
    fn odd_words_pass_a_real_shell() {
        let words: [&[u8]; 7] = [
            b"",
            b"a b",
            b"it's",
            b"$HOME `id` \"x\" \\ !",
            b"a\nb\t*?[x]",
            b"~;&|<>()#{}",
            b"\xff\xc3\xa4",
        ];
        for word in words {
            let script = [b"printf %s ", &quote(word)[..]].concat();
            let out = std::process::Command::new("sh")
                .arg("-c")
                .arg(std::ffi::OsStr::from_bytes(&script))
                .output()
                .unwrap();
            assert_eq!(out.stdout, word, "{}", String::from_utf8_lossy(&script));
        }
        assert_eq!(quote(b"/usr/bin/shmrun-1.0"), b"/usr/bin/shmrun-1.0");
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
        assert!(c.lost(None).contains("is gone"));
    }
}
