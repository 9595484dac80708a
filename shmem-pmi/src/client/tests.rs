//! Tests of the client alone: what it sends when, and how it takes replies.

use super::calls::*;
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
    let facts = client.call(&Initialise).unwrap();
    client.handle_bytes(INIT_REPLY).unwrap();
    assert!(!facts.has_come());
    client
        .handle_bytes(&message("cmd=fullinit-response;rc=0;rank=3;size=8;"))
        .unwrap();
    client.take_output();
    assert!(matches!(
        facts.take(),
        Some(Ok(Initialised {
            rank: 3,
            size: 8,
            appnum: -1,
            ..
        }))
    ));
    assert_eq!(facts.take(), None, "only once");
    client
}

#[test]
fn plain_requests_go_one_at_a_time() {
    let mut client = client(false);
    client.call(&Initialise).unwrap();
    let put = client.call(&Put("k", b"v")).unwrap();
    let fence = client.call(&Fence).unwrap();
    let get = client.call(&Get("k")).unwrap();
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
    assert_eq!((put.take(), fence.take()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(get.take(), Some(Ok(Some(b"v".to_vec()))));
    assert_eq!(client.outstanding(), 0);
}

#[test]
fn extensions_allow_one_write_for_the_whole_start() {
    let mut client = client(true);
    client.call(&Initialise).unwrap();
    assert_eq!(client.next_request(), RequestId(0));
    client.call(&Iallgather(&[1, 0xab])).unwrap();
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
    let late = client.call(&NodeAttr("late", true)).unwrap();
    let early = client.call(&NodeAttr("early", true)).unwrap();
    let sent = text(&mut client);
    assert!(
        sent.contains(&format!("thrid={};key=early;", early.mark())),
        "{sent}"
    );
    for (ticket, value) in [(early, "e"), (late, "l")] {
        assert_eq!(ticket.take(), None);
        let body = format!(
            "cmd=info-getnodeattr-response;thrid={};rc=0;found=TRUE;value={value};",
            ticket.mark()
        );
        client.handle_bytes(&message(&body)).unwrap();
        assert_eq!(ticket.take(), Some(Ok(Some(value.into()))));
    }
}

#[test]
fn ifence_works_without_extensions() {
    let mut client = accepted(false);
    let fence = client.next_request();
    let started = client.call(&Ifence).unwrap();
    assert_eq!(started.take(), Some(Ok(RequestId(0))));
    assert_eq!(text(&mut client), "14    cmd=kvs-fence;");
    let early = client.call(&Wait(fence)).unwrap();
    client.call(&JobId).unwrap();
    assert_eq!(
        text(&mut client),
        "",
        "held back until the fence is complete"
    );
    assert_eq!(early.take(), None);
    client
        .handle_bytes(&message("cmd=kvs-fence-response;rc=0;"))
        .unwrap();
    assert_eq!(early.take(), Some(Ok(())));
    let late = client.call(&Wait(fence)).unwrap();
    assert_eq!(late.take(), Some(Ok(())));
    assert_eq!(text(&mut client), "14    cmd=job-getid;");

    client
        .handle_bytes(&message("cmd=job-getid-response;rc=0;jobid=1;"))
        .unwrap();
    let failing = client.next_request();
    client.call(&Ifence).unwrap();
    client
        .handle_bytes(&message("cmd=kvs-fence-response;rc=9;errmsg=no;"))
        .unwrap();
    let told = client.call(&Wait(failing)).unwrap();
    assert!(matches!(told.take(), Some(Err(Refusal { rc: 9, .. }))));
}

#[test]
fn wrong_calls_are_refused() {
    let error = |outcome: Result<Ticket<()>, ClientError>| outcome.unwrap_err().to_string();
    let mut fresh = client(false);
    assert!(error(fresh.call(&Fence)).contains("before init"));
    let mut plain = accepted(false);
    let twice = plain.call(&Initialise).unwrap_err().to_string();
    assert!(twice.contains("twice"), "{twice}");
    let text = plain.call(&Iallgather(b"x")).unwrap_err().to_string();
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
                plain.call(&Put(key, value.as_bytes())),
                Err(ClientError::BadText { .. })
            ),
            "{key:?} {value:?}"
        );
    }
    assert!(plain.call(&Put(&"k".repeat(63), &[b'v'; 1023])).is_ok());
    assert!(plain.call(&Put(&"k".repeat(64), b"v")).is_err());
    assert!(plain.call(&Put("k", &[b'v'; 1024])).is_err());
    assert!(error(plain.call(&Wait(RequestId(0)))).contains("not started"));
    plain.call(&Finalize).unwrap();
    assert!(error(plain.call(&Fence)).contains("after finalize"));
    let mut extended = accepted(true);
    // Our own server undoubles semicolons; others cut values there.
    assert!(accepted(false).call(&Put("k", b"a;b")).is_err());
    assert!(extended.call(&Put("k", b"a;b")).is_ok());
    assert!(extended.call(&Put("a;b", b"v")).is_err());
    assert!(extended.call(&Iallgather(&[])).is_err());
    assert!(extended.call(&Allgather(&[0; 1025])).is_err());
    assert_eq!(extended.next_request(), RequestId(0), "none was started");
    extended.call(&Iallgather(&[0; 1024])).unwrap();
}

#[test]
fn nonsense_from_the_server_is_an_error() {
    let outcome = |bytes: &[u8]| {
        let mut client = client(true);
        client.call(&Initialise).unwrap();
        client.call(&Iallgather(b"x")).unwrap();
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
    refused.call(&Initialise).unwrap();
    assert!(matches!(
        refused.handle_bytes(b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=-1\n"),
        Err(ClientError::Version { version: 1, .. })
    ));
}

#[test]
fn abort_overtakes_what_is_held_back() {
    let mut client = accepted(false);
    client.call(&Fence).unwrap();
    client.call(&JobId).unwrap();
    client.take_output();
    client.abort(7, "gave; up").unwrap();
    assert_eq!(
        text(&mut client),
        "64    cmd=abort;isworld=TRUE;exitcode=7;msg=gave  up;message=gave  up;"
    );
}
