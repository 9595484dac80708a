//! Standard streams that fail, block, or are read by somebody who waits for an answer.

use std::fs::File;
use std::io::{PipeReader, PipeWriter, Read, Write};
use std::os::fd::AsRawFd;
use std::process::Stdio;

use shmem_testkit::processes::status_kib;
use shmem_testkit::{Job, Outcome};

use crate::hosts::Network;
use crate::support::{sh, shmrun, shmrun_after};

/// What `shmrun` says of itself when output or input is lost.
const LOST: i32 = 123;

fn full() -> Stdio {
    File::options()
        .write(true)
        .open("/dev/full")
        .unwrap()
        .into()
}

fn set_nonblocking(end: &impl AsRawFd) {
    // SAFETY: sets a flag of a descriptor that is open.
    let done = unsafe { libc::fcntl(end.as_raw_fd(), libc::F_SETFL, libc::O_NONBLOCK) };
    assert_eq!(done, 0);
}

/// Reads until the text ends in `end`; the whole text.
fn read_until(from: &mut impl Read, end: &str) -> String {
    let mut text = Vec::new();
    let mut byte = [0];
    while !text.ends_with(end.as_bytes()) {
        let n = from.read(&mut byte).unwrap();
        assert_eq!(n, 1, "ended after {:?}", String::from_utf8_lossy(&text));
        text.push(byte[0]);
    }
    String::from_utf8(text).unwrap()
}

#[test]
fn a_full_disk_is_told_and_gives_the_job_a_status() {
    for shape in [&["-n", "4"][..], &["-n", "4", "--nodes", "2"], &["-l"]] {
        let job = sh(shape, "echo $PMI_RANK");
        let out = job.stdout(full()).run();
        assert_eq!(out.code(), LOST, "{out:?}");
        assert_eq!(out.messages().len(), 1, "{out:?}");
        for part in ["standard output", "No space left on device"] {
            assert!(out.messages()[0].contains(part), "{out:?}");
        }
        // There is no place to tell it; the status does.
        let job = sh(shape, "echo $PMI_RANK >&2");
        let out = job.stderr(full()).run();
        assert_eq!(out.code(), LOST, "{out:?}");
    }
}

#[test]
fn a_stream_that_was_closed_at_the_start_takes_no_output() {
    let job = shmrun_after("exec >&-", &["-n", "2", "/bin/sh", "-c", "echo lost"]);
    let out = job.run();
    assert_eq!(out.code(), LOST, "{out:?}");
    let said = "shmrun: cannot write to standard output: Bad file descriptor";
    assert!(out.messages()[0].starts_with(said), "{out:?}");
    let job = shmrun_after("exec 2>&-", &["/bin/sh", "-c", "echo lost >&2"]);
    assert_eq!(job.run().code(), LOST);
    // Nothing is lost where nothing is written.
    for closed in ["exec >&-", "exec 2>&-", "exec <&-", "exec <&- >&- 2>&-"] {
        let out = shmrun_after(closed, &["-n", "2", "cat"]).run();
        assert_eq!(out.code(), 0, "{closed}: {out:?}");
    }
    let out = shmrun_after("exec >&-", &["--version"]).run();
    assert_eq!(out.code(), LOST, "{out:?}");
}

#[test]
fn a_full_disk_ends_programs_that_go_on_writing() {
    let job = sh(&["-n", "3", "--nodes", "3"], "exec yes");
    let out = job.stdout(full()).run();
    assert_eq!(out.code(), LOST, "{out:?}");
    assert_eq!(out.messages().len(), 1, "{out:?}");
}

#[test]
fn a_reader_that_has_gone_ends_the_job_as_it_ends_other_programs() {
    for script in ["echo hi", "exec yes"] {
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let job = sh(&["-n", "2"], script);
        let out = job.stdout(write).run();
        assert_eq!((out.code(), &out.stderr[..]), (128 + 13, ""), "{script}");
    }
}

#[test]
fn a_failure_of_the_program_is_told_though_nobody_reads() {
    let (read, write) = std::io::pipe().unwrap();
    drop(read);
    let script = "trap '' PIPE; echo hi; test $PMI_RANK = 1 && exit 7; exec sleep 1000";
    let job = sh(&["-n", "2"], script);
    let out = job.stdout(write).run();
    assert_eq!(out.code(), 7, "{out:?}");
    assert!(out.messages()[0].contains("PE 1"), "{out:?}");
}

#[test]
fn reports_and_help_that_cannot_be_written_are_told() {
    let job = shmrun(&["--report", "-", "true"]);
    let out = job.stdout(full()).run();
    assert_eq!(out.code(), LOST, "{out:?}");
    assert!(out.messages()[0].contains("report"), "{out:?}");
    let out = shmrun(&["--report", "/dev/full", "true"]).run();
    assert_eq!(out.code(), LOST, "{out:?}");
    assert!(out.messages()[0].contains("/dev/full"), "{out:?}");
    for option in ["--settings", "--help", "--version"] {
        let job = shmrun(&[option]);
        let out = job.stdout(full()).run();
        assert_eq!(out.code(), LOST, "{option}: {out:?}");
        assert!(out.stderr.contains("No space left"), "{option}: {out:?}");
        let (read, write) = std::io::pipe().unwrap();
        drop(read);
        let job = shmrun(&[option]);
        let out = job.stdout(write).run();
        assert_eq!((out.code(), &out.stderr[..]), (128 + 13, ""), "{option}");
    }
}

#[test]
fn a_pipe_that_does_not_block_loses_nothing() {
    let (mut read, write) = std::io::pipe().unwrap();
    set_nonblocking(&write);
    let errors = write.try_clone().unwrap();
    let job = sh(&["-n", "2"], "seq 1 60000; seq 1 60000 >&2");
    let job = job.stdout(write).stderr(errors).start();
    let mut text = String::new();
    let reader = std::thread::spawn(move || {
        // Slow enough for the pipe to be full at times.
        let mut part = [0; 30_000];
        while let Ok(n @ 1..) = read.read(&mut part) {
            text.push_str(std::str::from_utf8(&part[..n]).unwrap());
            std::thread::yield_now();
        }
        text
    });
    let out = job.wait();
    assert_eq!(out.code(), 0, "{out:?}");
    let text = reader.join().unwrap();
    assert_eq!(text.lines().count(), 4 * 60_000);
    let sum: u64 = text.lines().map(|l| l.parse::<u64>().unwrap()).sum();
    assert_eq!(sum, 4 * (60_000 * 60_001 / 2));
}

#[test]
fn input_that_does_not_block_is_waited_for() {
    let (read, mut write) = std::io::pipe().unwrap();
    set_nonblocking(&read);
    let job = sh(
        &["-n", "2"],
        "test $PMI_RANK = 1 || while read x; do echo got $x; done",
    );
    let mut job = job.stdin(read).start();
    let mut output = job.stdout();
    for line in ["one", "two", "three"] {
        writeln!(write, "{line}").unwrap();
        assert_eq!(read_until(&mut output, "\n"), format!("got {line}\n"));
    }
    drop(write);
    let out = job.wait();
    assert_eq!(out.code(), 0, "{out:?}");
}

#[test]
fn input_that_cannot_be_read_is_no_input() {
    let directory = File::open("/").unwrap();
    let out = shmrun(&["cat"]).stdin(directory).run();
    assert_eq!((out.code(), &out.stderr[..]), (0, ""), "{out:?}");
    // What nohup leaves.
    let unreadable = File::options().write(true).open("/dev/null").unwrap();
    let out = shmrun(&["cat"]).stdin(unreadable).run();
    assert_eq!((out.code(), &out.stderr[..]), (0, ""), "{out:?}");
}

/// Asks, and goes on when it was answered.
fn ask(job: Job, asked: &str) {
    let mut job = job.stdin(Stdio::piped()).start();
    let mut input = job.stdin();
    let mut output = job.stdout();
    for name in ["a", "b"] {
        assert_eq!(read_until(&mut output, "? "), format!("{asked}name? "));
        writeln!(input, "{name}").unwrap();
        assert_eq!(read_until(&mut output, "\n"), format!("hi {name}\n"));
    }
    let out = job.wait();
    assert_eq!(out.code(), 0, "{out:?}");
}

#[test]
fn a_question_is_seen_before_its_line_has_ended() {
    let script = "if test $PMI_RANK = 0; then \
         for i in 1 2; do printf 'name? '; read x; echo hi $x; done; fi";
    ask(sh(&["-n", "3"], script), "");
    ask(sh(&["-n", "3", "--nodes", "3"], script), "");
    let net = Network::new();
    ask(net.sh("a,b,c", &["-n", "3"], script), "");
}

#[test]
fn a_line_that_rests_does_not_keep_others_waiting() {
    for nodes in ["1", "2"] {
        let script = "if test $PMI_RANK = 0; then printf 'name? '; read x; echo hi $x; \
             else while ! test -e $GO; do sleep 0.05; done; echo line; fi";
        let dir = std::env::temp_dir().join(format!("shmrun-rest-{}-{nodes}", std::process::id()));
        let job = sh(&["-n", "2", "--nodes", nodes], script).env("GO", dir.to_str().unwrap());
        let mut job = job.stdin(Stdio::piped()).start();
        let mut output = job.stdout();
        assert_eq!(read_until(&mut output, "? "), "name? ");
        File::create(&dir).unwrap();
        // The line of the other PE stands by itself.
        assert_eq!(read_until(&mut output, "line\n"), "\nline\n");
        job.stdin().write_all(b"x\n").unwrap();
        assert_eq!(read_until(&mut output, "\n"), "hi x\n");
        let out = job.wait();
        std::fs::remove_file(&dir).unwrap();
        assert_eq!(out.code(), 0, "{out:?}");
    }
}

/// Lines of so many bytes from every PE, each of its own letter.
fn long_lines(options: &[&str], bytes: u32) -> Job {
    let script = format!(
        "c=$(echo abcdefgh | cut -c $((PMI_RANK+1))); \
         for i in 1 2 3; do head -c {bytes} /dev/zero | tr '\\0' $c; echo; echo short; done"
    );
    sh(options, &script)
}

#[test]
fn a_line_of_any_length_stays_whole() {
    let net = Network::new();
    for (job, pes) in [
        (long_lines(&["-n", "4"], 2_000_000), 4),
        (long_lines(&["-n", "6", "--nodes", "3"], 2_000_000), 6),
        (
            long_lines(
                &["-n", "5", "--nodes", "5", "-x", "SHMEM_TREE_DEGREE=2"],
                700_000,
            ),
            5,
        ),
    ] {
        check_long(&job.run(), pes, &[2_000_000, 700_000]);
    }
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; echo";
    let out = net.sh("a,b", &["-n", "4"], script).run();
    assert_eq!(out.code(), 0, "{out:?}");
    let lengths: Vec<usize> = out.stdout.lines().map(str::len).collect();
    assert_eq!(lengths, [3_000_000; 4]);
}

#[track_caller]
fn check_long(out: &Outcome, pes: usize, lengths: &[usize]) {
    assert_eq!((out.code(), &out.stderr[..]), (0, ""));
    let mut long = 0;
    for line in out.stdout.lines().filter(|l| *l != "short") {
        assert!(lengths.contains(&line.len()), "a line of {}", line.len());
        let first = line.as_bytes()[0];
        assert!(line.bytes().all(|b| b == first), "mixed");
        long += 1;
    }
    assert_eq!(long, 3 * pes);
    assert_eq!(out.stdout.lines().count(), 6 * pes);
}

#[test]
fn standard_input_goes_where_it_is_sent() {
    let count = "echo $PMI_RANK $(wc -c)";
    let input = vec![b'x'; 300_000];
    for (to, shape) in [("2", "1"), ("0", "2"), ("2", "2"), ("5", "3"), ("5", "6")] {
        let options = [
            "-n",
            "6",
            "--nodes",
            shape,
            "-x",
            "SHMEM_TREE_DEGREE=2",
            "--stdin",
            to,
        ];
        let out = sh(&options, count).run_with_input(input.clone());
        assert_eq!(out.code(), 0, "{out:?}");
        let want = |rank: u32| match rank.to_string() == to {
            true => format!("{rank} 300000"),
            false => format!("{rank} 0"),
        };
        assert_eq!(out.sorted(), (0..6).map(want).collect::<Vec<_>>());
    }
    for shape in ["1", "2", "6"] {
        let options = [
            "-n",
            "6",
            "--nodes",
            shape,
            "-x",
            "SHMEM_TREE_DEGREE=2",
            "--stdin",
            "all",
        ];
        let out = sh(&options, count).run_with_input(input.clone());
        assert_eq!(out.code(), 0, "{out:?}");
        let want: Vec<String> = (0..6).map(|rank| format!("{rank} 300000")).collect();
        assert_eq!(out.sorted(), want);
    }
    let net = Network::new();
    let options = ["-n", "6", "--stdin", "all"];
    let out = net.sh("a,b,c", &options, count).run_with_input(input);
    assert_eq!(out.code(), 0, "{out:?}");
    assert!(
        out.stdout.lines().all(|l| l.ends_with(" 300000")),
        "{out:?}"
    );
}

#[test]
fn input_for_all_passes_those_who_do_not_want_it() {
    let script = "test $PMI_RANK = 3 && exec wc -c; exec 0<&-; exit 0";
    let options = ["-n", "6", "--nodes", "3", "--stdin", "all"];
    let out = sh(&options, script).run_with_input(vec![b'x'; 1 << 20]);
    assert_eq!((out.code(), out.stdout.trim()), (0, "1048576"), "{out:?}");
}

#[test]
fn without_input_none_is_taken() {
    let (read, mut write): (PipeReader, PipeWriter) = std::io::pipe().unwrap();
    write.write_all(b"for somebody else").unwrap();
    let mut rest = read.try_clone().unwrap();
    let job = shmrun(&["-n", "2", "--stdin", "none", "cat"]);
    let out = job.stdin(read).run();
    assert_eq!((out.code(), &out.stdout[..]), (0, ""), "{out:?}");
    drop(write);
    let mut text = String::new();
    rest.read_to_string(&mut text).unwrap();
    assert_eq!(text, "for somebody else");
}

#[test]
fn input_for_a_pe_that_is_not_there_is_refused() {
    for to in ["4", "-1", "some"] {
        let out = shmrun(&["-n", "4", &format!("--stdin={to}"), "true"]).run();
        assert_eq!(out.code(), 2, "{out:?}");
        assert!(out.stderr.contains("--stdin"), "{out:?}");
    }
}

#[test]
fn what_waits_for_the_end_of_a_line_is_bounded() {
    // Nobody ends a line, so everything is kept back as long as that is possible.
    let script = "head -c 3000000 /dev/zero | tr '\\0' x; exec sleep 1000";
    let job = sh(&["-n", "8"], script);
    let mut job = job.start();
    let mut output = job.stdout();
    // The lines are ended for them, one after the other, and all of it comes.
    let mut got = 0;
    let mut part = vec![0; 64 << 10];
    while got < 8 * 3_000_000 {
        let n = output.read(&mut part).unwrap();
        assert!(n > 0);
        got += part[..n].iter().filter(|&&b| b == b'x').count();
    }
    for agent in job.wait_for("shmrun-agent", 1) {
        let kib = status_kib(agent, "VmHWM").unwrap();
        assert!(kib < 48 << 10, "{kib} KiB");
    }
    job.kill(15);
    let out = job.wait();
    assert_eq!(out.code(), 143, "{}", out.stderr);
}
