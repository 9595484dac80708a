//! What a PE asks of its node agent.

use std::borrow::Cow;

use super::DATA_PART;
use super::codec::{Bytes, Codec, Flag, Hex, HexUpTo, Mark, Maybe, Number, Or, Text, messages};
use super::fields::{BodyWriter, Fields};
use super::spawn;
use crate::question::SpawnRequest;
use crate::wire::data::{MAX_MESSAGE, Operation};
use crate::wire::{MAX_VALUE, WireError};

/// A command with the optional mark of the thread that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Opaque mark which the reply repeats (`thrid`).
    pub thread_id: Option<Cow<'a, [u8]>>,
    /// What is asked.
    pub command: Command<'a>,
}

messages! {
    /// The commands of PMI-2 that are served, and the extension commands.
    pub enum Command<'a> {
        /// `fullinit`: the PE introduces itself.
        FullInit "fullinit" {
            /// The job id that the PE found in its environment.
            job_id: Option<Cow<'a, str>> = Maybe(Text("pmijobid")),
            /// The rank that the PE found in its environment.
            rank: Option<u32> = Maybe(Number("pmirank", "a rank")),
            /// Whether the client uses thread marks.
            threaded: bool = Flag("threaded"),
        },
        /// `job-getid`.
        JobGetId "job-getid",
        /// `info-getjobattr`: an attribute of the whole job.
        JobAttr "info-getjobattr" {
            /// Name of the attribute, for example `PMI_process_mapping`.
            key: Cow<'a, [u8]> = Bytes("key"),
        },
        /// `info-putnodeattr`: publish a key to the PEs of this node, at once.
        PutNodeAttr "info-putnodeattr" {
            /// Name of the attribute.
            key: Cow<'a, [u8]> = Bytes("key"),
            /// Its value.
            value: Cow<'a, [u8]> = Bytes("value"),
        },
        /// `info-getnodeattr`.
        NodeAttr "info-getnodeattr" {
            /// Name of the attribute.
            key: Cow<'a, [u8]> = Bytes("key"),
            /// Withhold the reply until a PE of this node puts the key.
            wait: bool = Flag("wait"),
        },
        /// `kvs-put`: visible to all PEs after the next fence.
        KvsPut "kvs-put" {
            /// The key.
            key: Cow<'a, [u8]> = Bytes("key"),
            /// The value.
            value: Cow<'a, [u8]> = Bytes("value"),
        },
        /// `kvs-get`.
        KvsGet "kvs-get" {
            /// The job whose space is read; absent means the client's own.
            job_id: Option<Cow<'a, str>> = Maybe(Text("jobid")),
            /// A hint which rank has put the key; -1 for none.
            source: i64 = Or(Number("srcid", "a rank or -1"), -1),
            /// The key.
            key: Cow<'a, [u8]> = Bytes("key"),
            /// Extension: get it from that rank as soon as it has put it, fenced or not.
            direct: bool = Mark("direct"),
        },
        /// `kvs-fence`: collective; answered when complete.
        KvsFence "kvs-fence",
        /// `finalize`.
        Finalize "finalize",
        /// `abort`: has no reply.
        Abort "abort" {
            /// Whether the whole job is meant (it always is, here).
            is_world: bool = Or(Flag("isworld"), true),
            /// Exit status asked for, if the client sent one.
            exit_code: Option<i32> = Maybe(Number("exitcode", "an exit status")),
            /// Text for the user; may be empty.
            message: Cow<'a, [u8]> = LastWords,
        },
        /// `name-publish`.
        NamePublish "name-publish" {
            /// The service.
            name: Cow<'a, [u8]> = Bytes("name"),
            /// Where it is to be found.
            port: Cow<'a, [u8]> = WithoutInfo(Bytes("port")),
        },
        /// `name-lookup`.
        NameLookup "name-lookup" {
            /// The service.
            name: Cow<'a, [u8]> = WithoutInfo(Bytes("name")),
        },
        /// `name-unpublish`.
        NameUnpublish "name-unpublish" {
            /// The service.
            name: Cow<'a, [u8]> = WithoutInfo(Bytes("name")),
        },
        /// `spawn`: answered when the processes run.
        Spawn "spawn" (request: SpawnRequest = spawn::Programs),
        /// `ring` (`PMIX_Ring`): collective; answered when complete.
        Ring "ring" {
            /// Number of values that the client stands for: 1.
            count: u32 = Or(Number("ring-count", "a number"), 1),
            /// The value that the PE to the left gets, at most [`MAX_VALUE`] bytes.
            left: Cow<'a, [u8]> = RingValue("ring-left"),
            /// The value that the PE to the right gets, at most [`MAX_VALUE`] bytes. Clients send the
            /// same value twice.
            right: Cow<'a, [u8]> = RingValue("ring-right"),
        },
        /// `job-connect`.
        JobConnect "job-connect" {
            /// The other job.
            job_id: Cow<'a, str> = Text("jobid"),
        },
        /// `job-disconnect`.
        JobDisconnect "job-disconnect" {
            /// The other job.
            job_id: Cow<'a, str> = Text("jobid"),
        },
        /// Extension `iallgather`: collective; answered at once.
        Iallgather "iallgather" {
            /// This PE's contribution, 1 to [`crate::wire::MAX_ALLGATHER_VALUE`] bytes.
            value: Cow<'a, [u8]> = Hex("value"),
        },
        /// Extension `allgather`: collective; answered when complete.
        Allgather "allgather" {
            /// This PE's contribution, 1 to [`crate::wire::MAX_ALLGATHER_VALUE`] bytes.
            value: Cow<'a, [u8]> = Hex("value"),
        },
        /// Extension `ifence`: collective; answered at once.
        Ifence "ifence",
        /// Extension `wait`: answered when the operation is complete.
        Wait "wait" {
            /// Number of the operation.
            request: u64 = Number("request", "the number of a request"),
        },
        /// Extension `nla`: collective; answered when complete. One part of it, or all.
        Data "nla" {
            /// Which operation.
            operation: Operation = OperationName,
            /// Rank of its root; 0 where there is none.
            root: u32 = Or(Number("root", "a rank"), 0),
            /// What this PE gives, at most [`DATA_PART`] bytes at a time.
            value: Cow<'a, [u8]> = HexUpTo("value", DATA_PART),
            /// Whether another part follows; this one is then not answered.
            more: bool = Flag("more"),
        },
        /// Extension `nla-send`: answered at once.
        Send "nla-send" {
            /// Rank of the receiver.
            to: u32 = Number("to", "a rank"),
            /// The message, at most [`MAX_MESSAGE`] bytes.
            value: Cow<'a, [u8]> = HexUpTo("value", MAX_MESSAGE),
        },
        /// Extension `nla-recv`: answered when there is a message.
        Receive "nla-recv" {
            /// Rank of the sender.
            from: u32 = Number("from", "a rank"),
        };
    }
}

impl<'a> Command<'a> {
    /// The value of `cmd`.
    pub fn name(&self) -> &'static str {
        self.row_name().unwrap_or_default()
    }

    /// Without a wildcard: a new command does not compile before this is said of it.
    const fn kind(&self) -> Kind {
        let (extension, collective, withheld) = match self {
            Self::FullInit { .. }
            | Self::JobGetId
            | Self::JobAttr { .. }
            | Self::PutNodeAttr { .. }
            | Self::NodeAttr { wait: false, .. }
            | Self::KvsPut { .. }
            | Self::Finalize
            | Self::Abort { .. }
            | Self::JobConnect { .. }
            | Self::JobDisconnect { .. } => (false, false, false),
            Self::NodeAttr { wait: true, .. }
            | Self::KvsGet { .. }
            | Self::NamePublish { .. }
            | Self::NameLookup { .. }
            | Self::NameUnpublish { .. }
            | Self::Spawn(_) => (false, false, true),
            Self::KvsFence | Self::Ring { .. } => (false, true, true),
            Self::Iallgather { .. } | Self::Ifence => (true, true, false),
            Self::Allgather { .. } | Self::Data { .. } => (true, true, true),
            Self::Wait { .. } | Self::Receive { .. } => (true, false, true),
            Self::Send { .. } => (true, false, false),
        };
        Kind {
            extension,
            collective,
            withheld,
        }
    }

    /// Whether the command is one of the extensions.
    pub const fn is_extension(&self) -> bool {
        self.kind().extension
    }

    /// Whether all PEs send it in the same order.
    pub const fn is_collective(&self) -> bool {
        self.kind().collective
    }

    /// Whether the server may answer later requests first.
    pub(crate) const fn may_be_withheld(&self) -> bool {
        self.kind().withheld
    }

    /// Reads a command from its fields.
    ///
    /// # Errors
    ///
    /// The command is unknown, or a field is absent or has an impossible value. The message
    /// boundaries are intact: the next message can be read.
    pub fn from_fields(fields: &Fields<'a>) -> Result<Self, WireError> {
        let name = || fields.command_text();
        Self::read(fields.command(), fields)?
            .ok_or_else(|| WireError::UnknownCommand { name: name() })
    }
}

/// Of a command: whether it is an extension, whether all PEs send it in the same order, and whether the
/// server may answer later requests first.
struct Kind {
    extension: bool,
    collective: bool,
    withheld: bool,
}

/// Slurm reads `msg`, current MPICH servers read `message`.
struct LastWords;

impl<'a> Codec<'a, Cow<'a, [u8]>> for LastWords {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        let message = fields.get("message").or_else(|| fields.get("msg"));
        Ok(message.cloned().unwrap_or_default())
    }

    fn write(&self, w: &mut BodyWriter<'_>, message: &Cow<'a, [u8]>) {
        if !message.is_empty() {
            w.field("msg", message);
            w.field("message", message);
        }
    }
}

/// The last field of a command that could have a list behind it.
struct WithoutInfo(Bytes);

impl<'a> Codec<'a, Cow<'a, [u8]>> for WithoutInfo {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        self.0.read(fields)
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Cow<'a, [u8]>) {
        self.0.write(w, value);
        w.number("infokeycount", 0);
    }
}

struct RingValue(&'static str);

impl<'a> Codec<'a, Cow<'a, [u8]>> for RingValue {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        match fields.need(self.0)? {
            value if value.len() > MAX_VALUE => Err(WireError::TooLong {
                what: "the value of a ring",
                len: value.len(),
                max: MAX_VALUE,
            }),
            value => Ok(value),
        }
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Cow<'a, [u8]>) {
        w.field(self.0, value);
    }
}

struct OperationName;

impl<'a> Codec<'a, Operation> for OperationName {
    fn read(&self, fields: &Fields<'a>) -> Result<Operation, WireError> {
        Operation::from_name(&fields.need("op")?)
            .ok_or_else(|| fields.bad("op", "an operation of the NLA layer"))
    }

    fn write(&self, w: &mut BodyWriter<'_>, operation: &Operation) {
        w.field("op", operation.name().as_bytes());
    }
}

impl<'a> Request<'a> {
    /// A request without a thread mark.
    pub fn new(command: Command<'a>) -> Self {
        Self {
            thread_id: None,
            command,
        }
    }

    /// Reads a request from the body of a message.
    ///
    /// # Errors
    ///
    /// As [`Fields::decode`] and [`Command::from_fields`].
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let fields = Fields::decode(body)?;
        Ok(Self {
            thread_id: fields.thread_id(),
            command: Command::from_fields(&fields)?,
        })
    }

    /// Appends the message, with its header, to `out`.
    ///
    /// # Errors
    ///
    /// [`WireError::TooLong`] if the body exceeds [`super::MAX_BODY`]; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut w = BodyWriter::new(out, self.command.name(), "", self.thread_id.as_deref());
        self.command.write(&mut w);
        w.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn bytes() -> impl Strategy<Value = Cow<'static, [u8]>> {
        prop::collection::vec(any::<u8>(), 1..40).prop_map(Cow::Owned)
    }

    fn text() -> impl Strategy<Value = Option<Cow<'static, str>>> {
        prop::option::of("[a-z0-9.;=]{1,12}".prop_map(Cow::Owned))
    }

    fn command() -> impl Strategy<Value = Command<'static>> {
        prop_oneof![
            (text(), any::<Option<u32>>(), any::<bool>()).prop_map(|(job_id, rank, threaded)| {
                Command::FullInit {
                    job_id,
                    rank,
                    threaded,
                }
            }),
            Just(Command::JobGetId),
            bytes().prop_map(|key| Command::JobAttr { key }),
            (bytes(), bytes()).prop_map(|(key, value)| Command::PutNodeAttr { key, value }),
            (bytes(), any::<bool>()).prop_map(|(key, wait)| Command::NodeAttr { key, wait }),
            (bytes(), bytes()).prop_map(|(key, value)| Command::KvsPut { key, value }),
            (text(), any::<i64>(), bytes(), any::<bool>()).prop_map(
                |(job_id, source, key, direct)| Command::KvsGet {
                    job_id,
                    source,
                    key,
                    direct
                }
            ),
            (
                prop::sample::select(&Operation::ALL[..]),
                any::<u32>(),
                prop::collection::vec(any::<u8>(), 0..40),
                any::<bool>()
            )
                .prop_map(|(operation, root, value, more)| Command::Data {
                    operation,
                    root,
                    value: Cow::Owned(value),
                    more,
                }),
            (any::<u32>(), prop::collection::vec(any::<u8>(), 0..40)).prop_map(|(to, value)| {
                Command::Send {
                    to,
                    value: Cow::Owned(value),
                }
            }),
            any::<u32>().prop_map(|from| Command::Receive { from }),
            Just(Command::KvsFence),
            Just(Command::Finalize),
            (any::<bool>(), any::<Option<i32>>(), bytes()).prop_map(
                |(is_world, exit_code, message)| Command::Abort {
                    is_world,
                    exit_code,
                    message,
                }
            ),
            (bytes(), bytes()).prop_map(|(name, port)| Command::NamePublish { name, port }),
            bytes().prop_map(|name| Command::NameLookup { name }),
            bytes().prop_map(|name| Command::NameUnpublish { name }),
            spawn::tests::request().prop_map(Command::Spawn),
            (any::<u32>(), bytes(), bytes()).prop_map(|(count, left, right)| Command::Ring {
                count,
                left,
                right
            }),
            "[a-z;]{1,9}".prop_map(|id| Command::JobConnect { job_id: id.into() }),
            "[a-z;]{1,9}".prop_map(|id| Command::JobDisconnect { job_id: id.into() }),
            bytes().prop_map(|value| Command::Iallgather { value }),
            bytes().prop_map(|value| Command::Allgather { value }),
            Just(Command::Ifence),
            any::<u64>().prop_map(|request| Command::Wait { request }),
        ]
    }

    proptest! {
        #[test]
        fn requests_round_trip(command in command(), thread_id in prop::option::of(bytes())) {
            let request = Request { thread_id, command };
            let mut out = Vec::new();
            request.encode(&mut out).unwrap();
            prop_assert_eq!(Request::decode(&out[super::super::HEADER_LEN..]).unwrap(), request);
        }

        #[test]
        fn random_requests_never_panic(
            name in prop::sample::select(vec!["fullinit", "abort", "wait", "iallgather", "kvs-get", "spawn", "ring", "nla"]),
            rest in prop::collection::vec(any::<u8>(), 0..60),
        ) {
            let mut body = format!("cmd={name};pmirank=").into_bytes();
            body.extend_from_slice(&rest);
            let _ = Request::decode(&body);
        }
    }

    #[test]
    fn commands_are_on_the_wire_as_ever() {
        let text = |bytes: &'static [u8]| Cow::Borrowed(bytes);
        for (command, body) in [
            (
                Command::Abort {
                    is_world: true,
                    exit_code: Some(-1),
                    message: text(b"m"),
                },
                "cmd=abort;isworld=TRUE;exitcode=-1;msg=m;message=m;",
            ),
            (
                Command::NamePublish {
                    name: text(b"n"),
                    port: text(b"p"),
                },
                "cmd=name-publish;name=n;port=p;infokeycount=0;",
            ),
            (
                Command::NameLookup { name: text(b"n") },
                "cmd=name-lookup;name=n;infokeycount=0;",
            ),
            (
                Command::KvsGet {
                    job_id: Some("j".into()),
                    source: 2,
                    key: text(b"k"),
                    direct: true,
                },
                "cmd=kvs-get;jobid=j;srcid=2;key=k;direct=TRUE;",
            ),
            (
                Command::Ring {
                    count: 1,
                    left: text(b"l"),
                    right: text(b"r"),
                },
                "cmd=ring;ring-count=1;ring-left=l;ring-right=r;",
            ),
            (
                Command::Data {
                    operation: Operation::Scatter,
                    root: 3,
                    value: text(b"\x0a"),
                    more: false,
                },
                "cmd=nla;op=scatter;root=3;value=0a;more=FALSE;",
            ),
            (
                Command::Send {
                    to: 1,
                    value: text(b""),
                },
                "cmd=nla-send;to=1;",
            ),
        ] {
            let mut out = Vec::new();
            Request::new(command).encode(&mut out).unwrap();
            assert_eq!(std::str::from_utf8(&out[6..]), Ok(body));
        }
    }

    #[test]
    fn impossible_fields_are_named() {
        let error = |body: &str| Request::decode(body.as_bytes()).unwrap_err().to_string();
        assert!(error("cmd=kvs-put;key=a;").contains("lacks the field `value`"));
        assert!(error("cmd=fullinit;pmirank=-1;").contains("`pmirank`"));
        assert!(error("cmd=info-getnodeattr;key=a;wait=yes;").contains("TRUE or FALSE"));
        assert!(error("cmd=iallgather;value=abc;").contains("hexadecimal"));
        assert!(error("cmd=iallgather;value=;").contains("empty"));
        assert!(error("cmd=nosuch;").contains("`nosuch`"));
        let long = format!("cmd=allgather;value={};", "00".repeat(1025));
        assert!(error(&long).contains("1025"));
    }

    #[test]
    fn too_long_a_body_leaves_the_output_alone() {
        let mut out = b"before".to_vec();
        let request = Request::new(Command::JobAttr {
            key: Cow::Owned(vec![b'k'; 70_000]),
        });
        assert!(matches!(
            request.encode(&mut out),
            Err(WireError::TooLong { .. })
        ));
        assert_eq!(out, b"before");
    }
}
