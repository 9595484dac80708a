//! What OpenSHMEM programs say to their agent: words for the user, and addresses.

use super::*;
use shmem_node::address::ADDRESS_LEN;
use shmem_node::to_agent::TEXT_MAX;
use shmem_pmi::server::{NodeServer, Output, TreeLink};
use std::sync::Arc;

fn tell(local: u32, text: &str) -> Event<'_> {
    let adds = false;
    Event::Message(ToAgent::Tell { local, text, adds })
}

fn bring(first: u32, bytes: &[u8]) -> Event<'_> {
    Event::Message(ToAgent::Addresses { first, bytes })
}

#[test]
fn who_has_left_pmi_may_still_bring_its_address() {
    let address = [1; ADDRESS_LEN];
    let mut agent = Agent::running(2, false);
    agent.pes.pmi_closed(1, MS);
    agent.handle(bring(0, &address), MS);
    agent.handle(Event::Timer, MINUTE);
    assert_eq!(agent.pes.absent(), (0, 1));
    assert_eq!(agent.said(), [""; 0]);
    agent.handle(bring(1, &address), MINUTE);
    let published = agent
        .done()
        .into_iter()
        .any(|action| matches!(action, Action::Publish { last: true, .. }));
    assert!(published);

    // Who has ended will not.
    let mut agent = Agent::running(2, false);
    agent.handle(bring(0, &address), MS);
    let ended = Event::Reaped {
        local: 1,
        end: End::Code(0),
        missed: StillNeeded::Nothing,
        attached: false,
    };
    agent.handle(ended, MS);
    assert_eq!(agent.said(), ["<fault>"]);
}

#[test]
fn words_that_nobody_reads_do_not_pile_up() {
    let mut agent = Agent::running(1, false);
    let mut said = 0;
    while agent.may_read_messages() {
        said += 1;
        assert!(said * TEXT_MAX < 3 * BUDGET, "{said}");
        let text = format!("{said} {}", "x".repeat(TEXT_MAX - 10));
        agent.handle(tell(0, &text), MS);
    }
    // Somebody reads: all of it is there.
    let mut heard = 0;
    for _ in 0..said {
        agent.hear(&Frame::Credit(1 << 20), MS);
        heard += agent.said().len();
    }
    assert!(agent.may_read_messages());
    assert_eq!(heard, said);
}

#[test]
fn how_often_the_same_was_said_is_told_however_the_job_ends() {
    let mut agent = Agent::running(2, false);
    agent.handle(tell(0, "no"), MS);
    agent.handle(tell(1, "no"), MS);
    assert_eq!(agent.said(), ["<notice>"]);
    agent.hear(&Frame::Finish, MS);
    // While what is left is ended.
    agent.handle(tell(1, "no"), MS);
    for local in 0..2 {
        for stream in Stream::ALL {
            agent.handle(Event::OutputClosed(local, stream), MS);
        }
    }
    assert!(agent.done().contains(&Action::CleanUp));
    agent.handle(Event::CleanedUp(Box::default()), MS);
    let said = agent.said();
    assert_eq!(said[0], "<notice>");
    assert!(said[1].starts_with("Done"), "{said:?}");
}

/// What node 0 sends node 1 when the PE of each has brought a value of `len` bytes.
fn result(len: usize, job: &Job, places: [NodePlace; 2]) -> Vec<Arc<Vec<u8>>> {
    let [mut parent, mut child] = places.map(|place| NodeServer::new(job.clone(), place).unwrap());
    child.bring(0, len, &vec![1; len]).unwrap();
    while let Some(output) = child.poll_output() {
        if let Output::ToParent(bytes) = output {
            parent.handle_tree(TreeLink::Child(0), &bytes).unwrap();
        }
    }
    parent.bring(0, len, &vec![0; len]).unwrap();
    std::iter::from_fn(|| parent.poll_output())
        .filter_map(|output| match output {
            Output::ToChild { bytes, .. } => Some(bytes),
            _ => None,
        })
        .collect()
}

#[test]
fn addresses_of_another_length_are_refused() {
    for len in [
        1,
        ADDRESS_LEN - 1,
        ADDRESS_LEN,
        ADDRESS_LEN + 1,
        4 * ADDRESS_LEN,
    ] {
        let node_of = [0, 1];
        let job = Job {
            size: 2,
            process_mapping: ProcessMapping::from_nodes(&node_of).to_string(),
            ..Job::default()
        };
        let tree = Tree::new(2, 8);
        let place = |node| NodePlace::in_tree(&tree, node, &node_of);
        let servers = Servers::new(job.clone(), place(1)).unwrap();
        let setup = Setup {
            node: 1,
            first_rank: 1,
            n_pes: 2,
            ..Agent::preparing(1, JobOptions::default()).setup
        };
        let mut agent = Agent::new(setup, servers);
        agent.handle(bring(0, &[1; ADDRESS_LEN]), 0);
        agent.said();
        for bytes in result(len, &job, [place(0), place(1)]) {
            agent.hear(&Frame::Addresses(&bytes), 0);
        }
        let published = agent
            .done()
            .into_iter()
            .any(|action| matches!(action, Action::Publish { .. }));
        let refused = agent.said() == ["<fault>"];
        let good = len == ADDRESS_LEN;
        assert_eq!((published, refused), (good, !good), "{len}");
    }
}
