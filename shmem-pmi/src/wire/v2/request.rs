//! What a PE asks of its node agent.

use std::borrow::Cow;

use super::DATA_PART;
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

/// The commands of PMI-2 that are served, and the extension commands.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// `fullinit`: the PE introduces itself.
    FullInit {
        /// The job id that the PE found in its environment.
        job_id: Option<Cow<'a, str>>,
        /// The rank that the PE found in its environment.
        rank: Option<u32>,
        /// Whether the client uses thread marks.
        threaded: bool,
    },
    /// `job-getid`.
    JobGetId,
    /// `info-getjobattr`: an attribute of the whole job.
    JobAttr {
        /// Name of the attribute, for example `PMI_process_mapping`.
        key: Cow<'a, [u8]>,
    },
    /// `info-putnodeattr`: publish a key to the PEs of this node, at once.
    PutNodeAttr {
        /// Name of the attribute.
        key: Cow<'a, [u8]>,
        /// Its value.
        value: Cow<'a, [u8]>,
    },
    /// `info-getnodeattr`.
    NodeAttr {
        /// Name of the attribute.
        key: Cow<'a, [u8]>,
        /// Withhold the reply until a PE of this node puts the key.
        wait: bool,
    },
    /// `kvs-put`: visible to all PEs after the next fence.
    KvsPut {
        /// The key.
        key: Cow<'a, [u8]>,
        /// The value.
        value: Cow<'a, [u8]>,
    },
    /// `kvs-get`.
    KvsGet {
        /// The job whose space is read; absent means the client's own.
        job_id: Option<Cow<'a, str>>,
        /// A hint which rank has put the key; -1 for none.
        source: i64,
        /// The key.
        key: Cow<'a, [u8]>,
        /// Extension: get it from that rank as soon as it has put it, fenced or not.
        direct: bool,
    },
    /// `kvs-fence`: collective; answered when complete.
    KvsFence,
    /// `finalize`.
    Finalize,
    /// `abort`: has no reply.
    Abort {
        /// Whether the whole job is meant (it always is, here).
        is_world: bool,
        /// Exit status asked for, if the client sent one.
        exit_code: Option<i32>,
        /// Text for the user; may be empty.
        message: Cow<'a, [u8]>,
    },
    /// `name-publish`.
    NamePublish {
        /// The service.
        name: Cow<'a, [u8]>,
        /// Where it is to be found.
        port: Cow<'a, [u8]>,
    },
    /// `name-lookup`.
    NameLookup {
        /// The service.
        name: Cow<'a, [u8]>,
    },
    /// `name-unpublish`.
    NameUnpublish {
        /// The service.
        name: Cow<'a, [u8]>,
    },
    /// `spawn`: answered when the processes run.
    Spawn(SpawnRequest),
    /// `ring` (`PMIX_Ring`): collective; answered when complete.
    Ring {
        /// Number of values that the client stands for: 1.
        count: u32,
        /// The value that the PE to the left gets, at most [`MAX_VALUE`] bytes.
        left: Cow<'a, [u8]>,
        /// The value that the PE to the right gets, at most [`MAX_VALUE`] bytes. Clients send the
        /// same value twice.
        right: Cow<'a, [u8]>,
    },
    /// `job-connect`.
    JobConnect {
        /// The other job.
        job_id: Cow<'a, str>,
    },
    /// `job-disconnect`.
    JobDisconnect {
        /// The other job.
        job_id: Cow<'a, str>,
    },
    /// Extension `iallgather`: collective; answered at once.
    Iallgather {
        /// This PE's contribution, 1 to [`crate::wire::MAX_ALLGATHER_VALUE`] bytes.
        value: Cow<'a, [u8]>,
    },
    /// Extension `allgather`: collective; answered when complete.
    Allgather {
        /// This PE's contribution, 1 to [`crate::wire::MAX_ALLGATHER_VALUE`] bytes.
        value: Cow<'a, [u8]>,
    },
    /// Extension `ifence`: collective; answered at once.
    Ifence,
    /// Extension `wait`: answered when the operation is complete.
    Wait {
        /// Number of the operation.
        request: u64,
    },
    /// Extension `nla`: collective; answered when complete. One part of it, or all.
    Data {
        /// Which operation.
        operation: Operation,
        /// Rank of its root; 0 where there is none.
        root: u32,
        /// What this PE gives, at most [`DATA_PART`] bytes at a time.
        value: Cow<'a, [u8]>,
        /// Whether another part follows; this one is then not answered.
        more: bool,
    },
    /// Extension `nla-send`: answered at once.
    Send {
        /// Rank of the receiver.
        to: u32,
        /// The message, at most [`MAX_MESSAGE`] bytes.
        value: Cow<'a, [u8]>,
    },
    /// Extension `nla-recv`: answered when there is a message.
    Receive {
        /// Rank of the sender.
        from: u32,
    },
    /// Extension `tell`: has no reply.
    Tell {
        /// What the user is to read of this PE, at most [`MAX_TOLD`](crate::wire::MAX_TOLD) bytes.
        text: Cow<'a, [u8]>,
        /// Whether it only adds to what the PE has said before.
        adds: bool,
    },
}

impl<'a> Command<'a> {
    /// The value of `cmd`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::FullInit { .. } => "fullinit",
            Self::JobGetId => "job-getid",
            Self::JobAttr { .. } => "info-getjobattr",
            Self::PutNodeAttr { .. } => "info-putnodeattr",
            Self::NodeAttr { .. } => "info-getnodeattr",
            Self::KvsPut { .. } => "kvs-put",
            Self::KvsGet { .. } => "kvs-get",
            Self::KvsFence => "kvs-fence",
            Self::Finalize => "finalize",
            Self::Abort { .. } => "abort",
            Self::NamePublish { .. } => "name-publish",
            Self::NameLookup { .. } => "name-lookup",
            Self::NameUnpublish { .. } => "name-unpublish",
            Self::Spawn(_) => "spawn",
            Self::Ring { .. } => "ring",
            Self::JobConnect { .. } => "job-connect",
            Self::JobDisconnect { .. } => "job-disconnect",
            Self::Iallgather { .. } => "iallgather",
            Self::Allgather { .. } => "allgather",
            Self::Ifence => "ifence",
            Self::Wait { .. } => "wait",
            Self::Data { .. } => "nla",
            Self::Send { .. } => "nla-send",
            Self::Receive { .. } => "nla-recv",
            Self::Tell { .. } => "tell",
        }
    }

    /// Whether the command is one of the extensions.
    pub fn is_extension(&self) -> bool {
        is_extension(self.name().as_bytes())
    }

    /// Whether all PEs send it in the same order.
    pub fn is_collective(&self) -> bool {
        matches!(
            self,
            Self::KvsFence
                | Self::Ifence
                | Self::Iallgather { .. }
                | Self::Allgather { .. }
                | Self::Ring { .. }
                | Self::Data { .. }
        )
    }

    /// Whether the server may answer later requests first.
    pub(crate) fn may_be_withheld(&self) -> bool {
        matches!(
            self,
            Self::KvsFence
                | Self::Allgather { .. }
                | Self::Wait { .. }
                | Self::NamePublish { .. }
                | Self::NameLookup { .. }
                | Self::NameUnpublish { .. }
                | Self::Spawn(_)
                | Self::Ring { .. }
                | Self::KvsGet { .. }
                | Self::Data { .. }
                | Self::Receive { .. }
                | Self::NodeAttr { wait: true, .. }
        )
    }

    /// Reads a command from its fields.
    ///
    /// # Errors
    ///
    /// The command is unknown, or a field is absent or has an impossible value. The message
    /// boundaries are intact: the next message can be read.
    pub fn from_fields(fields: &Fields<'a>) -> Result<Self, WireError> {
        Ok(match fields.command() {
            b"fullinit" => Self::FullInit {
                job_id: fields.text("pmijobid")?,
                rank: fields.number("pmirank", "a rank")?,
                threaded: fields.flag("threaded")?.unwrap_or(false),
            },
            b"job-getid" => Self::JobGetId,
            b"info-getjobattr" => Self::JobAttr {
                key: fields.need("key")?,
            },
            b"info-putnodeattr" => Self::PutNodeAttr {
                key: fields.need("key")?,
                value: fields.need("value")?,
            },
            b"info-getnodeattr" => Self::NodeAttr {
                key: fields.need("key")?,
                wait: fields.flag("wait")?.unwrap_or(false),
            },
            b"kvs-put" => Self::KvsPut {
                key: fields.need("key")?,
                value: fields.need("value")?,
            },
            b"kvs-get" => Self::KvsGet {
                job_id: fields.text("jobid")?,
                source: fields.number("srcid", "a rank or -1")?.unwrap_or(-1),
                key: fields.need("key")?,
                direct: fields.flag("direct")?.unwrap_or(false),
            },
            b"kvs-fence" => Self::KvsFence,
            b"finalize" => Self::Finalize,
            b"abort" => Self::Abort {
                is_world: fields.flag("isworld")?.unwrap_or(true),
                exit_code: fields.number("exitcode", "an exit status")?,
                message: fields
                    .get("message")
                    .or_else(|| fields.get("msg"))
                    .cloned()
                    .unwrap_or_default(),
            },
            b"name-publish" => Self::NamePublish {
                name: fields.need("name")?,
                port: fields.need("port")?,
            },
            b"name-lookup" => Self::NameLookup {
                name: fields.need("name")?,
            },
            b"name-unpublish" => Self::NameUnpublish {
                name: fields.need("name")?,
            },
            b"spawn" => Self::Spawn(spawn::decode(fields)?),
            b"ring" => {
                let value = |name| match fields.need(name)? {
                    value if value.len() > MAX_VALUE => Err(WireError::TooLong {
                        what: "the value of a ring",
                        len: value.len(),
                        max: MAX_VALUE,
                    }),
                    value => Ok(value),
                };
                Self::Ring {
                    count: fields.number("ring-count", "a number")?.unwrap_or(1),
                    left: value("ring-left")?,
                    right: value("ring-right")?,
                }
            }
            b"job-connect" => Self::JobConnect {
                job_id: fields.need_text("jobid")?,
            },
            b"job-disconnect" => Self::JobDisconnect {
                job_id: fields.need_text("jobid")?,
            },
            b"iallgather" => Self::Iallgather {
                value: Cow::Owned(fields.hex("value")?),
            },
            b"allgather" => Self::Allgather {
                value: Cow::Owned(fields.hex("value")?),
            },
            b"ifence" => Self::Ifence,
            b"wait" => Self::Wait {
                request: fields.need_number("request", "the number of a request")?,
            },
            b"nla" => Self::Data {
                operation: Operation::from_name(&fields.need("op")?)
                    .ok_or_else(|| fields.bad("op", "an operation of the NLA layer"))?,
                root: fields.number("root", "a rank")?.unwrap_or(0),
                value: Cow::Owned(fields.hex_up_to("value", DATA_PART)?),
                more: fields.flag("more")?.unwrap_or(false),
            },
            b"nla-send" => Self::Send {
                to: fields.need_number("to", "a rank")?,
                value: Cow::Owned(fields.hex_up_to("value", MAX_MESSAGE)?),
            },
            b"nla-recv" => Self::Receive {
                from: fields.need_number("from", "a rank")?,
            },
            b"tell" => Self::Tell {
                text: fields.need("text")?,
                adds: fields.flag("adds")?.unwrap_or(false),
            },
            _ => {
                return Err(WireError::UnknownCommand {
                    name: fields.command_text(),
                });
            }
        })
    }
}

/// Whether `name` is the name of an extension command.
pub(crate) fn is_extension(name: &[u8]) -> bool {
    matches!(
        name,
        b"iallgather"
            | b"allgather"
            | b"ifence"
            | b"wait"
            | b"nla"
            | b"nla-send"
            | b"nla-recv"
            | b"tell"
    )
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
        match &self.command {
            Command::FullInit {
                job_id,
                rank,
                threaded,
            } => {
                if let Some(id) = job_id {
                    w.field("pmijobid", id.as_bytes());
                }
                if let Some(rank) = rank {
                    w.number("pmirank", *rank);
                }
                w.flag("threaded", *threaded);
            }
            Command::JobAttr { key } => w.field("key", key),
            Command::PutNodeAttr { key, value } | Command::KvsPut { key, value } => {
                w.field("key", key);
                w.field("value", value);
            }
            Command::NodeAttr { key, wait } => {
                w.field("key", key);
                w.flag("wait", *wait);
            }
            Command::KvsGet {
                job_id,
                source,
                key,
                direct,
            } => {
                if let Some(id) = job_id {
                    w.field("jobid", id.as_bytes());
                }
                w.number("srcid", *source);
                w.field("key", key);
                if *direct {
                    w.flag("direct", true);
                }
            }
            Command::Abort {
                is_world,
                exit_code,
                message,
            } => {
                w.flag("isworld", *is_world);
                if let Some(code) = exit_code {
                    w.number("exitcode", *code);
                }
                if !message.is_empty() {
                    // Slurm reads `msg`, current MPICH servers read `message`.
                    w.field("msg", message);
                    w.field("message", message);
                }
            }
            Command::NamePublish { name, port } => {
                w.field("name", name);
                w.field("port", port);
                w.number("infokeycount", 0);
            }
            Command::NameLookup { name } | Command::NameUnpublish { name } => {
                w.field("name", name);
                w.number("infokeycount", 0);
            }
            Command::Spawn(request) => spawn::encode(request, &mut w),
            Command::Ring { count, left, right } => {
                w.number("ring-count", *count);
                w.field("ring-left", left);
                w.field("ring-right", right);
            }
            Command::JobConnect { job_id } | Command::JobDisconnect { job_id } => {
                w.field("jobid", job_id.as_bytes());
            }
            Command::Iallgather { value } | Command::Allgather { value } => w.hex("value", value),
            Command::Wait { request } => w.number("request", *request),
            Command::Data {
                operation,
                root,
                value,
                more,
            } => {
                w.field("op", operation.name().as_bytes());
                w.number("root", *root);
                w.hex_if_any("value", value);
                w.flag("more", *more);
            }
            Command::Send { to, value } => {
                w.number("to", *to);
                w.hex_if_any("value", value);
            }
            Command::Receive { from } => w.number("from", *from),
            Command::Tell { text, adds } => {
                w.field("text", text);
                w.flag("adds", *adds);
            }
            Command::JobGetId | Command::KvsFence | Command::Finalize | Command::Ifence => {}
        }
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
            (bytes(), any::<bool>()).prop_map(|(text, adds)| Command::Tell { text, adds }),
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
