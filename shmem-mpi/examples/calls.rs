//! Calls everything that the binding has, and says whether the answers are right.
//!
//! `mpiexec.hydra -n 4 calls`, `mpirun.openmpi -n 4 calls`; the first argument is the thread level.

use shmem_mpi::{Comm, Error, Mpi, ReduceOp, State, ThreadLevel};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let level = match std::env::args().nth(1).as_deref() {
        Some("single") => ThreadLevel::Single,
        Some("funneled") => ThreadLevel::Funneled,
        Some("multiple") => ThreadLevel::Multiple,
        _ => ThreadLevel::Serialized,
    };
    let mpi = Mpi::load(None)?;
    assert_eq!(mpi.state(), State::Before);
    let early = mpi.world().unwrap_err();
    assert!(matches!(early, Error::NotInitialised { .. }), "{early}");
    let level = mpi.init(level)?;
    assert_eq!(mpi.thread_level()?, level);
    assert!(mpi.is_main_thread());
    assert_eq!(mpi.init(level).unwrap_err(), Error::InitialisedBefore);

    let world = mpi.world()?;
    let (me, n) = (world.rank(), world.size());
    let started = mpi.wtime()?;
    collectives(&world)?;
    started_operations(&world)?;
    messages(&world)?;
    mistakes(&world);
    threads(mpi, level);
    assert!(mpi.wtime()? >= started);
    world.barrier()?;
    if std::env::args().nth(1).as_deref() == Some("abort") && me == n - 1 {
        return Err(mpi.abort(7).into());
    }
    let version = mpi.library_version().lines().next().unwrap_or_default();
    println!(
        "rank {me} of {n} right: {} at {level}, {version}",
        mpi.interface()
    );
    mpi.finalize()?;
    assert_eq!(mpi.state(), State::Finalized);
    let late = world.barrier().unwrap_err();
    assert!(matches!(late, Error::Finalized { .. }), "{late}");
    Ok(())
}

fn collectives(world: &Comm) -> Result<(), Error> {
    let (me, n) = (world.rank(), world.size());
    let sum = n * (n - 1) / 2;
    let mut got = [0u32; 2];
    world.allreduce(&[me, 1], &mut got, ReduceOp::Sum)?;
    assert_eq!(got, [sum, n]);
    let mut extremes = [f64::from(me), -f64::from(me)];
    world.allreduce_in_place(&mut extremes, ReduceOp::Max)?;
    assert_eq!(extremes, [f64::from(n - 1), 0.0]);
    let mut least = [i64::from(me) - 5];
    world.allreduce_in_place(&mut least, ReduceOp::Min)?;
    assert_eq!(least, [-5]);
    let mut small = [me as i8 % 8, 1];
    world.allreduce_in_place(&mut small, ReduceOp::Max)?;
    assert_eq!(small, [(n - 1).min(7) as i8, 1]);

    let mut all = vec![0u16; 2 * n as usize];
    world.allgather(&[me as u16, 9], &mut all)?;
    let expected: Vec<u16> = (0..n as u16).flat_map(|rank| [rank, 9]).collect();
    assert_eq!(all, expected);

    let to_all: Vec<u64> = (0..u64::from(n))
        .map(|to| u64::from(me) * 100 + to)
        .collect();
    let mut from_all = vec![0u64; n as usize];
    world.alltoall(&to_all, &mut from_all)?;
    let expected: Vec<u64> = (0..u64::from(n))
        .map(|from| from * 100 + u64::from(me))
        .collect();
    assert_eq!(from_all, expected);

    // To each as many numbers as its rank.
    let sent: Vec<usize> = (0..n as usize).collect();
    let numbers = vec![me as f32; sent.iter().sum()];
    let received = vec![me as usize; n as usize];
    let mut got = vec![-1f32; received.iter().sum()];
    world.alltoallv((&numbers, &sent), (&mut got, &received))?;
    let expected: Vec<f32> = (0..n)
        .flat_map(|from| vec![from as f32; me as usize])
        .collect();
    assert_eq!(got, expected);

    let mut word = match me {
        0 => *b"from the first",
        _ => [0; 14],
    };
    world.broadcast(&mut word, 0)?;
    assert_eq!(&word, b"from the first");

    let node = world.split_shared()?;
    let mut together = [node.rank()];
    node.allreduce_in_place(&mut together, ReduceOp::Sum)?;
    assert_eq!(together, [node.size() * (node.size() - 1) / 2]);
    node.free()
}

fn started_operations(world: &Comm) -> Result<(), Error> {
    let n = u64::from(world.size());
    let mut barrier = world.ibarrier()?;
    let reduction = world.iallreduce(vec![1u64, u64::from(world.rank())], ReduceOp::Sum)?;
    while !barrier.test()? {
        std::thread::yield_now();
    }
    assert!(barrier.test()?);
    barrier.wait()?;
    assert_eq!(reduction.wait()?, [n, n * (n - 1) / 2]);
    // A request may have moved meanwhile, and be waited for late.
    let late = vec![world.ibarrier()?];
    world.barrier()?;
    late.into_iter().try_for_each(|request| request.wait())
}

fn messages(world: &Comm) -> Result<(), Error> {
    let (me, n) = (world.rank(), world.size());
    let world = world.duplicate()?;
    if n > 1 {
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        world.send(&[me as i32, 4711], right, 3)?;
        let mut got = [0i32; 5];
        let received = world.receive(&mut got, Some(left), None)?;
        assert_eq!(
            (received.source, received.tag, received.count),
            (left, 3, 2)
        );
        assert_eq!(got, [left as i32, 4711, 0, 0, 0]);
        world.send::<u8>(&[], right, 5)?;
        let received = world.receive::<u8>(&mut [], None, Some(5))?;
        assert_eq!(
            (received.source, received.tag, received.count),
            (left, 5, 0)
        );
    }
    world.barrier()?;
    world.free()
}

/// What is wrong is an error, and ends nothing.
fn mistakes(world: &Comm) {
    let n = world.size();
    let text = world.send(&[1u8], n, 0).unwrap_err().to_string();
    assert!(text.contains(&format!("no rank {n}")), "{text}");
    let text = world.allgather(&[1u8], &mut []).unwrap_err().to_string();
    assert!(text.contains("do not fit"), "{text}");
    let text = world.alltoallv((&[1u8], &[]), (&mut [], &[])).unwrap_err();
    assert!(text.to_string().contains("0 counts"), "{text}");
    // MPI says what it thinks of this tag.
    let text = world.send(&[1u8], 0, -77).unwrap_err().to_string();
    assert!(
        text.starts_with("MPI_Send failed: ") && text.contains("ag"),
        "{text}"
    );
}

/// Another thread may call, or is told why not.
fn threads(mpi: &'static Mpi, level: ThreadLevel) {
    let called = std::thread::spawn(move || mpi.world().map(|world| world.rank()));
    let called = called.join().expect("the thread does not panic");
    match level >= ThreadLevel::Serialized {
        true => assert!(called.is_ok()),
        false => {
            let text = called.unwrap_err().to_string();
            assert!(text.contains("ThreadLevel::Serialized"), "{text}");
        }
    }
}
