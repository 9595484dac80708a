//! Tests of the driver's promises against servers that play a script.

use super::*;
use crate::client::calls::*;
use crate::client::{ClientConfig, RankFrom};
use std::io::Write as _;
use std::thread;

const HYDRA: &[u8] = b"cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0\n\
    cmd=maxes kvsname_max=256 keylen_max=64 vallen_max=1024\n\
    cmd=my_kvsname kvsname=kvs_0\ncmd=appnum appnum=0\n";

/// A PMI-1 client that has been accepted, and the other end of its socket.
fn pmi1() -> (UnixStream, Connection) {
    let (mut server, stream) = UnixStream::pair().unwrap();
    let client = Client::pmi1(RankFrom::Environment { rank: 0, size: 2 });
    let limit = Some(Duration::from_secs(60));
    let pmi = Connection::new(stream, client, limit).unwrap();
    server.write_all(HYDRA).unwrap();
    assert_eq!(pmi.call(&Initialise).unwrap().size, 2);
    (server, pmi)
}

#[test]
fn polling_never_waits() {
    let (mut server, pmi) = pmi1();
    let fence = pmi.submit(|client| client.call(&Fence)).unwrap();
    for byte in b"cmd=barrier_out\n" {
        assert!(!pmi.has_come(&fence).unwrap());
        server.write_all(&[*byte]).unwrap();
    }
    assert!(pmi.has_come(&fence).unwrap());
    assert_eq!(fence.take(), Some(Ok(())));
    let next = pmi.submit(|client| client.call(&Fence)).unwrap();
    drop(server);
    assert!(matches!(pmi.has_come(&next), Err(ConnectionError::Closed)));
    assert!(
        matches!(pmi.call(&Fence), Err(ConnectionError::Closed)),
        "it stays so"
    );
}

#[test]
fn every_request_is_a_write_of_its_own() {
    let (server, stream) = UnixStream::pair().unwrap();
    // The server reads as Slurm's does: one request must be what one read gives.
    let server = thread::spawn(move || {
        let mut server = server;
        let mut replies = HYDRA
            .split_inclusive(|&byte| byte == b'\n')
            .collect::<Vec<_>>();
        replies.extend([&b"cmd=put_result rc=0\n"[..]; 20]);
        replies.push(b"cmd=barrier_out rc=0\n");
        let mut buffer = [0; 1024];
        for reply in replies {
            let len = server.read(&mut buffer).unwrap();
            let newlines = buffer[..len].iter().filter(|&&byte| byte == b'\n').count();
            assert!(
                newlines == 1 && buffer[len - 1] == b'\n',
                "{:?}",
                &buffer[..len]
            );
            server.write_all(reply).unwrap();
        }
    });
    let client = Client::pmi1(RankFrom::Environment { rank: 0, size: 1 });
    let pmi = Connection::new(stream, client, None).unwrap();
    pmi.submit(|client| {
        client.call(&Initialise)?;
        for i in 0..20 {
            client.call(&Put(&format!("key-{i}"), &[b'v'; 600]))?;
        }
        Ok(())
    })
    .unwrap();
    pmi.call(&Fence).unwrap();
    server.join().unwrap();
}

#[test]
fn the_end_of_the_server_wakes_all_threads() {
    let (server, pmi) = pmi1();
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| pmi.call(&Fence))).collect();
        drop(server);
        for thread in waiting {
            let outcome = thread.join().unwrap();
            assert!(
                matches!(outcome, Err(ConnectionError::Closed)),
                "{outcome:?}"
            );
        }
    });
}

/// Serves one PE as a launch agent does that is given no more to do before what it has done is taken:
/// one thread reads, and writes until all of it has been read.
fn strict_server(mut stream: UnixStream) -> thread::JoinHandle<()> {
    use crate::server::{Job, NodePlace, NodeServer, Output};
    let job = Job {
        id: "io".into(),
        size: 1,
        process_mapping: "(vector,(0,1,1))".into(),
        extensions: true,
        ..Job::default()
    };
    let place = NodePlace::in_tree(&crate::tree::Tree::new(1, 2), 0, &[0]);
    let mut server = NodeServer::new(job, place).unwrap();
    thread::spawn(move || {
        let mut buffer = [0; 512];
        loop {
            match stream.read(&mut buffer) {
                Ok(len @ 1..) => server.handle_client_bytes(0, &buffer[..len]),
                _ => return,
            }
            while let Some(output) = server.poll_output() {
                if let Output::ToClient { bytes, .. } = output
                    && stream.write_all(&bytes).is_err()
                {
                    return;
                }
            }
        }
    })
}

#[test]
fn requests_that_fill_the_socket_do_not_keep_replies_out() {
    const GETS: usize = 20_000;
    let (server, stream) = UnixStream::pair().unwrap();
    let server = strict_server(server);
    let config = ClientConfig {
        rank: 0,
        job_id: None,
        extensions: true,
    };
    let limit = Some(Duration::from_secs(60));
    let pmi = Connection::new(stream, Client::new(config), limit).unwrap();
    pmi.call(&Initialise).unwrap();
    let flood = || {
        let gets = pmi.submit(|client| {
            (0..GETS)
                .map(|i| client.call(&Get(&format!("a-key-of-some-length-{i}"))))
                .collect::<Result<Vec<_>, _>>()
        });
        for get in gets.unwrap() {
            assert_eq!(pmi.wait(&get).unwrap(), None);
        }
    };
    // Nobody else reads; then others do, and write in between.
    flood();
    thread::scope(|scope| {
        scope.spawn(flood);
        scope.spawn(flood);
        scope.spawn(|| {
            for _ in 0..200 {
                assert_eq!(pmi.call(&Get("another")).unwrap(), None);
            }
        });
    });
    drop(pmi);
    server.join().unwrap();
}
