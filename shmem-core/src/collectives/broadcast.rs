//! Broadcast.

use std::ops::Range;

use super::links;
use super::select::{Algorithm, Between, Here, Layout, Operation, select};
use super::shares::part;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::rma::Completion;
use crate::runtime::Runtime;
use crate::team::Team;
use crate::team::slots::{ARGUMENT, LINE, SHOWN};
use crate::tree;

/// One broadcast.
#[derive(Clone, Copy)]
struct Broadcast<'a> {
    team: &'a Team,
    dest: usize,
    bytes: usize,
    /// The node of the root.
    root_node: usize,
    /// Position on its node of the root, if that is this node.
    root_local: Option<usize>,
    /// Whether the root gets its data, too.
    write_root: bool,
    here: Here,
}

impl Runtime {
    /// Copies `bytes` of the root's `source` into `dest` of all members, but of the root only with
    /// `write_root`. What the others name as the source means nothing.
    pub(crate) fn team_broadcast(
        &self,
        team: &Team,
        dest: SymAddr,
        source: SymAddr,
        bytes: usize,
        root: usize,
        write_root: bool,
    ) {
        if bytes == 0 {
            return;
        }
        let mapping = team.mapping();
        let root_node = mapping.node_of(root);
        let Algorithm { here, between } = select(Operation::Broadcast, bytes, Layout::of(team));
        let b = Broadcast {
            team,
            dest: dest.offset(),
            bytes,
            root_node,
            root_local: (root_node == mapping.node())
                .then(|| self.nodes.local_of[team.world_pe(root)] as usize),
            write_root,
            here,
        };
        if here == Here::Lines {
            let given = if team.my_pe() == root { bytes } else { 0 };
            let lines = self.exchange_lines(team, self.own(source.offset()), given);
            if write_root || given == 0 {
                // SAFETY: the root has given that many bytes; members of one node are in order of rank.
                unsafe { access::copy(lines.of(root), self.own(dest.offset()), bytes) };
            }
            return;
        }
        if team.my_pe() == root {
            self.set_word(team.slot(ARGUMENT), source.offset() as u64);
        }
        match (here, between) {
            (Here::One, _) => self.show_data(b),
            (Here::Push, Between::Nothing) => {
                // The others' arrays are ready, whether they have arrived or not.
                if team.my_pe() == root {
                    self.push_data(b);
                }
                self.meet_here(team);
            }
            (Here::Push, _) => self.meet(team, || {
                self.broadcast_to_leaders(b, between);
                self.push_data(b);
            }),
            (Here::Leader, Between::Nothing) => {
                self.meet(team, || _ = self.data_of_leader(b));
                self.pull_data(b);
            }
            (_, Between::Nothing) => {
                self.meet_here(team);
                self.pull_data(b);
            }
            _ => {
                self.meet(team, || self.broadcast_to_leaders(b, between));
                self.pull_data(b);
            }
        }
    }

    /// Position on this node of the one from whom its members have the data, and where. For the root, and
    /// for those who have met it.
    fn data_here(&self, b: Broadcast<'_>) -> (usize, usize) {
        let leader = b.team.mapping().local(0);
        match b.root_local {
            Some(root) if root == leader || b.here != Here::Leader => {
                let told = self.neighbour(root, b.team.slot(ARGUMENT));
                // SAFETY: an aligned word of a segment of this node.
                (root, unsafe { access::load(told) } as usize)
            }
            _ => (leader, b.dest),
        }
    }

    /// Where the leader has the data: on the root's node, after a copy of the root's, unless it is the
    /// root. For leaders.
    fn data_of_leader(&self, b: Broadcast<'_>) -> usize {
        let any = Broadcast {
            here: Here::Pull,
            ..b
        };
        let (has, at) = self.data_here(any);
        if has == self.local {
            return at;
        }
        // SAFETY: both arrays lie inside segments of this node.
        unsafe { access::copy(self.neighbour(has, at), self.own(b.dest), b.bytes) };
        b.dest
    }

    /// The leader shows the data to all, on one node.
    fn show_data(&self, b: Broadcast<'_>) {
        let shown = self.leader_slot(b.team, SHOWN);
        self.meet(b.team, || {
            let (has, at) = self.data_here(b);
            // SAFETY: the box has room for it. All have arrived, so nobody reads what was shown before.
            unsafe { access::copy(self.neighbour(has, at), shown, b.bytes) };
        });
        if b.write_root || b.root_local != Some(self.local) {
            // SAFETY: what is shown stays until this PE arrives again.
            unsafe { access::copy(shown, self.own(b.dest), b.bytes) };
        }
    }

    /// Writes what is on this node into the arrays of all members here.
    fn push_data(&self, b: Broadcast<'_>) {
        let mapping = b.team.mapping();
        let (from, at) = self.data_here(b);
        for to in (0..mapping.n_here()).map(|i| mapping.local(i)) {
            if to != from || (b.write_root && b.root_local == Some(to)) {
                // SAFETY: both arrays lie inside segments of this node.
                unsafe {
                    access::copy(
                        self.neighbour(from, at),
                        self.neighbour(to, b.dest),
                        b.bytes,
                    )
                };
            }
        }
    }

    /// Takes what is on this node, after a meeting; the member that has it waits for the others.
    fn pull_data(&self, b: Broadcast<'_>) {
        let mapping = b.team.mapping();
        let (from, at) = self.data_here(b);
        let wants = match b.root_local == Some(self.local) {
            true => b.write_root,
            false => self.local != from,
        };
        if wants {
            // SAFETY: two arrays of segments of this node; what is read stays until all have.
            unsafe { access::copy(self.neighbour(from, at), self.own(b.dest), b.bytes) };
        }
        let owner = (0..mapping.n_here()).find(|&i| mapping.local(i) == from);
        self.finish_reading(b.team, owner.expect("the data is with a member"));
    }

    /// Brings the data to all leaders: into their destination arrays, but on the root's node. For
    /// leaders.
    fn broadcast_to_leaders(&self, b: Broadcast<'_>, between: Between) {
        // What is sent must lie in the leader's own segment.
        let from = self.data_of_leader(b);
        let completion = links::completion(b.bytes);
        match between {
            Between::Circulant => self.scatter_and_gather(b, from, completion),
            _ => self.flood_tree(b, from, completion),
        }
        self.complete(completion);
    }

    /// From the root's node along all edges of the tree, up and down.
    fn flood_tree(&self, b: Broadcast<'_>, from: usize, completion: Completion) {
        let (team, mapping) = (b.team, b.team.mapping());
        let node = mapping.node();
        let round = self.next_round(team);
        let from_child = self
            .children(team)
            .find(|&(_, child)| tree::subtree(child, mapping.n_nodes()).contains(&b.root_node));
        if let Some((k, _)) = from_child {
            self.await_child(team, k, round);
        } else if node != b.root_node {
            self.await_parent(team, round);
        }
        let data = self.own(from);
        let not_from_above = from_child.is_some() || node == b.root_node;
        if let Some(parent) = self.parent(team).filter(|_| not_from_above) {
            self.write(parent, b.dest, data, b.bytes, completion);
            self.tell_parent(team, round);
        }
        for (k, child) in self.children(team).rev() {
            if from_child.is_none_or(|(from, _)| from != k) {
                self.write(mapping.leader(child), b.dest, data, b.bytes, completion);
                self.tell_child(team, child, round);
            }
        }
    }

    /// From the root's node in parts to all nodes, and from each of them to all others.
    fn scatter_and_gather(&self, b: Broadcast<'_>, from: usize, completion: Completion) {
        let nodes = b.team.mapping().n_nodes();
        let parts = |nodes_of: Range<usize>| {
            let lines = |node| part(b.bytes.div_ceil(LINE), nodes, node);
            let (start, end) = (lines(nodes_of.start).start, lines(nodes_of.end - 1).end);
            b.bytes.min(start * LINE)..b.bytes.min(end * LINE)
        };
        let send = |pe, nodes| {
            let range = parts(nodes);
            let data = self.own(from + range.start);
            self.write(pe, b.dest + range.start, data, range.len(), completion);
        };
        self.begin_rounds(b.team)
            .scatter_allgather(b.root_node, send);
    }
}
