//! Silence in a world: agents that are stopped, and links that carry nothing.
//!
//! What the drivers do about it is modelled as they do it. A child that is given up is killed where it was
//! forked; on another host the link ends, and its warden kills an agent that does not see that because it is
//! stopped. An agent whose parent has ended is continued.

use super::scenes::{for_seeds, running};
use super::*;

const STOP: u8 = 19;
const TSTP: u8 = 20;

const KILLED: End = End::killed(9);

impl World {
    /// Somebody stops an agent, or cuts the link to a host.
    pub(super) fn silence(&mut self) {
        let at = self.rng.below(self.nodes.len());
        let n = &self.nodes[at];
        // Without heartbeats nobody would notice. A host that has not answered is waited for in another way.
        // One whose parent has ended is about to end, and nobody is left who could notice that it does not.
        let answered = !self.shape.hosts || n.link.delivered >= greeting().len();
        let watched = n.alive && answered && n.template.prepared && !n.link.down_closed;
        if self.shape.heartbeat == 0 || !watched {
            return;
        }
        let for_good = self.rng.one_in(2);
        // One who is silent because another one is stopped may be heard after both.
        if self.nodes.iter().any(|n| n.link.heals_at.is_some()) {
            return;
        }
        // A beat comes every eighth, and takes its time.
        let bearable = self.shape.heartbeat * 3 / 4;
        let heals_at = self.now + 1 + self.rng.below(bearable as usize) as u64;
        let cut = [[true, true], [true, false], [false, true]][self.rng.below(3)];
        self.seen.disturbed = true;
        let n = &mut self.nodes[at];
        match self.shape.hosts && self.rng.one_in(2) {
            true => n.link.cut = cut,
            false => n.frozen = true,
        }
        match for_good {
            true => {
                self.seen.silenced = true;
                self.lose(at);
            }
            false => n.link.heals_at = Some(heals_at),
        }
    }

    /// An agent is stopped, or its host cut off, for good.
    pub(super) fn silence_for_good(&mut self, at: usize, cut: bool) {
        (self.seen.disturbed, self.seen.silenced) = (true, true);
        let n = &mut self.nodes[at];
        match cut {
            true => n.link.cut = [true; 2],
            false => n.frozen = true,
        }
        self.lose(at);
    }

    /// What the PEs of a subtree have written may not arrive.
    pub(super) fn lose(&mut self, at: usize) {
        self.nodes[at].lost = true;
        for child in self.nodes[at].children.clone() {
            self.lose(child);
        }
    }

    /// When the next one is continued, or the next link mended.
    pub(super) fn next_healing(&self) -> Option<u64> {
        self.nodes.iter().filter_map(|n| n.link.heals_at).min()
    }

    pub(super) fn heal(&mut self) {
        let now = self.now;
        for n in &mut self.nodes {
            if n.link.heals_at.take_if(|at| *at <= now).is_some() {
                n.frozen = false;
                n.link.cut = [false; 2];
            }
        }
    }

    /// The parent's end of a link has closed.
    pub(super) fn close_down(&mut self, at: usize) {
        let n = &mut self.nodes[at];
        n.link.down_closed = true;
        if !std::mem::take(&mut n.frozen) || !n.alive {
            return;
        }
        if self.shape.hosts {
            self.lose(at);
            self.end_agent(at, KILLED);
        }
    }

    /// The launcher has ended, or does so: it kills a first agent that does not see that.
    pub(super) fn end_first(&mut self) {
        if self.nodes[0].frozen && self.nodes[0].alive {
            self.lose(0);
            self.end_agent(0, KILLED);
        }
        self.close_down(0);
    }

    /// The parent has given it up.
    pub(super) fn drop_child(&mut self, at: usize) {
        let silent = self.seen.silenced;
        let n = &mut self.nodes[at];
        n.link.dropped = true;
        let waiting = n.pes.iter().all(|pe| pe.life == Life::Waiting);
        assert!(waiting || silent, "nobody was silent");
        if n.alive && !self.shape.hosts {
            self.end_agent(at, KILLED);
        }
        self.close_down(at);
    }

    /// What an agent finds of its parent.
    pub(super) fn find_parent(&mut self, at: usize) {
        let stopped = match self.nodes[at].parent {
            _ if self.shape.hosts => false,
            Some(parent) => self.nodes[parent].frozen,
            None => self.launcher.stopped.is_some(),
        };
        let resumed = self.nodes[at].parent.is_none() && self.launcher.was_stopped;
        assert!(
            stopped || resumed || self.seen.silenced,
            "nobody was silent"
        );
        self.nodes[at]
            .agent
            .handle(Event::ParentFound { stopped }, self.now);
    }
}

/// A job of four nodes whose PEs run, with heartbeats.
fn four(hosts: bool, seed: u64) -> World {
    running(
        Shape {
            hosts,
            ..Shape::FOUR
        },
        seed,
    )
}

/// The one message of a job that ended because this node was silent.
#[track_caller]
fn tells_of_silence(w: World, node: usize, hosts: bool) {
    // A node and all below it.
    let lost = ["PEs 0 to 7", "PEs 2 to 5", "PEs 4 to 5", "PEs 6 to 7"][node];
    let (code, said) = w.end();
    assert_eq!(code, 125, "{said:?}");
    let name = match hosts {
        true => format!("node {node} (host{node}): "),
        false => format!("node {node}: "),
    };
    let ending = said
        .iter()
        .filter(|line| line.ends_with("; ending the job"));
    let ending: Vec<_> = ending.collect();
    assert_eq!(ending.len(), 1, "{said:?}");
    for part in [
        &format!("{name}nothing was heard of its launch agent for"),
        "SHMEM_HEARTBEAT_TIMEOUT",
        &format!("lost with it: {lost};"),
    ] {
        assert!(ending[0].contains(part), "no {part} in {said:?}");
    }
}

#[test]
fn a_stopped_agent_ends_the_job() {
    for_seeds(|seed| {
        for (node, hosts) in (0..4).flat_map(|node| [(node, false), (node, true)]) {
            let mut w = four(hosts, seed);
            w.silence_for_good(node, false);
            tells_of_silence(w, node, hosts);
        }
    });
}

#[test]
fn a_host_that_is_cut_off_is_told_and_ends_its_pes_by_itself() {
    for_seeds(|seed| {
        for node in 0..4 {
            let mut w = four(true, seed);
            w.silence_for_good(node, true);
            // Before the link is mended.
            w.until("nothing is left behind the cut", |w| {
                let n = &w.nodes[node];
                !n.alive && n.pes.iter().all(|pe| pe.life == Life::Reaped)
            });
            assert_eq!(w.nodes[node].link.cut, [true; 2]);
            tells_of_silence(w, node, true);
        }
    });
}

/// The launcher is stopped, alone or with the PEs, or everybody is idle: nobody counts as silent.
#[test]
fn who_is_stopped_on_purpose_or_idle_is_not_silent() {
    for_seeds(|seed| {
        // An agent on another host does not see that the launcher is stopped, unless that says so before.
        let cases = [(false, None), (false, Some(STOP)), (false, Some(TSTP))];
        for (hosts, signal) in cases.into_iter().chain([(true, None), (true, Some(TSTP))]) {
            let mut w = four(hosts, seed);
            if signal == Some(TSTP) {
                w.tell_root(root::Event::Signal(TSTP));
            }
            w.launcher.stopped = signal.map(|_| w.now);
            w.launcher.was_stopped = signal.is_some();
            w.run_for(20 * SECOND);
            if let (Some(since), Some(TSTP)) = (w.launcher.stopped.take(), signal) {
                w.tell_root(root::Event::Continued(w.now - since));
            }
            w.run_for(20 * SECOND);
            assert!(!w.root.is_over() && w.root.status() == 0, "{}", w.err());
            w.end_pes(0);
            let (code, said) = w.end();
            assert_eq!((code, said), (0, Vec::new()), "{hosts} {signal:?}");
        }
    });
}

#[test]
fn without_a_limit_everybody_may_be_silent() {
    for_seeds(|seed| {
        for node in 0..4 {
            let mut w = running(
                Shape {
                    heartbeat: 0,
                    hosts: seed.is_multiple_of(2),
                    ..Shape::FOUR
                },
                seed,
            );
            w.nodes[node].frozen = true;
            w.run_for(20 * SECOND);
            assert_eq!(w.root.status(), 0, "{}", w.err());
            w.nodes[node].frozen = false;
            w.end_pes(10);
            let (code, said) = w.end();
            assert_eq!((code, said.len()), (10, 1), "{said:?}");
        }
    });
}

#[test]
fn the_others_go_on_without_a_lost_node() {
    for_seeds(|seed| {
        for killed in [false, true] {
            let mut w = running(
                Shape {
                    keep_going: true,
                    hosts: seed.is_multiple_of(2),
                    ..Shape::FOUR
                },
                seed,
            );
            match killed {
                true => w.end_agent(3, KILLED),
                false => w.silence_for_good(3, false),
            }
            w.until("the loss is told", |w| w.err().contains("the others go on"));
            w.end_pes(0);
            let (code, said) = w.end();
            assert_eq!((code, said.len()), (125, 2), "{said:?}");
            let host = ["", " (host3)"][usize::from(seed.is_multiple_of(2))];
            let all =
                format!("2 of 8 PEs failed (--keep-going): PEs 6 to 7 lost with node 3{host}");
            assert!(said[1].ends_with(&all), "{said:?}");
        }
    });
}

#[test]
fn the_others_go_on_without_pes_that_fail() {
    for_seeds(|seed| {
        let mut w = running(
            Shape {
                keep_going: true,
                pmix: seed.is_multiple_of(2),
                ..Shape::FOUR
            },
            seed,
        );
        w.pe(2).life = Life::Zombie(End::Code(3));
        w.pe(4).life = Life::Zombie(KILLED);
        if seed.is_multiple_of(3) {
            w.until("both are told", |w| {
                w.err().matches("; the others go on").count() == 2
            });
        }
        w.end_pes(0);
        let (code, said) = w.end();
        assert!(
            [3, 137].contains(&code) && said.len() == 3,
            "{code}: {said:?}"
        );
        let all = "2 of 8 PEs failed (--keep-going): PE 2 exited with status 3; PE 4 was killed by signal 9 \
                   (SIGKILL)";
        assert!(said[2].ends_with(all), "{said:?}");
    });
}
