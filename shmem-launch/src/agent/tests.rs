//! One agent without children, told what happens.

mod causes;
mod messages;

use super::life::FLUSH_NS;
use super::*;
use crate::frame::{FrameReader, JobOptions};
use crate::limits::SpawnQuota;
use shmem_pmi::process_mapping::ProcessMapping;
use shmem_pmi::server::{Job, NodePlace};
use shmem_pmi::tree::Tree;

const MS: u64 = 1_000_000;
const MINUTE: u64 = 60_000 * MS;

fn failed(local: u32) -> Event<'static> {
    Event::Reaped {
        local,
        end: End::Code(3),
        missed: StillNeeded::Nothing,
        attached: false,
    }
}

#[test]
fn a_start_that_takes_long_is_told_of_now_and_then() {
    let mut agent = Agent::preparing(
        4,
        JobOptions {
            progress: true,
            ..JobOptions::default()
        },
    );
    agent.handle(Event::Prepared, 0);
    agent.hear(&Frame::Go, 0);
    assert_eq!(agent.said(), ["Ready"]);
    // PEs that are asked for one by one.
    let due = agent.next_timeout().unwrap();
    assert!(due > 500 * MS, "{due}");
    agent.handle(Event::Timer, due);
    assert_eq!(agent.said(), ["Progress { nodes: 1, pes: 0 }"]);
    agent.handle(Event::Timer, 3 * due);
    assert_eq!(agent.said(), [""; 0]);
    let pids = &[11, 12, 13, 14];
    agent.handle(Event::PesStarted { pids, error: None }, 3 * due);
    assert_eq!(agent.said(), ["Started"]);
}

impl Agent {
    /// An agent of `n` PEs, which run.
    fn running(n: u32, respawn: bool) -> Self {
        let mut agent = Self::preparing(
            n,
            JobOptions {
                respawns: respawn.into(),
                ..JobOptions::default()
            },
        );
        agent.handle(Event::Prepared, 0);
        agent.hear(&Frame::Go, 0);
        let pids: Vec<i32> = (10..10 + n as i32).collect();
        let started = Event::PesStarted {
            pids: &pids,
            error: None,
        };
        agent.handle(started, 0);
        agent.handle(Event::TemplateClosed, 0);
        assert_eq!(agent.life.phase, Phase::Running);
        agent.said();
        agent.done();
        agent
    }

    /// An agent of `n` PEs of which nothing is there yet.
    fn preparing(n: u32, options: JobOptions) -> Self {
        Self::above(Vec::new(), n, options)
    }

    /// The same with children, of which two are waited for at a time.
    fn above(children: Vec<ChildSetup>, n: u32, options: JobOptions) -> Self {
        let more = 0..=children.len() as u32;
        let node_of: Vec<u32> = std::iter::repeat_n(0, n as usize - 1).chain(more).collect();
        let tree = Tree::new(1 + children.len() as u32, 8);
        let job = Job {
            size: node_of.len() as u32,
            process_mapping: ProcessMapping::from_nodes(&node_of).to_string(),
            ..Job::default()
        };
        let servers = Servers::new(job, NodePlace::in_tree(&tree, 0, &node_of)).unwrap();
        let setup = Setup {
            node: 0,
            first_rank: 0,
            n_local: n,
            n_pes: n + children.len() as u32,
            quota: SpawnQuota::FULL,
            options,
            input: InputRoute::default(),
            pmix: false,
            starts: 2,
            children,
        };
        Self::new(setup, servers)
    }

    fn hear(&mut self, frame: &Frame<'_>, now: u64) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.handle(Event::FromParent(&bytes), now);
    }

    /// What has gone up: output as it is, anything else by its name.
    fn said(&mut self) -> Vec<String> {
        let bytes = self.parent.out.take();
        let (mut reader, mut bytes) = (FrameReader::default(), &bytes[..]);
        let mut said = Vec::new();
        while let Some(content) = reader.next_frame(&mut bytes).unwrap() {
            said.push(match Frame::decode(content).unwrap() {
                Frame::Output { data, .. } => String::from_utf8(data.to_vec()).unwrap(),
                Frame::Fault(_) => "<fault>".into(),
                Frame::Died(_) => "<died>".into(),
                Frame::Notice(_) => "<notice>".into(),
                other => format!("{other:?}"),
            });
        }
        said
    }

    fn done(&mut self) -> Vec<Action> {
        std::iter::from_fn(|| self.poll_action()).collect()
    }
}

/// What the agent says when a PE has ended.
fn said_at_an_end(end: End, missed: StillNeeded) -> Vec<String> {
    let mut agent = Agent::running(2, false);
    let event = Event::Reaped {
        local: 1,
        end,
        missed,
        attached: missed == StillNeeded::Finalize,
    };
    agent.handle(event, 0);
    agent.said()
}

#[test]
fn an_end_is_a_fault_where_others_wait_or_the_status_says_so() {
    assert!(said_at_an_end(End::Code(0), StillNeeded::Nothing).is_empty());
    for missed in [StillNeeded::Init, StillNeeded::Finalize] {
        assert_eq!(said_at_an_end(End::Code(0), missed), ["<fault>"]);
    }
    for missed in [
        StillNeeded::Nothing,
        StillNeeded::Init,
        StillNeeded::Finalize,
    ] {
        assert_eq!(said_at_an_end(End::Code(3), missed), ["<fault>"]);
    }
}

#[test]
fn what_a_pe_has_written_stands_before_what_is_said_of_it() {
    for respawn in [false, true] {
        let mut agent = Agent::running(2, respawn);
        agent.handle(Event::Output(1, Stream::Out, b"half"), MS);
        agent.handle(Event::Output(1, Stream::Err, b" a line"), MS);
        assert_eq!(agent.said(), [""; 0]);
        agent.handle(failed(1), 2 * MS);
        let end = ["<fault>", "<died>"][usize::from(respawn)];
        assert_eq!(agent.said(), ["half", " a line", end]);
    }
    let mut agent = Agent::running(2, false);
    agent.handle(Event::Output(1, Stream::Err, b"well, "), MS);
    let notice = Notice {
        rank: 1,
        node: 0,
        count: 1,
        adds: false,
        text: "no".into(),
    };
    agent.notice(notice, 2 * MS);
    assert_eq!(agent.said(), ["well, ", "<notice>"]);
}

#[test]
fn a_pe_is_started_again_when_all_that_it_wrote_was_read() {
    let mut agent = Agent::running(2, true);
    agent.handle(failed(1), MS);
    assert_eq!(agent.said(), ["<died>"]);
    agent.hear(&Frame::Respawn { rank: 1, count: 1 }, 2 * MS);
    assert_eq!(agent.done(), [Action::CloseOutputOf(1)]);
    agent.handle(Event::Output(1, Stream::Out, b"last\n"), 3 * MS);
    agent.handle(Event::OutputClosed(1, Stream::Out), 3 * MS);
    assert_eq!(agent.done(), []);
    agent.handle(Event::OutputClosed(1, Stream::Err), 4 * MS);
    let again = Action::Respawn { local: 1, count: 1 };
    assert_eq!(agent.done(), [again]);

    // A job that ends meanwhile does not wait for it.
    let mut agent = Agent::running(1, true);
    agent.handle(failed(0), MS);
    agent.hear(&Frame::Respawn { rank: 0, count: 1 }, 2 * MS);
    agent.hear(&Frame::Stop { grace_ns: 0 }, 3 * MS);
    agent.handle(Event::OutputClosed(0, Stream::Out), 4 * MS);
    agent.handle(Event::OutputClosed(0, Stream::Err), 4 * MS);
    let done = [Action::CloseOutputOf(0), Action::KillAll];
    assert_eq!(
        (agent.done(), agent.life.phase),
        (done.into(), Phase::Exited)
    );
}

#[test]
fn signals_for_programs_wait_for_the_last_pe() {
    let (usr1, usr2) = (10, 12);
    let early = |agent: &mut Agent| {
        agent.handle(Event::Prepared, 0);
        for signal in [usr2, usr1, usr2] {
            agent.hear(&Frame::Signal(signal), 0);
        }
        agent.hear(&Frame::Go, 0);
        agent.hear(&Frame::Signal(usr1), 0);
        let signalled = agent.done().iter().any(|a| matches!(a, Action::Signal(_)));
        assert!(!signalled);
    };
    let pids = &[11, 12];
    let mut agent = Agent::preparing(2, JobOptions::default());
    early(&mut agent);
    agent.handle(Event::PesStarted { pids, error: None }, 0);
    let each_once = [
        Action::FinishTemplate,
        Action::Signal(usr2),
        Action::Signal(usr1),
    ];
    assert_eq!(agent.done(), each_once);

    // Who is to end anyway is not told more.
    let mut agent = Agent::preparing(2, JobOptions::default());
    early(&mut agent);
    agent.hear(&Frame::Stop { grace_ns: MS }, 0);
    agent.handle(Event::PesStarted { pids, error: None }, 0);
    let done = agent.done();
    assert!(!done.contains(&Action::Signal(usr1)), "{done:?}");
}

#[test]
fn a_stop_takes_nothing_of_the_time_that_pes_have() {
    let (stop, go_on) = (Frame::Signal(20), Frame::Signal(18));
    let mut agent = Agent::running(2, false);
    let grace_ns = 250 * MS;
    agent.hear(&Frame::Stop { grace_ns }, 0);
    agent.hear(&stop, 100 * MS);
    agent.done();
    assert_eq!(agent.next_timeout(), None);
    agent.handle(Event::Timer, 5 * MINUTE);
    assert_eq!(agent.done(), []);
    agent.hear(&go_on, 5 * MINUTE + 100 * MS);
    assert_eq!(agent.next_timeout(), Some(5 * MINUTE + grace_ns));
    agent.handle(Event::Timer, 5 * MINUTE + grace_ns - 1);
    let going_on = [Action::Signal(18), Action::Continued(5 * MINUTE)];
    assert_eq!(agent.done(), going_on);
    agent.handle(Event::Timer, 5 * MINUTE + grace_ns);
    assert_eq!(agent.done(), [Action::KillAll]);

    // The time in which a PE that has closed its connection may end.
    let mut agent = Agent::running(2, false);
    agent.pes.pmi_closed(1, 1000 * MS);
    agent.hear(&stop, 400 * MS);
    agent.handle(Event::Timer, 5 * MINUTE);
    agent.hear(&go_on, 5 * MINUTE + 400 * MS);
    assert_eq!(agent.next_timeout(), Some(5 * MINUTE + 1000 * MS));
    assert_eq!(agent.pes.absent(), (0, 0));

    // The turn of a PE that is in the middle of a line for which another one waits.
    let mut agent = Agent::running(2, false);
    agent.handle(Event::Output(0, Stream::Out, b"so "), 0);
    agent.handle(Event::Timer, 100 * MS);
    agent.handle(Event::Output(1, Stream::Out, b"other\n"), 200 * MS);
    agent.hear(&stop, 300 * MS);
    agent.handle(Event::Timer, 5 * MINUTE);
    agent.hear(&go_on, 5 * MINUTE);
    agent.handle(Event::Output(0, Stream::Out, b"far\n"), 5 * MINUTE);
    assert_eq!(agent.said(), ["so ", "far\n", "other\n"]);
}

#[test]
fn who_is_to_end_is_continued_and_has_its_time_from_then_on() {
    let mut agent = Agent::running(2, false);
    agent.hear(&Frame::Signal(20), 0);
    agent.done();
    agent.hear(&Frame::Stop { grace_ns: 250 * MS }, 5 * MINUTE);
    let end = [Action::Continued(5 * MINUTE), Action::Signal(15)];
    assert_eq!(agent.done(), end);
    agent.handle(Event::Timer, 5 * MINUTE + 250 * MS);
    assert_eq!(agent.done(), [Action::KillAll]);
}

#[test]
fn time_that_begins_while_the_job_is_stopped_begins_when_it_goes_on() {
    let mut agent = Agent::running(1, false);
    agent.hear(&Frame::Finish, 0);
    agent.hear(&Frame::Signal(20), 0);
    agent.handle(Event::Output(0, Stream::Out, b"late\n"), 4 * MINUTE);
    agent.hear(&Frame::Signal(18), 5 * MINUTE);
    assert_eq!(agent.next_timeout(), Some(5 * MINUTE + FLUSH_NS));
}

#[test]
fn a_pe_that_was_given_up_is_not_started() {
    let mut agent = Agent::running(2, true);
    for local in 0..2 {
        agent.handle(failed(local), MS);
        let again = Frame::Respawn {
            rank: local,
            count: 1,
        };
        agent.hear(&again, 2 * MS);
    }
    for stream in Stream::ALL {
        agent.handle(Event::OutputClosed(0, stream), 3 * MS);
    }
    let again = Action::Respawn { local: 0, count: 1 };
    assert!(agent.done().contains(&again));
    let pid = Err("no memory".into());
    agent.handle(Event::Respawned { local: 0, pid }, 4 * MS);
    for stream in Stream::ALL {
        agent.handle(Event::OutputClosed(1, stream), 5 * MS);
    }
    assert_eq!(agent.done(), []);
    assert!(agent.pes.all_ended());
}

#[test]
fn a_question_is_answered_with_what_the_driver_finds() {
    let mut agent = Agent::running(2, false);
    let ask = |number| Frame::Count {
        number,
        budget_ms: 100,
    };
    agent.hear(&ask(1), MINUTE);
    assert_eq!(agent.done(), [Action::Count(1)]);
    assert_eq!(agent.said(), [""; 0]);
    // Asked again, the first answer is nobody's.
    agent.hear(&ask(2), MINUTE);
    let census = || crate::census::sample();
    agent.handle(Event::Counted(1, census()), MINUTE);
    assert_eq!(agent.said(), [""; 0]);
    agent.handle(Event::Counted(2, census()), MINUTE);
    let said = agent.said();
    assert!(
        said.len() == 1 && said[0].starts_with("Counted { number: 2"),
        "{said:?}"
    );
    // A driver that finds nothing in time does not hold up the others.
    agent.hear(&ask(3), MINUTE);
    assert_eq!(agent.next_timeout(), Some(MINUTE + 100 * MS));
    agent.handle(Event::Timer, MINUTE + 100 * MS);
    let said = agent.said();
    assert!(
        said.len() == 1 && said[0].starts_with("Counted { number: 3"),
        "{said:?}"
    );
}

#[test]
fn hosts_are_started_a_few_at_a_time_and_again_if_they_refuse() {
    let shell = crate::remote::RemoteShell {
        words: vec!["ssh".into()],
        timeout_ns: MINUTE,
        retries: 1,
        ..Default::default()
    };
    let child = |node: u32| {
        let name = format!("h{node}");
        ChildSetup {
            node,
            ranks: node..node + 1,
            contact: Some(crate::remote::Contact::new(&shell, &name, &name)),
            ..ChildSetup::default()
        }
    };
    let mut agent = Agent::above((1..5).map(child).collect(), 1, JobOptions::default());
    let starts = |agent: &mut Agent, at: u64| -> Vec<usize> {
        agent.handle(Event::Timer, at);
        let actions = agent.done().into_iter();
        actions
            .map(|action| match action {
                Action::StartChild(child) => child,
                other => panic!("{other:?}"),
            })
            .collect()
    };
    let greeting = crate::remote::greeting();
    let refused = |agent: &mut Agent, child: usize, at: u64| {
        agent.handle(Event::ShellText(child, b"Connection refused\n"), at);
        agent.handle(Event::ChildClosed(child), at);
        agent.handle(Event::ChildReaped(child, End::Code(255)), at);
    };
    assert_eq!(starts(&mut agent, 0), [0, 1]);
    agent.handle(Event::ChildStarted(0, Ok(41)), 0);
    agent.handle(Event::ChildStarted(1, Ok(42)), 0);
    assert_eq!(starts(&mut agent, MS), [0; 0]);
    agent.handle(Event::FromChild(0, &greeting), 2 * MS);
    assert_eq!(starts(&mut agent, 2 * MS), [2]);
    // One that refuses makes room for the next, and gets its turn again.
    refused(&mut agent, 1, 3 * MS);
    assert_eq!(starts(&mut agent, 3 * MS), [3]);
    assert_eq!(agent.next_timeout(), Some(503 * MS));
    assert_eq!(starts(&mut agent, 503 * MS), [0; 0]);
    assert_ne!(agent.next_timeout(), Some(503 * MS));
    agent.handle(Event::FromChild(2, &greeting), 504 * MS);
    assert_eq!(starts(&mut agent, 504 * MS), [1]);
    assert_eq!(agent.said(), [""; 0]);
    refused(&mut agent, 1, 600 * MS);
    agent.handle(Event::ChildStarted(3, Err("no memory".into())), 600 * MS);
    assert_eq!(agent.said(), ["<fault>", "<fault>"], "each host is told");
    assert_eq!(agent.done(), [Action::DropChild(3)]);
}

#[test]
fn a_job_that_ends_starts_no_more_hosts() {
    let shell = crate::remote::RemoteShell::default();
    let child = |node: u32| ChildSetup {
        node,
        ranks: node..node + 1,
        contact: Some(crate::remote::Contact::new(&shell, "h", "h")),
        ..ChildSetup::default()
    };
    let mut agent = Agent::above((1..4).map(child).collect(), 1, JobOptions::default());
    agent.handle(Event::Timer, 0);
    assert_eq!(agent.done(), [Action::StartChild(0), Action::StartChild(1)]);
    agent.hear(&Frame::Stop { grace_ns: 0 }, 1);
    let dropped = (0..3).map(Action::DropChild).collect::<Vec<_>>();
    let done = agent.done();
    assert!(dropped.iter().all(|d| done.contains(d)), "{done:?}");
    assert!(!done.contains(&Action::StartChild(2)));
}

#[test]
fn a_template_that_goes_too_early_is_the_cause_whatever_is_noticed_first() {
    let ended = || Event::TemplateEnded(End::Code(1), None);
    let begun = || {
        let mut agent = Agent::preparing(2, JobOptions::default());
        agent.handle(Event::Prepared, 0);
        agent.hear(&Frame::Go, 0);
        agent.said();
        agent.done();
        agent
    };
    let mut agent = begun();
    agent.handle(Event::TemplateClosed, MS);
    assert_eq!(agent.said(), [""; 0], "nothing runs, and nothing is over");
    agent.handle(ended(), 2 * MS);
    assert_eq!(agent.said(), ["<fault>", "Started", "Exited"]);
    let mut agent = begun();
    agent.handle(ended(), MS);
    assert_eq!(agent.said(), [""; 0]);
    agent.handle(Event::TemplateClosed, 2 * MS);
    assert_eq!(agent.said(), ["<fault>", "Started", "Exited"]);
    // A process that has closed its socket may go on for ever.
    let mut agent = begun();
    agent.handle(Event::TemplateClosed, MS);
    let due = agent.next_timeout().unwrap();
    agent.handle(Event::Timer, due);
    assert_eq!(agent.said(), ["<fault>", "Started", "Exited"]);
    // After the end of the job has begun, nobody waits for a cause.
    let mut agent = begun();
    agent.handle(Event::TemplateClosed, MS);
    agent.hear(&Frame::Stop { grace_ns: 0 }, 2 * MS);
    assert_eq!(agent.said(), ["Stopping", "Exited"]);
}
