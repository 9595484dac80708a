//! Tests of one server: limits, misbehaving PEs, broken links, and what is missing.

mod asking;
mod lines;
mod rings;

use super::*;
use crate::client::calls::{Initialise, NodeAttr, PutNodeAttr};
use crate::client::{Client, ClientConfig};
use crate::tree::Tree;
use crate::wire::Reply;
use crate::wire::tree::Body;
use crate::wire::v2::{Incoming, Response};
use proptest::prelude::*;

fn job(size: u32) -> Job {
    Job {
        id: "7.0".into(),
        size,
        appnum: 0,
        process_mapping: "(vector,(0,1,1))".into(),
        attributes: vec![("universeSize".into(), "8".into())],
        extensions: true,
        ..Job::default()
    }
}

/// The server of node `node` of a job with two PEs on each node.
fn server(nodes: u32, node: u32) -> NodeServer {
    let node_of_rank: Vec<u32> = (0..2 * nodes).map(|rank| rank / 2).collect();
    let place = NodePlace::in_tree(&Tree::new(nodes, 2), node, &node_of_rank);
    NodeServer::new(job(2 * nodes), place).unwrap()
}

fn outputs(server: &mut NodeServer) -> Vec<Output> {
    std::iter::from_fn(|| server.poll_output()).collect()
}

fn message(body: &str) -> Vec<u8> {
    format!("{:<6}{body}", body.len()).into_bytes()
}

const INIT: &[u8] = b"cmd=init pmi_version=2 pmi_subversion=0\n";

/// Says hello as PE `local` and throws the answers away.
fn greet(server: &mut NodeServer, local: usize) {
    server.handle_client_bytes(local, INIT);
    server.handle_client_bytes(local, &message("cmd=fullinit;"));
    let out = outputs(server);
    assert!(matches!(&out[..], [Output::ToClient { .. }]), "{out:?}");
}

/// Sends one command and returns the text of everything that comes back to that PE.
fn ask(server: &mut NodeServer, local: usize, body: &str) -> String {
    server.handle_client_bytes(local, &message(body));
    let mut text = String::new();
    for output in outputs(server) {
        if let Output::ToClient { local: to, bytes } = output
            && to == local
        {
            text += std::str::from_utf8(&bytes).unwrap();
        }
    }
    text
}

#[test]
fn garbage_ends_one_session_only() {
    let mut server = server(1, 0);
    greet(&mut server, 1);
    for garbage in [&b"GET / HTTP/1.1\n"[..], b"more", b"\0\0\0\0"] {
        server.handle_client_bytes(0, garbage);
    }
    let out = outputs(&mut server);
    let [Output::ProtocolError { local: 0, text }] = &out[..] else {
        panic!("{out:?}");
    };
    assert!(
        text.starts_with("PE 0: ") && text.contains("GET /"),
        "{text}"
    );
    let reply = ask(&mut server, 1, "cmd=job-getid;");
    assert!(
        reply.ends_with("cmd=job-getid-response;rc=0;jobid=7.0;"),
        "{reply}"
    );
    server.client_closed(0);
    assert_eq!(outputs(&mut server), []);
}

#[test]
fn replies_before_the_garbage_are_sent() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    let mut bytes = message("cmd=job-getid;");
    bytes.extend_from_slice(b"abcdef");
    server.handle_client_bytes(0, &bytes);
    let out = outputs(&mut server);
    assert!(
        matches!(
            &out[..],
            [
                Output::ToClient { local: 0, .. },
                Output::ProtocolError { local: 0, .. }
            ]
        ),
        "{out:?}"
    );
}

#[test]
fn other_versions_are_told() {
    let mut server = server(1, 0);
    server.handle_client_bytes(0, b"cmd=init pmi_version=3 pmi_subversion=1\n");
    let out = outputs(&mut server);
    let [
        Output::ToClient { bytes, .. },
        Output::ProtocolError { text, .. },
    ] = &out[..]
    else {
        panic!("{out:?}");
    };
    assert!(bytes.ends_with(b"rc=-1\n"));
    assert!(text.contains("PMI 3.1,"), "{text}");
}

#[test]
fn phases_are_kept() {
    let refuse = |messages: &[&str], expected: &str| {
        let mut server = server(1, 0);
        server.handle_client_bytes(0, INIT);
        for body in messages {
            server.handle_client_bytes(0, &message(body));
        }
        let text = match outputs(&mut server).pop() {
            Some(Output::ProtocolError { text, .. }) => text,
            other => panic!("{other:?}"),
        };
        assert!(text.contains(expected), "{text}");
    };
    refuse(&["cmd=kvs-fence;"], "before `fullinit`");
    refuse(&["cmd=fullinit;", "cmd=fullinit;"], "twice");
    refuse(&["cmd=fullinit;pmirank=1;"], "calls itself PE 1");
}

#[test]
fn life_and_death_are_told() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    server.handle_client_bytes(0, &message("cmd=finalize;"));
    let out = outputs(&mut server);
    assert!(
        matches!(
            &out[..],
            [Output::ToClient { .. }, Output::Finalized { local: 0 }]
        ),
        "{out:?}"
    );
    server.client_closed(0);
    assert_eq!(outputs(&mut server), []);
    server.handle_client_bytes(1, &message("cmd=abort;isworld=TRUE;exitcode=7;message=no;"));
    server.client_closed(1);
    assert_eq!(
        outputs(&mut server),
        [
            Output::Abort {
                local: 1,
                exit_code: 7,
                message: "no".into()
            },
            Output::Lost { local: 1 }
        ]
    );
}

#[test]
fn a_finalized_pe_may_not_go_on() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    server.handle_client_bytes(0, &message("cmd=finalize;"));
    outputs(&mut server);
    server.handle_client_bytes(0, &message("cmd=job-getid;"));
    assert!(matches!(
        outputs(&mut server)[..],
        [Output::ProtocolError { .. }]
    ));
}

#[test]
fn finalize_counts_even_if_garbage_or_the_end_follows_at_once() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    server.handle_client_bytes(0, &message("cmd=finalize;"));
    server.handle_client_bytes(0, b"abcdef");
    server.handle_client_bytes(1, &message("cmd=finalize;"));
    server.client_closed(1);
    let out = outputs(&mut server);
    assert!(
        matches!(
            &out[..],
            [
                Output::ToClient { local: 0, .. },
                Output::Finalized { local: 0 },
                Output::ProtocolError { local: 0, .. },
                Output::Finalized { local: 1 },
            ]
        ),
        "{out:?}"
    );
}

#[test]
fn limits_have_return_codes() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    let long = "k".repeat(65);
    let reply = ask(&mut server, 0, &format!("cmd=kvs-put;key={long};value=v;"));
    assert!(reply.contains("rc=5;errmsg=key of 65 bytes"), "{reply}");
    let long = "v".repeat(1025);
    let reply = ask(&mut server, 0, &format!("cmd=kvs-put;key=k;value={long};"));
    assert!(reply.contains("rc=7;errmsg=value of 1025 bytes"), "{reply}");
    let reply = ask(&mut server, 0, "cmd=wait;request=0;");
    assert!(reply.contains("rc=3;"), "{reply}");
    let reply = ask(&mut server, 0, "cmd=nosuch;thrid=9;");
    assert!(
        reply.contains("cmd=nosuch-response;thrid=9;rc=3;"),
        "{reply}"
    );
    let reply = ask(&mut server, 0, "cmd=kvs-get;jobid=other;key=k;");
    assert!(reply.contains("found=FALSE;"), "{reply}");
    let reply = ask(&mut server, 0, "cmd=info-getjobattr;key=universeSize;");
    assert!(reply.contains("found=TRUE;value=8;"), "{reply}");
}

#[test]
fn extensions_are_off_unless_offered() {
    let place = NodePlace {
        ranks: vec![0],
        has_parent: false,
        children: Vec::new(),
    };
    let mut job = job(1);
    job.extensions = false;
    let mut server = NodeServer::new(job, place).unwrap();
    greet(&mut server, 0);
    for body in [
        "cmd=iallgather;value=00;",
        "cmd=ifence;",
        "cmd=wait;request=0;",
    ] {
        let reply = ask(&mut server, 0, body);
        assert!(reply.contains("unknown PMI command"), "{reply}");
    }
    assert_eq!(server.completed(), 0);
}

#[test]
fn an_unusable_value_fails_the_operation_for_all() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    assert!(ask(&mut server, 0, "cmd=allgather;value=abcd;").is_empty());
    let reply = ask(&mut server, 1, "cmd=allgather;value=xyz0;");
    assert!(reply.contains("rc=3;errmsg="), "{reply}");
    assert_eq!(server.completed(), 1);
    for local in 0..2 {
        let reply = ask(&mut server, local, "cmd=wait;request=0;");
        assert!(reply.contains("rc=-1;errmsg=PE 1: "), "{reply}");
    }
    // The next operation is not affected.
    ask(&mut server, 0, "cmd=ifence;");
    ask(&mut server, 1, "cmd=kvs-fence;");
    assert!(ask(&mut server, 0, "cmd=wait;request=1;").contains("rc=0;"));
}

#[test]
fn different_operations_are_named() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    ask(&mut server, 1, "cmd=iallgather;value=00;");
    let reply = ask(&mut server, 0, "cmd=kvs-fence;");
    assert!(
        reply.contains("PE 0 called fence, but PE 1 called allgather"),
        "{reply}"
    );
}

#[test]
fn running_ahead_is_bounded() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    for _ in 0..collective::MAX_AHEAD {
        server.handle_client_bytes(0, &message("cmd=ifence;"));
    }
    let [Output::ToClient { bytes, .. }] = &outputs(&mut server)[..] else {
        panic!("replies are not in one piece");
    };
    assert!(bytes.ends_with(b"request=4095;"));
    server.handle_client_bytes(0, &message("cmd=ifence;"));
    assert!(matches!(
        outputs(&mut server)[..],
        [Output::ProtocolError { .. }]
    ));
}

#[test]
fn room_for_values_of_others_is_bounded() {
    let node_of_rank = [0; 4096];
    let place = NodePlace::in_tree(&Tree::new(1, 2), 0, &node_of_rank);
    let mut server = NodeServer::new(job(4096), place).unwrap();
    greet(&mut server, 0);
    let gather = format!("cmd=iallgather;value={};", "00".repeat(1024));
    // Each takes 4 MiB, of which this PE has brought 1 KiB.
    for gathers in 0.. {
        server.handle_client_bytes(0, &message(&gather));
        if let Some(Output::ProtocolError { text, .. }) = outputs(&mut server).pop() {
            assert_eq!(gathers, 256);
            assert!(text.contains("more than 1073741824 bytes"), "{text}");
            break;
        }
    }
}

#[test]
fn what_a_pe_brings_ahead_of_others_is_bounded() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    let put = format!("cmd=kvs-put;key=k;value={};", "v".repeat(1000));
    // 31 fences of somewhat more than a MiB each are kept, one more is too much.
    for fences in 0.. {
        for _ in 0..1050 {
            server.handle_client_bytes(0, &message(&put));
        }
        server.handle_client_bytes(0, &message("cmd=ifence;"));
        if let Some(Output::ProtocolError { text, .. }) = outputs(&mut server).pop() {
            assert_eq!(fences, 31);
            assert!(
                text.contains("operations that others have not joined"),
                "{text}"
            );
            break;
        }
    }
}

#[test]
fn the_missing_are_named() {
    let mut root = server(3, 0);
    assert_eq!(root.oldest_incomplete(), None);
    greet(&mut root, 1);
    ask(&mut root, 1, "cmd=ifence;");
    assert_eq!(root.oldest_incomplete(), Some(0));
    assert_eq!(
        root.who_is_missing(0).to_string(),
        "PE 0; some of PE 2-3 below child agent 0; some of PE 4-5 below child agent 1"
    );
    let mut leaf = server(3, 1);
    greet(&mut leaf, 0);
    greet(&mut leaf, 1);
    for local in 0..2 {
        leaf.handle_client_bytes(local, &message("cmd=ifence;"));
    }
    assert_eq!(
        leaf.who_is_missing(0).to_string(),
        "nodes beyond the parent agent"
    );
    let up = outputs(&mut leaf)
        .into_iter()
        .find_map(|output| match output {
            Output::ToParent(bytes) => Some(bytes),
            _ => None,
        });
    root.handle_tree(TreeLink::Child(0), &up.unwrap()).unwrap();
    let missing = root.who_is_missing(0);
    assert_eq!(missing.children, [(1, RankSet::from(4..6))]);
    assert!(!missing.is_empty());
}

#[test]
fn broken_links_are_reported() {
    let mut root = server(3, 0);
    let fence = |direction, request| {
        let mut message = vec![0; crate::wire::tree::FENCE_PAIRS];
        crate::wire::tree::seal_fence(&mut message, direction, request, 0).unwrap();
        message
    };
    let error = |outcome: Result<(), TreeError>| outcome.unwrap_err().to_string();
    let text = error(root.handle_tree(TreeLink::Child(2), b""));
    assert!(text.contains("child agent 2"), "{text}");
    let text = error(root.handle_tree(TreeLink::Parent, b""));
    assert!(text.contains("the parent agent"), "{text}");
    let text = error(root.handle_tree(TreeLink::Child(0), &fence(Direction::Down, 0)));
    assert!(text.contains("direction"), "{text}");
    let text = error(root.handle_tree(TreeLink::Child(0), &fence(Direction::Up, 5)));
    assert!(text.contains("expected operation 0"), "{text}");
    let gather = Message {
        direction: Direction::Up,
        request: 0,
        body: crate::wire::tree::Body::Gather {
            value_len: 4,
            values: &[0; 12],
        },
    };
    let text = error(root.handle_tree(TreeLink::Child(1), &gather.encode().unwrap()));
    assert!(text.contains("the values of 2 PEs"), "{text}");
    let text = error(root.handle_tree(TreeLink::Child(1), &[9; 40]));
    assert!(text.contains("version 9"), "{text}");

    let mut leaf = server(3, 2);
    let text = error(leaf.handle_tree(TreeLink::Parent, &fence(Direction::Down, 0)));
    assert!(text.contains("before all PEs below have joined"), "{text}");
}

#[test]
fn what_pes_bring_without_a_connection_is_an_operation_of_theirs() {
    let mut server = server(1, 0);
    server.bring(1, 2, &[12, 13]).unwrap();
    assert_eq!(server.who_is_missing(0).local.first(), Some(0));
    server.bring(0, 2, &[10, 11]).unwrap();
    let out = outputs(&mut server);
    let published = out.iter().find_map(|output| match output {
        Output::Publish {
            request: 0, values, ..
        } => Some(values.clone()),
        _ => None,
    });
    assert_eq!(published.expect("complete")[..], [10, 11, 12, 13]);
    // Both at once.
    server.bring(0, 1, &[1, 2]).unwrap();
    assert_eq!(server.completed(), 2);
}

#[test]
fn what_cannot_be_brought_is_refused() {
    for (first, len, values) in [
        (1, 1, &[1, 2][..]),
        (0, 1, &[]),
        (0, 0, &[]),
        (0, 0, &[1]),
        (0, 2, &[1, 2, 3]),
        (usize::MAX, 1, &[1]),
        (0, 2000, &[0; 2000]),
    ] {
        let mut server = server(1, 0);
        let refused = server.bring(first, len, values).unwrap_err().to_string();
        assert!(refused.contains("bytes were brought"), "{refused}");
    }
}

#[test]
fn children_share_one_buffer() {
    let mut root = server(3, 0);
    greet(&mut root, 0);
    greet(&mut root, 1);
    for local in 0..2 {
        root.handle_client_bytes(local, &message("cmd=iallgather;value=00ff;"));
    }
    for child in 0..2 {
        let message = Message {
            direction: Direction::Up,
            request: 0,
            body: crate::wire::tree::Body::Gather {
                value_len: 2,
                values: &[child as u8; 4],
            },
        };
        let bytes = message.encode().unwrap();
        root.handle_tree(TreeLink::Child(child), &bytes).unwrap();
    }
    let out = outputs(&mut root);
    let shared: Vec<_> = out
        .iter()
        .filter_map(|output| match output {
            Output::ToChild { bytes, .. } => Some(bytes),
            _ => None,
        })
        .collect();
    assert!(matches!(&shared[..], [a, b] if Arc::ptr_eq(a, b)));
    let published = out.iter().find_map(|output| match output {
        Output::Publish { values, .. } => Some(values.clone()),
        _ => None,
    });
    assert_eq!(
        published.unwrap()[..],
        [0, 255, 0, 255, 0, 0, 0, 0, 1, 1, 1, 1]
    );
}

#[test]
fn a_result_is_forwarded_before_all_of_it_is_here() {
    let mut server = server(6, 1);
    greet(&mut server, 0);
    greet(&mut server, 1);
    for local in 0..2 {
        server.handle_client_bytes(local, &message("cmd=iallgather;value=0102;"));
    }
    for (child, ranks) in [(0, 2), (1, 2)] {
        let values = &[7; 4][..2 * ranks];
        let up = Message {
            direction: Direction::Up,
            request: 0,
            body: Body::Gather {
                value_len: 2,
                values,
            },
        };
        let up = up.encode().unwrap();
        server.handle_tree(TreeLink::Child(child), &up).unwrap();
    }
    outputs(&mut server);
    let values: Vec<u8> = (0..24).collect();
    let down = Message {
        direction: Direction::Down,
        request: 0,
        body: Body::Gather {
            value_len: 2,
            values: &values,
        },
    };
    let down = down.encode().unwrap();
    let (mut forwarded, mut published) = (Vec::new(), Vec::new());
    let mut lasts = Vec::new();
    for part in [&down[..10], &down[10..31], &down[31..40], &down[40..]] {
        assert!(lasts.is_empty());
        server.handle_tree(TreeLink::Parent, part).unwrap();
        for output in outputs(&mut server) {
            match output {
                Output::ToChild { child: 0, bytes } => forwarded.extend_from_slice(&bytes),
                Output::ToChild { .. } => {}
                Output::Publish {
                    offset,
                    values,
                    last,
                    ..
                } => {
                    assert_eq!(offset, published.len());
                    published.extend_from_slice(&values);
                    lasts.extend(last.then_some(server.completed()));
                }
                other => panic!("{other:?}"),
            }
        }
        let end = forwarded.len();
        assert_eq!(forwarded, down[..end]);
        assert!(end == 0 || end == down.len() - (24 - published.len()));
        assert_eq!(server.is_idle(), end == down.len());
    }
    assert_eq!((published, lasts), (values, vec![1]));
    // What does not follow from what was before is refused as soon as its header is here.
    let error = server
        .handle_tree(TreeLink::Parent, &down[..24])
        .unwrap_err();
    assert!(matches!(error, TreeError::OutOfStep { request: 0, .. }));
}

#[test]
fn a_real_client_reads_coalesced_replies() {
    let mut server = server(1, 0);
    let mut client = Client::new(ClientConfig {
        rank: 1,
        job_id: None,
        extensions: true,
    });
    client.call(&Initialise).unwrap();
    client.call(&PutNodeAttr("a", b"b")).unwrap();
    let attr = client.call(&NodeAttr("a", true)).unwrap();
    server.handle_client_bytes(1, &client.take_output());
    let [Output::ToClient { local: 1, bytes }] = &outputs(&mut server)[..] else {
        panic!("replies are not in one piece");
    };
    client.handle_bytes(bytes).unwrap();
    assert_eq!(attr.take(), Some(Ok(Some(b"b".to_vec()))));
}

proptest! {
    /// Plausible and implausible messages in any order: no panic, and the neighbour is served.
    #[test]
    fn no_client_takes_the_server_down(
        bodies in prop::collection::vec(
            prop_oneof![
                "cmd=(kvs-put|kvs-get|info-putnodeattr|info-getnodeattr);(key=[a-c;]{0,3};)?(value=[a-c]{0,3};)?(wait=TRUE;)?",
                "cmd=(kvs-fence|ifence|finalize|abort|job-getid|fullinit);",
                "cmd=(iallgather|allgather);value=[0-9a-g]{0,4};",
                "cmd=wait;request=[0-9]{1,2};",
                "[a-z=;]{1,20}",
            ],
            0..30,
        ),
    ) {
        let mut server = server(1, 0);
        greet(&mut server, 0);
        greet(&mut server, 1);
        for body in &bodies {
            server.handle_client_bytes(0, &message(body));
            outputs(&mut server);
        }
        server.client_closed(0);
        outputs(&mut server);
        let reply = ask(&mut server, 1, "cmd=job-getid;");
        prop_assert!(reply.contains("jobid=7.0;"));
    }

    #[test]
    fn no_link_panics_the_server(
        chunks in prop::collection::vec((0usize..4, prop::collection::vec(any::<u8>(), 0..60)), 0..8),
        kind in 0u8..8,
        request in 0u8..3,
        body in prop::collection::vec(0u8..5, 0..40),
    ) {
        let mut server = server(7, 1);
        let mut bytes = vec![1, kind, 0, 0, body.len() as u8, 0, 0, 0, request, 0, 0, 0, 0, 0, 0, 0];
        bytes.extend_from_slice(&body);
        let _ = server.handle_tree(TreeLink::Child(0), &bytes);
        let _ = server.handle_tree(TreeLink::Parent, &bytes);
        for (link, bytes) in chunks {
            let link = if link == 3 { TreeLink::Parent } else { TreeLink::Child(link) };
            let _ = server.handle_tree(link, &bytes);
        }
        outputs(&mut server);
    }
}

#[test]
fn replies_are_well_formed() {
    let mut server = server(1, 0);
    server.handle_client_bytes(0, INIT);
    server.handle_client_bytes(0, &message("cmd=fullinit;thrid=a;;b;pmirank=0;"));
    let [Output::ToClient { bytes, .. }] = &outputs(&mut server)[..] else {
        panic!("no replies");
    };
    let mut decoder = crate::wire::v2::Decoder::new();
    decoder.push(bytes);
    assert!(matches!(
        decoder.next_message(),
        Ok(Some(Incoming::Line(_)))
    ));
    let Ok(Some(Incoming::Body(body))) = decoder.next_message() else {
        panic!("no body");
    };
    let response = Response::decode(body).unwrap();
    assert_eq!(response.thread_id.as_deref(), Some(&b"a;b"[..]));
    assert!(matches!(response.reply, Reply::FullInit(_)));
}
