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
//! Both ends are the same program (an agent is a copy of its parent, or was started with the same
//! version), so there is one version number, in [`Launch`] and in the greeting of agents on other hosts
//! ([`crate::remote`]), and no negotiation. Decoding is nevertheless strict: every length is checked,
//! unknown values are errors ([`codec`]).
//!
//! | frame | direction | meaning |
//! |---|---|---|
//! | `Launch` | down | all that an agent must know; always the first frame of a link |
//! | `Ready` | up | every agent of the subtree is prepared |
//! | `Go` | down | start the PEs |
//! | `Started` | up | every PE of the subtree was started |
//! | `Progress` | up | nodes and PEs of a subtree that are, while a start takes long and a terminal shows it |
//! | `Exited` | up | every PE of the subtree has ended |
//! | `Disconnected` | up | every PE of the subtree has ended or closed its PMI connection |
//! | `Finish` | down | end whatever is left, flush output |
//! | `Done` | up | nothing is left of the subtree; carries its report |
//! | `Output`, `Credit` | up, down | lines of PEs, and of remote shells under numbers after the last rank; bytes that the receiver has room for |
//! | `Stdin`, `StdinEnd`, `StdinCredit` | down, down, up | input, to the subtrees with PEs that get it |
//! | `CloseOutput` | down | nobody reads that stream any more |
//! | `Signal`, `Stop` | down | deliver a signal to the PEs; end the job |
//! | `Fault` | up | something failed; the launcher decides what follows. An agent passes one on, the first |
//! | `Stopping` | up | the sender has got `Stop` |
//! | `Cause` | up | a failure of the launcher's own that came before `Stop`: PEs may have failed of it |
//! | `Notice` | up | what a PE says to the user, or how often the same was said since |
//! | `Died`, `Respawn` | up, down | a PE ended that could be started again; do so |
//! | `Failed`, `Lost` | up, down | somebody failed without whom the others go on; these PEs are lost |
//! | `Leaving` | up | a PE of the subtree is in finalize, the first one |
//! | `Beat` | both | the sender is at work, and had nothing else to send (`crate::pulse`) |
//! | `Print` | up | what an agent says to the user |
//! | `Pmi` | both | messages between the agents' PMI servers |
//! | `Addresses` | both | the same for the exchange of the PEs' UD addresses |
//! | `Pmix` | both | the same for PMIx, each a whole message |
//! | `Ask`, `Answer` | up, down | what a PE asks the launcher: names, other jobs |
//! | `Count`, `Counted` | down, up | what PEs wait for: the question, and what the subtree's do |
//! | `Trace`, `Traced` | down, up | which PEs' stacks are wanted, and one of them |
//! | `Recorded` | up | what a PE recorded of its calls, before the `Done` of its node |
//!
//! The link between a launcher and that of a job which its PEs spawned ([`crate::root`]) carries the
//! same frames: `Job` first, `Signal` and `Stop` down, `Ask` up and `Answer` down; and one `Answer`
//! up, which tells that the job runs, or why it does not.

pub mod codec;
mod job;
mod launch;
mod pmix;
mod stream;

pub use codec::LAUNCH_VERSION;
pub use job::SpawnedJob;
pub use launch::{
    Command, EnvVar, InputTo, JobOptions, Launch, Machine, Machines, PmixPlan, SpawnMode, Spawner,
};
pub use pmix::{FromServer, PmixJob, ToServer};
pub use stream::{FrameReader, OutBuf, each_frame};

use std::fmt;

use crate::census::{Census, Example};
use crate::exit::{Fault, Loss};
use crate::repeats::Notice;
use crate::report::Reduced;
use codec::CodecError;
use serde::{Deserialize, Serialize};

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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
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
}

/// Kinds of the hot frames, which are written by hand. Others have the numbers of their variants.
const ADDRESSES: u8 = 0xfc;
const PMIX: u8 = 0xfd;
const OUTPUT: u8 = 0xfe;
const PMI: u8 = 0xff;

/// One message of a link; see the module's table.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub enum Frame<'a> {
    /// Encoded [`Launch`].
    Launch(#[serde(serialize_with = "codec::bytes")] &'a [u8]),
    /// Start the PEs.
    Go,
    /// The receiver has written this many bytes of `Output` frames.
    Credit(u32),
    /// Standard input.
    Stdin(#[serde(serialize_with = "codec::bytes")] &'a [u8]),
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
    Started,
    /// The subtree's PEs have ended.
    Exited,
    /// All who get input there have taken this many bytes of it; 0 if nobody takes any more.
    StdinCredit(u32),
    /// Something failed.
    Fault(Fault),
    /// Nothing is left of the subtree.
    Done(Box<Reduced>),
    /// A question for the launcher.
    Ask {
        /// Rank of the PE that asks.
        asker: u32,
        /// Number of the question at the PE's agent.
        ticket: u64,
        /// Encoded [`shmem_pmi::question::Question`].
        #[serde(serialize_with = "codec::bytes")]
        question: &'a [u8],
    },
    /// The answer to an `Ask`.
    Answer {
        /// As in the question.
        asker: u32,
        /// As in the question.
        ticket: u64,
        /// Encoded [`shmem_pmi::question::Answer`].
        #[serde(serialize_with = "codec::bytes")]
        answer: &'a [u8],
    },
    /// Encoded [`SpawnedJob`].
    Job(#[serde(serialize_with = "codec::bytes")] &'a [u8]),
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
    Disconnected,
    /// What a PE says to the user.
    Notice(Notice),
    /// How far the start of the subtree has come.
    Progress {
        /// Nodes that are prepared.
        nodes: u32,
        /// PEs that run.
        pes: u32,
    },
    /// A sign of life.
    Beat,
    /// A PE of the subtree is in finalize, the first one.
    Leaving,
    /// What an agent says to the user.
    Print(#[serde(serialize_with = "codec::clipped")] String),
    /// Somebody failed, and the others may go on without.
    Failed(Loss),
    /// The PEs of a loss will not join anything any more.
    Lost(Loss),
    /// What do the PEs wait for?
    Count {
        /// Number of the question.
        number: u32,
        /// How many milliseconds the answer may take.
        budget_ms: u32,
    },
    /// What those of the subtree do.
    Counted {
        /// As in the question.
        number: u32,
        /// The answer.
        census: Box<Census>,
    },
    /// What stacks do these PEs have?
    Trace {
        /// Number of the question.
        number: u32,
        /// Whose.
        pes: Vec<Example>,
        /// How many milliseconds one may take.
        budget_ms: u32,
    },
    /// The stacks of a PE, or why there are none.
    Traced {
        /// As in the question.
        number: u32,
        /// Whose.
        rank: u32,
        /// The words.
        text: String,
    },
    /// What a PE recorded, if it was to.
    Recorded {
        /// What is to be added to its moments, modulo 2^64, to bring them to the clock of the machine that sends
        /// this.
        shift: u64,
        /// When it was sent, by that clock.
        sent: u64,
        /// Encoded [`Recording`](shmem_node::recording::Recording).
        #[serde(serialize_with = "codec::bytes")]
        recording: &'a [u8],
    },
    /// The sender has got `Stop`: what becomes of it from now on did not make the job fail.
    Stopping,
    /// Something of the launcher's own failed before the sender knew that the job ends. A PE's failure that is
    /// known already may be a consequence.
    Cause(Fault),
    // The hot ones come last: their variants have no numbers.
    /// What a PE wrote, or the remote shell of a node.
    #[serde(skip)]
    Output {
        /// The PE, or the number of PEs plus the node.
        rank: u32,
        /// Where it wrote.
        stream: Stream,
        /// If it does not end a line, the line goes on with the next that comes over this link, or
        /// was given up.
        data: &'a [u8],
    },
    /// From PMI server to PMI server.
    #[serde(skip)]
    Pmi(&'a [u8]),
    /// The same for the exchange of the PEs' UD addresses.
    #[serde(skip)]
    Addresses(&'a [u8]),
    /// From agent to agent, for the PMIx servers of their nodes: one whole message.
    #[serde(skip)]
    Pmix(&'a [u8]),
}

impl<'a> Frame<'a> {
    /// Appends the frame to `out`.
    pub fn encode(&self, out: &mut Vec<u8>) {
        match self {
            Self::Output { rank, stream, data } => encode_output(out, *rank, *stream, data, &[]),
            Self::Pmi(body) => encode_run(out, PMI, body),
            Self::Addresses(body) => encode_run(out, ADDRESSES, body),
            Self::Pmix(body) => encode_run(out, PMIX, body),
            cold => encode(out, |out| codec::encode(cold, out)),
        }
    }

    /// Reads a frame's kind and body.
    ///
    /// # Errors
    /// When the bytes are not a frame of this version.
    pub fn decode(content: &'a [u8]) -> Result<Self, CodecError> {
        match content {
            [OUTPUT, r0, r1, r2, r3, stream, data @ ..] => Ok(Self::Output {
                rank: u32::from_le_bytes([*r0, *r1, *r2, *r3]),
                stream: codec::decode(&[*stream])?,
                data,
            }),
            [PMI, body @ ..] => Ok(Self::Pmi(body)),
            [ADDRESSES, body @ ..] => Ok(Self::Addresses(body)),
            [PMIX, body @ ..] => Ok(Self::Pmix(body)),
            cold => codec::decode(cold),
        }
    }
}

impl Frame<'_> {
    /// The kind of a message without what it says, which may be the key of the job.
    pub fn kind(&self) -> String {
        struct Word(String);
        impl fmt::Write for Word {
            fn write_str(&mut self, text: &str) -> fmt::Result {
                let is_word = text.bytes().all(|b| b.is_ascii_alphanumeric());
                self.0.push_str(if is_word { text } else { "" });
                // Ends the description behind its first word.
                is_word.then_some(()).ok_or(fmt::Error)
            }
        }
        let mut word = Word(String::new());
        let _ = fmt::write(&mut word, format_args!("{self:?}"));
        word.0
    }
}

/// Appends an `Output` frame whose data lies in two parts, without joining them first.
pub fn encode_output(out: &mut Vec<u8>, rank: u32, stream: Stream, head: &[u8], tail: &[u8]) {
    encode(out, |out| {
        let [r0, r1, r2, r3] = rank.to_le_bytes();
        out.extend_from_slice(&[OUTPUT, r0, r1, r2, r3, stream as u8]);
        out.extend_from_slice(head);
        out.extend_from_slice(tail);
    });
}

/// Appends a frame whose body is bytes of others.
fn encode_run(out: &mut Vec<u8>, kind: u8, body: &[u8]) {
    encode_run_header(out, kind, body.len());
    out.extend_from_slice(body);
}

/// Appends what stands before the body of such a frame.
fn encode_run_header(out: &mut Vec<u8>, kind: u8, len: usize) {
    debug_assert!(len < FRAME_MAX);
    out.extend_from_slice(&(1 + len as u32).to_le_bytes());
    out.push(kind);
}

/// Appends a frame with what `content` writes.
fn encode(out: &mut Vec<u8>, content: impl FnOnce(&mut Vec<u8>)) {
    let start = out.len();
    out.extend_from_slice(&[0; 4]);
    content(out);
    let len = out.len() - start - 4;
    debug_assert!(len <= FRAME_MAX);
    out[start..start + 4].copy_from_slice(&(len as u32).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exit::{Cause, End};
    use proptest::prelude::*;

    const KILLED: End = End::Signal {
        signal: 9,
        core: true,
    };

    fn fault(cause: Cause) -> Fault {
        Fault {
            node: 3,
            pid: 77,
            cause,
        }
    }

    fn loss() -> Loss {
        Loss {
            fault: fault(Cause::Unfinalized { rank: 1 }),
            first: 1,
            last: 9,
        }
    }

    /// The cause after this one, in the order of the variants: a new one does not compile before it
    /// stands here.
    fn next_cause(cause: &Cause) -> Option<Cause> {
        Some(match cause {
            Cause::Pe { end: KILLED, .. } => Cause::Pe {
                rank: 4,
                end: End::Code(3),
            },
            Cause::Pe { .. } => Cause::Unfinalized { rank: 1 },
            Cause::Unfinalized { .. } => Cause::Absent { rank: 2 },
            Cause::Absent { .. } => Cause::Disconnected { rank: 2 },
            Cause::Disconnected { .. } => Cause::Abort {
                rank: 1,
                code: -3,
                message: "no".into(),
            },
            Cause::Abort { .. } => Cause::Agent { end: None },
            Cause::Agent { end: None } => Cause::Agent { end: Some(KILLED) },
            Cause::Agent { .. } => Cause::Unreachable { what: "x".into() },
            Cause::Unreachable { .. } => Cause::Node { what: "x".into() },
            Cause::Node { .. } => Cause::Program {
                what: "x".into(),
                status: 127,
            },
            Cause::Program { .. } => Cause::Silent {
                ms: 8000,
                first: 3,
                last: 4,
            },
            Cause::Silent { .. } => Cause::Needed { rank: 2 },
            Cause::Needed { .. } => return None,
        })
    }

    /// The same for frames.
    fn next_frame<'a>(frame: &Frame<'a>, data: &'a [u8]) -> Option<Frame<'a>> {
        let (asker, ticket) = (3, 1 << 40);
        Some(match frame {
            Frame::Launch(_) => Frame::Go,
            Frame::Go => Frame::Credit(1 << 31),
            Frame::Credit(_) => Frame::Stdin(data),
            Frame::Stdin(_) => Frame::StdinEnd,
            Frame::StdinEnd => Frame::Signal(15),
            Frame::Signal(_) => Frame::Stop { grace_ns: 1 << 40 },
            Frame::Stop { .. } => Frame::CloseOutput(Stream::Err),
            Frame::CloseOutput(_) => Frame::Finish,
            Frame::Finish => Frame::Ready,
            Frame::Ready => Frame::Started,
            Frame::Started => Frame::Exited,
            Frame::Exited => Frame::StdinCredit(4),
            Frame::StdinCredit(_) => Frame::Fault(fault(Cause::Pe {
                rank: 4,
                end: KILLED,
            })),
            Frame::Fault(f) => match next_cause(&f.cause) {
                Some(cause) => Frame::Fault(fault(cause)),
                None => Frame::Done(Box::default()),
            },
            Frame::Done(_) => Frame::Ask {
                asker,
                ticket,
                question: data,
            },
            Frame::Ask { .. } => Frame::Answer {
                asker,
                ticket,
                answer: data,
            },
            Frame::Answer { .. } => Frame::Job(data),
            Frame::Job(_) => Frame::Died(fault(Cause::Unfinalized { rank: 0 })),
            Frame::Died(_) => Frame::Respawn { rank: 4, count: 2 },
            Frame::Respawn { .. } => Frame::Disconnected,
            Frame::Disconnected => Frame::Notice(Notice {
                rank: 2,
                node: 1,
                count: 1 << 40,
                adds: true,
                text: "oh".into(),
            }),
            Frame::Notice(_) => Frame::Progress { nodes: 3, pes: 9 },
            Frame::Progress { .. } => Frame::Beat,
            Frame::Beat => Frame::Leaving,
            Frame::Leaving => Frame::Print("ah".into()),
            Frame::Print(_) => Frame::Failed(loss()),
            Frame::Failed(_) => Frame::Lost(loss()),
            Frame::Lost(_) => Frame::Count {
                number: 3,
                budget_ms: 4000,
            },
            Frame::Count { .. } => Frame::Counted {
                number: 3,
                census: Box::new(crate::census::sample()),
            },
            Frame::Counted { .. } => Frame::Trace {
                number: 3,
                pes: vec![Example {
                    rank: 4,
                    node: 1,
                    pid: 77,
                }],
                budget_ms: 9000,
            },
            Frame::Trace { .. } => Frame::Traced {
                number: 3,
                rank: 4,
                text: "#0 main".into(),
            },
            Frame::Traced { .. } => Frame::Recorded {
                shift: 1 << 63,
                sent: 9,
                recording: data,
            },
            Frame::Recorded { .. } => Frame::Stopping,
            Frame::Stopping => Frame::Cause(fault(Cause::Agent { end: None })),
            Frame::Cause(_) => Frame::Output {
                rank: 5,
                stream: Stream::Out,
                data,
            },
            Frame::Output { .. } => Frame::Pmi(data),
            Frame::Pmi(_) => Frame::Addresses(data),
            Frame::Addresses(_) => Frame::Pmix(data),
            Frame::Pmix(_) => return None,
        })
    }

    fn all(data: &[u8]) -> Vec<Frame<'_>> {
        let first = Some(Frame::Launch(data));
        std::iter::successors(first, |frame| next_frame(frame, data)).collect()
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
    }

    #[test]
    fn a_message_is_named_without_what_it_says() {
        let named = [Frame::Launch(b"secret"), Frame::Go, Frame::Credit(7)].map(|f| f.kind());
        assert_eq!(named, ["Launch", "Go", "Credit"]);
        let stop = Frame::Stop { grace_ns: 1 };
        assert_eq!(stop.kind(), "Stop");
    }

    #[test]
    fn every_truncation_is_noticed() {
        for frame in all(b"payload") {
            let mut wire = Vec::new();
            frame.encode(&mut wire);
            // The hot frames end in free data and cannot know.
            let is_free = matches!(
                frame,
                Frame::Output { .. } | Frame::Pmi(_) | Frame::Addresses(_) | Frame::Pmix(_)
            );
            if !is_free {
                for cut in 4..wire.len() {
                    assert!(Frame::decode(&wire[4..cut]).is_err(), "{frame:?}");
                }
                wire.push(0);
                assert!(Frame::decode(&wire[4..]).is_err(), "{frame:?}");
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
