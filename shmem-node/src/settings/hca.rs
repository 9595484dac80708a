//! The settings that say which device a PE uses, as text. What is there, and which of it can be used,
//! is known only on the node, in `shmem-ib`.

use std::fmt;
use std::time::Duration;

use super::{ValueError, value};

/// What PEs of different nodes talk over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum HcaChoice {
    /// An RDMA device if there is a usable one, else the software HCA.
    Auto,
    /// The software HCA.
    Soft,
    /// The best port of an RDMA device.
    Verbs,
    /// One of these, by turns. Not empty.
    Ports(Vec<HcaPort>),
}

/// A device as a user names it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HcaPort {
    /// Its name, such as `mlx5_0`.
    pub device: String,
    /// The number of its port, from 1; `None`: the first that can be used.
    pub port: Option<u8>,
}

impl fmt::Display for HcaChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Soft => f.write_str("soft"),
            Self::Verbs => f.write_str("verbs"),
            Self::Ports(ports) => ports.iter().enumerate().try_for_each(|(i, port)| {
                let comma = if i > 0 { "," } else { "" };
                write!(f, "{comma}{port}")
            }),
        }
    }
}

impl fmt::Display for HcaPort {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.device)?;
        self.port.map_or(Ok(()), |port| write!(f, ":{port}"))
    }
}

pub(super) fn choice(text: &str) -> Result<HcaChoice, ValueError> {
    let text = text.trim();
    let is = |word| text.eq_ignore_ascii_case(word);
    if is("auto") {
        return Ok(HcaChoice::Auto);
    }
    if is("soft") {
        return Ok(HcaChoice::Soft);
    }
    if is("verbs") {
        return Ok(HcaChoice::Verbs);
    }
    let ports: Result<_, _> = text.split(',').map(|entry| port(entry.trim())).collect();
    ports.map(HcaChoice::Ports)
}

fn port(text: &str) -> Result<HcaPort, ValueError> {
    let (device, port) = match text.split_once(':') {
        Some((device, port)) => match port.trim().parse() {
            Ok(0) => return Err(ValueError::OutOfRange),
            Ok(port) => (device.trim(), Some(port)),
            Err(_) => return Err(ValueError::NotANumber),
        },
        None => (text, None),
    };
    // It becomes part of a path.
    let fits = |c: char| c.is_ascii_alphanumeric() || matches!(c, '_' | '-' | '.');
    let reserved = ["auto", "soft", "verbs", ".", "..", ""];
    let known = reserved
        .iter()
        .any(|word| word.eq_ignore_ascii_case(device));
    if known || !device.chars().all(fits) {
        return Err(ValueError::Choice);
    }
    Ok(HcaPort {
        device: device.to_owned(),
        port,
    })
}

pub(super) fn gid_index(text: &str) -> Result<Option<u8>, ValueError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    let index: u64 = text.parse().map_err(|_| ValueError::NotANumber)?;
    u8::try_from(index)
        .map(Some)
        .map_err(|_| ValueError::OutOfRange)
}

/// A partition key, as a number with or without `0x`.
pub(super) fn pkey(text: &str) -> Result<Option<u16>, ValueError> {
    let text = text.trim();
    if text.eq_ignore_ascii_case("auto") {
        return Ok(None);
    }
    let hex = text.strip_prefix("0x").or_else(|| text.strip_prefix("0X"));
    let key = hex.map_or_else(|| text.parse(), |digits| u64::from_str_radix(digits, 16));
    let key = u16::try_from(key.map_err(|_| ValueError::NotANumber)?);
    // Number 0, whatever the bit of full members, is no partition.
    key.ok()
        .filter(|key| key & 0x7fff != 0)
        .map(Some)
        .ok_or(ValueError::OutOfRange)
}

fn up_to(text: &str, most: u64) -> Result<u8, ValueError> {
    let number: u64 = text.trim().parse().map_err(|_| ValueError::NotANumber)?;
    let number = u8::try_from(number).ok();
    number
        .filter(|n| u64::from(*n) <= most)
        .ok_or(ValueError::OutOfRange)
}

pub(super) fn service_level(text: &str) -> Result<u8, ValueError> {
    up_to(text, 15)
}

pub(super) fn traffic_class(text: &str) -> Result<u8, ValueError> {
    up_to(text, 255)
}

pub(super) fn retries(text: &str) -> Result<u8, ValueError> {
    up_to(text, 7)
}

pub(super) fn route(text: &str) -> Result<bool, ValueError> {
    match text.trim().to_ascii_lowercase().as_str() {
        "auto" => Ok(false),
        "always" => Ok(true),
        _ => Err(ValueError::Choice),
    }
}

fn time(text: &str, least: Duration, most: Duration) -> Result<Duration, ValueError> {
    let time = value::duration(text)?;
    match (least..=most).contains(&time) {
        true => Ok(time),
        false => Err(ValueError::OutOfRange),
    }
}

pub(super) fn ack_timeout(text: &str) -> Result<Duration, ValueError> {
    time(text, Duration::from_micros(8), Duration::from_secs(8796))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn words_and_lists() {
        assert_eq!(choice(" Auto"), Ok(HcaChoice::Auto));
        assert_eq!(choice("soft"), Ok(HcaChoice::Soft));
        assert_eq!(choice("VERBS"), Ok(HcaChoice::Verbs));
        let port = |device: &str, port| HcaPort {
            device: device.into(),
            port,
        };
        let list = HcaChoice::Ports(vec![port("mlx5_0", Some(2)), port("rxe1", None)]);
        assert_eq!(choice("mlx5_0:2, rxe1"), Ok(list.clone()));
        assert_eq!(list.to_string(), "mlx5_0:2,rxe1");
    }

    #[test]
    fn what_names_no_device_is_refused() {
        for text in ["", ",", "mlx5_0,", "soft,mlx5_0", "a/b", "..", "a b"] {
            assert_eq!(choice(text), Err(ValueError::Choice), "{text}");
        }
        assert_eq!(choice("a:0"), Err(ValueError::OutOfRange));
        assert_eq!(choice("a:x"), Err(ValueError::NotANumber));
        assert_eq!(choice("a:256"), Err(ValueError::NotANumber));
    }

    #[test]
    fn indices_fit_into_a_byte() {
        assert_eq!(gid_index("auto"), Ok(None));
        assert_eq!(gid_index("3"), Ok(Some(3)));
        assert_eq!(gid_index("256"), Err(ValueError::OutOfRange));
        assert_eq!(gid_index("-1"), Err(ValueError::NotANumber));
    }

    #[test]
    fn partition_keys_are_numbers_of_partitions() {
        assert_eq!(pkey("Auto"), Ok(None));
        assert_eq!(pkey("0x8001"), Ok(Some(0x8001)));
        assert_eq!(pkey(" 18"), Ok(Some(18)));
        assert_eq!(pkey("0xFFFF"), Ok(Some(0xffff)));
        for none in ["0", "0x8000", "0x10000"] {
            assert_eq!(pkey(none), Err(ValueError::OutOfRange), "{none}");
        }
        for none in ["", "0x", "8001h", "-1"] {
            assert_eq!(pkey(none), Err(ValueError::NotANumber), "{none}");
        }
    }

    #[test]
    fn numbers_and_times_have_the_ranges_of_queue_pairs() {
        assert_eq!(
            (service_level("15"), traffic_class("255"), retries("7")),
            (Ok(15), Ok(255), Ok(7))
        );
        for out in [service_level("16"), traffic_class("256"), retries("8")] {
            assert_eq!(out, Err(ValueError::OutOfRange));
        }
        assert_eq!(traffic_class("-1"), Err(ValueError::NotANumber));
        assert_eq!((route("auto"), route("Always")), (Ok(false), Ok(true)));
        assert_eq!(route("yes"), Err(ValueError::Choice));
        assert_eq!(ack_timeout("67ms"), Ok(Duration::from_millis(67)));
        for out in [ack_timeout("1us"), ack_timeout("3h")] {
            assert_eq!(out, Err(ValueError::OutOfRange));
        }
    }

    proptest! {
        #[test]
        fn no_text_panics_and_what_is_read_is_written_alike(text in "[a-z0-9_:, .]*") {
            if let Ok(read) = choice(&text) {
                prop_assert_eq!(choice(&read.to_string()), Ok(read));
            }
        }
    }
}
