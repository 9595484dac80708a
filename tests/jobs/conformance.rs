//! The whole library on several layouts: one node, several nodes, both, with a lossy network, with
//! static connections, over XRC, and started by exec.

use crate::layouts::{self, Layout};
use crate::programs::CONFORMANCE;

/// All checks, or those that are named, or all but those whose names follow a `-`.
fn checks_pass<S: AsRef<str>>(layout: &Layout, checks: &[S]) {
    let mut command = vec![CONFORMANCE];
    command.extend(checks.iter().map(AsRef::as_ref));
    let out = layout
        .job(&command)
        // One check takes all of the heap, again and again: pages of many jobs that nothing is learned from.
        .env("SHMEM_SYMMETRIC_SIZE", "64M")
        .succeed();
    assert!(out.contains("checks passed on"), "{out}");
}

/// Checks of each kind, for what routines do not depend on: launchers, hosts, kernels. All checks run there at night.
pub(crate) const SOME_OF_EACH: &[&str] = &[
    "first_contact_after_growth",
    "put_get_all_pairs",
    "sizes_and_alignments",
    "random_strides",
    "fetch_add_is_unique",
    "nbi_tickets_are_unique",
    "flag_after_data",
    "signals_of_all",
    "contexts_complete_separately",
    "all_of_many",
    "locks_exclude",
    "broadcast_from_everywhere",
    "long_reductions",
    "teams_number_their_members",
    "one_array_for_many_sets",
    "parts_of_all_lengths",
    "threads_wait_while_others_work",
    "many_sizes",
    "inits_are_counted",
];

/// The program with these checks, or with all.
pub(crate) fn with(checks: &[&'static str]) -> Vec<&'static str> {
    [&[CONFORMANCE], checks].concat()
}

/// A test for each part of the layouts.
macro_rules! parts {
    ($($name:ident = $part:literal;)*) => { $(
        #[test]
        fn $name() {
            layouts::each("conformance", $part, |layout| checks_pass::<&str>(layout, &[]));
        }
    )* };
}

parts! {
    first_quarter = 0;
    second_quarter = 1;
    third_quarter = 2;
    last_quarter = 3;
}

/// What depends on how many PEs and nodes there are.
const COLLECTIVES: &[&str] = &[
    "broadcast_from_everywhere",
    "reductions",
    "long_reductions",
    "operands_are_private",
    "float_order_is_fixed",
    "vectors_of_all_lengths",
    "concatenations",
    "transpose",
    "back_to_back",
    "rounds_of_all_kinds",
    "rows_and_columns",
    "collectives_on_teams",
    "long_collectives_on_teams",
    "exchange_on_teams",
    "sums_of_values",
    "values_from_everywhere",
    "values_back_to_back",
    "all_values",
    "parts_of_all_lengths",
    "values_on_teams",
    "unequal_exchange",
];

/// Where PEs may have fewer connections than peers, every other operation makes one anew: collectives take minutes, and are left to
/// layouts of suite `collectives`; what all members of one team after the other do shows nothing that these do not.
#[test]
fn with_few_connections() {
    const OF_TEAMS: &[&str] = &[
        "active_sets",
        "one_array_for_many_sets",
        "raw_collectives_on_teams",
        "teams_come_and_go",
        "threads_share_the_last_slots",
        "types_on_teams",
    ];
    let left_out = COLLECTIVES.iter().chain(OF_TEAMS);
    let left_out: Vec<_> = left_out.map(|name| format!("-{name}")).collect();
    for part in 0..layouts::PARTS {
        layouts::each("few", part, |layout| checks_pass(layout, &left_out));
    }
}

/// What collectives do among so many PEs of a node that not each reaches into the memory of every other.
#[test]
fn collectives_of_crowds() {
    for part in 0..layouts::PARTS {
        layouts::each("collectives", part, |layout| {
            checks_pass(layout, COLLECTIVES)
        });
    }
}
