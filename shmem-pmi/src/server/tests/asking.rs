//! What the launcher is asked, threads of one PE, and processes that are started again.

use super::*;
use crate::question::{Answer, NAME_TAKEN};

/// Sends one command that becomes a question; gives the question and what takes the answer.
fn question(server: &mut NodeServer, local: usize, body: &str) -> (u32, u64, Question) {
    server.handle_client_bytes(local, &message(body));
    let out = outputs(server);
    let [
        Output::Ask {
            asker,
            ticket,
            question,
        },
    ] = &out[..]
    else {
        panic!("{out:?}");
    };
    (*asker, *ticket, question.clone())
}

fn reply(server: &mut NodeServer, to: (u32, u64), answer: Answer) -> String {
    server.handle_answer(to.0, to.1, answer);
    match &outputs(server)[..] {
        [] => String::new(),
        [Output::ToClient { bytes, .. }] => String::from_utf8(bytes[6..].to_vec()).unwrap(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn names_and_jobs() {
    let mut server = server(1, 0);
    greet(&mut server, 1);
    let (asker, ticket, asked) = question(
        &mut server,
        1,
        "cmd=name-publish;thrid=5;name=s;port=p;infokeycount=0;",
    );
    let (name, port) = (b"s".to_vec(), b"p".to_vec());
    assert_eq!((asker, asked), (1, Question::Publish { name, port }));
    assert_eq!(
        reply(&mut server, (asker, ticket), Answer::Done),
        "cmd=name-publish-response;thrid=5;rc=0;"
    );
    let (asker, ticket, _) = question(&mut server, 1, "cmd=name-publish;name=s;port=q;");
    let taken = Answer::Refused {
        rc: 1,
        reason: NAME_TAKEN.into(),
    };
    assert_eq!(
        reply(&mut server, (asker, ticket), taken),
        "cmd=name-publish-response;rc=1;errmsg=key_already_present;"
    );
    let (asker, ticket, _) = question(&mut server, 1, "cmd=name-lookup;name=s;infokeycount=0;");
    assert_eq!(
        reply(&mut server, (asker, ticket), Answer::Port(b"p".to_vec())),
        "cmd=name-lookup-response;rc=0;port=p;value=p;found=TRUE;"
    );
    let (asker, ticket, _) = question(&mut server, 1, "cmd=name-unpublish;name=s;");
    assert_eq!(
        reply(&mut server, (asker, ticket), Answer::Done),
        "cmd=name-unpublish-response;rc=0;"
    );
    let spawn = "cmd=spawn;ncmds=1;preputcount=0;subcmd=/prog;maxprocs=2;argc=0;infokeycount=0;";
    let (asker, ticket, asked) = question(&mut server, 1, spawn);
    assert!(matches!(asked, Question::Spawn(ref r) if r.commands[0].procs == 2));
    let job_id = "7.1".to_owned();
    assert_eq!(
        reply(&mut server, (asker, ticket), Answer::Spawned { job_id }),
        "cmd=spawn-response;rc=0;jobid=7.1;nerrs=0;errcodes=0,0;"
    );
    // An answer that does not fit is no success.
    let (asker, ticket, _) = question(&mut server, 1, "cmd=name-lookup;name=s;");
    let text = reply(&mut server, (asker, ticket), Answer::Done);
    assert!(
        text.starts_with("cmd=name-lookup-response;rc=-1;"),
        "{text}"
    );
    // Nobody has asked that, or not any more.
    assert_eq!(reply(&mut server, (asker, ticket), Answer::Done), "");
    let text = ask(&mut server, 1, "cmd=job-connect;jobid=j;");
    assert!(text.contains("cmd=job-connect-response;rc=-1;"), "{text}");
    let text = ask(&mut server, 1, "cmd=name-lookup;name=;");
    assert!(text.contains("rc=3;"), "{text}");
    assert!(server.is_idle());
}

#[test]
fn a_spawned_job_knows_its_parent_and_its_first_pairs() {
    let mut job = job(2);
    job.spawner = Some("6.0".into());
    job.preputs = vec![(b"PARENT".to_vec(), b"port".to_vec())];
    let place = NodePlace {
        ranks: vec![0, 1],
        has_parent: false,
        children: Vec::new(),
    };
    let mut server = NodeServer::new(job, place).unwrap();
    server.handle_client_bytes(0, INIT);
    let facts = ask(&mut server, 0, "cmd=fullinit;");
    assert!(facts.contains("spawner-jobid=6.0;"), "{facts}");
    assert!(ask(&mut server, 0, "cmd=kvs-get;key=PARENT;").contains("value=port;"));
    server.handle_client_bytes(
        1,
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get kvsname=7.0 key=PARENT\n",
    );
    let out = outputs(&mut server);
    let [Output::ToClient { bytes, .. }] = &out[..] else {
        panic!("{out:?}");
    };
    assert!(bytes.ends_with(b"value=port\n"));
}

/// Each thread gets its own replies, whatever the others wait for.
#[test]
fn threads_do_not_disturb_each_other() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    let none: &[&str] = &[];
    let mut say = |local: usize, bodies: &[&str], expected: &[&str]| {
        for body in bodies {
            server.handle_client_bytes(local, &message(body));
        }
        let mut bytes = Vec::new();
        for output in outputs(&mut server) {
            if let Output::ToClient { local: 0, bytes: b } = output {
                bytes.extend(b);
            }
        }
        let mut decoder = crate::wire::v2::Decoder::behind_init(bytes);
        let mut seen = Vec::new();
        while let Ok(Some(Incoming::Body(body))) = decoder.next_message() {
            seen.push(String::from_utf8(body.to_vec()).unwrap());
        }
        assert_eq!(seen, expected);
    };
    // One thread waits for an attribute, one for a fence, one for an older operation.
    say(
        0,
        &["cmd=ifence;thrid=3;", "cmd=wait;thrid=3;request=0;"],
        &["cmd=ifence-response;thrid=3;rc=0;request=0;"],
    );
    say(0, &["cmd=info-getnodeattr;thrid=1;key=k;wait=TRUE;"], none);
    say(0, &["cmd=kvs-fence;thrid=2;"], none);
    // Others are served meanwhile.
    say(
        0,
        &[
            "cmd=kvs-get;thrid=4;key=x;",
            "cmd=kvs-put;thrid=4;key=x;value=1;",
        ],
        &[
            "cmd=kvs-get-response;thrid=4;rc=0;found=FALSE;",
            "cmd=kvs-put-response;thrid=4;rc=0;",
        ],
    );
    // And each comes back when its own condition holds, in whatever order.
    say(
        1,
        &["cmd=kvs-fence;"],
        &["cmd=wait-response;thrid=3;rc=0;request=0;"],
    );
    say(
        1,
        &["cmd=info-putnodeattr;key=k;value=v;"],
        &["cmd=info-getnodeattr-response;thrid=1;rc=0;found=TRUE;value=v;"],
    );
    say(
        1,
        &["cmd=kvs-fence;"],
        &["cmd=kvs-fence-response;thrid=2;rc=0;"],
    );
    assert!(server.is_idle());
}

#[test]
fn gets_make_no_room_for_more_waits() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    ask(&mut server, 0, "cmd=ifence;");
    for _ in 0..4096 {
        assert_eq!(ask(&mut server, 0, "cmd=wait;request=0;"), "");
    }
    let reply = ask(&mut server, 0, "cmd=kvs-get;key=k;");
    assert!(reply.contains("found=FALSE"), "{reply}");
    let reply = ask(&mut server, 0, "cmd=wait;request=0;");
    assert!(reply.contains("more than 4096 requests"), "{reply}");
}

#[test]
fn unanswered_requests_and_attributes_are_bounded() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    ask(&mut server, 0, "cmd=ifence;");
    // 4096 of each kind together, over which the PE is refused but goes on.
    for at in 0..1365 {
        let attribute = format!("cmd=info-getnodeattr;key=k{at};wait=TRUE;");
        for body in ["cmd=wait;request=0;", "cmd=name-lookup;name=s;", &attribute] {
            server.handle_client_bytes(0, &message(body));
        }
    }
    let questions: Vec<_> = outputs(&mut server)
        .into_iter()
        .filter_map(|output| match output {
            Output::Ask { asker, ticket, .. } => Some((asker, ticket)),
            _ => None,
        })
        .collect();
    assert_eq!(questions.len(), 1365);
    ask(&mut server, 0, "cmd=wait;request=0;");
    for body in [
        "cmd=wait;request=0;",
        "cmd=name-lookup;name=s;",
        "cmd=info-getnodeattr;key=k;wait=TRUE;",
    ] {
        let reply = ask(&mut server, 0, body);
        assert!(reply.contains("more than 4096 requests"), "{reply}");
    }
    // Each that is answered makes room for another.
    ask(&mut server, 1, "cmd=kvs-fence;");
    ask(&mut server, 1, "cmd=info-putnodeattr;key=k7;value=v;");
    for (asker, ticket) in questions {
        server.handle_answer(asker, ticket, Answer::Port(b"p".to_vec()));
    }
    outputs(&mut server);
    ask(&mut server, 0, "cmd=ifence;");
    let mut refused = 0;
    for _ in 0..4096 {
        let reply = ask(&mut server, 0, "cmd=wait;request=1;");
        refused += u32::from(!reply.is_empty());
    }
    assert_eq!(refused, 1364, "as many as attributes are waited for");
    let long = "k".repeat(65);
    let reply = ask(
        &mut server,
        1,
        &format!("cmd=info-getnodeattr;key={long};wait=TRUE;"),
    );
    assert!(reply.contains("rc=5;"), "{reply}");
    for at in 1..16 * 1024 {
        let reply = ask(
            &mut server,
            1,
            &format!("cmd=info-putnodeattr;key=x{at};value=v;"),
        );
        assert!(reply.contains("rc=0;"), "{reply}");
    }
    let reply = ask(&mut server, 1, "cmd=info-putnodeattr;key=y;value=v;");
    assert!(reply.contains("more than 16384 attributes"), "{reply}");
    let reply = ask(&mut server, 1, "cmd=info-putnodeattr;key=x1;value=w;");
    assert!(reply.contains("rc=0;"), "{reply}");
}

#[test]
fn a_process_is_started_again() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    greet(&mut server, 1);
    // It joins one operation, waits for a second and for more, and dies with puts of its own.
    ask(&mut server, 0, "cmd=ifence;");
    ask(&mut server, 1, "cmd=kvs-fence;");
    ask(&mut server, 0, "cmd=kvs-put;key=before;value=1;");
    ask(&mut server, 0, "cmd=kvs-fence;");
    ask(&mut server, 0, "cmd=kvs-put;key=lost;value=1;");
    ask(&mut server, 0, "cmd=info-getnodeattr;key=k;wait=TRUE;");
    let (asker, ticket, _) = question(&mut server, 0, "cmd=name-lookup;name=s;");
    server.handle_client_bytes(0, b"99    cmd=half");
    server.client_closed(0);
    assert_eq!(outputs(&mut server), [Output::Lost { local: 0 }]);
    server.restart(0);
    assert_eq!(outputs(&mut server), []);
    // What the dead one waited for goes to nobody, not to its successor.
    server.handle_client_bytes(0, INIT);
    let facts = ask(&mut server, 0, "cmd=fullinit;pmirank=0;");
    assert!(facts.ends_with("restarts=1;first-request=2;"), "{facts}");
    assert_eq!(
        reply(&mut server, (asker, ticket), Answer::Port(b"p".to_vec())),
        ""
    );
    assert_eq!(server.who_is_missing(1).to_string(), "PE 1");
    server.handle_client_bytes(1, &message("cmd=kvs-fence;"));
    server.handle_client_bytes(1, &message("cmd=info-putnodeattr;key=k;value=v;"));
    for output in outputs(&mut server) {
        assert!(
            matches!(output, Output::ToClient { local: 1, .. }),
            "{output:?}"
        );
    }
    // The puts that its predecessor's fence covered are there, the others are not.
    assert!(ask(&mut server, 0, "cmd=kvs-get;key=before;").contains("value=1;"));
    assert_eq!(server.completed(), 2);
    ask(&mut server, 1, "cmd=ifence;");
    assert_eq!(server.who_is_missing(2).to_string(), "PE 0");
    assert!(ask(&mut server, 0, "cmd=kvs-fence;").contains("cmd=kvs-fence-response;rc=0;"));
    assert!(ask(&mut server, 0, "cmd=kvs-get;key=lost;").contains("found=FALSE;"));
    server.handle_client_bytes(0, &message("cmd=finalize;"));
    server.client_closed(0);
    let last = outputs(&mut server).pop();
    assert_eq!(last, Some(Output::Finalized { local: 0 }));
}

#[test]
fn a_process_that_spoke_nonsense_is_started_again_in_another_version() {
    let mut server = server(1, 0);
    greet(&mut server, 0);
    server.handle_client_bytes(0, b"abcdef");
    // It is not forgotten that it did, though nobody has asked yet.
    server.restart(0);
    assert!(matches!(
        &outputs(&mut server)[..],
        [Output::ProtocolError { local: 0, .. }]
    ));
    server.handle_client_bytes(
        0,
        b"cmd=init pmi_version=1 pmi_subversion=1\ncmd=get_appnum\n",
    );
    let out = outputs(&mut server);
    let [Output::ToClient { bytes, .. }] = &out[..] else {
        panic!("{out:?}");
    };
    assert!(bytes.ends_with(b"cmd=appnum rc=0 appnum=0\n"));
    server.client_closed(0);
    assert_eq!(outputs(&mut server), [Output::Lost { local: 0 }]);
}
