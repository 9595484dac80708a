//! `shmrun` as its users see it, with programs that are executed.

use std::io::Read;

use shmem_launch::frame::OUTPUT_WINDOW;
use shmem_testkit::processes::status_kib;
use shmem_testkit::wait_until;

use crate::support::{sh, shmrun, shmrun_after};

#[test]
fn every_pe_knows_its_place() {
    let script = "echo $PMI_RANK/$PMI_SIZE local $SHMEM_LOCAL_RANK";
    let out = sh(&["-n", "5", "--nodes", "2"], script).run();
    assert_eq!(out.code(), 0, "{out:?}");
    let want = [
        "0/5 local 0",
        "1/5 local 1",
        "2/5 local 2",
        "3/5 local 0",
        "4/5 local 1",
    ];
    assert_eq!(out.sorted(), want);
    assert_eq!(out.stderr, "");
}

#[test]
fn labels_tell_who_wrote() {
    let out = sh(&["-np", "3", "-l"], "echo out; echo err >&2; printf tail").run();
    assert_eq!(out.code(), 0);
    assert_eq!(
        out.sorted(),
        [
            "[0] out", "[0] tail", "[1] out", "[1] tail", "[2] out", "[2] tail"
        ]
    );
    let mut errors: Vec<_> = out.stderr.lines().collect();
    errors.sort_unstable();
    assert_eq!(errors, ["[0] err", "[1] err", "[2] err"]);
}

#[test]
fn the_last_line_has_an_end_only_if_the_pe_wrote_one() {
    for shape in [&[][..], &["-n", "2"], &["-n", "2", "--nodes", "2"]] {
        let out = sh(shape, "[ $PMI_RANK = 0 ] || exit 0; printf 'no line end'").run();
        assert_eq!((out.code(), out.stdout.as_str()), (0, "no line end"));
        // Messages and reports have lines of their own.
        let script = "[ $PMI_RANK = 0 ] || exit 0; printf 'no line end' | tee /dev/stderr; exit 3";
        let out = sh(&[shape, &["--report", "-"]].concat(), script).run();
        assert!(
            out.stderr.starts_with("no line end\nshmrun: PE 0 "),
            "{out:?}"
        );
        assert!(out.stdout.starts_with("no line end\n"), "{out:?}");
    }
}

#[test]
fn input_goes_to_pe_0_and_others_see_its_end() {
    let input: Vec<u8> = (0..40_000u32)
        .flat_map(|i| format!("line {i}\n").into_bytes())
        .collect();
    let out = sh(&["-n", "3", "--nodes", "3"], "wc -c").run_with_input(input.clone());
    assert_eq!(out.code(), 0);
    let mut counts: Vec<usize> = out
        .stdout
        .lines()
        .map(|l| l.trim().parse().unwrap())
        .collect();
    counts.sort_unstable();
    assert_eq!(counts, [0, 0, input.len()]);
}

#[test]
fn input_that_nobody_reads_does_no_harm() {
    let out = sh(&["-n", "2"], "exec 0<&-; echo done").run_with_input(vec![b'x'; 1 << 20]);
    assert_eq!((out.code(), out.stdout.as_str()), (0, "done\ndone\n"));
}

#[test]
fn a_single_pe_is_a_filter() {
    let input: Vec<u8> = (0..600_000u32)
        .map(|i| (i * 7 % 251) as u8)
        .map(|b| b'a' + b % 26)
        .collect();
    let out = shmrun(&["/bin/cat"]).run_with_input(input.clone());
    assert_eq!(out.code(), 0);
    assert!(out.stdout.as_bytes() == input);
}

#[test]
fn the_status_is_that_of_the_first_pe_that_fails() {
    let script = "if [ $PMI_RANK = 3 ]; then echo last words >&2; exit 7; fi; exec sleep 1000";
    let out = sh(&["-n", "6", "--nodes", "3"], script).run();
    assert_eq!(out.code(), 7);
    assert_eq!(out.messages().len(), 1, "{}", out.stderr);
    assert!(
        out.messages()[0].contains("PE 3 on node 1 (pid "),
        "{}",
        out.stderr
    );
    assert!(out.messages()[0].ends_with("exited with status 7; ending the job"));
    let words = out
        .stderr
        .find("last words")
        .expect("output before the end arrives");
    assert!(words < out.stderr.find("shmrun: ").unwrap());
}

#[test]
fn death_by_signal_is_told() {
    let script = "if [ $PMI_RANK = 1 ]; then kill -9 $$; fi; exec sleep 1000";
    let out = sh(&["-n", "3"], script).run();
    assert_eq!(out.code(), 137);
    assert!(
        out.messages()[0].contains("was killed by signal 9 (SIGKILL)"),
        "{}",
        out.stderr
    );
}

#[test]
fn a_pe_that_ignores_sigterm_is_killed() {
    let script = "trap '' TERM; if [ $PMI_RANK = 1 ]; then exit 3; fi; while :; do sleep 1; done";
    let out = sh(&["-n", "3", "--nodes", "2"], script).run();
    assert_eq!(out.code(), 3);
}

#[test]
fn wrong_command_lines() {
    for args in [
        &["-n", "0", "true"][..],
        &["-n", "2", "--nodes", "3", "true"],
        &["--no-such", "true"],
        &[],
    ] {
        assert_eq!(shmrun(args).run().code(), 2, "{args:?}");
    }
    let out = shmrun(&["true"]).env("SHMEM_SPIN", "many").run();
    assert_eq!(out.code(), 2);
    assert!(out.stderr.contains("SHMEM_SPIN=many"), "{}", out.stderr);
    let out = shmrun(&["--chdir", "/no/such", "true"]).run();
    assert!(
        out.code() == 2 && out.stderr.contains("/no/such"),
        "{}",
        out.stderr
    );
}

#[test]
fn jobs_that_cannot_fit_are_refused_with_numbers() {
    let out = crate::template::probe(&["-n", "4"], &["place"])
        .env("SHMEM_SYMMETRIC_SIZE", "30t")
        .run();
    assert_eq!(out.code(), 125);
    assert!(
        out.stderr.contains("30.0 TiB") && out.stderr.contains("SHMEM_SYMMETRIC_SIZE"),
        "{}",
        out.stderr
    );
    // A program without the library needs no memory for heaps, but a place for them.
    let run = |size| {
        shmrun(&["-n", "4", "true"])
            .env("SHMEM_SYMMETRIC_SIZE", size)
            .run()
    };
    assert_eq!(run("4t").code(), 0);
    let out = run("50t");
    assert!(
        out.code() == 125 && out.stderr.contains("lower SHMEM_SYMMETRIC_SIZE"),
        "{}",
        out.stderr
    );
    let out = shmrun(&["-n", "1000000", "--nodes", "1000", "true"]).run();
    assert!(
        out.code() == 125 && out.stderr.contains("needs"),
        "{}",
        out.stderr
    );
}

#[test]
fn environment_and_directory_are_passed_on() {
    let args = [
        "-n",
        "2",
        "-x",
        "A=b c",
        "-x",
        "SHMRUN_TEST_OTHER",
        "--wdir",
        "/usr",
        "sh",
        "-c",
        "echo $A $SHMRUN_TEST_OTHER $(pwd)",
    ];
    let out = shmrun(&args).env("SHMRUN_TEST_OTHER", "there").run();
    assert_eq!(
        (out.code(), out.stdout.as_str()),
        (0, "b c there /usr\nb c there /usr\n")
    );
}

#[test]
fn a_job_runs_in_a_directory_that_was_removed() {
    let gone = std::env::temp_dir().join(format!("shmrun-gone-{}", std::process::id()));
    std::fs::create_dir(&gone).unwrap();
    let enter = format!("cd {0} && rmdir {0}", gone.display());
    for options in [["-n", "2", "--nodes", "1"], ["-n", "2", "--nodes", "2"]] {
        let program = ["sh", "-c", "readlink /proc/self/cwd"];
        let out = shmrun_after(&enter, &[&options[..], &program].concat()).run();
        assert_eq!(out.code(), 0, "{out:?}");
        assert_eq!(out.stdout.matches("(deleted)").count(), 2, "{out:?}");
        std::fs::create_dir(&gone).unwrap();
    }
    std::fs::remove_dir(&gone).unwrap();
}

/// Where core files go to a program, the kernel starts it although the limit is 0, but not where it is 1.
#[test]
fn agents_leave_no_core_file_and_pes_as_the_user_wants() {
    let soft_and_hard = |pid: i32| {
        let limits = std::fs::read_to_string(format!("/proc/{pid}/limits")).unwrap();
        let line = limits.lines().find(|l| l.starts_with("Max core file size"));
        let mut words = line.unwrap().split_whitespace().skip(4).map(str::to_owned);
        [words.next().unwrap(), words.next().unwrap()]
    };
    let args = ["-n", "2", "--nodes", "2", "sleep", "1000"];
    for limit in ["0", "4096", "$(ulimit -Hc)"] {
        let job = shmrun_after(&format!("ulimit -Sc {limit}"), &args).start();
        let pes = job.wait_for("sleep", 2);
        let [_, hard] = soft_and_hard(pes[0]);
        for pe in pes {
            let [soft, _] = soft_and_hard(pe);
            let as_wanted = match limit {
                "0" => soft == "0",
                // In blocks, whose size is the shell's.
                "4096" => soft.parse().is_ok_and(|bytes: u64| bytes >= 4096) || hard == "0",
                _ => soft == hard,
            };
            assert!(as_wanted, "{limit}: {soft}");
        }
        let of_ours = |name: &str| name.starts_with("shmrun") || name == "pe-guard";
        let ours = job.processes().into_iter().filter(|p| of_ours(&p.name));
        let ours: Vec<_> = ours.filter(|p| p.name != "shmrun-spawner").collect();
        assert!(ours.len() >= 5, "{ours:?}");
        for p in ours {
            let least = if hard == "0" { "0" } else { "1" };
            assert_eq!(soft_and_hard(p.pid)[0], least, "{p:?}");
        }
        job.kill(15);
        job.wait();
    }
}

#[test]
fn pes_start_with_ordinary_descriptors_and_signals() {
    let script =
        "ls /proc/self/fd | tr '\\n' ' '; grep -E 'Sig(Blk|Ign)' /proc/self/status | tr '\\n' ' '";
    let status = std::fs::read_to_string("/proc/self/status").unwrap();
    let own = status.lines().find_map(|l| l.strip_prefix("SigIgn:"));
    let own = u64::from_str_radix(own.unwrap().trim(), 16).unwrap();
    let ignored = own & [1, 2, 3, 20].map(|n| 1 << (n - 1)).iter().sum::<u64>();
    let out = sh(&["-n", "2", "--nodes", "2"], script).run();
    for line in out.stdout.lines() {
        // A shell's own numbers are free: ls has the directory that it reads at the first.
        assert!(
            line.starts_with("0 1 2 232 233 234 235 236 3 SigBlk"),
            "{line}"
        );
        // None blocked, none ignored but perhaps those that the C library keeps to itself (32, 33),
        // which no program can change, and those that nohup has had this program ignore.
        let masks: Vec<u64> = line
            .split_whitespace()
            .filter(|w| w.len() == 16)
            .map(|w| u64::from_str_radix(w, 16).unwrap())
            .collect();
        assert!(
            masks.len() == 2 && masks[0] == 0 && masks[1] & !(3 << 31 | ignored) == 0,
            "{line}"
        );
    }
}

#[test]
fn background_processes_end_with_the_job() {
    let out = sh(
        &["-n", "3", "--nodes", "2"],
        "sleep 1000 & setsid sleep 1000 & echo started",
    )
    .run();
    assert_eq!(out.code(), 0, "{out:?}");
    assert_eq!(out.stdout, "started\nstarted\nstarted\n");
}

#[test]
fn the_time_limit_ends_the_job() {
    let out = sh(
        &["-n", "3", "--nodes", "3", "--timeout", "1"],
        "exec sleep 1000",
    )
    .run();
    assert_eq!(out.code(), 124);
    assert!(out.stderr.contains("time limit of 1 s"), "{}", out.stderr);
}

#[test]
fn much_output_arrives_whole_and_in_order() {
    let script = "i=0; while [ $i -lt 3000 ]; do echo $PMI_RANK $i abcdefghijklmnopqrstuvwxyz; i=$((i+1)); done";
    let out = sh(&["-n", "8", "--nodes", "3"], script).run();
    assert_eq!(out.code(), 0, "{}", out.stderr);
    let mut next = [0; 8];
    for line in out.stdout.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        assert_eq!(words[2], "abcdefghijklmnopqrstuvwxyz");
        let rank: usize = words[0].parse().unwrap();
        assert_eq!(words[1].parse::<u32>().unwrap(), next[rank]);
        next[rank] += 1;
    }
    assert_eq!(next, [3000; 8]);
}

#[test]
fn a_line_without_end_arrives_too() {
    let out = sh(&["-n", "2"], "head -c 300000 /dev/zero | tr '\\0' x").run();
    assert_eq!(out.code(), 0);
    let lines: Vec<usize> = out.stdout.lines().map(str::len).collect();
    assert_eq!(lines.iter().sum::<usize>(), 600_000);
}

/// Bytes that a process has written.
fn written(pid: i32) -> u64 {
    let io = std::fs::read_to_string(format!("/proc/{pid}/io")).unwrap();
    let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
    written.unwrap().parse().unwrap()
}

#[test]
fn unread_output_stops_the_writers() {
    let job = sh(
        &["-n", "4", "--nodes", "4"],
        "exec yes aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    );
    let mut job = job.start();
    let writers = job.wait_for("yes", 4);
    // On each node a window of output, two pipes and what a socket takes; the launcher's share; the pipe to here.
    let most = 4 * (OUTPUT_WINDOW as u64 + (1 << 20)) + (4 << 20);
    // Whatever moment that is, no more than this was taken from the writers, and is kept.
    let taken = || {
        let taken: u64 = writers.iter().map(|&pid| written(pid)).sum();
        assert!(taken <= most, "{taken} bytes of {most}");
        let there = job.processes();
        for p in there.iter().filter(|p| p.name.starts_with("shmrun")) {
            let kib = status_kib(p.pid, "RssAnon").unwrap_or(0);
            assert!(kib < 16 << 10, "{} has {kib} KiB", p.name);
        }
        taken
    };
    // A machine that has no time for anybody ends this early, with as little to complain of.
    let (mut before, mut same) = (0, 0);
    wait_until(
        "nothing more is taken",
        || {
            std::thread::sleep(std::time::Duration::from_millis(10));
            let now = taken();
            same = if now == before && now > 0 {
                same + 1
            } else {
                0
            };
            before = now;
            same == 20
        },
        || format!("{:?}", job.processes()),
    );
    // When the reader goes, the writers find out as they would without a launcher.
    let mut some = vec![0; 1 << 20];
    let mut stdout = job.stdout();
    stdout.read_exact(&mut some).unwrap();
    drop(stdout);
    let out = job.wait();
    assert_eq!(out.code(), 128 + 13, "{}", out.stderr);
}

#[test]
fn sigterm_reaches_everybody() {
    let job = sh(
        &["-n", "4", "--nodes", "2"],
        "trap 'echo asked; exit 0' TERM; echo up; while :; do sleep 1000 & wait; done",
    );
    let job = job.start();
    job.wait_for("sleep", 4);
    job.kill(15);
    let out = job.wait();
    assert_eq!(out.code(), 143);
    assert_eq!(out.stdout.matches("asked").count(), 4, "{}", out.stdout);
    assert_eq!(out.messages(), ["shmrun: received SIGTERM; ending the job"]);
}

#[test]
fn ctrl_c_reaches_everybody() {
    let job = sh(
        &["-n", "4", "--nodes", "2"],
        "trap 'echo interrupted; exit 1' INT; while :; do sleep 1000 & wait; done",
    );
    let job = job.start();
    job.wait_for("sleep", 4);
    job.kill(2);
    let out = job.wait();
    assert_eq!(out.code(), 130);
    assert_eq!(
        out.stdout.matches("interrupted").count(),
        4,
        "{}",
        out.stdout
    );
}

#[test]
fn five_hundred_pes_in_many_shapes() {
    // Nodes so large that 1024 descriptors, if a user may have no more, are enough.
    for nodes in ["3", "7", "64"] {
        let out = shmrun(&["-n", "512", "--nodes", nodes, "/bin/echo", "hi"]).run();
        assert_eq!(out.code(), 0, "{}", out.stderr);
        assert_eq!(out.stdout, "hi\n".repeat(512));
    }
}

#[test]
fn reports_are_written() {
    let path = std::env::temp_dir().join(format!("shmrun-report-{}.json", std::process::id()));
    let out = shmrun(&[
        "-n",
        "4",
        "--nodes",
        "2",
        "--report",
        "-",
        "--report",
        path.to_str().unwrap(),
        "echo",
        "hi",
    ])
    .run();
    let json = std::fs::read_to_string(&path).unwrap();
    std::fs::remove_file(&path).unwrap();
    assert_eq!(out.code(), 0);
    for part in [
        "4 PEs on 2 nodes",
        "tree up",
        "PEs started",
        "2 launch agents",
        "status 0                                    4  0-3",
        "per process, over 4 PEs",
    ] {
        assert!(out.stdout.contains(part), "{part} in {}", out.stdout);
    }
    assert!(
        out.stdout.starts_with("hi\n"),
        "after the job's output: {}",
        out.stdout
    );
    assert!(json.contains("\"pes\": 4, \"nodes\": 2"), "{json}");
    for rank in 0..4 {
        let record = format!("{{\"rank\": {rank}, \"status\": 0, \"user_ns\": ");
        assert!(json.contains(&record), "{json}");
    }
}

#[test]
fn statuses_of_all_pes_are_told_where_they_differ() {
    let out = sh(
        &["-n", "4", "--nodes", "2", "--print-all-exitcodes"],
        "exit 0",
    )
    .run();
    let line = "shmrun: how all PEs ended: status 0: PEs 0-3\n";
    assert!(out.code() == 0 && out.stderr.ends_with(line), "{out:?}");
    let dir = std::env::temp_dir().join(format!("shmrun-statuses-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let script = "trap 'exit 9' TERM; : > $PMI_RANK; [ $PMI_RANK = 2 ] || { sleep 100 & wait; }\n\
        until [ -e 0 ] && [ -e 1 ] && [ -e 3 ]; do sleep 0.05; done; exit 5";
    let options = ["-n", "4", "--nodes", "2", "-wdir", dir.to_str().unwrap()];
    // As long as it takes to end in one's own way.
    let patient = |job: shmem_testkit::Job| job.env("SHMEM_GRACE", "100s").run();
    let out = patient(sh(&options, script));
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(out.code(), 5);
    let line = "shmrun: how all PEs ended: status 9: PEs 0-1,3; status 5: PE 2\n";
    assert!(out.stderr.ends_with(line), "{out:?}");
    let script = "[ $PMI_RANK = 1 ] && exit 5; exec sleep 1000";
    let out = patient(sh(&["-n", "2"], script));
    assert!(!out.stderr.contains("all PEs"), "{out:?}");
    let out = patient(sh(&["-n", "2", "-print-all-exitcodes"], script));
    assert!(
        out.stderr.contains("SIGTERM: PE 0; status 5: PE 1"),
        "{out:?}"
    );
}

#[test]
fn a_dry_run_starts_nothing() {
    let out = shmrun(&["-n", "5", "--nodes", "2", "--dry-run", "echo", "hi"]).run();
    assert_eq!((out.code(), out.stdout.as_str()), (0, ""));
    assert!(out.stderr.contains("node 1: PEs 3 to 4"), "{}", out.stderr);
    let out = shmrun(&["--settings"]).run();
    assert!(
        out.code() == 0 && out.stdout.contains("SHMEM_SYMMETRIC_SIZE"),
        "{out:?}"
    );
    let options = [
        "-x",
        "SHMEM_SPIN=7",
        "-genv",
        "SHMEM_CONNECT",
        "static",
        "--settings",
    ];
    let out = shmrun(&options).env("SMA_INFO", "1").run();
    for line in [
        "SHMEM_SPIN=7  (--env)",
        "SHMEM_CONNECT=static  (--genv)",
        "SHMEM_INFO=1  (environment, as SMA_INFO)",
        "SHMEM_SPAWN=auto  (default)",
    ] {
        assert!(out.stdout.contains(line), "{line} in {}", out.stdout);
    }
    // What is set for the PEs is set for the job.
    let out = shmrun(&["-x", "SHMEM_SYMMETRIC_SIZE=much", "-n", "1", "true"]).run();
    assert!(
        out.code() == 2 && out.stderr.contains("SHMEM_SYMMETRIC_SIZE"),
        "{out:?}"
    );
    let out = shmrun(&["--help"]).run();
    assert!(
        out.code() == 0 && out.stdout.contains("--hostfile"),
        "{out:?}"
    );
}
