//! The settings of the software HCA, as text.

use std::net::IpAddr;

use super::value::{ValueError, percent, size};
use crate::hca_address::{AddressChoice, PortChoice};

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

pub(super) fn tcp_port(text: &str) -> Result<u16, ValueError> {
    let port: u64 = text.trim().parse().map_err(|_| ValueError::NotANumber)?;
    u16::try_from(port).map_err(|_| ValueError::OutOfRange)
}

pub(super) fn port(text: &str) -> Result<PortChoice, ValueError> {
    let number = tcp_port;
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

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
    fn namespaces_are_a_path_or_none() {
        assert_eq!(netns("none"), Ok(None));
        assert_eq!(netns("/run/netns/n"), Ok(Some("/run/netns/n".into())));
        assert_eq!(netns("n"), Err(ValueError::Choice));
    }

    proptest! {
        #[test]
        fn no_text_panics(text in ".*") {
            let _ = (faults(&text), port(&text), address(&text));
        }
    }
}
