//! Dialogues of PMI-2 as foreign clients and servers hold them, byte for byte.

use shmem_pmi::client::{Client, ClientConfig, calls};
use shmem_pmi::server::{Job, NodePlace, NodeServer, Output};
use shmem_pmi::tree::Tree;

fn job() -> Job {
    Job {
        id: "25.0".into(),
        size: 1,
        appnum: -1,
        process_mapping: "(vector,(0,1,1))".into(),
        attributes: vec![("universeSize".into(), "4".into())],
        extensions: false,
        ..Job::default()
    }
}

/// What a server with one PE answers to `request`, all outputs to the client together.
fn answer(server: &mut NodeServer, request: &[u8]) -> String {
    server.handle_client_bytes(0, request);
    let mut all = Vec::new();
    while let Some(output) = server.poll_output() {
        if let Output::ToClient { bytes, .. } = output {
            all.extend(bytes);
        }
    }
    String::from_utf8(all).unwrap()
}

fn server() -> NodeServer {
    NodeServer::new(job(), NodePlace::in_tree(&Tree::new(1, 2), 0, &[0])).unwrap()
}

/// Requests as Slurm's libpmi2 sends them (header padded on the right), and their replies.
const DIALOGUE: [(&str, &str); 12] = [
    (
        "cmd=init pmi_version=2 pmi_subversion=0\n",
        "cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n",
    ),
    (
        "52    cmd=fullinit;pmijobid=25.0;pmirank=0;threaded=FALSE;",
        "114   cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;\
         appnum=-1;debugged=FALSE;pmiverbose=FALSE;",
    ),
    (
        "14    cmd=job-getid;",
        "39    cmd=job-getid-response;rc=0;jobid=25.0;",
    ),
    (
        "44    cmd=info-getjobattr;key=PMI_process_mapping;",
        "68    cmd=info-getjobattr-response;rc=0;found=TRUE;value=(vector,(0,1,1));",
    ),
    (
        "31    cmd=info-getjobattr;key=nosuch;",
        "46    cmd=info-getjobattr-response;rc=0;found=FALSE;",
    ),
    (
        "38    cmd=info-getnodeattr;key=k;wait=FALSE;",
        "47    cmd=info-getnodeattr-response;rc=0;found=FALSE;",
    ),
    (
        "35    cmd=info-putnodeattr;key=k;value=v;",
        "35    cmd=info-putnodeattr-response;rc=0;",
    ),
    (
        "37    cmd=info-getnodeattr;key=k;wait=TRUE;",
        "54    cmd=info-getnodeattr-response;rc=0;found=TRUE;value=v;",
    ),
    (
        // An older client doubles a semicolon and un-doubles it in the reply.
        "30    cmd=kvs-put;key=k;value=a;;b=;",
        "26    cmd=kvs-put-response;rc=0;",
    ),
    ("14    cmd=kvs-fence;", "28    cmd=kvs-fence-response;rc=0;"),
    (
        "47    cmd=kvs-get;thrid=t1;jobid=25.0;srcid=-1;key=k;",
        "58    cmd=kvs-get-response;thrid=t1;rc=0;found=TRUE;value=a;;b=;",
    ),
    ("13    cmd=finalize;", "27    cmd=finalize-response;rc=0;"),
];

/// The same message with its header padded on the left, as MPICH does it.
fn left_padded(message: &str) -> String {
    match message.split_at_checked(6) {
        Some((header, body)) if !message.starts_with("cmd=") => {
            format!("{:>6}{body}", header.trim())
        }
        _ => message.to_owned(),
    }
}

#[test]
fn headers_of_the_dialogue_are_true() {
    for (request, reply) in DIALOGUE {
        for message in [request, reply]
            .into_iter()
            .filter(|m| !m.starts_with("cmd="))
        {
            let (header, body) = message.split_at(6);
            assert_eq!(header.trim().parse(), Ok(body.len()), "{message}");
        }
    }
}

#[test]
fn served_step_by_step() {
    let mut one = server();
    let mut other = server();
    for (request, reply) in DIALOGUE {
        assert_eq!(answer(&mut one, request.as_bytes()), reply);
        assert_eq!(answer(&mut other, left_padded(request).as_bytes()), reply);
    }
}

#[test]
fn served_byte_by_byte_and_all_at_once() {
    let requests: String = DIALOGUE.iter().map(|(request, _)| *request).collect();
    let replies: String = DIALOGUE.iter().map(|(_, reply)| *reply).collect();
    assert_eq!(answer(&mut server(), requests.as_bytes()), replies);
    let mut dribbled = server();
    let all: String = requests
        .bytes()
        .map(|byte| answer(&mut dribbled, &[byte]))
        .collect();
    assert_eq!(all, replies);
}

#[test]
fn padding_behind_the_last_pair_is_ignored() {
    let mut server = server();
    answer(&mut server, DIALOGUE[0].0.as_bytes());
    answer(&mut server, DIALOGUE[1].0.as_bytes());
    let reply = answer(&mut server, b"20    cmd=job-getid;\0\0\0\0\0\0");
    assert_eq!(reply, DIALOGUE[2].1);
}

#[test]
fn client_against_foreign_servers() {
    // Hydra: headers padded on the left, other order of keys, no errmsg; Slurm: no thread marks.
    let mut client = Client::new(ClientConfig {
        rank: 1,
        job_id: Some("42.0".into()),
        extensions: false,
    });
    let facts = client.call(&calls::Initialise).unwrap();
    let there = client.call(&calls::Get("ep-0")).unwrap();
    let absent = client.call(&calls::Get("none")).unwrap();
    let end = client.call(&calls::Finalize).unwrap();
    let mut sent = client.take_output();
    for reply in [
        "cmd=response_to_init rc=0 pmi_version=2 pmi_subversion=0\n",
        "    96cmd=fullinit-response;pmi-version=2;pmi-subversion=0;rank=1;size=2;appnum=0;debugged=FALSE;rc=0;",
        "    49cmd=kvs-get-response;found=TRUE;value=addr0;rc=0;",
        "38    cmd=kvs-get-response;rc=0;found=FALSE;",
        "    27cmd=finalize-response;rc=0;",
    ] {
        client.handle_bytes(reply.as_bytes()).unwrap();
        sent.extend(client.take_output());
    }
    assert_eq!(
        String::from_utf8(sent).unwrap(),
        "cmd=init pmi_version=2 pmi_subversion=0\n\
         52    cmd=fullinit;pmijobid=42.0;pmirank=1;threaded=FALSE;\
         41    cmd=kvs-get;jobid=42.0;srcid=-1;key=ep-0;\
         41    cmd=kvs-get;jobid=42.0;srcid=-1;key=none;\
         13    cmd=finalize;"
    );
    assert_eq!(facts.take().unwrap().unwrap().size, 2);
    assert_eq!(there.take(), Some(Ok(Some(b"addr0".to_vec()))));
    assert_eq!(absent.take(), Some(Ok(None)));
    assert_eq!(end.take(), Some(Ok(())));
}
