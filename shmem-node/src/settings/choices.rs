//! What can be chosen by a setting, and how it is written.

use super::value::{ValueError, choice, size};

/// When connections are made.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Connect {
    /// At the first operation towards a peer.
    OnDemand,
    /// All pairs of PEs on different nodes, before init returns.
    Static,
}

/// Over what kind of connection PEs of different nodes reach each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Transport {
    /// A reliable connection per pair of PEs.
    Rc,
    /// An extended reliable connection per PE and node.
    Xrc,
}

/// Who executes atomics of PEs on other nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Atomics {
    /// The HCA if its atomics are coherent with the processor's, else the owner of the word.
    Auto,
    /// The HCA.
    Hca,
    /// The PE that owns the word.
    Owner,
}

/// When heap pages get memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapCommit {
    /// When first touched.
    Lazy,
    /// Before the program starts.
    Reserve,
}

/// What of the node's symmetric memory a core file of a PE holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CoreFile {
    /// Nothing.
    None,
    /// The PE's own segment.
    Own,
    /// The segments of all PEs of the node, and what they share.
    All,
}

/// How symmetric memory is registered with the network device. Without effect on one node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapRegister {
    /// In parts, when they are used, where a registration takes the memory of its pages; else at
    /// once.
    Auto,
    /// All of it in init.
    Whole,
    /// In parts, when an allocation first reaches them.
    Grow,
    /// All of it in init, with a device that makes pages when they are touched; an error with others.
    OnDemandPaging,
}

/// How much room there is for static data that is symmetric.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StaticsSize {
    /// As much as the program needs, if it wants any.
    Auto,
    /// So many bytes.
    Bytes(u64),
}

/// What pages symmetric memory has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HeapPages {
    /// The kernel's usual ones.
    Default,
    /// Huge ones, set aside beforehand for whole heaps.
    Huge,
    /// Huge ones where the kernel can make them.
    Transparent,
}

/// Largest key-value store of a node in bytes: places in it are numbers of 32 bits, of 8 bytes each.
pub const STORE_MAX: usize = 16 << 30;

/// How PEs of a node read what PMI's fences have made visible; see [`crate::kvs`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u32)]
pub enum StoreKind {
    /// From shared memory, without a lock.
    Shared = 0,
    /// From shared memory, under one lock for readers and a writer.
    RwLock = 1,
    /// From shared memory, under a pair of locks per reader.
    TwoN = 2,
    /// By asking the launch agent.
    Message = 3,
}

impl StoreKind {
    /// The kind with this number.
    pub fn from_number(number: u32) -> Option<Self> {
        [Self::Shared, Self::RwLock, Self::TwoN, Self::Message]
            .into_iter()
            .find(|kind| *kind as u32 == number)
    }
}

/// How PEs are started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spawn {
    /// From a template where the program can be one, else by exec.
    Auto,
    /// From a template; an error for programs that cannot be one.
    Template,
    /// One exec per PE.
    Exec,
}

impl Spawn {
    /// What users call them.
    pub const WORDS: [(&'static str, Self); 3] = [
        ("auto", Self::Auto),
        ("template", Self::Template),
        ("exec", Self::Exec),
    ];
}

/// A batch system.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Batch {
    /// Slurm.
    Slurm,
    /// PBS, or Torque.
    Pbs,
    /// LSF.
    Lsf,
    /// Flux.
    Flux,
    /// Grid Engine.
    Sge,
}

impl Batch {
    /// What they are called in settings.
    pub const WORDS: [(&'static str, Self); 5] = [
        ("slurm", Self::Slurm),
        ("pbs", Self::Pbs),
        ("lsf", Self::Lsf),
        ("flux", Self::Flux),
        ("sge", Self::Sge),
    ];
}

/// Which batch system's allocation is used.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AllocationChoice {
    /// The one that the process is in.
    Auto,
    /// None.
    None,
    /// A certain one's.
    Of(Batch),
}

/// What starts launch agents on other hosts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LauncherChoice {
    /// The allocation's batch system, where all hosts are of it; else ssh.
    Auto,
    /// Nothing: all nodes are on this machine.
    Fork,
    /// The way of a batch system.
    Of(Batch),
    /// A command of these words.
    Command(Vec<String>),
}

/// Which PMI a process speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pmi {
    /// What suits the launcher.
    Auto,
    /// PMI-1.1.
    V1,
    /// PMI-2.0.
    V2,
    /// PMIx.
    Pmix,
    /// None: messages of MPI.
    Mpi,
}

/// Which pairs of PMI's key-value space a launch agent keeps.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PmiCache {
    /// What passed it, each put on its own.
    Hcs,
    /// What passed it, the puts before a fence in one message.
    Hcma,
    /// All.
    Hcmab,
    /// Of all, those that were used last.
    HcmabLru,
}

/// How many contexts have queue pairs of their own.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CtxQps {
    /// Some of those that ask for it.
    Auto,
    /// Up to so many that one thread at a time uses, or that ask for it.
    Most(u32),
}

/// How long to poll before sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// Decided from PEs and cores.
    Auto,
    /// This many polls.
    Polls(u32),
}

impl Spin {
    /// Polls where every PE has a core.
    ///
    /// A poll of the network takes about half a microsecond, so that a PE of a job with several nodes
    /// sleeps after 10 ms of silence: waking it would cost the peer 50 us. A poll of shared memory
    /// alone takes tens of nanoseconds; half a millisecond is ten wake-ups.
    const WITH_A_CORE: u32 = 20_000;

    /// How often a waiting PE polls since something last happened before it sleeps, where `pes` share the
    /// cores that this process may use. This is the one place that decides; the node segment carries the
    /// number to the PEs, and all their waiting obeys it.
    pub fn polls(self, pes: u32) -> u32 {
        let cores = || std::thread::available_parallelism().map_or(1, |n| n.get() as u64);
        match self {
            Self::Polls(n) => n,
            Self::Auto if pes <= 1 || u64::from(pes) <= cores() => Self::WITH_A_CORE,
            Self::Auto => 0,
        }
    }
}

pub(super) fn statics_size(text: &str) -> Result<StaticsSize, ValueError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(StaticsSize::Auto);
    }
    size(text).map(StaticsSize::Bytes)
}

pub(super) fn store(text: &str) -> Result<StoreKind, ValueError> {
    choice(
        text,
        &[
            ("shared", StoreKind::Shared),
            ("rwlock", StoreKind::RwLock),
            ("2n", StoreKind::TwoN),
            ("message", StoreKind::Message),
        ],
    )
}

/// Bytes of the store's log; `None` stands for auto.
pub(super) fn store_size(text: &str) -> Result<Option<u64>, ValueError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    match size(text)? {
        0 => Err(ValueError::OutOfRange),
        bytes if bytes > STORE_MAX as u64 => Err(ValueError::OutOfRange),
        bytes => Ok(Some(bytes)),
    }
}

pub(super) fn transport(text: &str) -> Result<Transport, ValueError> {
    choice(text, &[("rc", Transport::Rc), ("xrc", Transport::Xrc)])
}

pub(super) fn atomics(text: &str) -> Result<Atomics, ValueError> {
    choice(
        text,
        &[
            ("auto", Atomics::Auto),
            ("hca", Atomics::Hca),
            ("owner", Atomics::Owner),
        ],
    )
}

pub(super) fn connect(text: &str) -> Result<Connect, ValueError> {
    choice(
        text,
        &[("ondemand", Connect::OnDemand), ("static", Connect::Static)],
    )
}

pub(super) fn heap_commit(text: &str) -> Result<HeapCommit, ValueError> {
    choice(
        text,
        &[("lazy", HeapCommit::Lazy), ("reserve", HeapCommit::Reserve)],
    )
}

pub(super) fn core_file(text: &str) -> Result<CoreFile, ValueError> {
    let words = [
        ("none", CoreFile::None),
        ("own", CoreFile::Own),
        ("all", CoreFile::All),
    ];
    choice(text, &words)
}

pub(super) fn heap_register(text: &str) -> Result<HeapRegister, ValueError> {
    choice(
        text,
        &[
            ("auto", HeapRegister::Auto),
            ("whole", HeapRegister::Whole),
            ("grow", HeapRegister::Grow),
            ("odp", HeapRegister::OnDemandPaging),
        ],
    )
}

pub(super) fn heap_pages(text: &str) -> Result<HeapPages, ValueError> {
    choice(
        text,
        &[
            ("default", HeapPages::Default),
            ("huge", HeapPages::Huge),
            ("transparent", HeapPages::Transparent),
        ],
    )
}

pub(super) fn pmi_cache(text: &str) -> Result<PmiCache, ValueError> {
    choice(
        text,
        &[
            ("hcs", PmiCache::Hcs),
            ("hcma", PmiCache::Hcma),
            ("hcmab", PmiCache::Hcmab),
            ("hcmab-lru", PmiCache::HcmabLru),
        ],
    )
}

pub(super) fn spawn(text: &str) -> Result<Spawn, ValueError> {
    choice(text, &Spawn::WORDS)
}

pub(super) fn pmi(text: &str) -> Result<Pmi, ValueError> {
    let choices = [
        ("auto", Pmi::Auto),
        ("1", Pmi::V1),
        ("2", Pmi::V2),
        ("pmix", Pmi::Pmix),
        ("mpi", Pmi::Mpi),
    ];
    choice(text, &choices)
}

pub(super) fn spin(text: &str) -> Result<Spin, ValueError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(Spin::Auto);
    }
    text.trim()
        .parse()
        .map(Spin::Polls)
        .map_err(|_| ValueError::NotANumber)
}

pub(super) fn ctx_qps(text: &str) -> Result<CtxQps, ValueError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(CtxQps::Auto);
    }
    match text.trim().parse() {
        Ok(most @ 0..=64) => Ok(CtxQps::Most(most)),
        Ok(_) => Err(ValueError::OutOfRange),
        Err(_) => Err(ValueError::NotANumber),
    }
}

pub(super) fn tree_degree(text: &str) -> Result<u32, ValueError> {
    match text.trim().parse() {
        Ok(k @ (0 | 2..=128)) => Ok(k),
        Ok(_) => Err(ValueError::OutOfRange),
        Err(_) => Err(ValueError::NotANumber),
    }
}

pub(super) fn library(text: &str) -> Result<Option<String>, ValueError> {
    match text.trim() {
        "auto" => Ok(None),
        "" => Err(ValueError::Choice),
        path if path.contains('\0') => Err(ValueError::Choice),
        path => Ok(Some(path.to_owned())),
    }
}

pub(super) fn allocation(text: &str) -> Result<AllocationChoice, ValueError> {
    let words = [
        ("auto", AllocationChoice::Auto),
        ("none", AllocationChoice::None),
    ];
    choice(text, &words).or_else(|_| choice(text, &Batch::WORDS).map(AllocationChoice::Of))
}

/// A name of ours, or the words of a command, without any quoting.
pub(super) fn launcher(text: &str) -> Result<LauncherChoice, ValueError> {
    if let Ok(batch) = choice(text, &Batch::WORDS) {
        return Ok(LauncherChoice::Of(batch));
    }
    if let Ok(fork) = choice(text, &[("auto", false), ("fork", true)]) {
        return Ok(match fork {
            true => LauncherChoice::Fork,
            false => LauncherChoice::Auto,
        });
    }
    let words: Vec<String> = text.split_whitespace().map(str::to_owned).collect();
    match words.is_empty() || text.contains('\0') {
        true => Err(ValueError::Choice),
        false => Ok(LauncherChoice::Command(words)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn launchers_are_names_or_commands() {
        let command = |words: &[&str]| {
            let words = words.iter().map(|w| (*w).to_owned()).collect();
            Ok(LauncherChoice::Command(words))
        };
        assert_eq!(launcher("Auto"), Ok(LauncherChoice::Auto));
        assert_eq!(launcher("fork"), Ok(LauncherChoice::Fork));
        assert_eq!(launcher("slurm"), Ok(LauncherChoice::Of(Batch::Slurm)));
        assert_eq!(launcher("ssh"), command(&["ssh"]));
        assert_eq!(
            launcher(" dbclient -i  key {host} "),
            command(&["dbclient", "-i", "key", "{host}"])
        );
        assert_eq!(launcher("  "), Err(ValueError::Choice));
        assert_eq!(allocation("pbs"), Ok(AllocationChoice::Of(Batch::Pbs)));
        assert_eq!(allocation("none"), Ok(AllocationChoice::None));
        assert_eq!(allocation("ssh"), Err(ValueError::Choice));
    }

    #[test]
    fn a_library_is_a_file_or_the_one_that_fits() {
        assert_eq!(library("auto"), Ok(None));
        assert_eq!(library("/l/libpmix.so"), Ok(Some("/l/libpmix.so".into())));
        assert_eq!(library(" "), Err(ValueError::Choice));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (spin(&text), launcher(&text), store_size(&text));
        }
    }
}
