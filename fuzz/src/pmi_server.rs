//! PMI servers of two nodes, on which one process each behaves and one does whatever the input
//! says: sends garbage or half messages, joins operations or not, vanishes.
//!
//! Whatever that is, the others are served, at once and rightly, and the agents understand each
//! other.

use std::borrow::Cow;

use shmem_pmi::client::calls::{
    Data, Get, GetFrom, Iallgather, Ifence, Initialise, JobAttr, JobId, NodeAttr, Put, PutNodeAttr,
    ReceiveFrom, SendTo,
};
use shmem_pmi::client::{Call, Client, ClientConfig};
use shmem_pmi::question::Answer;
use shmem_pmi::server::{CachePolicy, Job, NodePlace, NodeServer, Output, TreeLink};
use shmem_pmi::tree::Tree;
use shmem_pmi::wire::data::Operation;
use shmem_pmi::wire::v2::Request;
use shmem_pmi::wire::{Command, InitLine};

use crate::Choices;

/// Most steps of one input.
const MAX_STEPS: usize = 200;
/// Index on its node of the process that misbehaves.
const BAD: usize = 0;
/// Index of the one that behaves.
const GOOD: usize = 1;

const JOB_ID: &str = "7.0";

/// Things to ask for.
const ASKS: u64 = 7;

/// What a step does.
const STEPS: u64 = 7;
const RAW: u8 = 0;
const WHOLE: u8 = 1;
const HALF: u8 = 2;
const VANISH: u8 = 3;
const ASK: u8 = 4;
const JOIN: u8 = 5;
const RESTART: u8 = 6;

struct World {
    servers: Vec<NodeServer>,
    /// The one that behaves, on each node.
    good: Vec<Client>,
    /// Bytes of the result that is being published on each node: all, and so far.
    published: [Option<(u64, usize)>; 2],
    asked: u32,
}

impl World {
    fn new(cache: CachePolicy) -> Self {
        let tree = Tree::new(2, 2);
        let node_of_rank = [0, 0, 1, 1];
        let server = |node| {
            let job = Job {
                id: JOB_ID.into(),
                size: 4,
                appnum: 0,
                process_mapping: "(vector,(0,2,2))".into(),
                attributes: Vec::new(),
                extensions: true,
                cache,
                ..Job::default()
            };
            let place = NodePlace::in_tree(&tree, node, &node_of_rank);
            NodeServer::new(job, place).expect("a job of two nodes")
        };
        let client = |node: u32| {
            Client::new(ClientConfig {
                rank: 2 * node + GOOD as u32,
                job_id: None,
                extensions: true,
            })
        };
        let mut world = Self {
            servers: vec![server(0), server(1)],
            good: vec![client(0), client(1)],
            published: [None, None],
            asked: 0,
        };
        for node in 0..2 {
            assert_eq!(world.answer(node, &Initialise).size, 4);
        }
        world
    }

    /// Moves bytes until nobody has any.
    fn settle(&mut self) {
        let mut any = true;
        while std::mem::take(&mut any) {
            for node in 0..2 {
                let bytes = self.good[node].take_output();
                if !bytes.is_empty() {
                    any = true;
                    self.servers[node].handle_client_bytes(GOOD, &bytes);
                }
                while let Some(output) = self.servers[node].poll_output() {
                    any = true;
                    self.act(node, output);
                }
            }
        }
    }

    fn act(&mut self, node: usize, output: Output) {
        match output {
            Output::ToClient { local: GOOD, bytes } => {
                let client = &mut self.good[node];
                client
                    .handle_bytes(&bytes)
                    .expect("replies that make sense");
            }
            Output::ToParent(bytes) => {
                assert_eq!(node, 1);
                let heard = self.servers[0].handle_tree(TreeLink::Child(0), &bytes);
                heard.expect("agents that understand each other");
            }
            Output::ToChild { child, bytes } => {
                assert_eq!((node, child), (0, 0));
                let heard = self.servers[1].handle_tree(TreeLink::Parent, &bytes);
                heard.expect("agents that understand each other");
            }
            Output::Publish {
                request,
                value_len,
                offset,
                values,
                last,
            } => {
                let due = self.published[node].take().unwrap_or((request, 0));
                assert_eq!((request, offset), due, "a piece out of its turn");
                let end = offset + values.len();
                assert_eq!(last, end == 4 * value_len);
                self.published[node] = (!last).then_some((request, end));
            }
            Output::Ask { asker, ticket, .. } => {
                let refused = Answer::Refused {
                    rc: 1,
                    reason: "no".into(),
                };
                self.servers[node].handle_answer(asker, ticket, refused);
            }
            Output::ToClient { .. } => {}
            Output::Abort { local, .. }
            | Output::Finalized { local }
            | Output::Lost { local }
            | Output::ProtocolError { local, .. } => assert_eq!(local, BAD),
            // What servers learn to say later needs nothing from here.
            _ => {}
        }
    }

    /// The reply to a call, which must be there as soon as the bytes have moved.
    fn answer<C: Call>(&mut self, node: usize, call: &C) -> C::Reply {
        let ticket = self.good[node].call(call).expect("a call that can be made");
        self.settle();
        let outcome = ticket.take().expect("an answer at once");
        outcome.expect("nothing to refuse")
    }

    /// The one that behaves asks for something, and must get it.
    fn ask(&mut self, node: usize, what: u64) {
        self.asked += 1;
        let (key, other) = (&format!("good-{}", self.asked)[..], 1 - node);
        let rank = 2 * node as u32 + GOOD as u32;
        match what {
            0 => assert_eq!(self.answer(node, &JobId), JOB_ID),
            1 => assert_eq!(self.answer(node, &JobAttr("none")), None),
            2 => self.answer(node, &Put(key, b"value")),
            3 => assert_eq!(self.answer(node, &Get(key)), None),
            4 => {
                self.answer(node, &Put(key, b"mine"));
                let from = GetFrom(rank, key);
                assert_eq!(self.answer(other, &from), b"mine");
            }
            5 => {
                let (to, message) = (3 - 2 * node as u32, key.as_bytes());
                self.answer(node, &SendTo(to, message));
                assert_eq!(self.answer(other, &ReceiveFrom(rank)), message);
            }
            _ => {
                self.answer(node, &PutNodeAttr(key, b"there"));
                let attr = NodeAttr(key, false);
                assert_eq!(self.answer(node, &attr), Some(b"there".to_vec()));
            }
        }
    }

    /// The one that behaves joins an operation, whose end depends on others.
    fn join(&mut self, node: usize, what: u64) {
        let request = self.good[node].next_request();
        let started = match what {
            0 => self.answer(node, &Ifence),
            1 => self.answer(node, &Iallgather(b"abcd")),
            2 => {
                let joined = self.good[node].call(&Data(Operation::Allgather, 0, b"abc"));
                joined.expect("a call that can be made");
                return self.settle();
            }
            _ => self.answer(node, &Iallgather(b"ab")),
        };
        assert_eq!(started, request);
    }
}

/// A message that makes sense at some time.
fn message(what: u64) -> Vec<u8> {
    let key = || Cow::Borrowed(&b"key"[..]);
    let value = || Cow::Borrowed(&b"value"[..]);
    let mut bytes = Vec::new();
    let command = match what {
        0 => {
            InitLine::V2.encode(&mut bytes);
            return bytes;
        }
        1 => Command::FullInit {
            job_id: None,
            rank: None,
            threaded: true,
        },
        2 => Command::JobGetId,
        3 => Command::KvsFence { group: None },
        4 => Command::Ifence,
        5 => Command::Iallgather {
            value: b"wxyz"[..].into(),
        },
        6 => Command::Allgather {
            value: b"yz"[..].into(),
        },
        7 => Command::Wait { request: 0 },
        8 => Command::Wait { request: 1 << 40 },
        9 => Command::KvsPut {
            job_id: None,
            key: key(),
            value: value(),
        },
        10 => Command::KvsGet {
            job_id: None,
            source: -1,
            direct: false,
            key: key(),
        },
        11 => Command::NodeAttr {
            key: key(),
            wait: true,
        },
        12 => Command::PutNodeAttr {
            key: key(),
            value: value(),
        },
        13 => Command::Finalize,
        14 => Command::Abort {
            is_world: true,
            exit_code: None,
            message: value(),
        },
        n if n < FIRST_LINE => {
            let body = BODIES[(n - FIRST_BODY) as usize];
            return format!("{:<6}{body}", body.len()).into_bytes();
        }
        n => return LINES[(n - FIRST_LINE) as usize].as_bytes().to_vec(),
    };
    let request = Request {
        thread_id: Some(b"1"[..].into()),
        command,
    };
    request.encode(&mut bytes).expect("a short message");
    bytes
}

/// More of PMI-2, as bodies.
const BODIES: [&str; 10] = [
    "cmd=ring;ring-count=1;ring-left=a;ring-right=b;",
    "cmd=name-publish;name=s;port=p;infokeycount=0;",
    "cmd=name-lookup;name=s;infokeycount=0;",
    "cmd=spawn;ncmds=1;preputcount=0;subcmd=/p;maxprocs=1;argc=0;infokeycount=0;",
    "cmd=kvs-get;srcid=1;direct=TRUE;key=good-1;",
    "cmd=kvs-get;srcid=99;direct=TRUE;key=x;",
    "cmd=nla;op=allgather;root=0;value=6162;",
    "cmd=nla;op=allgather;value=6162;more=TRUE;",
    "cmd=nla-send;to=1;value=6162;",
    "cmd=nla-recv;from=1;",
];
/// PMI-1.
const LINES: [&str; 7] = [
    "cmd=init pmi_version=1 pmi_subversion=1\n",
    "cmd=barrier_in\n",
    "cmd=put kvsname=7.0 key=a value=b\n",
    "cmd=get kvsname=7.0 key=a\n",
    "cmd=publish_name service=s port=p\n",
    "cmd=finalize\n",
    "mcmd=spawn\nnprocs=1\nexecname=/p\ntotspawns=1\nspawnssofar=1\nargcnt=0\npreput_num=0\n\
     info_num=0\nendcmd\n",
];
const FIRST_BODY: u64 = 15;
const FIRST_LINE: u64 = FIRST_BODY + BODIES.len() as u64;
/// Kinds of [`message`].
const MESSAGES: u64 = FIRST_LINE + LINES.len() as u64;

/// Two nodes with one process each that does what the input says.
///
/// # Panics
/// If another process is not served because of it.
pub fn pmi_server(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut world = World::new(match choices.below(4) {
        0 => CachePolicy::Hcs,
        1 => CachePolicy::Hcma,
        2 => CachePolicy::Hcmab,
        _ => CachePolicy::HcmabLru { bytes: 200 },
    });
    for _ in 0..MAX_STEPS {
        if !choices.any() {
            break;
        }
        let node = choices.below(2) as usize;
        let server = &mut world.servers[node];
        match choices.below(STEPS) as u8 {
            RAW => {
                let len = choices.below(256) as usize;
                server.handle_client_bytes(BAD, choices.bytes(len));
            }
            WHOLE => server.handle_client_bytes(BAD, &message(choices.below(MESSAGES))),
            HALF => {
                let bytes = message(choices.below(MESSAGES));
                server.handle_client_bytes(BAD, &bytes[..bytes.len() / 2]);
            }
            VANISH => server.client_closed(BAD),
            RESTART => server.restart(BAD),
            ASK => world.ask(node, choices.below(ASKS)),
            _ => world.join(node, choices.below(4)),
        }
        world.settle();
    }
    for node in 0..2 {
        for what in 0..ASKS {
            world.ask(node, what);
        }
    }
}

/// Jobs in which one process of each node says hello, joins, sends garbage, vanishes.
#[must_use]
pub fn pmi_server_seeds() -> Vec<Vec<u8>> {
    let hello = |node: u8| [node, WHOLE, 0, node, WHOLE, 1];
    let both = [hello(0), hello(1)].concat();
    let mut seeds = Vec::new();
    // A fence that all join, and one that nobody else joins.
    for what in [3, 4, 5, 6] {
        let mut seed = both.clone();
        let joined = if what < 5 { 0 } else { what - 4 };
        seed.extend_from_slice(&[0, WHOLE, what, 1, WHOLE, what]);
        seed.extend_from_slice(&[0, JOIN, joined, 1, JOIN, joined, 0, WHOLE, 7, 1, WHOLE, 8]);
        seed.extend_from_slice(&[0, ASK, 4, 1, ASK, 3, 1, VANISH, 0, WHOLE, 13]);
        seeds.push(seed);
    }
    for what in 9..FIRST_LINE as u8 {
        let mut seed = both.clone();
        seed.extend_from_slice(&[0, WHOLE, what, 1, HALF, what, 1, WHOLE, what, 0, ASK, 0]);
        seeds.push(seed);
    }
    for what in FIRST_LINE as u8..MESSAGES as u8 {
        let mut seed = vec![0, WHOLE, FIRST_LINE as u8, 1, WHOLE, FIRST_LINE as u8];
        seed.extend_from_slice(&[0, WHOLE, what, 1, WHOLE, what, 0, JOIN, 0, 1, JOIN, 0]);
        seed.extend_from_slice(&[1, HALF, what, 0, ASK, 2, 1, VANISH]);
        // Another process goes on.
        seed.extend_from_slice(&[
            0, RESTART, 1, RESTART, 1, WHOLE, 0, 1, WHOLE, 1, 1, WHOLE, 3,
        ]);
        seeds.push(seed);
    }
    let speech = [message(0), message(1), message(9), message(3)].concat();
    let len = speech.len().min(255) as u8;
    seeds.push(
        [
            &[0, RAW, len][..],
            &speech[..usize::from(len)],
            &[0, JOIN, 0],
        ]
        .concat(),
    );
    let one = b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_maxes\ncmd=barrier_in\n";
    seeds.push([&[1, RAW, one.len() as u8][..], one, &[1, ASK, 1]].concat());
    // The first byte says which cache.
    for (cache, seed) in (0..4).cycle().zip(&mut seeds) {
        seed.insert(0, cache);
    }
    seeds
}
