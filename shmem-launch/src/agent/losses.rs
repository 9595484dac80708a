//! Losses with which the others go on (`--keep-going`).
//!
//! A PE that fails ends the job if others may wait for it: see [`crate::exit`], "Who frees those that
//! wait". One that has not initialised, or has finalized, leaves nobody waiting. It may still be missed
//! later, in an operation of PMI, which [`Agent::look_for_absent`] notices.
//!
//! A lost agent takes the PEs of its subtree along. Nobody knows what they were in, so the launcher tells
//! all agents, and one with PEs that use what PEs share says that they cannot go on.

use super::causes::Report;
use super::event::Action;
use super::{Agent, Phase};
use crate::exit::{Cause, Fault, Loss};
use crate::frame::Frame;

impl Agent {
    /// A PE has failed that leaves nobody waiting.
    pub(super) fn lose_pe(&mut self, rank: u32, pid: u32, cause: Cause, now: u64) {
        let fault = Fault {
            node: self.setup.node,
            pid,
            cause,
        };
        let report = match self.others_go_on() {
            true => Report::Failed(Loss {
                fault,
                first: rank,
                last: rank,
            }),
            false => Report::Fault(fault),
        };
        self.report_pe(report, now);
    }

    /// Whether the others go on after a loss.
    fn others_go_on(&self) -> bool {
        self.setup.options.keep_going && !self.life.stopping
    }

    /// The subtree of a child is lost; `outlived`: after it knew that the job ends. Where PEs were never started
    /// the job has not begun, and does not.
    pub(super) fn lose_subtree(&mut self, loss: Loss, outlived: bool) {
        match self.life.phase >= Phase::Running && self.others_go_on() {
            true => self.parent.out.send(&Frame::Failed(loss)),
            false => self.pass_own_fault(loss.fault, outlived),
        }
    }

    /// PEs of another node are lost.
    pub(super) fn lost(&mut self, loss: &Loss) {
        if !self.life.stopping {
            let lost = loss.first;
            self.actions.push_back(Action::FindAttached { lost });
        }
    }

    /// There are PEs that would wait for those that are lost.
    pub(super) fn is_needed(&mut self, rank: u32) {
        if !self.life.stopping {
            self.fault(0, Cause::Needed { rank });
        }
    }
}
