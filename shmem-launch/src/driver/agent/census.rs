//! Looking what this node's PEs do: at their blocks in the node's memory, and at what the kernel says of
//! their processes. No PE is disturbed, by no signal and no debugger.

use std::sync::atomic::Ordering;

use super::AgentProcess;
use crate::agent::Event;
use crate::census::look::{self, Found};
use crate::census::{Census, Doing, Example, Group, Life, Places, Process, RankSet, Span};
use crate::driver::node::Node;
use crate::sys::{self, monotonic_ns};

/// How long all looks at processes may take together: thousands of them are not to keep the agent from
/// its work. Of the PEs that are left their blocks tell enough.
const LOOKS_NS: u64 = 500_000_000;

impl AgentProcess {
    /// Looks what the PEs do, for a question of this number.
    pub(super) fn count(&mut self, number: u32) {
        let census = match &self.node {
            Some(node) => self.look(node),
            None => self.not_started(),
        };
        self.handle(Event::Counted(number, census));
    }

    fn not_started(&self) -> Census {
        let end = self.agent.first_rank() + self.pes.len() as u32;
        let group = Group {
            doing: Doing::Runs {
                life: Life::NotStarted,
                process: None,
                begun: None,
            },
            ranks: RankSet::range(self.agent.first_rank()..end),
            example: Example {
                rank: self.agent.first_rank(),
                node: self.launch.node,
                pid: 0,
            },
            age: None,
            cpu: None,
            begun: Span::of(0),
            for_whom: RankSet::default(),
            operations: 0,
            places: Places::default(),
        };
        Census::of(self.launch.node, [group])
    }

    fn look(&self, node: &Node) -> Census {
        let view = node.segment.view();
        let here = look::Node {
            node: self.launch.node,
            ranks: view.ranks(),
            heap_start: view.heap_start() as u64,
            segment_len: view.segment_len() as u64,
        };
        let ticks = sys::clock_ticks();
        let began = monotonic_ns();
        let mut groups: Vec<Group> = Vec::with_capacity(self.pes.len());
        for (local, pe) in self.pes.iter().enumerate() {
            let block = view.pe_block(local);
            let started = pe.pid > 0;
            let ended = started && !self.ending.by_pid.contains_key(&pe.pid);
            let now = monotonic_ns();
            let looks = started && !ended && now - began < LOOKS_NS;
            let (process, cpu) = match looks {
                true => process(pe.pid, block.thread(), ticks).unzip(),
                false => (None, None),
            };
            let found = Found {
                local,
                started,
                ended,
                state: block.state(),
                waits: block.waiting.read().collect(),
                waited: block.waiting.ended(),
                begun: block.begun.load(Ordering::Relaxed),
                pid: u32::try_from(pe.pid).unwrap_or(0),
                process,
                cpu,
            };
            groups.push(here.group(found, now, |at, size| view.peek(local, at, size)));
        }
        look::note_missing(here, &mut groups);
        Census::of(self.launch.node, groups)
    }
}

/// State and CPU time of a process. The state is that of `thread`, which called init: the main thread of a program may
/// only wait for it, as that of a test program does. If the process has no such thread, or none any more, the state is
/// that of the main thread. If the thread has ended and the kernel has given its id to another thread of the process, the
/// state is that one's: an id does not tell them apart.
fn process(pid: i32, thread: u32, ticks: u64) -> Option<(Process, u64)> {
    let read = |name: &str| std::fs::read_to_string(format!("/proc/{pid}/{name}")).ok();
    let (mut state, cpu) = look::parse_stat(&read("stat")?, ticks)?;
    let mut wchan = "wchan".to_owned();
    if let Some(stat) = read(&format!("task/{thread}/stat"))
        && let Some((of_thread, _)) = look::parse_stat(&stat, ticks)
    {
        state = of_thread;
        wchan = format!("task/{thread}/wchan");
    }
    let place = match state {
        b'S' | b'D' => read(&wchan).unwrap_or_default(),
        _ => String::new(),
    };
    Some((Process { state, place }, cpu))
}
