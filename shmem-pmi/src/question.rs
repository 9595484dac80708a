//! What one agent asks another on behalf of a PE, and the answers.
//!
//! Collective operations involve all agents in the same order. These do not: a question goes along
//! the tree to whoever can answer it, and the answer to the agent of the PE that asked. They are few,
//! so their bytes are what postcard makes of the types here. Their order counts: add new ones at the
//! end, and raise [`crate::wire::tree::VERSION`].

use std::fmt;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Most bytes that an encoded question or answer may have.
pub const MAX_LEN: usize = 1 << 20;

/// Reason of [`Answer::Refused`], with `rc` 1, for a service that is published already.
pub const NAME_TAKEN: &str = "key_already_present";

/// Reason of [`Answer::Refused`], with `rc` 1, for a service that nobody has published.
pub const NO_SUCH_NAME: &str = "service_not_found";

/// A question.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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
        /// Where the service is to be found.
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
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnRequest {
    /// Programs, in the order of ranks.
    pub commands: Vec<SpawnCommand>,
    /// Pairs that are in the new job's key-value space from the start.
    pub preputs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// One program of a job to be started.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SpawnCommand {
    /// File or name of the program.
    pub program: Vec<u8>,
    /// Arguments, without the name of the program.
    pub args: Vec<Vec<u8>>,
    /// How many processes.
    pub procs: u32,
    /// Hints such as `wdir`, `host`.
    pub info: Vec<(Vec<u8>, Vec<u8>)>,
}

/// An answer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[non_exhaustive]
pub enum Answer {
    /// The value of a key, if there is one. The key is repeated for the caches on the way.
    Value {
        /// The key that was asked for.
        key: Vec<u8>,
        /// The value of the key.
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
        /// Id of the job.
        job_id: String,
    },
    /// The question cannot be granted.
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

impl Question {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads a question.
    ///
    /// # Errors
    ///
    /// The bytes are none, or too many.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        decode(bytes)
    }
}

impl Answer {
    /// The bytes of it.
    pub fn encode(&self) -> Vec<u8> {
        encode(self)
    }

    /// Reads an answer.
    ///
    /// # Errors
    ///
    /// As for [`Question::decode`].
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        decode(bytes)
    }
}

fn encode(what: &impl Serialize) -> Vec<u8> {
    // Only what has no length in advance fails, of which there is nothing here.
    postcard::to_stdvec(what).unwrap_or_default()
}

/// Memory is bounded by what is there: serde reserves at most 1 MiB for a length that is merely
/// announced.
fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, Malformed> {
    if bytes.len() > MAX_LEN {
        return Err(Malformed("too long"));
    }
    match postcard::take_from_bytes(bytes) {
        Ok((what, [])) => Ok(what),
        Ok(_) => Err(Malformed("bytes after the end")),
        Err(_) => Err(Malformed("of no known form")),
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
        fn random_bytes_never_panic(bytes in vec(any::<u8>(), 0..60)) {
            let _ = (Question::decode(&bytes), Answer::decode(&bytes));
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

    #[test]
    fn announced_lengths_reserve_little() {
        // A spawn request of 2^32 - 1 programs, a name as long, and too many bytes behind a question.
        for bytes in [
            &[6, 0xff, 0xff, 0xff, 0xff, 0x0f][..],
            &[5, 0xff, 0xff, 0xff, 0xff, 0x0f, b'n'],
            &[2, 3, 0],
            &[0; MAX_LEN + 1],
        ] {
            assert!(Question::decode(bytes).is_err());
        }
        assert_eq!(Question::decode(&[2, 3]), Ok(Question::Receive { from: 3 }));
    }
}
