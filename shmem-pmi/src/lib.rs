//! PMI, the protocol by which the processing elements (PEs) of a parallel job learn from their
//! process manager who they are and exchange what they need to find each other.
//!
//! A program that wants a PMI server, whichever has started it, begins at [`process::Process`].
//!
//! The crate holds both ends of the protocol, and the tree in which node launch agents (NLAs) join the
//! PEs of many nodes:
//!
//! ```text
//!            PE  Client ==PMI-1 or PMI-2==> NodeServer (node 0, root)
//!            PE  Client ==PMI-1 or PMI-2==>   |     ^
//!                                      agent messages: one up, one down
//!                                             v     |
//!            PE  Client ==PMI-1 or PMI-2==> NodeServer (node 1) ...
//! ```
//!
//! # Map
//!
//! * [`process`]: the facade for programs, over any PMI server or none.
//! * [`wire`]: codecs. [`wire::Command`] and [`wire::Reply`] are the messages of PMI-1, as MPICH's
//!   library speaks it ([`wire::v1`]), and of PMI-2, as MPICH's and Slurm's libraries speak it
//!   ([`wire::v2`]), plus our extension commands; [`wire::tree`] the messages between agents.
//! * [`client`]: the PE's end, of PMI-1 and of PMI-2. [`io`] drives it over a socket, for several
//!   threads.
//! * [`server`]: the agent's end, one server for each node.
//! * [`id`]: jobs without a launcher, whose server is a thread of one of their processes.
//! * [`tree`]: the k-ary tree of nodes and the choice of its degree.
//! * [`process_mapping`]: the attribute that says which PE runs where.
//! * [`question`]: what agents ask each other on behalf of a PE: keys, names, new jobs.
//! * [`papers`]: what reproduces a paper, for those who select it.
//! * [`ranks`]: sets of ranks.
//!
//! # Terms
//!
//! * *Put*, *fence*, *get*: a PE puts key-value pairs; a fence, called by all PEs, makes them
//!   visible to all; then anybody gets them. The pairs live in the job's key-value space (KVS).
//! * *Allgather*: each PE contributes one value of the same length and all see the array of them,
//!   ordered by rank. It replaces put, fence and N gets, and needs no keys. The array is not sent
//!   to the PEs: each agent publishes it once, in memory that its PEs share.
//! * *Non-blocking* (`iallgather`, `ifence`): the PE starts the operation, goes on, and waits for
//!   it when it needs the result. The agents alone move it forward.
//! * *Request number*: counts the collective operations of a PE from 0. All PEs call them in the
//!   same order, so the same operation has the same number everywhere.
//! * *Local*: index of a PE on its node, as opposed to its *rank* in the job.
//!
//! # Invariants
//!
//! * Everything but [`io`], [`process`] and the drivers in [`id`] is pure: bytes and calls in, bytes and events out; no socket, thread,
//!   clock or randomness. The same code runs in the launcher, in simulation and in scale models.
//! * Operations complete in the order of their numbers, at every agent.
//! * The result of an allgather is published before anybody is told that it is complete.
//! * A client can hurt only itself: bytes that are no PMI end its session and nothing else. If its
//!   contribution does not fit those of the others, the operation fails on all PEs alike, and the
//!   reason names it.
//! * No decoder allocates what was merely announced; all lengths are bounded.
//!
//! # Example
//!
//! One PE and its server, with bytes passed by hand:
//!
//! ```
//! use shmem_pmi::client::calls::{Iallgather, Initialise, Wait};
//! use shmem_pmi::client::{Client, ClientConfig};
//! use shmem_pmi::process_mapping::ProcessMapping;
//! use shmem_pmi::server::{Job, NodePlace, NodeServer, Output};
//! use shmem_pmi::tree::Tree;
//!
//! let job = Job {
//!     id: "42.0".into(),
//!     size: 1,
//!     appnum: 0,
//!     process_mapping: ProcessMapping::from_nodes(&[0]).to_string(),
//!     attributes: Vec::new(),
//!     extensions: true,
//!     ..Job::default()
//! };
//! let mut server = NodeServer::new(job, NodePlace::in_tree(&Tree::new(1, 2), 0, &[0]))?;
//! let mut client = Client::new(ClientConfig { rank: 0, job_id: None, extensions: true });
//!
//! client.call(&Initialise)?;
//! let address = client.next_request();
//! client.call(&Iallgather(b"my address"))?;
//! let done = client.call(&Wait(address))?;
//! server.handle_client_bytes(0, &client.take_output());
//!
//! let Some(Output::Publish { values, .. }) = server.poll_output() else { panic!() };
//! assert_eq!(values[..], *b"my address");
//! let Some(Output::ToClient { bytes, .. }) = server.poll_output() else { panic!() };
//! client.handle_bytes(&bytes)?;
//! assert_eq!(done.take(), Some(Ok(())));
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#![forbid(unsafe_code)]

pub mod client;
pub mod id;
pub mod io;
pub mod papers;
pub mod process;
pub mod process_mapping;
pub mod question;
pub mod ranks;
pub mod server;
pub mod tree;
pub mod wire;
