//! What a PE can be in, as [`crate::waiting`] shows it and [`crate::recording`] records it: the routines of
//! OpenSHMEM, folded where forms differ in types only, the steps of its start and end, and what its connections
//! do meanwhile.

use crate::numbered::{numbered, some_of};

numbered! {
    /// A routine, or a step of the PE's life.
    Routine {
        InitMap = 1, "init: map segment";
        InitEndpoint = 2, "init: UD endpoint";
        InitGather = 3, "init: start allgather";
        InitRegister = 4, "init: register heap";
        InitConnect = 5, "init: static connections";
        InitBarrier = 6, "init: node barrier";
        Finalize = 7, "finalize";
        Put = 10, "put";
        PutNbi = 11, "put_nbi";
        PutSignal = 12, "put_signal";
        PutSignalNbi = 13, "put_signal_nbi";
        Iput = 14, "iput";
        Get = 15, "get";
        GetNbi = 16, "get_nbi";
        Iget = 17, "iget";
        AtomicFetching = 20, "atomic, fetching";
        AtomicPlain = 21, "atomic";
        AtomicNbi = 22, "atomic_nbi";
        Quiet = 30, "quiet";
        PeQuiet = 31, "pe_quiet";
        Fence = 32, "fence";
        WaitUntil = 40, "wait_until";
        WaitUntilAll = 41, "wait_until_all";
        WaitUntilAny = 42, "wait_until_any";
        WaitUntilSome = 43, "wait_until_some";
        SetLock = 44, "set_lock";
        TestLock = 45, "test_lock";
        ClearLock = 46, "clear_lock";
        Barrier = 50, "barrier";
        Sync = 51, "sync";
        Broadcast = 52, "broadcast";
        Reduce = 53, "reduction";
        Scan = 54, "scan";
        Fcollect = 55, "fcollect";
        Collect = 56, "collect";
        Alltoall = 57, "alltoall";
        Split = 58, "split";
        Alloc = 60, "alloc";
        Realloc = 61, "realloc";
        Free = 62, "free";
        Destroy = 63, "destroy";
        AllGather = 64, "all_gather";
        AllGatherParts = 65, "all_gather_parts";
        Alltoallv = 66, "alltoallv";
        Gather = 67, "gather";
        Scatter = 68, "scatter";
        Connect = 70, "connect";
        Disconnect = 71, "disconnect";
    }
}

/// One more than the highest number of a routine.
pub const ROUTINES: usize = 72;

numbered! {
    /// What routines are told apart by in a picture.
    Group {
        Life = 1, "start and end";
        Rma = 2, "put and get";
        Atomic = 3, "atomics";
        Order = 4, "quiet and fence";
        Wait = 5, "waits";
        Collective = 6, "collectives";
        Memory = 7, "memory and teams";
        Network = 8, "connections";
    }
}

impl Routine {
    /// The group that it belongs to.
    #[must_use]
    pub const fn group(self) -> Group {
        match self as u8 {
            ..=9 => Group::Life,
            10..=19 => Group::Rma,
            20..=29 => Group::Atomic,
            30..=39 => Group::Order,
            40..=49 => Group::Wait,
            50..=57 | 64..=69 => Group::Collective,
            58..=63 => Group::Memory,
            _ => Group::Network,
        }
    }

    /// Whether it moves data to or from one other PE.
    #[must_use]
    pub const fn is_one_sided(self) -> bool {
        matches!(self.group(), Group::Rma | Group::Atomic)
    }

    /// Whether it waits for other PEs by itself. Of the group of waits, those that try a lock and let go of one do not.
    #[must_use]
    pub const fn waits(self) -> bool {
        matches!(self.group(), Group::Wait) && !matches!(self, Self::TestLock | Self::ClearLock)
    }

    /// Whether it can change memory of another PE for which that PE waits.
    #[must_use]
    pub const fn writes(self) -> bool {
        self.is_one_sided() && !matches!(self, Self::Get | Self::GetNbi | Self::Iget)
    }
}

some_of! {
    /// A collective operation.
    Collective of Routine {
        Barrier, Sync, Broadcast, Reduce, Scan, Fcollect, Collect, Alltoall, Split, Finalize, Alloc, Realloc, Free,
        Destroy, AllGather, AllGatherParts, Gather, Scatter,
    }
}

some_of! {
    /// The routine that waits for words of memory.
    Form of Routine {
        Until = WaitUntil,
        All = WaitUntilAll,
        Any = WaitUntilAny,
        Some = WaitUntilSome,
    }
}

impl Collective {
    /// What its caller is in: routines by their names, others as words with an article.
    #[must_use]
    pub fn phrase(self) -> String {
        let text = self.text();
        match self {
            Self::Alloc | Self::Realloc | Self::Free | Self::Destroy => text.into(),
            Self::Fcollect | Self::Collect | Self::Alltoall | Self::Finalize => text.into(),
            Self::AllGather | Self::AllGatherParts | Self::Gather | Self::Scatter => text.into(),
            _ => format!("a {text}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_have_room_and_groups() {
        for &routine in Routine::ALL {
            assert!((routine as usize) < ROUTINES, "{routine:?}");
            assert_eq!(Routine::from_number(routine as u8), Some(routine));
        }
        assert_eq!(Routine::PutSignalNbi.group(), Group::Rma);
        assert_eq!(Routine::Split.group(), Group::Memory);
        assert_eq!(Routine::Alltoallv.group(), Group::Collective);
        assert_eq!(Routine::Disconnect.group(), Group::Network);
        assert!(Routine::AtomicPlain.writes() && !Routine::Iget.writes());
        assert!(!Routine::Barrier.is_one_sided());
    }
}
