//! The two transports side by side: the same results, and the queue pairs that each takes.

use shmem_testkit::{Job, Outcome};

use crate::programs::{CONFORMANCE, HELLO, HISTOGRAM, RING, SHMRUN, STEP6_HALO, shmrun};

/// Minimum, mean and maximum over the PEs of a figure, and the sum.
fn figures(outcome: &Outcome, name: &str) -> [f64; 4] {
    let figure = outcome.report().figure(name);
    [figure.min, figure.mean, figure.max, figure.sum]
}

fn run(transport: &str, connect: &str, options: &str, program: &str) -> Outcome {
    let outcome = Job::reported(SHMRUN, options, &[program])
        .env("SHMEM_TRANSPORT", transport)
        .env("SHMEM_CONNECT", connect)
        .run();
    outcome.expect_success();
    outcome
}

/// 64 PEs on 8 nodes, everybody with everybody: 56 queue pairs each with RC; with XRC one for each
/// of the 7 other nodes, and as many for those who come in through this PE.
#[test]
fn xrc_takes_a_queue_pair_per_node_instead_of_one_per_peer() {
    let rc = run("rc", "static", "-n 64 --nodes 8", HELLO);
    let xrc = run("xrc", "static", "-n 64 --nodes 8", HELLO);
    assert_eq!(figures(&rc, "queue pairs"), [56.0, 56.0, 56.0, 3584.0]);
    assert_eq!(figures(&rc, "XRC initiator queue pairs"), [0.0; 4]);
    let seven = [7.0, 7.0, 7.0, 448.0];
    assert_eq!(figures(&xrc, "XRC initiator queue pairs"), seven);
    // Static connections spread over the PEs of a node.
    assert_eq!(figures(&xrc, "XRC target queue pairs"), seven);
    assert_eq!(figures(&xrc, "direct peers"), seven);
    assert_eq!(figures(&xrc, "indirect peers"), [49.0, 49.0, 49.0, 3136.0]);
    assert_eq!(figures(&xrc, "queue pairs"), [14.0, 14.0, 14.0, 896.0]);
}

#[test]
fn examples_come_to_the_same_results_over_xrc() {
    for options in ["-n 4 --nodes 2", "-n 13 --nodes 5"] {
        let run = |program| run("xrc", "ondemand", options, program);
        let ring = run(RING);
        assert!(ring.stdout.contains("came back right"), "{ring:?}");
        let histogram = run(HISTOGRAM);
        assert!(figures(&histogram, "XRC initiator queue pairs")[3] > 0.0);
        run(STEP6_HALO);
    }
}

/// Contexts with connections of their own: a queue pair here, and one there for who has such a context; the peers
/// are the same. With the setting also those that have not asked for it; none if there may be none.
#[test]
fn queue_pairs_of_contexts_are_counted() {
    let run = |check, most| {
        let job = Job::reported(SHMRUN, "-n 2 --nodes 2", &[CONFORMANCE, check]);
        let outcome = job.env("SHMEM_CTX_QPS", most).run();
        outcome.expect_success();
        assert_eq!(figures(&outcome, "connections")[0], 1.0, "{check} {most}");
        figures(&outcome, "queue pairs")
    };
    let (one, three) = ([1.0, 1.0, 1.0, 2.0], [3.0, 3.0, 3.0, 6.0]);
    for (most, plain, asked) in [("auto", one, three), ("1", three, three), ("0", one, one)] {
        assert_eq!(run("dropping_completes", most), plain, "{most}");
        assert_eq!(run("own_dropping_completes", most), asked, "{most}");
    }
}

/// The histogram adds to words of other nodes; who executes that shows in the report.
#[test]
fn atomics_are_served_by_owners_only_where_that_was_asked_for() {
    let served = |atomics| {
        let job = Job::reported(SHMRUN, "-n 4 --nodes 2", &[HISTOGRAM]);
        let outcome = job.env("SHMEM_ATOMICS", atomics).run();
        outcome.expect_success();
        figures(&outcome, "atomics served as owner")
    };
    let [fewest, ..] = served("owner");
    assert!(fewest > 0.0);
    assert_eq!(served("hca"), [0.0; 4]);
}

#[test]
fn atomics_by_owners_over_xrc_are_refused_before_anything_starts() {
    let job = shmrun("-n 2 --nodes 2", &[HELLO]);
    let job = job.env("SHMEM_TRANSPORT", "xrc");
    let output = job.env("SHMEM_ATOMICS", "owner").run();
    assert!(!output.status.success());
    let text = output.stderr;
    assert!(
        text.contains("SHMEM_ATOMICS=owner") && text.contains("SHMEM_TRANSPORT=xrc"),
        "{text}"
    );
}

#[test]
fn an_unknown_transport_is_refused_before_anything_starts() {
    let job = shmrun("-n 2 --nodes 2", &[HELLO]).env("SHMEM_TRANSPORT", "tcp");
    let output = job.run();
    assert!(!output.status.success());
    let text = output.stderr;
    assert!(
        text.contains("SHMEM_TRANSPORT=tcp") && text.contains("rc or xrc"),
        "{text}"
    );
}
