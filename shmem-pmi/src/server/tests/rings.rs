//! Rings over trees of servers.

use super::*;
use crate::client::Call;
use crate::client::calls::{Neighbours, Ring};

/// Servers joined by links that carry whatever they say at once.
struct Net {
    tree: Tree,
    servers: Vec<NodeServer>,
    /// What came to each rank.
    heard: Vec<Vec<u8>>,
    /// Bytes on each link, up and down alike, by node.
    carried: Vec<usize>,
}

impl Net {
    fn new(nodes: u32, degree: u32, node_of_rank: &[u32]) -> Self {
        let tree = Tree::new(nodes, degree);
        let size = node_of_rank.len() as u32;
        let place = |node| NodePlace::in_tree(&tree, node, node_of_rank);
        let server = |node| NodeServer::new(job(size), place(node)).unwrap();
        Self {
            servers: (0..nodes).map(server).collect(),
            tree,
            heard: vec![Vec::new(); node_of_rank.len()],
            carried: vec![0; nodes as usize],
        }
    }

    fn say(&mut self, rank: u32, bytes: &[u8]) {
        for server in &mut self.servers {
            let local = server.place().ranks.iter().position(|&r| r == rank);
            if let Some(local) = local {
                server.handle_client_bytes(local, bytes);
            }
        }
        self.settle();
    }

    fn settle(&mut self) {
        let mut moved = true;
        while std::mem::take(&mut moved) {
            for node in 0..self.servers.len() {
                while let Some(output) = self.servers[node].poll_output() {
                    moved = true;
                    self.act(node, output);
                }
            }
        }
    }

    fn act(&mut self, node: usize, output: Output) {
        match output {
            Output::ToClient { local, bytes } => {
                let rank = self.servers[node].rank(local) as usize;
                self.heard[rank].extend(bytes);
            }
            Output::ToParent(bytes) => {
                self.carried[node] += bytes.len();
                let parent = self.tree.parent(node as u32).unwrap();
                let mut siblings = self.tree.children(parent);
                let child = siblings.position(|c| c == node as u32).unwrap();
                let parent = &mut self.servers[parent as usize];
                parent.handle_tree(TreeLink::Child(child), &bytes).unwrap();
            }
            Output::ToChild { child, bytes } => {
                let to = self.tree.children(node as u32).nth(child).unwrap() as usize;
                self.carried[to] += bytes.len();
                self.servers[to]
                    .handle_tree(TreeLink::Parent, &bytes)
                    .unwrap();
            }
            other => panic!("{other:?}"),
        }
    }

    /// The only reply of a rank since the last time: what it finds, or why not.
    fn reply(&mut self, rank: usize) -> Result<Neighbours, String> {
        let bytes = std::mem::take(&mut self.heard[rank]);
        let mut decoder = crate::wire::v2::Decoder::behind_init(bytes);
        let Ok(Some(Incoming::Body(body))) = decoder.next_message() else {
            panic!("no reply");
        };
        let reply = match Response::decode(body).unwrap().reply {
            Reply::Refused { message, .. } => Err(message.into_owned()),
            reply => Ok(Ring::reply(reply).unwrap()),
        };
        assert_eq!(decoder.pending(), 0);
        reply
    }

    fn greet_all(&mut self) {
        for rank in 0..self.heard.len() as u32 {
            self.say(rank, INIT);
            self.say(rank, &message("cmd=fullinit;"));
            self.heard[rank as usize].clear();
        }
    }
}

/// Every PE finds itself between its neighbours.
fn ring(net: &mut Net, order: impl Iterator<Item = u32>, value_len: usize) {
    let size = net.heard.len();
    let value = |what: &str, rank: usize| format!("{what}{rank}-{}", "v".repeat(value_len));
    for rank in order {
        let (left, right) = (value("l", rank as usize), value("r", rank as usize));
        net.say(
            rank,
            &message(&format!(
                "cmd=ring;ring-count=1;ring-left={left};ring-right={right};"
            )),
        );
    }
    let replies: Vec<_> = (0..size).map(|rank| net.reply(rank).unwrap()).collect();
    let mut at = vec![None; size];
    for (rank, ring) in replies.iter().enumerate() {
        assert_eq!(ring.size, Some(size as u32));
        assert_eq!(
            at[ring.rank as usize].replace(rank),
            None,
            "two at one place"
        );
    }
    for (place, rank) in at.iter().map(|rank| rank.unwrap()).enumerate() {
        let left = at[(place + size - 1) % size].unwrap();
        let right = at[(place + 1) % size].unwrap();
        let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
        assert_eq!(text(&replies[rank].left), value("r", left));
        assert_eq!(text(&replies[rank].right), value("l", right));
    }
}

#[test]
fn one_node() {
    for size in 1..5u32 {
        let mut net = Net::new(1, 2, &vec![0; size as usize]);
        net.greet_all();
        ring(&mut net, (0..size).rev(), 3);
        assert!(net.servers[0].is_idle());
    }
}

#[test]
fn in_blocks_the_ring_is_in_the_order_of_ranks() {
    let node_of_rank: Vec<u32> = (0..14).map(|rank| rank / 2).collect();
    let mut net = Net::new(7, 2, &node_of_rank);
    net.greet_all();
    for rank in 0..14 {
        net.say(
            rank,
            &message("cmd=ring;ring-count=1;ring-left=a;ring-right=b;"),
        );
    }
    for rank in 0..14 {
        assert_eq!(net.reply(rank).unwrap().rank, rank as u32);
    }
}

#[test]
fn a_link_carries_the_same_however_many_pes_there_are() {
    let carried = |nodes: u32| {
        let node_of_rank: Vec<u32> = (0..nodes * 4).map(|rank| rank / 4).collect();
        let mut net = Net::new(nodes, 3, &node_of_rank);
        net.greet_all();
        ring(&mut net, 0..nodes * 4, 100);
        *net.carried.iter().max().unwrap()
    };
    let few = carried(2);
    // Up and down: a header, three numbers and two values each.
    assert!(few <= 2 * (16 + 12 + 2 * 110), "{few}");
    assert!(
        carried(60) <= few + 8,
        "ranks have more digits, nothing else"
    );
}

#[test]
fn who_calls_something_else_is_named() {
    let mut net = Net::new(3, 2, &[0, 1, 2]);
    net.greet_all();
    net.say(
        0,
        &message("cmd=ring;ring-count=1;ring-left=a;ring-right=a;"),
    );
    net.say(1, &message("cmd=kvs-fence;"));
    net.say(
        2,
        &message("cmd=ring;ring-count=2;ring-left=a;ring-right=a;"),
    );
    for rank in 0..3 {
        assert_eq!(
            net.reply(rank).unwrap_err(),
            "PE 1 called fence, but PE 0 called ring; all must call the same operations in the same order"
        );
    }
    // What cannot be read counts as joining, too.
    let long = "v".repeat(1025);
    net.say(
        0,
        &message(&format!("cmd=ring;ring-left={long};ring-right=a;")),
    );
    assert!(net.reply(0).is_err());
    for rank in 1..3 {
        net.say(rank, &message("cmd=ring;ring-left=a;ring-right=a;"));
    }
    for rank in 1..3 {
        assert!(net.reply(rank).is_err());
    }
    ring(&mut net, 0..3, 1);
}

#[test]
fn a_ring_that_does_not_follow_is_refused() {
    let part = |direction, count| {
        let part = crate::wire::tree::RingPart {
            first: 0,
            count,
            left: b"l",
            right: b"r",
        };
        let message = Message {
            direction,
            request: 0,
            body: Body::Ring(part),
        };
        message.encode().unwrap()
    };
    let mut root = server(3, 0);
    let error = root.handle_tree(TreeLink::Child(0), &part(Direction::Up, 3));
    assert!(error.unwrap_err().to_string().contains("a ring of 2 PEs"));
    let mut leaf = server(3, 1);
    greet(&mut leaf, 0);
    greet(&mut leaf, 1);
    for local in 0..2 {
        leaf.handle_client_bytes(local, &message("cmd=kvs-fence;"));
    }
    let error = leaf.handle_tree(TreeLink::Parent, &part(Direction::Down, 6));
    assert!(error.unwrap_err().to_string().contains("no ring"));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(60))]
    #[test]
    fn any_tree_and_placement(
        nodes in 1u32..9,
        degree in 1u32..4,
        seeds in prop::collection::vec(any::<u32>(), 1..20),
        value_len in 0usize..900,
    ) {
        // Some nodes have no PEs.
        let node_of_rank: Vec<u32> = seeds.iter().map(|seed| seed % nodes).collect();
        let mut net = Net::new(nodes, degree, &node_of_rank);
        net.greet_all();
        let mut order: Vec<u32> = (0..seeds.len() as u32).collect();
        order.sort_by_key(|&rank| seeds[rank as usize].rotate_left(16));
        ring(&mut net, order.iter().copied(), value_len);
        ring(&mut net, order.iter().rev().copied(), 0);
        for server in &net.servers {
            prop_assert!(server.is_idle());
            prop_assert_eq!(server.completed(), 2);
        }
    }
}
