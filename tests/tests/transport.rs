//! The two transports side by side: the same results, and the queue pairs that each takes.

use shmem_tests::Job;

/// A figure of `shmrun --report -`: minimum, mean and maximum over the PEs, and the sum.
fn figures(report: &str, name: &str) -> [f64; 4] {
    let line = report.lines().find(|l| l.starts_with(name));
    // What is 0 everywhere is left out.
    let Some(line) = line else { return [0.0; 4] };
    let numbers = line[name.len()..].split_whitespace();
    let numbers: Vec<f64> = numbers.map(|n| n.parse().expect("a number")).collect();
    numbers.try_into().expect("four numbers")
}

fn report(transport: &str, connect: &str, options: &str, program: &str) -> String {
    let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
    Job::new(shmrun, &format!("{options} --report -"), &[program])
        .env("SHMEM_TRANSPORT", transport)
        .env("SHMEM_CONNECT", connect)
        .succeed()
}

/// 64 PEs on 8 nodes, everybody with everybody: 56 queue pairs each with RC; with XRC one for each
/// of the 7 other nodes, and as many for those who come in through this PE.
#[test]
fn xrc_takes_a_queue_pair_per_node_instead_of_one_per_peer() {
    let hello = env!("CARGO_BIN_EXE_hello-under-test");
    let rc = report("rc", "static", "-n 64 --nodes 8", hello);
    let xrc = report("xrc", "static", "-n 64 --nodes 8", hello);
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
        let run = |program| report("xrc", "ondemand", options, program);
        let ring = run(env!("CARGO_BIN_EXE_ring-under-test"));
        assert!(ring.contains("came back right"), "{ring}");
        let histogram = run(env!("CARGO_BIN_EXE_histogram-under-test"));
        assert!(figures(&histogram, "XRC initiator queue pairs")[3] > 0.0);
        run(env!("CARGO_BIN_EXE_heat2d-under-test"));
    }
}

/// The histogram adds to words of other nodes; who executes that shows in the report.
#[test]
fn atomics_are_served_by_owners_only_where_that_was_asked_for() {
    let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
    let histogram = env!("CARGO_BIN_EXE_histogram-under-test");
    let served = |atomics| {
        let job = Job::new(shmrun, "-n 4 --nodes 2 --report -", &[histogram]);
        let report = job.env("SHMEM_ATOMICS", atomics).succeed();
        figures(&report, "atomics served as owner")
    };
    let [fewest, ..] = served("owner");
    assert!(fewest > 0.0);
    assert_eq!(served("hca"), [0.0; 4]);
}

#[test]
fn atomics_by_owners_over_xrc_are_refused_before_anything_starts() {
    let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
    let hello = env!("CARGO_BIN_EXE_hello-under-test");
    let job = Job::new(shmrun, "-n 2 --nodes 2", &[hello]);
    let job = job.env("SHMEM_TRANSPORT", "xrc");
    let output = job.env("SHMEM_ATOMICS", "owner").output();
    assert!(!output.status.success());
    let text = shmem_tests::text(&output.stderr);
    assert!(
        text.contains("SHMEM_ATOMICS=owner") && text.contains("SHMEM_TRANSPORT=xrc"),
        "{text}"
    );
}

#[test]
fn an_unknown_transport_is_refused_before_anything_starts() {
    let shmrun = env!("CARGO_BIN_EXE_shmrun-under-test");
    let hello = env!("CARGO_BIN_EXE_hello-under-test");
    let job = Job::new(shmrun, "-n 2 --nodes 2", &[hello]).env("SHMEM_TRANSPORT", "tcp");
    let output = job.output();
    assert!(!output.status.success());
    let text = shmem_tests::text(&output.stderr);
    assert!(
        text.contains("SHMEM_TRANSPORT=tcp") && text.contains("rc or xrc"),
        "{text}"
    );
}
