//! What a setting's value may look like, and what it means.

use std::net::IpAddr;
use std::time::Duration;

use crate::hca_address::AddressChoice;

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

/// How long to poll before sleeping.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Spin {
    /// Decided by the launcher from PEs and cores.
    Auto,
    /// This many polls.
    Polls(u32),
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

pub(super) fn spawn(text: &str) -> Result<Spawn, ValueError> {
    choice(
        text,
        &[
            ("auto", Spawn::Auto),
            ("template", Spawn::Template),
            ("exec", Spawn::Exec),
        ],
    )
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

pub(super) fn port(text: &str) -> Result<u16, ValueError> {
    let port: u64 = text.trim().parse().map_err(|_| ValueError::NotANumber)?;
    u16::try_from(port).map_err(|_| ValueError::OutOfRange)
}

pub(super) fn netns(text: &str) -> Result<Option<String>, ValueError> {
    match text.trim() {
        "none" => Ok(None),
        path if path.starts_with('/') && !path.contains('\0') => Ok(Some(path.to_owned())),
        _ => Err(ValueError::Choice),
    }
}

pub(super) fn address(text: &str) -> Result<AddressChoice, ValueError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("auto") {
        return Ok(AddressChoice::Auto);
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

pub(super) fn mtu(text: &str) -> Result<u32, ValueError> {
    match text.trim().parse() {
        Ok(mtu @ (256 | 512 | 1024 | 2048 | 4096)) => Ok(mtu),
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
    fn addresses_are_shared_or_begin_a_row() {
        let ip = |text: &str| text.parse().unwrap();
        assert_eq!(address("auto"), Ok(AddressChoice::Auto));
        assert_eq!(address("::1"), Ok(AddressChoice::Shared(ip("::1"))));
        assert_eq!(
            address("127.3.0.1+"),
            Ok(AddressChoice::From(ip("127.3.0.1")))
        );
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
        };
        assert_eq!(
            faults("drop=1%,duplicate=0.5%,reorder=25ppm,seed=7"),
            Ok(want)
        );
        assert_eq!(faults("none"), Ok(Faults::default()));
        assert_eq!(faults("drop=101%"), Err(ValueError::OutOfRange));
        assert_eq!(faults("lose=1%"), Err(ValueError::Choice));
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
