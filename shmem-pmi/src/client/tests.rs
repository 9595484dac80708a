//! Tests of the client alone: what it sends when, and how it takes replies.

use super::*;

fn client(extensions: bool) -> Client {
    Client::new(ClientConfig {
        rank: 3,
        job_id: Some("25.0".into()),
        extensions,
    })
}

fn text(client: &mut Client) -> String {
    String::from_utf8(client.take_output()).unwrap()
}

fn message(body: &str) -> Vec<u8> {
    format!("{:>6}{body}", body.len()).into_bytes()
}

const INIT_REPLY: &[u8] = b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n";

/// A client that has been accepted, in plain mode.
fn accepted(extensions: bool) -> Client {
    let mut client = client(extensions);
    client.initialise().unwrap();
    client.handle_bytes(INIT_REPLY).unwrap();
    client
        .handle_bytes(&message("cmd=fullinit-response;rc=0;rank=3;size=8;"))
        .unwrap();
    client.take_output();
    assert!(matches!(
        client.poll_event(),
        Some((
            _,
            Event::Initialised(Initialised {
                rank: 3,
                size: 8,
                appnum: -1,
                ..
            })
        ))
    ));
    client
}

#[test]
fn plain_requests_go_one_at_a_time() {
    let mut client = client(false);
    client.initialise().unwrap();
    client.put("k", b"v").unwrap();
    client.fence().unwrap();
    client.get("k").unwrap();
    assert_eq!(
        text(&mut client),
        "cmd=init pmi_version=2 pmi_subversion=0\n"
    );
    for (reply, next) in [
        (
            INIT_REPLY.to_vec(),
            "52    cmd=fullinit;pmijobid=25.0;pmirank=3;threaded=FALSE;",
        ),
        (
            message("cmd=fullinit-response;rc=0;rank=3;size=8;"),
            "26    cmd=kvs-put;key=k;value=v;",
        ),
        (message("cmd=kvs-put-response;"), "14    cmd=kvs-fence;"),
        (
            message("cmd=kvs-fence-response;rc=0;"),
            "38    cmd=kvs-get;jobid=25.0;srcid=-1;key=k;",
        ),
        (message("cmd=kvs-get-response;rc=0;found=TRUE;value=v;"), ""),
    ] {
        client.handle_bytes(&reply).unwrap();
        assert_eq!(text(&mut client), next);
    }
    let events: Vec<_> = std::iter::from_fn(|| client.poll_event())
        .map(|(_, event)| event)
        .collect();
    assert_eq!(
        events[1..],
        [
            Event::Put,
            Event::FenceDone,
            Event::Got(Some(b"v".to_vec()))
        ]
    );
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn extensions_allow_one_write_for_the_whole_start() {
    let mut client = client(true);
    client.initialise().unwrap();
    let started = client.iallgather(&[1, 0xab]).unwrap();
    assert_eq!(started.request, RequestId(0));
    assert_eq!(
        text(&mut client),
        "cmd=init pmi_version=2 pmi_subversion=0\n\
         51    cmd=fullinit;pmijobid=25.0;pmirank=3;threaded=TRUE;\
         26    cmd=iallgather;value=01ab;"
    );
    assert_eq!(client.outstanding(), 2);
}

#[test]
fn marked_replies_may_overtake() {
    let mut client = accepted(true);
    let late = client.node_attr("late", true).unwrap();
    let early = client.node_attr("early", true).unwrap();
    let sent = text(&mut client);
    assert!(
        sent.contains(&format!("thrid={};key=early;", early.0)),
        "{sent}"
    );
    for (ticket, value) in [(early, "e"), (late, "l")] {
        let body = format!(
            "cmd=info-getnodeattr-response;thrid={};rc=0;found=TRUE;value={value};",
            ticket.0
        );
        client.handle_bytes(&message(&body)).unwrap();
        let event = Event::NodeAttr(Some(value.into()));
        assert_eq!(client.poll_event(), Some((ticket, event)));
    }
}

#[test]
fn ifence_works_without_extensions() {
    let mut client = accepted(false);
    let fence = client.ifence().unwrap();
    assert_eq!(
        client.poll_event(),
        Some((fence.ticket, Event::RequestStarted(RequestId(0))))
    );
    assert_eq!(text(&mut client), "14    cmd=kvs-fence;");
    let early = client.wait(fence.request).unwrap();
    client.job_id().unwrap();
    assert_eq!(
        text(&mut client),
        "",
        "held back until the fence is complete"
    );
    assert_eq!(client.poll_event(), None);
    client
        .handle_bytes(&message("cmd=kvs-fence-response;rc=0;"))
        .unwrap();
    let done = Event::RequestDone(fence.request);
    assert_eq!(client.poll_event(), Some((early, done.clone())));
    let late = client.wait(fence.request).unwrap();
    assert_eq!(client.poll_event(), Some((late, done)));
    assert_eq!(text(&mut client), "14    cmd=job-getid;");

    client
        .handle_bytes(&message("cmd=job-getid-response;rc=0;jobid=1;"))
        .unwrap();
    let failing = client.ifence().unwrap();
    client
        .handle_bytes(&message("cmd=kvs-fence-response;rc=9;errmsg=no;"))
        .unwrap();
    client.wait(failing.request).unwrap();
    let last = std::iter::from_fn(|| client.poll_event()).last();
    assert!(matches!(
        last,
        Some((_, Event::Error(Refusal { rc: 9, .. })))
    ));
}

#[test]
fn wrong_calls_are_refused() {
    let error = |outcome: Result<Ticket, ClientError>| outcome.unwrap_err().to_string();
    let mut fresh = client(false);
    assert!(error(fresh.fence()).contains("before init"));
    let mut plain = accepted(false);
    assert!(error(plain.initialise()).contains("twice"));
    let text = plain.iallgather(b"x").unwrap_err().to_string();
    assert!(text.contains("extensions"), "{text}");
    for (key, value) in [
        ("", "v"),
        ("k", ""),
        ("a;b", "v"),
        ("k", "a\nb"),
        ("k", "a\0"),
    ] {
        assert!(
            matches!(
                plain.put(key, value.as_bytes()),
                Err(ClientError::BadText { .. })
            ),
            "{key:?} {value:?}"
        );
    }
    assert!(plain.put(&"k".repeat(63), &[b'v'; 1023]).is_ok());
    assert!(plain.put(&"k".repeat(64), b"v").is_err());
    assert!(plain.put("k", &[b'v'; 1024]).is_err());
    assert!(error(plain.wait(RequestId(0))).contains("not started"));
    plain.finalize().unwrap();
    assert!(error(plain.fence()).contains("after finalize"));
    let mut extended = accepted(true);
    assert!(extended.iallgather(&[]).is_err());
    assert!(extended.allgather(&[0; 1025]).is_err());
    assert_eq!(
        extended.iallgather(&[0; 1024]).unwrap().request,
        RequestId(0)
    );
}

#[test]
fn nonsense_from_the_server_is_an_error() {
    let outcome = |bytes: &[u8]| {
        let mut client = client(true);
        client.initialise().unwrap();
        client.iallgather(b"x").unwrap();
        client.handle_bytes(INIT_REPLY).unwrap();
        client.handle_bytes(bytes)
    };
    assert!(matches!(
        outcome(&message("cmd=kvs-get-response;rc=0;")),
        Err(ClientError::Unexpected { .. })
    ));
    assert_eq!(
        outcome(&message("cmd=iallgather-response;rc=0;request=4;")),
        Err(ClientError::OutOfStep { theirs: 4, ours: 0 })
    );
    assert!(matches!(outcome(b"abcdef"), Err(ClientError::Wire(_))));
    let mut refused = client(false);
    refused.initialise().unwrap();
    assert!(matches!(
        refused.handle_bytes(b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"),
        Err(ClientError::Version { version: 1, .. })
    ));
}

#[test]
fn what_the_user_is_to_read_is_sent_at_once_and_bounded() {
    let mut client = accepted(true);
    client.take_output();
    client.tell("a;\nb", false).unwrap();
    assert_eq!(
        String::from_utf8(client.take_output()).unwrap(),
        "31    cmd=tell;text=a;;\nb;adds=FALSE;"
    );
    client.tell(&"ä;".repeat(MAX_TOLD), true).unwrap();
    let sent = client.take_output();
    let request = Request::decode(&sent[6..]).unwrap();
    let Command::Tell { text, adds: true } = request.command else {
        panic!("another command");
    };
    assert_eq!(text, "ä;".repeat(MAX_TOLD / 3).as_bytes());
    assert!(accepted(false).tell("x", false).is_err());
}

#[test]
fn abort_overtakes_what_is_held_back() {
    let mut client = accepted(false);
    client.fence().unwrap();
    client.job_id().unwrap();
    client.take_output();
    client.abort(7, "gave; up").unwrap();
    assert_eq!(
        text(&mut client),
        "64    cmd=abort;isworld=TRUE;exitcode=7;msg=gave  up;message=gave  up;"
    );
}
