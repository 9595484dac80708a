//! What a PE of an OpenSHMEM program says to its launch agent: the addresses of its node, and words for the
//! user. All PEs of a node have one socket for that, of their own: the one of PMI belongs to whoever else speaks
//! PMI in the process, such as an MPI library.
//!
//! A message is a packet, so that those of several PEs do not mix: a header, and bytes behind it. Nobody
//! answers. Numbers are in the machine's byte order: both ends are on one machine.

use std::fmt;
use std::io;
use std::os::fd::BorrowedFd;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::address::{ADDRESS_LEN, GROUP};
use crate::sys;
use crate::text::beginning;

/// Longest text in bytes; of a longer one this much is said.
pub const TEXT_MAX: usize = 24 << 10;

/// Bytes that hold any message.
pub const MESSAGE_MAX: usize = size_of::<Header>() + {
    match TEXT_MAX > GROUP * ADDRESS_LEN {
        true => TEXT_MAX,
        false => GROUP * ADDRESS_LEN,
    }
};

/// A message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ToAgent<'a> {
    /// UD addresses of as many PEs as there are, from the one at position `first` on the node: what they bring to
    /// the job's exchange of addresses.
    Addresses {
        /// Position of the first.
        first: u32,
        /// [`ADDRESS_LEN`] bytes of each.
        bytes: &'a [u8],
    },
    /// The PE at position `local` wants the job to end.
    Abort {
        /// Position on the node.
        local: u32,
        /// Exit status of the job.
        status: i32,
        /// Why.
        text: &'a str,
    },
    /// The user is to read something of the PE at position `local`.
    Tell {
        /// Position on the node.
        local: u32,
        /// The words.
        text: &'a str,
        /// Whether they only add to what the PE has said before.
        adds: bool,
    },
    /// The PE at position `local` is in finalize, the first of its node.
    Leaves {
        /// Position on the node.
        local: u32,
    },
}

#[derive(Debug, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct Header {
    kind: u32,
    pe: u32,
    number: i32,
}

const ADDRESSES: u32 = 1;
const ABORT: u32 = 2;
const TELL: u32 = 3;
const LEAVES: u32 = 4;

/// A packet that is none of these messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("a packet of {0} bytes from a PE that its agent does not understand")]
pub struct NotUnderstood(pub usize);

/// The beginning of a text that fits.
fn cut(text: &str) -> &[u8] {
    beginning(text, TEXT_MAX).as_bytes()
}

impl<'a> ToAgent<'a> {
    /// The packet.
    pub fn encode(&self) -> Vec<u8> {
        let (header, bytes) = match *self {
            Self::Addresses { first, bytes } => ((ADDRESSES, first, 0), bytes),
            Self::Abort {
                local,
                status,
                text,
            } => ((ABORT, local, status), cut(text)),
            Self::Tell { local, text, adds } => ((TELL, local, i32::from(adds)), cut(text)),
            Self::Leaves { local } => ((LEAVES, local, 0), &[][..]),
        };
        let (kind, pe, number) = header;
        [Header { kind, pe, number }.as_bytes(), bytes].concat()
    }

    /// Reads a packet that came at the node of `n_local` PEs.
    ///
    /// # Errors
    /// If it is no message of one of them.
    pub fn decode(packet: &'a [u8], n_local: u32) -> Result<Self, NotUnderstood> {
        let bad = NotUnderstood(packet.len());
        let (header, bytes) = Header::read_from_prefix(packet).map_err(|_| bad)?;
        let Header { kind, pe, number } = header;
        let text = || std::str::from_utf8(bytes).map_err(|_| bad);
        let pes = match kind {
            ADDRESSES => bytes.len() / ADDRESS_LEN,
            _ => 1,
        };
        let most = match kind {
            ADDRESSES => GROUP * ADDRESS_LEN,
            _ => TEXT_MAX,
        };
        if pe as usize + pes > n_local as usize || pes == 0 || bytes.len() > most {
            return Err(bad);
        }
        match (kind, number) {
            (ADDRESSES, 0) if bytes.len().is_multiple_of(ADDRESS_LEN) => {
                Ok(Self::Addresses { first: pe, bytes })
            }
            (ABORT, status) => Ok(Self::Abort {
                local: pe,
                status,
                text: text()?,
            }),
            (TELL, 0 | 1) => Ok(Self::Tell {
                local: pe,
                text: text()?,
                adds: number == 1,
            }),
            (LEAVES, 0) if bytes.is_empty() => Ok(Self::Leaves { local: pe }),
            _ => Err(bad),
        }
    }

    /// Sends the packet. Waits while the agent has too many to read, though any of the processes that share the
    /// socket may have made it one that does not wait.
    ///
    /// # Errors
    /// The agent has gone.
    pub fn send(&self, socket: BorrowedFd<'_>) -> io::Result<()> {
        let packet = self.encode();
        loop {
            match sys::send_with_fds(socket, &packet, &[]) {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    sys::wait_writable(socket, false, None)?;
                }
                sent => return sent.map(drop),
            }
        }
    }
}

impl fmt::Display for ToAgent<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Addresses { .. } => "hand over the addresses of its node",
            Self::Abort { .. } => "have the job ended",
            Self::Tell { .. } => "have the user told something",
            Self::Leaves { .. } => "report that it is in finalize",
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use std::os::fd::AsFd;
    use std::time::Duration;

    fn messages<'a>(bytes: &'a [u8], text: &'a str) -> [ToAgent<'a>; 5] {
        let (local, first) = (1, 1);
        let tell = |adds| ToAgent::Tell { local, text, adds };
        let status = -3;
        [
            ToAgent::Addresses { first, bytes },
            ToAgent::Abort {
                local,
                status,
                text,
            },
            tell(false),
            tell(true),
            ToAgent::Leaves { local: 2 },
        ]
    }

    #[test]
    fn messages_come_back_and_those_of_nobody_are_refused() {
        for said in messages(&[7; 2 * ADDRESS_LEN], "gave up") {
            let packet = said.encode();
            assert_eq!(ToAgent::decode(&packet, 3), Ok(said));
            // The header comes first, and then what may be empty.
            assert!(ToAgent::decode(&packet[..11], 3).is_err(), "{said:?}");
            assert!(ToAgent::decode(&packet, 1).is_err(), "{said:?}");
        }
        // As a reader finds what was longer than its buffer.
        let mut cut = messages(&[], &"x".repeat(TEXT_MAX))[1].encode();
        cut.resize(MESSAGE_MAX + 1, b'x');
        assert!(ToAgent::decode(&cut, 3).is_err());
        let odd = messages(&[7; ADDRESS_LEN + 1], "")[0].encode();
        let none = messages(&[], "")[0].encode();
        for packet in [odd, none] {
            assert!(ToAgent::decode(&packet, 3).is_err());
        }
    }

    #[test]
    fn long_texts_are_cut_between_letters() {
        let long = "ä;".repeat(TEXT_MAX);
        let packet = messages(&[], &long)[1].encode();
        assert!(packet.len() <= MESSAGE_MAX);
        let said = ToAgent::decode(&packet, 2).unwrap();
        assert!(
            matches!(said, ToAgent::Abort { text, .. } if text == &long[..TEXT_MAX]),
            "{said}"
        );
    }

    #[test]
    fn what_is_said_over_a_full_socket_that_does_not_wait_arrives() {
        let (ours, theirs) = rustix::net::socketpair(
            rustix::net::AddressFamily::UNIX,
            rustix::net::SocketType::SEQPACKET,
            rustix::net::SocketFlags::CLOEXEC,
            None,
        )
        .unwrap();
        rustix::io::ioctl_fionbio(&theirs, true).unwrap();
        let said = messages(&[], "much to say")[1];
        let mut there = 1;
        while sys::send_now(theirs.as_fd(), &said.encode()).is_ok() {
            there += 1;
        }
        std::thread::scope(|scope| {
            let sender = scope.spawn(|| said.send(theirs.as_fd()));
            let mut packet = [0; MESSAGE_MAX + 1];
            for _ in 1..there {
                let (n, _) = sys::recv_with_fds(ours.as_fd(), &mut packet).unwrap();
                assert_eq!(ToAgent::decode(&packet[..n], 3), Ok(said));
            }
            sender.join().unwrap().unwrap();
        });
        let soon = Duration::from_millis(20);
        assert!(
            !sys::wait_read(theirs.as_fd(), soon).unwrap(),
            "one is left"
        );
        std::thread::scope(|scope| {
            let waits = scope.spawn(|| sys::wait_read(theirs.as_fd(), Duration::from_secs(60)));
            sys::recv_with_fds(ours.as_fd(), &mut [0; MESSAGE_MAX]).unwrap();
            assert!(waits.join().unwrap().unwrap());
        });
        drop(ours);
        assert!(said.send(theirs.as_fd()).is_err());
    }

    proptest! {
        #[test]
        fn garbage_is_refused_without_panic(packet in prop::collection::vec(any::<u8>(), 0..200), n in 0u32..70) {
            let _ = ToAgent::decode(&packet, n);
        }
    }
}
