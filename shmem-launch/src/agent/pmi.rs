//! The agent and its two servers: what they want to be done, and whether somebody waits for PEs that will not
//! come.
//!
//! One speaks PMI with whoever does in the PEs. The other has nothing but the exchange of addresses of OpenSHMEM
//! programs, which must not count among the operations of an MPI library in the same processes: each library
//! counts its own, and nobody knows in which order the libraries are used.

use std::sync::Arc;

use shmem_node::address::ADDRESS_LEN;
use shmem_pmi::server::{ConfigError, Job, NodePlace, NodeServer, Output, TreeLink};

use super::Agent;
use super::event::{Action, Service};
use crate::exit::Cause;
use crate::frame::{Frame, OutBuf};
use crate::repeats::Notice;

/// Bytes of such a stream in one frame at most.
const PIECE: usize = 32 << 10;

/// How long a PE that has closed its PMI connection may take to end, before others are told not to wait
/// for it: how it ends says more.
const LOST_NS: u64 = 1_000_000_000;

impl Service {
    pub(super) const ALL: [Self; 2] = [Self::Pmi, Self::Addresses];

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

    pub(super) fn of(&self, service: Service) -> &NodeServer {
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
                Output::ToParent(bytes) => service.send(&bytes, &mut self.parent.out),
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
                } => self.parent.out.send(&Frame::Ask {
                    asker,
                    ticket,
                    question: &question.encode(),
                }),
                Output::Finalized { local } => self.pes.finalized(local as u32),
                Output::Lost { local } => {
                    let disconnected_at = self.life.clock(now).saturating_add(LOST_NS);
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
    pub(super) fn message_for_user(&mut self, local: u32, text: String, adds: bool, now: u64) {
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
