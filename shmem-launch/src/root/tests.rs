//! The launcher's decisions, one dialogue each.

use super::*;
use crate::child::ChildSetup;
use crate::frame::{CREDIT_STEP, JobOptions, OUTPUT_OVERHEAD};
use crate::repeats::Notice;
use std::time::Duration;

const SECOND: u64 = 1_000_000_000;

pub(super) fn options() -> JobOptions {
    JobOptions {
        grace: Duration::from_nanos(100),
        ..JobOptions::default()
    }
}

pub(super) fn root() -> Root {
    Root::new(Setup {
        n_pes: 4,
        options: options(),
        agent: ChildSetup {
            pid: 9,
            ..ChildSetup::default()
        },
        ..Setup::default()
    })
}

pub(super) fn up(root: &mut Root, frame: &Frame<'_>, now: u64) {
    let mut bytes = Vec::new();
    frame.encode(&mut bytes);
    root.handle(Event::FromAgent(&bytes), now);
}

pub(super) fn sent(root: &mut Root) -> Vec<u8> {
    root.outgoing().take()
}

pub(super) fn bytes(frames: &[Frame<'_>]) -> Vec<u8> {
    let mut out = Vec::new();
    frames.iter().for_each(|f| f.encode(&mut out));
    out
}

/// What a PE writes to standard output.
fn out(rank: u32, data: &[u8]) -> Frame<'_> {
    Frame::Output {
        rank,
        stream: Stream::Out,
        data,
    }
}

pub(super) fn done() -> Frame<'static> {
    Frame::Done(Box::default())
}

pub(super) fn write_all(root: &mut Root) -> (String, String) {
    let texts = Stream::ALL.map(|s| {
        let text = root.take_text(s);
        root.handle(Event::Written(s, text.len()), 50);
        String::from_utf8(text).unwrap()
    });
    texts.into()
}

#[test]
fn a_peaceful_job() {
    let mut r = root();
    up(&mut r, &Frame::Ready, 1);
    assert_eq!(sent(&mut r), bytes(&[Frame::Go]));
    up(&mut r, &Frame::Started, 2);
    up(&mut r, &out(1, b"hi\n"), 3);
    up(&mut r, &Frame::Exited, 4);
    assert_eq!(sent(&mut r), bytes(&[Frame::Finish]));
    up(&mut r, &done(), 5);
    assert_eq!(r.finished(), None, "the text is not written yet");
    assert_eq!(write_all(&mut r), ("hi\n".into(), String::new()));
    assert_eq!(r.finished(), Some(0));
    assert_eq!(
        r.moments(),
        Moments {
            ready: 1,
            started: 2,
            exited: 4,
            done: 5
        }
    );
}

#[test]
fn the_first_fault_counts_and_is_told_once() {
    let mut r = root();
    up(&mut r, &Frame::Ready, 1);
    sent(&mut r);
    for (rank, code) in [(2, 7), (1, 8)] {
        let cause = Cause::Pe {
            rank,
            end: End::Code(code),
        };
        up(
            &mut r,
            &Frame::Fault(Fault {
                node: 0,
                pid: 5,
                cause,
            }),
            2,
        );
    }
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
    up(&mut r, &Frame::Exited, 4);
    up(&mut r, &done(), 5);
    let want = "shmrun: PE 2 on node 0 (pid 5) exited with status 7; ending the job\n";
    assert_eq!(write_all(&mut r).1, want);
    assert_eq!(r.finished(), Some(7));
}

#[test]
fn what_pes_say_alike_is_told_once_and_counted_at_the_end() {
    let mut r = root();
    let told = |rank, count, text: &str| {
        Frame::Notice(Notice {
            rank,
            node: rank / 2,
            count,
            adds: false,
            text: text.into(),
        })
    };
    for (rank, text) in [(2, "ouch\nit hurts\n"), (0, "ouch\nit hurts\n"), (1, "oh")] {
        up(&mut r, &told(rank, 1, text), 1);
    }
    let now = "shmem: PE 2 (node 1): ouch\nit hurts\nshmem: PE 1 (node 0): oh\n";
    assert_eq!(write_all(&mut r).1, now);
    up(&mut r, &told(3, 7, "ouch\nit hurts\n"), 2);
    up(&mut r, &Frame::Exited, 4);
    let then = "shmem: 8 more say the same as PE 2\n";
    assert_eq!(write_all(&mut r).1, then);
    up(&mut r, &done(), 5);
    assert_eq!(write_all(&mut r).1, "", "it is said once");
}

#[test]
fn a_fault_before_ready_starts_nothing() {
    let mut r = root();
    up(
        &mut r,
        &Frame::Fault(Fault {
            node: 1,
            pid: 0,
            cause: Cause::Node {
                what: "no memory".into(),
            },
        }),
        1,
    );
    up(&mut r, &Frame::Ready, 2);
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
    assert_eq!(r.status(), exit::LAUNCHER);
}

#[test]
fn ctrl_c_asks_then_ends_then_kills() {
    let mut r = root();
    up(&mut r, &Frame::Ready, 1);
    sent(&mut r);
    r.handle(Event::Signal(2), 10);
    assert_eq!(sent(&mut r), bytes(&[Frame::Signal(2)]));
    assert_eq!(r.next_timeout(), Some(110));
    r.handle(Event::Timer, 110);
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
    r.handle(Event::Signal(2), 120);
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 0 }]));
    assert_eq!(r.status(), 130);
    r.handle(Event::Signal(2), 130);
    write_all(&mut r);
    assert_eq!(r.finished(), Some(130), "a third one leaves at once");
}

#[test]
fn a_signal_ends_the_wait_for_a_blocked_terminal() {
    let mut r = root();
    up(&mut r, &out(1, b"hi\n"), 3);
    up(&mut r, &done(), 5);
    r.take_text(Stream::Out);
    assert_eq!(r.finished(), None);
    r.handle(Event::Signal(15), 6);
    assert_eq!(r.finished(), Some(143));
}

#[test]
fn the_time_limit_ends_the_job() {
    let mut r = Root::new(Setup {
        options: JobOptions {
            timeout_s: Some(7),
            ..JobOptions::default()
        },
        n_pes: 1,
        ..Setup::default()
    });
    assert_eq!(r.next_timeout(), Some(7 * SECOND));
    r.handle(Event::Timer, 7 * SECOND - 1);
    assert_eq!(r.status(), 0);
    r.handle(Event::Timer, 7 * SECOND);
    assert_eq!(r.status(), 124);
    assert!(write_all(&mut r).1.contains("time limit of 7 s"));
}

#[test]
fn a_lost_agent_is_named() {
    let mut r = root();
    r.handle(Event::AgentClosed, 5);
    assert_eq!(r.finished(), None);
    r.handle(Event::AgentReaped(End::killed(9)), 6);
    let text = write_all(&mut r).1;
    assert!(
        text.contains("launch agent of node 0 (pid 9) was killed by signal 9"),
        "{text}"
    );
    assert_eq!(r.finished(), Some(125));
}

#[test]
fn credit_comes_back_when_text_is_written() {
    let mut r = root();
    let data = vec![b'\n'; CREDIT_STEP as usize];
    up(&mut r, &out(0, &data), 1);
    assert_eq!(sent(&mut r), b"");
    let n = r.take_text(Stream::Out).len();
    r.handle(Event::Written(Stream::Out, n - 1), 2);
    assert_eq!(sent(&mut r), b"");
    r.handle(Event::Written(Stream::Out, 1), 3);
    let frames = CREDIT_STEP + OUTPUT_OVERHEAD as u32;
    assert_eq!(sent(&mut r), bytes(&[Frame::Credit(frames)]));
    assert_eq!(n, data.len());
}

#[test]
fn agents_have_time_to_end_after_their_output_was_read() {
    const MINUTE: u64 = 60 * SECOND;
    let mut r = root();
    let data = b"text\n";
    let output = out(0, data);
    up(&mut r, &output, 1);
    r.handle(Event::Signal(15), 2);
    let gives_up = |r: &mut Root, at| {
        r.handle(Event::Timer, at);
        let err = r.take_text(Stream::Err);
        r.handle(Event::Written(Stream::Err, err.len()), at);
        String::from_utf8(err)
            .unwrap()
            .contains("did not end in time")
    };
    assert!(!gives_up(&mut r, MINUTE));
    let text = r.take_text(Stream::Out);
    r.handle(Event::Written(Stream::Out, text.len()), MINUTE + 5 * SECOND);
    assert!(!gives_up(&mut r, MINUTE + 11 * SECOND));
    assert!(gives_up(&mut r, 2 * MINUTE));
}

#[test]
fn output_that_never_ends_does_not_keep_the_launcher() {
    let mut r = root();
    let output = out(0, b"text\n");
    up(&mut r, &output, 1);
    r.handle(Event::Signal(15), 2);
    let mut said = String::new();
    for second in 1..60 {
        up(&mut r, &output, second * SECOND);
        said += &write_all(&mut r).1;
        r.handle(Event::Timer, second * SECOND + 1);
    }
    assert!(said.contains("did not end in time"), "{said}");
}

#[test]
fn how_pes_ended_is_reported_with_the_status_by_which_one_ended_the_job() {
    let killed = End::killed(15);
    let segv = End::killed(11);
    let abort = Cause::Abort {
        rank: 0,
        code: 3,
        message: String::new(),
    };
    let died = Cause::Pe { rank: 0, end: segv };
    for (cause, ends, reported) in [
        (abort.clone(), [killed, End::Code(4)], true),
        (abort, [killed, End::Code(3)], false),
        (died, [segv, End::Code(1)], false),
    ] {
        let mut r = root();
        let fault = Fault {
            node: 0,
            pid: 7,
            cause,
        };
        up(&mut r, &Frame::Fault(fault), 1);
        let mut report = Reduced::default();
        (0..)
            .zip(ends)
            .for_each(|(rank, end)| report.processes.ends.add(rank, end));
        up(&mut r, &Frame::Done(Box::new(report)), 2);
        let (_, err) = write_all(&mut r);
        assert_eq!(err.contains("how all PEs ended"), reported, "{err}");
    }
}

#[test]
fn a_closed_stream_stops_its_writers() {
    let mut r = root();
    up(&mut r, &out(0, b"x\n"), 1);
    r.take_text(Stream::Out);
    r.handle(Event::StreamClosed(Stream::Out, None), 2);
    assert_eq!(sent(&mut r), bytes(&[Frame::CloseOutput(Stream::Out)]));
    up(&mut r, &out(0, b"y\n"), 3);
    assert_eq!(r.take_text(Stream::Out), b"");
}

#[test]
fn stdin_is_read_within_its_window() {
    let mut r = root();
    assert_eq!(r.stdin_room(), 0, "nothing to feed yet");
    up(&mut r, &Frame::Ready, 1);
    assert_eq!(r.stdin_room(), STDIN_WINDOW);
    r.handle(Event::Stdin(b"abc"), 2);
    assert_eq!(r.stdin_room(), STDIN_WINDOW - 3);
    up(&mut r, &Frame::StdinCredit(2), 3);
    assert_eq!(r.stdin_room(), STDIN_WINDOW - 1);
    r.handle(Event::StdinEnd, 4);
    assert_eq!(r.stdin_room(), 0);
}

fn pe_ended(rank: u32, end: End) -> Fault {
    Fault {
        node: 0,
        pid: 5,
        cause: Cause::Pe { rank, end },
    }
}

const PIPED: End = End::killed(SIGPIPE);

#[test]
fn lost_output_is_told_and_is_the_status_whatever_follows() {
    for end in [PIPED, End::Code(101)] {
        let mut r = root();
        up(&mut r, &Frame::Ready, 1);
        sent(&mut r);
        r.handle(
            Event::StreamClosed(Stream::Out, Some("standard output: full".into())),
            2,
        );
        assert_eq!(sent(&mut r), bytes(&[Frame::CloseOutput(Stream::Out)]));
        let want = "shmrun: cannot write to standard output: full; output is lost\n";
        assert_eq!(write_all(&mut r).1, want);
        up(&mut r, &Frame::Fault(pe_ended(1, end)), 3);
        assert_eq!(write_all(&mut r).1.is_empty(), end == PIPED);
        assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
        assert_eq!(r.status(), exit::OUTPUT);
    }
}

#[test]
fn a_reader_that_left_is_no_failure_of_the_program() {
    let mut r = root();
    up(&mut r, &Frame::Ready, 1);
    r.handle(Event::StreamClosed(Stream::Out, None), 2);
    up(&mut r, &Frame::Fault(pe_ended(1, PIPED)), 3);
    assert_eq!(write_all(&mut r).1, "");
    assert_eq!(r.status(), 141);
    // But what fails in another way does.
    let mut r = root();
    r.handle(Event::StreamClosed(Stream::Out, None), 2);
    up(&mut r, &Frame::Fault(pe_ended(1, End::Code(7))), 3);
    assert!(write_all(&mut r).1.contains("status 7"));
    assert_eq!(r.status(), 7);
    // And SIGPIPE of a program's own doing is told.
    let mut r = root();
    up(&mut r, &Frame::Fault(pe_ended(1, PIPED)), 3);
    assert!(write_all(&mut r).1.contains("SIGPIPE"));
}

#[test]
fn time_stands_still_while_the_job_is_stopped() {
    let mut r = Root::new(Setup {
        options: JobOptions {
            timeout_s: Some(7),
            ..JobOptions::default()
        },
        n_pes: 1,
        ..Setup::default()
    });
    r.handle(Event::Signal(20), 900);
    assert_eq!(sent(&mut r), bytes(&[Frame::Signal(20)]));
    r.handle(Event::Continued(5000), 5900);
    assert_eq!(sent(&mut r), bytes(&[Frame::Signal(18)]));
    let limit = 7 * SECOND + 5000;
    assert_eq!((r.status(), r.next_timeout()), (0, Some(limit)));
    r.handle(Event::Timer, limit);
    assert_eq!(r.status(), 124);
}

#[test]
fn a_start_that_takes_long_is_shown_until_somebody_writes() {
    let mut r = Root::new(Setup {
        n_pes: 4,
        n_nodes: 2,
        options: JobOptions {
            progress: true,
            ..options()
        },
        ..Setup::default()
    });
    let said = out(1, b"hi\n");
    assert_eq!(r.next_timeout(), Some(SECOND));
    up(&mut r, &Frame::Progress { nodes: 1, pes: 0 }, SECOND - 1);
    assert_eq!(write_all(&mut r).1, "");
    r.handle(Event::Timer, SECOND);
    let (_, first) = write_all(&mut r);
    assert!(
        first.contains("1 of 2 nodes are prepared, 0 of 4 PEs run"),
        "{first:?}"
    );
    assert_eq!(r.next_timeout(), None);
    up(&mut r, &Frame::Ready, SECOND + 1);
    up(&mut r, &Frame::Progress { nodes: 2, pes: 3 }, SECOND + 1);
    let (_, second) = write_all(&mut r);
    assert!(
        second.starts_with("\r\x1b[K") && second.contains("3 of 4 PEs run"),
        "{second:?}"
    );
    // The other stream leads to the same terminal: it waits until the line is erased.
    up(&mut r, &said, SECOND + 2);
    assert_eq!(r.take_text(Stream::Out), b"");
    let erase = r.take_text(Stream::Err);
    assert_eq!(erase, b"\r\x1b[K");
    assert_eq!(r.take_text(Stream::Out), b"");
    r.handle(Event::Written(Stream::Err, erase.len()), SECOND + 3);
    assert_eq!(r.take_text(Stream::Out), b"hi\n");
    up(&mut r, &Frame::Progress { nodes: 2, pes: 4 }, SECOND + 4);
    assert_eq!(r.take_text(Stream::Err), b"");
}

#[test]
fn a_message_stands_where_the_progress_was() {
    let mut r = Root::new(Setup {
        n_pes: 4,
        n_nodes: 2,
        options: JobOptions {
            progress: true,
            ..options()
        },
        ..Setup::default()
    });
    r.handle(Event::Timer, SECOND);
    write_all(&mut r);
    r.handle(Event::Signal(15), SECOND + 1);
    let (_, text) = write_all(&mut r);
    assert!(
        text.starts_with("\r\x1b[Kshmrun: received SIGTERM"),
        "{text:?}"
    );
}

#[test]
fn output_for_files_is_not_mixed() {
    let mut r = Root::new(Setup {
        n_pes: 4,
        options: JobOptions {
            separate: true,
            ..options()
        },
        ..Setup::default()
    });
    for (rank, data) in [(2, &b"two\n"[..]), (1, b"one"), (1, b"more\n")] {
        let stream = Stream::Err;
        up(&mut r, &Frame::Output { rank, stream, data }, 1);
    }
    r.handle(Event::Signal(15), 2);
    let text = String::from_utf8(r.take_text(Stream::Err)).unwrap();
    assert!(text.starts_with("shmrun: received SIGTERM"), "{text}");
    let files = r.take_files(Stream::Err);
    let pieces: Vec<_> = files.pieces().collect();
    assert_eq!(pieces, [(2, &b"two\n"[..]), (1, b"onemore\n")]);
    r.handle(Event::AgentClosed, 3);
    r.handle(Event::AgentReaped(End::Code(0)), 3);
    assert_eq!(r.finished(), None);
    r.handle(Event::Written(Stream::Err, text.len() + files.len()), 4);
}

#[test]
fn every_host_that_cannot_be_reached_is_told() {
    let mut r = Root::new(Setup {
        n_pes: 40,
        options: options(),
        hosts: (0..40).map(|n| format!("n{n:02}")).collect(),
        ..Setup::default()
    });
    let fault = |node| {
        Frame::Fault(Fault {
            node,
            pid: 0,
            cause: Cause::Unreachable {
                what: "no route".into(),
            },
        })
    };
    up(&mut r, &fault(3), 1);
    let said = "shmrun: node 3 (n03): no route; ending the job\n";
    assert_eq!(write_all(&mut r).1, said);
    assert_eq!(sent(&mut r), b"", "others are waited for");
    up(&mut r, &fault(7), SECOND / 2);
    assert_eq!(write_all(&mut r).1, "shmrun: node 7 (n07): no route\n");
    assert_eq!(r.next_timeout(), Some(SECOND / 2 + SECOND));
    for node in 10..40 {
        up(&mut r, &fault(node), SECOND);
    }
    assert_eq!(write_all(&mut r).1.lines().count(), 14);
    r.handle(Event::Timer, 2 * SECOND);
    let said = "shmrun: nor could agents be started on 16 more hosts: n[24-39]\n";
    assert_eq!(write_all(&mut r).1, said);
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
    assert_eq!(r.status(), exit::LAUNCHER);
    // Later ones would not have been heard in time anyway.
    up(&mut r, &fault(2), 3 * SECOND);
    assert_eq!(write_all(&mut r).1, "");
}

#[test]
fn waiting_for_more_hosts_ends() {
    let mut r = root();
    for tenth in 0..60 {
        let fault = Fault {
            node: tenth as u32,
            pid: 0,
            cause: Cause::Unreachable { what: "x".into() },
        };
        up(&mut r, &Frame::Fault(fault), tenth * SECOND / 10);
        r.handle(Event::Timer, tenth * SECOND / 10);
    }
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
}

#[test]
fn recordings_come_to_the_launchers_clock() {
    let recording = Recording {
        rank: 2,
        node: 1,
        lost: 0,
        totals: Vec::new(),
        traffic: Vec::new(),
        events: vec![shmem_node::recording::Event {
            begin: 100,
            end: 130,
            routine: shmem_node::recording::Routine::Put,
            thread: 0,
            pe: 1,
            bytes: 8,
            at: 64,
        }],
        stats: shmem_node::stats::PeStats([0; shmem_node::stats::STAT_COUNT]),
    };
    let mut data = Vec::new();
    codec::encode(&recording, &mut data);
    let mut r = root();
    let recorded = |recording| Frame::Recorded {
        shift: 90u64.wrapping_neg(),
        sent: 3,
        recording,
    };
    up(&mut r, &recorded(&data), 5);
    up(&mut r, &recorded(&data[1..]), 6);
    let kept = r.take_recordings();
    assert_eq!(kept.len(), 1);
    // The first agent is on this machine, so that nothing is added for the last hop.
    assert_eq!((kept[0].events[0].begin, kept[0].events[0].end), (10, 40));
    assert_eq!(kept[0].stats, recording.stats, "no moments, none to shift");
    let (_, said) = write_all(&mut r);
    assert!(said.contains("what a PE recorded is lost"), "{said}");
}
