//! Jobs of 8192 PEs, in one node and in 512. What is checked are counts of messages and bytes,
//! which do not depend on the machine; how long it takes is printed for those who look.

use std::time::Instant;

use shmem_pmi::client::{Client, ClientConfig, Ticket, calls};
use shmem_pmi::process_mapping::ProcessMapping;
use shmem_pmi::server::{Job, NodePlace, NodeServer, Output, TreeLink};
use shmem_pmi::tree::{DegreePolicy, Tree};

const VALUE: usize = 48;

#[derive(Debug, Default, PartialEq, Eq)]
struct Counts {
    up: usize,
    up_bytes: usize,
    down: usize,
    down_bytes: usize,
    published: usize,
    to_clients: usize,
    done: usize,
}

/// All PEs start with one write: init, fullinit, iallgather, wait, put, fence. Then they finalize.
fn start(nodes: u32, per_node: u32) -> Counts {
    let size = nodes * per_node;
    let node_of_rank: Vec<u32> = (0..size).map(|rank| rank / per_node).collect();
    let tree = Tree::new(nodes, DegreePolicy::default().degree(nodes, per_node));
    let job = Job {
        id: "scale".into(),
        size,
        appnum: 0,
        process_mapping: ProcessMapping::from_nodes(&node_of_rank).to_string(),
        attributes: Vec::new(),
        extensions: true,
        ..Job::default()
    };
    let mut servers: Vec<NodeServer> = (0..nodes)
        .map(|node| {
            NodeServer::new(job.clone(), NodePlace::in_tree(&tree, node, &node_of_rank)).unwrap()
        })
        .collect();
    let mut clients: Vec<(Client, [Ticket<()>; 4])> = (0..size)
        .map(|rank| {
            let mut client = Client::new(ClientConfig {
                rank,
                job_id: None,
                extensions: true,
            });
            client.call(&calls::Initialise).unwrap();
            let value = [rank.to_le_bytes(); VALUE / 4].concat();
            let gather = client.next_request();
            client.call(&calls::Iallgather(&value)).unwrap();
            let key = format!("rank-{rank}");
            let done = [
                client.call(&calls::Wait(gather)).unwrap(),
                client.call(&calls::Put(&key, b"address")).unwrap(),
                client.call(&calls::Fence).unwrap(),
                client.call(&calls::Finalize).unwrap(),
            ];
            (client, done)
        })
        .collect();
    let begin = Instant::now();
    let mut counts = Counts::default();
    for rank in 0..size {
        let (node, local) = (rank / per_node, rank % per_node);
        let bytes = clients[rank as usize].0.take_output();
        servers[node as usize].handle_client_bytes(local as usize, &bytes);
    }
    // Children before parents, then parents before children: depth-first order, both ways.
    let mut down: Vec<Vec<(usize, std::sync::Arc<Vec<u8>>)>> = vec![Vec::new(); nodes as usize];
    for node in (0..nodes).rev().chain(0..nodes) {
        for (_, bytes) in std::mem::take(&mut down[node as usize]) {
            let server = &mut servers[node as usize];
            server.handle_tree(TreeLink::Parent, &bytes).unwrap();
        }
        while let Some(output) = servers[node as usize].poll_output() {
            match output {
                Output::ToClient { local, bytes } => {
                    counts.to_clients += 1;
                    let rank = node * per_node + local as u32;
                    clients[rank as usize].0.handle_bytes(&bytes).unwrap();
                }
                Output::ToParent(bytes) => {
                    counts.up += 1;
                    counts.up_bytes += bytes.len();
                    let parent = tree.parent(node).unwrap();
                    let child = tree.children(parent).position(|c| c == node).unwrap();
                    servers[parent as usize]
                        .handle_tree(TreeLink::Child(child), &bytes)
                        .unwrap();
                }
                Output::ToChild { child, bytes } => {
                    counts.down += 1;
                    counts.down_bytes += bytes.len();
                    let to = tree.children(node).nth(child).unwrap();
                    down[to as usize].push((child, bytes));
                }
                Output::Publish { values, .. } => {
                    counts.published += 1;
                    let ranks = values.chunks(VALUE).map(|value| &value[..4]);
                    assert!(ranks.eq((0..size).map(u32::to_le_bytes)));
                }
                Output::Finalized { .. } => {}
                other => panic!("{other:?}"),
            }
        }
    }
    for (client, done) in &mut clients {
        for ticket in done {
            assert_eq!(ticket.take(), Some(Ok(())));
        }
        counts.done += 1;
        assert_eq!(client.outstanding(), 0);
    }
    assert!(servers.iter().all(NodeServer::is_idle));
    println!(
        "{nodes} nodes x {per_node}: {:?}, {counts:?}",
        begin.elapsed()
    );
    counts
}

#[test]
fn one_node() {
    let counts = start(1, 8192);
    let expected = Counts {
        published: 1,
        to_clients: 8192,
        done: 8192,
        ..Counts::default()
    };
    assert_eq!(counts, expected, "all replies to a PE are one piece");
}

#[test]
fn many_nodes() {
    let counts = start(512, 16);
    assert_eq!(
        counts.up,
        2 * 511,
        "one message up for each node and operation"
    );
    assert_eq!(counts.down, 2 * 511);
    assert_eq!(counts.published, 512);
    assert_eq!(counts.done, 8192);
    // Values go up without keys; each crosses as many links as its node is deep.
    let depth = |node| Tree::new(512, 8).depth_of(node) as usize;
    let crossings: usize = (0..512).map(depth).sum::<usize>() * 16;
    let pair = |rank: usize| 4 + format!("rank-{rank}").len() + 7;
    let pairs: usize = (0..8192)
        .map(|rank| pair(rank) * depth(rank as u32 / 16))
        .sum();
    assert_eq!(counts.up_bytes, crossings * VALUE + pairs + 511 * (24 + 20));
    let all_pairs: usize = (0..8192).map(pair).sum();
    assert_eq!(
        counts.down_bytes,
        511 * (24 + 8192 * VALUE + 20 + all_pairs)
    );
}
