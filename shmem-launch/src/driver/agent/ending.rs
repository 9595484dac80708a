//! PEs end, are ended, and are cleaned up after.
//!
//! # Reaping
//! With thousands of children, `waitpid(-1)` walks a long list for each. A PE that ends closes its
//! PMI socket first, so PEs whose socket has ended are asked for by number when SIGCHLD comes; the
//! full search runs at most every few milliseconds, for those that passed their socket to others.
//!
//! A PE that has gone without being there to reap has ended, too: its template's libraries may reap children, or have
//! the kernel do it. What it ended with is not known then.

use std::collections::HashMap;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::process::parent_id;
use std::path::Path;

use shmem_node::pe_block::PeState;

use super::AgentProcess;
use super::input::Input;
use crate::agent::{Event, StillNeeded};
use crate::driver::memory;
use crate::driver::node::Node;
use crate::driver::pmix;
use crate::driver::reap::{Reaping, reap_all_but};
use crate::exit::{Cause, End};
use crate::frame::{SpawnMode, codec};
use crate::program;
use crate::report::{Ended, Moment, Reduced, Used};
use crate::sys::{self, Waited, monotonic_ns};
use std::time::Duration;

/// Time between two searches for ended children of unknown number, per PE: bounds their share of
/// the agent's time.
const SEARCH_NS_PER_PE: u64 = 1_000;
const SEARCH_NS_MIN: u64 = 2_000_000;

/// Time that exiting child agents have before they are killed, and all of it at most.
const REAP_PATIENCE: Duration = Duration::from_secs(2);
const REAP_LIMIT: Duration = Duration::from_secs(5);

/// Processes that have ended, or are to.
#[derive(Default)]
pub(super) struct Ending {
    /// Local number of the PE with this process id.
    pub(super) by_pid: HashMap<i32, u32>,
    /// Children that ended and whom the template, or a spawner, has not named yet: by process id, the
    /// status and what they took. It may have been killed with answers that are not read.
    pub(super) unnamed: HashMap<i32, (i32, Used)>,
    /// PEs whose PMI socket has ended and which are not reaped.
    pub(super) leaving: Vec<u32>,
    /// When children of unknown number may be searched for again, and whether they are to be.
    pub(super) next_search: u64,
    pub(super) search_due: bool,
    /// Whether nobody is to live any more.
    killing: bool,
    /// What is left is being ended.
    pub(super) reaping: Option<Reaping>,
    /// Nothing is left but to send the last of what this agent says.
    pub(super) exiting: bool,
}

impl AgentProcess {
    pub(super) fn reap_leaving(&mut self) {
        // Until the template has gone, PEs are not our children.
        if self.node.as_ref().is_some_and(|n| n.template.is_some()) {
            return;
        }
        // A long list is better served by the search.
        if self.ending.leaving.len() > 64 {
            self.ending.search_due = true;
            return;
        }
        self.reap_each_leaving();
    }

    /// Whether all PEs that were started, and live, are children of this process. The socket of what starts them closes
    /// before it has ended.
    fn pes_are_ours(&self) -> bool {
        let ours = |n: &Node| n.template.is_none() && n.template_pid == 0;
        self.node.as_ref().is_some_and(ours)
    }

    fn reap_each_leaving(&mut self) {
        let mut leaving = std::mem::take(&mut self.ending.leaving);
        leaving.retain(|&local| {
            let pid = self.pes[local as usize].pid;
            match pid > 0 && self.ending.by_pid.contains_key(&pid) {
                false => false,
                true => match sys::wait_used(pid) {
                    (Waited::Child(pid, status), used) => {
                        self.reaped(pid, status, used);
                        false
                    }
                    (Waited::NoChild, used) if self.pes_are_ours() => {
                        self.ended(pid, End::Unknown, used);
                        false
                    }
                    _ => true,
                },
            }
        });
        leaving.append(&mut self.ending.leaving);
        self.ending.leaving = leaving;
    }

    pub(super) fn search_children(&mut self, now: u64) {
        self.ending.search_due = false;
        let mut guard = None;
        while let (Waited::Child(pid, status), used) = sys::wait_used(-1) {
            if self.node.as_ref().is_some_and(|n| n.group.id() == pid) {
                guard = Some(status);
            } else {
                self.reaped(pid, status, used);
            }
        }
        // After the PEs: if one of them killed the whole group, it is the one to be named.
        if let (Some(status), Some(node)) = (guard, &mut self.node) {
            node.group.guard_reaped();
            // Without it nobody would end PEs whose agent is killed, those to come included.
            let over = self.ending.by_pid.is_empty() && self.pes.iter().all(|pe| pe.pid > 0);
            if !over {
                let end = End::from_wait(status);
                let what = format!("the guard of the PEs' process group {end}");
                self.handle(Event::Failed(what.into()));
            }
        }
        if self.ending.killing {
            self.kill_children();
        }
        // Of those that the search has not found most are on their way out, and some may have been reaped by others.
        self.reap_each_leaving();
        let alive = self.ending.by_pid.len() as u64;
        self.ending.next_search = now + SEARCH_NS_MIN.max(alive * SEARCH_NS_PER_PE);
    }

    pub(super) fn reaped(&mut self, pid: i32, status: i32, used: Used) {
        let end = self.explained(End::from_wait(status));
        if self.ended(pid, end, used) {
            // Told.
        } else if self.may_be_named() {
            self.ending.unnamed.insert(pid, (status, used));
        }
    }

    /// With what is known of memory, unless this agent has killed the process.
    fn explained(&self, end: End) -> End {
        match self.ending.killing {
            true => end,
            false => memory::of_pe(end),
        }
    }

    /// A process has ended. False if it is none that is known.
    fn ended(&mut self, pid: i32, end: End, used: Used) -> bool {
        if let Some(local) = self.ending.by_pid.remove(&pid) {
            // What its PMIx server knows of it.
            self.read_pmix();
            let state = |local| {
                let node = self.node.as_ref();
                node.map_or(PeState::Fresh, |n| n.segment.pe_state(local))
            };
            let last = state(local as usize);
            let attached = last != PeState::Fresh;
            // That it has gone is told to nobody while it may come again.
            let again = self.agent.may_respawn(local, end, attached);
            let absent = || {
                self.node.as_ref().is_some_and(|n| {
                    let view = n.segment.view();
                    view.absence().note(view.ranks()[local as usize])
                        && (0..view.n_local()).any(|other| state(other) == PeState::Starting)
                })
            };
            let missed = match last {
                PeState::Finalized => StillNeeded::Nothing,
                PeState::Fresh if !again && absent() => StillNeeded::Init,
                PeState::Fresh => StillNeeded::Nothing,
                _ => StillNeeded::Finalize,
            };
            if end != End::Code(0) || missed != StillNeeded::Nothing {
                self.drain_output(local);
                self.drain_pmi(local);
            }
            // Addresses that it brought among them, which nobody will bring any more.
            self.read_last_messages();
            self.pes[local as usize].ended = Some((end, used));
            self.moment(Moment::Ended, monotonic_ns());
            self.handle(Event::Reaped {
                local,
                end,
                missed,
                attached,
            });
        } else if self.pmix_ended(pid, end) {
            // Told, if it was too early.
        } else if self.spawner_ended(pid) {
            // Its PE was told.
        } else if let Some(at) = self.children.iter().position(|c| c.pid == pid) {
            self.child_reaped(at, memory::of_agent(end));
        } else if let Some(node) = &mut self.node
            && node.template_pid == pid
        {
            node.template_pid = 0;
            let why = match self.launch.spawn {
                SpawnMode::Exec => Some(format!("the process that starts the PEs {end}").into()),
                SpawnMode::Template { .. } => {
                    let program = &self.launch.command_of(0).program;
                    program::is_cut(Path::new(OsStr::from_bytes(program))).map(Cause::from)
                }
            };
            self.handle(Event::TemplateEnded(end, why));
        } else {
            return false;
        }
        true
    }

    /// Whether what was reaped just now may be a PE that was started, of which the word has not been read yet. It was
    /// a child of what started it, and became ours at the end of that; before, what we reap is of somebody else, and
    /// its number may be that of a PE later.
    fn may_be_named(&self) -> bool {
        let node = self.node.as_ref();
        let template = node.is_some_and(|n| {
            n.template.is_some() && (n.template_pid == 0 || sys::has_ended(n.template_pid))
        });
        template
            || self
                .starts
                .respawning
                .iter()
                .any(|r| sys::has_ended(r.spawner))
    }

    /// Forgets the processes that nobody will name.
    pub(super) fn forget_unnamed(&mut self) {
        let named_later = self.node.as_ref().is_some_and(|n| n.template.is_some());
        if !named_later && self.starts.respawning.is_empty() {
            self.ending.unnamed.clear();
        }
    }

    /// Whether a PE has initialised and not finalized.
    pub(super) fn any_attached(&self) -> bool {
        let Some(node) = &self.node else {
            return false;
        };
        self.ending.by_pid.values().any(|&local| {
            let state = node.segment.pe_state(local as usize);
            !matches!(state, PeState::Fresh | PeState::Finalized)
        })
    }

    pub(super) fn kill_all(&mut self) {
        if let Some(node) = &self.node {
            node.group.signal(libc::SIGKILL);
        }
        self.ending.killing = true;
        self.kill_children();
        self.ending.search_due = true;
    }

    /// Those that become ours when their parents die, too: somebody may hold the output of a PE.
    fn kill_children(&self) {
        for pid in sys::children() {
            let agent = self.children.iter().any(|c| c.pid == pid);
            // Those of agents that were killed, too.
            let tidies_up = || self.launch.pmix.is_some() && pmix::is_server(pid);
            if !agent && !tidies_up() {
                sys::kill(pid, libc::SIGKILL);
            }
        }
    }

    pub(super) fn clean_up(&mut self) {
        self.read_last_messages();
        self.close_outputs(None, false);
        self.close_pmix();
        self.input = Input::default();
        if let Some(node) = &mut self.node {
            // Whoever reaps does not tell whom from now on.
            node.group.signal(libc::SIGKILL);
            node.group.guard_reaped();
        }
        let now = monotonic_ns();
        self.ending.reaping = Some(Reaping::new(REAP_PATIENCE, REAP_LIMIT, now));
        self.go_on_reaping(now);
    }

    pub(super) fn go_on_reaping(&mut self, now: u64) {
        let children = &self.children;
        let is_agent = |pid| children.iter().any(|c| c.pid == pid);
        let reaping = self.ending.reaping.as_mut();
        if reaping.is_some_and(|reaping| reaping.look(is_agent, now)) {
            self.ending.reaping = None;
            if let Some(node) = &mut self.node {
                node.group.end();
            }
            self.clean_up_pmix();
            self.report();
        }
    }

    /// Tells what the PEs recorded, if they were to.
    fn tell_recordings(&mut self) {
        let view = match &self.node {
            Some(node) => *node.segment.view(),
            None => return,
        };
        for (local, &rank) in view.ranks().iter().enumerate() {
            let Some(recorder) = view.recorder(local) else {
                return;
            };
            let (node, stats) = (view.node() as u32, view.pe_block(local).stats.read());
            let mut recording = Vec::new();
            codec::encode(&recorder.read(rank, node, stats), &mut recording);
            self.handle(Event::Recorded(recording));
        }
    }

    fn report(&mut self) {
        self.tell_recordings();
        let mut report = Reduced {
            agents: 1,
            lost: self.starts.lost,
            ..Reduced::default()
        };
        for (aggregate, &at) in report.moments.iter_mut().zip(&self.moments) {
            if at != 0 {
                aggregate.add(at);
            }
        }
        if self.launch.options.report
            && let Some(node) = &self.node
        {
            for local in 0..self.starts.answered as usize {
                report.add_pe(&node.segment.pe_stats(local));
            }
        }
        for (rank, pe) in (self.agent.first_rank()..).zip(&self.pes) {
            if let Some((end, used)) = pe.ended {
                let ended = Ended { rank, end, used };
                let keep = self.launch.options.report_each;
                report.processes.add(ended, keep);
            }
        }
        report.agent_cpu.add(sys::process_cpu_ns());
        self.handle(Event::CleanedUp(Box::new(report)));
    }

    /// A warden that somebody has stopped is to see that this process ends.
    pub(super) fn wake_warden(&self) {
        let parent = parent_id() as i32;
        // Without it, init has taken its place.
        if self.parent.is_remote() && parent > 1 {
            sys::kill(parent, libc::SIGCONT);
        }
    }

    pub(super) fn die(&mut self) -> ! {
        // Their links end: child agents do the same.
        for child in &mut self.children {
            child.link.close();
        }
        self.close_pmix();
        // Should this process be killed before it has ended them all, the guard will do it: so that comes last.
        let guard = self.node.as_ref().and_then(|n| n.group.guard());
        let agents: Vec<i32> = self.children.iter().map(|c| c.pid).collect();
        let spare = |pid| agents.contains(&pid);
        reap_all_but(guard, spare, REAP_PATIENCE, REAP_LIMIT);
        if let Some(node) = &mut self.node {
            node.group.signal(libc::SIGKILL);
            node.group.end();
        }
        self.clean_up_pmix();
        self.wake_warden();
        sys::exit_now(crate::exit::LAUNCHER)
    }
}
