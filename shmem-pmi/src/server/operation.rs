//! One collective operation at one agent, until all below have joined it: what they brought, merged,
//! and who differs from the others.

use std::fmt;

use super::Waiter;
use super::ring::Pieces;
use crate::wire::data;
use crate::wire::tree::{self, DATA_RECORDS, Direction, FENCE_PAIRS, GATHER_VALUES};

/// What a PE brings to an operation.
#[derive(Debug)]
pub(super) enum Contribution {
    /// The value of the PE.
    Gather(Vec<u8>),
    /// What the PE has put since its last fence, encoded, and the number of puts.
    Fence(Vec<u8>, u32),
    /// What the PE gives to an operation with data, and to which: the root is one of the ranks.
    Data(data::Operation, u32, Vec<u8>),
    /// The values for the PEs to the left and to the right.
    Ring(Vec<u8>, Vec<u8>),
    /// Nothing usable, and why.
    Unusable(String),
}

impl Contribution {
    /// Bytes that it holds.
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Gather(value) | Self::Data(_, _, value) => value.len(),
            Self::Fence(pairs, _) => pairs.len(),
            Self::Ring(left, right) => left.len() + right.len(),
            Self::Unusable(_) => 0,
        }
    }
}

/// Why an operation fails for all PEs: the PE that differs, and how.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Failure {
    pub(super) rank: u32,
    pub(super) reason: String,
}

/// The message that grows until all have joined; room for its header is at its front.
#[derive(Debug)]
pub(super) enum Gathered {
    /// Nobody has joined yet.
    Nothing,
    Values {
        value_len: usize,
        message: Vec<u8>,
    },
    Pairs {
        count: u32,
        message: Vec<u8>,
    },
    Ring(Pieces),
    Records {
        operation: data::Operation,
        root: u32,
        count: u32,
        message: Vec<u8>,
    },
}

impl fmt::Display for Gathered {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Nothing => f.write_str("nothing"),
            Self::Values { .. } => f.write_str("allgather"),
            Self::Pairs { .. } => f.write_str("fence"),
            Self::Ring(_) => f.write_str("ring"),
            Self::Records {
                operation, root, ..
            } if operation.has_root() => write!(f, "NLA {operation} with root {root}"),
            Self::Records { operation, .. } => write!(f, "NLA {operation}"),
        }
    }
}

#[derive(Debug)]
pub(super) struct Operation {
    pub(super) gathered: Gathered,
    /// The first PE that joined; others are compared with it.
    first: u32,
    pub(super) local: usize,
    pub(super) children: usize,
    pub(super) failure: Option<Failure>,
    pub(super) waiters: Vec<Waiter>,
}

impl Operation {
    pub(super) fn new() -> Self {
        Self {
            gathered: Gathered::Nothing,
            first: 0,
            local: 0,
            children: 0,
            failure: None,
            waiters: Vec::new(),
        }
    }

    /// Of several failures, that of the lowest rank is told.
    pub(super) fn fail(&mut self, rank: u32, reason: String) {
        if self.failure.as_ref().is_none_or(|old| rank < old.rank) {
            self.failure = Some(Failure { rank, reason });
        }
    }

    /// The place for values of `value_len` bytes of `count` PEs, unless others brought something
    /// else.
    pub(super) fn values(
        &mut self,
        who: u32,
        value_len: usize,
        count: usize,
    ) -> Result<&mut [u8], String> {
        if matches!(self.gathered, Gathered::Nothing) {
            self.first = who;
            self.gathered = Gathered::Values {
                value_len,
                message: vec![0; GATHER_VALUES + count * value_len],
            };
        }
        let first = self.first;
        let (len, message) = match &mut self.gathered {
            Gathered::Values { value_len, message } => (*value_len, message),
            other => return Err(differs(who, &"allgather", first, other)),
        };
        if len != value_len {
            return Err(format!(
                "PE {who} gave {value_len} bytes to an allgather, but PE {first} gave {len}; \
                 all must give the same number"
            ));
        }
        Ok(&mut message[GATHER_VALUES..])
    }

    /// Adds encoded pairs, unless others brought something else.
    pub(super) fn pairs(&mut self, who: u32, pairs: &[u8], number: u32) -> Result<(), String> {
        if matches!(self.gathered, Gathered::Nothing) {
            self.first = who;
            self.gathered = Gathered::Pairs {
                count: 0,
                message: vec![0; FENCE_PAIRS],
            };
        }
        match &mut self.gathered {
            Gathered::Pairs { count, message } => {
                *count = count.saturating_add(number);
                message.extend_from_slice(pairs);
                Ok(())
            }
            other => Err(differs(who, &"fence", self.first, other)),
        }
    }

    /// Adds encoded records, unless others brought something else.
    pub(super) fn records(
        &mut self,
        who: u32,
        (operation, root): (data::Operation, u32),
        records: &[u8],
        number: u32,
    ) -> Result<(), String> {
        let own = Gathered::Records {
            operation,
            root,
            count: 0,
            message: Vec::new(),
        };
        if matches!(self.gathered, Gathered::Nothing) {
            self.first = who;
            self.gathered = Gathered::Records {
                operation,
                root,
                count: 0,
                message: vec![0; DATA_RECORDS],
            };
        }
        match &mut self.gathered {
            Gathered::Records {
                operation: theirs,
                root: their_root,
                count,
                message,
            } if (*theirs, *their_root) == (operation, root) => {
                if message.len() + records.len() > data::MAX_TOTAL {
                    return Err(format!(
                        "NLA {operation}: with PE {who} it has more than {} bytes",
                        data::MAX_TOTAL
                    ));
                }
                *count = count.saturating_add(number);
                message.extend_from_slice(records);
                Ok(())
            }
            other => Err(differs(who, &own, self.first, other)),
        }
    }

    /// The pieces of a ring, unless others brought something else.
    pub(super) fn ring(&mut self, who: u32) -> Result<&mut Pieces, String> {
        if matches!(self.gathered, Gathered::Nothing) {
            self.first = who;
            self.gathered = Gathered::Ring(Pieces::default());
        }
        match &mut self.gathered {
            Gathered::Ring(pieces) => Ok(pieces),
            other => Err(differs(who, &"ring", self.first, other)),
        }
    }

    /// The pieces of a ring that nobody spoiled.
    pub(super) fn whole_ring(&self) -> Option<&Pieces> {
        match (&self.gathered, &self.failure) {
            (Gathered::Ring(pieces), None) => Some(pieces),
            _ => None,
        }
    }

    /// The message for the parent or, at the root, for the children.
    pub(super) fn seal(self, direction: Direction, request: u64) -> Vec<u8> {
        let failed = |rank, reason: &str| tree::failed(direction, request, rank, reason);
        if let Some(Failure { rank, reason }) = self.failure {
            return failed(rank, &reason);
        }
        let (mut message, sealed) = match self.gathered {
            Gathered::Values {
                value_len,
                mut message,
            } => {
                let sealed = tree::seal_gather(&mut message, direction, request, value_len);
                (message, sealed)
            }
            Gathered::Pairs { count, mut message } => {
                let sealed = tree::seal_fence(&mut message, direction, request, count);
                (message, sealed)
            }
            Gathered::Records {
                operation,
                root,
                count,
                mut message,
            } => {
                let what = (operation, root);
                let sealed = tree::seal_data(&mut message, direction, request, what, count);
                (message, sealed)
            }
            // Not reached: an operation is sealed when somebody has joined, and a ring otherwise.
            Gathered::Nothing | Gathered::Ring(_) => (failed(self.first, "nobody joined"), Ok(())),
        };
        if let Err(error) = sealed {
            message = failed(self.first, &error.to_string());
        }
        message
    }
}

fn differs(who: u32, own: &dyn fmt::Display, first: u32, other: &Gathered) -> String {
    format!(
        "PE {who} called {own}, but PE {first} called {other}; all must call the same operations \
         in the same order"
    )
}
