//! What collectives among many PEs of a node cost in page tables: a page for each pair of PEs, which nobody sees
//! on eight of them, takes the memory of the machine on thousands.

use crate::programs::{MANY, shmrun};

/// KiB of page tables of all PEs after each row of `many`.
fn tables(options: &str) -> Vec<(String, u64)> {
    let told = shmrun(options, &[MANY, "8", "64", "4096"]).succeed();
    let row = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        Some((fields[0].to_owned(), fields.get(3)?.parse().ok()?))
    };
    let rows: Vec<_> = told.lines().filter_map(row).collect();
    assert!(rows.len() > 15, "{told}");
    rows
}

/// Beginning, collectives and all, a PE has a few hundred KiB, where it would have 4 KiB for each of the others.
fn is_linear(n: u64, options: &str) {
    const OF_A_PE: u64 = 320;
    for (row, tables) in tables(&format!("-n {n} {options}")) {
        assert!(
            tables <= OF_A_PE * n,
            "after {row} the page tables of {n} PEs have {tables} KiB, more than {OF_A_PE} each"
        );
    }
}

#[test]
fn a_node_of_many() {
    is_linear(256, "");
}

/// A leader holds a part of what it passes on at a time: here in three passes, the last of which is not for as many
/// receivers, nor for as many of one node as of the other. `many` checks the results.
#[test]
fn an_exchange_in_uneven_passes() {
    shmrun("-n 65 --nodes 2", &[MANY, "512"]).succeed();
}
