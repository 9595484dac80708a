//! Tests of the blocking driver against a real server behind socket pairs.

use super::*;
use crate::client::ClientConfig;
use crate::client::calls::*;
use crate::server::{Job, NodePlace, NodeServer, Output};
use crate::tree::Tree;
use std::io::Write as _;
use std::thread;

/// Serves `count` PEs of one node over blocking sockets, one reader thread each, until all are
/// gone; returns what was published.
fn serve(count: u32, extensions: bool) -> (Vec<UnixStream>, thread::JoinHandle<Vec<Vec<u8>>>) {
    let nodes = vec![0; count as usize];
    let job = Job {
        id: "io".into(),
        size: count,
        appnum: 0,
        process_mapping: format!("(vector,(0,1,{count}))"),
        attributes: Vec::new(),
        extensions,
        ..Job::default()
    };
    let place = NodePlace::in_tree(&Tree::new(1, 2), 0, &nodes);
    let mut server = NodeServer::new(job, place).unwrap();
    let (mut ours, mut theirs) = (Vec::new(), Vec::new());
    let (sender, inputs) = std::sync::mpsc::channel();
    for local in 0..count as usize {
        let (server_end, client_end) = UnixStream::pair().unwrap();
        let mut reader = server_end.try_clone().unwrap();
        let sender = sender.clone();
        thread::spawn(move || {
            let mut buffer = [0; 512];
            loop {
                let len = reader.read(&mut buffer).unwrap_or(0);
                if sender.send((local, buffer[..len].to_vec())).is_err() || len == 0 {
                    return;
                }
            }
        });
        ours.push(server_end);
        theirs.push(client_end);
    }
    drop(sender);
    let server = thread::spawn(move || {
        let mut published = Vec::new();
        for (local, bytes) in inputs {
            if bytes.is_empty() {
                server.client_closed(local);
            } else {
                server.handle_client_bytes(local, &bytes);
            }
            while let Some(output) = server.poll_output() {
                match output {
                    Output::ToClient { local, bytes } => ours[local].write_all(&bytes).unwrap(),
                    Output::Publish { values, .. } => published.push(values.to_vec()),
                    Output::Finalized { .. } => {}
                    other => panic!("{other:?}"),
                }
            }
        }
        published
    });
    (theirs, server)
}

fn run(extensions: bool) -> Vec<Vec<u8>> {
    let (streams, server) = serve(4, extensions);
    let pes: Vec<_> = (0..)
        .zip(streams)
        .map(|(rank, stream)| {
            thread::spawn(move || {
                let config = ClientConfig {
                    rank,
                    job_id: Some("io".into()),
                    extensions,
                };
                let limit = Some(Duration::from_secs(60));
                let pmi = Connection::new(stream, Client::new(config), limit).unwrap();
                assert_eq!(pmi.call(&Initialise).unwrap().size, 4);
                let gather = extensions.then(|| {
                    let first = pmi.submit(|client| Ok(client.next_request())).unwrap();
                    pmi.submit(|client| client.call(&Iallgather(&[rank as u8; 3])))
                        .unwrap();
                    first
                });
                assert_eq!(pmi.call(&JobId).unwrap(), "io");
                let (key, value) = (format!("k{rank}"), format!("v{rank}"));
                pmi.call(&Put(&key, value.as_bytes())).unwrap();
                let fence = pmi.submit(|client| {
                    let request = client.next_request();
                    client.call(&Ifence).map(|_| request)
                });
                let fence = fence.unwrap();
                if rank == 0 {
                    pmi.call(&PutNodeAttr("a", b"x")).unwrap();
                }
                pmi.call(&Wait(fence)).unwrap();
                assert_eq!(pmi.call(&NodeAttr("a", true)).unwrap(), Some(b"x".to_vec()));
                let other = (rank + 1) % 4;
                let value = pmi.call(&Get(&format!("k{other}"))).unwrap();
                assert_eq!(value, Some(format!("v{other}").into_bytes()));
                assert_eq!(pmi.call(&Get("none")).unwrap(), None);
                pmi.call(&Fence).unwrap();
                if let Some(gather) = gather {
                    pmi.call(&Wait(gather)).unwrap();
                }
                assert_eq!(pmi.call(&JobAttr("none")).unwrap(), None);
                pmi.call(&Finalize).unwrap();
            })
        })
        .collect();
    for pe in pes {
        pe.join().unwrap();
    }
    server.join().unwrap()
}

#[test]
fn a_job_over_sockets() {
    assert_eq!(run(true), [b"\0\0\0\x01\x01\x01\x02\x02\x02\x03\x03\x03"]);
    assert!(run(false).is_empty());
}

fn connect(timeout: Duration) -> (UnixStream, Connection) {
    let (server, stream) = UnixStream::pair().unwrap();
    let config = ClientConfig {
        rank: 0,
        job_id: None,
        extensions: false,
    };
    (
        server,
        Connection::new(stream, Client::new(config), Some(timeout)).unwrap(),
    )
}

#[test]
fn silence_and_closing_are_told_apart() {
    let (server, pmi) = connect(Duration::from_millis(5));
    assert!(matches!(
        pmi.call(&Initialise),
        Err(ConnectionError::Timeout(_))
    ));
    drop(server);

    let (server, pmi) = connect(Duration::from_secs(60));
    drop(server);
    assert!(matches!(
        pmi.call(&Initialise),
        Err(ConnectionError::Closed)
    ));
}

#[test]
fn refusals_carry_the_reason() {
    let (mut server, pmi) = connect(Duration::from_secs(60));
    server
        .write_all(
            b"cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n\
              45    cmd=fullinit-response;rc=3;errmsg=bad rank;;;",
        )
        .unwrap();
    let text = pmi.call(&Initialise).unwrap_err().to_string();
    assert_eq!(text, "PMI server refused `fullinit` (rc=3): bad rank;");
}

/// Every PMGR call, with values that take several parts; then what differs between PEs.
fn pmgr_calls(pmgr: &crate::papers::pmgr::Pmgr<'_>) {
    let (rank, size) = (pmgr.rank() as usize, pmgr.size() as usize);
    let fill = |from: usize, to: usize, len: usize| vec![(16 * from + to) as u8; len];
    // Below, at and above the length of one part.
    for len in [0, 1, 24 << 10, 60_001] {
        pmgr.barrier().unwrap();
        for root in 0..size {
            let mut buffer = fill(rank, 0, len);
            pmgr.bcast(&mut buffer, root as u32).unwrap();
            assert_eq!(buffer, fill(root, 0, len));

            let mut all = vec![0; if rank == root { size * len } else { 0 }];
            pmgr.gather(&fill(rank, 1, len), &mut all, root as u32)
                .unwrap();
            if rank == root {
                let expected: Vec<_> = (0..size).map(|from| fill(from, 1, len)).collect();
                assert_eq!(all, expected.concat());
            }

            let send: Vec<_> = (0..size).map(|to| fill(rank, to, len)).collect();
            let send = if rank == root {
                send.concat()
            } else {
                Vec::new()
            };
            pmgr.scatter(&send, &mut buffer, root as u32).unwrap();
            assert_eq!(buffer, fill(root, rank, len));
        }
        let mut all = vec![0; size * len];
        pmgr.allgather(&fill(rank, 2, len), &mut all).unwrap();
        let expected: Vec<_> = (0..size).map(|from| fill(from, 2, len)).collect();
        assert_eq!(all, expected.concat());

        let send: Vec<_> = (0..size).map(|to| fill(rank, to, len)).collect();
        pmgr.alltoall(&send.concat(), &mut all).unwrap();
        let expected: Vec<_> = (0..size).map(|from| fill(from, rank, len)).collect();
        assert_eq!(all, expected.concat());
    }
    // Rank 0 gives one byte more than others have room for.
    let error = pmgr.bcast(&mut vec![0; 2 + usize::from(rank == 0)], 0);
    match rank {
        0 => error.unwrap(),
        _ => assert_eq!(
            error.unwrap_err().to_string(),
            "PMGR bcast: PE 0 gave 3 bytes; this PE expects 2"
        ),
    }
    let error = pmgr
        .scatter(&[0; 7], &mut [0; 2], 1)
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("PE 1: NLA scatter: not one byte string for each"),
        "{error}"
    );
    let error = pmgr
        .allgather(&[0; 2], &mut [0; 2])
        .unwrap_err()
        .to_string();
    assert!(
        error.contains("the receive buffer has 2 bytes; 4 PEs give 2 bytes each"),
        "{error}"
    );
}

#[test]
fn pmgr_and_messages_over_sockets() {
    let (streams, server) = serve(4, true);
    let pe = |rank: u32, stream: UnixStream| {
        let config = ClientConfig {
            rank,
            job_id: None,
            extensions: true,
        };
        let limit = Some(Duration::from_secs(60));
        let connection = Connection::new(stream, Client::new(config), limit).unwrap();
        let pmgr = crate::papers::pmgr::Pmgr::open(&connection).unwrap();
        pmgr_calls(&pmgr);
        let primitives = crate::papers::primitives::Primitives::new(&connection, rank, 4);
        let (next, last) = ((rank + 1) % 4, (rank + 3) % 4);
        primitives.send(next, b"").unwrap();
        primitives
            .send(next, &[rank as u8; crate::wire::data::MAX_MESSAGE])
            .unwrap();
        assert_eq!(primitives.recv(last).unwrap(), b"");
        assert_eq!(
            primitives.recv(last).unwrap(),
            [last as u8; crate::wire::data::MAX_MESSAGE]
        );
        assert!(
            primitives
                .send(next, &[0; crate::wire::data::MAX_MESSAGE + 1])
                .is_err()
        );
        primitives.put(&format!("k{rank}"), b"v").unwrap();
        let (owner, key) = (next, &format!("k{next}")[..]);
        assert_eq!(connection.call(&GetFrom(owner, key)).unwrap(), b"v");
        primitives.barrier().unwrap();
        assert_eq!(primitives.get(&format!("k{last}")).unwrap().unwrap(), b"v");
        pmgr.close().unwrap();
    };
    let pes: Vec<_> = (0..)
        .zip(streams)
        .map(|(rank, stream)| thread::spawn(move || pe(rank, stream)))
        .collect();
    for pe in pes {
        pe.join().unwrap();
    }
    server.join().unwrap();
}
