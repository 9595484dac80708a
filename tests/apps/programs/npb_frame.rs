//! What the NAS benchmarks have in common, where it takes PEs to try it: messages of every length
//! through landing slots, a message that is sent too early, sums over all PEs, a PE that needs
//! more memory than there is, and one that can't begin. What arrives is checked number by number.

use npb_ports::class::Class;
use npb_ports::error::Error;
use npb_ports::exchange::{Partners, Slots};
use npb_ports::job::Reduction;
use npb_ports::memory;
use npb_ports::options::Options;
use npb_ports::report::Report;
use std::process::ExitCode;

/// Longest message: several packets of the network, and no multiple of a cache line.
const LONGEST: usize = 10_001;
const ROUNDS: usize = 200;

fn main() -> ExitCode {
    let mode = std::env::args().nth(1);
    if mode.as_deref() == Some("S") {
        return npb_ports::cli::main(
            "XX",
            "a benchmark that one PE can't begin",
            Class::F,
            std::env::args_os(),
            one_fails,
        );
    }
    match alone(mode.as_deref()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

/// The last PE has no memory for its grid, which no other PE knows.
fn one_fails(_: &Options) -> Result<Report, Error> {
    if shmem::my_pe() == shmem::n_pes() - 1 {
        return Err(std::io::Error::from(std::io::ErrorKind::OutOfMemory).into());
    }
    shmem::barrier_all();
    unreachable!("the last PE does not come");
}

/// What needs no more of the frame than a job.
fn alone(mode: Option<&str>) -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    match mode {
        Some("early") => early(),
        Some("large") => large(),
        _ => {
            ring(number)?;
            ring(byte)?;
            figures()
        }
    }
}

/// What is in place `i` of message `round` of PE `pe`.
fn number(pe: usize, round: usize, i: usize) -> f64 {
    (pe * ROUNDS + round) as f64 + i as f64 / 16384.0
}

/// The same as a byte, which a mistake in the size of elements would tear.
fn byte(pe: usize, round: usize, i: usize) -> u8 {
    (pe * ROUNDS + 31 * round + 7 * i) as u8
}

/// Lengths from nothing to the longest.
fn len(round: usize) -> usize {
    (round * round * 7) % (LONGEST + 1)
}

/// Each PE sends to the next one and takes from the one before, one slot for each direction. With
/// two PEs both are the same one, with one it is the PE itself. A message of the other direction
/// tells that the last one was taken.
fn ring<T>(element: impl Fn(usize, usize, usize) -> T) -> Result<(), shmem::Error>
where
    T: shmem::Datum + PartialEq + std::fmt::Debug,
{
    let message = |pe, round, len| (0..len).map(|i| element(pe, round, i)).collect::<Vec<T>>();
    let (me, n) = (shmem::my_pe(), shmem::n_pes());
    let (next, previous) = ((me + 1) % n, (me + n - 1) % n);
    let mut slots = Slots::new(&[LONGEST, 3, LONGEST])?;
    for round in 0..ROUNDS {
        let len = len(round);
        slots.send(next, 0, &message(me, round, len));
        let mut whole = message(me, round, len);
        slots.receive(0, &mut whole);
        assert_eq!(whole, message(previous, round, len), "round {round} up");
        slots.send(previous, 2, &message(me, round, len));
        slots.take(2, len, |landed| {
            assert_eq!(landed, message(next, round, len), "round {round} down");
        });
    }
    slots.free()?;
    // What was freed is there again.
    Slots::<T>::new(&[LONGEST, 3, LONGEST])?.free()?;
    Slots::<T>::new(&[])?.free()
}

/// PE 0 sends twice without knowing that the first message was taken.
fn early() -> Result<(), shmem::Error> {
    let mut slots = Slots::new(&[1])?;
    if shmem::my_pe() == 0 {
        slots.send(1, 0, &[1.0]);
        slots.send(1, 0, &[2.0]);
    }
    shmem::barrier_all();
    if shmem::my_pe() == 1 {
        slots.receive(0, &mut [0.0]);
    }
    slots.free()
}

/// Sums and maxima are those of all PEs, to the last bit the same on all.
fn figures() -> Result<(), shmem::Error> {
    let (me, n) = (shmem::my_pe(), shmem::n_pes());
    let all = Reduction::new(128)?;
    for len in [0, 1, 5, 128] {
        let mut sums: Vec<f64> = (0..len).map(|i| (me * i) as f64).collect();
        all.sums(&mut sums);
        let expected: Vec<f64> = (0..len).map(|i| (n * (n - 1) / 2 * i) as f64).collect();
        assert_eq!(sums, expected);
    }
    // Terms that do not add up exactly: in another order the sum is another one.
    let sum = all.sum(0.1 * 1.7f64.powi(me as i32));
    assert_eq!((all.max(sum), -all.max(-sum)), (sum, sum));
    assert_eq!(all.max(me as f64), (n - 1) as f64);
    all.free()
}

/// The last PE needs what no machine has; the others, who need nothing, learn of it.
fn large() -> Result<(), shmem::Error> {
    let last = shmem::my_pe() == shmem::n_pes() - 1;
    match memory::check("XX", Class::F, if last { 1 << 55 } else { 0 }) {
        Err(error @ Error::Memory { .. }) => println!("{error}"),
        other => panic!("{other:?}"),
    }
    memory::check("XX", Class::S, 1 << 10).expect("a kilobyte");
    Ok(())
}
