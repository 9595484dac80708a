//! The agent and its two servers: what they want to be done, and whether somebody waits for PEs that will not
//! come.
//!
//! One speaks PMI with whoever does in the PEs. The other has nothing but the exchange of addresses of OpenSHMEM
//! programs, which must not count among the operations of an MPI library in the same processes: each library
//! counts its own, and nobody knows in which order the libraries are used.

use std::sync::Arc;

use shmem_node::address::ADDRESS_LEN;
use shmem_pmi::server::{ConfigError, Job, NodePlace, NodeServer, Output, TreeLink};

use super::{Action, Agent};
use crate::child::Child;
use crate::exit::Cause;
use crate::fold::Notice;
use crate::frame::{Frame, OutBuf};

/// Bytes of such a stream in one frame at most.
const PIECE: usize = 32 << 10;

/// How long a PE that has closed its PMI connection may take to end, before others are told not to wait
/// for it: how it ends says more.
const LOST_NS: u64 = 1_000_000_000;

/// One of the two servers of an agent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Service {
    /// PMI.
    Pmi,
    /// The exchange of UD addresses.
    Addresses,
}

impl Service {
    const ALL: [Self; 2] = [Self::Pmi, Self::Addresses];

    /// Messages between servers are a byte stream of their own, so they are cut as suits the link: with pieces
    /// that fit a receiver's buffer, nobody on the way has to grow one for a whole result.
    fn send(self, bytes: &Arc<Vec<u8>>, out: &mut OutBuf) {
        for start in (0..bytes.len()).step_by(PIECE) {
            let piece = start..bytes.len().min(start + PIECE);
            match self {
                Self::Pmi => out.send_pmi(bytes, piece),
                Self::Addresses => out.send_addresses(bytes, piece),
            }
        }
    }
}

/// The servers of an agent, at the same place of the same job.
#[derive(Debug)]
pub struct Servers {
    /// That of PMI.
    pub(super) pmi: NodeServer,
    /// That of the exchange of addresses, which has no clients: PEs bring theirs without a connection.
    pub(super) addresses: NodeServer,
}

impl Servers {
    /// For the processes of `job` at `place`. What else is known of the job is PMI's.
    ///
    /// # Errors
    /// Job and place contradict each other.
    pub fn new(job: Job, place: NodePlace) -> Result<Self, ConfigError> {
        let exchange = Job {
            id: job.id.clone(),
            size: job.size,
            ..Job::default()
        };
        Ok(Self {
            addresses: NodeServer::new(exchange, place.clone())?,
            pmi: NodeServer::new(job, place)?,
        })
    }

    fn of(&self, service: Service) -> &NodeServer {
        match service {
            Service::Pmi => &self.pmi,
            Service::Addresses => &self.addresses,
        }
    }

    fn of_mut(&mut self, service: Service) -> &mut NodeServer {
        match service {
            Service::Pmi => &mut self.pmi,
            Service::Addresses => &mut self.addresses,
        }
    }
}

impl Agent {
    /// Tells when some have joined an operation that others, who have ended, cannot join any more:
    /// those who did would wait for ever. What a PE brought before its end has been read before.
    pub(super) fn look_for_absent(&mut self) {
        for service in Service::ALL {
            self.look_for_absent_at(service);
        }
    }

    fn look_for_absent_at(&mut self, service: Service) {
        // Whoever has left PMI may bring its address all the same.
        let left_counts = service == Service::Pmi;
        let has_left = |c: &Child| left_counts && c.disconnected;
        let children = self.children.iter();
        let below = children.fold(0, |n, c| {
            n + u32::from(c.exited) + u32::from(has_left(c)) + u32::from(c.is_lost())
        });
        let (ended, disconnected) = match (self.pes.absent(), left_counts) {
            (absent, true) => absent,
            ((ended, _), false) => (ended, 0),
        };
        let absent = [ended, disconnected, below];
        if self.stopping || self.absent_sent || absent == [0; 3] {
            return;
        }
        let server = self.servers.of(service);
        let Some(request) = server.oldest_incomplete() else {
            return;
        };
        // Looking costs a look at each PE, and those who are missing only get fewer: there is nothing
        // new to find before another one is, or another operation is the oldest.
        if self.looked[service as usize].replace((request, absent)) == Some((request, absent)) {
            return;
        }
        let missing = server.who_is_missing(request);
        let first = self.setup.first_rank;
        let is_absent = |rank: &u32| match left_counts {
            true => self.pes.is_absent(rank - first),
            false => self.pes.has_ended(rank - first),
        };
        let here = missing.local.iter().find(is_absent);
        let here = here.map(|rank| (rank, self.pes.has_ended(rank - first)));
        let below = || {
            let mut absent = missing
                .children
                .iter()
                .map(|(c, ranks)| (&self.children[*c], ranks))
                .filter(|(c, _)| c.exited || has_left(c) || c.is_lost());
            absent.find_map(|(c, ranks)| Some((ranks.first()?, c.exited || c.is_lost())))
        };
        if let Some((rank, ended)) = here.or_else(below) {
            self.absent_sent = true;
            let cause = match ended {
                true => Cause::Absent { rank },
                false => Cause::Disconnected { rank },
            };
            self.fault(0, cause);
        }
    }

    /// The same for group barriers.
    pub(super) fn look_for_absent_of_groups(&mut self) {
        let gone = |c: &Child| c.exited || c.disconnected;
        let below = self.children.iter().filter(|c| gone(c)).count() as u32;
        let (ended, disconnected) = self.pes.absent();
        let state = (
            self.servers.pmi.barrier_version(),
            [ended, disconnected, below],
        );
        let nobody = state.0 == 0 || state.1 == [0; 3];
        if self.stopping || self.absent_sent || nobody {
            return;
        }
        if self.looked_at_groups.replace(state) == Some(state) {
            return;
        }
        let (first, pes, children) = (self.setup.first_rank, &self.pes, &self.children);
        let is_absent = |rank| pes.is_absent(rank - first);
        let rank = self
            .servers
            .pmi
            .barrier_waits_for(is_absent, |c| gone(&children[c]));
        if let Some(rank) = rank {
            self.absent_sent = true;
            self.fault(0, Cause::Absent { rank });
        }
    }

    /// Says once when no PE of the subtree will join anything any more, though some live.
    pub(super) fn look_for_disconnected(&mut self) {
        let absent = |c: &Child| c.exited || c.disconnected || c.is_lost();
        let disconnected =
            self.pes.any_disconnected() || self.children.iter().any(|c| c.disconnected);
        if disconnected
            && !self.disconnected_sent
            && self.pes.all_absent()
            && self.children.iter().all(absent)
        {
            self.disconnected_sent = true;
            self.up.send(&Frame::Disconnected);
        }
    }

    /// A PE brings addresses of this node.
    pub(super) fn bring_addresses(&mut self, first: u32, bytes: &[u8]) {
        let server = &mut self.servers.addresses;
        if let Err(e) = server.bring(first as usize, ADDRESS_LEN, bytes) {
            let what = format!("addresses: {e}");
            self.fault(0, Cause::Node { what });
        }
    }

    pub(super) fn tree(&mut self, service: Service, from: TreeLink, bytes: &[u8]) {
        if let Err(e) = self.servers.of_mut(service).handle_tree(from, bytes) {
            let what = match service {
                Service::Pmi => format!("PMI: {e}"),
                Service::Addresses => format!("addresses: {e}"),
            };
            self.fault(0, Cause::Node { what });
        }
    }

    pub(super) fn serve(&mut self, now: u64) {
        for service in Service::ALL {
            self.serve_at(service, now);
        }
    }

    fn serve_at(&mut self, service: Service, now: u64) {
        while let Some(output) = self.servers.of_mut(service).poll_output() {
            match output {
                Output::ToClient { local, bytes } => {
                    self.actions.push_back(Action::ToPe(local as u32, bytes));
                }
                Output::ToParent(bytes) => service.send(&bytes, &mut self.up),
                Output::ToChild { child, bytes } => {
                    let c = &mut self.children[child];
                    if !c.is_closed() {
                        service.send(&bytes, &mut c.out);
                    }
                }
                Output::Publish {
                    request,
                    value_len,
                    offset,
                    values,
                    last,
                } => {
                    // PEs look for addresses, and the node has room for no more.
                    if service == Service::Addresses && value_len != ADDRESS_LEN {
                        let what = format!("addresses: other nodes have some of {value_len} bytes");
                        self.fault(0, Cause::Node { what });
                        continue;
                    }
                    self.actions.push_back(Action::Publish {
                        of: service,
                        request,
                        value_len,
                        offset,
                        values,
                        last,
                    });
                }
                Output::Abort {
                    local,
                    exit_code,
                    message,
                } => self.wants_end(local as u32, exit_code, message, now),
                Output::ProtocolError { local, text } => {
                    let (rank, pid) = self.identify(local as u32);
                    let what = format!("PE {rank} (pid {pid}) does not speak PMI: {text}");
                    self.fault(pid, Cause::Node { what });
                }
                Output::Ask {
                    asker,
                    ticket,
                    question,
                } => self.up.send(&Frame::Ask {
                    asker,
                    ticket,
                    question: &question.encode(),
                }),
                Output::Finalized { local } => self.pes.finalized(local as u32),
                Output::Lost { local } => {
                    let disconnected_at = self.clock(now).saturating_add(LOST_NS);
                    self.pes.pmi_closed(local as u32, disconnected_at);
                }
                _ => {}
            }
        }
    }

    /// A PE asks for the end of the job.
    pub(super) fn wants_end(&mut self, local: u32, code: i32, mut message: String, now: u64) {
        /// What Open MPI 4 and MPICH 5 have for `MPI_Abort`, which has no words.
        const SAYS_NOTHING: [&str; 2] = ["N/A", "abort"];
        if SAYS_NOTHING.contains(&message.trim_end()) {
            message.clear();
        }
        let (rank, pid) = self.identify(local);
        self.press(local, now);
        let cause = Cause::Abort {
            rank,
            code,
            message,
        };
        self.pe_fault(pid, cause, now);
    }

    /// A PE has words for the user.
    pub(super) fn has_words(&mut self, local: u32, text: String, adds: bool, now: u64) {
        let notice = Notice {
            rank: self.identify(local).0,
            node: self.setup.node,
            count: 1,
            adds,
            text,
        };
        self.notice(notice, now);
    }
}
