//! One suite of checks that every implementation of [`Hca`] has to pass.
//!
//! Each check is a function over a [`Fabric`]: two HCAs that can reach each other. Use
//! [`conformance_tests!`](crate::conformance_tests) to make a test of each. A check panics with
//! what it saw; it also panics if nothing moves for [`PATIENCE`].

mod data;
mod errors;
mod harness;
mod states;
mod ud;

pub use data::*;
pub use errors::*;
pub use harness::{Link, Options, PATIENCE, Region, Side};
pub use states::*;
pub use ud::*;

use crate::verbs::Hca;

/// Two HCAs that can reach each other.
pub trait Fabric {
    /// The implementation.
    type H: Hca;

    /// The two.
    fn hcas(&self) -> [&Self::H; 2];

    /// Lets a little time pass. Called again and again while a check waits; the CQs of both
    /// HCAs are polled in between.
    fn advance(&self);
}

/// Makes a test of each check. `$make` is an expression that gives a fresh [`Fabric`].
/// `reliable` leaves out the checks that need a network which loses no datagrams.
#[macro_export]
macro_rules! conformance_tests {
    ($make:expr) => {
        $crate::conformance_tests!(reliable $make);
        $crate::conformance_tests!(@each $make;
            datagrams_arrive_with_their_source,
            datagrams_without_key_or_buffer_are_dropped,
            datagrams_of_all_sizes,
        );
    };
    (reliable $make:expr) => {
        $crate::conformance_tests!(@each $make;
            writes_of_all_sizes,
            reads_of_all_sizes,
            atomics_return_old_values,
            unsignaled_requests_complete_silently,
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
        );
    };
    (@each $make:expr; $($name:ident,)*) => {
        $(
            #[test]
            fn $name() {
                $crate::conformance::$name(&$make);
            }
        )*
    };
}
