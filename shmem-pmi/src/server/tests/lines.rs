//! PEs that speak PMI-1: order, limits, nonsense, and together with others.

use super::*;

const INIT1: &[u8] = b"cmd=init pmi_version=1 pmi_subversion=1\n";

/// Sends text and returns what comes back to the PEs of a node of two.
fn say(server: &mut NodeServer, local: usize, text: &str) -> [String; 2] {
    server.handle_client_bytes(local, text.as_bytes());
    let mut replies = [String::new(), String::new()];
    for output in outputs(server) {
        if let Output::ToClient { local, bytes } = output {
            replies[local] += std::str::from_utf8(&bytes).unwrap();
        }
    }
    replies
}

fn begin(local_is_v2: [bool; 2]) -> NodeServer {
    let mut server = server(1, 0);
    for (local, is_v2) in local_is_v2.into_iter().enumerate() {
        match is_v2 {
            true => greet(&mut server, local),
            false => {
                server.handle_client_bytes(local, INIT1);
                assert_eq!(outputs(&mut server).len(), 1);
            }
        }
    }
    server
}

#[test]
fn requests_behind_a_barrier_wait_for_it() {
    let mut server = begin([false, false]);
    let text = "cmd=put kvsname=7.0 key=a value=1\ncmd=barrier_in\n\
        cmd=get kvsname=7.0 key=a\ncmd=get kvsname=7.0 key=b\ncmd=barrier_in\ncmd=get_maxes\n";
    assert_eq!(
        say(&mut server, 0, text),
        ["cmd=put_result rc=0 msg=success\n", ""]
    );
    assert!(!server.is_idle());
    let text = "cmd=put kvsname=7.0 key=b value=2\ncmd=barrier_in\n";
    let [first, second] = say(&mut server, 1, text);
    assert_eq!(
        first,
        "cmd=barrier_out rc=0\ncmd=get_result rc=0 msg=success value=1\n\
         cmd=get_result rc=0 msg=success value=2\n"
    );
    assert_eq!(
        second,
        "cmd=put_result rc=0 msg=success\ncmd=barrier_out rc=0\n"
    );
    let [first, second] = say(&mut server, 1, "cmd=barrier_in\n");
    assert!(
        first.starts_with("cmd=barrier_out rc=0\ncmd=maxes "),
        "{first}"
    );
    assert_eq!(second, "cmd=barrier_out rc=0\n");
    assert!(server.is_idle());
}

#[test]
fn a_flood_behind_a_barrier_is_bounded() {
    let mut server = begin([false, true]);
    say(&mut server, 0, "cmd=barrier_in\n");
    let flood = "cmd=get_maxes\n".repeat(10_000);
    let mut told = false;
    for _ in 0..3 {
        server.handle_client_bytes(0, flood.as_bytes());
        told |= outputs(&mut server)
            .iter()
            .any(|output| matches!(output, Output::ProtocolError { local: 0, text } if text.contains("without waiting")));
    }
    assert!(told);
    assert!(ask(&mut server, 1, "cmd=job-getid;").contains("jobid=7.0;"));
}

/// Another thread of the PE gives up while the first waits.
#[test]
fn an_abort_does_not_wait_behind_a_barrier() {
    let mut server = begin([false, false]);
    say(&mut server, 0, "cmd=barrier_in\n");
    server.handle_client_bytes(0, b"cmd=abort exitcode=9\n");
    let aborts = outputs(&mut server).into_iter().any(|output| {
        matches!(
            output,
            Output::Abort {
                local: 0,
                exit_code: 9,
                ..
            }
        )
    });
    assert!(aborts);
}

#[test]
fn barriers_and_fences_are_the_same() {
    let mut server = begin([false, true]);
    say(
        &mut server,
        0,
        "cmd=put kvsname=7.0 key=one value=1\ncmd=barrier_in\n",
    );
    ask(&mut server, 1, "cmd=kvs-put;key=two;value=2;");
    let [first, second] = say(
        &mut server,
        1,
        std::str::from_utf8(&message("cmd=kvs-fence;")).unwrap(),
    );
    assert_eq!(first, "cmd=barrier_out rc=0\n");
    assert!(second.ends_with("cmd=kvs-fence-response;rc=0;"), "{second}");
    let [first, _] = say(&mut server, 0, "cmd=get kvsname=7.0 key=two\n");
    assert_eq!(first, "cmd=get_result rc=0 msg=success value=2\n");
    assert!(ask(&mut server, 1, "cmd=kvs-get;key=one;").contains("value=1;"));
    // An extension fence of one is the barrier of the other, too.
    ask(&mut server, 1, "cmd=ifence;");
    assert_eq!(
        say(&mut server, 0, "cmd=barrier_in\n")[0],
        "cmd=barrier_out rc=0\n"
    );
    // What PMI-1 cannot call fails for both, and is told.
    ask(&mut server, 1, "cmd=iallgather;value=00;");
    let [first, _] = say(&mut server, 0, "cmd=barrier_in\n");
    assert!(first.starts_with("cmd=barrier_out rc=-1 msg="), "{first}");
}

#[test]
fn what_is_refused_is_told_in_the_right_reply() {
    let mut server = begin([false, true]);
    let long = "k".repeat(65);
    let value = "v".repeat(1025);
    for (request, reply) in [
        (
            format!("cmd=put kvsname=7.0 key={long} value=v\n"),
            "cmd=put_result rc=5 msg=key_of_65_",
        ),
        (
            format!("cmd=put kvsname=7.0 key=k value={value}\n"),
            "cmd=put_result rc=7 msg=value_of_1025_",
        ),
        (
            "cmd=put kvsname=7.0 key=k value=\n".into(),
            "cmd=put_result rc=-1 msg=",
        ),
        (
            "cmd=put kvsname=7.0 key=k value=a b\n".into(),
            "cmd=put_result rc=-1 msg=",
        ),
        (
            "cmd=put kvsname=8.0 key=k value=v\n".into(),
            "cmd=put_result rc=-1 msg=kvsname_8.0_",
        ),
        (
            "cmd=get kvsname=8.0 key=k\n".into(),
            "cmd=get_result rc=-1 msg=kvsname_8.0_not_found value=unknown\n",
        ),
        ("cmd=get key=k\n".into(), "cmd=get_result rc=-1 msg="),
        (
            format!("cmd=lookup_name service={value}\n"),
            "cmd=lookup_result rc=3 msg=",
        ),
        (
            "cmd=create_kvs\n".into(),
            "cmd=unknown_result rc=-1 msg=unknown_PMI_command_`create_kvs`",
        ),
    ] {
        let [first, _] = say(&mut server, 0, &request);
        assert!(first.starts_with(reply), "{first}");
        assert_eq!(first.lines().count(), 1, "{first}");
    }
    // A value that PMI-1 cannot carry is refused to it alone, however it came.
    ask(&mut server, 1, "cmd=kvs-put;key=blank;value=a b;");
    ask(
        &mut server,
        1,
        &format!("cmd=kvs-put;key=long;value={};", "v".repeat(1024)),
    );
    ask(&mut server, 1, "cmd=ifence;");
    let [first, _] = say(
        &mut server,
        0,
        "cmd=barrier_in\ncmd=get kvsname=7.0 key=blank\ncmd=get kvsname=7.0 key=long\ncmd=get_appnum\n",
    );
    let lines: Vec<_> = first.lines().collect();
    assert!(
        lines[1].starts_with("cmd=get_result rc=-1 msg=PMI-1_cannot_carry"),
        "{first}"
    );
    assert!(
        lines[2].starts_with("cmd=get_result rc=-1 msg=PMI-1_line_of_"),
        "{first}"
    );
    assert_eq!(lines[3], "cmd=appnum rc=0 appnum=0");
    // A backslash comes back as it went in.
    say(&mut server, 0, "cmd=put kvsname=7.0 key=b value=l\\u\n");
    ask(&mut server, 1, "cmd=ifence;");
    say(&mut server, 0, "cmd=barrier_in\n");
    let [first, _] = say(&mut server, 0, "cmd=get kvsname=7.0 key=b\n");
    assert_eq!(first, "cmd=get_result rc=0 msg=success value=l\\u\n");
}

#[test]
fn nonsense_ends_one_session_only() {
    for nonsense in [
        "hello\n",
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=2\nspawnssofar=1\nendcmd\ncmd=get_maxes\n",
        "cmd=finalize\ncmd=get_maxes\n",
    ] {
        let mut server = begin([false, true]);
        server.handle_client_bytes(0, nonsense.as_bytes());
        let told = outputs(&mut server);
        let last = told.last();
        assert!(
            matches!(last, Some(Output::ProtocolError { local: 0, .. })),
            "{nonsense}: {told:?}"
        );
        assert!(ask(&mut server, 1, "cmd=job-getid;").contains("jobid=7.0;"));
    }
    // Nothing but an init line may come first.
    let mut server = server(1, 0);
    server.handle_client_bytes(0, b"cmd=get_maxes\n");
    assert!(matches!(
        &outputs(&mut server)[..],
        [Output::ProtocolError { .. }]
    ));
}

#[test]
fn life_and_death() {
    let mut server = begin([false, false]);
    server.handle_client_bytes(0, b"cmd=abort exitcode=7 message=out of luck\n");
    assert_eq!(
        outputs(&mut server),
        [Output::Abort {
            local: 0,
            exit_code: 7,
            message: "out of luck".into()
        }]
    );
    server.handle_client_bytes(1, b"cmd=finalize\n");
    let told = outputs(&mut server);
    assert!(matches!(
        &told[..],
        [Output::ToClient { .. }, Output::Finalized { local: 1 }]
    ));
    server.client_closed(0);
    server.client_closed(1);
    assert_eq!(outputs(&mut server), [Output::Lost { local: 0 }]);
}

#[test]
fn a_process_that_is_started_again_learns_which_operation_is_next() {
    let mut server = begin([false, false]);
    for local in [0, 1, 0] {
        say(&mut server, local, "cmd=barrier_in\n");
    }
    server.client_closed(0);
    assert_eq!(outputs(&mut server), [Output::Lost { local: 0 }]);
    server.restart(0);
    let [reply, _] = say(&mut server, 0, "cmd=init pmi_version=1 pmi_subversion=1\n");
    assert_eq!(
        reply,
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0 restarts=1 first-request=2\n"
    );
}

#[test]
fn programs_have_numbers() {
    let mut job = job(4);
    job.programs = vec![1, 0, 2];
    job.appnum = -1;
    let numbers: Vec<_> = (0..4).map(|rank| job.appnum_of(rank)).collect();
    assert_eq!(numbers, [0, 2, 2, -1]);
}

proptest! {
    /// Plausible and implausible lines in any order and pieces: no panic, and the neighbour is served.
    #[test]
    fn no_pe_takes_the_server_down(
        lines in prop::collection::vec(
            prop_oneof![
                "cmd=(put|get)( kvsname=7.0)?( key=[a-c=]{0,3})?( value=[a-c ]{0,3})?\n",
                "cmd=(barrier_in|get_maxes|finalize|abort|get_appnum|init|initack)\n",
                "cmd=(publish|lookup|unpublish)_name service=[a-c]{0,2} port=[a-c]{0,2}\n",
                "mcmd=[sx]pawn\n(nprocs=[0-2]\n)?(execname=a\n)?(totspawns=[0-3]\n)?(spawnssofar=[0-3]\n)?endcmd\n",
                "[a-z=\n]{1,20}",
            ],
            0..30,
        ),
        cut in 1usize..40,
    ) {
        let mut server = begin([false, true]);
        for piece in lines.concat().as_bytes().chunks(cut) {
            server.handle_client_bytes(0, piece);
            outputs(&mut server);
        }
        server.client_closed(0);
        outputs(&mut server);
        let reply = ask(&mut server, 1, "cmd=job-getid;");
        prop_assert!(reply.contains("jobid=7.0;"));
    }
}

const INIT12: &[u8] = b"cmd=init pmi_version=1 pmi_subversion=2\n";

fn begin_1_2() -> NodeServer {
    let mut server = server(1, 0);
    for local in 0..2 {
        let text = std::str::from_utf8(INIT12).unwrap();
        let reply = "cmd=response_to_init pmi_version=1 pmi_subversion=2 rc=0\n";
        assert_eq!(say(&mut server, local, text)[local], reply);
    }
    server
}

#[test]
fn several_group_barriers_are_open_at_once() {
    let mut server = begin_1_2();
    let put = "cmd=put kvsname=7.0 key=a value=1\n";
    say(&mut server, 0, put);
    assert_eq!(
        say(&mut server, 0, "cmd=barrier_in group=0,1:5\n"),
        ["", ""]
    );
    assert_eq!(
        say(&mut server, 0, "cmd=barrier_in group=NODE:6\n"),
        ["", ""]
    );
    // What other threads want does not wait for them.
    let [reply, _] = say(&mut server, 0, "cmd=get_appnum\n");
    assert!(reply.starts_with("cmd=appnum"), "{reply}");
    assert!(!server.is_idle());
    let out = "cmd=barrier_out rc=0 tag=6\n";
    assert_eq!(
        say(&mut server, 1, "cmd=barrier_in group=NODE:6\n"),
        [out, out]
    );
    let out = "cmd=barrier_out rc=0 tag=5\n";
    assert_eq!(
        say(&mut server, 1, "cmd=barrier_in group=1,0:5\n"),
        [out, out]
    );
    // What was put before is visible to the members.
    let [_, got] = say(&mut server, 1, "cmd=get kvsname=7.0 key=a\n");
    assert_eq!(got, "cmd=get_result rc=0 msg=success value=1\n");
    // One of itself is over at once; one of all is what it always was, and tells a tag.
    assert_eq!(
        say(&mut server, 1, "cmd=barrier_in group=1:0\n")[1],
        "cmd=barrier_out rc=0 tag=0\n"
    );
    say(&mut server, 0, "cmd=barrier_in\n");
    let out = "cmd=barrier_out rc=0 tag=0\n";
    assert_eq!(say(&mut server, 1, "cmd=barrier_in\n"), [out, out]);
    assert!(server.is_idle());
}

#[test]
fn group_barriers_of_others_are_refused() {
    let mut server = begin_1_2();
    for group in ["0:1", "SELF", "0,9", "1,0:x"] {
        let [_, reply] = say(&mut server, 1, &format!("cmd=barrier_in group={group}\n"));
        assert!(
            reply.starts_with("cmd=barrier_out rc=-1"),
            "{group}: {reply}"
        );
    }
    assert!(server.is_idle());
    // The second round of the same waits for the second of the other.
    for _ in 0..2 {
        assert_eq!(
            say(&mut server, 0, "cmd=barrier_in group=WORLD:3\n"),
            ["", ""]
        );
    }
    assert_eq!(
        server.barrier_waits_for(|rank| rank == 1, |_| false),
        Some(1)
    );
    assert_eq!(server.barrier_waits_for(|rank| rank == 0, |_| false), None);
    let out = "cmd=barrier_out rc=0 tag=3\n";
    for _ in 0..2 {
        assert_eq!(
            say(&mut server, 1, "cmd=barrier_in group=WORLD:3\n"),
            [out, out]
        );
    }
    assert_eq!(server.barrier_waits_for(|_| true, |_| true), None);
}

/// Lets two nodes talk until nothing is left to say; gives what PEs hear, by node and local index.
fn settle(nodes: &mut [NodeServer; 2]) -> Vec<(usize, usize, String)> {
    let mut heard = Vec::new();
    loop {
        let mut quiet = true;
        for at in 0..2 {
            for output in outputs(&mut nodes[at]) {
                quiet = false;
                match output {
                    Output::ToParent(bytes) => {
                        nodes[0].handle_tree(TreeLink::Child(0), &bytes).unwrap();
                    }
                    Output::ToChild { bytes, .. } => {
                        nodes[1].handle_tree(TreeLink::Parent, &bytes).unwrap();
                    }
                    Output::ToClient { local, bytes } => {
                        let text = String::from_utf8(bytes).unwrap();
                        heard.push((at, local, text));
                    }
                    other => panic!("{other:?}"),
                }
            }
        }
        if quiet {
            return heard;
        }
    }
}

#[test]
fn group_barriers_go_over_the_tree() {
    let mut nodes = [server(2, 0), server(2, 1)];
    for node in &mut nodes {
        for local in 0..2 {
            node.handle_client_bytes(local, INIT12);
        }
    }
    settle(&mut nodes);
    // PEs 1 and 2; what 2 has put comes to 1, and not to those of its node that are no members alone.
    nodes[1].handle_client_bytes(
        0,
        b"cmd=put kvsname=7.0 key=two value=2\ncmd=barrier_in group=1,2:4\n",
    );
    assert_eq!(settle(&mut nodes).len(), 1, "the reply to put");
    assert_eq!(
        nodes[0].barrier_waits_for(|rank| rank == 1, |_| false),
        Some(1)
    );
    nodes[0].handle_client_bytes(1, b"cmd=barrier_in group=1,2:4\n");
    let out = "cmd=barrier_out rc=0 tag=4\n".to_owned();
    let mut heard = settle(&mut nodes);
    heard.sort();
    assert_eq!(heard, [(0, 1, out.clone()), (1, 0, out)]);
    nodes[0].handle_client_bytes(1, b"cmd=get kvsname=7.0 key=two\n");
    assert!(settle(&mut nodes)[0].2.ends_with("value=2\n"));
    assert!(nodes.iter().all(NodeServer::is_idle));
    // A message that nobody sends.
    let part = pmix::Part::new(&(0..4).collect(), 0, 0, b"").encode();
    let message = Message {
        direction: Direction::Down,
        request: 0,
        body: Body::Group(&part),
    };
    let bytes = message.encode().unwrap();
    assert!(nodes[1].handle_tree(TreeLink::Parent, &bytes).is_err());
}
