//! PEs that fail because something of the launcher's own has: the launcher reports that, and its status counts,
//! whichever it hears of first.

use std::cell::Cell;

use super::scenes::{for_seeds, running, seeds_suffice};
use super::*;

/// What PEs end with whose peers have gone.
const PEERS: u8 = 14;

const KILLED: End = End::killed(9);

fn shape(seed: u64) -> Shape {
    let n_nodes = 1 + (seed % 5) as u32;
    Shape {
        n_nodes,
        n_pes: n_nodes * 2,
        hosts: seed.is_multiple_of(4),
        heartbeat: 0,
        pmix: true,
        ..Shape::FOUR
    }
}

/// PEs of other nodes will fail because of those that were lost.
fn doom_others(w: &mut World, victim: usize) {
    let others = w.nodes.iter_mut().enumerate();
    for (_, n) in others.filter(|(at, _)| *at != victim) {
        n.pes.iter_mut().for_each(|pe| pe.doomed = Some(PEERS));
    }
}

/// Whether a PE was told of first, of a job that ended for this reason.
#[track_caller]
fn told_of_pe_first(w: World, reason: &str) -> bool {
    let (code, said) = w.end();
    assert_eq!(code, 125, "{said:?}");
    let reasons = said.iter().filter(|line| line.contains(reason)).count();
    assert_eq!(reasons, 1, "{said:?}");
    match said.iter().any(|line| line.contains(BEFORE)) {
        true => {
            let first = format!("exited with status {PEERS}");
            assert!(said[0].contains(&first) && said.len() == 2, "{said:?}");
            true
        }
        false => {
            assert_eq!(said.len(), 1, "{said:?}");
            false
        }
    }
}

/// How often each of two orders came up.
#[derive(Default)]
struct Orders([Cell<u32>; 2]);

impl Orders {
    fn note(&self, which: bool) {
        let count = &self.0[usize::from(which)];
        count.set(count.get() + 1);
    }

    #[track_caller]
    fn both(&self) {
        if seeds_suffice() {
            assert!(self.0.iter().all(|count| count.get() > 0));
        }
    }
}

#[test]
fn the_death_of_a_server_counts_and_not_that_pes_fail_of_it() {
    let (pes_first, others_first) = (Orders::default(), Orders::default());
    for_seeds(|seed| {
        let mut w = running(shape(seed), seed);
        let victim = w.rng.below(w.nodes.len());
        w.kill_server(victim);
        let ended = |w: &World| w.nodes[victim].pes.iter().any(|pe| pe.life != Life::Alive);
        w.until("a PE has failed, or been ended", ended);
        let told = w.nodes[victim].server.has_news();
        pes_first.note(told);
        doom_others(&mut w, victim);
        let others = told_of_pe_first(w, "its PMIx server was killed by signal 9");
        others_first.note(others);
    });
    pes_first.both();
    others_first.both();
}

#[test]
fn the_death_of_an_agent_counts_and_not_that_pes_of_other_nodes_fail_of_it() {
    let orders = Orders::default();
    for_seeds(|seed| {
        let shape = Shape {
            pmix: seed.is_multiple_of(2),
            hosts: false,
            ..shape(seed)
        };
        let mut w = running(shape, seed);
        let victim = w.rng.below(w.nodes.len());
        w.end_agent(victim, KILLED);
        doom_others(&mut w, victim);
        let reason = format!("the launch agent of node {victim} ");
        orders.note(told_of_pe_first(w, &reason));
    });
    orders.both();
}

/// A host that is cut off: the launcher hears of it long after PEs elsewhere have failed of it.
#[test]
fn the_silence_of_a_host_counts_and_not_that_pes_of_other_nodes_fail_of_it() {
    let orders = Orders::default();
    for_seeds(|seed| {
        let mut w = running(
            Shape {
                hosts: true,
                ..Shape::FOUR
            },
            seed,
        );
        let victim = w.rng.below(4);
        w.silence_for_good(victim, true);
        if seed.is_multiple_of(2) {
            doom_others(&mut w, victim);
        }
        orders.note(told_of_pe_first(
            w,
            &format!("(host{victim}): nothing was heard"),
        ));
    });
    orders.both();
}

#[test]
fn what_fails_when_the_job_is_being_ended_is_not_its_cause() {
    for_seeds(|seed| {
        let mut w = running(shape(seed), seed);
        let nodes = w.nodes.iter_mut();
        nodes
            .flat_map(|n| &mut n.pes)
            .for_each(|pe| pe.stubborn = true);
        let rank = w.rng.below(w.nodes.len()) as u32 * 2;
        w.pe(rank).life = Life::Zombie(End::Code(7));
        // The grace period is not over before all have heard of it.
        w.until("all know that the job ends", |w| {
            w.root.status() == 7 && w.is_quiet()
        });
        let victim = w.rng.below(w.nodes.len());
        match w.rng.one_in(2) {
            true => w.end_agent(victim, KILLED),
            false => w.kill_server(victim),
        }
        let (code, said) = w.end();
        assert_eq!((code, said.len()), (7, 1), "{said:?}");
    });
}

/// A server that is stopped delays the report of a PE's failure, and does not keep it.
#[test]
fn the_failure_of_a_pe_is_told_though_the_server_does_not_answer() {
    for_seeds(|seed| {
        let mut w = running(shape(seed), seed);
        w.nodes.iter_mut().for_each(|n| n.server.frozen = true);
        match seed.is_multiple_of(2) {
            true => w.pe(1).life = Life::Zombie(End::Code(7)),
            // All have ended, and one of them has failed.
            false => {
                w.end_pes(0);
                w.pe(1).life = Life::Zombie(End::Code(7));
            }
        }
        let (code, said) = w.end();
        assert_eq!((code, said.len()), (7, 1), "{said:?}");
    });
}
