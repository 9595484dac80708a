//! A process of a job without a launcher, in whatever way its first argument says.

use std::io::{BufRead, Write};
use std::time::Duration;

use shmem::{UniqueId, World};

/// Reads a line of standard input.
fn line() -> String {
    let mut line = String::new();
    std::io::stdin()
        .lock()
        .read_line(&mut line)
        .expect("standard input");
    line.trim().to_owned()
}

/// Every PE gets a number of its right neighbour, several times.
fn rounds(world: &World, rounds: u64) {
    let inbox = shmem::alloc::<u64>(1).expect("room for a number");
    let (me, n) = (world.my_pe(), world.n_pes());
    for round in 0..rounds {
        shmem::p(inbox, round * 1000 + me as u64, (me + 1) % n);
        world.barrier();
        let mut got = [0];
        shmem::get(&mut got, inbox, me);
        assert_eq!(got[0], round * 1000 + ((me + n - 1) % n) as u64);
        world.barrier();
    }
    shmem::free(inbox).expect("it was allocated");
}

fn say(text: &str) {
    println!("{text}");
    std::io::stdout().flush().expect("standard output");
}

fn main() -> Result<(), shmem::Error> {
    let args: Vec<String> = std::env::args().collect();
    let number = |at: usize| args[at].parse::<usize>().expect("a number");
    match args[1].as_str() {
        // Makes an id, says it, and ends when its input does.
        "maker" => {
            let id = UniqueId::on([127, 0, 0, 1].into())?;
            say(&id.to_text());
            line();
            return Ok(());
        }
        // PE 0 of N; makes the id, says it, and goes on as the others do.
        "first" => {
            let id = UniqueId::new()?;
            say(&id.to_text());
            let world = shmem::init_from(&id, 0, number(2))?;
            rounds(&world, 20);
            let n = world.n_pes();
            let nodes = shmem::node_of(n - 1) + 1;
            world.finalize();
            say(&format!("PE 0 of {n} on {nodes} nodes: ok"));
            return Ok(());
        }
        _ => {}
    }
    // The others, and PE 0 where the id says that it listens, read the id; their place stands in the arguments.
    let (rank, n) = (number(2), number(3));
    let id: UniqueId = line().parse()?;
    let world = shmem::init_from(&id, rank, n)?;
    match args[1].as_str() {
        "rounds" => rounds(&world, 20),
        // Twice a PE of the same job, and once inside.
        "again" => {
            rounds(&world, 3);
            world.finalize();
            let world = shmem::init_from(&id, rank, n)?;
            let inner = shmem::init()?;
            rounds(&world, 3);
            inner.finalize();
            world.finalize();
            let other = UniqueId::at("127.0.0.1", 1)?;
            let error = shmem::init_from(&other, rank, n).expect_err("another job");
            say(&format!("PE {rank}: {error}"));
            return Ok(());
        }
        // PE 1 leaves after one life, the others want two.
        "unequal" => {
            world.finalize();
            if rank != 1 {
                shmem::init_from(&id, rank, n)?.finalize();
            }
            return Ok(());
        }
        // PE 0 leaves and exits first, while the others take their time.
        "late" => {
            world.barrier();
            world.finalize();
            if rank != 0 {
                std::thread::sleep(Duration::from_millis(200 * rank as u64));
            }
            say(&format!("PE {rank}: ok"));
            return Ok(());
        }
        // Waits for what never comes, after it has said its process.
        "hang" => {
            rounds(&world, 1);
            say(&format!("ready {}", std::process::id()));
            let flag = shmem::alloc::<u64>(1)?;
            shmem::wait_until(flag, shmem::Cmp::Eq, 1);
        }
        "panic" => {
            rounds(&world, 1);
            if rank + 1 == n {
                panic!("on purpose");
            }
            world.barrier();
        }
        "exit" => {
            rounds(&world, 1);
            if rank + 1 == n {
                shmem::global_exit(7);
            }
            world.barrier();
        }
        // Fails alone, before the others have anything to wait for.
        other => panic!("no such thing as {other}"),
    }
    let nodes = (0..n).map(shmem::node_of).max().unwrap_or(0) + 1;
    world.finalize();
    say(&format!("PE {rank} of {n} on {nodes} nodes: ok"));
    Ok(())
}
