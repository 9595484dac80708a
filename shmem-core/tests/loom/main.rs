//! The protocols between PEs in symmetric memory, under loom: every interleaving up to a number of
//! preemptions, with the memory model of C11.
//!
//! ```text
//! RUSTFLAGS="--cfg loom" cargo test -p shmem-core --test loom --release
//! ```
//! Without `--cfg loom` this file is empty. The protocols are the files of `src` themselves. What they
//! stand on is made for the models: [`memory`] of words that are loom's atomics, and a [`runtime`] of few
//! PEs, each a thread, on one node or on a node each. What a PE writes to another node is written
//! there as an HCA does it: words in any order, but each message after those before. Quiet and fence are of the models.
#![cfg(loom)]
#![allow(dead_code, unreachable_pub, unused_imports)] // of the files of `src`, which are used in part

mod memory;
mod runtime;

mod active_sets;
mod leaders;
mod locks;
mod signals;

mod sync {
    pub(crate) use loom::sync::atomic::Ordering;
    pub(crate) use shmem_testkit::models::fence;
}

mod atomics {
    pub(crate) use shmem_ib::atomic::{AtomicOp, Width};
}
mod context {
    pub(crate) use crate::runtime::Ctx;

    /// What is recorded is not of interest.
    macro_rules! operate {
        ($ctx:expr, $pe:expr, [$at:expr $(, $more:expr)*], $call:expr, {
            Near($near:ident) => $here:expr,
            Far($rt:ident, $far:ident) => $there:expr $(,)?
        }) => {{
            let _ = $call;
            match $ctx.place($pe, $at.offset()) {
                crate::runtime::Place::Near($near) => $here,
                crate::runtime::Place::Far($far) => {
                    let $rt = $ctx.rt();
                    $there
                }
            }
        }};
    }
    pub(crate) use operate;

    /// What programs call is not of interest.
    macro_rules! routines {
        ($($routine:tt)*) => {};
    }
    pub(crate) use routines;
}
#[path = "../../src/datum.rs"]
mod datum;
mod error {
    pub(crate) type Called = Option<&'static std::panic::Location<'static>>;
}
mod fault {
    pub(crate) use shmem_node::waiting::Place;

    pub(crate) fn place_in_program(at: &std::panic::Location<'_>) -> Place {
        Place::of(at)
    }
}
#[path = "../../src/heap"]
mod heap {
    pub(crate) mod access {
        pub(crate) use crate::memory::{copy, load};
    }
    pub(crate) mod address;
}
#[path = "../../src/collectives"]
mod collectives {
    pub(crate) mod active;
    mod circulant;
    pub(crate) mod combine;
    mod exchange;
    mod links;
    pub(crate) mod op;

    mod gather {
        pub(super) fn check_dest(_dest: crate::heap::address::SymAddr, _total: usize) {}
    }

    impl crate::runtime::Runtime {
        pub(crate) fn leaders_meet(&self, team: &crate::team::Team) {
            self.meet_leaders(team);
        }

        pub(crate) fn leaders_exchange(
            &self,
            team: &crate::team::Team,
            dest: usize,
            source: usize,
            blocks: crate::rma::Blocks,
        ) {
            let [dest, source] = [dest, source].map(crate::heap::address::SymAddr::new);
            self.exchange_blocks(team, dest, source, blocks);
        }
    }
}
#[path = "../../src/lock"]
mod lock {
    pub(crate) mod queue;
}
mod recording {
    pub(crate) use crate::runtime::RecordedCall;
}
#[path = "../../src/rma"]
mod rma {
    pub(crate) mod signalled;

    pub(crate) use crate::runtime::{Blocks, Completion, copy_blocks};
    pub(crate) const PUT: () = ();
}
#[path = "../../src/signal.rs"]
mod signal;
mod symmetric {
    pub(crate) mod array {
        pub(crate) use crate::runtime::SymSlice;
    }
    pub(crate) mod element {
        pub(crate) use crate::runtime::Element;
    }
}
mod team {
    pub(crate) use crate::runtime::{Team, slots};
    pub(crate) struct ProgramOperation;
}
#[path = "../../src/tree.rs"]
mod tree;
