//! Dialogues of a launcher with PEs that ask, with launchers of spawned jobs, and with the launcher that
//! started it.

use super::tests::{bytes, done, options, root, sent, up, write_all};
use super::*;
use crate::frame::FrameReader;
use crate::frame::SpawnedJob;
use shmem_node::contract::MAX_PES;
use shmem_pmi::question::{Answer, Question, SpawnCommand, SpawnRequest};

fn ask(question: &Question) -> Vec<u8> {
    bytes(&[Frame::Ask {
        asker: 3,
        ticket: 8,
        question: &question.encode(),
    }])
}

fn answered(answer: &Answer) -> Vec<u8> {
    bytes(&[Frame::Answer {
        asker: 3,
        ticket: 8,
        answer: &answer.encode(),
    }])
}

fn refused(reason: &str) -> Answer {
    Answer::Refused {
        rc: 1,
        reason: reason.into(),
    }
}

fn request(procs: u32) -> Question {
    Question::Spawn(SpawnRequest {
        commands: vec![SpawnCommand {
            program: b"p".to_vec(),
            procs,
            ..SpawnCommand::default()
        }],
        preputs: Vec::new(),
    })
}

fn from_spawned(root: &mut Root, number: u32, bytes: &[u8]) {
    root.handle(Event::FromSpawned(number, bytes), 10);
}

fn to_spawned(root: &mut Root, number: u32) -> Option<Vec<u8>> {
    root.outgoing_spawned(number).map(OutBuf::take)
}

/// A launcher whose PE has asked for a job; it is being started.
fn with_spawned() -> Root {
    let mut r = root();
    r.setup.job_id = "outer".into();
    up(&mut r, &Frame::Ready, 1);
    sent(&mut r);
    r.handle(Event::FromAgent(&ask(&request(2))), 2);
    assert_eq!(sent(&mut r), b"", "no answer yet");
    assert_eq!(r.poll_action(), Some(Action::StartJob { number: 1 }));
    let first = to_spawned(&mut r, 1).unwrap();
    let mut reader = FrameReader::default();
    let content = reader.next_frame(&mut &first[..]).unwrap().unwrap();
    let Ok(Frame::Job(job)) = Frame::decode(content) else {
        panic!("a job");
    };
    let job = SpawnedJob::decode(job).unwrap();
    assert_eq!((job.number, &job.spawner[..]), (1, "outer"));
    r
}

fn running(r: &mut Root) {
    let yes = Answer::Spawned {
        job_id: "inner".into(),
    };
    from_spawned(r, 1, &answered(&yes));
    assert_eq!(sent(r), answered(&yes));
}

fn end_own_job(r: &mut Root) {
    up(r, &Frame::Exited, 20);
    up(r, &done(), 21);
    sent(r);
}

#[test]
fn names_are_kept_and_go_with_a_spawned_job() {
    let mut r = with_spawned();
    running(&mut r);
    let publish = Question::Publish {
        name: b"n".to_vec(),
        port: b"p".to_vec(),
    };
    let lookup = Question::LookupName {
        name: b"n".to_vec(),
    };
    from_spawned(&mut r, 1, &ask(&publish));
    assert_eq!(to_spawned(&mut r, 1), Some(answered(&Answer::Done)));
    r.handle(Event::FromAgent(&ask(&lookup)), 3);
    assert_eq!(sent(&mut r), answered(&Answer::Port(b"p".to_vec())));
    r.handle(Event::SpawnedEnded(1, Ok(End::Code(0))), 4);
    r.handle(Event::FromAgent(&ask(&lookup)), 5);
    assert_eq!(sent(&mut r), answered(&refused("service_not_found")));
}

#[test]
fn the_whole_ends_when_all_jobs_have() {
    let mut r = with_spawned();
    running(&mut r);
    end_own_job(&mut r);
    assert_eq!(r.finished(), None);
    r.handle(Event::SpawnedText(1, Stream::Out, b"ha"), 22);
    r.handle(Event::SpawnedText(1, Stream::Out, b"lf"), 23);
    r.handle(Event::SpawnedEnded(1, Ok(End::Code(0))), 24);
    assert_eq!(write_all(&mut r), ("half".into(), String::new()));
    assert_eq!(r.finished(), Some(0));
}

#[test]
fn a_spawned_job_that_fails_ends_all_and_has_said_why() {
    let mut r = with_spawned();
    running(&mut r);
    r.handle(Event::SpawnedEnded(1, Ok(End::Code(9))), 24);
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
    end_own_job(&mut r);
    assert_eq!(write_all(&mut r).1, "");
    assert_eq!(r.finished(), Some(9));
}

#[test]
fn a_lost_launcher_is_told_of_even_when_the_own_job_is_over() {
    let mut r = with_spawned();
    running(&mut r);
    end_own_job(&mut r);
    let killed = End::killed(9);
    r.handle(Event::SpawnedEnded(1, Ok(killed)), 24);
    let (_, err) = write_all(&mut r);
    assert!(
        err.contains("the launcher of spawned job 1 was killed"),
        "{err}"
    );
    assert_eq!(r.finished(), Some(exit::LAUNCHER));
}

#[test]
fn a_job_that_does_not_run_ends_nothing() {
    for end in [Ok(End::Code(2)), Err("no memory".to_owned())] {
        let mut r = with_spawned();
        let how = match &end {
            Ok(_) => "the launcher of the job exited with status 2",
            Err(_) => "the launcher of the job cannot be started: no memory",
        };
        r.handle(Event::SpawnedEnded(1, end), 3);
        assert_eq!(sent(&mut r), answered(&refused(how)));
        end_own_job(&mut r);
        assert_eq!(r.finished(), Some(0));
    }
    // It may have said why.
    let mut r = with_spawned();
    from_spawned(&mut r, 1, &answered(&refused("p: not found")));
    assert_eq!(sent(&mut r), answered(&refused("p: not found")));
    r.handle(Event::SpawnedEnded(1, Ok(End::Code(3))), 3);
    assert_eq!((sent(&mut r), r.status()), (Vec::new(), 0));
}

#[test]
fn impossible_jobs_are_refused() {
    let mut r = root();
    let no = |r: &mut Root, question: &Question| {
        r.handle(Event::FromAgent(&ask(question)), 2);
        assert_eq!(r.poll_action(), None);
        assert_ne!(sent(r), b"");
    };
    no(&mut r, &request(0));
    no(&mut r, &request(MAX_PES + 1));
    no(&mut r, &Question::Spawn(SpawnRequest::default()));
    for number in 1..=MAX_SPAWNED as u32 {
        r.handle(Event::FromAgent(&ask(&request(1))), 2);
        assert!(matches!(r.poll_action(), Some(Action::StartJob { number: n, .. }) if n == number));
    }
    no(&mut r, &request(1));
    r.handle(Event::Signal(15), 3);
    sent(&mut r);
    no(&mut r, &request(1));
}

#[test]
fn ends_and_signals_reach_spawned_jobs() {
    let mut r = with_spawned();
    running(&mut r);
    r.handle(Event::Signal(10), 3);
    assert_eq!(to_spawned(&mut r, 1), Some(bytes(&[Frame::Signal(10)])));
    r.handle(Event::Signal(15), 3);
    let stop = bytes(&[Frame::Stop { grace_ns: 100 }]);
    assert_eq!(to_spawned(&mut r, 1), Some(stop));
    end_own_job(&mut r);
    assert_eq!(r.finished(), None);
    // One that does not end is left behind at last.
    write_all(&mut r);
    let at = r.next_timeout().unwrap();
    r.handle(Event::Timer, at);
    write_all(&mut r);
    assert_eq!(r.finished(), Some(143));
}

/// The own job has ended by an interrupt which a spawned one does not mind.
#[test]
fn an_interrupt_is_followed_by_a_stop_of_spawned_jobs() {
    let mut r = with_spawned();
    running(&mut r);
    r.handle(Event::Signal(2), 3);
    assert_eq!(to_spawned(&mut r, 1), Some(bytes(&[Frame::Signal(2)])));
    end_own_job(&mut r);
    write_all(&mut r);
    let at = r.next_timeout().unwrap();
    r.handle(Event::Timer, at);
    let stop = bytes(&[Frame::Stop { grace_ns: 100 }]);
    assert_eq!(to_spawned(&mut r, 1), Some(stop));
}

fn spawned_root() -> Root {
    let mut r = Root::new(Setup {
        n_pes: 2,
        options: options(),
        job_id: "inner".into(),
        spawned_as: Some(4),
        ..Setup::default()
    });
    up(&mut r, &Frame::Ready, 1);
    sent(&mut r);
    r
}

fn to_outer(root: &mut Root) -> Vec<u8> {
    root.outgoing_outer().unwrap().take()
}

fn fault(rank: u32) -> Fault {
    Fault {
        node: 0,
        pid: 5,
        cause: Cause::Pe {
            rank,
            end: End::Code(7),
        },
    }
}

fn told(answer: &Answer) -> Vec<u8> {
    bytes(&[Frame::Answer {
        asker: 0,
        ticket: 0,
        answer: &answer.encode(),
    }])
}

#[test]
fn a_spawned_job_says_that_it_runs_and_passes_questions_on() {
    let mut r = spawned_root();
    up(&mut r, &Frame::Started, 2);
    let job_id = "inner".into();
    assert_eq!(to_outer(&mut r), told(&Answer::Spawned { job_id }));
    let question = ask(&request(1));
    r.handle(Event::FromAgent(&question), 3);
    assert_eq!((to_outer(&mut r), r.poll_action()), (question, None));
    let answer = answered(&Answer::Done);
    r.handle(Event::FromOuter(&answer), 3);
    assert_eq!(sent(&mut r), answer);
    // From now on it speaks for itself.
    up(&mut r, &Frame::Fault(fault(1)), 4);
    let want =
        "shmrun: spawned job 4: PE 1 on node 0 (pid 5) exited with status 7; ending the job\n";
    assert_eq!(write_all(&mut r).1, want);
    assert_eq!((to_outer(&mut r), r.status()), (Vec::new(), 7));
}

#[test]
fn a_spawned_job_that_cannot_start_tells_the_other_launcher_alone() {
    let mut r = spawned_root();
    let what = "no room".to_owned();
    let cause = Cause::Node { what };
    up(&mut r, &Frame::Fault(Fault { cause, ..fault(1) }), 4);
    let reply = to_outer(&mut r);
    assert!(
        String::from_utf8_lossy(&reply).contains("no room"),
        "{reply:?}"
    );
    assert_ne!(
        reply,
        told(&Answer::Spawned {
            job_id: "inner".into()
        })
    );
    assert_eq!(write_all(&mut r).1, "");
}

/// Its first process ends before the last one is known to run.
#[test]
fn a_spawned_job_that_fails_at_once_has_run() {
    let mut r = spawned_root();
    up(&mut r, &Frame::Fault(fault(1)), 4);
    let job_id = "inner".into();
    assert_eq!(to_outer(&mut r), told(&Answer::Spawned { job_id }));
    assert!(
        write_all(&mut r)
            .1
            .contains("spawned job 4: PE 1 on node 0")
    );
    assert_eq!(r.status(), 7);
}

#[test]
fn a_spawned_job_is_ended_without_words() {
    let mut r = spawned_root();
    r.handle(Event::FromOuter(&bytes(&[Frame::Signal(2)])), 2);
    assert_eq!(sent(&mut r), bytes(&[Frame::Signal(2)]));
    up(&mut r, &Frame::Fault(fault(1)), 3);
    let stop = bytes(&[Frame::Stop { grace_ns: 5 }]);
    r.handle(Event::FromOuter(&stop), 4);
    assert_eq!(sent(&mut r), stop);
    assert_eq!((write_all(&mut r).1, r.status()), (String::new(), 130));
}

#[test]
fn processes_are_started_again_as_often_as_allowed() {
    let mut r = root();
    r.setup.options.respawns = 2;
    up(&mut r, &Frame::Ready, 1);
    sent(&mut r);
    for (rank, count) in [(1, 1), (1, 2)] {
        up(&mut r, &Frame::Died(fault(rank)), 2);
        assert_eq!(sent(&mut r), bytes(&[Frame::Respawn { rank, count }]));
    }
    up(&mut r, &Frame::Died(fault(2)), 3);
    assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
    let (_, err) = write_all(&mut r);
    assert!(err.contains("starting it again (2 of 2)"), "{err}");
    assert_eq!(err.lines().count(), 3, "{err}");
    assert_eq!(r.status(), 7);
}

/// The launcher of a spawned job is not stopped with it.
#[test]
fn time_for_which_a_spawned_job_is_stopped_does_not_count() {
    const MINUTE: u64 = 60_000_000_000;
    let mut r = spawned_root();
    let grace_ns = 100;
    r.handle(Event::FromOuter(&bytes(&[Frame::Stop { grace_ns }])), 2);
    let due = r.next_timeout().expect("the end of patience");
    r.handle(Event::FromOuter(&bytes(&[Frame::Signal(20)])), 50);
    assert_eq!(r.next_timeout(), None);
    r.handle(Event::Timer, 10 * MINUTE);
    assert!(!r.is_over());
    sent(&mut r);
    let go_on = bytes(&[Frame::Signal(18)]);
    r.handle(Event::FromOuter(&go_on), 10 * MINUTE + 50);
    assert_eq!(sent(&mut r), go_on);
    assert_eq!(r.next_timeout(), Some(due + 10 * MINUTE));
}
