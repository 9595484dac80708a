//! All commands and replies, there and back in both versions; and examples of what other clients and
//! servers send, and of what is refused.

use std::borrow::Cow;

use proptest::prelude::*;

use super::*;
use crate::wire::v2::{HEADER_LEN, Request, Response};
use crate::wire::{Version, spawn};

fn bytes() -> impl Strategy<Value = Cow<'static, [u8]>> {
    prop_oneof![
        prop::collection::vec(any::<u8>(), 1..40),
        "[a-zA-Z0-9=;,:$#(){}./_-]{1,30}".prop_map(String::into_bytes),
    ]
    .prop_map(Cow::Owned)
}

fn any_bytes() -> impl Strategy<Value = Cow<'static, [u8]>> {
    prop::collection::vec(any::<u8>(), 0..40).prop_map(Cow::Owned)
}

fn text() -> impl Strategy<Value = Cow<'static, str>> {
    "[a-z0-9.;=]{1,12}".prop_map(Cow::Owned)
}

fn maybe<S: Strategy>(of: S) -> impl Strategy<Value = Option<S::Value>>
where
    S::Value: Clone,
{
    prop::option::of(of)
}

fn command() -> impl Strategy<Value = Command<'static>> {
    prop_oneof![
        any::<[u32; 2]>().prop_map(|[version, subversion]| Command::Init(InitLine {
            version,
            subversion
        })),
        any::<u32>().prop_map(|id| Command::InitAck { id }),
        (maybe(text()), any::<Option<u32>>(), any::<bool>()).prop_map(
            |(job_id, rank, threaded)| Command::FullInit {
                job_id,
                rank,
                threaded,
            }
        ),
        prop::sample::select(vec![
            Command::GetMaxes,
            Command::GetAppnum,
            Command::GetUniverseSize,
            Command::JobGetId,
            Command::Finalize,
            Command::Ifence,
        ]),
        bytes().prop_map(|key| Command::JobAttr { key }),
        (bytes(), bytes()).prop_map(|(key, value)| Command::PutNodeAttr { key, value }),
        (bytes(), any::<bool>()).prop_map(|(key, wait)| Command::NodeAttr { key, wait }),
        (maybe(text()), bytes(), bytes()).prop_map(|(job_id, key, value)| Command::KvsPut {
            job_id,
            key,
            value
        }),
        (maybe(text()), any::<i64>(), bytes(), any::<bool>()).prop_map(
            |(job_id, source, key, direct)| Command::KvsGet {
                job_id,
                source,
                key,
                direct
            }
        ),
        maybe(bytes()).prop_map(|group| Command::KvsFence { group }),
        (any::<bool>(), any::<Option<i32>>(), any_bytes()).prop_map(
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
        text().prop_map(|job_id| Command::JobConnect { job_id }),
        text().prop_map(|job_id| Command::JobDisconnect { job_id }),
        bytes().prop_map(|value| Command::Iallgather { value }),
        bytes().prop_map(|value| Command::Allgather { value }),
        any::<u64>().prop_map(|request| Command::Wait { request }),
        (
            prop::sample::select(&Operation::ALL[..]),
            any::<u32>(),
            any_bytes(),
            any::<bool>()
        )
            .prop_map(|(operation, root, value, more)| Command::Data {
                operation,
                root,
                value,
                more,
            }),
        (any::<u32>(), any_bytes()).prop_map(|(to, value)| Command::Send { to, value }),
        any::<u32>().prop_map(|from| Command::Receive { from }),
    ]
}

fn reply() -> impl Strategy<Value = Reply<'static>> {
    let restarts = || prop_oneof![Just((0, 0)), (1u32.., any::<u64>())];
    prop_oneof![
        (any::<(u32, u32, i32)>(), restarts()).prop_map(
            |((version, subversion, rc), (restarts, first_request))| Reply::Init(InitReply {
                version,
                subversion,
                rc,
                restarts,
                first_request,
            })
        ),
        (any::<u32>(), any::<i32>()).prop_flat_map(|(number, level)| {
            let facts = [
                Fact::Size(number),
                Fact::Rank(number),
                Fact::Debug(level),
                Fact::Other,
            ];
            prop::sample::select(facts.map(Reply::Set).to_vec())
        }),
        (
            any::<[u32; 2]>(),
            any::<i32>(),
            any::<[bool; 2]>(),
            maybe(text()),
            restarts(),
        )
            .prop_map(
                |([rank, size], appnum, [debugged, verbose], spawner, again)| Reply::FullInit(
                    FullInitReply {
                        rank,
                        size,
                        appnum,
                        debugged,
                        verbose,
                        spawner,
                        restarts: again.0,
                        first_request: again.1,
                    }
                )
            ),
        any::<[u32; 3]>().prop_map(|[kvsname, key, value]| Reply::Maxes(Maxes {
            kvsname,
            key,
            value
        })),
        any::<i32>().prop_map(Reply::Appnum),
        any::<i32>().prop_map(Reply::UniverseSize),
        text().prop_map(Reply::JobId),
        maybe(any_bytes()).prop_map(Reply::JobAttr),
        maybe(any_bytes()).prop_map(Reply::NodeAttr),
        maybe(any_bytes()).prop_map(Reply::KvsGet),
        any::<Option<u32>>().prop_map(|tag| Reply::KvsFence { tag }),
        bytes().prop_map(Reply::NameFound),
        prop::sample::select(vec![
            Reply::InitAck,
            Reply::NodeAttrPut,
            Reply::KvsPut,
            Reply::Finalize,
            Reply::NamePublished,
            Reply::NameUnpublished,
            Reply::JobConnected,
            Reply::JobDisconnected,
            Reply::Sent,
        ]),
        (text(), prop::collection::vec(any::<i32>(), 0..5)).prop_map(|(job_id, errcodes)| {
            let job_id = Some(job_id);
            Reply::Spawned { job_id, errcodes }
        }),
        (any::<u32>(), any::<Option<u32>>(), bytes(), bytes()).prop_map(
            |(rank, size, left, right)| Reply::Ring {
                rank,
                size,
                left,
                right,
            }
        ),
        any::<u64>().prop_map(Reply::Iallgather),
        any::<u64>().prop_map(Reply::Allgather),
        any::<u64>().prop_map(Reply::Ifence),
        any::<u64>().prop_map(Reply::Wait),
        (any::<u64>(), any_bytes(), any::<bool>()).prop_map(|(request, value, more)| {
            Reply::Data {
                request,
                value,
                more,
            }
        }),
        any_bytes().prop_map(Reply::Received),
        (
            prop::sample::select(Verb::ALL),
            1..100i32,
            "[a-z]{1,9}_failed"
        )
            .prop_map(|(verb, rc, message)| Reply::Refused {
                command: verb.name().into(),
                rc,
                message: message.into(),
            }),
    ]
}

/// What the command says to a reader of PMI-2: it leaves some out.
fn in_a_body(mut command: Command<'_>) -> Command<'_> {
    match &mut command {
        Command::KvsPut { job_id, .. } => *job_id = None,
        Command::KvsFence { group } => *group = None,
        _ => {}
    }
    command
}

/// What the command says to a reader of PMI-1.
fn on_a_line(mut command: Command<'_>) -> Command<'_> {
    match &mut command {
        Command::KvsGet { source, direct, .. } => (*source, *direct) = (-1, false),
        Command::Abort { is_world, .. } => *is_world = true,
        _ => {}
    }
    command
}

fn line(encode: impl FnOnce(&mut Vec<u8>) -> Result<(), WireError>) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    if encode(&mut out).is_err() {
        assert_eq!(out, b"");
        return None;
    }
    assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1);
    assert_eq!(out.pop(), Some(b'\n'));
    Some(out)
}

proptest! {
    #[test]
    fn commands_come_back(command in command(), thread_id in maybe(bytes())) {
        if command.verb().is_in(Version::V2) {
            let request = Request { thread_id, command: in_a_body(command.clone()) };
            let mut out = Vec::new();
            request.encode(&mut out).unwrap();
            prop_assert_eq!(Request::decode(&out[HEADER_LEN..]), Ok(request));
        }
        let blocks = matches!(command, Command::Spawn(_));
        if !blocks && let Some(line) = line(|out| command.encode_line(out)) {
            match Command::decode_line(&line).unwrap() {
                // It is made legible.
                Command::Abort { exit_code, .. } => {
                    let same = matches!(command, Command::Abort { exit_code: code, .. } if code == exit_code);
                    prop_assert!(same);
                }
                read => prop_assert_eq!(read, on_a_line(command)),
            }
        }
    }

    #[test]
    fn replies_come_back(reply in reply(), thread_id in maybe(any_bytes())) {
        if reply.verb().is_some_and(|verb| verb.is_in(Version::V2) && verb != Verb::Abort) {
            let body = match reply.clone() {
                Reply::KvsFence { .. } => Reply::KvsFence { tag: None },
                reply => reply,
            };
            let response = Response { thread_id, reply: body };
            let mut out = Vec::new();
            response.encode(&mut out).unwrap();
            prop_assert_eq!(Response::decode(&out[HEADER_LEN..]), Ok(response));
        }
        let known = reply.line_name() != "unknown_result";
        if known && let Some(line) = line(|out| reply.encode_line(out)) {
            let read = Reply::decode_line(&line).unwrap();
            match &reply {
                // Told by its number alone.
                Reply::Refused { command, .. } if command == "init" => {}
                _ => prop_assert_eq!(read, reply),
            }
        }
    }

    #[test]
    fn damage_never_panics(command in command(), reply in reply(), at: usize, to: u8, cut: usize) {
        let mut lines = [Vec::new(), Vec::new()];
        let _ = (command.encode_line(&mut lines[0]), reply.encode_line(&mut lines[1]));
        for (of_reply, mut line) in lines.into_iter().enumerate().filter(|(_, line)| !line.is_empty()) {
            let at = at % line.len();
            line[at] = to;
            for line in [&line[..], &line[..cut % line.len()]] {
                match of_reply {
                    0 => drop(Command::decode_line(line)),
                    _ => drop(Reply::decode_line(line)),
                }
            }
        }
    }

    #[test]
    fn random_bodies_never_panic(
        name in prop::sample::select(vec!["fullinit", "abort", "wait", "iallgather", "kvs-get", "spawn", "ring", "nla"]),
        rest in prop::collection::vec(any::<u8>(), 0..60),
    ) {
        for head in [format!("cmd={name};pmirank="), format!("cmd={name}-response;rc=0;found="), String::new()] {
            let body = [head.as_bytes(), &rest].concat();
            let _ = Request::decode(&body);
            let _ = Response::decode(&body);
        }
    }

    #[test]
    fn refusals_are_always_sent(rc: i32, message: String) {
        let reply = Reply::Refused { command: "get".into(), rc, message: message.into() };
        let line = line(|out| reply.encode_line(out)).unwrap();
        prop_assert!(line.iter().all(|b| (b' '..=b'~').contains(b)));
    }
}

#[test]
fn commands_are_on_the_wire_as_ever() {
    let text = |bytes: &'static [u8]| Cow::Borrowed(bytes);
    for (command, body, line) in [
        (
            Command::Abort {
                is_world: true,
                exit_code: Some(-1),
                message: text(b"m"),
            },
            "cmd=abort;isworld=TRUE;exitcode=-1;msg=m;message=m;",
            "cmd=abort exitcode=-1 message=m\n",
        ),
        (
            Command::NamePublish {
                name: text(b"n"),
                port: text(b"p"),
            },
            "cmd=name-publish;name=n;port=p;infokeycount=0;",
            "cmd=publish_name service=n port=p\n",
        ),
        (
            Command::NameLookup { name: text(b"n") },
            "cmd=name-lookup;name=n;infokeycount=0;",
            "cmd=lookup_name service=n\n",
        ),
        (
            Command::KvsPut {
                job_id: Some("j".into()),
                key: text(b"k"),
                value: text(b"v"),
            },
            "cmd=kvs-put;key=k;value=v;",
            "cmd=put kvsname=j key=k value=v\n",
        ),
        (
            Command::KvsGet {
                job_id: Some("j".into()),
                source: 2,
                key: text(b"k"),
                direct: true,
            },
            "cmd=kvs-get;jobid=j;srcid=2;key=k;direct=TRUE;",
            "cmd=get kvsname=j key=k\n",
        ),
        (
            Command::KvsFence {
                group: Some(text(b"0,3:7")),
            },
            "cmd=kvs-fence;",
            "cmd=barrier_in group=0,3:7\n",
        ),
        (
            Command::Ring {
                count: 1,
                left: text(b"l"),
                right: text(b"r"),
            },
            "cmd=ring;ring-count=1;ring-left=l;ring-right=r;",
            "",
        ),
        (
            Command::Data {
                operation: Operation::Scatter,
                root: 3,
                value: text(b"\x0a"),
                more: false,
            },
            "cmd=nla;op=scatter;root=3;value=0a;more=FALSE;",
            "",
        ),
        (
            Command::Send {
                to: 1,
                value: text(b""),
            },
            "cmd=nla-send;to=1;",
            "",
        ),
    ] {
        let (mut of_line, mut of_body) = (Vec::new(), Vec::new());
        assert_eq!(command.encode_line(&mut of_line).is_ok(), !line.is_empty());
        assert_eq!(std::str::from_utf8(&of_line), Ok(line));
        Request::new(command).encode(&mut of_body).unwrap();
        assert_eq!(std::str::from_utf8(&of_body[HEADER_LEN..]), Ok(body));
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
        assert_eq!(String::from_utf8(out.split_off(HEADER_LEN)), Ok(body));
    }
    // Codes that do not fit a line are left out.
    let (job_id, errcodes) = (Some("j".into()), vec![0; 600]);
    let spawned = Reply::Spawned { job_id, errcodes };
    let line = line(|out| spawned.encode_line(out)).unwrap();
    assert_eq!(line, b"cmd=spawn_result rc=0 jobid=j");
}

#[test]
fn lines_of_other_servers() {
    let read = |line: &'static str| Reply::decode_line(line.as_bytes()).unwrap();
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
        assert_eq!(read(line), Reply::KvsGet(None));
    }
    let got = |value: &'static [u8]| Reply::KvsGet(Some(value.into()));
    assert_eq!(read("cmd=get_result value=v"), got(b"v"));
    assert_eq!(read("cmd=get_result rc=0 value="), got(b""));
    assert_eq!(read("cmd=barrier_out rc=0"), Reply::KvsFence { tag: None });
    for line in [
        "cmd=lookup_result rc=1 msg=service_not_found",
        "cmd=lookup_result info=fail",
        "cmd=publish_result info=ok rc=1 msg=key_already_present",
    ] {
        assert!(matches!(read(line), Reply::Refused { .. }), "{line}");
    }
    let found = Reply::NameFound(Cow::Borrowed(b"p"));
    assert_eq!(read("cmd=lookup_result info=ok port=p"), found);
    let job_id = None;
    let errcodes = vec![];
    assert_eq!(
        read("cmd=spawn_result rc=0"),
        Reply::Spawned { job_id, errcodes }
    );
    assert!(Reply::decode_line(b"cmd=get_result rc=0").is_err());
    assert!(Reply::decode_line(b"cmd=newkvs rc=0").is_err());
}

#[test]
fn bodies_of_other_servers() {
    let read = |body: &'static str| Response::decode(body.as_bytes()).unwrap().reply;
    let found = Reply::NameFound(Cow::Borrowed(b"p"));
    assert_eq!(
        read("cmd=name-lookup-response;port=p;found=TRUE;rc=0;"),
        found
    );
    assert_eq!(read("cmd=name-lookup-response;rc=0;value=p;"), found);
    let none = read("cmd=name-lookup-response;found=FALSE;rc=0;");
    assert!(matches!(none, Reply::Refused { .. }));
    let value = Reply::KvsGet(Some(Cow::Borrowed(b"v")));
    assert_eq!(read("cmd=kvs-get-response;value=v;"), value);
}

#[test]
fn what_cannot_be_sent_is_named() {
    let error = |key: &[u8], value: &[u8]| {
        let mut out = b"before".to_vec();
        let put = Command::KvsPut {
            job_id: Some("k".into()),
            key: key.into(),
            value: value.into(),
        };
        let error = put.encode_line(&mut out).unwrap_err();
        assert_eq!(out, b"before");
        error.to_string()
    };
    assert!(error(b"k", b"two words").contains("cannot carry value `two words`"));
    assert!(error(b"k", b"").contains("value is empty"));
    for bad in [&b"\n"[..], b"a\\b", b"\0"] {
        assert!(error(bad, b"v").contains("cannot carry key"), "{bad:?}");
    }
    assert!(error(b"k", &[b'v'; 1000]).contains("limit of 1023"));

    let mut out = b"before".to_vec();
    let key = Cow::Owned(vec![b'k'; 70_000]);
    let request = Request::new(Command::JobAttr { key });
    let error = request.encode(&mut out).unwrap_err();
    assert!(matches!(error, WireError::TooLong { .. }));
    assert_eq!(out, b"before");
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
    assert!(error("cmd=put;key=a;value=b;").contains("`put`"));
    let long = format!("cmd=allgather;value={};", "00".repeat(1025));
    assert!(error(&long).contains("1025"));

    let decode = |line: &str| Command::decode_line(line.as_bytes()).map(|command| command.verb());
    let error = |line: &str| decode(line).unwrap_err().to_string();
    assert!(error("cmd=put kvsname=k key=a").contains("lacks the field `value`"));
    assert!(error("cmd=put kvsname=k key=a value=").contains("not empty"));
    assert!(error("cmd=put kvsname=k key=a value=b c").contains("without blanks"));
    assert!(error("cmd=initack pmiid=-1").contains("`pmiid`"));
    assert!(error("cmd=kvs-put key=a value=b").contains("`kvs-put`"));
    let abort = Command::decode_line(b"cmd=abort exitcode=7 message=out of luck").unwrap();
    assert_eq!(
        abort,
        Command::Abort {
            is_world: true,
            exit_code: Some(7),
            message: Cow::Borrowed(b"out of luck")
        }
    );
}

#[test]
fn a_line_spawns_nothing() {
    let line = b"cmd=spawn subcmd=/bin/true maxprocs=1 argc=0";
    let refused = Command::decode_line(line).unwrap_err();
    assert!(
        matches!(&refused, WireError::UnknownCommand { name } if name == "spawn"),
        "{refused}"
    );
}
