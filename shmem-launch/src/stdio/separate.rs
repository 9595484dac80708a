//! Text that is not mixed: what each PE wrote, for a file of its own.

/// Pieces of PEs' output, in the order in which they came.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub struct Separate {
    bytes: Vec<u8>,
    /// Whose they are, and how many.
    pieces: Vec<(u32, usize)>,
}

impl Separate {
    /// Adds what a PE wrote.
    pub fn add(&mut self, rank: u32, data: &[u8]) {
        self.bytes.extend_from_slice(data);
        match self.pieces.last_mut() {
            Some((last, len)) if *last == rank => *len += data.len(),
            _ => self.pieces.push((rank, data.len())),
        }
    }

    /// The rank and the bytes of each piece.
    pub fn pieces(&self) -> impl Iterator<Item = (u32, &[u8])> {
        let mut rest = &self.bytes[..];
        self.pieces.iter().map(move |&(rank, len)| {
            let (piece, behind) = rest.split_at(len);
            rest = behind;
            (rank, piece)
        })
    }

    /// Bytes in all.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_of_a_pe_are_one_piece() {
        let mut text = Separate::default();
        for (rank, data) in [(1, "a"), (1, "b\n"), (2, "c"), (1, "d")] {
            text.add(rank, data.as_bytes());
        }
        let pieces: Vec<_> = text.pieces().collect();
        assert_eq!(pieces, [(1, &b"ab\n"[..]), (2, b"c"), (1, b"d")]);
        assert_eq!((text.len(), text.is_empty()), (5, false));
    }
}
