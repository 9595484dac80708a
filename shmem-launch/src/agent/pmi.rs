//! The agent and its PMI server: what the server wants to be done, and whether somebody waits for PEs
//! that will not come.

use std::sync::Arc;

use shmem_pmi::server::{Output, TreeLink};

use super::{Action, Agent};
use crate::child::Child;
use crate::exit::Cause;
use crate::fold::Notice;
use crate::frame::{Frame, OutBuf};

/// Bytes of PMI's stream in one frame at most.
const PMI_PIECE: usize = 32 << 10;

/// How long a PE that has closed its PMI connection may take to end, before others are told not to wait
/// for it: how it ends says more.
const LOST_NS: u64 = 1_000_000_000;

/// PMI's messages are a byte stream of their own, so they are cut as suits the link: with pieces that
/// fit a receiver's buffer, nobody on the way has to grow one for a whole result.
fn send_pmi(bytes: &Arc<Vec<u8>>, out: &mut OutBuf) {
    for start in (0..bytes.len()).step_by(PMI_PIECE) {
        out.send_pmi(bytes, start..bytes.len().min(start + PMI_PIECE));
    }
}

impl Agent {
    /// Tells when some have joined an operation that others, who have ended, cannot join any more:
    /// those who did would wait for ever. What a PE brought before its end has been read before.
    pub(super) fn look_for_absent(&mut self) {
        let children = self.children.iter();
        let below = children.fold(0, |n, c| {
            n + u32::from(c.exited) + u32::from(c.disconnected) + u32::from(c.is_lost())
        });
        let (ended, disconnected) = self.pes.absent();
        let absent = [ended, disconnected, below];
        if self.stopping || self.absent_sent || absent == [0; 3] {
            return;
        }
        let Some(request) = self.pmi.oldest_incomplete() else {
            return;
        };
        // Looking costs a look at each PE, and those who are missing only get fewer: there is nothing
        // new to find before another one is, or another operation is the oldest.
        if self.looked.replace((request, absent)) == Some((request, absent)) {
            return;
        }
        let missing = self.pmi.who_is_missing(request);
        let first = self.setup.first_rank;
        let here = missing.local.iter().find(|r| self.pes.is_absent(r - first));
        let here = here.map(|rank| (rank, self.pes.has_ended(rank - first)));
        let below = || {
            let mut absent = missing
                .children
                .iter()
                .map(|(c, ranks)| (&self.children[*c], ranks))
                .filter(|(c, _)| c.exited || c.disconnected || c.is_lost());
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
        let state = (self.pmi.barrier_version(), [ended, disconnected, below]);
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

    pub(super) fn pmi_tree(&mut self, from: TreeLink, bytes: &[u8]) {
        if let Err(e) = self.pmi.handle_tree(from, bytes) {
            self.fault(
                0,
                Cause::Node {
                    what: format!("PMI: {e}"),
                },
            );
        }
    }

    pub(super) fn serve_pmi(&mut self, now: u64) {
        while let Some(output) = self.pmi.poll_output() {
            match output {
                Output::ToClient { local, bytes } => {
                    self.actions.push_back(Action::ToPe(local as u32, bytes));
                }
                Output::ToParent(bytes) => send_pmi(&bytes, &mut self.up),
                Output::ToChild { child, bytes } => {
                    let c = &mut self.children[child];
                    if !c.is_closed() {
                        send_pmi(&bytes, &mut c.out);
                    }
                }
                Output::Publish {
                    request,
                    value_len,
                    offset,
                    values,
                    last,
                } => {
                    self.actions.push_back(Action::Publish {
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
                } => {
                    let (rank, pid) = self.identify(local as u32);
                    self.press(local as u32, now);
                    self.fault(
                        pid,
                        Cause::Abort {
                            rank,
                            code: exit_code,
                            message,
                        },
                    );
                }
                Output::Told { local, text, adds } => {
                    let notice = Notice {
                        rank: self.identify(local as u32).0,
                        node: self.setup.node,
                        count: 1,
                        adds,
                        text,
                    };
                    self.notice(notice, now);
                }
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
}
