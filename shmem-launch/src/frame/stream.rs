//! The two ends of a link's byte stream: frames cut out of what comes, and frames waiting to be
//! written. Both copy as little as they can: most frames are seen where the socket put them, and
//! bytes that go to several links are stored once.

use std::collections::VecDeque;
use std::io::IoSlice;
use std::ops::Range;
use std::sync::Arc;

use super::codec::CodecError;
use super::{FRAME_MAX, Frame, OUTPUT_WINDOW};

/// Cuts a byte stream into frames.
#[derive(Debug, Default)]
pub struct FrameReader {
    /// The beginning of a frame of which the rest has not come; or the frame given last, which is
    /// complete.
    partial: Vec<u8>,
    given: bool,
}

impl FrameReader {
    /// The content (kind and body) of the next complete frame, taken from what was left of earlier
    /// bytes and from the front of `bytes`. Call it until it gives `None`; by then all bytes are
    /// taken.
    ///
    /// # Errors
    /// When the stream announces a frame that nobody sends. The stream is lost then.
    pub fn next_frame<'a, 'b: 'a>(
        &'a mut self,
        bytes: &mut &'b [u8],
    ) -> Result<Option<&'a [u8]>, CodecError> {
        if std::mem::take(&mut self.given) {
            self.partial.clear();
        }
        if self.partial.is_empty() {
            if let Some(len) = frame_len(bytes)?
                && let Some((frame, rest)) = bytes.split_at_checked(4 + len)
            {
                *bytes = rest;
                return Ok(Some(&frame[4..]));
            }
        } else if self.partial.len() < 4 {
            self.take(4 - self.partial.len(), bytes);
        }
        let Some(len) = frame_len(&self.partial)? else {
            if self.partial.is_empty() {
                self.take(bytes.len(), bytes);
            }
            return Ok(None);
        };
        self.take(4 + len - self.partial.len(), bytes);
        self.given = self.partial.len() == 4 + len;
        Ok(self.given.then_some(&self.partial[4..]))
    }

    /// Stores up to `most` bytes from the front of `bytes`.
    fn take(&mut self, most: usize, bytes: &mut &[u8]) {
        let (taken, rest) = bytes.split_at(most.min(bytes.len()));
        self.partial.extend_from_slice(taken);
        *bytes = rest;
    }
}

/// Gives each frame that came over a link of a machine to `each`. Its reader is taken from the machine
/// meanwhile, and nothing happens where there is none.
///
/// # Errors
/// When the bytes are no frames of this version. The stream is lost then.
pub fn each_frame<M>(
    machine: &mut M,
    reader: impl Fn(&mut M) -> Option<&mut FrameReader>,
    mut bytes: &[u8],
    mut each: impl FnMut(&mut M, Frame<'_>),
) -> Result<(), CodecError> {
    let Some(mut own) = reader(machine).map(std::mem::take) else {
        return Ok(());
    };
    let understood = loop {
        match own.next_frame(&mut bytes) {
            Ok(None) => break Ok(()),
            Ok(Some(content)) => match Frame::decode(content) {
                Ok(frame) => each(machine, frame),
                Err(e) => break Err(e),
            },
            Err(e) => break Err(e),
        }
    };
    if let Some(reader) = reader(machine) {
        *reader = own;
    }
    understood
}

/// Length of the frame's content, if that much has come.
fn frame_len(bytes: &[u8]) -> Result<Option<usize>, CodecError> {
    let Some(len) = bytes.first_chunk::<4>() else {
        return Ok(None);
    };
    match u32::from_le_bytes(*len) as usize {
        len if len > FRAME_MAX => Err(CodecError::TooLong(len)),
        len => Ok(Some(len)),
    }
}

/// A run of outgoing bytes.
#[derive(Debug)]
enum Chunk {
    Own(Vec<u8>),
    Shared(Arc<Vec<u8>>, Range<usize>),
}

impl Chunk {
    fn bytes(&self) -> &[u8] {
        match self {
            Self::Own(bytes) => bytes,
            Self::Shared(buffer, range) => &buffer[range.clone()],
        }
    }
}

/// Shorter runs are copied: a reference to them would cost more.
const SHARE_FROM: usize = 1 << 10;

/// Bytes on their way out of a link.
#[derive(Debug, Default)]
pub struct OutBuf {
    /// Nonempty ones.
    chunks: VecDeque<Chunk>,
    /// Bytes of the first chunk that were written.
    start: usize,
    /// An empty buffer, kept for its memory.
    spare: Vec<u8>,
    /// Bytes that were written so far.
    written: u64,
}

impl OutBuf {
    /// Appends a frame.
    pub fn send(&mut self, frame: &Frame<'_>) {
        frame.encode(self.tail());
    }

    /// Appends a `Pmi` frame with the bytes of `buffer` in `range`, which may go to other links
    /// too.
    pub fn send_pmi(&mut self, buffer: &Arc<Vec<u8>>, range: Range<usize>) {
        self.send_shared(super::PMI, buffer, range);
    }

    /// The same with an `Addresses` frame.
    pub fn send_addresses(&mut self, buffer: &Arc<Vec<u8>>, range: Range<usize>) {
        self.send_shared(super::ADDRESSES, buffer, range);
    }

    /// Appends a `Pmix` frame with a message that may go to other links too.
    pub fn send_pmix(&mut self, message: &Arc<Vec<u8>>) {
        self.send_shared(super::PMIX, message, 0..message.len());
    }

    fn send_shared(&mut self, kind: u8, buffer: &Arc<Vec<u8>>, range: Range<usize>) {
        if range.len() < SHARE_FROM {
            super::encode_run(self.tail(), kind, &buffer[range]);
        } else {
            super::encode_run_header(self.tail(), kind, range.len());
            self.chunks
                .push_back(Chunk::Shared(Arc::clone(buffer), range));
        }
    }

    /// Where encoded frames may be appended, and must be.
    pub fn tail(&mut self) -> &mut Vec<u8> {
        if !matches!(self.chunks.back(), Some(Chunk::Own(_))) {
            let empty = std::mem::take(&mut self.spare);
            self.chunks.push_back(Chunk::Own(empty));
        }
        match self.chunks.back_mut() {
            Some(Chunk::Own(bytes)) => bytes,
            _ => unreachable!("pushed above"),
        }
    }

    /// Whether nothing waits to be written.
    pub fn is_empty(&self) -> bool {
        self.chunks.is_empty()
    }

    /// What waits to be written, or its beginning; empty only when nothing does.
    pub fn pending(&self) -> &[u8] {
        self.chunks
            .front()
            .map_or(&[], |chunk| &chunk.bytes()[self.start..])
    }

    /// The beginning of what waits to be written, in as many runs as there is room for. Gives their
    /// number.
    pub fn runs<'a>(&'a self, runs: &mut [IoSlice<'a>]) -> usize {
        let mut start = self.start;
        let mut n = 0;
        for (run, chunk) in runs.iter_mut().zip(&self.chunks) {
            *run = IoSlice::new(&chunk.bytes()[std::mem::take(&mut start)..]);
            n += 1;
        }
        n
    }

    /// Notes that the first `n` pending bytes were written.
    pub fn consume(&mut self, n: usize) {
        self.written += n as u64;
        self.start += n;
        while let Some(chunk) = self.chunks.front() {
            let len = chunk.bytes().len();
            if self.start < len {
                return self.close_gap();
            }
            self.start -= len;
            if let Some(Chunk::Own(mut bytes)) = self.chunks.pop_front()
                && bytes.capacity() > self.spare.capacity()
            {
                bytes.clear();
                // A burst must not stay reserved for the rest of the job.
                bytes.shrink_to(OUTPUT_WINDOW as usize);
                self.spare = bytes;
            }
        }
        debug_assert_eq!(self.start, 0);
    }

    /// How many bytes were written so far.
    pub fn written(&self) -> u64 {
        self.written
    }

    /// Takes everything that waits, for a link that is no socket.
    pub fn take(&mut self) -> Vec<u8> {
        let bytes = self.chunks.iter().flat_map(Chunk::bytes).copied();
        let bytes: Vec<u8> = bytes.skip(self.start).collect();
        self.written += bytes.len() as u64;
        self.clear();
        bytes
    }

    /// Forgets everything that waits.
    pub fn clear(&mut self) {
        self.chunks.clear();
        self.start = 0;
    }

    /// A buffer to which more is appended all the time must not keep what was written.
    fn close_gap(&mut self) {
        if let Some(Chunk::Own(bytes)) = self.chunks.front_mut()
            && self.start > 64 << 10
            && self.start * 2 > bytes.len()
        {
            bytes.drain(..self.start);
            self.start = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn absurd_lengths_are_refused() {
        let mut reader = FrameReader::default();
        assert_eq!(
            reader.next_frame(&mut &u32::MAX.to_le_bytes()[..]),
            Err(CodecError::TooLong(u32::MAX as usize))
        );
    }

    #[test]
    fn outgoing_bytes_are_written_in_order() {
        let mut out = OutBuf::default();
        let mut seen = Vec::new();
        let mut want = Vec::new();
        for i in 0..5000u32 {
            out.send(&Frame::Credit(i));
            Frame::Credit(i).encode(&mut want);
            if i % 100 < 3 {
                // Now copied, now shared.
                let buffer = Arc::new(vec![i as u8; 500 + 500 * (i as usize % 3)]);
                out.send_pmi(&buffer, 1..buffer.len());
                Frame::Pmi(&buffer[1..]).encode(&mut want);
            }
            if i % 7 == 0 {
                let mut runs = [IoSlice::new(&[]); 3];
                let n = out.runs(&mut runs);
                let ready = runs[..n]
                    .iter()
                    .map(|run| &run[..])
                    .collect::<Vec<_>>()
                    .concat();
                assert!(n > 0 && ready.starts_with(out.pending()));
                let n = ready.len().min(1 + i as usize % 400);
                seen.extend_from_slice(&ready[..n]);
                out.consume(n);
            }
        }
        seen.extend(out.take());
        assert!(out.is_empty() && out.pending().is_empty());
        assert_eq!(seen, want);
    }
}
