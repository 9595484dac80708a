//! What one agent asks another on behalf of a PE, and the answers.
//!
//! Collective operations involve all agents in the same order. These do not: a question goes along
//! the tree to whoever can answer it, and the answer to the agent of the PE that asked. A binary
//! format of our own: a kind byte, then fields; byte strings are preceded by their length (u32,
//! little-endian).

use std::fmt;

/// Most bytes that an encoded question or answer may have.
pub const MAX_LEN: usize = 1 << 20;

/// Reason of [`Answer::Refused`], with `rc` 1, for a service that is published already.
pub const NAME_TAKEN: &str = "key_already_present";

/// Reason of [`Answer::Refused`], with `rc` 1, for a service that nobody has published.
pub const NO_SUCH_NAME: &str = "service_not_found";

/// A question.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Question {
    /// The value of a key that the asking agent's cache does not hold. Goes towards the root; the
    /// first agent that has it answers, and the root says if there is none.
    Lookup {
        /// The key.
        key: Vec<u8>,
    },
    /// The value of a key that a certain PE puts, before any fence (direct exchange). Goes to the agent
    /// of that PE, which answers when the PE has put it.
    Fetch {
        /// Rank of the PE that puts the key.
        owner: u32,
        /// The key.
        key: Vec<u8>,
    },
    /// The next message of a certain PE to the one that asks. Goes to the agent of that PE, which
    /// answers when there is one.
    Receive {
        /// Rank of the PE that sends.
        from: u32,
    },
    /// Publishes a service name. Goes to the launcher, and so do all that follow.
    Publish {
        /// The service.
        name: Vec<u8>,
        /// Where it is to be found.
        port: Vec<u8>,
    },
    /// Where a service is to be found.
    LookupName {
        /// The service.
        name: Vec<u8>,
    },
    /// Takes a service name back.
    Unpublish {
        /// The service.
        name: Vec<u8>,
    },
    /// Starts another job.
    Spawn(SpawnRequest),
}

/// A job that a PE wants to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpawnRequest {
    /// Its programs, in the order of ranks.
    pub commands: Vec<SpawnCommand>,
    /// Pairs that are in the new job's key-value space from the start.
    pub preputs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One program of a job to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SpawnCommand {
    /// File or name of the program.
    pub program: Vec<u8>,
    /// Its arguments, without its own name.
    pub args: Vec<Vec<u8>>,
    /// How many processes.
    pub procs: u32,
    /// Hints such as `wdir`, `host`.
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Answer {
    /// The value of a key, if there is one. The key is repeated for the caches on the way.
    Value {
        /// The key that was asked for.
        key: Vec<u8>,
        /// Its value.
        value: Option<Vec<u8>>,
    },
    /// What another PE gave: the value of a key, or a message.
    Bytes(Vec<u8>),
    /// The name was published or taken back.
    Done,
    /// Where the service is to be found.
    Port(Vec<u8>),
    /// The job runs.
    Spawned {
        /// Its id.
        job_id: String,
    },
    /// No.
    Refused {
        /// Return code, not 0.
        rc: i32,
        /// Why, in words.
        reason: String,
    },
}

/// Bytes that are no question or no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Malformed(pub &'static str);

impl fmt::Display for Malformed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "malformed question or answer between agents: {}", self.0)
    }
}

impl std::error::Error for Malformed {}

mod kind {
    pub(super) const LOOKUP: u8 = 1;
    pub(super) const FETCH: u8 = 2;
    pub(super) const PUBLISH: u8 = 3;
    pub(super) const LOOKUP_NAME: u8 = 4;
    pub(super) const UNPUBLISH: u8 = 5;
    pub(super) const SPAWN: u8 = 6;
    pub(super) const RECEIVE: u8 = 21;

    pub(super) const VALUE: u8 = 1;
    pub(super) const NO_VALUE: u8 = 2;
    pub(super) const DONE: u8 = 3;
    pub(super) const PORT: u8 = 4;
    pub(super) const SPAWNED: u8 = 5;
    pub(super) const REFUSED: u8 = 6;
    pub(super) const BYTES: u8 = 21;
}

impl Question {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        match self {
            Self::Lookup { key } => out.kind(kind::LOOKUP).bytes(key),
            Self::Fetch { owner, key } => out.kind(kind::FETCH).number(*owner).bytes(key),
            Self::Receive { from } => out.kind(kind::RECEIVE).number(*from),
            Self::Publish { name, port } => out.kind(kind::PUBLISH).bytes(name).bytes(port),
            Self::LookupName { name } => out.kind(kind::LOOKUP_NAME).bytes(name),
            Self::Unpublish { name } => out.kind(kind::UNPUBLISH).bytes(name),
            Self::Spawn(request) => {
                out.kind(kind::SPAWN).number(request.commands.len() as u32);
                for command in &request.commands {
                    out.bytes(&command.program).number(command.procs);
                    out.number(command.args.len() as u32);
                    for arg in &command.args {
                        out.bytes(arg);
                    }
                    out.pairs(&command.info);
                }
                out.pairs(&request.preputs)
            }
        };
        out.0
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// The bytes are none, or too many.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes)?;
        let question = match from.kind()? {
            kind::LOOKUP => Self::Lookup { key: from.bytes()? },
            kind::FETCH => Self::Fetch {
                owner: from.number()?,
                key: from.bytes()?,
            },
            kind::RECEIVE => Self::Receive {
                from: from.number()?,
            },
            kind::PUBLISH => Self::Publish {
                name: from.bytes()?,
                port: from.bytes()?,
            },
            kind::LOOKUP_NAME => Self::LookupName {
                name: from.bytes()?,
            },
            kind::UNPUBLISH => Self::Unpublish {
                name: from.bytes()?,
            },
            kind::SPAWN => Self::Spawn(SpawnRequest {
                commands: from.list(|from| {
                    Ok(SpawnCommand {
                        program: from.bytes()?,
                        procs: from.number()?,
                        args: from.list(Reader::bytes)?,
                        info: from.list(Reader::pair)?,
                    })
                })?,
                preputs: from.list(Reader::pair)?,
            }),
            _ => return Err(Malformed("unknown kind")),
        };
        from.end(question)
    }
}

impl Answer {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Writer(Vec::new());
        match self {
            Self::Value {
                key,
                value: Some(value),
            } => out.kind(kind::VALUE).bytes(key).bytes(value),
            Self::Value { key, value: None } => out.kind(kind::NO_VALUE).bytes(key),
            Self::Bytes(bytes) => out.kind(kind::BYTES).bytes(bytes),
            Self::Done => out.kind(kind::DONE),
            Self::Port(port) => out.kind(kind::PORT).bytes(port),
            Self::Spawned { job_id } => out.kind(kind::SPAWNED).bytes(job_id.as_bytes()),
            Self::Refused { rc, reason } => out
                .kind(kind::REFUSED)
                .number(rc.cast_unsigned())
                .bytes(reason.as_bytes()),
        };
        out.0
    }

    /// Reads one.
    ///
    /// # Errors
    ///
    /// As for [`Question::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let mut from = Reader::new(bytes)?;
        let answer = match from.kind()? {
            kind::VALUE => Self::Value {
                key: from.bytes()?,
                value: Some(from.bytes()?),
            },
            kind::NO_VALUE => Self::Value {
                key: from.bytes()?,
                value: None,
            },
            kind::BYTES => Self::Bytes(from.bytes()?),
            kind::DONE => Self::Done,
            kind::PORT => Self::Port(from.bytes()?),
            kind::SPAWNED => Self::Spawned {
                job_id: from.text()?,
            },
            kind::REFUSED => Self::Refused {
                rc: from.number()?.cast_signed(),
                reason: from.text()?,
            },
            _ => return Err(Malformed("unknown kind")),
        };
        from.end(answer)
    }
}

struct Writer(Vec<u8>);

impl Writer {
    fn kind(&mut self, kind: u8) -> &mut Self {
        self.0.push(kind);
        self
    }

    fn number(&mut self, number: u32) -> &mut Self {
        self.0.extend_from_slice(&number.to_le_bytes());
        self
    }

    fn bytes(&mut self, bytes: &[u8]) -> &mut Self {
        // Whoever asks has bounded the whole by MAX_LEN.
        self.number(bytes.len() as u32);
        self.0.extend_from_slice(bytes);
        self
    }

    fn pairs(&mut self, pairs: &[(Vec<u8>, Vec<u8>)]) -> &mut Self {
        self.number(pairs.len() as u32);
        for (key, value) in pairs {
            self.bytes(key).bytes(value);
        }
        self
    }
}

struct Reader<'a>(&'a [u8]);

impl<'a> Reader<'a> {
    fn new(bytes: &'a [u8]) -> Result<Self, Malformed> {
        match bytes.len() <= MAX_LEN {
            true => Ok(Self(bytes)),
            false => Err(Malformed("too long")),
        }
    }

    fn kind(&mut self) -> Result<u8, Malformed> {
        let (&kind, rest) = self.0.split_first().ok_or(Malformed("empty"))?;
        self.0 = rest;
        Ok(kind)
    }

    fn number(&mut self) -> Result<u32, Malformed> {
        let (&number, rest) = self.0.split_first_chunk().ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(u32::from_le_bytes(number))
    }

    fn bytes(&mut self) -> Result<Vec<u8>, Malformed> {
        let len = self.number()? as usize;
        let (bytes, rest) = self.0.split_at_checked(len).ok_or(Malformed("cut short"))?;
        self.0 = rest;
        Ok(bytes.to_vec())
    }

    fn text(&mut self) -> Result<String, Malformed> {
        String::from_utf8(self.bytes()?).map_err(|_| Malformed("text is not UTF-8"))
    }

    fn pair(&mut self) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
        Ok((self.bytes()?, self.bytes()?))
    }

    /// Grows with what is there, not with the number that was announced.
    fn list<T>(
        &mut self,
        mut one: impl FnMut(&mut Self) -> Result<T, Malformed>,
    ) -> Result<Vec<T>, Malformed> {
        let mut list = Vec::new();
        for _ in 0..self.number()? {
            list.push(one(self)?);
        }
        Ok(list)
    }

    fn end<T>(self, done: T) -> Result<T, Malformed> {
        match self.0.is_empty() {
            true => Ok(done),
            false => Err(Malformed("bytes after the end")),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::collection::vec;
    use proptest::prelude::*;

    fn text() -> impl Strategy<Value = Vec<u8>> {
        vec(any::<u8>(), 0..20)
    }

    fn pairs() -> impl Strategy<Value = Vec<(Vec<u8>, Vec<u8>)>> {
        vec((text(), text()), 0..4)
    }

    fn question() -> impl Strategy<Value = Question> {
        let command = (text(), vec(text(), 0..4), any::<u32>(), pairs()).prop_map(
            |(program, args, procs, info)| SpawnCommand {
                program,
                args,
                procs,
                info,
            },
        );
        prop_oneof![
            text().prop_map(|key| Question::Lookup { key }),
            (any::<u32>(), text()).prop_map(|(owner, key)| Question::Fetch { owner, key }),
            any::<u32>().prop_map(|from| Question::Receive { from }),
            (text(), text()).prop_map(|(name, port)| Question::Publish { name, port }),
            text().prop_map(|name| Question::LookupName { name }),
            text().prop_map(|name| Question::Unpublish { name }),
            (vec(command, 0..4), pairs()).prop_map(|(commands, preputs)| Question::Spawn(
                SpawnRequest { commands, preputs }
            )),
        ]
    }

    fn answer() -> impl Strategy<Value = Answer> {
        prop_oneof![
            (text(), proptest::option::of(text()))
                .prop_map(|(key, value)| Answer::Value { key, value }),
            text().prop_map(Answer::Bytes),
            Just(Answer::Done),
            text().prop_map(Answer::Port),
            "\\PC{0,20}".prop_map(|job_id| Answer::Spawned { job_id }),
            (any::<i32>(), "\\PC{0,20}").prop_map(|(rc, reason)| Answer::Refused { rc, reason }),
        ]
    }

    proptest! {
        #[test]
        fn both_round_trip(question in question(), answer in answer()) {
            prop_assert_eq!(Question::decode(&question.encode()), Ok(question));
            prop_assert_eq!(Answer::decode(&answer.encode()), Ok(answer));
        }

        #[test]
        fn damage_never_panics(question in question(), at: usize, to: u8, cut: usize) {
            let mut bytes = question.encode();
            let at = at % bytes.len();
            bytes[at] = to;
            let _ = Question::decode(&bytes);
            let _ = Answer::decode(&bytes);
            let _ = Question::decode(&bytes[..cut % bytes.len()]);
        }
    }
}
