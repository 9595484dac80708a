//! PEs that are started again (`--respawn`).
//!
//! Only those of programs that use nothing but PMI: what the memory of an OpenSHMEM program held is
//! lost, and others may be reading it. And only those that failed before they finalized: what has
//! taken leave has done its work.

use super::Agent;
use super::event::Action;
use crate::exit::{Cause, End, Fault};
use crate::frame::Frame;

impl Agent {
    /// Whether a PE that has been reaped may be started again.
    pub fn may_respawn(&self, local: u32, end: End, attached: bool) -> bool {
        self.setup.options.respawns > 0
            && !self.life.stopping
            && !attached
            && end != End::Code(0)
            && !self.pes.has_finalized(local)
    }

    /// The launcher decides what becomes of it.
    pub(super) fn report_failed(&mut self, local: u32, end: End) {
        self.pes.failed(local);
        self.absence.disconnected_reported = false;
        let (rank, pid) = self.identify(local);
        self.parent.out.send(&Frame::Died(Fault {
            node: self.setup.node,
            pid,
            cause: Cause::Pe { rank, end },
        }));
    }

    /// The launcher wants PE `rank` to be started again, here or elsewhere.
    pub(super) fn respawn(&mut self, rank: u32, count: u32) {
        let local = rank.checked_sub(self.setup.first_rank);
        let here = local.filter(|&local| local < self.setup.n_local);
        if let Some(local) = here.filter(|&local| self.pes.has_failed(local) && !self.life.stopping)
        {
            self.pes.respawn(local, count);
            self.actions.push_back(Action::CloseOutputOf(local));
        }
    }

    /// Has those started again of whom all was read: what they wrote comes before what follows.
    pub(super) fn start_again(&mut self) {
        while let Some((local, count)) = self.pes.next_respawn() {
            self.actions.push_back(Action::Respawn { local, count });
        }
    }

    /// The job ends: those that the driver has not begun to start are not started.
    pub(super) fn respawn_nobody(&mut self) {
        self.pes.respawn_nobody();
        let pes = &mut self.pes;
        self.actions.retain(|action| match action {
            Action::Respawn { local, .. } => {
                pes.set_restarting(*local, false);
                false
            }
            _ => true,
        });
        pes.end_failed();
    }

    /// The driver has started it, or could not. Much may have happened since it was asked to.
    pub(super) fn respawned(&mut self, local: u32, pid: Result<i32, String>) {
        match pid {
            Ok(pid) => {
                self.pes.respawned(local, pid as u32);
                self.servers.pmi.restart(local as usize);
            }
            Err(e) => {
                let rank = self.setup.first_rank + local;
                let what = format!("cannot start PE {rank} again: {e}");
                self.pes.set_restarting(local, false);
                self.pes.end_failed();
                // After `Stop` the launcher has its cause, and the spawner ended of it.
                if !self.life.stopping {
                    self.fault(0, Cause::Node { what });
                }
            }
        }
    }
}
