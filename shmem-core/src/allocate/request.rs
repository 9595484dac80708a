//! What a PE asks the heap for, as words that others can compare with theirs.

/// What a PE asks the heap for, for comparing it with others.
#[derive(Clone, Copy)]
pub(super) enum Request {
    Allocate { bytes: usize, align: usize },
    Reallocate { at: usize, bytes: usize },
    Release { at: usize },
}

impl Request {
    /// Bits of the second word that hold the kind.
    const KIND: u32 = 60;

    pub(super) fn words(self) -> [u64; 2] {
        let (kind, first, second) = match self {
            Self::Allocate { bytes, align } => (1, bytes, align),
            Self::Reallocate { at, bytes } => (2, bytes, at),
            Self::Release { at } => (3, 0, at),
        };
        [first as u64, (second as u64) | kind << Self::KIND]
    }

    pub(super) fn of_words([first, second]: [u64; 2]) -> Option<Self> {
        let (first, kind) = (first as usize, second >> Self::KIND);
        let second = (second & ((1 << Self::KIND) - 1)) as usize;
        Some(match kind {
            1 => Self::Allocate {
                bytes: first,
                align: second,
            },
            2 => Self::Reallocate {
                at: second,
                bytes: first,
            },
            3 => Self::Release { at: second },
            _ => return None,
        })
    }
}

impl std::fmt::Display for Request {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Allocate { bytes, align } => {
                write!(f, "asks for {bytes} bytes aligned to {align}")
            }
            Self::Reallocate { at, bytes } => {
                write!(f, "asks for {bytes} bytes for the block at offset {at:#x}")
            }
            Self::Release { at } => write!(f, "frees the block at offset {at:#x}"),
        }
    }
}
