//! What launcher and agents say to each other.
//!
//! A link is a byte stream between a parent and a child of the launch tree. It carries frames:
//!
//! ```text
//! +----------------+--------+-----------------+
//! | length u32 LE  | kind   | body            |     length counts kind and body
//! +----------------+--------+-----------------+
//! ```
//!
//! Everything is little-endian. Both ends are the same program (an agent is a copy of its parent,
//! or was started with the same version), so there is one version number, in [`Launch`] and in the
//! greeting of agents on other hosts ([`crate::remote`]), and no negotiation. Decoding is nevertheless strict: every length is checked, unknown values are errors.
//!
//! | frame | direction | meaning |
//! |---|---|---|
//! | `Launch` | down | all that an agent must know; always the first frame of a link |
//! | `Ready` | up | every agent of the subtree is prepared |
//! | `Go` | down | start the PEs |
//! | `Spawned` | up | every PE of the subtree was started |
//! | `Exited` | up | every PE of the subtree has ended |
//! | `Deaf` | up | every PE of the subtree has ended or closed its PMI connection |
//! | `Finish` | down | end whatever is left, flush output |
//! | `Done` | up | nothing is left of the subtree; carries its report |
//! | `Output`, `Credit` | up, down | lines of PEs, and of remote shells under numbers after the last rank; bytes that the receiver has room for |
//! | `Stdin`, `StdinEnd`, `StdinCredit` | down, down, up | input, to the subtrees with PEs that get it |
//! | `CloseOutput` | down | nobody reads that stream any more |
//! | `Signal`, `Stop` | down | deliver a signal to the PEs; end the job |
//! | `Fault` | up | something failed; the launcher decides what follows. An agent passes one on, the first |
//! | `Told` | up | what a PE says to the user, or how often the same was said since |
//! | `Died`, `Respawn` | up, down | a PE ended that could be started again; do so |
//! | `Pmi` | both | messages between the agents' PMI servers |
//! | `Ask`, `Answer` | up, down | what a PE asks the launcher: names, other jobs |
//!
//! The link between a launcher and that of a job which its PEs spawned ([`crate::root`]) carries the
//! same frames: `Job` first, `Signal` and `Stop` down, `Ask` up and `Answer` down; and one `Answer`
//! up, which tells that the job runs, or why it does not.

pub mod codec;
mod job;
mod launch;
mod stream;

pub use job::SpawnedJob;
pub use launch::{Command, EnvVar, InputTo, LAUNCH_VERSION, Launch, Machines, SpawnMode, Spawner};
pub use stream::{FrameReader, OutBuf, each_frame};

use crate::exit::Fault;
use crate::fold::Told;
use codec::{CodecError, Reader, Writer};

/// Longest frame in bytes. The longest real one is the result of an allgather.
pub const FRAME_MAX: usize = 256 << 20;

/// Bytes of `Output` frames that a sender may have on their way before the receiver answers with
/// `Credit`. Bounds what a blocked terminal can make each agent store.
pub const OUTPUT_WINDOW: u32 = 512 << 10;

/// A receiver returns credit in portions of at least this many bytes.
pub const CREDIT_STEP: u32 = OUTPUT_WINDOW / 4;

/// Bytes of standard input that may be on their way to PEs.
pub const STDIN_WINDOW: u32 = 64 << 10;

/// Length of an `Output` frame without its data.
pub const OUTPUT_OVERHEAD: usize = 4 + 1 + 4 + 1;

/// One of a PE's two output streams.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Stream {
    /// Standard output.
    Out = 0,
    /// Standard error.
    Err = 1,
}

impl Stream {
    /// Both.
    pub const ALL: [Self; 2] = [Self::Out, Self::Err];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::Out => "standard output",
            Self::Err => "standard error",
        }
    }

    fn decode(v: u8) -> Result<Self, CodecError> {
        match v {
            0 => Ok(Self::Out),
            1 => Ok(Self::Err),
            v => Err(CodecError::Value {
                what: "stream",
                value: v.into(),
            }),
        }
    }
}

/// One message of a link; see the module's table.
#[derive(Debug, Clone, PartialEq)]
pub enum Frame<'a> {
    /// Encoded [`Launch`].
    Launch(&'a [u8]),
    /// Start the PEs.
    Go,
    /// The receiver has written this many bytes of `Output` frames.
    Credit(u32),
    /// Standard input.
    Stdin(&'a [u8]),
    /// There is no more of it.
    StdinEnd,
    /// Deliver this signal to every PE.
    Signal(u8),
    /// SIGTERM to every PE, and SIGKILL after so many nanoseconds.
    Stop {
        /// Time between the two; 0 kills at once.
        grace_ns: u64,
    },
    /// Nobody reads this stream any more: its writers shall get SIGPIPE.
    CloseOutput(Stream),
    /// All PEs of the job have ended: clean up.
    Finish,
    /// The subtree's agents are prepared.
    Ready,
    /// The subtree's PEs are started.
    Spawned,
    /// The subtree's PEs have ended.
    Exited,
    /// What a PE wrote, or the remote shell of a node.
    Output {
        /// The PE, or the number of PEs plus the node.
        rank: u32,
        /// Where it wrote.
        stream: Stream,
        /// If it does not end a line, the line goes on with the next that comes over this link, or
        /// was given up.
        data: &'a [u8],
    },
    /// All who get input there have taken this many bytes of it; 0 if nobody takes any more.
    StdinCredit(u32),
    /// Something failed.
    Fault(Fault),
    /// Nothing is left of the subtree. The body is an encoded [`crate::report::Reduced`].
    Done(&'a [u8]),
    /// From PMI server to PMI server.
    Pmi(&'a [u8]),
    /// A question for the launcher.
    Ask {
        /// Rank of the PE that asks.
        asker: u32,
        /// Number of the question at the PE's agent.
        ticket: u64,
        /// Encoded [`shmem_pmi::question::Question`].
        question: &'a [u8],
    },
    /// The answer to an `Ask`.
    Answer {
        /// As in the question.
        asker: u32,
        /// As in the question.
        ticket: u64,
        /// Encoded [`shmem_pmi::question::Answer`].
        answer: &'a [u8],
    },
    /// Encoded [`SpawnedJob`].
    Job(&'a [u8]),
    /// A PE has failed that may be started again: its agent waits for `Respawn` or `Stop`.
    Died(Fault),
    /// Start a PE again that has died.
    Respawn {
        /// Its rank.
        rank: u32,
        /// How often it has been started again, this time included.
        count: u32,
    },
    /// No PE of the subtree will join an operation any more, though some live.
    Deaf,
    /// What a PE says to the user.
    Told(Told),
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        let start = out.len();
        let mut w = Writer(out);
        w.u32(0);
        match self {
            Self::Launch(body) => w.u8(1).raw(body),
            Self::Go => w.u8(2),
            Self::Credit(n) => w.u8(3).u32(*n),
            Self::Stdin(data) => w.u8(4).raw(data),
            Self::StdinEnd => w.u8(5),
            Self::Signal(signal) => w.u8(6).u8(*signal),
            Self::Stop { grace_ns } => w.u8(7).u64(*grace_ns),
            Self::CloseOutput(stream) => w.u8(8).u8(*stream as u8),
            Self::Finish => w.u8(9),
            Self::Ready => w.u8(10),
            Self::Spawned => w.u8(11),
            Self::Exited => w.u8(12),
            Self::Output { rank, stream, data } => w.u8(13).u32(*rank).u8(*stream as u8).raw(data),
            Self::StdinCredit(n) => w.u8(14).u32(*n),
            Self::Fault(fault) => {
                fault.encode(w.u8(15));
                &mut w
            }
            Self::Done(report) => w.u8(16).raw(report),
            Self::Pmi(body) => w.u8(17).raw(body),
            Self::Ask {
                asker,
                ticket,
                question,
            } => w.u8(18).u32(*asker).u64(*ticket).raw(question),
            Self::Answer {
                asker,
                ticket,
                answer,
            } => w.u8(19).u32(*asker).u64(*ticket).raw(answer),
            Self::Job(body) => w.u8(20).raw(body),
            Self::Died(fault) => {
                fault.encode(w.u8(21));
                &mut w
            }
            Self::Respawn { rank, count } => w.u8(22).u32(*rank).u32(*count),
            Self::Deaf => w.u8(23),
            Self::Told(told) => {
                told.encode(w.u8(24));
                &mut w
            }
        };
        finish(out, start);
    }

    /// Reads a frame's kind and body.
    ///
    /// # Errors
    /// When the bytes are not a frame of this version.
    pub fn decode(content: &'a [u8]) -> Result<Self, CodecError> {
        let mut r = Reader::new(content);
        let frame = match r.u8("frame kind")? {
            1 => Self::Launch(r.rest()),
            2 => Self::Go,
            3 => Self::Credit(r.u32("credit")?),
            4 => Self::Stdin(r.rest()),
            5 => Self::StdinEnd,
            6 => Self::Signal(r.u8("signal")?),
            7 => Self::Stop {
                grace_ns: r.u64("grace")?,
            },
            8 => Self::CloseOutput(Stream::decode(r.u8("stream")?)?),
            9 => Self::Finish,
            10 => Self::Ready,
            11 => Self::Spawned,
            12 => Self::Exited,
            13 => Self::Output {
                rank: r.u32("rank")?,
                stream: Stream::decode(r.u8("stream")?)?,
                data: r.rest(),
            },
            14 => Self::StdinCredit(r.u32("credit")?),
            15 => Self::Fault(Fault::decode(&mut r)?),
            16 => Self::Done(r.rest()),
            17 => Self::Pmi(r.rest()),
            18 => Self::Ask {
                asker: r.u32("rank")?,
                ticket: r.u64("ticket")?,
                question: r.rest(),
            },
            19 => Self::Answer {
                asker: r.u32("rank")?,
                ticket: r.u64("ticket")?,
                answer: r.rest(),
            },
            20 => Self::Job(r.rest()),
            21 => Self::Died(Fault::decode(&mut r)?),
            22 => Self::Respawn {
                rank: r.u32("rank")?,
                count: r.u32("count of starts")?,
            },
            23 => Self::Deaf,
            24 => Self::Told(Told::decode(&mut r)?),
            v => {
                return Err(CodecError::Value {
                    what: "frame kind",
                    value: v.into(),
                });
            }
        };
        r.end()?;
        Ok(frame)
    }
}

/// Appends an `Output` frame whose data lies in two parts, without joining them first.
pub fn encode_output(out: &mut Vec<u8>, rank: u32, stream: Stream, head: &[u8], tail: &[u8]) {
    let start = out.len();
    Writer(out)
        .u32(0)
        .u8(13)
        .u32(rank)
        .u8(stream as u8)
        .raw(head)
        .raw(tail);
    finish(out, start);
}

/// Appends what stands before the body in a `Pmi` frame of `len` bytes.
fn encode_pmi_header(out: &mut Vec<u8>, len: usize) {
    debug_assert!(len < FRAME_MAX);
    Writer(out).u32(1 + len as u32).u8(17);
}

fn finish(out: &mut [u8], start: usize) {
    let len = out.len() - start - 4;
    debug_assert!(len <= FRAME_MAX);
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Cause, End};
    use proptest::prelude::*;

    fn all(data: &[u8]) -> Vec<Frame<'_>> {
        let fault = |cause| {
            Frame::Fault(Fault {
                node: 3,
                pid: 77,
                cause,
            })
        };
        vec![
            Frame::Launch(data),
            Frame::Go,
            Frame::Credit(9),
            Frame::Stdin(data),
            Frame::StdinEnd,
            Frame::Signal(15),
            Frame::Stop { grace_ns: 1 << 40 },
            Frame::CloseOutput(Stream::Err),
            Frame::Finish,
            Frame::Ready,
            Frame::Spawned,
            Frame::Exited,
            Frame::Output {
                rank: 5,
                stream: Stream::Out,
                data,
            },
            Frame::StdinCredit(4),
            fault(Cause::Pe {
                rank: 4,
                end: End::Signal {
                    signal: 9,
                    core: true,
                },
            }),
            fault(Cause::Pe {
                rank: 4,
                end: End::Code(3),
            }),
            fault(Cause::Unfinalized { rank: 1 }),
            fault(Cause::Absent { rank: 2 }),
            fault(Cause::Abort {
                rank: 1,
                code: -3,
                message: "no".into(),
            }),
            fault(Cause::Agent { end: None }),
            fault(Cause::Agent {
                end: Some(End::Code(0)),
            }),
            fault(Cause::Node { what: "x".into() }),
            Frame::Done(data),
            Frame::Pmi(data),
            Frame::Ask {
                asker: 3,
                ticket: 1 << 40,
                question: data,
            },
            Frame::Answer {
                asker: 3,
                ticket: 1 << 40,
                answer: data,
            },
            Frame::Job(data),
            Frame::Died(Fault {
                node: 1,
                pid: 2,
                cause: Cause::Pe {
                    rank: 4,
                    end: End::Code(3),
                },
            }),
            Frame::Respawn { rank: 4, count: 2 },
            Frame::Deaf,
            fault(Cause::Deaf { rank: 2 }),
            Frame::Told(Told {
                rank: 2,
                node: 1,
                count: 1 << 40,
                adds: true,
                text: "oh".into(),
            }),
        ]
    }

    proptest! {
        #[test]
        fn frames_survive_any_fragmentation(data: Vec<u8>, cuts in proptest::collection::vec(1usize..40, 1..50)) {
            let frames = all(&data);
            let mut wire = Vec::new();
            for f in &frames {
                f.encode(&mut wire);
            }
            let mut reader = FrameReader::default();
            let (mut at, mut got) = (0, 0);
            for cut in cuts.iter().cycle() {
                if at == wire.len() { break; }
                let end = (at + cut).min(wire.len());
                let mut bytes = &wire[at..end];
                at = end;
                while let Some(content) = reader.next_frame(&mut bytes).unwrap() {
                    prop_assert_eq!(&Frame::decode(content).unwrap(), &frames[got]);
                    got += 1;
                }
            }
            prop_assert_eq!(got, frames.len());
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes: Vec<u8>) {
            let _ = Frame::decode(&bytes);
            let _ = Launch::decode(&bytes);
            let mut reader = FrameReader::default();
            let mut bytes = &bytes[..];
            while let Ok(Some(content)) = reader.next_frame(&mut bytes) {
                let _ = Frame::decode(content);
            }
        }

        #[test]
        fn every_truncation_is_noticed(at in 0usize..32) {
            let frames = all(b"payload");
            let mut wire = Vec::new();
            frames[at].encode(&mut wire);
            // Frames that end in free data cannot know; all others must.
            let free = matches!(
                frames[at],
                Frame::Launch(_) | Frame::Stdin(_) | Frame::Output { .. } | Frame::Done(_) | Frame::Pmi(_)
                    | Frame::Ask { .. } | Frame::Answer { .. } | Frame::Job(_)
            );
            if !free && wire.len() > 5 {
                prop_assert!(Frame::decode(&wire[4..wire.len() - 1]).is_err());
            }
        }
    }

    #[test]
    fn two_part_output_is_the_same_frame() {
        let (mut a, mut b) = (Vec::new(), Vec::new());
        encode_output(&mut a, 7, Stream::Err, b"ab", b"cd\n");
        Frame::Output {
            rank: 7,
            stream: Stream::Err,
            data: b"abcd\n",
        }
        .encode(&mut b);
        assert_eq!(a, b);
        assert_eq!(a.len(), OUTPUT_OVERHEAD + 5);
    }
}
