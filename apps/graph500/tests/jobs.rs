//! Kernels and validation as jobs: levels on any layout, and results that are wrong in every way there is.

use graph500::construction::Graph;
use graph500::coordination::{Coordination, OpenShmem};
use graph500::generator::{Edge, Generator, share};
use graph500::golden;
use graph500::mailbox::{CREDIT, Mailbox, Message, PACKET};
use graph500::node::Nodes;
use graph500::partition::{NONE, Partition};
use graph500::roots;
use graph500::search::{Algorithm, Found, Searches};
use graph500::validation::{Refusal, Rule, Validation};
use shmem::{SymSlice, World};

const SCALE: u32 = 10;

/// A graph in a job, and what has been found in it.
struct Bench<'a> {
    edges: Vec<Edge>,
    partition: Partition,
    validation: Validation<'a>,
    searches: Searches<'a>,
    mailbox: Mailbox,
    coordination: OpenShmem,
}

fn with_bench<R>(f: impl FnOnce(&Graph, Bench<'_>) -> R) -> R {
    let (me, n_pes) = (shmem::my_pe(), shmem::n_pes());
    let partition = Partition::new(1 << SCALE, n_pes);
    let nodes = Nodes::of_job();
    let share = share(16 << SCALE, me, n_pes);
    let mut edges = vec![[0; 2]; (share.end - share.start) as usize];
    Generator::new(SCALE).fill(share.start, &mut edges);
    let mailbox = Mailbox::new(&nodes).expect("room");
    let mut coordination = OpenShmem::new(&mailbox);
    let graph = Graph::build(&edges, partition, &nodes, &mut coordination).expect("a graph");
    let bench = Bench {
        edges,
        partition,
        validation: Validation::new(&partition, &nodes).expect("room"),
        searches: Searches::new(&graph, &nodes).expect("room"),
        mailbox,
        coordination,
    };
    f(&graph, bench)
}

impl Bench<'_> {
    fn search(&mut self, root: u32, algorithm: Algorithm) -> (Found, u64) {
        self.searches.clear();
        let found = self
            .searches
            .run(root, algorithm, &mut self.mailbox, &mut self.coordination)
            .expect("a search");
        let nedge = self.searches.count_edges(&mut self.coordination);
        (found, nedge.expect("a sum"))
    }

    fn check(&self, root: u32, nedge: u64) -> Result<(), Refusal> {
        let predecessors = self.searches.predecessors();
        self.validation
            .check(&self.edges, predecessors, root, nedge)
    }

    /// Where a vertex's predecessor is, on its owner.
    fn predecessor(&self, vertex: u32) -> Option<SymSlice<u32>> {
        let owner = self.partition.owner(vertex);
        let local = self.partition.local(vertex, owner);
        let mine = owner == shmem::my_pe();
        mine.then(|| self.searches.predecessors().elem(local))
    }

    /// The predecessors of all vertices.
    fn tree(&self) -> Vec<u32> {
        let range = self.partition.range(shmem::my_pe());
        let mine = self.searches.predecessors().at(..range.len()).to_vec();
        let parts = shmem::Team::world().all_gather_parts(&mine);
        parts.into_vec()
    }
}

/// Searches from the roots that are known, with both algorithms, and validates.
fn levels_are_those_of_the_reference() {
    with_bench(|graph, mut bench| {
        let golden = golden::of(SCALE, 16).expect("a known scale");
        let roots = roots::choose(graph, roots::NUMBER);
        for algorithm in [Algorithm::TopDown, Algorithm::DirectionOptimising] {
            for search in golden.searches {
                assert_eq!(roots[search.index], search.root);
                let (found, nedge) = bench.search(search.root, algorithm);
                assert_eq!(nedge, golden.nedge);
                assert_eq!(found.levels.iter().sum::<u64>(), golden.visited);
                if !search.levels.is_empty() {
                    assert_eq!(found.levels, search.levels, "from {}", search.root);
                }
                let below = found.from_below > 0;
                assert_eq!(below, algorithm == Algorithm::DirectionOptimising);
                assert_eq!(bench.check(search.root, nedge), Ok(()));
            }
        }
    });
}

#[shmem::test(pes = [1, 2, 3, 4, 7, 16], nodes = [1])]
fn levels_on_a_node() {
    levels_are_those_of_the_reference();
}

#[shmem::test(pes = [2, 3, 4, 7, 16], nodes = [2])]
fn levels_on_two_nodes() {
    levels_are_those_of_the_reference();
}

#[shmem::test(pes = [4, 16], nodes = [4])]
fn levels_on_four_nodes() {
    levels_are_those_of_the_reference();
}

#[shmem::test(pes = 7, nodes = 3, env("SHMEM_CONNECT" = "static"))]
fn levels_with_static_connections() {
    levels_are_those_of_the_reference();
}

#[shmem::test(pes = 4, nodes = 4, env("SHMEM_SOFT_FAULTS" = "drop=2%,duplicate=1%,reorder=2%,seed=5"))]
fn levels_where_packets_get_lost() {
    levels_are_those_of_the_reference();
}

#[shmem::test(pes = 16, nodes = 4, env("SHMEM_TRANSPORT" = "xrc"))]
fn levels_over_xrc() {
    levels_are_those_of_the_reference();
}

/// Breaks each rule in turn, wherever the vertices of the change are owned, and mends it again.
fn refused(_world: &World) {
    with_bench(|_, mut bench| {
        let root = 458;
        let (_, nedge) = bench.search(root, Algorithm::DirectionOptimising);
        let tree = bench.tree();
        let vertices = || (0..1u32 << SCALE).filter(|&v| tree[v as usize] != NONE && v != root);
        let level = |mut vertex: u32| {
            let mut level = 0;
            while vertex != root {
                vertex = tree[vertex as usize];
                level += 1;
            }
            level
        };
        let broken = |bench: &Bench<'_>, changes: &[(u32, u32)], nedge| {
            for &(vertex, value) in changes {
                if let Some(place) = bench.predecessor(vertex) {
                    place.write(0, value);
                }
            }
            let checked = bench.check(root, nedge);
            for &(vertex, _) in changes {
                if let Some(place) = bench.predecessor(vertex) {
                    place.write(0, tree[vertex as usize]);
                }
            }
            checked.expect_err("a wrong result")
        };
        let is_parent = |vertex: u32| vertices().any(|other| tree[other as usize] == vertex);
        let inner = vertices().find(|&v| is_parent(v)).expect("no leaf");
        let deepest = vertices().max_by_key(|&v| level(v)).expect("a vertex");
        let leaf = vertices().find(|&v| !is_parent(v) && level(v) < level(deepest));
        let leaf = leaf.expect("a leaf above the last level");
        let outside = (0..1u32 << SCALE).find(|&v| tree[v as usize] == NONE);
        let outside = outside.expect("an isolated vertex");

        // The root has another predecessor, or none.
        for value in [leaf, NONE] {
            assert_eq!(broken(&bench, &[(root, value)], nedge).rule, Rule::Root);
        }
        // A predecessor that is no vertex.
        for value in [1 << SCALE, NONE - 1] {
            let refusal = broken(&bench, &[(leaf, value)], nedge);
            assert_eq!(
                refusal,
                Refusal {
                    rule: Rule::Range,
                    times: 1,
                    vertex: u64::from(leaf)
                }
            );
        }
        // A vertex that is its own predecessor, a circle of two, and a predecessor that was not reached.
        for changes in [
            &[(leaf, leaf)][..],
            &[(leaf, inner), (inner, leaf)],
            &[(leaf, outside)],
        ] {
            assert_eq!(
                broken(&bench, changes, nedge).rule,
                Rule::Tree,
                "{changes:?}"
            );
        }
        // A vertex that was not reached though its neighbours were.
        assert_eq!(broken(&bench, &[(leaf, NONE)], nedge).rule, Rule::Reach);
        // A leaf that hangs below the last level: its neighbours' levels are too far away.
        let refusal = broken(&bench, &[(leaf, deepest)], nedge);
        assert_eq!(refusal.rule, Rule::Level);
        // A predecessor of the right level to which there is no edge; a tree with it has right levels everywhere.
        let joined = |a: u32, b: u32| {
            let here = bench
                .edges
                .iter()
                .any(|&edge| edge == [a, b] || edge == [b, a]);
            shmem::Team::world().max(u8::from(here)) == 1
        };
        let stranger = vertices().find(|&v| level(v) + 1 == level(deepest) && !joined(v, deepest));
        let stranger = stranger.expect("a vertex of the level before that is no neighbour");
        let refusal = broken(&bench, &[(deepest, stranger)], nedge);
        assert_eq!(
            refusal,
            Refusal {
                rule: Rule::Edge,
                times: 1,
                vertex: u64::from(deepest)
            }
        );
        // An isolated vertex that claims to be reached: no edge leads there.
        let refusal = broken(&bench, &[(outside, root)], nedge);
        assert_eq!(
            refusal,
            Refusal {
                rule: Rule::Edge,
                times: 1,
                vertex: u64::from(outside)
            }
        );
        // Edges that were counted wrongly.
        let refusal = broken(&bench, &[], nedge + 3);
        assert_eq!(
            refusal,
            Refusal {
                rule: Rule::Count,
                times: 3,
                vertex: 0
            }
        );
        // And the result as it was.
        assert_eq!(bench.check(root, nedge), Ok(()));
    });
}

#[shmem::test(pes = [1, 3], nodes = [1])]
fn wrong_results_are_refused_on_a_node(world: &World) {
    refused(world);
}

#[shmem::test(pes = [3, 4], nodes = [2])]
fn wrong_results_are_refused_on_two_nodes(world: &World) {
    refused(world);
}

/// Sends by `bursts` (a PE of another node, and how many messages it gets), as the levels of a search do; every PE must
/// get what it is sent, once.
fn levels_of_messages(levels: u32, bursts: impl Fn(u32, &Nodes) -> Vec<(usize, u32)>) {
    let (me, n_pes) = (shmem::my_pe(), shmem::n_pes());
    let nodes = Nodes::of_job();
    let mut mailbox = Mailbox::new(&nodes).expect("room");
    let mut coordination = OpenShmem::new(&mailbox);
    let sent_by_all = shmem::alloc::<u64>(n_pes).expect("room");
    for level in 0..levels {
        let (mut count, mut sum) = (0u64, 0u64);
        let mut take = |message: Message| {
            assert_eq!(message.from, level);
            count += 1;
            sum += u64::from(message.local);
        };
        let mut sent = vec![0u64; n_pes];
        for (pe, messages) in bursts(level, &nodes) {
            for _ in 0..messages {
                sent[pe] += 1;
                let local = sent[pe] as u32;
                mailbox.send(Message { local, from: level }, pe, &mut take);
            }
        }
        mailbox.flush_all(&mut take);
        coordination.enter().expect("a barrier");
        while !coordination.test().expect("a barrier") {
            mailbox.drain(&mut take);
            coordination.wait(&mut mailbox);
        }
        mailbox.drain(&mut take);
        while mailbox.expects_more() {
            mailbox.wait(None);
            mailbox.drain(&mut take);
        }
        for (pe, &messages) in sent.iter().enumerate() {
            shmem::p(sent_by_all.elem(me), messages, pe);
        }
        shmem::barrier_all();
        let expected = sent_by_all.to_vec();
        assert_eq!(count, expected.iter().sum());
        assert_eq!(sum, expected.iter().map(|n| n * (n + 1) / 2).sum());
        shmem::barrier_all();
    }
}

/// More messages than a mailbox has room for, towards an owner that is slow to look: senders wait, and nothing is lost.
#[shmem::test(pes = [2, 5], nodes = [2])]
fn mailboxes_that_are_full_make_senders_wait() {
    levels_of_messages(3, |_, nodes| {
        if shmem::my_pe() == 0 {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        let turns = (0..3 * CREDIT * PACKET + 17).flat_map(|_| nodes.far());
        turns.map(|pe| (pe, 1)).collect()
    });
}

/// Each sender holds parts of packets for some while it waits for others: nobody may wait for what a waiting one holds.
#[shmem::test(pes = [4, 7], nodes = [2, 3])]
fn senders_that_wait_keep_nobody_waiting() {
    levels_of_messages(20, |level, nodes| {
        let mut random = graph500::random::Mrg::new(u64::from(level), shmem::my_pe() as u64);
        let far: Vec<usize> = nodes.far().collect();
        let mut draw = |below: usize| random.draw() as usize % below;
        (0..200)
            .map(|_| (far[draw(far.len())], draw(2 * PACKET) as u32))
            .collect()
    });
}
