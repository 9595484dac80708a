//! The target: one TGT QP per initiator that chose this PE, and answers to ASKs.

use super::interface::{Action, Remote};
use super::message::{Accept, Open, Xrc};
use super::state::{Served, Serving};
use super::{Machine, UdAddress, Verdict};
use crate::message::{Body, Epoch};
use shmem_verbs::Qpn;

impl Served {
    /// The largest epoch of the initiator that was heard in an OPEN or BYE.
    fn floor(&self) -> Option<Epoch> {
        match self {
            Self::None => None,
            Self::Pending((epoch, _)) | Self::Closed(epoch) => Some(*epoch),
            Self::Creating { asked, newest } => {
                Some(newest.map_or(*asked, |(epoch, _)| epoch.max(*asked)))
            }
            Self::Serving(serving) => Some(serving.epoch),
        }
    }
}

impl Machine {
    pub(super) fn handle_open(&mut self, pe: u32, epoch: Epoch, open: Open) -> Verdict {
        self.moved_to(pe, open.ud);
        let served = self.peer(pe).served;
        if let Some(floor) = served.floor()
            && epoch <= floor
        {
            if epoch < floor {
                return Verdict::Stale;
            }
            match served {
                Served::Serving(_) if self.leaving.is_some() => self.send_leave(pe, epoch, true),
                Served::Serving(serving) => self.send_accept(pe, &serving),
                Served::Pending(_) => self.send_wait(pe, Some(epoch)),
                _ => {}
            }
            return Verdict::Duplicate;
        }
        if self.leaving.is_some() {
            self.send_leave(pe, epoch, false);
            return Verdict::Accepted;
        }
        match served {
            Served::Creating { asked, .. } => {
                self.peer(pe).served = Served::Creating {
                    asked,
                    newest: Some((epoch, open)),
                };
                return Verdict::Accepted;
            }
            Served::Serving(serving) => self.destroy_target(pe, &serving),
            _ => {}
        }
        self.peer(pe).served = Served::Pending((epoch, open));
        if self.local.memory.is_some() {
            self.serve_pending(pe);
        } else {
            self.send_wait(pe, Some(epoch));
        }
        Verdict::Accepted
    }

    /// Makes the queue pair for an OPEN that may be answered now.
    pub(super) fn serve_pending(&mut self, pe: u32) {
        if let Served::Pending((epoch, open)) = self.peer(pe).served {
            self.create_target(pe, epoch, open);
        }
    }

    fn create_target(&mut self, pe: u32, epoch: Epoch, open: Open) {
        self.peer(pe).served = Served::Creating {
            asked: epoch,
            newest: Some((epoch, open)),
        };
        let remote = Remote {
            av: open.ud.av(),
            qpn: open.qpn,
            psn: open.psn,
            mtu: open.mtu.min(self.local.mtu),
            rd_atomic: open.max_rd_atomic.min(self.local.max_rd_atomic),
        };
        self.actions.push_back(Action::CreateTgt { pe, remote });
    }

    /// The queue pair asked for by [`Action::CreateTgt`] exists and is in RTR.
    pub fn tgt_created(&mut self, now: u64, pe: u32, qpn: Qpn) {
        let psn = self.random_psn();
        let Served::Creating { asked, newest } = self.peer(pe).served else {
            debug_assert!(false, "a queue pair was created that nobody asked for");
            return;
        };
        self.stats.xrc.targets += 1;
        let leaving = self.leaving.is_some();
        match newest {
            Some((epoch, _)) if epoch == asked && !leaving => {
                let serving = Serving {
                    epoch,
                    qpn,
                    psn,
                    solicit: None,
                };
                self.peer(pe).served = Served::Serving(serving);
                self.stats.accepted += 1;
                self.send_accept(pe, &serving);
            }
            Some((epoch, open)) => {
                self.actions.push_back(Action::DestroyTgt { pe, qpn });
                if leaving {
                    self.peer(pe).served = Served::Closed(epoch);
                    self.send_leave(pe, epoch, false);
                } else {
                    self.create_target(pe, epoch, open);
                }
            }
            None => {
                self.actions.push_back(Action::DestroyTgt { pe, qpn });
                self.peer(pe).served = Served::Closed(asked);
            }
        }
        self.settle(now);
    }

    /// The queue pair asked for by [`Action::CreateTgt`] cannot be made. The next OPEN of the
    /// initiator is another try.
    pub fn tgt_failed(&mut self, now: u64, pe: u32) {
        let peer = self.peer(pe);
        if let Served::Creating { asked, newest } = peer.served {
            peer.served = match newest {
                // Not this epoch, so that it may ask again.
                Some((epoch, _)) => Served::Closed(Epoch {
                    generation: epoch.generation.saturating_sub(1),
                    ..epoch
                }),
                None => Served::Closed(asked),
            };
        }
        self.settle(now);
    }

    pub(super) fn handle_ask(&mut self, pe: u32, epoch: Epoch, ud: UdAddress) -> Verdict {
        self.moved_to(pe, ud);
        if self.leaving.is_some() {
            self.send_leave(pe, epoch, false);
        } else if self.local.memory.is_some() {
            self.inform(pe, epoch);
        } else {
            self.peer(pe).owes = Some(epoch);
            self.send_wait(pe, Some(epoch));
        }
        Verdict::Accepted
    }

    /// Answers an ASK.
    pub(super) fn inform(&mut self, pe: u32, question: Epoch) {
        if let Some(memory) = self.local.memory.clone() {
            self.stats.xrc.infos_sent += 1;
            self.answer(pe, Some(question), false, Body::Xrc(Xrc::Info(memory)));
        }
    }

    pub(super) fn handle_bye(
        &mut self,
        pe: u32,
        epoch: Epoch,
        ud: UdAddress,
        asked: bool,
    ) -> Verdict {
        self.moved_to(pe, ud);
        if asked {
            self.answer(pe, Some(epoch), false, Body::Xrc(Xrc::Gone));
        }
        let served = self.peer(pe).served;
        if served.floor().is_some_and(|floor| floor > epoch) {
            return Verdict::Stale;
        }
        let closed = Served::Closed(epoch);
        if served == closed {
            return Verdict::Duplicate;
        }
        self.peer(pe).served = match served {
            Served::Creating { .. } => Served::Creating {
                asked: epoch,
                newest: None,
            },
            Served::Serving(serving) => {
                self.destroy_target(pe, &serving);
                closed
            }
            _ => closed,
        };
        Verdict::Accepted
    }

    /// Initiator `pe` has a new incarnation: the queue pair of its predecessor serves nobody.
    pub(super) fn initiator_restarted(&mut self, pe: u32, incarnation: u64) {
        let served = self.peer(pe).served;
        if served
            .floor()
            .is_none_or(|floor| floor.incarnation >= incarnation)
        {
            return;
        }
        self.peer(pe).served = match served {
            Served::Creating { asked, .. } => Served::Creating {
                asked,
                newest: None,
            },
            Served::Serving(serving) => {
                self.destroy_target(pe, &serving);
                Served::Closed(serving.epoch)
            }
            Served::Pending((epoch, _)) => Served::Closed(epoch),
            other => other,
        };
    }

    fn destroy_target(&mut self, pe: u32, serving: &Serving) {
        let qpn = serving.qpn;
        self.actions.push_back(Action::DestroyTgt { pe, qpn });
    }

    fn send_accept(&mut self, pe: u32, serving: &Serving) {
        let Some(memory) = self.local.memory.clone() else {
            return;
        };
        self.stats.xrc.accepts_sent += 1;
        let accept = Accept {
            qpn: serving.qpn,
            psn: serving.psn,
            mtu: self.local.mtu,
            max_rd_atomic: self.local.max_rd_atomic,
            memory,
        };
        let echo = Some(serving.epoch);
        self.answer(pe, echo, false, Body::Xrc(Xrc::Accept(accept)));
    }
}
