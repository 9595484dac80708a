//! What a PE tells about its own start-up and traffic, for `shmrun --report`.
//!
//! A PE writes its record into its block of the node segment; the NLA reads it when the PE has
//! ended. No message is sent for it and an idle report costs nothing.

use std::sync::atomic::{AtomicU64, Ordering};

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

macro_rules! stats {
    ($($variant:ident, $name:literal, $unit:ident;)*) => {
        /// The figures of a record.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(usize)]
        pub enum Stat { $( #[doc = $name] $variant, )* }

        /// Name and unit of every figure, in the order of [`Stat`].
        pub const STATS: &[(&str, Unit)] = &[ $( ($name, Unit::$unit), )* ];
    };
}

/// What a figure counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Nanoseconds.
    Ns,
    /// Bytes.
    Bytes,
    /// Things.
    Count,
}

stats! {
    InitWall, "init wall", Ns;
    InitCpu, "init CPU", Ns;
    MapWall, "init: map segment wall", Ns;
    MapCpu, "init: map segment CPU", Ns;
    EndpointWall, "init: UD endpoint wall", Ns;
    EndpointCpu, "init: UD endpoint CPU", Ns;
    GatherWall, "init: start allgather wall", Ns;
    GatherCpu, "init: start allgather CPU", Ns;
    RegisterWall, "init: register heap wall", Ns;
    RegisterCpu, "init: register heap CPU", Ns;
    Registered, "memory of the heap registered", Bytes;
    RegisteringWall, "registering the heap, also later", Ns;
    ConnectWall, "init: static connections wall", Ns;
    ConnectCpu, "init: static connections CPU", Ns;
    BarrierWall, "init: node barrier wall", Ns;
    BarrierCpu, "init: node barrier CPU", Ns;
    InitConnections, "connections made in init", Count;
    Connections, "connections", Count;
    Initiated, "connections initiated", Count;
    FirstConnection, "first connection, after start", Ns;
    LastConnection, "last connection, after start", Ns;
    FirstContactMean, "first contact, mean", Ns;
    FirstContactMedian, "first contact, median", Ns;
    FirstContactP99, "first contact, 99th percentile", Ns;
    FirstContactMax, "first contact, longest", Ns;
    QueuePairs, "queue pairs", Count;
    Initiators, "XRC initiator queue pairs", Count;
    Targets, "XRC target queue pairs", Count;
    DirectPeers, "direct peers", Count;
    IndirectPeers, "indirect peers", Count;
    Evictions, "connections closed to make room", Count;
    Reconnects, "connections opened anew", Count;
    ConnectMessages, "connection messages sent", Count;
    ConnectRetransmissions, "connection retransmissions", Count;
    AtomicsServed, "atomics served as owner", Count;
    Looks, "looks of sleepers", Count;
    PacketsSent, "packets sent", Count;
    PacketsReceived, "packets received", Count;
    BytesSent, "bytes sent", Bytes;
    Streams, "streams opened", Count;
    StreamBytes, "bytes sent by streams", Bytes;
    Retransmissions, "packets retransmitted", Count;
    Duplicates, "duplicate packets received", Count;
    OutOfSequence, "packets out of sequence", Count;
    SendRefusals, "datagrams refused by the kernel", Count;
    PacketsDropped, "packets dropped (damaged, late or of strangers)", Count;
    PrivateMemory, "private memory", Bytes;
    ProportionalMemory, "proportional memory", Bytes;
    FinalizeWall, "finalize wall", Ns;
    FinalizeCpu, "finalize CPU", Ns;
    InitDoneAt, "init done at", Ns;
    FinalizeDoneAt, "finalize done at", Ns;
}

/// Number of figures.
pub const STAT_COUNT: usize = STATS.len();

/// One PE's record in shared memory.
#[repr(C)]
#[derive(Debug)]
pub struct StatsRecord([AtomicU64; STAT_COUNT]);

impl Default for StatsRecord {
    fn default() -> Self {
        Self(std::array::from_fn(|_| AtomicU64::new(0)))
    }
}

impl StatsRecord {
    /// Stores one figure.
    pub fn set(&self, stat: Stat, value: u64) {
        self.0[stat as usize].store(value, Ordering::Relaxed);
    }

    /// Adds to one figure.
    pub fn add(&self, stat: Stat, more: u64) {
        self.0[stat as usize].fetch_add(more, Ordering::Relaxed);
    }

    /// Copies the record.
    pub fn read(&self) -> PeStats {
        PeStats(std::array::from_fn(|i| self.0[i].load(Ordering::Relaxed)))
    }
}

/// A copy of one PE's record. `*At` figures are on the machine's monotonic clock.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeStats(pub [u64; STAT_COUNT]);

/// Figures that are moments.
pub const MOMENTS: [Stat; 2] = [Stat::InitDoneAt, Stat::FinalizeDoneAt];

impl PeStats {
    /// Adds `shift`, modulo 2^64, to the moments that it has.
    pub fn shift(&mut self, shift: u64) {
        for stat in MOMENTS {
            let at = &mut self.0[stat as usize];
            if *at != 0 {
                *at = at.wrapping_add(shift);
            }
        }
    }

    /// One figure.
    pub fn get(&self, stat: Stat) -> u64 {
        self.0[stat as usize]
    }
}

impl Serialize for PeStats {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.as_slice().serialize(serializer)
    }
}

impl<'de> Deserialize<'de> for PeStats {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let figures = Vec::<u64>::deserialize(deserializer)?;
        let figures = <[u64; STAT_COUNT]>::try_from(figures);
        let wrong = |f: Vec<u64>| D::Error::custom(format!("{} figures of {STAT_COUNT}", f.len()));
        figures.map(Self).map_err(wrong)
    }
}
