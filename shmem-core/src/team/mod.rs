//! Teams: who belongs to one, and under which number.

#![forbid(unsafe_code)]

/// The PEs of a team, in the order of their numbers in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Members {
    /// PEs `start`, `start + stride`, ... of the job.
    Strided {
        /// PE 0 of the team.
        start: usize,
        /// From one to the next.
        stride: isize,
        /// How many.
        size: usize,
    },
}

impl Members {
    /// How many PEs there are.
    #[inline]
    pub fn len(&self) -> usize {
        let Self::Strided { size, .. } = self;
        *size
    }

    /// Whether there are none.
    #[inline]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The number in the job of PE `rank` of the team.
    #[inline]
    pub fn world_pe(&self, rank: usize) -> Option<usize> {
        let Self::Strided {
            start,
            stride,
            size,
        } = *self;
        (rank < size).then(|| start.wrapping_add_signed(stride * rank as isize))
    }

    /// The number in the team of PE `world_pe` of the job.
    pub fn rank_of(&self, world_pe: usize) -> Option<usize> {
        (0..self.len()).find(|&rank| self.world_pe(rank) == Some(world_pe))
    }
}
