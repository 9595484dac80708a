//! Remote shells: how an agent on another host is called, and what its parent knows of it until it
//! has answered. Pure; `driver::shell` starts the processes.
//!
//! # The command
//! A remote shell is whatever executes a command on a host and lasts as long as it, with standard input and
//! output, which are the link: ssh, or what a batch system has for that. Its words may hold `{host}`, and
//! `{command}` for the words to execute, as srun takes them. Without `{command}` they are followed by the host, unless
//! `{host}` is in them, and by one line `exec SHMRUN --agent`, quoted for the shell there, as ssh, dbclient and rsh
//! take it; `exec` leaves no shell between the remote shell's server and the agent.

mod contact;

pub use contact::{Contact, greeting};

use serde::{Deserialize, Serialize};

/// How agents on other hosts are started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RemoteShell {
    /// The command and its options.
    pub words: Vec<String>,
    /// What on the host executes the agent in its turn, if anything does.
    pub before: Vec<String>,
    /// What is executed on the host: a path, or a name that is in `PATH` there.
    pub shmrun: Vec<u8>,
    /// Variables that are none of the command's.
    pub without: Vec<String>,
    /// How long an agent may take to send its greeting, all attempts together.
    pub timeout_ns: u64,
    /// Agents whose greeting is waited for at a time by each of their parents.
    pub starts: u32,
    /// How often a host is tried again.
    pub retries: u32,
}

impl RemoteShell {
    /// The words that are executed on the host.
    fn agent(&self) -> Vec<Vec<u8>> {
        let before = self.before.iter().map(|w| w.as_bytes().to_vec());
        before
            .chain([self.shmrun.clone(), b"--agent".to_vec()])
            .collect()
    }

    /// The same for the shell there.
    fn line(&self) -> Vec<u8> {
        let quoted: Vec<_> = self.agent().iter().map(|w| quote(w)).collect();
        [b"exec ".to_vec(), quoted.join(&b' ')].concat()
    }

    /// The arguments of the remote shell, with the zeroth. `target` is what it calls the host.
    pub fn argv(&self, target: &str) -> Vec<Vec<u8>> {
        const HOST: &str = "{host}";
        const COMMAND: &str = "{command}";
        let has = |what| self.words.iter().any(|w| w.contains(what));
        let mut argv: Vec<Vec<u8>> = Vec::new();
        for word in &self.words {
            if word == COMMAND {
                argv.extend(self.agent());
                continue;
            }
            let word = word.replace(HOST, target);
            let mut parts = word.split(COMMAND);
            let mut out = parts.next().unwrap_or_default().as_bytes().to_vec();
            for part in parts {
                out.extend_from_slice(&self.line());
                out.extend_from_slice(part.as_bytes());
            }
            argv.push(out);
        }
        if !has(HOST) && !has(COMMAND) {
            argv.push(target.as_bytes().to_vec());
        }
        if !has(COMMAND) {
            argv.push(self.line());
        }
        argv
    }

    /// The call as a user would type it.
    pub fn shown(&self, target: &str) -> String {
        let argv = self.argv(target);
        let words = argv
            .iter()
            .map(|w| String::from_utf8_lossy(&quote(w)).into_owned());
        words.collect::<Vec<_>>().join(" ")
    }

    /// What the command is called in messages.
    fn name(&self) -> &str {
        let path = self.words.first().map_or("", String::as_str);
        path.rsplit('/').next().unwrap_or(path)
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

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::ffi::OsStrExt;

    pub(super) fn shell() -> RemoteShell {
        RemoteShell {
            words: vec!["/usr/bin/ssh".into(), "-x".into()],
            shmrun: b"/opt/my apps/shmrun".to_vec(),
            timeout_ns: 5_000_000_000,
            retries: 2,
            ..RemoteShell::default()
        }
    }

    #[test]
    fn the_command_is_one_word_for_the_remote_shell() {
        let argv = shell().argv("b");
        let want: [&[u8]; 4] = [
            b"/usr/bin/ssh",
            b"-x",
            b"b",
            b"exec '/opt/my apps/shmrun' --agent",
        ];
        assert_eq!(argv, want);
    }

    #[test]
    fn host_and_command_stand_where_they_are_wanted() {
        let of = |words: &str, before: &[&str]| {
            let list = |words: &[&str]| words.iter().map(|w| (*w).to_owned()).collect();
            let shell = RemoteShell {
                words: list(&words.split(' ').collect::<Vec<_>>()),
                before: list(before),
                ..shell()
            };
            let argv = shell
                .argv("b")
                .into_iter()
                .map(|w| String::from_utf8(w).unwrap());
            argv.collect::<Vec<_>>().join("|")
        };
        let agent = "/opt/my apps/shmrun|--agent";
        assert_eq!(
            of("srun -w {host} {command}", &[]),
            format!("srun|-w|b|{agent}")
        );
        assert_eq!(
            of("run --on={host} --", &[]),
            "run|--on=b|--|exec '/opt/my apps/shmrun' --agent"
        );
        assert_eq!(
            of("on x={command};", &[]),
            "on|x=exec '/opt/my apps/shmrun' --agent;"
        );
        assert_eq!(of("box {command}", &[]), format!("box|{agent}"));
        assert_eq!(
            of("ssh", &["attach", "-j", "7[1]"]),
            "ssh|b|exec attach -j '7[1]' '/opt/my apps/shmrun' --agent"
        );
        assert_eq!(
            of("go {host} {command}", &["attach"]),
            format!("go|b|attach|{agent}")
        );
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
}
