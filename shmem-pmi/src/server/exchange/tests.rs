//! Direct exchange, messages and collective primitives over a whole tree: what is answered when,
//! and what becomes of those who wait for somebody who is gone.

use crate::server::{CachePolicy, Job, NodePlace, NodeServer, Output, TreeLink};
use crate::tree::Tree;

/// A tree of servers, two PEs on each node, whose messages arrive at once.
struct Net {
    tree: Tree,
    servers: Vec<NodeServer>,
    /// Text that has come to each PE.
    heard: Vec<String>,
}

impl Net {
    fn new(nodes: u32, cache: CachePolicy) -> Self {
        Self::with(nodes, cache, false)
    }

    fn with(nodes: u32, cache: CachePolicy, respawn: bool) -> Self {
        let tree = Tree::new(nodes, 2);
        let node_of_rank: Vec<u32> = (0..2 * nodes).map(|rank| rank / 2).collect();
        let job = Job {
            id: "7.0".into(),
            size: 2 * nodes,
            extensions: true,
            cache,
            respawn,
            ..Job::default()
        };
        let server = |node| {
            let place = NodePlace::in_tree(&tree, node, &node_of_rank);
            NodeServer::new(job.clone(), place).unwrap()
        };
        let mut net = Self {
            tree,
            servers: (0..nodes).map(server).collect(),
            heard: vec![String::new(); 2 * nodes as usize],
        };
        for rank in 0..2 * nodes {
            net.bytes(rank, b"cmd=init pmi_version=2 pmi_subversion=0\n");
            net.say(rank, "cmd=fullinit;");
            net.heard(rank);
        }
        net
    }

    fn bytes(&mut self, rank: u32, bytes: &[u8]) {
        self.servers[rank as usize / 2].handle_client_bytes(rank as usize % 2, bytes);
        self.settle();
    }

    fn say(&mut self, rank: u32, body: &str) {
        self.bytes(rank, format!("{:<6}{body}", body.len()).as_bytes());
    }

    fn close(&mut self, rank: u32) {
        self.servers[rank as usize / 2].client_closed(rank as usize % 2);
        self.settle();
    }

    /// What has come to a PE since the last time.
    fn heard(&mut self, rank: u32) -> String {
        std::mem::take(&mut self.heard[rank as usize])
    }

    fn settle(&mut self) {
        loop {
            let mut quiet = true;
            for node in 0..self.servers.len() {
                while let Some(output) = self.servers[node].poll_output() {
                    quiet = false;
                    self.carry(node, output);
                }
            }
            if quiet {
                return;
            }
        }
    }

    fn carry(&mut self, node: usize, output: Output) {
        match output {
            Output::ToClient { local, bytes } => {
                self.heard[2 * node + local] += std::str::from_utf8(&bytes).unwrap();
            }
            Output::ToParent(bytes) => {
                let parent = self.tree.parent(node as u32).unwrap();
                let child = self.tree.children(parent).position(|c| c == node as u32);
                let link = TreeLink::Child(child.unwrap());
                let parent = &mut self.servers[parent as usize];
                parent.handle_tree(link, &bytes).unwrap();
            }
            Output::ToChild { child, bytes } => {
                let child = self.tree.children(node as u32).nth(child).unwrap();
                let child = &mut self.servers[child as usize];
                child.handle_tree(TreeLink::Parent, &bytes).unwrap();
            }
            _ => {}
        }
    }

    fn fence(&mut self) {
        for rank in 0..self.heard.len() as u32 {
            self.say(rank, "cmd=kvs-fence;");
        }
        for rank in 0..self.heard.len() as u32 {
            assert!(self.heard(rank).contains("kvs-fence-response;rc=0;"));
        }
    }
}

const ALL: [CachePolicy; 4] = [
    CachePolicy::Hcs,
    CachePolicy::Hcma,
    CachePolicy::Hcmab,
    CachePolicy::HcmabLru { bytes: 0 },
];

#[test]
fn a_direct_get_is_answered_when_the_key_is_put() {
    for cache in ALL {
        let mut net = Net::new(7, cache);
        // From another subtree, from the root's node, from the same node, and twice.
        for rank in [13, 1, 3, 13] {
            net.say(rank, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
            assert_eq!(net.heard(rank), "", "{cache}");
        }
        net.say(4, "cmd=kvs-put;key=k;value=other;");
        assert_eq!(net.heard(13), "", "another PE put it");
        net.say(2, "cmd=kvs-put;key=k;value=mine;");
        assert_eq!(net.heard(13).matches("found=TRUE;value=mine;").count(), 2);
        for rank in [1, 3] {
            assert!(net.heard(rank).contains("found=TRUE;value=mine;"));
        }
        // What has been put is there at once, and no fence has shown it.
        net.say(12, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
        assert!(net.heard(12).contains("value=mine;"));
        net.say(12, "cmd=kvs-get;key=k;");
        assert!(net.heard(12).contains("found=FALSE;"));
        assert!(net.servers.iter().all(NodeServer::is_idle));
    }
}

#[test]
fn a_direct_get_finds_what_is_on_its_way_and_what_fences_showed() {
    for cache in ALL {
        let mut net = Net::new(3, cache);
        net.say(2, "cmd=kvs-put;key=k;value=1;");
        net.say(2, "cmd=ifence;");
        net.say(5, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
        assert!(net.heard(5).contains("value=1;"), "{cache}");
        for rank in [0, 1, 3, 4, 5] {
            net.say(rank, "cmd=ifence;");
        }
        for rank in 0..6 {
            net.heard(rank);
        }
        net.fence();
        net.say(2, "cmd=finalize;");
        net.close(2);
        // The agent of PE 2 may have forgotten it: then it asks above.
        net.say(5, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
        assert!(net.heard(5).contains("value=1;"), "{cache}");
    }
}

#[test]
fn who_waits_for_a_pe_that_ends_is_told() {
    for cache in ALL {
        let mut net = Net::new(7, cache);
        net.say(13, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
        net.say(13, "cmd=nla-recv;from=2;");
        net.say(12, "cmd=kvs-get;srcid=3;key=k;direct=TRUE;");
        net.say(11, "cmd=kvs-get;srcid=4;key=k;direct=TRUE;");
        net.close(2);
        let text = net.heard(13);
        assert!(text.contains("rc=-1;errmsg=PE 2 has finalized or ended without putting `k`"));
        assert!(text.contains("without sending to PE 13"), "{text}");
        net.say(3, "cmd=finalize;");
        assert!(net.heard(12).contains("errmsg=PE 3 has"), "{cache}");
        net.bytes(4, b"garbage");
        assert!(net.heard(11).contains("errmsg=PE 4 has"), "{cache}");
        // Asked afterwards; and of ranks that do not exist.
        net.say(10, "cmd=kvs-get;srcid=2;key=x;direct=TRUE;");
        assert!(net.heard(10).contains("without putting `x`"), "{cache}");
        net.say(10, "cmd=kvs-get;srcid=14;key=x;direct=TRUE;");
        assert!(net.heard(10).contains("rank 14 is none of the 14"));
        net.say(10, "cmd=kvs-get;key=x;direct=TRUE;");
        assert!(net.heard(10).contains("rc=3;errmsg=a direct get needs"));
        net.say(10, "cmd=nla-recv;from=14;");
        assert!(net.heard(10).contains("rank 14 is none of the 14"));
        net.say(10, "cmd=nla-send;to=14;value=00;");
        assert!(net.heard(10).contains("rank 14 is none of the 14"));
        // Who waits and ends itself leaves nothing behind at its own agent.
        net.say(9, "cmd=kvs-get;srcid=0;key=x;direct=TRUE;");
        net.close(9);
        net.say(0, "cmd=kvs-put;key=x;value=1;");
        assert!(net.servers.iter().all(NodeServer::is_idle), "{cache}");
    }
}

#[test]
fn who_waits_for_a_pe_that_is_started_again_gets_what_it_gives_then() {
    for cache in ALL {
        let mut net = Net::with(7, cache, true);
        net.say(13, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
        net.say(12, "cmd=nla-recv;from=2;");
        net.close(2);
        // While nobody is there.
        net.say(11, "cmd=kvs-get;srcid=2;key=k;direct=TRUE;");
        for rank in [11, 12, 13] {
            assert_eq!(net.heard(rank), "", "{cache}");
        }
        net.servers[1].restart(0);
        net.bytes(2, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        net.say(2, "cmd=fullinit;");
        net.say(2, "cmd=kvs-put;key=k;value=late;");
        net.say(2, "cmd=nla-send;to=12;value=07;");
        assert!(net.heard(11).contains("value=late;"), "{cache}");
        assert!(net.heard(12).contains("rc=0;value=07;"), "{cache}");
        assert!(net.heard(13).contains("value=late;"), "{cache}");
        // One that does not come back, and one that needs not.
        net.say(13, "cmd=kvs-get;srcid=2;key=x;direct=TRUE;");
        net.close(2);
        assert_eq!(net.heard(13), "", "{cache}");
        net.servers[1].will_not_return(0);
        net.settle();
        assert!(net.heard(13).contains("without putting `x`"), "{cache}");
        net.say(13, "cmd=kvs-get;srcid=3;key=x;direct=TRUE;");
        net.say(3, "cmd=finalize;");
        assert!(net.heard(13).contains("without putting `x`"), "{cache}");
        net.close(3);
        net.say(13, "cmd=kvs-get;srcid=3;key=x;direct=TRUE;");
        assert!(net.heard(13).contains("without putting `x`"), "{cache}");
    }
}

#[test]
fn messages_keep_their_order_and_outlive_their_sender() {
    let mut net = Net::new(3, CachePolicy::default());
    for value in ["01", "02", "03"] {
        net.say(4, &format!("cmd=nla-send;to=3;value={value};"));
    }
    net.say(4, "cmd=nla-send;to=2;");
    net.say(4, "cmd=finalize;");
    net.close(4);
    for value in ["01", "02", "03"] {
        net.say(3, "cmd=nla-recv;from=4;");
        let expected = format!("cmd=nla-recv-response;rc=0;value={value};");
        assert!(net.heard(3).ends_with(&expected));
    }
    net.say(3, "cmd=nla-recv;from=4;");
    assert!(net.heard(3).contains("without sending to PE 3"));
    net.say(2, "cmd=nla-recv;from=4;");
    assert!(net.heard(2).ends_with("cmd=nla-recv-response;rc=0;"));
}

#[test]
fn what_nobody_receives_is_bounded() {
    let mut net = Net::new(1, CachePolicy::default());
    let message = format!("cmd=nla-send;to=1;value={};", "00".repeat(16 << 10));
    for _ in 0..(16 << 20) / ((16 << 10) + 64) {
        net.say(0, &message);
        assert!(net.heard(0).ends_with("rc=0;"));
    }
    net.say(0, &message);
    assert!(net.heard(0).contains("nobody has received"));
    net.say(1, "cmd=nla-recv;from=0;");
    net.say(0, &message);
    assert!(net.heard(0).ends_with("rc=0;"));
    let message = format!("cmd=nla-send;to=1;value={};", "00".repeat((16 << 10) + 1));
    net.say(0, &message);
    assert!(net.heard(0).contains("rc=3;"));
}

#[test]
fn mismatched_primitives_fail_on_all_and_name_the_pe() {
    let wrong = |calls: [&str; 4], reason: &str| {
        let mut net = Net::new(2, CachePolicy::default());
        for (rank, call) in (0..).zip(calls) {
            net.say(rank, call);
        }
        for (rank, call) in (0..).zip(calls) {
            let text = net.heard(rank);
            assert!(text.contains(reason), "{call}: {text}");
        }
        // The next operation is not affected.
        net.fence();
    };
    let gather = "cmd=nla;op=gather;root=0;";
    let expected = "PE 2 called NLA gather with root 1, but PE 3 called NLA gather with root 0";
    let other_root = "cmd=nla;op=gather;root=1;";
    let calls = [gather, gather, other_root, gather];
    // Whoever joins first at its agent is the one with whom others are compared.
    let mut net = Net::new(2, CachePolicy::default());
    for rank in [3, 2, 1, 0] {
        net.say(rank, calls[rank as usize]);
    }
    for rank in 0..4 {
        let text = net.heard(rank);
        assert!(text.contains(expected), "{text}");
    }
    wrong(
        [gather, gather, gather, "cmd=allgather;value=00;"],
        "PE 3 called allgather, but PE 2 called NLA gather with root 0",
    );
    wrong(
        [gather, "cmd=kvs-fence;", gather, gather],
        "PE 1 called fence, but PE 0 called NLA gather with root 0",
    );
    let beyond = "cmd=nla;op=broadcast;root=4;";
    wrong([beyond; 4], "PE 0: NLA broadcast: root 4 is none of the 4");
    let scatter = "cmd=nla;op=scatter;root=2;";
    wrong(
        [scatter; 4],
        "PE 2: NLA scatter: not one byte string for each of the 4 PEs",
    );
    let alltoall = format!("cmd=nla;op=alltoall;value={};", "00000000".repeat(4));
    let short = format!("cmd=nla;op=alltoall;value={};", "00000000".repeat(3));
    wrong(
        [&alltoall, &alltoall, &alltoall, &short],
        "PE 3: NLA alltoall: not one byte string",
    );
    wrong(
        [gather, gather, gather, "cmd=nla;op=reduce;"],
        "field `op` of command `nla` is `reduce`",
    );
}

#[test]
fn each_child_gets_its_part_only() {
    let mut net = Net::new(3, CachePolicy::default());
    let items = (0..6).map(|rank| format!("02000000{rank:02x}{rank:02x}"));
    let scatter = format!("cmd=nla;op=scatter;value={};", items.collect::<String>());
    for rank in 1..6 {
        net.say(rank, "cmd=nla;op=scatter;value=ff;");
    }
    net.servers[0].handle_client_bytes(0, format!("{:<6}{scatter}", scatter.len()).as_bytes());
    let mut lengths = Vec::new();
    while let Some(output) = net.servers[0].poll_output() {
        if let Output::ToChild { bytes, .. } = &output {
            lengths.push(bytes.len());
        }
        net.carry(0, output);
    }
    let two_records = crate::wire::tree::DATA_RECORDS + 2 * (8 + 2);
    assert_eq!(lengths, [two_records; 2]);
    net.settle();
    for rank in 0..6 {
        let expected = format!("value={rank:02x}{rank:02x};more=FALSE;");
        assert!(net.heard(rank).ends_with(&expected));
    }
}

#[test]
fn caches_count_their_bytes_and_keep_their_limit() {
    let bytes = |cache| {
        let mut net = Net::new(7, cache);
        for round in 0..20 {
            for rank in 0..14 {
                net.say(
                    rank,
                    &format!("cmd=kvs-put;key=k{round:02}-{rank:02};value=0123456789;"),
                );
                net.heard(rank);
            }
            net.fence();
        }
        net.servers
            .iter()
            .map(NodeServer::cache_bytes)
            .collect::<Vec<_>>()
    };
    let all = bytes(CachePolicy::Hcmab);
    assert!(all.iter().all(|&at| at == all[0] && at > 20 * 14 * 14));
    let limited = bytes(CachePolicy::HcmabLru { bytes: 4000 });
    assert_eq!(limited[0], all[0], "the root keeps all");
    assert!(
        limited[1..].iter().all(|&at| at <= 4000 && at > 3000),
        "{limited:?}"
    );
    for cache in [CachePolicy::Hcs, CachePolicy::Hcma] {
        let own = bytes(cache);
        assert_eq!(own[0], all[0]);
        // The subtree of node 1 has three of seven nodes, that of node 2 one.
        assert_eq!((own[1], own[2]), (all[0] * 3 / 7, all[0] / 7), "{cache}");
    }
}
