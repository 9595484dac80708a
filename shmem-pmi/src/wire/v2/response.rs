//! What a node agent answers.

use std::borrow::Cow;

use super::DATA_PART;
use super::fields::{BodyWriter, Fields};
use super::spawn;
use crate::question;
use crate::wire::data::MAX_MESSAGE;
use crate::wire::{WireError, excerpt};

/// A reply with the mark of the thread that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// Mark of the request (`thrid`), if it had one and the server repeats it.
    pub thread_id: Option<Cow<'a, [u8]>>,
    /// The answer.
    pub reply: Reply<'a>,
}

/// The facts that a PE learns from `fullinit-response`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FullInitReply<'a> {
    /// Rank of the PE in its job.
    pub rank: u32,
    /// Number of PEs of the job.
    pub size: u32,
    /// Number of the program among those of the job; -1 if the launcher does not say.
    pub appnum: i32,
    /// Whether a debugger controls the job.
    pub debugged: bool,
    /// Whether the client library should talk about what it does.
    pub verbose: bool,
    /// The job that spawned this one, if any.
    pub spawner: Option<Cow<'a, str>>,
    /// How often the PE's process has been started again; above 0, the server also tells the next
    /// field. Ours alone does.
    pub restarts: u32,
    /// Number of the PE's next collective operation: its former processes joined all before it.
    pub first_request: u64,
}

/// What `ring` gives each PE.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RingReply<'a> {
    /// Rank of the PE in the ring.
    pub rank: u32,
    /// Number of PEs in the ring, if the server tells.
    pub size: Option<u32>,
    /// What the PE to the left gave for its right.
    pub left: Cow<'a, [u8]>,
    /// What the PE to the right gave for its left.
    pub right: Cow<'a, [u8]>,
}

/// The answers, one for each command that has any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// To `fullinit`.
    FullInit(FullInitReply<'a>),
    /// To `job-getid`.
    JobId(Cow<'a, str>),
    /// To `info-getjobattr`: the value, if there is such an attribute.
    JobAttr(Option<Cow<'a, [u8]>>),
    /// To `info-putnodeattr`.
    NodeAttrPut,
    /// To `info-getnodeattr`: the value, if the key has been put.
    NodeAttr(Option<Cow<'a, [u8]>>),
    /// To `kvs-put`.
    KvsPut,
    /// To `kvs-get`: the value, if a fence has made one visible.
    KvsGet(Option<Cow<'a, [u8]>>),
    /// To `kvs-fence`: all puts before it are visible.
    KvsFence,
    /// To `finalize`.
    Finalize,
    /// To `name-publish`.
    NamePublished,
    /// To `name-lookup`: where the service is to be found.
    NameFound(Cow<'a, [u8]>),
    /// To `name-unpublish`.
    NameUnpublished,
    /// To `spawn`: the processes run.
    Spawned {
        /// The new job. Ours always tells.
        job_id: Option<Cow<'a, str>>,
        /// For each process 0 or an error, if the server tells.
        errcodes: Vec<i32>,
    },
    /// To `ring`.
    Ring(RingReply<'a>),
    /// To `job-connect`.
    JobConnected,
    /// To `job-disconnect`.
    JobDisconnected,
    /// To `iallgather`: the operation has been started under this number.
    Iallgather(u64),
    /// To `allgather`: the operation is complete and its result published.
    Allgather(u64),
    /// To `ifence`: the operation has been started under this number.
    Ifence(u64),
    /// To `wait`: the operation is complete.
    Wait(u64),
    /// To `nla`: the operation is complete; one part of what this PE gets, or all.
    Data {
        /// Number of the operation.
        request: u64,
        /// At most [`DATA_PART`] bytes at a time.
        value: Cow<'a, [u8]>,
        /// Whether another part follows.
        more: bool,
    },
    /// To `nla-send`: the message has been taken.
    Sent,
    /// To `nla-recv`: the message.
    Received(Cow<'a, [u8]>),
    /// To any command: it failed.
    Refused {
        /// The command, as the client named it.
        command: Cow<'a, str>,
        /// Reason as a number, never 0.
        rc: i32,
        /// Reason in words; may be empty.
        message: Cow<'a, str>,
    },
}

impl Reply<'_> {
    /// The command that is answered.
    pub fn command(&self) -> &str {
        match self {
            Self::FullInit(_) => "fullinit",
            Self::JobId(_) => "job-getid",
            Self::JobAttr(_) => "info-getjobattr",
            Self::NodeAttrPut => "info-putnodeattr",
            Self::NodeAttr(_) => "info-getnodeattr",
            Self::KvsPut => "kvs-put",
            Self::KvsGet(_) => "kvs-get",
            Self::KvsFence => "kvs-fence",
            Self::Finalize => "finalize",
            Self::NamePublished => "name-publish",
            Self::NameFound(_) => "name-lookup",
            Self::NameUnpublished => "name-unpublish",
            Self::Spawned { .. } => "spawn",
            Self::Ring(_) => "ring",
            Self::JobConnected => "job-connect",
            Self::JobDisconnected => "job-disconnect",
            Self::Iallgather(_) => "iallgather",
            Self::Allgather(_) => "allgather",
            Self::Ifence(_) => "ifence",
            Self::Wait(_) => "wait",
            Self::Data { .. } => "nla",
            Self::Sent => "nla-send",
            Self::Received(_) => "nla-recv",
            Self::Refused { command, .. } => command,
        }
    }

    /// The number of the collective operation that it is about, if it tells.
    pub(crate) fn request(&self) -> Option<u64> {
        match self {
            Self::Iallgather(request)
            | Self::Allgather(request)
            | Self::Ifence(request)
            | Self::Wait(request)
            | Self::Data { request, .. } => Some(*request),
            _ => None,
        }
    }
}

const SUFFIX: &str = "-response";

impl<'a> Response<'a> {
    /// Reads a response from the body of a message.
    ///
    /// # Errors
    ///
    /// The body is malformed, answers an unknown command, or lacks a field.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let fields = Fields::decode(body)?;
        let unknown = || WireError::UnknownCommand {
            name: fields.command_text(),
        };
        let command = fields
            .command()
            .strip_suffix(SUFFIX.as_bytes())
            .ok_or_else(unknown)?;
        let rc = fields.number("rc", "a return code")?.unwrap_or(0);
        let reply = if rc != 0 {
            let message = fields.get("errmsg").map_or(Cow::Borrowed(""), |text| {
                Cow::Owned(String::from_utf8_lossy(text).into_owned())
            });
            Reply::Refused {
                command: Cow::Owned(excerpt(command)),
                rc,
                message,
            }
        } else {
            match command {
                b"fullinit" => Reply::FullInit(FullInitReply {
                    rank: fields.need_number("rank", "a rank")?,
                    size: fields.need_number("size", "a number of PEs")?,
                    appnum: fields.number("appnum", "a number")?.unwrap_or(-1),
                    debugged: fields.flag("debugged")?.unwrap_or(false),
                    verbose: fields.flag("pmiverbose")?.unwrap_or(false),
                    spawner: fields.text("spawner-jobid")?,
                    restarts: fields.number("restarts", "a number")?.unwrap_or(0),
                    first_request: fields
                        .number("first-request", "the number of a request")?
                        .unwrap_or(0),
                }),
                b"job-getid" => Reply::JobId(fields.need_text("jobid")?),
                b"info-getjobattr" => Reply::JobAttr(found(&fields)?),
                b"info-putnodeattr" => Reply::NodeAttrPut,
                b"info-getnodeattr" => Reply::NodeAttr(found(&fields)?),
                b"kvs-put" => Reply::KvsPut,
                b"kvs-get" => Reply::KvsGet(found(&fields)?),
                b"kvs-fence" => Reply::KvsFence,
                b"finalize" => Reply::Finalize,
                b"name-publish" => Reply::NamePublished,
                b"name-lookup" => match fields.flag("found")? {
                    Some(false) => Reply::Refused {
                        command: Cow::Borrowed("name-lookup"),
                        rc: -1,
                        message: Cow::Borrowed(question::NO_SUCH_NAME),
                    },
                    _ => Reply::NameFound(match fields.get("port") {
                        Some(port) => port.clone(),
                        None => fields.need("value")?,
                    }),
                },
                b"name-unpublish" => Reply::NameUnpublished,
                b"spawn" => Reply::Spawned {
                    job_id: Some(fields.need_text("jobid")?),
                    errcodes: spawn::errcodes(&fields)?,
                },
                b"ring" => Reply::Ring(RingReply {
                    rank: fields.need_number("ring-count", "a rank")?,
                    size: fields.number("ring-size", "a number of PEs")?,
                    left: fields.need("ring-left")?,
                    right: fields.need("ring-right")?,
                }),
                b"job-connect" => Reply::JobConnected,
                b"job-disconnect" => Reply::JobDisconnected,
                b"iallgather" => Reply::Iallgather(request(&fields)?),
                b"allgather" => Reply::Allgather(request(&fields)?),
                b"ifence" => Reply::Ifence(request(&fields)?),
                b"wait" => Reply::Wait(request(&fields)?),
                b"nla" => Reply::Data {
                    request: request(&fields)?,
                    value: Cow::Owned(fields.hex_up_to("value", DATA_PART)?),
                    more: fields.flag("more")?.unwrap_or(false),
                },
                b"nla-send" => Reply::Sent,
                b"nla-recv" => Reply::Received(Cow::Owned(fields.hex_up_to("value", MAX_MESSAGE)?)),
                _ => return Err(unknown()),
            }
        };
        Ok(Self {
            thread_id: fields.thread_id(),
            reply,
        })
    }

    /// Appends the message, with its header, to `out`.
    ///
    /// # Errors
    ///
    /// [`WireError::TooLong`] if the body exceeds [`super::MAX_BODY`]; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let command = self.reply.command();
        let mut w = BodyWriter::new(out, command, SUFFIX, self.thread_id.as_deref());
        if let Reply::Refused { rc, message, .. } = &self.reply {
            w.number("rc", *rc);
            if !message.is_empty() {
                w.field("errmsg", message.as_bytes());
            }
            return w.finish();
        }
        w.number("rc", 0);
        match &self.reply {
            Reply::FullInit(init) => {
                w.number("pmi-version", 2);
                w.number("pmi-subversion", 0);
                w.number("rank", init.rank);
                w.number("size", init.size);
                w.number("appnum", init.appnum);
                w.flag("debugged", init.debugged);
                w.flag("pmiverbose", init.verbose);
                if let Some(job) = &init.spawner {
                    w.field("spawner-jobid", job.as_bytes());
                }
                if init.restarts > 0 {
                    w.number("restarts", init.restarts);
                    w.number("first-request", init.first_request);
                }
            }
            Reply::JobId(id) => w.field("jobid", id.as_bytes()),
            Reply::JobAttr(value) | Reply::NodeAttr(value) | Reply::KvsGet(value) => {
                w.flag("found", value.is_some());
                if let Some(value) = value {
                    w.field("value", value);
                }
            }
            Reply::NameFound(port) => {
                // Clients differ in which of them they read.
                w.field("port", port);
                w.field("value", port);
                w.flag("found", true);
            }
            Reply::Spawned { job_id, errcodes } => {
                if let Some(job_id) = job_id {
                    w.field("jobid", job_id.as_bytes());
                }
                w.number(
                    "nerrs",
                    errcodes.iter().filter(|&&code| code != 0).count() as u64,
                );
                if !errcodes.is_empty() {
                    w.field("errcodes", spawn::errcodes_field(errcodes).as_bytes());
                }
            }
            Reply::Ring(ring) => {
                w.number("ring-count", ring.rank);
                w.field("ring-left", &ring.left);
                w.field("ring-right", &ring.right);
                if let Some(size) = ring.size {
                    w.number("ring-size", size);
                }
            }
            Reply::Iallgather(request)
            | Reply::Allgather(request)
            | Reply::Ifence(request)
            | Reply::Wait(request) => w.number("request", *request),
            Reply::Data {
                request,
                value,
                more,
            } => {
                w.number("request", *request);
                w.hex_if_any("value", value);
                w.flag("more", *more);
            }
            Reply::Received(value) => w.hex_if_any("value", value),
            Reply::Sent
            | Reply::NodeAttrPut
            | Reply::KvsPut
            | Reply::KvsFence
            | Reply::NamePublished
            | Reply::NameUnpublished
            | Reply::JobConnected
            | Reply::JobDisconnected
            | Reply::Finalize => {}
            Reply::Refused { .. } => {}
        }
        w.finish()
    }
}

fn found<'a>(fields: &Fields<'a>) -> Result<Option<Cow<'a, [u8]>>, WireError> {
    Ok(match fields.flag("found")? {
        Some(false) => None,
        Some(true) => Some(fields.need("value")?),
        None => fields.get("value").cloned(),
    })
}

fn request(fields: &Fields<'_>) -> Result<u64, WireError> {
    fields.need_number("request", "the number of a request")
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn value() -> impl Strategy<Value = Option<Cow<'static, [u8]>>> {
        prop::option::of(prop::collection::vec(any::<u8>(), 0..40).prop_map(Cow::Owned))
    }

    fn reply() -> impl Strategy<Value = Reply<'static>> {
        let text = || "[a-z ;=0-9]{1,20}".prop_map(Cow::<'static, str>::Owned);
        prop_oneof![
            (
                any::<[u32; 2]>(),
                any::<i32>(),
                any::<[bool; 2]>(),
                prop::option::of(text()),
                prop_oneof![Just((0, 0)), (1u32.., any::<u64>())],
            )
                .prop_map(
                    |([rank, size], appnum, [debugged, verbose], spawner, again)| {
                        Reply::FullInit(FullInitReply {
                            rank,
                            size,
                            appnum,
                            debugged,
                            verbose,
                            spawner,
                            restarts: again.0,
                            first_request: again.1,
                        })
                    }
                ),
            Just(Reply::NamePublished),
            text().prop_map(|port| Reply::NameFound(Cow::Owned(port.as_bytes().to_vec()))),
            Just(Reply::NameUnpublished),
            (text(), prop::collection::vec(any::<i32>(), 0..5)).prop_map(|(job_id, errcodes)| {
                Reply::Spawned {
                    job_id: Some(job_id),
                    errcodes,
                }
            }),
            (any::<u32>(), any::<Option<u32>>(), text()).prop_map(|(rank, size, value)| {
                let value: Cow<'static, [u8]> = Cow::Owned(value.as_bytes().to_vec());
                let (left, right) = (value.clone(), value);
                Reply::Ring(RingReply {
                    rank,
                    size,
                    left,
                    right,
                })
            }),
            Just(Reply::JobConnected),
            Just(Reply::JobDisconnected),
            text().prop_map(Reply::JobId),
            value().prop_map(Reply::JobAttr),
            value().prop_map(Reply::NodeAttr),
            value().prop_map(Reply::KvsGet),
            Just(Reply::NodeAttrPut),
            Just(Reply::KvsPut),
            Just(Reply::KvsFence),
            Just(Reply::Finalize),
            any::<u64>().prop_map(Reply::Iallgather),
            any::<u64>().prop_map(Reply::Allgather),
            any::<u64>().prop_map(Reply::Ifence),
            any::<u64>().prop_map(Reply::Wait),
            (any::<u64>(), value(), any::<bool>()).prop_map(|(request, value, more)| Reply::Data {
                request,
                value: value.unwrap_or_default(),
                more,
            }),
            Just(Reply::Sent),
            value().prop_map(|value| Reply::Received(value.unwrap_or_default())),
            ("[a-z]{1,12}", 1..100i32, text()).prop_map(|(command, rc, message)| Reply::Refused {
                command: Cow::Owned(command),
                rc,
                message,
            }),
        ]
    }

    proptest! {
        #[test]
        fn responses_round_trip(reply in reply(), thread_id in value()) {
            let response = Response { thread_id, reply };
            let mut out = Vec::new();
            response.encode(&mut out).unwrap();
            prop_assert_eq!(Response::decode(&out[super::super::HEADER_LEN..]).unwrap(), response);
        }

        #[test]
        fn random_responses_never_panic(rest in prop::collection::vec(any::<u8>(), 0..60)) {
            let mut body = b"cmd=kvs-get-response;rc=0;found=".to_vec();
            body.extend_from_slice(&rest);
            let _ = Response::decode(&body);
            let _ = Response::decode(&rest);
        }
    }

    #[test]
    fn names_as_other_servers_find_them() {
        let read = |body: &'static str| Response::decode(body.as_bytes()).unwrap().reply;
        let found = Reply::NameFound(Cow::Borrowed(b"p"));
        assert_eq!(
            read("cmd=name-lookup-response;port=p;found=TRUE;rc=0;"),
            found
        );
        assert_eq!(read("cmd=name-lookup-response;rc=0;value=p;"), found);
        let none = read("cmd=name-lookup-response;found=FALSE;rc=0;");
        assert!(matches!(none, Reply::Refused { .. }));
    }

    #[test]
    fn absent_return_code_means_success() {
        let response = Response::decode(b"cmd=kvs-get-response;value=v;").unwrap();
        assert_eq!(response.reply, Reply::KvsGet(Some(Cow::Borrowed(b"v"))));
    }
}
