//! The wire format between an NLA and its template: one SOCK_SEQPACKET message each way per batch.
//!
//! ```text
//! request   PEs to start, a [`PeSpec`] each; with descriptors, per PE: stdout, stderr, PMI socket, and
//!           stdin if it has one
//! reply     one word that says why the PE behind them was not started ([`Refusal`], or 0), and the process ids of
//!           those that were
//! ```
//! The NLA ends its direction when there is nothing more to start. Numbers are in the machine's byte
//! order: both ends are on one machine.

use std::fmt;
use std::os::fd::RawFd;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use super::lost::Lost;

/// PEs in one message at most. Bounds the descriptors that a template holds at any moment, all of
/// which a fork has to copy.
pub const MAX_BATCH: usize = 32;

/// Bytes that hold any message.
pub const MAX_MESSAGE: usize = size_of::<PeSpec>() * MAX_BATCH;

/// One PE to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct PeSpec {
    /// Rank in the job.
    pub rank: u32,
    /// Position on the node.
    pub local: u32,
    /// Not 0 if a descriptor for standard input comes with it; otherwise it is empty.
    pub has_stdin: u32,
}

impl PeSpec {
    /// Descriptors that come with this PE.
    pub fn fd_count(&self) -> usize {
        3 + usize::from(self.has_stdin != 0)
    }
}

/// What a template has to know before the first request, as words of one variable of its environment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TemplateStart {
    /// Its socket for requests.
    pub socket: RawFd,
    /// PEs of the node.
    pub n_local: u32,
    /// Whether it may execute PEs if forks would lose something.
    pub may_execute: bool,
}

impl TemplateStart {
    /// Reads what `Display` writes.
    pub fn parse(text: &str) -> Option<Self> {
        let mut words = text.split(' ');
        let start = Self {
            socket: words.next()?.parse().ok()?,
            n_local: words.next()?.parse().ok()?,
            may_execute: match words.next()? {
                "fork" => false,
                "any" => true,
                _ => return None,
            },
        };
        words.next().is_none().then_some(start)
    }
}

impl fmt::Display for TemplateStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let how = if self.may_execute { "any" } else { "fork" };
        write!(f, "{} {} {how}", self.socket, self.n_local)
    }
}

/// What could not be done for a PE.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Step {
    /// Creating its process, and executing its program unless the error is about that.
    Start,
    /// Binding it to processors.
    Bind,
    /// Going to the working directory of its program.
    Enter,
}

/// What messages say of [`Step::Bind`].
pub const BIND: &str = "bind to its processors (--bind-to)";

/// Why a PE was not started.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Refusal {
    /// What failed.
    pub step: Step,
    /// The error of the system call, below 65536.
    pub errno: i32,
}

impl Refusal {
    /// The refusal of a system call.
    pub fn of(step: Step, e: &std::io::Error) -> Self {
        let errno = e.raw_os_error().unwrap_or(libc::EIO);
        Self { step, errno }
    }

    /// As it is sent; the upper half is the step.
    fn word(self) -> i32 {
        self.errno & 0xffff | (self.step as i32) << 16
    }

    fn from_word(word: i32) -> Option<Self> {
        let step = match word >> 16 {
            0 => Step::Start,
            1 => Step::Bind,
            _ => Step::Enter,
        };
        (word != 0).then_some(Self {
            step,
            errno: word & 0xffff,
        })
    }
}

/// The first part of a reply.
#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Outcome {
    /// The [`Refusal`], or 0.
    refusal: i32,
    /// Why PEs are not forked, or 0.
    lost: u32,
}

/// What the template answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Started {
    /// Why the PE after the last pid could not be started, if one could not.
    pub refusal: Option<Refusal>,
    /// What forks would have lost: PEs were executed, or none was started if that was not wanted.
    pub lost: Lost,
    /// Process ids in the order of the request.
    pub pids: Vec<i32>,
}

/// A message that does not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of {0} bytes between launch agent and template")]
pub struct Malformed(pub usize);

/// The items of a message, of which there are up to [`MAX_BATCH`]; a buffer of bytes is not aligned for
/// them.
fn items<T: FromBytes>(bytes: &[u8]) -> Result<Vec<T>, Malformed> {
    let bad = Malformed(bytes.len());
    if bytes.len() > size_of::<T>() * MAX_BATCH {
        return Err(bad);
    }
    let items = bytes.chunks(size_of::<T>());
    items
        .map(|b| T::read_from_bytes(b).map_err(|_| bad))
        .collect()
}

/// Reads a request.
///
/// # Errors
/// If the bytes are none.
pub fn request(bytes: &[u8]) -> Result<Vec<PeSpec>, Malformed> {
    items(bytes)
}

impl Started {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let outcome = Outcome {
            refusal: self.refusal.map_or(0, Refusal::word),
            lost: self.lost.bits(),
        };
        [outcome.as_bytes(), self.pids.as_bytes()].concat()
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If the bytes are no reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let (Outcome { refusal, lost }, pids) =
            Outcome::read_from_prefix(bytes).map_err(|_| Malformed(bytes.len()))?;
        Ok(Self {
            refusal: Refusal::from_word(refusal),
            lost: Lost::from_bits(lost),
            pids: items(pids)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn requests_round_trip(pes in prop::collection::vec(any::<[u32; 3]>(), 0..=MAX_BATCH)) {
            let pes: Vec<PeSpec> = pes
                .into_iter()
                .map(|[rank, local, has_stdin]| PeSpec { rank, local, has_stdin })
                .collect();
            prop_assert_eq!(request(pes.as_bytes()), Ok(pes));
        }

        #[test]
        fn replies_round_trip(
            errno in 0..200,
            step in prop::sample::select(vec![Step::Start, Step::Bind, Step::Enter]),
            lost: u32,
            pids in prop::collection::vec(1i32.., 0..=MAX_BATCH),
        ) {
            let refusal = (errno != 0).then_some(Refusal { step, errno });
            let reply = Started { refusal, lost: Lost::from_bits(lost), pids };
            let bytes = reply.encode();
            prop_assert!(bytes.len() <= MAX_MESSAGE);
            prop_assert_eq!(Started::decode(&bytes), Ok(reply));
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = (request(&bytes), Started::decode(&bytes));
        }
    }

    #[test]
    fn what_a_template_has_to_know_is_read_as_it_is_written() {
        for may_execute in [false, true] {
            let start = TemplateStart {
                socket: 8,
                n_local: 4096,
                may_execute,
            };
            assert_eq!(TemplateStart::parse(&start.to_string()), Some(start));
        }
        for damaged in ["", "8", "8 1", "8 1 none", "8 1 any 2", "x 1 any"] {
            assert_eq!(TemplateStart::parse(damaged), None, "{damaged}");
        }
    }

    #[test]
    fn messages_that_are_cut_or_too_long_are_refused() {
        let pes = [PeSpec {
            rank: 1,
            local: 0,
            has_stdin: 1,
        }; MAX_BATCH + 1];
        assert!(request(pes.as_bytes()).is_err());
        assert!(request(&pes[..2].as_bytes()[1..]).is_err());
        let reply = Started {
            refusal: None,
            lost: Lost::default(),
            pids: vec![7; MAX_BATCH + 1],
        }
        .encode();
        assert!(Started::decode(&reply).is_err());
        assert!(Started::decode(&reply[..7]).is_err());
    }
}
