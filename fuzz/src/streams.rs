//! Streams of messages, which come in pieces of any length.

use std::fmt::Debug;

/// What decodes a stream: takes bytes, and gives the next message.
pub(crate) trait Decode: Default {
    /// What comes out of it.
    type Message: PartialEq + Debug;

    /// Takes the next bytes.
    fn push(&mut self, bytes: &[u8]);

    /// The next message that is whole; or as much of an error as does not depend on how much has come.
    fn next(&mut self) -> Result<Option<Self::Message>, String>;
}

/// Implements [`Decode`] for a decoder of PMI, whose messages are lines and something else.
macro_rules! decodes {
    ($decoder:ty, $line:path, $other:path) => {
        impl crate::streams::Decode for $decoder {
            /// Whether it is a line, and its bytes.
            type Message = (bool, Vec<u8>);

            fn push(&mut self, bytes: &[u8]) {
                Self::push(self, bytes);
            }

            fn next(&mut self) -> Result<Option<Self::Message>, String> {
                let next = self.next_message();
                let next = next.map_err(|e| format!("{:?}", std::mem::discriminant(&e)))?;
                Ok(next.map(|message| match message {
                    $line(line) => (true, line.to_vec()),
                    $other(other) => (false, other.to_vec()),
                    _ => unreachable!("a third kind of message"),
                }))
            }
        }
    };
}
pub(crate) use decodes;

/// Pieces of `data`, whose lengths the bytes decide.
fn pieces(mut data: &[u8]) -> impl Iterator<Item = &[u8]> {
    std::iter::from_fn(move || {
        let first = usize::from(*data.first()?);
        let (piece, rest) = data.split_at((first % 32 + 1).min(data.len()));
        data = rest;
        Some(piece)
    })
}

fn decode<'a, D: Decode>(
    pieces: impl Iterator<Item = &'a [u8]>,
) -> Vec<Result<D::Message, String>> {
    let mut decoder = D::default();
    let mut seen = Vec::new();
    for piece in pieces {
        decoder.push(piece);
        loop {
            match decoder.next() {
                Ok(Some(message)) => seen.push(Ok(message)),
                Ok(None) => break,
                Err(e) => {
                    seen.push(Err(e));
                    return seen;
                }
            }
        }
    }
    seen
}

/// The messages of a stream.
///
/// # Panics
/// If others come out of it when it is cut into pieces.
pub(crate) fn messages<D: Decode>(data: &[u8]) -> impl Iterator<Item = D::Message> {
    let whole = decode::<D>(std::iter::once(data));
    assert_eq!(whole, decode::<D>(pieces(data)));
    whole.into_iter().flatten()
}
