//! What a PE waits for, as it tells it in its block of the node's memory.
//!
//! A PE that leaves the fast path of an operation and is about to sleep writes down for what
//! ([`Record`]); who wants to know (`kill -USR1` on `shmrun`) reads it there, and the PE notices nothing.
//! A [`Wait`] is a few words without pointers, since reader and writer are different processes. The
//! reader takes whatever it finds: words that say nothing it knows are no wait.

#![forbid(unsafe_code)]

mod place;
mod record;

pub use crate::routine::{Collective, Form};
pub use place::Place;
pub use record::{Record, Seen, WAITERS};

use serde::{Deserialize, Serialize};

use crate::numbered::numbered;

/// Words that a wait takes.
pub const WORDS: usize = FACTS + place::WORDS;

/// Those that say what it is. Others say where the program was when it began.
const FACTS: usize = 5;

numbered! {
    /// How the members of a team are named.
    TeamKind {
        World = 1, "the world team";
        Shared = 2, "the shared team";
        Split = 3, "the team";
        Active = 4, "the active set";
    }
}

numbered! {
    /// How a word is compared.
    Comparison {
        Eq = 1, "==";
        Ne = 2, "!=";
        Gt = 3, ">";
        Ge = 4, ">=";
        Lt = 5, "<";
        Le = 6, "<=";
    }
}

numbered! {
    /// How a word is read.
    Number {
        U16 = 1, "u16";
        I16 = 2, "i16";
        U32 = 3, "u32";
        I32 = 4, "i32";
        U64 = 5, "u64";
        I64 = 6, "i64";
        F32 = 7, "f32";
        F64 = 8, "f64";
    }
}

numbered! {
    /// For what of a PE on another node a PE waits.
    Remote {
        Address = 1, "the address";
        Connection = 2, "an answer to a request for a connection";
        Memory = 3, "word of the memory";
        Operation = 4, "the end of an operation";
        Quiet = 5, "the completion of operations";
        Leave = 6, "the farewell";
    }
}

numbered! {
    /// Why a PE stands at a lock.
    LockWait {
        Turn = 1, "its turn";
        Thread = 2, "a thread of the same PE";
        Next = 3, "the next in the queue";
    }
}

impl Number {
    /// Bytes of a word.
    #[must_use]
    pub const fn size(self) -> usize {
        match self {
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 => 8,
        }
    }

    /// The number in these bits, the lowest first.
    #[must_use]
    pub fn show(self, bits: u64) -> String {
        match self {
            Self::U16 => (bits as u16).to_string(),
            Self::I16 => (bits as i16).to_string(),
            Self::U32 => (bits as u32).to_string(),
            Self::I32 => (bits as i32).to_string(),
            Self::U64 => bits.to_string(),
            Self::I64 => (bits as i64).to_string(),
            Self::F32 => f32::from_bits(bits as u32).to_string(),
            Self::F64 => f64::from_bits(bits).to_string(),
        }
    }
}

/// The members of a team: `size` of them, `stride` apart, from `first` on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Team {
    /// What it is called.
    pub kind: TeamKind,
    /// Its number among the teams of its members.
    pub slot: u8,
    /// Whether the members are positions in the list of their node's PEs; else they are PEs.
    pub listed: bool,
    /// The first.
    pub first: u32,
    /// From one to the next.
    pub stride: i32,
    /// How many.
    pub size: u32,
}

/// A word of symmetric memory, and what it is to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Word {
    /// The routine.
    pub form: Form,
    /// How words are compared.
    pub cmp: Comparison,
    /// How they are read.
    pub number: Number,
    /// Offset of the first in the PE's segment; [`Word::ELSEWHERE`] if it is not symmetric.
    pub at: u64,
    /// With what the first is compared.
    pub value: u64,
    /// How many words there are.
    pub count: u64,
}

impl Word {
    /// The place of what has none in the segment.
    pub const ELSEWHERE: u64 = u64::MAX;
}

/// What a PE waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Wait {
    /// In init: for the other PEs of its node.
    Init,
    /// In an init that is not the first: for this PE of its node to leave its last life.
    InitAgain {
        /// Which.
        pe: u32,
    },
    /// In a collective.
    Collective {
        /// Which.
        call: Collective,
        /// Of whom.
        team: Team,
        /// How many collectives of the team the PE has begun, this one included.
        number: u32,
        /// Where the program called it.
        at: Place,
    },
    /// For its own memory.
    Memory {
        /// For which word of it.
        word: Word,
        /// Where the program called it.
        called: Place,
    },
    /// At a lock.
    Lock {
        /// Why.
        why: LockWait,
        /// Offset of the lock.
        at: u64,
        /// The PE before this one in the queue, if it waits for its turn.
        behind: u32,
        /// Where the program called it.
        called: Place,
    },
    /// For a PE on another node.
    Remote {
        /// For what of it.
        what: Remote,
        /// Which; [`Wait::NOBODY`] for no particular one.
        pe: u32,
        /// Operations towards it that are not complete.
        operations: u64,
        /// How many more PEs come after that one.
        more: u32,
    },
}

impl Wait {
    /// A number that no PE has.
    pub const NOBODY: u32 = u32::MAX;

    /// Where the program called what waits; nowhere for waits that are part of several calls.
    #[must_use]
    pub fn called(&self) -> Place {
        match *self {
            Self::Collective { at: called, .. }
            | Self::Memory { called, .. }
            | Self::Lock { called, .. } => called,
            Self::Init | Self::InitAgain { .. } | Self::Remote { .. } => Place::NOWHERE,
        }
    }

    /// The words that stand for it.
    #[must_use]
    pub fn encode(&self) -> [u64; WORDS] {
        let head = |kind: u8, a: u8, b: u8, c: u8, high: u32| {
            u64::from_le_bytes([kind, a, b, c, 0, 0, 0, 0]) | u64::from(high) << 32
        };
        let facts: [u64; FACTS] = match *self {
            Self::Init => [head(1, 0, 0, 0, 0), 0, 0, 0, 0],
            Self::InitAgain { pe } => [head(2, 0, 0, 0, pe), 0, 0, 0, 0],
            Self::Collective {
                call, team, number, ..
            } => {
                let kind = team.kind as u8 | u8::from(team.listed) << 7;
                let extent = u64::from(team.first) | u64::from(team.size) << 32;
                let stride = u64::from(team.stride.cast_unsigned());
                let first = head(3, call as u8, kind, team.slot, number);
                [first, extent, stride, 0, 0]
            }
            Self::Memory { word, .. } => {
                let first = head(4, word.form as u8, word.cmp as u8, word.number as u8, 0);
                [first, word.at, word.value, word.count, 0]
            }
            Self::Lock {
                why, at, behind, ..
            } => [head(5, why as u8, 0, 0, behind), at, 0, 0, 0],
            Self::Remote {
                what,
                pe,
                operations,
                more,
            } => [
                head(6, what as u8, 0, 0, pe),
                operations,
                u64::from(more),
                0,
                0,
            ],
        };
        let mut words = [0; WORDS];
        words[..FACTS].copy_from_slice(&facts);
        words[FACTS..].copy_from_slice(&self.called().words());
        words
    }

    /// What these words stand for, if they stand for anything.
    #[must_use]
    pub fn decode(words: &[u64; WORDS]) -> Option<Self> {
        let [kind, a, b, c, ..] = words[0].to_le_bytes();
        let high = (words[0] >> 32) as u32;
        let called = Place::of_words(std::array::from_fn(|i| words[FACTS + i]));
        Some(match kind {
            1 => Self::Init,
            2 => Self::InitAgain { pe: high },
            3 => Self::Collective {
                call: Collective::from_number(a)?,
                team: Team {
                    kind: TeamKind::from_number(b & 0x7f)?,
                    slot: c,
                    listed: b & 0x80 != 0,
                    first: words[1] as u32,
                    stride: (words[2] as u32).cast_signed(),
                    size: (words[1] >> 32) as u32,
                },
                number: high,
                at: called,
            },
            4 => Self::Memory {
                called,
                word: Word {
                    form: Form::from_number(a)?,
                    cmp: Comparison::from_number(b)?,
                    number: Number::from_number(c)?,
                    at: words[1],
                    value: words[2],
                    count: words[3],
                },
            },
            5 => Self::Lock {
                why: LockWait::from_number(a)?,
                at: words[1],
                behind: high,
                called,
            },
            6 => Self::Remote {
                what: Remote::from_number(a)?,
                pe: high,
                operations: words[1],
                more: words[2] as u32,
            },
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn word() -> Word {
        Word {
            form: Form::Any,
            cmp: Comparison::Ge,
            number: Number::I32,
            at: 1 << 40,
            value: 7,
            count: 3,
        }
    }

    #[test]
    fn waits_survive_their_words() {
        let team = Team {
            kind: TeamKind::Split,
            slot: 62,
            listed: true,
            first: 5,
            stride: -3,
            size: u32::MAX,
        };
        let remote = |what| Wait::Remote {
            what,
            pe: 8191,
            operations: 1 << 50,
            more: 6,
        };
        let called = Place::of(std::panic::Location::caller());
        let memory = Wait::Memory {
            word: word(),
            called,
        };
        let all = [Wait::Init, Wait::InitAgain { pe: 3 }, memory];
        let collectives = Collective::ALL.iter().map(|&call| Wait::Collective {
            call,
            team,
            number: u32::MAX,
            at: called,
        });
        let locks = LockWait::ALL.iter().map(|&why| Wait::Lock {
            why,
            at: 77,
            behind: 9,
            called,
        });
        let remotes = Remote::ALL.iter().map(|&what| remote(what));
        for wait in all
            .into_iter()
            .chain(collectives)
            .chain(locks)
            .chain(remotes)
        {
            assert_eq!(Wait::decode(&wait.encode()), Some(wait));
        }
        assert_eq!(Wait::decode(&[0; WORDS]), None);
    }

    #[test]
    fn numbers_are_shown_as_what_they_are() {
        for (number, bits, text) in [
            (Number::I16, 0xffff, "-1"),
            (Number::U16, 0x1_ffff, "65535"),
            (Number::I32, 0xffff_ffff, "-1"),
            (Number::I64, u64::MAX, "-1"),
            (Number::U64, u64::MAX, "18446744073709551615"),
            (Number::F64, 1.5f64.to_bits(), "1.5"),
            (Number::F32, u64::from(0.25f32.to_bits()), "0.25"),
        ] {
            assert_eq!(number.show(bits), text);
        }
    }

    proptest! {
        /// Whatever a PE has written over its block.
        #[test]
        fn any_words_are_a_wait_or_none(words: [u64; WORDS]) {
            if let Some(wait) = Wait::decode(&words) {
                prop_assert_eq!(Wait::decode(&wait.encode()), Some(wait));
            }
        }
    }
}
