//! Tests of the client against recorded dialogues of PMI-1 servers.

use super::calls::*;
use super::*;
use crate::question::{SpawnCommand, SpawnRequest};
use crate::wire::excerpt;

/// What a client says and what a server answers, line by line.
type Dialogue<'d> = &'d [(&'d str, &'d str)];

/// Hydra 4.0.2, one of two processes with an inherited socket.
const HYDRA: Dialogue<'_> = &[
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n",
    ),
    (
        "cmd=get_maxes\n",
        "cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    ),
    (
        "cmd=get_my_kvsname\n",
        "cmd=my_kvsname kvsname=kvs_31107_0_929670786_vm\n",
    ),
    ("cmd=get_appnum\n", "cmd=appnum appnum=0\n"),
];

/// Slurm 22.05.8.
const SLURM: Dialogue<'_> = &[
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    ),
    (
        "cmd=get_maxes\n",
        "cmd=maxes rc=0 kvsname_max=256 keylen_max=64 vallen_max=1024\n",
    ),
    ("cmd=get_my_kvsname\n", "cmd=my_kvsname rc=0 kvsname=42.0\n"),
    ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=-1\n"),
];

/// Flux 0.88, whose name of the key-value space, like its keys, has at most 63 bytes.
const FLUX: Dialogue<'_> = &[
    (
        "cmd=init pmi_version=1 pmi_subversion=1\n",
        "cmd=response_to_init rc=0 pmi_version=1 pmi_subversion=1\n",
    ),
    (
        "cmd=get_maxes\n",
        "cmd=maxes rc=0 kvsname_max=64 keylen_max=64 vallen_max=1024\n",
    ),
    (
        "cmd=get_my_kvsname\n",
        "cmd=my_kvsname rc=0 kvsname=\u{192}2Pc3mYnFVJh\n",
    ),
    ("cmd=get_appnum\n", "cmd=appnum rc=0 appnum=0\n"),
];

fn text(client: &mut Client) -> String {
    String::from_utf8(client.take_output()).unwrap()
}

/// Plays the server's part, one byte at a time: each request must leave alone and complete, when the
/// reply to the one before has come.
fn play(client: &mut Client, dialogue: Dialogue<'_>) {
    for (request, reply) in dialogue {
        assert_eq!(text(client), *request);
        for byte in reply.bytes() {
            assert!(!client.has_output(), "before the reply to {request:?}");
            client.handle_bytes(&[byte]).unwrap();
        }
    }
}

fn introduced(dialogue: Dialogue<'_>) -> Client {
    let mut client = Client::pmi1(RankFrom::Environment { rank: 1, size: 2 });
    let facts = client.call(&Initialise).unwrap();
    play(&mut client, dialogue);
    let facts = facts.take().unwrap().unwrap();
    assert_eq!((facts.rank, facts.size), (1, 2));
    client
}

#[test]
fn a_process_of_hydra() {
    let mut client = introduced(HYDRA);
    let put = client.call(&Put("ep-1", b"addr=1")).unwrap();
    let fence = client.call(&Fence).unwrap();
    let there = client.call(&Get("ep-0")).unwrap();
    let absent = client.call(&Get("nosuch")).unwrap();
    let mapping = client.call(&JobAttr("PMI_process_mapping")).unwrap();
    let universe = client.call(&JobAttr("universeSize")).unwrap();
    let job = client.call(&JobId).unwrap();
    let first = client.call(&Publish("s", b"p")).unwrap();
    let second = client.call(&Publish("s", b"p")).unwrap();
    let port = client.call(&Lookup("s")).unwrap();
    let unpublished = client.call(&Unpublish("s")).unwrap();
    let end = client.call(&Finalize).unwrap();
    play(
        &mut client,
        &[
            (
                "cmd=put kvsname=kvs_31107_0_929670786_vm key=ep-1 value=addr=1\n",
                "cmd=put_result rc=0 msg=success\n",
            ),
            ("cmd=barrier_in\n", "cmd=barrier_out\n"),
            (
                "cmd=get kvsname=kvs_31107_0_929670786_vm key=ep-0\n",
                "cmd=get_result rc=0 msg=success value=addr=0\n",
            ),
            (
                "cmd=get kvsname=kvs_31107_0_929670786_vm key=nosuch\n",
                "cmd=get_result rc=-1 msg=key_nosuch_not_found value=unknown\n",
            ),
            (
                "cmd=get kvsname=kvs_31107_0_929670786_vm key=PMI_process_mapping\n",
                "cmd=get_result rc=0 msg=success value=(vector,(0,1,1))\n",
            ),
            ("cmd=get_universe_size\n", "cmd=universe_size size=-1\n"),
            (
                "cmd=publish_name service=s port=p\n",
                "cmd=publish_result info=ok rc=0 msg=success\n",
            ),
            (
                "cmd=publish_name service=s port=p\n",
                "cmd=publish_result info=ok rc=1 msg=key_already_present\n",
            ),
            (
                "cmd=lookup_name service=s\n",
                "cmd=lookup_result port=p info=ok rc=0 msg=success\n",
            ),
            (
                "cmd=unpublish_name service=s\n",
                "cmd=unpublish_result info=ok rc=0 msg=success\n",
            ),
            ("cmd=finalize\n", "cmd=finalize_ack\n"),
        ],
    );
    let refused = Refusal {
        command: "name-publish".into(),
        rc: 1,
        message: "key already present".into(),
    };
    for done in [put, fence, first, unpublished, end] {
        assert_eq!(done.take(), Some(Ok(())));
    }
    assert_eq!(second.take(), Some(Err(refused)));
    assert_eq!(there.take(), Some(Ok(Some(b"addr=0".to_vec()))));
    assert_eq!(absent.take(), Some(Ok(None)));
    let vector = b"(vector,(0,1,1))".to_vec();
    assert_eq!(mapping.take(), Some(Ok(Some(vector))));
    assert_eq!(universe.take(), Some(Ok(None)));
    assert_eq!(job.take(), Some(Ok("kvs_31107_0_929670786_vm".into())));
    assert_eq!(port.take(), Some(Ok(b"p".to_vec())));
    assert_eq!((client.outstanding(), client.incomplete_input()), (0, 0));
}

#[test]
fn a_process_of_slurm() {
    let mut client = introduced(SLURM);
    let absent = client.call(&Get("nosuch")).unwrap();
    let fence = client.call(&Fence).unwrap();
    let unknown = client.call(&Lookup("nosuch")).unwrap();
    play(
        &mut client,
        &[
            ("cmd=get kvsname=42.0 key=nosuch\n", "cmd=get_result rc=1\n"),
            ("cmd=barrier_in\n", "cmd=barrier_out rc=0\n"),
            (
                "cmd=lookup_name service=nosuch\n",
                "cmd=lookup_result info=fail\n",
            ),
        ],
    );
    assert_eq!(absent.take(), Some(Ok(None)));
    assert_eq!(fence.take(), Some(Ok(())));
    assert!(matches!(unknown.take(), Some(Err(_))));
}

/// Its error numbers are those of the PMI-1 interface; it has no text for them, and neither names nor jobs.
#[test]
fn a_process_of_flux() {
    let mut client = introduced(FLUX);
    let job = client.call(&JobId).unwrap();
    let taskmap = client.call(&Get("flux.taskmap")).unwrap();
    // Not there if it would have more than 1024 bytes.
    let mapping = client.call(&JobAttr("PMI_process_mapping")).unwrap();
    let put = client.call(&Put("ep-1", b"00ff")).unwrap();
    let twice = client.call(&Put("ep-1", b"00ff")).unwrap();
    let fence = client.call(&Fence).unwrap();
    let there = client.call(&Get("ep-0")).unwrap();
    let universe = client.call(&JobAttr("universeSize")).unwrap();
    let published = client.call(&Publish("s", b"p")).unwrap();
    let found = client.call(&Lookup("s")).unwrap();
    let unpublished = client.call(&Unpublish("s")).unwrap();
    let name = FLUX[2].1.trim_end().rsplit('=').next().unwrap();
    let get = |key: &str| format!("cmd=get kvsname={name} key={key}\n");
    let pair = format!("cmd=put kvsname={name} key=ep-1 value=00ff\n");
    let not_offered = "rc=-1 msg=command not implemented\n";
    play(
        &mut client,
        &[
            (
                &get("flux.taskmap"),
                "cmd=get_result rc=0 value={\"version\":1,\"map\":[[0,2,1,1]]}\n",
            ),
            (&get("PMI_process_mapping"), "cmd=get_result rc=4\n"),
            (&pair, "cmd=put_result rc=0\n"),
            (&pair, "cmd=put_result rc=4\n"),
            ("cmd=barrier_in\n", "cmd=barrier_out rc=0\n"),
            (&get("ep-0"), "cmd=get_result rc=0 value=01fe\n"),
            ("cmd=get_universe_size\n", "cmd=universe_size rc=0 size=2\n"),
            (
                "cmd=publish_name service=s port=p\n",
                &format!("cmd=publish_result {not_offered}"),
            ),
            (
                "cmd=lookup_name service=s\n",
                &format!("cmd=lookup_result {not_offered}"),
            ),
            (
                "cmd=unpublish_name service=s\n",
                &format!("cmd=unpublish_result {not_offered}"),
            ),
        ],
    );
    assert_eq!(job.take(), Some(Ok(name.to_owned())));
    let map = b"{\"version\":1,\"map\":[[0,2,1,1]]}".to_vec();
    assert_eq!(taskmap.take(), Some(Ok(Some(map))));
    assert_eq!(mapping.take(), Some(Ok(None)));
    assert_eq!((put.take(), fence.take()), (Some(Ok(())), Some(Ok(()))));
    assert_eq!(twice.take().unwrap().unwrap_err().rc, 4);
    assert_eq!(there.take(), Some(Ok(Some(b"01fe".to_vec()))));
    assert_eq!(universe.take(), Some(Ok(Some(b"2".to_vec()))));
    assert!(matches!(found.take(), Some(Err(_))));
    for refused in [published.take(), unpublished.take()] {
        let refusal = refused.unwrap().unwrap_err();
        assert_eq!(refusal.rc, -1);
        assert!(refusal.message.contains("not implemented"), "{refusal}");
    }

    // It reads no line of a spawn but the first and the last.
    let request = SpawnRequest {
        commands: vec![SpawnCommand {
            program: b"/bin/prog".to_vec(),
            args: Vec::new(),
            procs: 1,
            info: Vec::new(),
        }],
        preputs: Vec::new(),
    };
    let spawned = client.call(&Spawn(&request)).unwrap();
    assert!(text(&mut client).ends_with("endcmd\n"));
    client.handle_bytes(b"cmd=spawn_result rc=-1\n").unwrap();
    assert_eq!(spawned.take().unwrap().unwrap_err().rc, -1);

    // The code it takes; other words are left to the process that says them.
    client.abort(7, "out of luck").unwrap();
    let sent = text(&mut client);
    assert!(sent.starts_with("cmd=abort exitcode=7 "), "{sent}");
    let end = client.call(&Finalize).unwrap();
    play(
        &mut client,
        &[("cmd=finalize\n", "cmd=finalize_ack rc=0\n")],
    );
    assert_eq!(end.take(), Some(Ok(())));
}

/// As `SHMEM_PMI=2` would have it.
#[test]
fn flux_has_no_pmi_2() {
    let mut client = Client::new(ClientConfig {
        rank: 0,
        job_id: None,
        extensions: false,
    });
    client.call(&Initialise).unwrap();
    assert!(text(&mut client).starts_with("cmd=init pmi_version=2 "));
    let error = client
        .handle_bytes(b"cmd=response_to_init rc=-1\n")
        .unwrap_err();
    assert!(
        matches!(error, ClientError::Version { wanted: "2.0", .. }),
        "{error}"
    );
}

#[test]
fn the_port_model() {
    for (before, behind) in [
        (
            "cmd=initack\ncmd=set size=8\ncmd=set rank=3\ncmd=set debug=0\n",
            "",
        ),
        // The debug level may be late, or missing.
        (
            "cmd=initack rc=0\ncmd=set rank=3\ncmd=set size=8\n",
            "cmd=set debug=0\n",
        ),
    ] {
        let mut client = Client::pmi1(RankFrom::Server { id: 5 });
        let told = client.call(&Initialise).unwrap();
        assert_eq!(text(&mut client), "cmd=initack pmiid=5\n");
        client.handle_bytes(before.as_bytes()).unwrap();
        let (init, reply) = HYDRA[0];
        play(&mut client, &[(init, &format!("{behind}{reply}"))]);
        play(&mut client, &HYDRA[1..]);
        let facts = Initialised {
            rank: 3,
            size: 8,
            appnum: 0,
            spawner: None,
            restarts: 0,
            first_request: RequestId(0),
        };
        assert_eq!(told.take(), Some(Ok(facts)));
        assert_eq!(client.config().rank, 3);
    }
}

#[test]
fn a_process_that_is_started_again_counts_on() {
    let mut client = Client::pmi1(RankFrom::Environment { rank: 1, size: 2 });
    let facts = client.call(&Initialise).unwrap();
    let init =
        "cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0 restarts=2 first-request=7\n";
    play(&mut client, &[(HYDRA[0].0, init)]);
    play(&mut client, &HYDRA[1..]);
    let facts = facts.take().unwrap().unwrap();
    assert_eq!((facts.restarts, facts.first_request), (2, RequestId(7)));
    assert_eq!(client.next_request(), RequestId(7));
}

#[test]
fn spawning() {
    let mut client = introduced(HYDRA);
    let spawned = client
        .call(&Spawn(&SpawnRequest {
            commands: vec![SpawnCommand {
                program: b"/bin/prog".to_vec(),
                args: vec![b"two words".to_vec()],
                procs: 2,
                info: Vec::new(),
            }],
            preputs: vec![(b"PARENT".to_vec(), b"port".to_vec())],
        }))
        .unwrap();
    let sent = text(&mut client);
    for part in [
        "mcmd=spawn\nnprocs=2\nexecname=/bin/prog\n",
        "\narg1=two words\n",
        "\npreput_key_0=PARENT\npreput_val_0=port\n",
    ] {
        assert!(sent.contains(part), "{sent}");
    }
    assert!(sent.ends_with("endcmd\n"));
    client
        .handle_bytes(b"cmd=spawn_result rc=0 errcodes=0,0\n")
        .unwrap();
    let nothing = client.call(&Spawn(&SpawnRequest::default())).unwrap();
    let expected = Spawned {
        job_id: None,
        errcodes: vec![0, 0],
    };
    assert_eq!(spawned.take(), Some(Ok(expected)));
    assert!(matches!(nothing.take(), Some(Err(_))), "no program");
    assert!(!client.has_output());
}

#[test]
fn a_split_fence_holds_back_what_follows() {
    let mut client = introduced(HYDRA);
    let fence = client.next_request();
    client.call(&Ifence).unwrap();
    assert_eq!(text(&mut client), "cmd=barrier_in\n");
    let waiting = client.call(&Wait(fence)).unwrap();
    client.call(&Put("k", b"v")).unwrap();
    assert_eq!(text(&mut client), "");
    client.handle_bytes(b"cmd=barrier_out\n").unwrap();
    assert_eq!(waiting.take(), Some(Ok(())));
    assert!(text(&mut client).starts_with("cmd=put "));
}

#[test]
fn what_pmi1_cannot_carry_is_refused() {
    let mut client = introduced(HYDRA);
    assert_eq!(client.value_max(), 600);
    assert!(client.call(&Put("k", &[b'v'; 600])).is_ok());
    for (key, value) in [
        ("k", &[b'v'; 601][..]),
        ("k", b"two words"),
        ("k", b"back\\slash"),
        ("k", b"line\n"),
        ("k", b""),
        ("a=b", b"v"),
        ("", b"v"),
    ] {
        let error = client.call(&Put(key, value)).unwrap_err();
        assert!(
            matches!(error, ClientError::BadText { .. }),
            "{key:?} {value:?}: {error}"
        );
    }
    let key = "k";
    let put = client.call(&PutNodeAttr(key, b"v")).map(drop);
    let get = client.call(&NodeAttr(key, true)).map(drop);
    for outcome in [put, get] {
        assert_eq!(
            outcome.unwrap_err().to_string().split('`').next(),
            Some("PMI-1 has no ")
        );
    }
    assert!(matches!(
        client.call(&Iallgather(b"x")),
        Err(ClientError::NoExtensions { .. })
    ));

    let mut small = Client::pmi1(RankFrom::Environment { rank: 0, size: 1 });
    small.call(&Initialise).unwrap();
    play(&mut small, &HYDRA[..1]);
    play(
        &mut small,
        &[(
            "cmd=get_maxes\n",
            "cmd=maxes kvsname_max=16 keylen_max=64 vallen_max=101\n",
        )],
    );
    assert_eq!(small.value_max(), 100);
}

#[test]
fn an_early_put_that_turns_out_too_long_is_refused() {
    let mut client = Client::pmi1(RankFrom::Environment { rank: 0, size: 1 });
    client.call(&Initialise).unwrap();
    let put = client.call(&Put("k", &[b'v'; 600])).unwrap();
    play(&mut client, &HYDRA[..2]);
    let name = "n".repeat(500);
    play(
        &mut client,
        &[
            (
                "cmd=get_my_kvsname\n",
                &format!("cmd=my_kvsname kvsname={name}\n"),
            ),
            HYDRA[3],
        ],
    );
    let refusal = put.take().unwrap().unwrap_err();
    assert!(refusal.message.contains("cannot be sent"), "{refusal}");
    assert!(!client.has_output());
}

#[test]
fn abort_overtakes_and_leaves_alone() {
    let mut client = introduced(HYDRA);
    client.call(&Fence).unwrap();
    client.abort(7, "out of\nluck").unwrap();
    let sent = text(&mut client);
    assert!(sent.starts_with("cmd=abort exitcode=7"), "{sent}");
    assert_eq!(sent.matches('\n').count(), 1);
}

#[test]
fn nonsense_ends_the_connection() {
    let outcome = |bytes: &[u8]| {
        let mut client = introduced(HYDRA);
        client.call(&Fence).unwrap();
        let outcome = client.handle_bytes(bytes);
        assert_eq!(
            client.handle_bytes(b"cmd=barrier_out\n").is_err(),
            outcome.is_err()
        );
        outcome
    };
    for bytes in [
        &b"cmd=put_result rc=0\n"[..],
        b"cmd=nosuch\n",
        b"\x80\n",
        b"mcmd=spawn\nendcmd\n",
        &[b'x'; 70_000],
    ] {
        assert!(outcome(bytes).is_err(), "{:?}", excerpt(bytes));
    }
    let mut client = Client::pmi1(RankFrom::Environment { rank: 0, size: 1 });
    client.call(&Initialise).unwrap();
    assert!(matches!(
        client.handle_bytes(b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=-1\n"),
        Err(ClientError::Version { wanted: "1.1", .. })
    ));
}
