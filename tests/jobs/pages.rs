//! Heaps of huge pages: a refusal that helps where there are too few, the same results where there are
//! enough.

use shmem_node::pages::HugePages;
use shmem_testkit::Job;
use shmem_testkit::needs::skipped;

use crate::programs::{HELLO, RING, STEP6_HALO, shmrun};

fn job(size: u64, options: &str, program: &str) -> Job {
    shmrun(options, &[program])
        .env("SHMEM_HEAP_PAGES", "huge")
        .env("SHMEM_SYMMETRIC_SIZE", size.to_string())
}

#[test]
fn huge_pages_are_taken_or_refused() {
    let Some(huge) = HugePages::read() else {
        let output = job(1 << 20, "-n 2", HELLO).run();
        assert!(!output.status.success());
        assert!(output.stderr.contains("no huge pages"));
        return skipped("huge-pages", "the kernel has none to set aside");
    };
    // More than there are, whatever others give back meanwhile.
    let size = (huge.total + huge.free + 64) * huge.size;
    let output = job(size, "-n 1", HELLO).run();
    assert!(!output.status.success());
    let said = output.stderr;
    // A machine that is smaller than so many pages is told first.
    for part in ["SHMEM_SYMMETRIC_SIZE", "huge pages", "vm.nr_hugepages="] {
        let small = said.contains("more than this machine has");
        assert!(said.contains(part) || small, "{part} in {said}");
    }

    // Each PE has 4 MiB of the runtime's own and 2 MiB of heap, each node a page for its blocks.
    let needed = 2 * ((2 * (6 << 20)) / huge.size + 3);
    if huge.free < needed {
        let why = format!("{} huge pages can be had, {needed} are needed", huge.free);
        return skipped("huge-pages", why);
    }
    for (transport, register) in [("rc", "whole"), ("xrc", "grow")] {
        for program in [RING, STEP6_HALO] {
            for commit in ["lazy", "reserve"] {
                job(2 << 20, "-n 4 --nodes 2", program)
                    .env("SHMEM_TRANSPORT", transport)
                    .env("SHMEM_HEAP_REGISTER", register)
                    .env("SHMEM_HEAP_COMMIT", commit)
                    .succeed();
            }
        }
    }
}

/// A hint: it never keeps a job from running, and it is said when it does nothing.
#[test]
fn transparent_huge_pages_are_a_hint() {
    let output = shmrun("-n 4 --nodes 2", &[RING])
        .env("SHMEM_HEAP_PAGES", "transparent")
        .run();
    assert!(output.status.success(), "{}", output.stderr);
    assert!(output.stdout.contains("came back right"));
    let idle = shmem_node::pages::without_effect(shmem_node::settings::HeapPages::Transparent);
    let said = output.stderr;
    assert_eq!(idle.is_some(), said.contains("has no effect"), "{said}");
}
