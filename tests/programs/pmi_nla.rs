//! A program that does all its start-up over the launch agents: the primitives of ScELA, PMGR, and direct
//! exchange, through the facade that programs use. Its argument says what it does.

use shmem_pmi::papers::pmgr::Pmgr;
use shmem_pmi::process::Process;

fn main() {
    let what = std::env::args().nth(1).expect("what to do");
    let process = Process::init().unwrap_or_else(|e| panic!("{e}"));
    let (rank, size) = (process.rank(), process.size());
    match what.as_str() {
        "all" => all(&process),
        "caches" => caches(&process),
        // The last rank has another root.
        "mismatch" => {
            let primitives = process.primitives().expect("an agent of shmrun");
            let root = u32::from(rank == size - 1);
            let error = primitives.gather(root, b"x").unwrap_err();
            println!("rank {rank}: {error}");
        }
        // Rank 1 finalizes, and rank 0 waits for what it never gives.
        "gone" => {
            let primitives = process.primitives().expect("an agent of shmrun");
            if rank == 0 {
                println!("{}", primitives.recv(1).unwrap_err());
            }
        }
        other => panic!("{other}?"),
    }
    process.finalize().unwrap_or_else(|e| panic!("{e}"));
}

/// A byte string of `from` for `to`, whose length depends on both.
fn piece(from: u32, to: u32) -> Vec<u8> {
    vec![(16 * from + to) as u8; (1000 * from + 777 * to) as usize % 5000]
}

fn all(process: &Process) {
    let primitives = process.primitives().expect("an agent of shmrun");
    let (rank, size) = (process.rank(), process.size());
    let pieces: Vec<_> = (0..size).map(|to| piece(rank, to)).collect();
    let slices: Vec<_> = pieces.iter().map(|piece| &piece[..]).collect();
    let own = piece(rank, 9);
    let everybodys: Vec<_> = (0..size).map(|from| piece(from, 9)).collect();
    for root in [0, size - 1] {
        let gathered = primitives.gather(root, &own).expect("gather");
        assert_eq!(gathered, (rank == root).then(|| everybodys.clone()));
        assert_eq!(
            primitives.broadcast(root, &own).expect("broadcast"),
            piece(root, 9)
        );
        assert_eq!(
            primitives.scatter(root, &slices).expect("scatter"),
            piece(root, rank)
        );
        primitives.barrier().expect("barrier");
    }
    assert_eq!(primitives.allgather(&own).expect("allgather"), everybodys);
    let mine: Vec<_> = (0..size).map(|from| piece(from, rank)).collect();
    assert_eq!(primitives.alltoall(&slices).expect("alltoall"), mine);
    // Results of PMI stay where they are, whatever of NLA's comes in between and however many others.
    let word = |n: u32| (100 * n + rank).to_le_bytes();
    let kept = process.allgather(&word(0)).expect("PMI allgather");
    for n in 1..=10 {
        primitives.barrier().expect("barrier");
        process.allgather(&word(n)).expect("PMI allgather");
    }
    for from in 0..size {
        let value = kept.value(from).expect("a value");
        assert_eq!(value[..], from.to_le_bytes());
    }
    // In between, an allgather of PMI, whose result comes another way.
    let values = process
        .allgather(&rank.to_le_bytes())
        .expect("PMI allgather");
    let of_last = values.value(size - 1);
    assert_eq!(of_last.as_deref(), Some(&(size - 1).to_le_bytes()[..]));

    let (next, last) = ((rank + 1) % size, (rank + size - 1) % size);
    primitives.send(next, &piece(rank, next)).expect("send");
    assert_eq!(primitives.recv(last).expect("receive"), piece(last, rank));
    primitives
        .put(&format!("nla-{rank}"), b"on the board")
        .expect("put");
    primitives.barrier().expect("barrier");
    let value = primitives.get(&format!("nla-{last}")).expect("get");
    assert_eq!(value.as_deref(), Some(&b"on the board"[..]));

    let pmgr = Pmgr::over(primitives);
    let mut lids = vec![0; 2 * size as usize];
    pmgr.allgather(&(rank as u16).to_le_bytes(), &mut lids)
        .expect("PMGR allgather");
    let expected: Vec<_> = (0..size as u16).flat_map(u16::to_le_bytes).collect();
    assert_eq!(lids, expected);
    pmgr.barrier().expect("PMGR barrier");
    println!("rank {rank} has all");
}

/// Three stages of put, fence and get, with a key that gets a new value in each.
fn caches(process: &Process) {
    let (rank, size) = (process.rank(), process.size());
    for stage in 0..3 {
        process
            .put(&format!("of-{rank}"), format!("{stage}").as_bytes())
            .expect("put");
        process
            .put(&format!("in-{stage}-{rank}"), b"here")
            .expect("put");
        process.fence().expect("fence");
        for of in 0..size {
            let value = process.get(&format!("of-{of}")).expect("get");
            assert_eq!(
                value,
                Some(format!("{stage}").into_bytes()),
                "stage {stage}"
            );
            for past in 0..=stage {
                let value = process.get(&format!("in-{past}-{of}")).expect("get");
                assert_eq!(value.as_deref(), Some(&b"here"[..]));
            }
        }
        assert_eq!(process.get("nobody-puts-this").expect("get"), None);
        // Nobody may overtake: a put before the others' gets could change what they see.
        process.fence().expect("fence");
    }
    println!("rank {rank} saw every stage");
}
