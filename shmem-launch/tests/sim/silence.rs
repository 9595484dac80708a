//! Silence in a world: agents that are stopped, and links that carry nothing.
//!
//! What the drivers do about it is modelled as they do it. A child that is given up is killed where it was
//! forked; on another host the link ends, and its warden kills an agent that does not see that because it is
//! stopped. An agent whose parent has ended is continued.

use super::*;

const KILLED: End = End::Signal {
    signal: 9,
    core: false,
};

impl World {
    /// Somebody stops an agent, or cuts the link to a host.
    pub(super) fn silence(&mut self) {
        let at = self.rng.below(self.nodes.len());
        let n = &self.nodes[at];
        // Without heartbeats nobody would notice. A host that has not answered is waited for in another way.
        // One whose parent has ended is about to end, and nobody is left who could notice that it does not.
        let answered = !self.hosts || n.delivered >= greeting().len();
        let watched = n.alive && answered && n.prepared && !n.down_closed;
        if self.heartbeat == 0 || !watched {
            return;
        }
        let for_good = self.rng.one_in(2);
        // One who is silent because another one is stopped may be heard after both.
        if self.nodes.iter().any(|n| n.heals_at.is_some()) {
            return;
        }
        let bearable = self.heartbeat / 4;
        let heals_at = self.now + 1 + self.rng.below(bearable as usize) as u64;
        let cut = [[true, true], [true, false], [false, true]][self.rng.below(3)];
        self.disturbed = true;
        let n = &mut self.nodes[at];
        match self.hosts && self.rng.one_in(2) {
            true => n.cut = cut,
            false => n.frozen = true,
        }
        match for_good {
            true => {
                self.silenced = true;
                self.lose(at);
            }
            false => n.heals_at = Some(heals_at),
        }
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
        self.nodes.iter().filter_map(|n| n.heals_at).min()
    }

    pub(super) fn heal(&mut self) {
        let now = self.now;
        for n in &mut self.nodes {
            if n.heals_at.take_if(|at| *at <= now).is_some() {
                n.frozen = false;
                n.cut = [false; 2];
            }
        }
    }

    /// The parent's end of a link has closed.
    pub(super) fn close_down(&mut self, at: usize) {
        let n = &mut self.nodes[at];
        n.down_closed = true;
        if !std::mem::take(&mut n.frozen) || !n.alive {
            return;
        }
        if self.hosts {
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
        let silent = self.silenced;
        let n = &mut self.nodes[at];
        n.dropped = true;
        let waiting = n.pes.iter().all(|pe| pe.life == Life::Waiting);
        assert!(waiting || silent, "nobody was silent");
        if n.alive && !self.hosts {
            self.end_agent(at, KILLED);
        }
        self.close_down(at);
    }

    /// What an agent finds of its parent.
    pub(super) fn find_parent(&mut self, at: usize) {
        let stopped = match self.nodes[at].parent {
            _ if self.hosts => false,
            Some(parent) => self.nodes[parent].frozen,
            None => self.root_stopped.is_some(),
        };
        assert!(stopped || self.silenced, "nobody was silent");
        self.nodes[at]
            .agent
            .handle(Event::ParentFound { stopped }, self.now);
    }
}
