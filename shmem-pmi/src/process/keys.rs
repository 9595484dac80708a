//! Collective operations made of keys, for servers that have no others: each PE puts its value, a
//! fence makes all visible, and each gets those of the others.
//!
//! A value is put in hexadecimal digits, in as many pieces as the server's limit asks for, after
//! its length: `3:0a0b0c`. Keys carry the number of the operation, the rank and the number of the
//! piece.

use shmem_node::contract::unhex;

use super::error::Cause;
use crate::client::{Client, ClientError, Ticket, calls};
use crate::io::Connection;
use crate::wire::MAX_ALLGATHER_VALUE;

/// A started operation.
#[derive(Debug)]
pub(super) struct Started {
    number: u64,
    value_len: usize,
    puts: Vec<Ticket<()>>,
}

pub(super) fn key(what: char, number: u64, rank: u32, piece: usize) -> String {
    format!("-shmem-{what}{number}-{rank}-{piece}")
}

impl Started {
    /// Puts the value of operation `number` and starts a fence.
    pub(super) fn start(
        client: &mut Client,
        number: u64,
        rank: u32,
        value: &[u8],
    ) -> Result<(Self, Ticket<()>), ClientError> {
        let mut puts = Vec::new();
        for (piece, text) in pieces(value, client.value_max()).iter().enumerate() {
            let key = key('g', number, rank, piece);
            puts.push(client.call(&calls::Put(&key, text.as_bytes()))?);
        }
        let started = Self {
            number,
            value_len: value.len(),
            puts,
        };
        Ok((started, start_fence(client)?))
    }

    /// The tickets of what was put; once.
    pub(super) fn take_puts(&mut self) -> Vec<Ticket<()>> {
        std::mem::take(&mut self.puts)
    }

    /// After the fence: gets the values of all PEs, in the order of ranks.
    pub(super) fn collect(&self, connection: &Connection, size: u32) -> Result<Vec<u8>, Cause> {
        let mut all = Vec::with_capacity(self.value_len * size as usize);
        for rank in 0..size {
            self.get(connection, rank, &mut all)?;
        }
        Ok(all)
    }

    fn get(&self, connection: &Connection, rank: u32, all: &mut Vec<u8>) -> Result<(), Cause> {
        let mut piece = 0;
        let mut left = None;
        while left != Some(0) {
            let key = key('g', self.number, rank, piece);
            let text = connection.call(&calls::Get(&key))?;
            let fault = |fault| Cause::Contribution {
                rank,
                key: key.clone(),
                fault,
            };
            let text = text.ok_or_else(|| fault("is not there after the fence"))?;
            let (len, digits) = match left {
                Some(left) => (left, &text[..]),
                None => {
                    let (len, digits) =
                        split_length(&text).ok_or_else(|| fault("does not begin with a length"))?;
                    if len != self.value_len {
                        return Err(other_length(rank, len, self.value_len));
                    }
                    (len, digits)
                }
            };
            let bytes = unhex(digits).ok_or_else(|| fault("is not in hexadecimal digits"))?;
            // A piece without progress would be asked for again for ever.
            if bytes.is_empty() || bytes.len() > len {
                return Err(fault("has another length than it says"));
            }
            left = Some(len - bytes.len());
            all.extend_from_slice(&bytes);
            piece += 1;
        }
        Ok(())
    }
}

/// The values of an allgather are not equally long.
pub(super) fn other_length(rank: u32, len: usize, own: usize) -> Cause {
    Cause::Length {
        what: format!("a value of PE {rank}"),
        len,
        expected: format!("{own} as here"),
    }
}

/// Whether a value may be gathered.
pub(super) fn check(value: &[u8]) -> Result<(), Cause> {
    match value.len() {
        1..=MAX_ALLGATHER_VALUE => Ok(()),
        len => Err(Cause::Length {
            what: "a value".into(),
            len,
            expected: format!("1 to {MAX_ALLGATHER_VALUE}"),
        }),
    }
}

/// Starts a fence; the ticket's outcome comes when it is complete.
pub(super) fn start_fence(client: &mut Client) -> Result<Ticket<()>, ClientError> {
    let request = client.next_request();
    // Of its start nobody wants to hear.
    client.call(&calls::Ifence)?;
    client.call(&calls::Wait(request))
}

/// The texts under which a value is put, each of at most `max` bytes.
fn pieces(value: &[u8], max: usize) -> Vec<String> {
    const LENGTH: usize = 5; // digits of the longest, and the colon
    let mut first = max.saturating_sub(LENGTH) / 2;
    let mut rest = value;
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let (piece, behind) = rest.split_at(first.clamp(1, rest.len()));
        let digits: String = piece.iter().map(|byte| format!("{byte:02x}")).collect();
        pieces.push(match pieces.is_empty() {
            true => format!("{}:{digits}", value.len()),
            false => digits,
        });
        rest = behind;
        first = max / 2;
    }
    pieces
}

fn split_length(text: &[u8]) -> Option<(usize, &[u8])> {
    let colon = text.iter().position(|&byte| byte == b':')?;
    let len = std::str::from_utf8(&text[..colon]).ok()?.parse().ok()?;
    Some((len, &text[colon + 1..]))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn pieces_join_again(value in prop::collection::vec(any::<u8>(), 1..1025), max in 16usize..1024) {
            let pieces = pieces(&value, max);
            prop_assert!(pieces.iter().all(|piece| piece.len() <= max && !piece.is_empty()));
            let (len, first) = split_length(pieces[0].as_bytes()).unwrap();
            prop_assert_eq!(len, value.len());
            let mut joined = unhex(first).unwrap();
            for piece in &pieces[1..] {
                joined.extend(unhex(piece.as_bytes()).unwrap());
            }
            prop_assert_eq!(joined, value);
        }

        #[test]
        fn random_texts_never_panic(text in prop::collection::vec(any::<u8>(), 0..40)) {
            let _ = split_length(&text);
            let _ = unhex(&text);
        }
    }

    #[test]
    fn keys_fit_every_server() {
        assert!(key('g', u64::MAX, u32::MAX, 99).len() < crate::wire::MAX_KEY);
        assert_eq!(key('g', 3, 12, 0), "-shmem-g3-12-0");
    }
}
