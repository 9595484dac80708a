//! What a node agent answers.

use std::borrow::Cow;

use super::DATA_PART;
use super::codec::{Bytes, Codec, Flag, HexUpTo, Maybe, Number, Or, Text, messages};
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

messages! {
    /// The answers, one for each command that has any, under its name.
    pub enum Reply<'a> {
        /// To `fullinit`.
        FullInit "fullinit" (facts: FullInitReply<'a> = Facts),
        /// To `job-getid`.
        JobId "job-getid" (id: Cow<'a, str> = Text("jobid")),
        /// To `info-getjobattr`: the value, if there is such an attribute.
        JobAttr "info-getjobattr" (value: Option<Cow<'a, [u8]>> = Found),
        /// To `info-putnodeattr`.
        NodeAttrPut "info-putnodeattr",
        /// To `info-getnodeattr`: the value, if the key has been put.
        NodeAttr "info-getnodeattr" (value: Option<Cow<'a, [u8]>> = Found),
        /// To `kvs-put`.
        KvsPut "kvs-put",
        /// To `kvs-get`: the value, if a fence has made one visible.
        KvsGet "kvs-get" (value: Option<Cow<'a, [u8]>> = Found),
        /// To `kvs-fence`: all puts before it are visible.
        KvsFence "kvs-fence",
        /// To `finalize`.
        Finalize "finalize",
        /// To `name-publish`.
        NamePublished "name-publish",
        /// To `name-lookup`: where the service is to be found.
        NameFound "name-lookup" (port: Cow<'a, [u8]> = Port),
        /// To `name-unpublish`.
        NameUnpublished "name-unpublish",
        /// To `spawn`: the processes run.
        Spawned "spawn" {
            /// The new job. Ours always tells.
            job_id: Option<Cow<'a, str>> = JobStarted,
            /// For each process 0 or an error, if the server tells.
            errcodes: Vec<i32> = spawn::Errcodes,
        },
        /// To `ring`.
        Ring "ring" {
            /// Rank of the PE in the ring.
            rank: u32 = Number("ring-count", "a rank"),
            /// What the PE to the left gave for its right.
            left: Cow<'a, [u8]> = Bytes("ring-left"),
            /// What the PE to the right gave for its left.
            right: Cow<'a, [u8]> = Bytes("ring-right"),
            /// Number of PEs in the ring, if the server tells.
            size: Option<u32> = Maybe(Number("ring-size", "a number of PEs")),
        },
        /// To `job-connect`.
        JobConnected "job-connect",
        /// To `job-disconnect`.
        JobDisconnected "job-disconnect",
        /// To `iallgather`: the operation has been started under this number.
        Iallgather "iallgather" (request: u64 = REQUEST),
        /// To `allgather`: the operation is complete and its result published.
        Allgather "allgather" (request: u64 = REQUEST),
        /// To `ifence`: the operation has been started under this number.
        Ifence "ifence" (request: u64 = REQUEST),
        /// To `wait`: the operation is complete.
        Wait "wait" (request: u64 = REQUEST),
        /// To `nla`: the operation is complete; one part of what this PE gets, or all.
        Data "nla" {
            /// Number of the operation.
            request: u64 = REQUEST,
            /// At most [`DATA_PART`] bytes at a time.
            value: Cow<'a, [u8]> = HexUpTo("value", DATA_PART),
            /// Whether another part follows.
            more: bool = Flag("more"),
        },
        /// To `nla-send`: the message has been taken.
        Sent "nla-send",
        /// To `nla-recv`: the message.
        Received "nla-recv" (message: Cow<'a, [u8]> = HexUpTo("value", MAX_MESSAGE));

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
}

const SUFFIX: &str = "-response";

const REQUEST: Number = Number("request", "the number of a request");

impl Reply<'_> {
    /// The command that is answered.
    pub fn command(&self) -> &str {
        match self {
            Self::Refused { command, .. } => command,
            reply => reply.row_name().unwrap_or_default(),
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
        let mut rc = fields.number("rc", "a return code")?.unwrap_or(0);
        let mut message = fields.get("errmsg").map_or(Cow::Borrowed(""), |text| {
            Cow::Owned(String::from_utf8_lossy(text).into_owned())
        });
        if rc == 0 && command == b"name-lookup" && fields.flag("found")? == Some(false) {
            (rc, message) = (-1, Cow::Borrowed(question::NO_SUCH_NAME));
        }
        let reply = match rc {
            0 => Reply::read(command, &fields)?.ok_or_else(unknown)?,
            rc => Reply::Refused {
                command: Cow::Owned(excerpt(command)),
                rc,
                message,
            },
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
        } else {
            w.number("rc", 0);
            self.reply.write(&mut w);
        }
        w.finish()
    }
}

struct Facts;

impl<'a> Codec<'a, FullInitReply<'a>> for Facts {
    fn read(&self, fields: &Fields<'a>) -> Result<FullInitReply<'a>, WireError> {
        Ok(FullInitReply {
            rank: Number("rank", "a rank").read(fields)?,
            size: Number("size", "a number of PEs").read(fields)?,
            appnum: Or(Number("appnum", "a number"), -1).read(fields)?,
            debugged: Flag("debugged").read(fields)?,
            verbose: Flag("pmiverbose").read(fields)?,
            spawner: Maybe(Text("spawner-jobid")).read(fields)?,
            restarts: Or(Number("restarts", "a number"), 0).read(fields)?,
            first_request: Or(Number("first-request", "the number of a request"), 0)
                .read(fields)?,
        })
    }

    fn write(&self, w: &mut BodyWriter<'_>, facts: &FullInitReply<'a>) {
        w.number("pmi-version", 2);
        w.number("pmi-subversion", 0);
        w.number("rank", facts.rank);
        w.number("size", facts.size);
        w.number("appnum", facts.appnum);
        w.flag("debugged", facts.debugged);
        w.flag("pmiverbose", facts.verbose);
        Maybe(Text("spawner-jobid")).write(w, &facts.spawner);
        if facts.restarts > 0 {
            w.number("restarts", facts.restarts);
            w.number("first-request", facts.first_request);
        }
    }
}

/// A value, and whether there is one; not all servers say both.
struct Found;

impl<'a> Codec<'a, Option<Cow<'a, [u8]>>> for Found {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<Cow<'a, [u8]>>, WireError> {
        Ok(match fields.flag("found")? {
            Some(false) => None,
            Some(true) => Some(fields.need("value")?),
            None => fields.get("value").cloned(),
        })
    }

    fn write(&self, w: &mut BodyWriter<'_>, value: &Option<Cow<'a, [u8]>>) {
        w.flag("found", value.is_some());
        if let Some(value) = value {
            w.field("value", value);
        }
    }
}

/// Clients and servers differ in where they look for it.
struct Port;

impl<'a> Codec<'a, Cow<'a, [u8]>> for Port {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        let port = fields.get("port").cloned();
        port.map_or_else(|| fields.need("value"), Ok)
    }

    fn write(&self, w: &mut BodyWriter<'_>, port: &Cow<'a, [u8]>) {
        w.field("port", port);
        w.field("value", port);
        w.flag("found", true);
    }
}

/// The job that was started, which PMI-2 always tells.
struct JobStarted;

impl<'a> Codec<'a, Option<Cow<'a, str>>> for JobStarted {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<Cow<'a, str>>, WireError> {
        Text("jobid").read(fields).map(Some)
    }

    fn write(&self, w: &mut BodyWriter<'_>, job_id: &Option<Cow<'a, str>>) {
        Maybe(Text("jobid")).write(w, job_id);
    }
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
                Reply::Ring {
                    rank,
                    size,
                    left,
                    right,
                }
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
    fn replies_are_on_the_wire_as_ever() {
        let facts = FullInitReply {
            rank: 1,
            size: 2,
            appnum: -1,
            debugged: false,
            verbose: true,
            spawner: Some("s".into()),
            restarts: 3,
            first_request: 4,
        };
        let (left, right) = (Cow::Borrowed(&b"l"[..]), Cow::Borrowed(&b"r"[..]));
        for (reply, rest) in [
            (
                Reply::FullInit(facts),
                "pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=-1;debugged=FALSE;\
                 pmiverbose=TRUE;spawner-jobid=s;restarts=3;first-request=4;",
            ),
            (Reply::KvsGet(None), "found=FALSE;"),
            (Reply::NameFound(left.clone()), "port=l;value=l;found=TRUE;"),
            (
                Reply::Spawned {
                    job_id: Some("j".into()),
                    errcodes: vec![0, -1],
                },
                "jobid=j;nerrs=1;errcodes=0,-1;",
            ),
            (
                Reply::Ring {
                    rank: 1,
                    left,
                    right: right.clone(),
                    size: Some(2),
                },
                "ring-count=1;ring-left=l;ring-right=r;ring-size=2;",
            ),
            (
                Reply::Data {
                    request: 5,
                    value: right,
                    more: true,
                },
                "request=5;value=72;more=TRUE;",
            ),
        ] {
            let body = format!("cmd={}-response;rc=0;{rest}", reply.command());
            let mut out = Vec::new();
            let thread_id = None;
            Response { thread_id, reply }.encode(&mut out).unwrap();
            assert_eq!(String::from_utf8(out.split_off(6)), Ok(body));
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
