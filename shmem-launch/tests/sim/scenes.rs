//! Worlds in which a test says what is done, and the seed only in which order it happens.

use shmem_testkit::seeds;

use super::*;

const SEEDS: u64 = 60;

impl Shape {
    /// Four nodes of two PEs each; the second one has the third below it.
    pub(super) const FOUR: Self = Self {
        n_nodes: 4,
        n_pes: 8,
        degree: 2,
        chatty: false,
        hosts: false,
        bad_host: false,
        respawns: 0,
        keep_going: false,
        heartbeat: 2 * SECOND,
        label: false,
        pmix: false,
    };
}

/// Plays a scene with each seed that is to run.
pub(super) fn for_seeds(scene: impl Fn(u64)) {
    seeds::each(SEEDS, |seed, _| scene(seed));
}

/// Whether so many seeds run that all orders come up.
pub(super) fn seeds_suffice() -> bool {
    seeds::single().is_none() && seeds::count(SEEDS, 1) >= SEEDS
}

/// A job whose PEs run, and do nothing by themselves.
pub(super) fn running(shape: Shape, seed: u64) -> World {
    let mut w = make(shape, rng(seed));
    w.scripted = true;
    for pe in w.nodes.iter_mut().flat_map(|n| &mut n.pes) {
        (pe.lines_left, pe.stubborn, pe.long) = (0, false, false);
    }
    w.until("the PEs run", |w| w.root.moments().started > 0);
    w
}

impl World {
    /// Lets things happen until something is so.
    #[track_caller]
    pub(super) fn until(&mut self, what: &str, is: impl Fn(&Self) -> bool) {
        for _ in 0..200_000 {
            if is(self) {
                return;
            }
            self.step();
        }
        panic!(
            "{what}: never, with status {}: {}",
            self.root.status(),
            self.err()
        );
    }

    /// Lets this time pass.
    pub(super) fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        while self.now < end {
            if !self.step() {
                self.now = end;
                self.heal();
            }
        }
    }

    /// All that the launcher has written to standard error.
    pub(super) fn err(&self) -> String {
        String::from_utf8(self.texts[1].clone()).unwrap()
    }

    /// A PE of this rank.
    pub(super) fn pe(&mut self, rank: u32) -> &mut Pe {
        let holds = |n: &&mut Node| (n.first_rank..).zip(&n.pes).any(|(r, _)| r == rank);
        let node = self.nodes.iter_mut().find(holds).unwrap();
        let local = rank - node.first_rank;
        &mut node.pes[local as usize]
    }

    /// All PEs that live end with this status.
    pub(super) fn end_pes(&mut self, code: u8) {
        for pe in self.nodes.iter_mut().flat_map(|n| &mut n.pes) {
            if pe.life == Life::Alive {
                pe.life = Life::Zombie(End::Code(code));
            }
        }
    }

    /// Waits for the end of everything. Gives the status, and what the launcher has said.
    #[track_caller]
    pub(super) fn end(mut self) -> (u8, Vec<String>) {
        self.until("all has ended", |w| {
            !w.launcher.alive && w.nodes.iter().all(|n| !n.alive)
        });
        // What PEs wait for when a node is silent takes several lines.
        let is_own =
            |line: &&str| line.starts_with("shmrun: ") && !line.starts_with("shmrun: what ");
        let said = self
            .err()
            .lines()
            .filter(is_own)
            .map(str::to_owned)
            .collect();
        (self.root.finished().expect("a status"), said)
    }
}
