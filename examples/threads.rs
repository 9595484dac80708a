//! Threads and contexts: each thread of a PE has a context of its own, so that its quiet waits for its own
//! operations. One of them sends parcels, the other one asks for what it needs next while it works with what has
//! come.

use shmem::{Cmp, SignalOp};

const PARCELS: u64 = 50;
const LEN: usize = 200;

fn parcel(from: usize, number: u64) -> [u64; LEN] {
    [from as u64 * 1000 + number; LEN]
}

fn main() {
    shmem::run(|world| {
        let (me, n) = (world.my_pe(), world.n_pes());
        let (left, right) = ((me + n - 1) % n, (me + 1) % n);
        // What is sent here, in two places that are used in turn; how many have come, and how many were looked at.
        let inbox = shmem::alloc::<u64>(2 * LEN)?.grid(2, LEN);
        let come = shmem::alloc_value(0u64)?;
        let seen = shmem::alloc_value(0u64)?;
        // What others ask for.
        let table = shmem::alloc_from(&[me as u64; 1000])?;
        world.barrier();

        std::thread::scope(|scope| {
            let parcels = scope.spawn(|| {
                let mine = shmem::context().private().create()?;
                for number in 1..=PARCELS {
                    // The neighbour has looked at the one that lay there.
                    seen.wait_until(Cmp::Ge, number.saturating_sub(2));
                    let place = inbox.row(number as usize % 2);
                    mine.put_signal(
                        place,
                        &parcel(me, number),
                        come,
                        number,
                        SignalOp::Set,
                        right,
                    );
                    come.wait_until(Cmp::Ge, number);
                    assert_eq!(inbox.row(number as usize % 2), parcel(left, number));
                    mine.atomic_set(seen, number, left);
                }
                mine.quiet();
                Ok::<_, shmem::Error>(())
            });
            let questions = scope.spawn(|| {
                let mine = shmem::context().private().create()?;
                let mut sum = 0;
                let mut coming = mine.start().get(table.at(..100), right);
                for chunk in table.chunks(100).skip(1) {
                    let next = mine.start().get(chunk, right);
                    sum += std::mem::replace(&mut coming, next)
                        .wait()
                        .iter()
                        .sum::<u64>();
                }
                sum += coming.wait().iter().sum::<u64>();
                assert_eq!(sum, 1000 * right as u64);
                Ok::<_, shmem::Error>(())
            });
            parcels.join().expect("no panic")?;
            questions.join().expect("no panic")
        })?;
        if me == 0 {
            println!("{PARCELS} parcels went round beside 10 questions of each PE");
        }
        Ok(())
    });
}
