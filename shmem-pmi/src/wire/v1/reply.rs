//! What a node agent answers, in one line each.

use std::borrow::Cow;

use super::InitReply;
use super::line::{Fields, LineWriter};
use crate::wire::{MAX_KEY, MAX_VALUE, WireError};

/// The lengths that `get_maxes` tells, in bytes, with the NUL that C clients put behind a text.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Maxes {
    /// Of the name of a key-value space.
    pub kvsname: u32,
    /// Of a key.
    pub key: u32,
    /// Of a value.
    pub value: u32,
}

impl Maxes {
    /// What common servers offer, and ours.
    pub const OURS: Self = Self {
        kvsname: 256,
        key: MAX_KEY as u32,
        value: MAX_VALUE as u32,
    };
}

/// What `cmd=set` tells in the port model.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Fact {
    /// Number of PEs of the job.
    Size(u32),
    /// Rank of the PE.
    Rank(u32),
    /// How much the client library should talk about what it does.
    Debug(i32),
    /// Something else, which need not interest anybody.
    Other,
}

/// The answers, one for each command that has any.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum Reply<'a> {
    /// To `init`.
    Init(InitReply),
    /// To `initack`; three [`Reply::Set`] follow: size, rank, debug.
    InitAck,
    /// A fact of the port model.
    Set(Fact),
    /// To `get_maxes`.
    Maxes(Maxes),
    /// To `get_appnum`; -1 if the launcher does not say.
    Appnum(i32),
    /// To `get_universe_size`; -1 if the launcher does not say.
    UniverseSize(i32),
    /// To `get_my_kvsname`.
    MyKvsName(&'a [u8]),
    /// To `put`.
    Put,
    /// To `get`: the value, if there is one.
    Get(Option<&'a [u8]>),
    /// To `barrier_in`; with PMI-1.2 with the tag of the barrier.
    Barrier(Option<u32>),
    /// To `publish_name`.
    Publish,
    /// To `lookup_name`: where the service is to be found.
    Lookup(&'a [u8]),
    /// To `unpublish_name`.
    Unpublish,
    /// To `spawn`: the processes run.
    Spawn {
        /// The new job, if the server tells.
        job_id: Option<&'a [u8]>,
        /// For each process 0 or an error, if the server tells.
        errcodes: Vec<i32>,
    },
    /// To `finalize`.
    Finalize,
    /// To any command: it failed.
    Refused {
        /// Name of the reply, for example `put_result`; see [`Reply::name_for`].
        reply: Cow<'a, str>,
        /// Reason as a number, never 0.
        rc: i32,
        /// Reason in words, in which `_` stands for a blank; may be empty.
        message: Cow<'a, str>,
    },
}

const UNKNOWN: &str = "unknown_result";

/// Commands and the names of their replies.
const NAMES: [(&str, &str); 15] = [
    ("init", "response_to_init"),
    ("initack", "initack"),
    ("set", "set"),
    ("get_maxes", "maxes"),
    ("get_appnum", "appnum"),
    ("get_universe_size", "universe_size"),
    ("get_my_kvsname", "my_kvsname"),
    ("put", "put_result"),
    ("get", "get_result"),
    ("barrier_in", "barrier_out"),
    ("publish_name", "publish_result"),
    ("lookup_name", "lookup_result"),
    ("unpublish_name", "unpublish_result"),
    ("spawn", "spawn_result"),
    ("finalize", "finalize_ack"),
];

fn reply_for(command: &str) -> &'static str {
    let mut names = NAMES.iter();
    let found = names.find(|(name, _)| *name == command);
    found.map_or(UNKNOWN, |(_, reply)| reply)
}

impl<'a> Reply<'a> {
    /// The name of the reply to a command, `unknown_result` if there is no such command.
    pub fn name_for(command: &str) -> &'static str {
        reply_for(command)
    }

    /// The value of `cmd`.
    pub fn name(&self) -> &str {
        reply_for(match self {
            Self::Init(_) => "init",
            Self::InitAck => "initack",
            Self::Set(_) => "set",
            Self::Maxes(_) => "get_maxes",
            Self::Appnum(_) => "get_appnum",
            Self::UniverseSize(_) => "get_universe_size",
            Self::MyKvsName(_) => "get_my_kvsname",
            Self::Put => "put",
            Self::Get(_) => "get",
            Self::Barrier(_) => "barrier_in",
            Self::Publish => "publish_name",
            Self::Lookup(_) => "lookup_name",
            Self::Unpublish => "unpublish_name",
            Self::Spawn { .. } => "spawn",
            Self::Finalize => "finalize",
            Self::Refused { reply, .. } => return reply,
        })
    }

    /// Reads a reply from a line (without newline).
    ///
    /// Tolerant where servers differ: order of the words, words that it does not know, absent
    /// `rc` and `msg`, `info=fail` for a failure, and all the ways to say that a key is not there.
    ///
    /// # Errors
    ///
    /// The line is malformed, no known reply, or lacks a field.
    pub fn decode(line: &'a [u8]) -> Result<Self, WireError> {
        let fields = Fields::decode(line)?;
        let number = |name, expected| fields.number::<i32>(name, expected);
        let rc = number("rc", "a return code")?.unwrap_or(0);
        if fields.command() == b"response_to_init" {
            let version = |name| fields.need_number(name, "a version number");
            return Ok(Self::Init(InitReply {
                version: version("pmi_version")?,
                subversion: version("pmi_subversion")?,
                rc,
                restarts: fields.number("restarts", "a number")?.unwrap_or(0),
                first_request: fields.number("first-request", "a number")?.unwrap_or(0),
            }));
        }
        let failed = fields.get("info") == Some(b"fail");
        if rc != 0 || failed || fields.get("found") == Some(b"FALSE") {
            return Ok(refused(&fields, if rc == 0 { -1 } else { rc }));
        }
        Ok(match fields.command() {
            b"initack" => Self::InitAck,
            b"set" => Self::Set(
                if let Some(size) = fields.number("size", "a number of PEs")? {
                    Fact::Size(size)
                } else if let Some(rank) = fields.number("rank", "a rank")? {
                    Fact::Rank(rank)
                } else if let Some(level) = fields.number("debug", "a number")? {
                    Fact::Debug(level)
                } else {
                    Fact::Other
                },
            ),
            b"maxes" => {
                let max = |name| fields.need_number(name, "a length");
                Self::Maxes(Maxes {
                    kvsname: max("kvsname_max")?,
                    key: max("keylen_max")?,
                    value: max("vallen_max")?,
                })
            }
            b"appnum" => Self::Appnum(fields.need_number("appnum", "a number")?),
            b"universe_size" => Self::UniverseSize(fields.need_number("size", "a number")?),
            b"my_kvsname" => Self::MyKvsName(fields.need("kvsname")?),
            b"put_result" => Self::Put,
            b"get_result" => {
                let value = fields.get("value");
                Self::Get(Some(value.map_or_else(|| fields.need("value"), Ok)?))
            }
            b"barrier_out" => Self::Barrier(fields.number("tag", "a number")?),
            b"publish_result" => Self::Publish,
            b"lookup_result" => Self::Lookup(fields.need("port")?),
            b"unpublish_result" => Self::Unpublish,
            b"spawn_result" => Self::Spawn {
                job_id: fields.get("jobid"),
                errcodes: errcodes(&fields)?,
            },
            b"finalize_ack" => Self::Finalize,
            _ => {
                return Err(WireError::UnknownCommand {
                    name: fields.command_text(),
                });
            }
        })
    }

    /// Appends the line to `out`.
    ///
    /// # Errors
    ///
    /// As for [`super::Command::encode`], except that the value of [`Reply::Get`] may have
    /// backslashes. `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut names = NAMES.iter().map(|(_, reply)| *reply);
        let name = names.find(|name| *name == self.name()).unwrap_or(UNKNOWN);
        let mut w = LineWriter::new(out, name);
        match self {
            Self::Init(init) => {
                w.number("pmi_version", init.version);
                w.number("pmi_subversion", init.subversion);
                w.number("rc", init.rc);
                if init.restarts > 0 {
                    w.number("restarts", init.restarts);
                    w.number("first-request", init.first_request);
                }
            }
            Self::InitAck => w.number("rc", 0),
            Self::Set(Fact::Size(size)) => w.number("size", *size),
            Self::Set(Fact::Rank(rank)) => w.number("rank", *rank),
            Self::Set(Fact::Debug(level)) => w.number("debug", *level),
            Self::Set(Fact::Other) => {}
            Self::Maxes(maxes) => {
                w.number("kvsname_max", maxes.kvsname);
                w.number("keylen_max", maxes.key);
                w.number("vallen_max", maxes.value);
                w.number("rc", 0);
            }
            Self::Appnum(number) => {
                w.number("rc", 0);
                w.number("appnum", *number);
            }
            Self::UniverseSize(size) => {
                w.number("rc", 0);
                w.number("size", *size);
            }
            Self::MyKvsName(kvsname) => {
                w.number("rc", 0);
                w.word("kvsname", kvsname);
            }
            Self::Put => {
                w.number("rc", 0);
                w.message("msg", "success");
            }
            Self::Get(Some(value)) => {
                w.number("rc", 0);
                w.message("msg", "success");
                w.stored("value", value);
            }
            Self::Get(None) => {
                w.number("rc", -1);
                w.message("msg", "key_not_found");
                w.message("value", "unknown");
            }
            Self::Barrier(tag) => {
                w.number("rc", 0);
                if let Some(tag) = tag {
                    w.number("tag", *tag);
                }
            }
            Self::Finalize => w.number("rc", 0),
            Self::Publish | Self::Unpublish => {
                w.message("info", "ok");
                w.number("rc", 0);
                w.message("msg", "success");
            }
            Self::Lookup(port) => {
                w.stored("port", port);
                w.message("info", "ok");
                w.number("rc", 0);
                w.message("msg", "success");
            }
            Self::Spawn { job_id, errcodes } => {
                w.number("rc", 0);
                if let Some(id) = job_id {
                    w.word("jobid", id);
                }
                let codes: Vec<_> = errcodes.iter().map(i32::to_string).collect();
                let codes = codes.join(",");
                // Clients take absent codes for zeros, and read no longer line.
                if !codes.is_empty() && w.fits(codes.len() + 20) {
                    w.word("errcodes", codes.as_bytes());
                }
            }
            Self::Refused { rc, message, .. } => {
                w.number("rc", *rc);
                if !message.is_empty() {
                    w.message("msg", message);
                }
                if name == "get_result" {
                    w.message("value", "unknown");
                }
            }
        }
        w.finish()
    }
}

/// A failure. Servers have one code for all failures of `get`; that the key is not there is told
/// by words, by a flag, or by saying nothing.
fn refused<'a>(fields: &Fields<'a>, rc: i32) -> Reply<'a> {
    // Flux's has blanks in it.
    let message = String::from_utf8_lossy(fields.phrase("msg").unwrap_or_default());
    let says_nothing = message.is_empty() || message.contains("not_found");
    let absent = says_nothing || fields.get("found") == Some(b"FALSE");
    if fields.command() == b"get_result" && absent {
        return Reply::Get(None);
    }
    Reply::Refused {
        reply: fields.command_text().into(),
        rc,
        message,
    }
}

fn errcodes(fields: &Fields<'_>) -> Result<Vec<i32>, WireError> {
    let Some(codes) = fields.get("errcodes") else {
        return Ok(Vec::new());
    };
    let bad = || fields.bad("errcodes", "numbers between commas");
    let text = std::str::from_utf8(codes).map_err(|_| bad())?;
    let codes = text.split(',').filter(|code| !code.is_empty());
    codes.map(|code| code.parse().map_err(|_| bad())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn reply() -> impl Strategy<Value = Reply<'static>> {
        let word = || "[a-zA-Z0-9=;,:$#(){}./_-]{1,30}".prop_map(|s| &*s.into_bytes().leak());
        let stored = "[a-z=;\\\\]{1,30}".prop_map(|s| &*s.into_bytes().leak());
        prop_oneof![
            (
                any::<(u32, u32, i32)>(),
                prop_oneof![Just((0, 0)), (1u32.., any::<u64>())]
            )
                .prop_map(|((version, subversion, rc), (restarts, first_request))| {
                    Reply::Init(InitReply {
                        version,
                        subversion,
                        rc,
                        restarts,
                        first_request,
                    })
                }),
            (any::<u32>(), any::<i32>()).prop_flat_map(|(number, level)| {
                let facts = [
                    Fact::Size(number),
                    Fact::Rank(number),
                    Fact::Debug(level),
                    Fact::Other,
                ];
                prop::sample::select(facts.map(Reply::Set).to_vec())
            }),
            any::<[u32; 3]>().prop_map(|[kvsname, key, value]| Reply::Maxes(Maxes {
                kvsname,
                key,
                value
            })),
            any::<i32>().prop_map(Reply::Appnum),
            any::<i32>().prop_map(Reply::UniverseSize),
            word().prop_map(Reply::MyKvsName),
            prop::option::of(stored).prop_map(Reply::Get),
            word().prop_map(Reply::Lookup),
            prop::sample::select(vec![
                Reply::InitAck,
                Reply::Put,
                Reply::Barrier(None),
                Reply::Barrier(Some(7)),
                Reply::Publish,
                Reply::Unpublish,
                Reply::Finalize,
            ]),
            (
                prop::option::of(word()),
                prop::collection::vec(any::<i32>(), 0..9)
            )
                .prop_map(|(job_id, errcodes)| Reply::Spawn { job_id, errcodes }),
            (0usize..NAMES.len(), 1i32.., "[a-z_]{0,20}").prop_map(|(at, rc, message)| {
                let (command, reply) = NAMES[at];
                match command {
                    "init" => Reply::Put,
                    "get" => Reply::Get(None),
                    _ => Reply::Refused {
                        reply: reply.into(),
                        rc,
                        message: message.into(),
                    },
                }
            }),
        ]
    }

    proptest! {
        #[test]
        fn replies_round_trip(reply in reply()) {
            let mut out = Vec::new();
            reply.encode(&mut out).unwrap();
            prop_assert_eq!(out.pop(), Some(b'\n'));
            prop_assert_eq!(Reply::decode(&out), Ok(reply));
        }

        #[test]
        fn damage_never_panics(reply in reply(), at: usize, to: u8, cut: usize) {
            let mut out = Vec::new();
            reply.encode(&mut out).unwrap();
            let at = at % out.len();
            out[at] = to;
            let _ = Reply::decode(&out);
            let _ = Reply::decode(&out[..cut % out.len()]);
        }

        #[test]
        fn refusals_are_always_sent(rc: i32, message: String) {
            let reply = "get_result".into();
            let mut out = Vec::new();
            Reply::Refused { reply, rc, message: message.into() }.encode(&mut out).unwrap();
            let (newline, words) = out.split_last().unwrap();
            prop_assert_eq!(*newline, b'\n');
            prop_assert!(words.iter().all(|b| (b' '..=b'~').contains(b)));
        }
    }

    #[test]
    fn replies_of_other_servers() {
        let read = |line: &'static str| Reply::decode(line.as_bytes()).unwrap();
        let init = InitReply {
            version: 1,
            subversion: 1,
            rc: 0,
            restarts: 0,
            first_request: 0,
        };
        for line in [
            "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0",
            "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1",
            "cmd=response_to_init pmi_version=1 pmi_subversion=1",
        ] {
            assert_eq!(read(line), Reply::Init(init));
        }
        assert_eq!(read("cmd=initack"), Reply::InitAck);
        assert_eq!(read("cmd=set size=8"), Reply::Set(Fact::Size(8)));
        assert_eq!(read("cmd=appnum rc=0 appnum=-1"), Reply::Appnum(-1));
        assert_eq!(read("cmd=universe_size size=-1"), Reply::UniverseSize(-1));
        for line in [
            "cmd=get_result rc=-1 msg=key_ep-1_not_found value=unknown",
            "cmd=get_result rc=-1 msg=key_ep-1_not_found value=unknown found=FALSE",
            "cmd=get_result rc=1",
            "cmd=get_result rc=0 found=FALSE",
        ] {
            assert_eq!(read(line), Reply::Get(None));
        }
        assert_eq!(read("cmd=get_result value=v"), Reply::Get(Some(b"v")));
        assert_eq!(read("cmd=get_result rc=0 value="), Reply::Get(Some(b"")));
        assert_eq!(read("cmd=barrier_out rc=0"), Reply::Barrier(None));
        for line in [
            "cmd=lookup_result rc=1 msg=service_not_found",
            "cmd=lookup_result info=fail",
            "cmd=publish_result info=ok rc=1 msg=key_already_present",
        ] {
            assert!(matches!(read(line), Reply::Refused { .. }), "{line}");
        }
        assert_eq!(
            read("cmd=lookup_result info=ok port=p"),
            Reply::Lookup(b"p")
        );
        let errcodes = vec![0, 0];
        let job_id = None;
        assert_eq!(
            read("cmd=spawn_result rc=0 errcodes=0,0"),
            Reply::Spawn { job_id, errcodes }
        );
        assert!(Reply::decode(b"cmd=get_result rc=0").is_err());
        assert!(Reply::decode(b"cmd=newkvs rc=0").is_err());
    }

    #[test]
    fn codes_that_do_not_fit_are_left_out() {
        let mut out = Vec::new();
        let (job_id, errcodes) = (Some(&b"j"[..]), vec![0; 600]);
        Reply::Spawn { job_id, errcodes }.encode(&mut out).unwrap();
        assert_eq!(out, b"cmd=spawn_result rc=0 jobid=j\n");
    }
}
