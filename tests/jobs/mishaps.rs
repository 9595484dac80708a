//! Programs that go wrong: the job ends, with the right status, and somebody says what happened and
//! what to do about it.

use shmem_node::contract::{self, Descriptors};
use shmem_testkit::Job;

use crate::programs::{MISHAPS, shmrun};

const ONE_NODE: &str = "-n 3";
const NODES: &str = "-n 4 --nodes 2";

/// Runs a mishap; gives the exit status and standard error.
fn run(options: &str, mishap: &str, env: &[(&str, &str)]) -> (Option<i32>, String) {
    let program = [MISHAPS, mishap];
    let job = shmrun(options, &program).envs(env.iter().copied());
    let output = job.run();
    (output.status.code(), output.stderr)
}

/// The mishap ends the job with `status`, and the messages contain all of `said`.
#[track_caller]
fn ends(mishap: &str, status: i32, said: &[&str]) {
    for options in [ONE_NODE, NODES] {
        let (code, err) = run(options, mishap, &[]);
        assert_eq!(code, Some(status), "{options} {mishap}: {err}");
        for words in said {
            assert!(
                err.contains(words),
                "{options} {mishap}: no {words:?} in: {err}"
            );
        }
    }
}

/// A PE that exits, and one that fails because it has seen that, before the other's exit has come to its end.
#[test]
fn the_status_of_an_exit_that_peers_see_first_is_kept() {
    for options in [ONE_NODE, NODES] {
        let file = std::env::temp_dir().join(format!("shmem-mishap-{}", std::process::id()));
        let path = file.to_str().expect("a path of letters");
        let env = [("MISHAP_FILE", path), ("SHMEM_GRACE", "30s")];
        let (code, err) = run(options, "exit-seen-first", &env);
        assert!(!file.exists(), "PE 1 has seen it: {err}");
        assert!(matches!(code, Some(7 | 14)), "{err}");
        assert!(err.contains("status 7: PE 0; status 14: PE 1"), "{err}");
    }
}

#[test]
fn a_network_that_fails_at_the_exit_ends_the_job() {
    let (code, err) = run("-n 2 --nodes 2", "two-fabrics-at-exit", &[]);
    assert_eq!(code, Some(1), "{err}");
    assert!(err.contains("SHMEM_HCA"), "{err}");
    assert!(!err.contains("re-entrant"), "{err}");
}

/// It is the progress thread that finds out, beside the thread of `main`.
#[test]
fn a_network_that_fails_while_a_pe_computes_ends_the_job() {
    let job = shmrun("-n 2 --nodes 2", &[MISHAPS, "socket-breaks"]).run();
    let err = &job.stderr;
    assert_eq!(job.status.code(), Some(1), "{err}");
    assert!(
        err.contains("PE 0") && err.contains("the software HCA"),
        "{err}"
    );
    assert!(!err.contains("an exit handler runs"), "{err}");
    assert!(job.stdout.contains("PE 0 was here"), "{err}");
}

/// Instead of the child, which does not take part in the barrier, the PE itself does.
#[test]
fn a_child_of_a_pe_is_no_pe() {
    ends("forked-child", 0, &["PE 0", "has forked", "collective"]);
}

/// The PE that combines for its node, and others wait for it.
#[test]
fn a_panic_of_an_operation_that_is_caught_does_not_leave_others_waiting() {
    ends(
        "operation-panics",
        101,
        &["nobody can add", "of no more use"],
    );
}

#[test]
fn pes_that_chose_different_fabrics_name_both() {
    let (code, err) = run("-n 2 --nodes 2", "two-fabrics", &[]);
    assert!(code.is_some_and(|code| code != 0), "{err}");
    for words in [
        "RoCEv2",
        "the software HCA",
        "SHMEM_HCA",
        "shmem-info",
        "PE 1 (node 1)",
    ] {
        assert!(err.contains(words), "no {words:?} in: {err}");
    }
}

#[test]
fn pes_whose_atomics_differ_say_so() {
    let (code, err) = run("-n 2 --nodes 2", "two-ways-of-atomics", &[]);
    assert!(code.is_some_and(|code| code != 0), "{err}");
    for words in ["by owners", "by HCAs", "SHMEM_ATOMICS", "PE 1 (node 1)"] {
        assert!(err.contains(words), "no {words:?} in: {err}");
    }
}

/// On a node they find out in init, between nodes when they meet first.
#[test]
fn pes_that_do_not_all_compare_what_they_call_say_so() {
    for (mishap, others) in [("check-not", "1"), ("check-alone", "0")] {
        for options in ["-n 3", "-n 2 --nodes 2", "-n 4 --nodes 4"] {
            let (code, err) = run(options, mishap, &[("SHMEM_CHECK", others)]);
            assert_eq!(code, Some(1), "{options} {mishap}: {err}");
            for words in [
                "PE 0 ",
                "what PEs call (SHMEM_CHECK), but",
                ": set it alike for all PEs",
            ] {
                assert!(
                    err.contains(words),
                    "{options} {mishap}: no {words:?} in: {err}"
                );
            }
        }
    }
}

#[test]
fn a_pe_that_exits_without_finalize_ends_the_job() {
    ends("exit-0", 1, &["PE 0", "finalize"]);
    ends("forget-world", 1, &["PE 0", "finalize"]);
}

#[test]
fn the_status_of_a_failed_pe_is_that_of_the_job() {
    ends("exit-3", 3, &["PE 0", "status 3"]);
    ends("wait-for-ever", 4, &["PE 1", "status 4"]);
}

/// Dropping a `World` on the way out of `main` waits for nobody, so the error is printed.
#[test]
fn an_error_that_main_returns_ends_the_job() {
    ends(
        "early-error",
        1,
        &["PE 0 has had enough", "PE 0", "status 1"],
    );
}

#[test]
fn an_error_that_run_is_given_ends_the_job_and_is_told_once() {
    let said = format!("PE 0 has had enough: {}", std::fmt::Error);
    ends("run-error", 1, &["PE 0", &said, "status 1"]);
    for options in ["-n 40", "-n 40 --nodes 8"] {
        let (code, err) = run(options, "run-all-fail", &[]);
        assert_eq!(code, Some(1), "{options}: {err}");
        assert_eq!(times(&format!("): {said}"), &err), 1, "{options}: {err}");
    }
    let nowhere = [("SHMEM_HCA", "nothing")];
    let (code, err) = run("-n 4 --nodes 4", "run-well", &nowhere);
    assert_eq!(
        times("): cannot open the network endpoint", &err),
        1,
        "{err}"
    );
    assert_eq!(code, Some(1), "{err}");
    let (code, err) = run("-n 2 --nodes 2", "run-well", &[]);
    assert_eq!((code, err.as_str()), (Some(0), ""));
}

#[test]
fn contexts_do_not_outlive_their_finalize() {
    let said = "a context that ended with the finalize that came after it was made";
    ends("context-of-a-life-before", 101, &[said]);
}

#[test]
fn locks_that_nobody_can_get_or_nobody_holds_are_found() {
    ends(
        "lock-twice",
        101,
        &[
            "PE 0 (node 0): tests/programs/mishaps.rs:",
            ": this PE holds the lock",
            "thread level Multiple",
        ],
    );
    ends(
        "unlock-free-lock",
        101,
        &["this PE lets go of the lock", "does not hold"],
    );
}

#[test]
fn a_panic_ends_the_job() {
    ends("panic", 101, &["PE 0 loses its nerve", "status 101"]);
    ends(
        "panic-in-thread",
        101,
        &["a thread loses its nerve", "status 101"],
    );
}

/// How often `words` stand in `text`.
fn times(words: &str, text: &str) -> usize {
    text.matches(words).count()
}

#[test]
fn what_all_pes_say_alike_is_told_once_and_counted() {
    for options in ["-n 40", "-n 40 --nodes 8"] {
        for backtrace in ["0", "1"] {
            let env = [("RUST_BACKTRACE", backtrace)];
            let (code, err) = run(options, "all-panic-and-catch", &env);
            assert_eq!(code, Some(0), "{options}: {err}");
            assert_eq!(times("nobody is\nwanted", &err), 1, "{options}: {err}");
            let many = "39 more say the same as PE ";
            assert_eq!(times(many, &err), 1, "{options}: {err}");
            let wanted = usize::from(backtrace == "1");
            assert_eq!(times("stack backtrace:", &err), wanted, "{options}: {err}");
            assert_eq!(times("fail_alike", &err), wanted, "{err}");
            let strangers = |line: &&str| line.starts_with("shmem: ") && !line.contains("PE ");
            assert_eq!(err.lines().find(strangers), None, "{err}");
        }
    }
}

/// Who is late may be ended before it says anything, but what is said is said once, and first.
#[test]
fn when_all_pes_fail_the_first_message_is_out() {
    for options in ["-n 40", "-n 40 --nodes 8"] {
        for backtrace in ["0", "1"] {
            let (code, err) = run(options, "all-panic", &[("RUST_BACKTRACE", backtrace)]);
            assert_eq!(code, Some(101), "{options}: {err}");
            assert_eq!(times("nobody is\nwanted", &err), 1, "{options}: {err}");
            let wanted = usize::from(backtrace == "1");
            assert_eq!(times("stack backtrace:", &err), wanted, "{options}: {err}");
            let (words, end) = (err.find("nobody is"), err.find("exited with status 101"));
            assert!(words < end, "{options}: {err}");
        }
        let (code, err) = run(options, "all-ask-for-no-such-pe", &[]);
        assert_eq!(code, Some(101), "{options}: {err}");
        let words = "does not exist: this job has PEs 0 to 39";
        assert_eq!(times(words, &err), 1, "{options}: {err}");
    }
}

#[test]
fn pes_that_fail_with_their_own_number_are_counted_and_one_backtrace_is_made_of_a_place() {
    for options in ["-n 20", "-n 20 --nodes 4"] {
        let (code, err) = run(options, "all-panic-apart", &[("RUST_BACKTRACE", "1")]);
        assert_eq!(code, Some(101), "{options}: {err}");
        let lines = err.lines().filter(|line| line.contains(" of 20 fails"));
        let said: Vec<_> = lines.collect();
        let [line] = said[..] else {
            panic!("{options}: {err}")
        };
        let (_, pe) = line.split_once("shmem: PE ").expect("a PE is named");
        let (pe, _) = pe.split_once(' ').expect("its number");
        assert!(
            line.ends_with(&format!(": PE {pe} of 20 fails")),
            "{line} of {err}"
        );
        // Who is late may be ended before it says anything.
        let same = format!(" the same as PE {pe}");
        let mut counts = err.lines().filter(|line| line.contains(" the same as PE "));
        assert!(counts.all(|line| line.ends_with(&same)), "{options}: {err}");
        assert_eq!(times("stack backtrace:", &err), 1, "{options}: {err}");
    }
}

#[test]
fn packets_that_no_program_of_ours_sends_end_the_job() {
    for (mishap, said) in [
        (
            "packet-empty",
            "a packet of 0 bytes from a PE that its agent does not understand",
        ),
        (
            "packet-long",
            "a packet from a PE that is longer than any its agent understands",
        ),
    ] {
        let (code, err) = run("-n 3", mishap, &[]);
        assert!(code.is_some_and(|code| code != 0), "{mishap}: {err}");
        assert_eq!(times(said, &err), 1, "{mishap}: {err}");
    }
}

#[test]
fn the_last_of_many_words_is_heard() {
    for options in ["-n 3", "-n 6 --nodes 2"] {
        for round in 0..5 {
            let (code, err) = run(options, "many-words", &[]);
            assert_eq!(code, Some(6), "{options}, {round}: {err}");
            assert_eq!(times("the last word", &err), 1, "{options}, {round}: {err}");
            let told =
                (0..2000).filter(|word| times(&format!("PE 1 (node 0): word {word};"), &err) == 1);
            assert_eq!(told.count(), 2000, "{options}, {round}: {err}");
        }
    }
}

#[test]
fn a_hook_of_the_programs_own_is_called_on_all_pes() {
    for options in ["-n 5", "-n 6 --nodes 3"] {
        let (code, err) = run(options, "own-hook", &[]);
        assert_eq!(code, Some(0), "{options}: {err}");
        let n = usize::from(options.as_bytes()[3] - b'0');
        assert_eq!(times("the program's hook: ", &err), n, "{options}: {err}");
        for pe in 0..n {
            assert!(err.contains(&format!("shmem: PE {pe} (node ")), "{err}");
        }
    }
}

#[test]
fn global_exit_ends_the_job_with_its_status() {
    ends("global-exit-0", 0, &[]);
    for status in [1, 5, 42, 255] {
        let text = format!("global_exit({status})");
        ends(&format!("global-exit-{status}"), status, &[&text]);
    }
    ends("all-global-exit-42", 42, &["global_exit(42)"]);
    ends("global-exit-before-init", 6, &[]);
}

#[test]
fn mistakes_in_arguments_panic_with_the_values() {
    ends("no-such-pe", 101, &["PE 1048576 does not exist"]);
    let said = "PE 1 does not exist: the team of this context has PEs 0 to 0";
    ends("no-such-member", 101, &[said]);
    ends("no-such-pe-to-complete", 101, &["PE 77 does not exist"]);
    let said = ["atomic add of 8 bytes", "a multiple of 8"];
    ends("misaligned-atomic", 101, &said);
    let said = "the stride of dest is 1 elements, less than a block, which has 2";
    ends("stride-less-than-block", 101, &[said]);
    ends(
        "past-the-end",
        101,
        &[
            "PE 0 (node 0): tests/programs/mishaps.rs:",
            ": put of 5 elements into a symmetric array of 4",
        ],
    );
    ends(
        "alltoall-too-long",
        101,
        &["alltoall: blocks of 9223372036854775808"],
    );
    ends("fcollect-too-long", 101, &["fcollect: dest has 4 elements"]);
    for options in [ONE_NODE, NODES] {
        // SHMEM_CHECK would report that the arrays differ.
        let (code, err) = run(options, "two-arrays-for-lengths", &[("SHMEM_CHECK", "0")]);
        assert_eq!(code, Some(101), "{options}: {err}");
        let said = "would begin at element 1099511627776 of dest, where no array reaches";
        assert!(err.contains(said), "{options}: {err}");
        let (code, err) = run(options, "two-ways-to-scatter", &[("SHMEM_CHECK", "0")]);
        assert_eq!(code, Some(101), "{options}: {err}");
        let said = "elements 0 to 1048576 of 0: another PE is in a different collective";
        assert!(err.contains(said), "{options}: {err}");
        let (code, err) = run(options, "two-ways-to-scatter-more", &[("SHMEM_CHECK", "0")]);
        assert_eq!(code, Some(101), "{options}: {err}");
        let said = "1048576 of 2305843009213693952: another PE is in a different collective";
        assert!(err.contains(said), "{options}: {err}");
    }
    let said = "broadcast: there is no PE 9 in the world team, which has PEs 0 to";
    ends("no-such-root", 101, &[said]);
}

#[test]
fn calls_outside_of_init_and_finalize_say_so() {
    let said = ["shmem::init() has not been called"];
    ends("call-before-init", 101, &said);
    ends("call-after-finalize", 101, &said);
}

#[test]
fn a_pe_that_does_not_come_again_is_missed() {
    // Told by its neighbour or by the launch agents, whoever finds out first.
    let said = ["PE 1 has ended", "equally often"];
    ends("one-life-less", 1, &said);
    // Nobody of the same node is there to find out.
    for mishap in ["first-node-less", "other-nodes-less"] {
        for options in ["-n 2 --nodes 2", "-n 6 --nodes 3", "-n 7 --nodes 7"] {
            let (code, err) = run(options, mishap, &[]);
            assert_eq!(code, Some(1), "{options} {mishap}: {err}");
            for words in ["has ended, but other PEs", "equally often"] {
                assert!(err.contains(words), "{options} {mishap}: {err}");
            }
        }
    }
}

#[test]
fn a_pe_that_ends_without_init_is_missed() {
    for mishap in ["never-init", "never-init-late"] {
        ends(mishap, 1, &["PE 1", "has ended", "must initialise"]);
    }
}

#[test]
fn a_thread_that_may_not_call_is_named() {
    if cfg!(debug_assertions) {
        ends(
            "wrong-thread",
            101,
            &["ThreadLevel::Funneled", "SHMEM_THREAD_FUNNELED"],
        );
    }
}

#[test]
fn two_threads_in_collectives_are_found_out() {
    let (code, err) = run("-n 2", "two-threads-meet", &[]);
    assert!(code == Some(101), "{err}");
    assert!(
        err.contains("this PE calls a collective of the world team while it is in another one"),
        "{err}"
    );
}

#[test]
fn init_says_what_to_do_about_wrong_settings() {
    for (name, value) in [
        ("SHMEM_SYMMETRIC_SIZE", "lots"),
        ("SHMEM_CONNECT", "sometimes"),
        ("SHMEM_SOFT_MTU", "1000"),
    ] {
        let (code, err) = run(ONE_NODE, "init-only", &[(name, value)]);
        assert_ne!(code, Some(0), "{name}={value}");
        assert!(
            err.contains(name) && err.contains(value),
            "{name}={value}: {err}"
        );
    }
}

#[test]
fn shmrun_refuses_addresses_that_cannot_do() {
    let one = ("SHMEM_SOFT_ADDRESS", "127.0.0.1");
    let (code, err) = run(NODES, "init-only", &[one, ("SHMEM_SOFT_PORT", "4791")]);
    assert_eq!(code, Some(2), "{err}");
    for said in [
        "SHMEM_SOFT_PORT=4791",
        "4 PEs",
        "SHMEM_SOFT_ADDRESS=127.0.0.1+",
    ] {
        assert!(err.contains(said), "no {said:?} in: {err}");
    }
    let (code, err) = run(NODES, "init-only", &[("SHMEM_SOFT_INTEROP", "yes")]);
    assert_eq!(code, Some(2), "{err}");
    assert!(err.contains("use SHMEM_SOFT_PORT=4791"), "{err}");
    // An address that this machine does not have (TEST-NET-1).
    let (code, err) = run(NODES, "init-only", &[("SHMEM_SOFT_ADDRESS", "192.0.2.1")]);
    assert_eq!(code, Some(1), "{err}");
    assert!(
        err.contains("cannot bind a UDP socket to 192.0.2.1"),
        "{err}"
    );
}

/// Without `shmrun`: what `init` says to a process in a strange environment.
#[test]
fn init_says_what_is_wrong_with_the_environment() {
    let alone = |env: &[(&str, &str)]| {
        // Whatever descriptors the tests were started with, the program has none of them.
        let script = "exec 9>&-; exec \"$0\" init-only";
        let mut command = std::process::Command::new("sh");
        command
            .args(["-c", script, MISHAPS])
            .envs(env.iter().copied());
        let outcome = Job::of(command).run();
        (outcome.status.code(), outcome.stderr)
    };
    assert_eq!(alone(&[]), (Some(0), String::new()));
    let (_, offer) = contract::node_env(Descriptors::below(1024));
    let cases: [(&[(&str, &str)], &str); 6] = [
        (
            &[("PMI_FD", "9")],
            "PMI_RANK is not: the launcher must set both",
        ),
        (
            &[("PMI_FD", "9"), ("PMI_RANK", "0"), ("PMI_SIZE", "2")],
            "descriptor 9 cannot be taken over",
        ),
        (&[("OMPI_COMM_WORLD_RANK", "0")], "Open MPI"),
        (
            &[("SHMEM_NODE", "999")],
            "use the shmrun that was built with it",
        ),
        (
            &[("SHMEM_NODE", &offer)],
            "SHMEM_LOCAL_RANK is not a number",
        ),
        (
            &[("SHMEM_NODE", &offer), ("SHMEM_LOCAL_RANK", "0")],
            "not the one that shmrun started",
        ),
    ];
    for (env, said) in cases {
        let (code, err) = alone(env);
        assert_eq!(code, Some(1), "{env:?}: {err}");
        assert!(err.contains(said), "{env:?}: no {said:?} in: {err}");
    }
}
