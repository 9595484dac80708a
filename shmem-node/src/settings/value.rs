//! What a setting's value may look like, and what it means.

use std::net::IpAddr;
use std::time::Duration;

use crate::hca_address::{AddressChoice, PortChoice};

/// Why a value was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum ValueError {
    /// No number where one was expected.
    #[error("not a number")]
    NotANumber,
    /// A number outside of what makes sense.
    #[error("out of range")]
    OutOfRange,
    /// A unit that does not exist.
    #[error("unknown unit '{0}'")]
    Unit(String),
    /// A word that is not among the choices.
    #[error("not one of the choices")]
    Choice,
    /// Right by itself, but not together with another setting.
    #[error("not possible with {0}")]
    Conflict(&'static str),
}

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

/// Which messages of software HCAs go by streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StreamChoice {
    /// Those that are faster by one.
    Auto,
    /// None.
    Never,
    /// Those of at least so many bytes.
    From(u32),
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
    /// From shared memory, under one lock of the threads library for readers and a writer.
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

/// Faults injected into outgoing datagrams, in parts per million.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Faults {
    /// Datagrams not sent.
    pub drop_ppm: u32,
    /// Datagrams sent twice.
    pub duplicate_ppm: u32,
    /// Datagrams held back behind later ones.
    pub reorder_ppm: u32,
    /// Start of the random sequence.
    pub seed: u64,
    /// Whether nothing is told of what peers write, as with RDMA devices.
    pub silent: bool,
}

/// Bytes: a non-negative decimal number, an optional unit of which only the first letter counts
/// (OpenSHMEM 1.6 section 8), rounded up.
pub(super) fn size(text: &str) -> Result<u64, ValueError> {
    let (number, unit) = split_number(text)?;
    let scale = match unit.chars().next().map(|c| c.to_ascii_lowercase()) {
        None => 1u64,
        Some('k') => 1 << 10,
        Some('m') => 1 << 20,
        Some('g') => 1 << 30,
        Some('t') => 1 << 40,
        Some(_) => return Err(ValueError::Unit(unit.to_owned())),
    };
    let bytes = (number * scale as f64).ceil();
    // 2^46 bytes is half of what a process can map.
    if bytes <= (1u64 << 46) as f64 {
        Ok(bytes as u64)
    } else {
        Err(ValueError::OutOfRange)
    }
}

pub(super) fn statics_size(text: &str) -> Result<StaticsSize, ValueError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(StaticsSize::Auto);
    }
    size(text).map(StaticsSize::Bytes)
}

pub(super) fn stream(text: &str) -> Result<StreamChoice, ValueError> {
    let is = |word| text.trim().eq_ignore_ascii_case(word);
    if is("auto") {
        return Ok(StreamChoice::Auto);
    }
    if is("never") {
        return Ok(StreamChoice::Never);
    }
    let bytes = u32::try_from(size(text)?).map_err(|_| ValueError::OutOfRange)?;
    match bytes {
        0 => Err(ValueError::OutOfRange),
        bytes => Ok(StreamChoice::From(bytes)),
    }
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

/// A variable that counts when it is set, whatever to (OpenSHMEM 1.6 section 8). The default is the
/// word for one that is not.
pub(super) fn present(text: &str) -> Result<bool, ValueError> {
    Ok(text != "unset")
}

pub(super) fn count(text: &str) -> Result<u32, ValueError> {
    text.trim().parse().map_err(|_| ValueError::NotANumber)
}

pub(super) fn duration(text: &str) -> Result<Duration, ValueError> {
    let (number, unit) = split_number(text)?;
    let seconds = match unit {
        "us" => number * 1e-6,
        "ms" => number * 1e-3,
        "" | "s" => number,
        "m" | "min" => number * 60.0,
        "h" => number * 3600.0,
        _ => return Err(ValueError::Unit(unit.to_owned())),
    };
    Duration::try_from_secs_f64(seconds)
        .ok()
        .filter(|d| *d <= Duration::from_secs(1_000_000))
        .ok_or(ValueError::OutOfRange)
}

fn split_number(text: &str) -> Result<(f64, &str), ValueError> {
    let text = text.trim();
    let end = text
        .find(|c: char| !c.is_ascii_digit() && c != '.')
        .unwrap_or(text.len());
    let number: f64 = text[..end].parse().map_err(|_| ValueError::NotANumber)?;
    Ok((number, text[end..].trim()))
}

fn choice<T: Copy>(text: &str, choices: &[(&str, T)]) -> Result<T, ValueError> {
    let text = text.trim();
    choices
        .iter()
        .find(|(word, _)| word.eq_ignore_ascii_case(text))
        .map(|&(_, value)| value)
        .ok_or(ValueError::Choice)
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

pub(super) fn tree_degree(text: &str) -> Result<u32, ValueError> {
    match text.trim().parse() {
        Ok(k @ (0 | 2..=128)) => Ok(k),
        Ok(_) => Err(ValueError::OutOfRange),
        Err(_) => Err(ValueError::NotANumber),
    }
}

pub(super) fn port(text: &str) -> Result<PortChoice, ValueError> {
    let number = |text: &str| -> Result<u16, ValueError> {
        let port: u64 = text.trim().parse().map_err(|_| ValueError::NotANumber)?;
        u16::try_from(port).map_err(|_| ValueError::OutOfRange)
    };
    let Some((first, last)) = text.split_once('-') else {
        return Ok(match number(text)? {
            0 => PortChoice::Any,
            port => PortChoice::One(port),
        });
    };
    match (number(first)?, number(last)?) {
        (first @ 1.., last) if first < last => Ok(PortChoice::Among(first, last)),
        _ => Err(ValueError::OutOfRange),
    }
}

pub(super) fn netns(text: &str) -> Result<Option<String>, ValueError> {
    match text.trim() {
        "none" => Ok(None),
        path if path.starts_with('/') && !path.contains('\0') => Ok(Some(path.to_owned())),
        _ => Err(ValueError::Choice),
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

pub(super) fn address(text: &str) -> Result<AddressChoice, ValueError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("auto") {
        return Ok(AddressChoice::Auto);
    }
    if text.contains('/') {
        let network = text.parse().map_err(|_| ValueError::Choice)?;
        return Ok(AddressChoice::Network(network));
    }
    let (text, choice): (_, fn(IpAddr) -> AddressChoice) = match text.strip_suffix('+') {
        Some(first) => (first, AddressChoice::From),
        None => (text, AddressChoice::Shared),
    };
    let ip: IpAddr = text.parse().map_err(|_| ValueError::Choice)?;
    if ip.is_unspecified() || ip.is_multicast() {
        return Err(ValueError::OutOfRange);
    }
    Ok(choice(ip.to_canonical()))
}

pub(super) fn yes_no(text: &str) -> Result<bool, ValueError> {
    choice(text, &[("yes", true), ("no", false)])
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

pub(super) fn at_least_one(text: &str) -> Result<u32, ValueError> {
    match count(text)? {
        0 => Err(ValueError::OutOfRange),
        n => Ok(n),
    }
}

pub(super) fn mtu(text: &str) -> Result<u32, ValueError> {
    if text.trim().eq_ignore_ascii_case("auto") {
        return Ok(0);
    }
    match text.trim().parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096 | 61_440)) => Ok(mtu),
        Ok(_) => Err(ValueError::OutOfRange),
        Err(_) => Err(ValueError::NotANumber),
    }
}

pub(super) fn faults(text: &str) -> Result<Faults, ValueError> {
    let mut faults = Faults::default();
    if text.trim().eq_ignore_ascii_case("none") {
        return Ok(faults);
    }
    for part in text.split(',') {
        if part.trim() == "silent" {
            faults.silent = true;
            continue;
        }
        let (key, value) = part.split_once('=').ok_or(ValueError::Choice)?;
        match key.trim() {
            "drop" => faults.drop_ppm = percent(value)?,
            "duplicate" => faults.duplicate_ppm = percent(value)?,
            "reorder" => faults.reorder_ppm = percent(value)?,
            "seed" => faults.seed = value.trim().parse().map_err(|_| ValueError::NotANumber)?,
            _ => return Err(ValueError::Choice),
        }
    }
    Ok(faults)
}

fn percent(text: &str) -> Result<u32, ValueError> {
    let (number, unit) = split_number(text)?;
    let ppm = match unit {
        "%" => number * 1e4,
        "ppm" => number,
        _ => return Err(ValueError::Unit(unit.to_owned())),
    };
    if ppm <= 1e6 {
        Ok(ppm.round() as u32)
    } else {
        Err(ValueError::OutOfRange)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn sizes_follow_the_specification() {
        assert_eq!(size("20kk"), Ok(20 << 10));
        assert_eq!(size(".5m"), Ok(512 << 10));
        assert_eq!(size("1.5G"), Ok(3 << 29));
        assert_eq!(size("7"), Ok(7));
        assert_eq!(size("1.2"), Ok(2));
        assert_eq!(size("0"), Ok(0));
        assert_eq!(size("-1"), Err(ValueError::NotANumber));
        assert_eq!(size("many"), Err(ValueError::NotANumber));
        assert_eq!(size("1x"), Err(ValueError::Unit("x".into())));
        assert_eq!(size("1000t"), Err(ValueError::OutOfRange));
    }

    #[test]
    fn durations_have_units() {
        assert_eq!(duration("250ms"), Ok(Duration::from_millis(250)));
        assert_eq!(duration("2m"), Ok(Duration::from_secs(120)));
        assert_eq!(duration("1.5"), Ok(Duration::from_millis(1500)));
        assert!(duration("5 parsecs").is_err());
    }

    #[test]
    fn ports_are_any_or_one_or_a_range() {
        assert_eq!(port("0"), Ok(PortChoice::Any));
        assert_eq!(port(" 4791 "), Ok(PortChoice::One(4791)));
        assert_eq!(port("20000-20099"), Ok(PortChoice::Among(20_000, 20_099)));
        assert_eq!(port("20000 - 20001"), Ok(PortChoice::Among(20_000, 20_001)));
        for wrong in ["-1", "65536", "5-5", "6-5", "0-5", "5-65536"] {
            assert!(port(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn addresses_are_shared_or_begin_a_row() {
        let ip = |text: &str| text.parse().unwrap();
        assert_eq!(address("auto"), Ok(AddressChoice::Auto));
        assert_eq!(address("::1"), Ok(AddressChoice::Shared(ip("::1"))));
        assert_eq!(
            address("127.3.0.1+"),
            Ok(AddressChoice::From(ip("127.3.0.1")))
        );
        assert_eq!(
            address("10.5.0.0/24"),
            Ok(AddressChoice::Network("10.5.0.0/24".parse().unwrap()))
        );
        assert_eq!(address("10.5.0.0/x"), Err(ValueError::Choice));
        assert_eq!(address("0.0.0.0"), Err(ValueError::OutOfRange));
        assert_eq!(address("here"), Err(ValueError::Choice));
    }

    #[test]
    fn faults_are_a_list() {
        let want = Faults {
            drop_ppm: 10_000,
            duplicate_ppm: 5_000,
            reorder_ppm: 25,
            seed: 7,
            silent: true,
        };
        assert_eq!(
            faults("drop=1%,duplicate=0.5%,silent,reorder=25ppm,seed=7"),
            Ok(want)
        );
        assert_eq!(faults("none"), Ok(Faults::default()));
        assert_eq!(faults("drop=101%"), Err(ValueError::OutOfRange));
        assert_eq!(faults("lose=1%"), Err(ValueError::Choice));
    }

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
        assert_eq!(at_least_one("0"), Err(ValueError::OutOfRange));
    }

    #[test]
    fn paths_have_an_mtu() {
        assert_eq!((mtu("auto"), mtu("1024")), (Ok(0), Ok(1024)));
    }

    #[test]
    fn streams_are_for_long_messages_or_none() {
        assert_eq!(stream("auto"), Ok(StreamChoice::Auto));
        assert_eq!(stream(" Never"), Ok(StreamChoice::Never));
        assert_eq!(stream("64k"), Ok(StreamChoice::From(65_536)));
        assert_eq!(stream("0"), Err(ValueError::OutOfRange));
        assert_eq!(stream("4g"), Err(ValueError::OutOfRange));
        assert!(stream("no").is_err());
    }

    #[test]
    fn a_library_is_a_file_or_the_one_that_fits() {
        assert_eq!(library("auto"), Ok(None));
        assert_eq!(library("/l/libpmix.so"), Ok(Some("/l/libpmix.so".into())));
        assert_eq!(library(" "), Err(ValueError::Choice));
    }

    #[test]
    fn namespaces_are_a_path_or_none() {
        assert_eq!(netns("none"), Ok(None));
        assert_eq!(netns("/run/netns/n"), Ok(Some("/run/netns/n".into())));
        assert_eq!(netns("n"), Err(ValueError::Choice));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (size(&text), duration(&text), faults(&text), spin(&text), port(&text), address(&text));
        }
    }
}
