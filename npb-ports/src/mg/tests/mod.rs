//! Whole runs in one process: PEs are threads, or take turns as a simulation says.

mod operators;

use super::charges::Extremes;
use super::decomposition::Decomposition;
use super::halo::Slots;
use super::memory_per_pe;
use super::params::Params;
use super::vcycle::Multigrid;
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::Partners;
use crate::random::Lcg;
use crate::verify::Check;
use std::sync::{Condvar, Mutex};
use std::thread;

/// The landing slots of one PE, for threads. A message that is overwritten is a panic.
struct Mailbox {
    slots: Mutex<Vec<Option<Vec<f64>>>>,
    landed: Condvar,
}

impl Mailbox {
    fn new(slots: &Slots) -> Self {
        Self {
            slots: Mutex::new(vec![None; slots.words().len()]),
            landed: Condvar::new(),
        }
    }
}

struct Mail<'a> {
    pe: usize,
    room: &'a [usize],
    all: &'a [Mailbox],
}

impl Partners for Mail<'_> {
    fn send(&mut self, pe: usize, slot: usize, message: &[f64]) {
        assert!(message.len() <= self.room[slot], "slot {slot} is too small");
        let old = self.all[pe].slots.lock().unwrap()[slot].replace(message.to_vec());
        assert!(old.is_none(), "slot {slot} of PE {pe} was still full");
        self.all[pe].landed.notify_one();
    }

    fn receive(&mut self, slot: usize, message: &mut [f64]) {
        let Mailbox { slots, landed } = &self.all[self.pe];
        let mut slots = slots.lock().unwrap();
        let letter = loop {
            match slots[slot].take() {
                Some(letter) => break letter,
                None => slots = landed.wait(slots).unwrap(),
            }
        };
        message.copy_from_slice(&letter);
    }
}

/// The square sums of the first and the last residual of class S, over all of `n_pes` threads.
fn solve(n_pes: usize, simd: Level) -> [f64; 2] {
    let params = Params::of(Class::S);
    let whole = [params.cells(); 3];
    let charges = Extremes::of_block(&params, [0; 3], whole);
    let slots = Slots::new(&Decomposition::new(params.levels, 0, n_pes));
    let all: Vec<_> = (0..n_pes).map(|_| Mailbox::new(&slots)).collect();
    let run = |pe| {
        let place = Decomposition::new(params.levels, pe, n_pes);
        let first = place.first_cell();
        let mail = Mail {
            pe,
            room: slots.words(),
            all: &all,
        };
        let mut grids = Multigrid::new(place, simd, params.smoother, mail).unwrap();
        charges.place(&params, first, grids.rhs());
        grids.start();
        grids.cycle(true);
        grids.reset();
        let before = grids.start();
        let cycles = 1..=params.iterations;
        [
            before,
            cycles.map(|i| grids.cycle(i == params.iterations)).sum(),
        ]
    };
    let sums: Vec<[f64; 2]> = thread::scope(|scope| {
        let threads: Vec<_> = (0..n_pes)
            .map(|pe| {
                let run = &run;
                scope.spawn(move || run(pe))
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).collect()
    });
    for mailbox in &all {
        assert!(mailbox.slots.lock().unwrap().iter().all(Option::is_none));
    }
    [0, 1].map(|which| sums.iter().map(|sum| sum[which]).sum())
}

#[test]
fn class_s_verifies_at_every_number_of_pes_and_level() {
    let params = Params::of(Class::S);
    let most = Level::supported();
    for (n_pes, levels) in [1, 2, 4, 8, 16, 32, 64, 512]
        .into_iter()
        .zip(std::iter::once(&most[..]).chain(std::iter::repeat(&most[most.len() - 1..])))
    {
        for &simd in levels {
            let [first, last] = solve(n_pes, simd);
            // The first residual is the right-hand side, 20 charges of 1.
            assert_eq!(first, 20.0);
            let check = Check {
                name: "norm",
                value: (last / params.points()).sqrt(),
                reference: params.norm,
                tolerance: 1e-8,
            };
            let error = check.relative_error();
            assert!(check.passes(), "{n_pes} PEs, {simd}: error {error:e}");
        }
    }
}

/// What one PE does with slots, in its program order.
#[derive(Clone, Copy)]
enum Event {
    Send { pe: usize, slot: usize },
    Receive { slot: usize },
}

#[derive(Default)]
struct Recorder(Vec<Event>);

impl Partners for Recorder {
    fn send(&mut self, pe: usize, slot: usize, _: &[f64]) {
        self.0.push(Event::Send { pe, slot });
    }

    fn receive(&mut self, slot: usize, _: &mut [f64]) {
        self.0.push(Event::Receive { slot });
    }
}

/// What a PE does in two runs of three cycles each.
fn events(levels: usize, pe: usize, n_pes: usize) -> Vec<Event> {
    let place = Decomposition::new(levels, pe, n_pes);
    let smoother = Params::of(Class::S).smoother;
    let recorder = Recorder::default();
    let mut grids = Multigrid::new(place, Level::best(), smoother, recorder).unwrap();
    for _ in 0..2 {
        grids.start();
        for last in [false, false, true] {
            grids.cycle(last);
        }
    }
    grids.into_partners().0
}

/// Runs all PEs in an order that `seed` chooses: now a few steps each, now one as far as it gets.
fn replay(programs: &[Vec<Event>], slots: usize, seed: u64) {
    let mut random = Lcg::new(2 * seed + 1);
    let mut below = |n: usize| (random.next_f64() * n as f64) as usize;
    let patience = [1, 10, usize::MAX][below(3)];
    let mut full = vec![vec![false; slots]; programs.len()];
    let mut next = vec![0; programs.len()];
    let mut running: Vec<_> = (0..programs.len()).collect();
    let mut fruitless = 0;
    while !running.is_empty() {
        let which = below(running.len());
        let pe = running[which];
        let before = next[pe];
        while let Some(&event) = programs[pe].get(next[pe])
            && next[pe] - before < patience
        {
            match event {
                Event::Send { pe: to, slot } => {
                    let overwritten = std::mem::replace(&mut full[to][slot], true);
                    assert!(
                        !overwritten,
                        "slot {slot} of PE {to}, from {pe}, seed {seed}"
                    );
                }
                Event::Receive { slot } if full[pe][slot] => full[pe][slot] = false,
                Event::Receive { .. } => break,
            }
            next[pe] += 1;
        }
        fruitless = if next[pe] > before { 0 } else { fruitless + 1 };
        assert!(fruitless < 1000 * programs.len(), "deadlock, seed {seed}");
        if next[pe] == programs[pe].len() {
            running.swap_remove(which);
        }
    }
    assert!(full.iter().flatten().all(|full| !full), "a message is left");
}

#[test]
fn no_slot_is_overwritten_before_it_is_taken() {
    for (levels, n_pes, orders) in [
        (5, 2, 1000),
        (5, 4, 1000),
        (3, 8, 500),
        (4, 16, 500),
        (4, 32, 200),
        (3, 64, 200),
        (5, 64, 200),
        (4, 256, 20),
    ] {
        let slots = Slots::new(&Decomposition::new(levels, 0, n_pes))
            .words()
            .len();
        let programs: Vec<_> = (0..n_pes).map(|pe| events(levels, pe, n_pes)).collect();
        for seed in 0..orders {
            replay(&programs, slots, seed);
        }
    }
}

/// The replay finds what it looks for: without the messages that go up, a PE runs ahead.
#[test]
#[should_panic(expected = "slot 0 of PE 1")]
fn a_sender_that_hears_nothing_overwrites() {
    let ahead = vec![Event::Send { pe: 1, slot: 0 }; 2];
    let behind = vec![Event::Receive { slot: 0 }; 2];
    for seed in 0..100 {
        replay(&[ahead.clone(), behind.clone()], 1, seed);
    }
}

#[test]
fn memory_is_that_of_the_grids_and_a_little() {
    let bytes = |grids: f64, n: f64| grids * 8.0 * n.powi(3);
    for (class, n) in [(Class::A, 256.0), (Class::C, 512.0), (Class::D, 1024.0)] {
        for (n_pes, grids) in [(1, 2.0), (2, 2.0), (4, 2.0), (64, 3.0)] {
            let needed = memory_per_pe(class, n_pes) as f64 * n_pes as f64;
            let ratio = needed / bytes(grids, n);
            assert!((1.0..1.7).contains(&ratio), "{class}, {n_pes} PEs: {ratio}");
        }
    }
}
