//! The NLA primitives, PMGR and the caches of the key-value space in whole jobs, on one node and on
//! several.

use crate::programs::{PMI_NLA, shmrun};

#[test]
fn every_primitive_works_on_one_node_and_on_four() {
    for options in [
        "-n 1",
        "-n 6",
        "-n 7 --nodes 4",
        "-n 8 --nodes 4 -x SHMEM_TREE_DEGREE=2",
    ] {
        let out = shmrun(options, &[PMI_NLA, "all"]).succeed();
        let n: usize = options.split(' ').nth(1).unwrap().parse().unwrap();
        assert_eq!(out.matches("has all").count(), n, "{options}: {out}");
    }
}

#[test]
fn mismatched_primitives_fail_on_all_and_name_a_pe() {
    for nodes in [1, 4] {
        let options = format!("-n 5 --nodes {nodes}");
        let out = shmrun(&options, &[PMI_NLA, "mismatch"]).succeed();
        let told = out.matches("called NLA gather with root").count();
        assert_eq!(told, 2 * 5, "each names both PEs: {out}");
        assert!(out.contains("PE 4 called NLA gather with root 1"), "{out}");
    }
}

#[test]
fn who_waits_for_a_pe_that_has_left_is_told() {
    for nodes in [1, 4] {
        let options = format!("-n 4 --nodes {nodes}");
        let out = shmrun(&options, &[PMI_NLA, "gone"]).succeed();
        let expected = "PE 1 has finalized or ended without sending to PE 0";
        assert!(out.contains(expected), "{out}");
    }
}

#[test]
fn all_caches_show_the_same() {
    for cache in ["hcs", "hcma", "hcmab", "hcmab-lru"] {
        for nodes in [1, 4] {
            let out = shmrun(&format!("-n 8 --nodes {nodes}"), &[PMI_NLA, "caches"])
                .env("SHMEM_PMI_CACHE", cache)
                .env("SHMEM_PMI_CACHE_SIZE", "1k")
                .succeed();
            let saw = out.matches("saw every stage").count();
            assert_eq!(saw, 8, "{cache}, {nodes} nodes: {out}");
        }
    }
}
