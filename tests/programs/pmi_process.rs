//! A process that uses all of PMI through `shmem_pmi::process`, and asserts what it gets. Its argument
//! says what to do; it prints `rank N ok` at the end.

use std::process::ExitCode;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, Instant};

use shmem_pmi::process::{Process, Request, Server};
use shmem_pmi::question::{SpawnCommand, SpawnRequest};

fn main() -> ExitCode {
    let mut args = std::env::args().skip(1);
    let what = args.next().unwrap_or_default();
    let pmi = match Process::init() {
        Ok(pmi) => pmi,
        Err(error) => {
            eprintln!("{error}");
            return ExitCode::from(3);
        }
    };
    assert!(pmi.rank() < pmi.size());
    match &what[..] {
        "all" => {
            facts(&pmi);
            pairs(&pmi);
            fences(&pmi);
            gathers(&pmi);
            held_results(&pmi);
            rings(&pmi);
            node_attributes(&pmi);
            names(&pmi);
        }
        "threads" => threads(&pmi),
        "direct" => direct(&pmi),
        "unequal" => unequal(&pmi),
        "twice" => twice(&pmi),
        "lives" => lives(&pmi),
        "spawn" => spawn(&pmi),
        "child" => child(&pmi),
        "abort" => {
            if pmi.rank() == pmi.size() - 1 {
                pmi.abort(7, "as the test wants it");
            }
            // Never complete: the launcher must end this process.
            let _ = pmi.fence();
            std::thread::sleep(Duration::from_secs(100));
            return ExitCode::SUCCESS;
        }
        other => panic!("no such test: {other:?}"),
    }
    if pmi.server() == Server::Pmix {
        // Some servers have a key as long as its owner is there.
        pmi.fence().unwrap();
    }
    pmi.finalize().unwrap();
    assert!(pmi.fence().is_err(), "after finalize");
    println!(
        "rank {} of {} ok ({})",
        pmi.rank(),
        pmi.size(),
        pmi.server()
    );
    ExitCode::SUCCESS
}

/// Rank 1 dies twice; whoever takes its place goes on with the operation that comes next, of whichever
/// kind those before it were.
fn lives(pmi: &Process) {
    let me = pmi.rank();
    let life = std::env::var("PMI_RESPAWNED").map_or(0, |count| count.parse().expect("a number"));
    let value = |rank: u32, life: u8, round: u8| [rank as u8, life, round];
    // Each life of rank 1 joins one round of all kinds of operations.
    let rounds = match me {
        1 => life..life + 1,
        _ => 0..3,
    };
    for round in rounds {
        pmi.put(&format!("of-{me}-{round}"), life.to_string().as_bytes())
            .unwrap();
        pmi.fence().unwrap();
        let first = pmi.iallgather(&value(me, life, round)).unwrap();
        let ring = pmi.ring(format!("{me}-{round}").as_bytes()).unwrap();
        let second = pmi.allgather(&value(me, life, round + 100)).unwrap();
        let first = first.wait().unwrap();
        for rank in 0..pmi.size() {
            let life = if rank == 1 { round } else { 0 };
            let put = pmi.get_of(rank, &format!("of-{rank}-{round}")).unwrap();
            assert_eq!(put, Some(life.to_string().into_bytes()));
            assert_eq!(
                first.value(rank).as_deref(),
                Some(&value(rank, life, round)[..])
            );
            let expected = value(rank, life, round + 100);
            assert_eq!(second.value(rank).as_deref(), Some(&expected[..]));
        }
        assert!(ring.left.ends_with(format!("-{round}").as_bytes()));
    }
    if me == 1 && life < 2 {
        std::process::abort();
    }
}

fn facts(pmi: &Process) {
    assert!(!pmi.spawned());
    assert!(pmi.appnum() <= 0);
    assert!(!pmi.job_id().unwrap().is_empty());
    let mapping = pmi.job_attr("PMI_process_mapping").unwrap().unwrap();
    assert!(mapping.starts_with(b"(vector,"), "{mapping:?}");
    assert_eq!(pmi.job_attr("A_key_that_nobody_has").unwrap(), None);
}

fn pairs(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    let long = |rank: u32| {
        "abcdefgh".repeat(128)[..pmi.value_max()].replace('h', &format!("{}", rank % 10))
    };
    assert!(
        pmi.value_max()
            == if matches!(pmi.server(), Server::Pmi1 | Server::Pmi1Port) {
                600
            } else {
                1023
            }
    );
    pmi.put(&format!("short-{me}"), me.to_string().as_bytes())
        .unwrap();
    pmi.put(&format!("long-{me}"), long(me).as_bytes()).unwrap();
    pmi.fence().unwrap();
    for rank in 0..n {
        let short = pmi.get_of(rank, &format!("short-{rank}")).unwrap();
        assert_eq!(short, Some(rank.to_string().into_bytes()));
        let got = pmi.get_of(rank, &format!("long-{rank}")).unwrap();
        assert_eq!(got, Some(long(rank).into_bytes()), "{me} {rank}");
    }
    assert_eq!(pmi.get_of(me, "nobody-puts-this").unwrap(), None);
    match pmi.server() {
        Server::Pmix => {
            let error = pmi.get("nobody-puts-this").unwrap_err().to_string();
            assert!(error.contains("use get_of"), "{error}");
        }
        _ => {
            assert_eq!(pmi.get("nobody-puts-this").unwrap(), None);
            let own = pmi.get(&format!("short-{me}")).unwrap();
            assert_eq!(own, Some(me.to_string().into_bytes()));
        }
    }
    pmi.fence().unwrap();
    // A new value of an old key, which Hydra's PMI-2 does not take, nor every PMIx.
    pmi.put(&format!("short-{me}"), b"new").unwrap();
    pmi.fence().unwrap();
    let keeps_the_first = match pmi.server() {
        Server::Pmi2 => std::env::var_os("SHMEM_NODE").is_none(),
        server => server == Server::Pmix,
    };
    if !keeps_the_first {
        let right = pmi.get(&format!("short-{}", (me + 1) % n)).unwrap();
        assert_eq!(right, Some(b"new".to_vec()));
    }
    for (key, value) in [
        ("", &b"v"[..]),
        ("k", b""),
        ("k", b"a\nb"),
        ("k", &[b'v'; 2000]),
    ] {
        let error = pmi.put(key, value).unwrap_err().to_string();
        assert!(error.contains(&format!("PE {me}: PMI put")), "{error}");
    }
}

fn fences(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    pmi.put(&format!("before-{me}"), b"seen").unwrap();
    let mut first = pmi.ifence().unwrap();
    let second = pmi.ifence().unwrap();
    while !first.test().unwrap() {
        std::thread::yield_now();
    }
    first.wait().unwrap();
    for rank in 0..n {
        let value = pmi.get_of(rank, &format!("before-{rank}")).unwrap();
        assert_eq!(value, Some(b"seen".to_vec()));
    }
    pmi.wait(second).unwrap();
    drop(pmi.ifence().unwrap());
    pmi.fence().unwrap();
}

fn value(rank: u32, round: u32, len: usize) -> Vec<u8> {
    (0..len as u32)
        .map(|i| (rank * 31 + round * 7 + i) as u8)
        .collect()
}

fn gathers(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    // More than the launch agents keep, waited for from the last to the first.
    let lens = [1, 7, 64, 1024, 300, 2, 601, 13, 99, 100, 5, 1023];
    let start = |round: usize| {
        pmi.iallgather(&value(me, round as u32, lens[round]))
            .unwrap()
    };
    let mut requests: Vec<Request<_>> = (0..lens.len()).map(start).collect();
    let fence = pmi.ifence().unwrap();
    for round in (0..lens.len()).rev() {
        let mut request = requests.pop().unwrap();
        while round % 2 == 1 && !request.test().unwrap() {
            std::thread::yield_now();
        }
        let gathered = request.wait().unwrap();
        assert_eq!(
            (gathered.len(), gathered.value_len()),
            (n as usize, lens[round])
        );
        for rank in 0..n {
            let want = value(rank, round as u32, lens[round]);
            assert_eq!(
                gathered.value(rank).as_deref(),
                Some(&want[..]),
                "round {round}"
            );
        }
        assert_eq!(gathered.value(n), None);
        assert_eq!(gathered.to_vec().len(), n as usize * lens[round]);
    }
    fence.wait().unwrap();
    for len in [0, 1025] {
        assert!(pmi.allgather(&vec![0; len]).is_err());
    }
}

/// Results that are held while their place is taken by others.
fn held_results(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    let mut held = Vec::new();
    for round in 0..30 {
        let gathered = pmi.allgather(&value(me, round, 17)).unwrap();
        if round % 3 == 0 {
            held.push((round, gathered));
        }
        if round % 5 == 0 {
            pmi.fence().unwrap();
        }
    }
    for (round, gathered) in held {
        for rank in 0..n {
            let want = value(rank, round, 17);
            assert_eq!(
                gathered.value(rank).as_deref(),
                Some(&want[..]),
                "round {round}"
            );
        }
    }
}

fn rings(pmi: &Process) {
    let n = pmi.size();
    for round in 0..3 {
        let own = format!("r{round}-{}", pmi.rank());
        let ring = pmi.ring(own.as_bytes()).unwrap();
        assert_eq!(ring.size, n);
        // All know the order, and it must be a ring.
        let mut entry = format!("{:08}|{own}|", ring.rank).into_bytes();
        for neighbour in [&ring.left, &ring.right] {
            entry.extend_from_slice(neighbour);
            entry.push(b'|');
        }
        entry.resize(64, b' ');
        let all = pmi.allgather(&entry).unwrap();
        let mut order: Vec<Vec<String>> = (0..n)
            .map(|rank| {
                let entry = String::from_utf8(all.value(rank).unwrap().into_owned()).unwrap();
                entry.split('|').map(str::to_owned).collect()
            })
            .collect();
        order.sort();
        for (at, entry) in order.iter().enumerate() {
            let n = n as usize;
            assert_eq!(entry[0], format!("{at:08}"), "{order:?}");
            assert_eq!(entry[2], order[(at + n - 1) % n][1], "{order:?}");
            assert_eq!(entry[3], order[(at + 1) % n][1], "{order:?}");
        }
    }
}

fn node_attributes(pmi: &Process) {
    let me = pmi.rank();
    if matches!(pmi.server(), Server::Pmi1 | Server::Pmi1Port) {
        let error = pmi.put_node_attr("k", b"v").unwrap_err().to_string();
        assert!(error.contains("PMI-1 has no"), "{error}");
        return;
    }
    pmi.put_node_attr(&format!("own-{me}"), b"here").unwrap();
    let own = pmi.node_attr(&format!("own-{me}"), true).unwrap();
    assert_eq!(own, Some(b"here".to_vec()));
    assert_eq!(pmi.node_attr("nobody", false).unwrap(), None);
}

fn names(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    // Hydra's PMI-2 loses answers when several PEs ask at the same time: there only PE 0 does.
    let foreign = std::env::var_os("SHMEM_NODE").is_none();
    let one = foreign && pmi.server() == Server::Pmi2;
    let service = |rank: u32| format!("service-of-{rank}");
    let takes_part = me == 0 || !one;
    if pmi.server() == Server::Pmix
        && let Err(error) = pmi.publish(&format!("probe-{me}"), b"p")
    {
        // As of Slurm's; others are not excused.
        assert!(error.to_string().contains("does not offer"), "{error}");
        assert!(std::env::var_os("SLURM_STEP_ID").is_some(), "{error}");
        return;
    }
    if takes_part {
        pmi.publish(&service(me), b"tcp://here:1").unwrap();
    }
    pmi.fence().unwrap();
    if takes_part {
        let other = if one { 0 } else { (me + 1) % n };
        assert_eq!(pmi.lookup(&service(other)).unwrap(), b"tcp://here:1");
        assert!(pmi.lookup("no-such-service").is_err());
    }
    pmi.fence().unwrap();
    if takes_part {
        pmi.unpublish(&service(me)).unwrap();
        assert!(pmi.lookup(&service(me)).is_err());
    }
}

/// Several threads wait for different things at once.
fn threads(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    pmi.put(&format!("thread-{me}"), me.to_string().as_bytes())
        .unwrap();
    pmi.fence().unwrap();
    let done = AtomicU32::new(0);
    let plain = pmi.server() != Server::Shmrun;
    std::thread::scope(|scope| {
        for thread in 0..4 {
            let done = &done;
            scope.spawn(move || {
                for round in 0..50 {
                    let rank = (me + thread + round) % n;
                    let got = pmi.get_of(rank, &format!("thread-{rank}")).unwrap();
                    assert_eq!(got, Some(rank.to_string().into_bytes()));
                }
                done.fetch_add(1, Ordering::Relaxed);
            });
        }
        // Withheld until another thread puts it; on a plain server it would hold up that thread.
        if !plain {
            scope.spawn(|| {
                let late = pmi.node_attr(&format!("late-{me}"), true).unwrap();
                assert_eq!(late, Some(b"now".to_vec()));
            });
        }
        for round in 0..20 {
            let sum = pmi.iallgather(&value(me, round, 9)).unwrap();
            pmi.fence().unwrap();
            let sum = sum.wait().unwrap();
            assert_eq!(
                sum.value(n - 1).as_deref(),
                Some(&value(n - 1, round, 9)[..])
            );
        }
        if !plain {
            pmi.put_node_attr(&format!("late-{me}"), b"now").unwrap();
        }
    });
    assert_eq!(done.into_inner(), 4);
}

/// Values from the PE that puts them, without any fence.
fn direct(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    if matches!(pmi.server(), Server::Shmrun | Server::Pmix | Server::Alone) {
        std::thread::scope(|scope| {
            let early = scope.spawn(|| pmi.get_from(left, &format!("direct-{left}")).unwrap());
            pmi.put(&format!("direct-{me}"), format!("of {me}").as_bytes())
                .unwrap();
            assert_eq!(early.join().unwrap(), format!("of {left}").as_bytes());
        });
        let late = pmi.get_from(right, &format!("direct-{right}")).unwrap();
        assert_eq!(late, format!("of {right}").as_bytes());
    } else {
        let error = pmi.get_from(right, "direct").unwrap_err().to_string();
        assert!(error.contains("extensions"), "{error}");
    }
    pmi.fence().unwrap();
}

/// Values of different lengths fail at all PEs, and what follows works.
fn unequal(pmi: &Process) {
    let (me, n) = (pmi.rank(), pmi.size());
    let odd = pmi.iallgather(&vec![1; 1 + me as usize]).unwrap();
    let even = pmi.iallgather(&[me as u8]).unwrap();
    match (odd.wait(), n) {
        (Ok(_), 1) => {}
        (Err(error), 2..) => assert!(error.to_string().contains("bytes"), "{error}"),
        (outcome, _) => panic!("{outcome:?}"),
    }
    let even = even.wait().unwrap();
    assert_eq!(
        even.to_vec(),
        (0..n).map(|rank| rank as u8).collect::<Vec<_>>()
    );
}

/// PE 0 starts a job of two and waits for a sign of life.
fn spawn(pmi: &Process) {
    if pmi.rank() == 0 {
        let program = std::env::current_exe().unwrap();
        let spawned = pmi.spawn(SpawnRequest {
            commands: vec![SpawnCommand {
                program: program.into_os_string().into_encoded_bytes(),
                args: vec![b"child".to_vec()],
                procs: 2,
                info: Vec::new(),
            }],
            preputs: vec![(b"parent-says".to_vec(), b"hello".to_vec())],
        });
        assert!(spawned.unwrap().errcodes.iter().all(|&code| code == 0));
        let port = await_name(pmi, "the-children");
        assert_eq!(port, b"2-here");
        pmi.publish("the-parent", b"has-seen-it").unwrap();
    }
    pmi.fence().unwrap();
}

/// Asks for a name until somebody publishes it.
fn await_name(pmi: &Process, name: &str) -> Vec<u8> {
    let start = Instant::now();
    loop {
        match pmi.lookup(name) {
            Ok(port) => return port,
            Err(error) => assert!(start.elapsed() < Duration::from_secs(60), "{error}"),
        }
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn child(pmi: &Process) {
    assert!(pmi.spawned());
    assert_eq!(pmi.size(), 2);
    assert_eq!(pmi.get("parent-says").unwrap(), Some(b"hello".to_vec()));
    pmi.fence().unwrap();
    if pmi.rank() == 0 {
        let port = format!("{}-here", pmi.size());
        pmi.publish("the-children", port.as_bytes()).unwrap();
        // Names may end with the job that has published them.
        assert_eq!(await_name(pmi, "the-parent"), b"has-seen-it");
    }
    pmi.fence().unwrap();
}

fn twice(pmi: &Process) {
    match Process::init() {
        Err(error) => {
            let error = error.to_string();
            assert!(
                error.contains("has done so before") || error.contains("connected before"),
                "{error}"
            );
        }
        Ok(again) if again.server() == Server::Pmix => {
            // The keys of both are their own.
            let (me, right) = (pmi.rank(), (pmi.rank() + 1) % pmi.size());
            assert_eq!((again.rank(), again.size()), (me, pmi.size()));
            for (process, life) in [(pmi, 1), (&again, 2)] {
                let value = format!("{me} in life {life}");
                process.put("who", value.as_bytes()).unwrap();
                process.fence().unwrap();
            }
            for (process, life) in [(pmi, 1), (&again, 2)] {
                let value = format!("{right} in life {life}").into_bytes();
                assert_eq!(process.get_of(right, "who").unwrap(), Some(value));
                let all = process.allgather(&[me as u8]).unwrap();
                assert_eq!(all.value(right).as_deref(), Some(&[right as u8][..]));
            }
            again.finalize().unwrap();
        }
        Ok(again) => assert_eq!(again.server(), Server::Alone),
    }
    pmi.fence().unwrap();
}
