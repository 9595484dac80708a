//! One suite of checks that every implementation of [`Hca`] has to pass.
//!
//! Each check is a function over a [`Fabric`]: two HCAs that can reach each other. Use
//! [`conformance_tests!`](crate::conformance_tests) to make a test of each. A check panics with
//! what it saw; it also panics if nothing moves for [`PATIENCE`].

mod data;
mod errors;
mod harness;
mod lists;
mod queues;
mod receives;
mod send;
mod srq;
mod states;
mod ud;
mod xrc;

pub use data::*;
pub use errors::*;
pub use harness::{Link, Options, PATIENCE, Region, Side, state};
pub use lists::*;
pub use queues::*;
pub use receives::*;
pub use send::*;
pub use srq::*;
pub use states::*;
pub use ud::*;
pub use xrc::*;

use shmem_verbs::Hca;

/// Calls the macro `$callback` with its arguments and the names of all checks: of those for every
/// network, or of those for one that loses no datagrams.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_names {
    (reliable [$($callback:tt)*] [$($args:tt)*]) => {
        $($callback)*! { [$($args)*]
            writes_of_all_sizes,
            reads_of_all_sizes,
            atomics_return_old_values,
            unsignaled_requests_complete_silently,
            lists_of_requests,
            requests_of_one_queue_keep_their_order,
            inline_payload_is_copied,
            outstanding_reads_and_atomics,
            both_directions_at_once,
            psn_wraps,
            many_queue_pairs,
            remote_access_errors,
            missing_rights_of_the_queue_pair,
            deregistered_memory_is_gone,
            local_protection_error,
            misaligned_atomic,
            full_send_queue,
            requests_that_no_queue_takes,
            destroyed_peer_exhausts_retries,
            nonsense_is_refused,
            posts_need_their_state,
            illegal_transitions,
            requests_are_served_from_rtr_on,
            error_state_flushes,
            reset_queue_pair_works_again,
            sends_of_all_sizes,
            sends_take_receives_in_order,
            immediate_data_of_sends_and_writes,
            inline_sends,
            everything_signaled,
            fenced_requests_see_what_was_read,
            gathered_and_scattered,
            lists_that_are_too_long,
            one_bad_buffer_of_a_list,
            a_send_longer_than_its_receive,
            a_receive_that_may_not_be_written,
            receiver_not_ready_is_waited_for,
            receiver_not_ready_for_too_long,
            a_broken_message_flushes_its_receive,
            shared_receives_serve_many_queue_pairs,
            shared_receives_run_out,
            shared_receives_outlive_a_failed_queue_pair,
            shared_receives_and_their_users,
            overflowing_completion_queue,
            completion_queues_in_use,
            destroyed_queue_pairs_leave_nothing,
            xrc_sends_reach_the_queue_they_name,
            xrc_reads_writes_and_atomics,
            xrc_queues_that_are_empty_or_gone,
            xrc_reaches_memory_of_the_whole_domain,
            xrc_refusals,
        }
    };
    (datagrams [$($callback:tt)*] [$($args:tt)*]) => {
        $($callback)*! { [$($args)*]
            datagrams_arrive_with_their_source,
            datagrams_without_key_or_buffer_are_dropped,
            datagrams_of_all_sizes,
            datagrams_carry_immediate_data,
            datagrams_gather_and_scatter,
            datagrams_into_shared_receives,
            a_datagram_that_cannot_be_sent_stops_only_the_send_queue,
        }
    };
}

/// Two HCAs that can reach each other.
pub trait Fabric {
    /// The implementation.
    type H: Hca;

    /// The two.
    fn hcas(&self) -> [&Self::H; 2];

    /// In what they are more exact than the specification asks.
    fn beyond(&self) -> Beyond {
        Beyond::NOTHING
    }

    /// What they are known to get wrong.
    fn lapses(&self) -> Lapses {
        Lapses::NONE
    }

    /// Told of each check, or part of one, that is left out or asks for less, and why. Called by
    /// checks.
    fn left_out(&self, why: &'static str) {
        let _ = why;
    }

    /// `held`; if it is not, tells why something is left out.
    fn holds(&self, held: bool, otherwise: &'static str) -> bool {
        if !held {
            self.left_out(otherwise);
        }
        held
    }

    /// Whether numbers of what is gone are checked; if not, tells so.
    fn checks_handles(&self) -> bool {
        let checks = self.beyond().checks_handles;
        self.holds(checks, "numbers of what is gone are not checked")
    }

    /// `lapsed`; if it is, tells which lapse is taken into account.
    fn forgives(&self, lapsed: bool, what: &'static str) -> bool {
        if lapsed {
            self.left_out(what);
        }
        lapsed
    }

    /// Lets a little time pass. Called again and again while a check waits; the CQs of both
    /// HCAs are polled in between.
    fn advance(&self);
}

/// What the specification leaves open and an implementation may nevertheless hold. A check of
/// such a thing passes where the flag is not set.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Beyond {
    /// Queues hold exactly what they were created for; devices round up.
    pub exact_depths: bool,
    /// Numbers of objects that do not exist (any more) are refused.
    pub checks_handles: bool,
    /// Unpolled completions of a queue pair vanish when it is destroyed.
    pub forgets_the_destroyed: bool,
    /// Both HCAs can be in one XRC domain, as if they were processes on one node.
    pub domains_span_hcas: bool,
    /// A misaligned atomic can be posted, and its target refuses it; drivers may refuse the post.
    pub posts_misaligned_atomics: bool,
}

/// What a device of somebody else gets wrong, found by these checks. They then ask for what it
/// does instead, and say so. Nothing of this project has any.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct Lapses {
    /// A send request that fails locally completes as one that was flushed, and a UD queue pair
    /// fails as a whole instead of its send queue alone.
    pub local_failures_flush: bool,
    /// A receive that is too short or may not be written completes with an operation error.
    pub vague_receive_errors: bool,
    /// A receive that is posted to a failed queue pair does not complete.
    pub late_receives_stay: bool,
}

impl Lapses {
    /// As it should be.
    pub const NONE: Self = Self {
        local_failures_flush: false,
        vague_receive_errors: false,
        late_receives_stay: false,
    };
    /// Soft-RoCE, the driver `rdma_rxe` of Linux 6.12.
    pub const SOFT_ROCE: Self = Self {
        local_failures_flush: true,
        vague_receive_errors: true,
        late_receives_stay: true,
    };
}

impl Beyond {
    /// A device that does what it must.
    pub const NOTHING: Self = Self {
        exact_depths: false,
        checks_handles: false,
        forgets_the_destroyed: false,
        domains_span_hcas: false,
        posts_misaligned_atomics: false,
    };
    /// The software HCA.
    pub const SOFTWARE: Self = Self {
        exact_depths: true,
        checks_handles: true,
        forgets_the_destroyed: true,
        domains_span_hcas: true,
        posts_misaligned_atomics: true,
    };
}

/// Makes the tests of [`conformance_tests!`](crate::conformance_tests) at each MTU. Those at two MTUs between others
/// are run at night, and so are those at the smallest on a network that loses packets. `$make` is a function from [`Mtu`](shmem_verbs::Mtu) to a fresh [`Fabric`].
#[macro_export]
macro_rules! conformance_matrix {
    (@mtus [$($kind:ident)?] [$($smallest:meta)?] $make:expr) => {
        $crate::conformance_matrix!(@one [$($smallest)?] [$($kind)?] $make, mtu256, M256);
        $crate::conformance_matrix!(@one [ignore = "nightly"] [$($kind)?] $make, mtu512, M512);
        $crate::conformance_matrix!(@one [] [$($kind)?] $make, mtu1024, M1024);
        $crate::conformance_matrix!(@one [ignore = "nightly"] [$($kind)?] $make, mtu2048, M2048);
        $crate::conformance_matrix!(@one [] [$($kind)?] $make, mtu4096, M4096);
        $crate::conformance_matrix!(@one [] [$($kind)?] $make, mtu61440, M61440);
    };
    (@one [$($attr:meta)?] [$($kind:ident)?] $make:expr, $name:ident, $mtu:ident) => {
        mod $name {
            #[allow(unused_imports)]
            use super::*;
            $crate::conformance_tests!(
                @with [$($attr)?] $($kind)? ($make)($crate::verbs::Mtu::$mtu)
            );
        }
    };
    (reliable $make:expr) => {
        $crate::conformance_matrix!(@mtus [reliable] [ignore = "nightly"] $make);
    };
    ($make:expr) => {
        $crate::conformance_matrix!(@mtus [] [] $make);
    };
}

/// Makes a test of each check. `$make` is an expression that gives a fresh [`Fabric`].
/// `reliable` leaves out the checks that need a network which loses no datagrams.
#[macro_export]
macro_rules! conformance_tests {
    (@with [$($attr:meta)?] reliable $make:expr) => {
        $crate::conformance_names!(reliable[$crate::conformance_each][[$($attr)?] $make]);
    };
    (@with [$($attr:meta)?] $make:expr) => {
        $crate::conformance_names!(reliable[$crate::conformance_each][[$($attr)?] $make]);
        $crate::conformance_names!(datagrams[$crate::conformance_each][[$($attr)?] $make]);
    };
    (reliable $make:expr) => {
        $crate::conformance_tests!(@with [] reliable $make);
    };
    ($make:expr) => {
        $crate::conformance_tests!(@with [] $make);
    };
}

/// A test of each name, with an attribute or none.
#[doc(hidden)]
#[macro_export]
macro_rules! conformance_each {
    ([[] $make:expr] $($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::$name(&$make);
            }
        )*
    };
    ([[$attr:meta] $make:expr] $($name:ident,)*) => {
        $(
            #[test]
            #[$attr]
            fn $name() {
                $crate::conformance::$name(&$make);
            }
        )*
    };
}

macro_rules! named {
    ([$fabric:ty] $($name:ident,)*) => {
        [$((stringify!($name), $name::<$fabric> as fn(&$fabric)),)*]
    };
}

/// A check with its name.
pub type Named<F> = (&'static str, fn(&F));

/// All checks, for a program of its own that runs them.
#[must_use]
pub fn all<F: Fabric>() -> Vec<Named<F>> {
    let mut all: Vec<Named<F>> = Vec::new();
    all.extend(conformance_names!(reliable[named][F]));
    all.extend(conformance_names!(datagrams[named][F]));
    all
}
