//! A PE's failure and that of what it depends on, in both orders.

use super::*;
use crate::frame::FromServer;

const PATIENCE: u64 = 5000 * MS;

impl Agent {
    /// An agent of two PEs that speak PMIx, with children, all of which run.
    fn with_server(children: u32) -> Self {
        let children = (1..=children).map(|node| ChildSetup {
            node,
            ranks: node + 1..node + 2,
            ..ChildSetup::default()
        });
        let mut agent = Self::above(children.collect(), 2, JobOptions::default());
        agent.pmix = Some(Pmix::new(agent.servers.pmi.place()));
        agent.handle(Event::Prepared, 0);
        for child in 0..agent.children.len() {
            agent.child_says(child, &Frame::Ready, 0);
        }
        agent.hear(&Frame::Go, 0);
        let pids = &[10, 11];
        agent.handle(Event::PesStarted { pids, error: None }, 0);
        agent.handle(Event::TemplateClosed, 0);
        agent.said();
        agent.done();
        agent
    }

    fn child_says(&mut self, child: usize, frame: &Frame<'_>, now: u64) {
        let mut bytes = Vec::new();
        frame.encode(&mut bytes);
        self.handle(Event::FromChild(child, &bytes), now);
    }

    /// Its failure goes up as this.
    fn faults(&mut self) -> Vec<String> {
        let said = self.said().into_iter();
        said.filter(|said| said == "<fault>" || said.starts_with("Cause("))
            .collect()
    }
}

const SERVER: &str = "its PMIx server was killed";

fn server_ends() -> Event<'static> {
    Event::PmixFailed(SERVER.into())
}

#[track_caller]
fn is_of_the_server(faults: &[String]) {
    assert!(
        faults.len() == 1 && faults[0].contains(SERVER),
        "{faults:?}"
    );
}

#[test]
fn the_end_of_a_server_is_reported_before_and_after_that_of_a_pe() {
    let mut agent = Agent::with_server(0);
    agent.handle(failed(0), 1);
    assert_eq!(agent.faults(), [""; 0]);
    agent.handle(server_ends(), 2);
    agent.handle(failed(1), 3);
    is_of_the_server(&agent.faults());

    let mut agent = Agent::with_server(0);
    agent.handle(server_ends(), 1);
    agent.handle(failed(0), 2);
    is_of_the_server(&agent.faults());
}

#[test]
fn a_pe_has_failed_by_itself_if_the_server_lives() {
    let mut agent = Agent::with_server(0);
    agent.handle(failed(0), 1);
    // The second one may have failed of what happened since the question.
    agent.handle(failed(1), 2);
    agent.handle(Event::FromPmix(FromServer::Pong(1)), 3);
    assert_eq!(agent.faults(), ["<fault>"]);
    // What the server does not answer for is reported after a while, and the PEs' end waits for that.
    let mut agent = Agent::with_server(0);
    agent.handle(failed(0), 1);
    agent.handle(failed(1), 2);
    assert_eq!(agent.next_timeout(), Some(1 + PATIENCE));
    agent.handle(Event::Timer, 1 + PATIENCE);
    assert_eq!(agent.said(), ["<fault>", "Exited"]);
}

#[test]
fn a_child_that_was_lost_before_stop_is_reported_after_a_pe() {
    for acknowledged in [false, true] {
        let mut agent = Agent::with_server(1);
        agent.handle(failed(0), 1);
        agent.handle(Event::FromPmix(FromServer::Pong(1)), 1);
        assert_eq!(agent.faults(), ["<fault>"]);
        agent.hear(&Frame::Stop { grace_ns: MINUTE }, 2);
        if acknowledged {
            agent.child_says(0, &Frame::Stopping, 3);
        }
        agent.handle(Event::ChildClosed(0), 4);
        agent.handle(Event::ChildReaped(0, End::Code(1)), 5);
        assert_eq!(agent.faults().len(), usize::from(!acknowledged));
    }
}
