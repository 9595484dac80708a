//! The whole library on several layouts: one node, several nodes, both, with a lossy network, with
//! static connections, over XRC, and started by exec. Settings that do not depend on each other share a job.

use crate::programs::{CONFORMANCE, layouts, shmrun};

/// All checks, or those that are named, or all but those whose names follow a `-`.
fn checks_pass<S: AsRef<str>>(options: &str, env: &[(&str, &str)], checks: &[S]) {
    let mut command = vec![CONFORMANCE];
    command.extend(checks.iter().map(AsRef::as_ref));
    let out = shmrun(options, &command)
        // One check takes all of the heap, again and again: pages of many jobs that nothing is learned from.
        .env("SHMEM_SYMMETRIC_SIZE", "64M")
        .envs(env.iter().copied())
        .succeed();
    assert!(out.contains("checks passed on"), "{out}");
}

fn passes(options: &str, env: &[(&str, &str)]) {
    checks_pass::<&str>(options, env, &[]);
}

layouts! {
    passes;
    one_pe: "-n 1";
    two_on_one_node: "-n 2";
    three_on_one_node: "-n 3";
    five_on_one_node: "-n 5";
    eight_on_one_node: "-n 8";
    few_who_poll: "-n 5", "SHMEM_SPIN" = "500";
    two_who_sleep: "-n 2", "SHMEM_SPIN" = "0";
    four_who_poll_once: "-n 4", "SHMEM_SPIN" = "1";
    two_nodes_of_one: "-n 2 --nodes 2";
    two_nodes_of_two: "-n 4 --nodes 2";
    three_nodes_uneven: "-n 5 --nodes 3";
    four_nodes_of_two: "-n 8 --nodes 4";
    seven_nodes_of_one: "-n 7 --nodes 7";
    static_connections: "-n 6 --nodes 3", "SHMEM_CONNECT" = "static";
    grow_uneven: "-n 5 --nodes 3", "SHMEM_HEAP_REGISTER" = "grow";
    grow_owner_static: "-n 6 --nodes 3", "SHMEM_HEAP_REGISTER" = "grow", "SHMEM_ATOMICS" = "owner",
        "SHMEM_CONNECT" = "static";
    grow_xrc: "-n 6 --nodes 3", "SHMEM_HEAP_REGISTER" = "grow", "SHMEM_TRANSPORT" = "xrc";
    grow_xrc_lossy: "-n 4 --nodes 2", "SHMEM_HEAP_REGISTER" = "grow", "SHMEM_TRANSPORT" = "xrc",
        "SHMEM_SOFT_FAULTS" = "drop=1%,duplicate=1%,reorder=2%,seed=6";
    small_packets_ipv6_transparent_pages: "-n 4 --nodes 2", "SHMEM_SOFT_MTU" = "256", "SHMEM_SOFT_ADDRESS" = "::1",
        "SHMEM_HEAP_PAGES" = "transparent";
    streams: "-n 4 --nodes 2", "SHMEM_SOFT_MTU" = "1024", "SHMEM_SOFT_STREAM" = "64";
    streams_and_lossy: "-n 4 --nodes 2", "SHMEM_SOFT_MTU" = "1024", "SHMEM_SOFT_STREAM" = "64",
        "SHMEM_SOFT_FAULTS" = "drop=1%,duplicate=1%,reorder=2%,seed=8";
    one_port_for_all: "-n 4 --nodes 2", "SHMEM_SOFT_PORT" = "4791", "SHMEM_SOFT_INTEROP" = "yes";
    lossy: "-n 4 --nodes 2",
        "SHMEM_SOFT_FAULTS" = "drop=1%,duplicate=1%,reorder=2%,seed=3";
    very_lossy: "-n 2 --nodes 2", "SHMEM_SPIN" = "0",
        "SHMEM_SOFT_FAULTS" = "drop=5%,duplicate=3%,reorder=5%,seed=4";
    owner_uneven: "-n 5 --nodes 3", "SHMEM_ATOMICS" = "owner";
    owner_nodes_of_one: "-n 4 --nodes 4", "SHMEM_ATOMICS" = "owner";
    own_nodes_of_one: "-n 5 --nodes 5", "SHMEM_CTX_QPS" = "64";
    own_grow: "-n 5 --nodes 3", "SHMEM_CTX_QPS" = "3", "SHMEM_HEAP_REGISTER" = "grow";
    own_streams: "-n 4 --nodes 2", "SHMEM_CTX_QPS" = "3", "SHMEM_SOFT_MTU" = "1024", "SHMEM_SOFT_STREAM" = "64";
    own_owner: "-n 5 --nodes 3", "SHMEM_CTX_QPS" = "3", "SHMEM_ATOMICS" = "owner";
    own_owner_lossy: "-n 4 --nodes 2", "SHMEM_CTX_QPS" = "3", "SHMEM_ATOMICS" = "owner",
        "SHMEM_SOFT_FAULTS" = "drop=1%,duplicate=1%,reorder=2%,seed=7";
    own_xrc: "-n 6 --nodes 3", "SHMEM_CTX_QPS" = "3", "SHMEM_TRANSPORT" = "xrc";
    xrc: "-n 8 --nodes 4", "SHMEM_TRANSPORT" = "xrc";
    xrc_uneven: "-n 5 --nodes 3", "SHMEM_TRANSPORT" = "xrc";
    xrc_nodes_of_one: "-n 4 --nodes 4", "SHMEM_TRANSPORT" = "xrc";
    xrc_static: "-n 6 --nodes 3", "SHMEM_TRANSPORT" = "xrc", "SHMEM_CONNECT" = "static";
    xrc_small_packets_by_exec: "-n 4 --nodes 2 --spawn exec", "SHMEM_TRANSPORT" = "xrc", "SHMEM_SOFT_MTU" = "256";
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
/// the twelve PEs below; what all members of one team after the other do shows nothing that these do not.
fn few_pass(options: &str, env: &[(&str, &str)]) {
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
    checks_pass(options, env, &left_out);
}

layouts! {
    few_pass;
    grow_one_connection: "-n 5 --nodes 5", "SHMEM_HEAP_REGISTER" = "grow", "SHMEM_MAX_QPS" = "1";
    streams_and_few_qps: "-n 3 --nodes 3", "SHMEM_SOFT_MTU" = "1024", "SHMEM_SOFT_STREAM" = "64", "SHMEM_MAX_QPS" = "1";
    owner_few_queue_pairs: "-n 6 --nodes 6", "SHMEM_ATOMICS" = "owner", "SHMEM_MAX_QPS" = "2";
    own_few_queue_pairs: "-n 6 --nodes 6", "SHMEM_CTX_QPS" = "3", "SHMEM_MAX_QPS" = "5";
}

/// What collectives do among so many PEs of a node that not each reaches into the memory of every other.
fn collectives_pass(options: &str, env: &[(&str, &str)]) {
    checks_pass(options, env, COLLECTIVES);
}

layouts! {
    collectives_pass;
    a_crowd_on_one_node: "-n 40";
    crowds_on_two_nodes: "-n 71 --nodes 2";
    a_crowd_and_few: "-n 37 --nodes 4";
    sixteen_nodes: "-n 33 --nodes 16";
    three_nodes_of_one: "-n 3 --nodes 3";
    five_nodes_of_one: "-n 5 --nodes 5";
    eight_nodes: "-n 11 --nodes 8";
    nine_nodes_of_one: "-n 9 --nodes 9";
    twelve_owner: "-n 12 --nodes 6", "SHMEM_ATOMICS" = "owner";
    twelve_grow: "-n 12 --nodes 4", "SHMEM_HEAP_REGISTER" = "grow";
    twelve_xrc: "-n 12 --nodes 4", "SHMEM_TRANSPORT" = "xrc";
    twelve_few_queue_pairs: "-n 12 --nodes 6", "SHMEM_MAX_QPS" = "2";
    twelve_lossy: "-n 12 --nodes 4",
        "SHMEM_SOFT_FAULTS" = "drop=1%,duplicate=1%,reorder=2%,seed=3";
}
