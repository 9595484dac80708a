//! Measures init step by step and writes this PE's record for `shmrun --report`.

use shmem_ib::connect::endpoint::EndpointStats;
use shmem_node::recording::{Event, Routine};
use shmem_node::stats::Stat;
use shmem_node::sys::{monotonic_ns, process_cpu_ns};
use smallvec::SmallVec;

use crate::runtime::Runtime;

/// Stopwatch over the steps of init or finalize. CPU time is a system call to read, so it is only
/// read at the ends, and between steps for a report.
pub(super) struct Steps {
    start: (u64, u64),
    last: (u64, u64),
    detailed: bool,
    figures: SmallVec<[(Stat, u64); 16]>,
    /// Where each step ended, and which it was.
    ends: SmallVec<[(Routine, u64); 8]>,
}

impl Steps {
    pub(super) fn start() -> Self {
        let now = (monotonic_ns(), process_cpu_ns());
        Self {
            start: now,
            last: now,
            detailed: false,
            figures: SmallVec::new(),
            ends: SmallVec::new(),
        }
    }

    /// Also measures CPU time step by step, if a report was asked for.
    pub(super) fn detail(&mut self, report: bool) {
        self.detailed = report;
    }

    /// Ends a step that is recorded.
    pub(super) fn step(&mut self, step: Routine, wall: Stat, cpu: Stat) {
        self.done(wall, cpu);
        self.ends.push((step, self.last.0));
    }

    /// Ends a step.
    pub(super) fn done(&mut self, wall: Stat, cpu: Stat) {
        let cpu_now = if self.detailed {
            process_cpu_ns()
        } else {
            self.last.1
        };
        let now = (monotonic_ns(), cpu_now);
        self.figures.push((wall, now.0 - self.last.0));
        self.figures.push((cpu, now.1 - self.last.1));
        self.last = now;
    }

    /// Ends init.
    pub(super) fn finish(self, rt: &Runtime) {
        let (block, network) = (rt.block, &rt.network);
        block.stats.set(Stat::InitWall, self.last.0 - self.start.0);
        block
            .stats
            .set(Stat::InitCpu, process_cpu_ns() - self.start.1);
        block.stats.set(Stat::InitDoneAt, self.last.0);
        if let Some(network) = network {
            let made = network.endpoint.connected_peers().len() as u64;
            block.stats.set(Stat::InitConnections, made);
        }
        self.write(rt);
    }

    /// Ends finalize.
    pub(super) fn leave(self, rt: &Runtime) {
        rt.block.stats.set(Stat::FinalizeDoneAt, self.last.0);
        self.write(rt);
    }

    fn write(self, rt: &Runtime) {
        for (stat, value) in self.figures {
            rt.block.stats.set(stat, value);
        }
        let mut begin = self.start.0;
        for (routine, end) in self.ends {
            if let Some(recorder) = &rt.recorder {
                recorder.add(&Event::of(routine, begin, end));
            }
            begin = end;
        }
    }
}

/// What the PE did between init and finalize. Called at the last barrier.
pub(super) fn record_connections(rt: &Runtime) {
    let record = &rt.block.stats;
    if let Some(network) = &rt.network {
        let s = network.endpoint.stats();
        for (stat, value) in [
            (Stat::Connections, network.connected_pes()),
            (Stat::FirstConnection, s.connect.first_opened),
            (Stat::LastConnection, s.connect.last_opened),
            (Stat::FirstContactMean, s.connect.first_contact.mean()),
            (
                Stat::FirstContactMedian,
                s.connect.first_contact.quantile(0.5),
            ),
            (
                Stat::FirstContactP99,
                s.connect.first_contact.quantile(0.99),
            ),
            (Stat::FirstContactMax, s.connect.first_contact.max),
        ] {
            record.set(stat, value);
        }
        let own = network.branches.open_ones();
        let own: Vec<_> = own.iter().map(|b| counts(&b.endpoint.stats())).collect();
        for (i, (stat, shared)) in counts(&s).into_iter().enumerate() {
            let of_contexts: u64 = own.iter().map(|counts| counts[i].1).sum();
            record.set(stat, shared + of_contexts);
        }
    }
    if rt.node.report()
        && let Some((private, proportional)) = memory()
    {
        record.set(Stat::PrivateMemory, private);
        record.set(Stat::ProportionalMemory, proportional);
    }
}

/// What is counted of an endpoint, to be added to that of others of this PE.
fn counts(s: &EndpointStats) -> [(Stat, u64); 21] {
    let messages = s.connect.offers_sent
        + s.connect.waits_sent
        + s.connect.drains_sent
        + s.connect.segments_sent
        + s.connect.xrc.asks_sent;
    let dropped = s.hca.icrc_errors + s.hca.dropped + s.connect.rejected();
    [
        (Stat::Initiated, s.connect.started),
        (Stat::QueuePairs, s.queue_pairs_created),
        (Stat::Initiators, s.connect.xrc.initiators),
        (Stat::Targets, s.connect.xrc.targets),
        (Stat::DirectPeers, s.connect.xrc.direct),
        (Stat::IndirectPeers, s.connect.xrc.indirect),
        (Stat::Evictions, s.connect.evictions),
        (Stat::Reconnects, s.connect.reconnects),
        (Stat::ConnectMessages, messages),
        (Stat::ConnectRetransmissions, s.connect.retransmissions),
        (Stat::AtomicsServed, s.atomics_served),
        (Stat::PacketsSent, s.hca.packets_sent),
        (Stat::PacketsReceived, s.hca.packets_received),
        (Stat::BytesSent, s.hca.bytes_sent),
        (Stat::Streams, s.hca.streams_opened),
        (Stat::StreamBytes, s.hca.stream_bytes_sent),
        (Stat::Retransmissions, s.hca.retransmitted),
        (Stat::Duplicates, s.hca.duplicates),
        (Stat::OutOfSequence, s.hca.out_of_sequence),
        (Stat::SendRefusals, s.hca.send_refusals),
        (Stat::PacketsDropped, dropped),
    ]
}

/// Private and proportional memory of this process in bytes.
fn memory() -> Option<(u64, u64)> {
    let text = std::fs::read_to_string("/proc/self/smaps_rollup").ok()?;
    let field = |name: &str| -> Option<u64> {
        let line = text.lines().find(|l| l.starts_with(name))?;
        let kib: u64 = line.split_whitespace().nth(1)?.parse().ok()?;
        Some(kib * 1024)
    };
    let private = field("Private_Clean:")? + field("Private_Dirty:")?;
    Some((private, field("Pss:")?))
}
