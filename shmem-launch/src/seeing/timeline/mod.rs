//! The timeline of a job in Perfetto's format, for <https://ui.perfetto.dev>.
//!
//! Each PE is a process there, with a track for each of its threads, one for its connections and one for how many queue
//! pairs it has; `shmrun` is one, too, with the phases of the job. An arrow goes from an operation to the wait that it
//! ended, and the members of a collective tell who came last: an arrow to each of thousands would hide all else.
//! Times are nanoseconds since `shmrun` began.

mod order;
mod packets;
mod protobuf;

use std::collections::{BTreeMap, HashMap};

use shmem_node::recording::{Event, Group, Recording, Routine, numbered};

use super::Job;
use super::matching::{self, CallId};
use crate::report::phases;
use order::{Step, lanes, nested};
use packets::{Name, Note, Packets, Track};

/// The number of PE 0's process. Real ones are not known, and Perfetto wants different ones: from this
/// one on they tell the PE.
const FIRST_PID: u64 = 1_000_000;
/// That of `shmrun`.
const LAUNCHER_PID: u64 = FIRST_PID - 1;

/// Where tracks of a PE that are not threads are among each other.
const COUNTER: u64 = 0;
const CONNECTIONS: u64 = 1;

/// What is told of calls because of those of others.
#[derive(Default)]
struct Matched {
    /// Arrows that go out, by the operation.
    from: HashMap<CallId, Vec<u64>>,
    /// The arrow that arrives, and whose it is, by the wait.
    to: HashMap<CallId, (u64, u32)>,
    /// Who came last, and how long it was waited for, by the member's call.
    last: HashMap<CallId, (u32, u64)>,
}

impl Matched {
    fn new(recordings: &[Recording]) -> Self {
        let mut all = Self::default();
        for (flow, ended) in (1..).zip(matching::ended_waits(recordings)) {
            all.from.entry(ended.by).or_default().push(flow);
            all.to.insert(ended.wait, (flow, ended.by.pe(recordings)));
        }
        for met in matching::collectives(recordings) {
            let last = met.last().pe(recordings);
            for &member in &met.members {
                let waited = met.waited(member, recordings);
                all.last.insert(member, (last, waited));
            }
        }
        all
    }
}

/// Renders the timeline.
#[must_use]
pub fn timeline(job: &Job<'_>) -> Vec<u8> {
    let mut out = Timeline {
        packets: Packets::new(),
        base: job.base(),
        threads: FIRST_PID + u64::from(highest(job)) + 1,
    };
    out.launcher(job);
    let matched = Matched::new(job.recordings);
    // Perfetto sorts processes by their names.
    let digits = highest(job).to_string().len();
    for (which, recording) in (0..).zip(job.recordings) {
        out.pe(which, recording, digits, &matched);
    }
    out.packets.into_bytes()
}

fn highest(job: &Job<'_>) -> u32 {
    job.recordings.iter().map(|of| of.rank).max().unwrap_or(0)
}

struct Timeline {
    packets: Packets,
    /// The moment that is 0.
    base: u64,
    /// The number that the next thread takes which is not a PE's first.
    threads: u64,
}

impl Timeline {
    /// Perfetto counts with a sign.
    fn at(&self, moment: u64) -> u64 {
        moment.saturating_sub(self.base).min(i64::MAX as u64)
    }

    fn launcher(&mut self, job: &Job<'_>) {
        let process = self.packets.process(LAUNCHER_PID, "Launcher (shmrun)");
        let phases = phases(job.launcher, job.reduced);
        let mut slices: Vec<(u64, u64, usize)> = (0..)
            .zip(&phases)
            .map(|(which, &(_, from, to))| (from, to, which))
            .collect();
        for lane in lanes(&mut slices) {
            let track = self.packets.track(process, 0, "phases of the job");
            for (from, to, which) in lane {
                let name = Name::Text(phases[which].0, "launcher");
                self.packets.begin(from, track, name, &[], &[]);
                self.packets.end(to, track, None);
            }
        }
    }

    fn pe(&mut self, which: u32, recording: &Recording, digits: usize, matched: &Matched) {
        let pid = FIRST_PID + u64::from(recording.rank);
        let name = format!("PE {:0digits$} on node {}", recording.rank, recording.node);
        let process = self.packets.process(pid, &name);
        let id = |event| CallId {
            recording: which,
            event,
        };
        // By thread; connections have no thread, they come and go by themselves.
        let mut threads: BTreeMap<u8, Vec<(u64, u64, u32)>> = BTreeMap::new();
        let mut links = Vec::new();
        for (event, call) in (0..).zip(&recording.events) {
            let slices = match call.routine {
                Routine::Connect | Routine::Disconnect => &mut links,
                _ => threads.entry(call.thread).or_default(),
            };
            let end = call.end.max(call.begin);
            slices.push((self.at(call.begin), self.at(end), event));
        }
        self.connections(process, recording, &mut links);
        for (thread, mut slices) in threads {
            let tid = match thread {
                0 => pid,
                _ => {
                    self.threads += 1;
                    self.threads
                }
            };
            let name = format!("thread {thread}");
            let track = self.packets.thread(process, pid, tid, &name);
            nested(&mut slices, |step| match step {
                Step::Begin(at, event) => {
                    let call = &recording.events[event as usize];
                    let mut notes = Vec::with_capacity(5);
                    tell(call, &mut notes);
                    notes.extend(matched.to.get(&id(event)).map(|to| (Note::By, to.1.into())));
                    if let Some(&(last, waited)) = matched.last.get(&id(event)) {
                        notes.extend([(Note::Last, last.into()), (Note::Waited, waited)]);
                    }
                    let flows = matched.from.get(&id(event)).map_or(&[][..], Vec::as_slice);
                    let name = Name::Routine(call.routine);
                    self.packets.begin(at, track, name, &notes, flows);
                }
                Step::End(at, event) => {
                    let flow = matched.to.get(&id(event)).map(|to| to.0);
                    self.packets.end(at, track, flow);
                }
            });
        }
        if recording.lost > 0 {
            let last = recording.events.iter().map(|call| call.end).max();
            let at = self.at(last.unwrap_or(self.base));
            let name = Name::Text("no more room for calls", "recording");
            let notes = [(Note::Lost, recording.lost)];
            self.packets.instant(at, process, name, &notes);
        }
    }

    fn connections(&mut self, process: Track, of: &Recording, links: &mut [(u64, u64, u32)]) {
        if links.is_empty() {
            return;
        }
        let counter = self.packets.counter(process, COUNTER, "queue pairs");
        let mut counts: Vec<(u64, u32)> = links.iter().map(|&(_, end, link)| (end, link)).collect();
        counts.sort_unstable();
        for (at, link) in counts {
            let open = of.events[link as usize].bytes;
            self.packets.count(at, counter, open);
        }
        for lane in lanes(links) {
            let track = self.packets.track(process, CONNECTIONS, "connections");
            for (begin, end, link) in lane {
                let call = &of.events[link as usize];
                let mut notes = Vec::new();
                tell(call, &mut notes);
                let name = Name::Routine(call.routine);
                self.packets.begin(begin, track, name, &notes, &[]);
                self.packets.end(end, track, None);
            }
        }
    }
}

/// What the call tells of itself.
fn tell(call: &Event, notes: &mut Vec<(Note, u64)>) {
    if call.pe != Event::NOBODY {
        notes.push((Note::Pe, call.pe.into()));
    }
    match call.routine {
        Routine::Connect | Routine::Disconnect => notes.push((Note::Open, call.bytes)),
        routine if routine.is_one_sided() => {
            notes.extend([(Note::Bytes, call.bytes), (Note::Offset, call.at)]);
        }
        routine if matching::is_collective(routine) => {
            let (slot, first, number) = numbered(call.at);
            notes.extend([
                (Note::Collective, number.into()),
                (Note::First, first.into()),
            ]);
            notes.extend(slot.map(|slot| (Note::Slot, slot.into())));
        }
        routine if routine.group() == Group::Wait => {
            notes.push((Note::Offset, call.at));
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests;
