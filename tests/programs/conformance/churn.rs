//! Long sequences of collectives without anything in between: whoever is quick enters the next ones
//! while others are still in those before.

use shmem::{
    Lock, Sum, SymSlice, Team, alloc, atomic_fetch_add, barrier_all, context, free, g, my_pe,
    n_pes, p,
};

use crate::check::{Check, noise, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("collectives_without_pause", collectives_without_pause),
    ("threads_in_collectives", threads_in_collectives),
    ("atomics_in_order", atomics_in_order),
    ("lock_storm", lock_storm),
    ("threads_share_the_last_slots", threads_share_the_last_slots),
];

/// Elements of a member's contribution: empty, one, the limits between algorithms and around them.
const LENS: [usize; 10] = [0, 1, 7, 8, 60, 129, 700, 2305, 4200, 9000];
const LONGEST: usize = 9000;

const ROUNDS: usize = 20;

#[derive(Clone, Copy, Debug)]
struct Step {
    team: usize,
    kind: u64,
    len: usize,
    extra: u64,
}

/// The value of element `i` that a PE contributes in a round.
fn value(pe: usize, round: usize, i: usize) -> u64 {
    (pe as u64 + 1) * 1_000_003 + round as u64 * 7919 + i as u64
}

fn fill(array: SymSlice<u64>, pe: usize, round: usize) {
    let values: Vec<u64> = (0..array.len()).map(|i| value(pe, round, i)).collect();
    array.write_from(&values);
}

/// How many elements a member gives in a collect.
fn given(pe: usize, step: Step) -> usize {
    (pe as u64 * 31 + step.extra) as usize % (step.len + 1)
}

/// Elements of the destination of a step.
fn room(step: Step, n: usize) -> usize {
    match step.kind {
        3..=6 => step.len * n,
        _ => step.len,
    }
}

/// What this PE is to find in the destination.
fn wanted(team: &Team, step: Step, round: usize) -> Vec<u64> {
    let pes: Vec<usize> = team.members().iter().collect();
    let (me, len) = (team.my_pe(), step.len);
    let sum = |pes: &[usize]| -> Vec<u64> {
        let of = |i| {
            pes.iter()
                .fold(0u64, |s, &pe| s.wrapping_add(value(pe, round, i)))
        };
        (0..len).map(of).collect()
    };
    let from = |pe: usize, n: usize| (0..n).map(move |i| value(pe, round, i));
    match step.kind {
        0 | 1 => sum(&pes),
        2 => from(pes[step.extra as usize % pes.len()], len).collect(),
        3 | 4 => pes.iter().flat_map(|&pe| from(pe, len)).collect(),
        5 => pes
            .iter()
            .flat_map(|&pe| from(pe, given(pe, step)))
            .collect(),
        6 => {
            let block = |pe: usize| (me * len..(me + 1) * len).map(move |i| value(pe, round, i));
            pes.iter().flat_map(|&pe| block(pe)).collect()
        }
        7 => sum(&pes[..=me]),
        8 => sum(&pes[..me]),
        _ => Vec::new(),
    }
}

/// Runs through a random sequence of collectives on parts of `world`, which is all PEs.
fn run(world: &Team, seed: u64, rounds: usize, longest: usize, arena: SymSlice<u64>) {
    let n = world.n_pes();
    let (row, column) = world.split_2d(2).unwrap();
    let back = world.split_strided(n as isize - 1, -1, n as isize);
    let evens = world.split_strided(0, 2, (n as isize + 1) / 2).unwrap();
    let back = back.unwrap().unwrap();
    let mut teams = vec![world, &row, &column, &back, world];
    teams.extend(&evens);
    let mut next = noise(seed);
    let plan: Vec<Step> = (0..rounds)
        .map(|_| Step {
            team: next() as usize % 6,
            kind: next() % 11,
            len: LENS[next() as usize % LENS.len()].min(longest),
            extra: next() >> 8,
        })
        .collect();
    let source = arena.at(..n * longest);
    let mut at = n * longest;
    let mut results = Vec::new();
    let mut idle = noise(seed + my_pe() as u64 * 977);
    for (round, &step) in plan.iter().enumerate() {
        let dest = arena.at(at..at + room(step, n));
        at += room(step, n);
        let Some(team) = teams.get(step.team) else {
            continue;
        };
        for _ in 0..idle() % 3 * (idle() % 2000) {
            std::hint::spin_loop();
        }
        let (me, len) = (my_pe(), step.len);
        let mine = source.at(..match step.kind {
            5 => given(me, step),
            6 => len * team.n_pes(),
            _ => len,
        });
        fill(mine, me, round);
        match step.kind {
            0 => team.reduce(dest, mine, Sum),
            1 => {
                fill(dest, me, round);
                team.reduce(dest, dest, Sum);
            }
            2 => team.broadcast(dest, mine, step.extra as usize % team.n_pes()),
            3 | 4 => team.fcollect(dest, mine),
            5 => {
                team.collect(dest, mine);
            }
            6 => team.alltoall(dest.at(..len * team.n_pes()), mine, len),
            7 => team.sum_inscan(dest, mine),
            8 => team.sum_exscan(dest, mine),
            9 => team.sync(),
            _ => {
                let part = team.split_strided(0, 1, team.n_pes() as isize);
                part.unwrap().unwrap().destroy();
            }
        }
        // The source may be changed on return.
        mine.fill(!0);
        let want = wanted(team, step, round);
        let got = dest.at(..want.len()).to_vec();
        assert!(got == want, "seed {seed}, round {round}: {step:?} at once");
        results.push((round, step, dest));
    }
    for (round, step, dest) in results {
        let want = wanted(teams[step.team], step, round);
        let got = dest.at(..want.len()).to_vec();
        assert!(got == want, "seed {seed}, round {round}: {step:?} later");
    }
    world.sync();
    drop(teams);
    for team in [row, column, back].into_iter().chain(evens) {
        team.destroy();
    }
}

fn arena(n: usize, rounds: usize, longest: usize) -> usize {
    n * longest * (rounds + 1)
}

fn collectives_without_pause() {
    let (n, rounds) = (n_pes(), ROUNDS);
    for (seed, longest) in [(1, LONGEST), (2, 700), (3, 8), (4, 60)] {
        let arena = alloc::<u64>(arena(n, rounds, longest)).unwrap();
        barrier_all();
        run(Team::world(), seed, rounds, longest, arena);
        free(arena).unwrap();
    }
}

fn threads_in_collectives() {
    const THREADS: usize = 3;
    let (n, rounds, longest) = (n_pes(), ROUNDS, 700);
    let size = arena(n, rounds, longest);
    let arenas = alloc::<u64>(THREADS * size).unwrap();
    let world = Team::world();
    let teams: [Team; THREADS] =
        std::array::from_fn(|_| world.split_strided(0, 1, n as isize).unwrap().unwrap());
    std::thread::scope(|s| {
        for (t, team) in teams.iter().enumerate() {
            let arena = arenas.at(t * size..(t + 1) * size);
            s.spawn(move || run(team, 100 + t as u64, rounds, longest, arena));
        }
    });
    barrier_all();
    teams.into_iter().for_each(Team::destroy);
    free(arenas).unwrap();
}

/// Threads of all PEs change words of their own, half a word of 8 bytes each, by random atomics on
/// random contexts: they take effect in the order in which they were started, whatever happens to the
/// other half.
fn atomics_in_order() {
    const THREADS: usize = 3;
    let (me, n) = (my_pe(), n_pes());
    let narrow = alloc::<u32>(n * THREADS).unwrap();
    let wide = alloc::<u64>(n * THREADS).unwrap();
    let shared = alloc::<u64>(1).unwrap();
    std::thread::scope(|s| {
        for t in 0..THREADS {
            s.spawn(move || {
                let ctx = context().create().unwrap();
                let own = me * THREADS + t;
                let (narrow, wide) = (narrow.elem(own), wide.elem(own));
                let mut next = noise((own + 1) as u64);
                let pes = [next() as usize % n, next() as usize % n];
                let (mut small, mut large) = ([0u32; 2], [0u64; 2]);
                for pe in pes {
                    ctx.atomic_set(narrow, 0, pe);
                    ctx.atomic_set(wide, 0, pe);
                }
                for round in 0..usual_or(1, 3) * ROUNDS {
                    let mut got = [(0u32, 0u64); 12];
                    let mut want = got;
                    ctx.nbi(|ops| {
                        for (got, want) in got.iter_mut().zip(&mut want) {
                            let i = if pes[0] == pes[1] {
                                0
                            } else {
                                next() as usize % 2
                            };
                            let (pe, v) = (pes[i], next());
                            *want = (small[i], large[i]);
                            match next() % 9 {
                                0 => {
                                    ctx.atomic_set(narrow, v as u32, pe);
                                    ctx.atomic_set(wide, v, pe);
                                    (small[i], large[i]) = (v as u32, v);
                                    *want = (0, 0);
                                }
                                1 => {
                                    ctx.atomic_add(narrow, v as u32, pe);
                                    ctx.atomic_add(wide, v, pe);
                                    small[i] = small[i].wrapping_add(v as u32);
                                    large[i] = large[i].wrapping_add(v);
                                    *want = (0, 0);
                                }
                                2 => {
                                    ctx.atomic_xor(narrow, v as u32, pe);
                                    ctx.atomic_xor(wide, v, pe);
                                    small[i] ^= v as u32;
                                    large[i] ^= v;
                                    *want = (0, 0);
                                }
                                3 => {
                                    ops.atomic_fetch_add(&mut got.0, narrow, v as u32, pe);
                                    ops.atomic_fetch_add(&mut got.1, wide, v, pe);
                                    small[i] = small[i].wrapping_add(v as u32);
                                    large[i] = large[i].wrapping_add(v);
                                }
                                4 => {
                                    ops.atomic_swap(&mut got.0, narrow, v as u32, pe);
                                    ops.atomic_swap(&mut got.1, wide, v, pe);
                                    (small[i], large[i]) = (v as u32, v);
                                }
                                5 => {
                                    ops.atomic_fetch_or(&mut got.0, narrow, v as u32, pe);
                                    ops.atomic_fetch_and(&mut got.1, wide, v, pe);
                                    small[i] |= v as u32;
                                    large[i] &= v;
                                }
                                6 => {
                                    let (a, b) = (small[i] ^ (v as u32 & 1), large[i] ^ (v & 1));
                                    ops.atomic_compare_swap(&mut got.0, narrow, a, 7, pe);
                                    ops.atomic_compare_swap(&mut got.1, wide, b, 7, pe);
                                    if v & 1 == 0 {
                                        (small[i], large[i]) = (7, 7);
                                    }
                                }
                                7 => {
                                    ops.atomic_fetch(&mut got.0, narrow, pe);
                                    ops.atomic_fetch(&mut got.1, wide, pe);
                                }
                                _ => {
                                    *got =
                                        (ctx.atomic_fetch(narrow, pe), ctx.atomic_fetch(wide, pe));
                                    atomic_fetch_add(shared, 1, pe);
                                    if v.is_multiple_of(5) {
                                        ctx.fence();
                                    }
                                }
                            }
                        }
                    });
                    assert_eq!(got, want, "PE {me}, thread {t}, round {round}");
                }
                for i in 0..if pes[0] == pes[1] { 1 } else { 2 } {
                    assert_eq!((g(narrow, pes[i]), g(wide, pes[i])), (small[i], large[i]));
                }
            });
        }
    });
    barrier_all();
    free(shared).unwrap();
    free(wide).unwrap();
    free(narrow).unwrap();
}

/// Threads of all PEs take two locks that lie side by side, some by trying, and some ask only.
fn lock_storm() {
    const THREADS: usize = 3;
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u64>(2).unwrap();
    let counts = alloc::<u64>(2).unwrap();
    let taken: u64 = std::thread::scope(|s| {
        let threads: Vec<_> = (0..THREADS)
            .map(|t| {
                s.spawn(move || {
                    let mut next = noise((me * THREADS + t) as u64);
                    let mut taken = 0;
                    for _ in 0..ROUNDS {
                        let i = next() as usize % 2;
                        let lock = Lock::at(words.elem(i));
                        let held = match next() % 3 {
                            0 => lock.try_lock(),
                            1 => (0..50).find_map(|_| lock.try_lock()),
                            _ => Some(lock.lock()),
                        };
                        if let Some(held) = held {
                            let old = g(counts.elem(i), (i + 1) % n);
                            if next().is_multiple_of(4) {
                                std::thread::yield_now();
                            }
                            p(counts.elem(i), old + 1, (i + 1) % n);
                            taken += 1;
                            drop(held);
                        }
                    }
                    taken
                })
            })
            .collect();
        threads.into_iter().map(|t| t.join().unwrap()).sum()
    });
    let sum = alloc::<u64>(1).unwrap();
    sum.write(0, taken);
    shmem::reduce(sum, sum, Sum);
    let counted: u64 = (0..2).map(|i| g(counts.elem(i), (i + 1) % n)).sum();
    assert_eq!(counted, sum.read(0));
    barrier_all();
    assert_eq!(words.to_vec(), [0, 0]);
    free(sum).unwrap();
    free(counts).unwrap();
    free(words).unwrap();
}

/// Threads split at the same time where there is just room for all of them.
fn threads_share_the_last_slots() {
    const THREADS: usize = 2;
    let n = n_pes() as isize;
    let copy = || Team::world().split_strided(0, 1, n).map(Option::unwrap);
    let parents: [Team; THREADS] = std::array::from_fn(|_| copy().unwrap());
    let mut others: Vec<Team> = std::iter::from_fn(|| copy().ok()).collect();
    for _ in 0..2 * THREADS {
        others.pop().unwrap().destroy();
    }
    std::thread::scope(|s| {
        for team in &parents {
            s.spawn(move || {
                for round in 0..usual_or(2, 4) * ROUNDS {
                    let (row, column) = team
                        .split_2d(2)
                        .unwrap_or_else(|e| panic!("round {round}: {e}"));
                    row.destroy();
                    column.destroy();
                }
            });
        }
    });
    barrier_all();
    others.into_iter().chain(parents).for_each(Team::destroy);
}
