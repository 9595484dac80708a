//! Teams of every shape, and every collective on each of them.

use std::fmt::Debug;

use shmem::{
    And, Arithmetic, Bits, Complex, Datum, Error, MAX_TEAMS, Max, Min, Or, Prod, ReduceOp, Sum,
    SymSlice, Team, Xor, alloc, barrier_all, free, my_pe, n_pes, node_of,
};

use crate::check::{Check, noise, thorough, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("teams_number_their_members", teams_number_their_members),
    ("rows_and_columns", rows_and_columns),
    ("nonsense_is_no_team", nonsense_is_no_team),
    ("teams_come_and_go", teams_come_and_go),
    ("collectives_on_teams", collectives_on_teams),
    ("long_collectives_on_teams", long_collectives_on_teams),
    ("types_on_teams", types_on_teams),
    ("exchange_on_teams", exchange_on_teams),
    ("teams_at_the_same_time", teams_at_the_same_time),
    ("teams_in_turn", teams_in_turn),
];

/// A team by reference or of one's own.
enum Subject {
    Given(&'static Team),
    Made(Team),
}

impl std::ops::Deref for Subject {
    type Target = Team;
    fn deref(&self) -> &Team {
        match self {
            Self::Given(team) => team,
            Self::Made(team) => team,
        }
    }
}

impl Subject {
    fn end(self) {
        if let Self::Made(team) = self {
            team.destroy();
        }
    }
}

/// Calls `f` with this PE's teams of many shapes, made and destroyed around it. All PEs run through
/// the same shapes; those who are not in a team wait for its members.
fn with_teams(f: impl Fn(&Team)) {
    let world = Team::world();
    let n = world.n_pes() as isize;
    let run = |subject: Option<Subject>| {
        if let Some(team) = subject {
            f(&team);
            team.end();
        }
        barrier_all();
    };
    let split = |of: &Team, start, stride, size| of.split_strided(start, stride, size).unwrap();
    run(Some(Subject::Given(world)));
    run(Some(Subject::Given(Team::shared())));
    run(split(world, n - 1, -1, n).map(Subject::Made));
    run(split(world, 0, 2, (n + 1) / 2).map(Subject::Made));
    run(split(world, n / 2, 0, 1).map(Subject::Made));
    if n > 2 {
        run(split(world, 1, 1, n - 1).map(Subject::Made));
        // Every second of those, backwards.
        let odd = split(world, 1, 2, n / 2);
        let part = odd.as_ref().and_then(|odd| {
            let size = odd.n_pes() as isize;
            split(odd, size - 1, -1, size.min(2))
        });
        run(part.map(Subject::Made));
        if let Some(odd) = odd {
            odd.destroy();
        }
    }
    let (row, column) = world.split_2d(3).unwrap();
    run(Some(Subject::Made(row)));
    run(Some(Subject::Made(column)));
    let shared = Team::shared();
    let size = shared.n_pes() as isize;
    run(split(shared, size - 1, -1, size).map(Subject::Made));
}

/// The world backwards, and the PEs of each node, if checks are not thorough: for what does not depend on how a team lies.
fn with_some_teams(f: impl Fn(&Team)) {
    if thorough() {
        return with_teams(f);
    }
    let n = n_pes() as isize;
    let backwards = Team::world().split_strided(n - 1, -1, n);
    let backwards = backwards.unwrap().unwrap();
    f(&backwards);
    backwards.destroy();
    f(Team::shared());
    barrier_all();
}

fn teams_number_their_members() {
    let world = Team::world();
    assert_eq!((world.my_pe(), world.n_pes()), (my_pe(), n_pes()));
    let shared = Team::shared();
    let here: Vec<usize> = (0..n_pes())
        .filter(|&pe| node_of(pe) == node_of(my_pe()))
        .collect();
    assert_eq!(shared.members().iter().collect::<Vec<_>>(), here);
    let cell = alloc::<u64>(1).unwrap();
    cell.write(0, my_pe() as u64);
    barrier_all();
    with_teams(|team| {
        assert_eq!(team.world_pe(team.my_pe()), my_pe());
        assert_eq!(team.members().len(), team.n_pes());
        for pe in 0..team.n_pes() {
            let in_world = team.translate(pe, world).unwrap();
            assert_eq!(in_world, team.world_pe(pe));
            assert_eq!(world.translate(in_world, team), Some(pe));
            let there = here.contains(&in_world);
            assert_eq!(
                team.translate(pe, shared).is_some(),
                there,
                "{pe} of {team}"
            );
        }
        assert_eq!(team.translate(team.n_pes(), world), None);
        for pe in 0..=team.n_pes() {
            let there = team.translate(pe, shared).is_some();
            let at = team.ptr(cell, pe);
            assert_eq!(at.is_some(), there, "{pe} of {team}");
            if let Some(at) = at {
                // SAFETY: nobody writes the words.
                assert_eq!(unsafe { at.read() }, team.world_pe(pe) as u64);
            }
        }
        let outside = (0..n_pes()).filter(|&pe| world.translate(pe, team).is_none());
        assert_eq!(outside.count(), n_pes() - team.n_pes());
    });
    free(cell).unwrap();
}

fn rows_and_columns() {
    let world = Team::world();
    let n = n_pes();
    for xrange in [1, 2, 3, n, n + 5, usize::MAX] {
        let (row, column) = world.split_2d(xrange).unwrap();
        let width = xrange.min(n);
        let (x, y) = (my_pe() % width, my_pe() / width);
        assert_eq!((row.my_pe(), column.my_pe()), (x, y));
        let pes = |team: &Team| team.members().iter().collect::<Vec<_>>();
        assert_eq!(
            pes(&row),
            (y * width..n.min((y + 1) * width)).collect::<Vec<_>>()
        );
        assert_eq!(pes(&column), (x..n).step_by(width).collect::<Vec<_>>());
        row.sync();
        column.sync();
        row.destroy();
        column.destroy();
    }
}

/// Errors are the same on all PEs, and everything goes on after them.
fn nonsense_is_no_team() {
    let world = Team::world();
    let n = n_pes() as isize;
    for (start, stride, size) in [
        (0, 1, 0),
        (0, 1, -3),
        (-1, 1, 1),
        (n, 1, 1),
        (0, 1, n + 1),
        (0, 0, 2),
        (n - 1, 1, 2),
        (0, -1, 2),
        (0, isize::MAX, 2),
    ] {
        let made = world.split_strided(start, stride, size);
        assert!(
            matches!(made, Err(Error::NoSuchTeam { .. })),
            "{start} {stride} {size}: {made:?}"
        );
    }
    assert!(matches!(world.split_2d(0), Err(Error::NoSuchTeam { .. })));
    world.sync();
}

/// Slots come back, and run out for all PEs alike.
fn teams_come_and_go() {
    let world = Team::world();
    let all = |of: &Team| of.split_strided(0, 1, of.n_pes() as isize);
    for _ in 0..usual_or(MAX_TEAMS + 5, 2 * MAX_TEAMS) {
        all(world).unwrap().unwrap().destroy();
    }
    let mut teams = Vec::new();
    let error = loop {
        match all(teams.last().unwrap_or(world)) {
            Ok(team) => teams.push(team.unwrap()),
            Err(error) => break error,
        }
    };
    assert!(matches!(error, Error::TooManyTeams { .. }), "{error}");
    assert_eq!(teams.len(), MAX_TEAMS - 2);
    assert!(matches!(world.split_2d(1), Err(Error::TooManyTeams { .. })));
    for (i, team) in teams.drain(..).enumerate() {
        team.sync();
        if i % 2 == 0 {
            team.destroy();
        } else {
            // Others are made in between, of other members.
            let rest = n_pes() as isize - 1;
            let other = world.split_strided(rest, -1, 1 + rest / 2).unwrap();
            if let Some(other) = other {
                other.sync();
                other.destroy();
            }
            world.sync();
            team.destroy();
        }
    }
}

/// The value of element `i` on a PE of the world.
fn value(pe: usize, i: usize) -> u64 {
    (pe as u64 + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (i as u64) << 7
}

fn fill(array: SymSlice<u64>) {
    array.write_from(
        &(0..array.len())
            .map(|i| value(my_pe(), i))
            .collect::<Vec<_>>(),
    );
}

/// Elements that nobody may write keep this.
const UNTOUCHED: u64 = 0xdead_beef;

fn assert_all(
    what: &str,
    team: &Team,
    array: SymSlice<u64>,
    want: impl Fn(usize) -> u64,
    len: usize,
) {
    let got = array.to_vec();
    for (i, &got) in got.iter().enumerate() {
        let want = if i < len { want(i) } else { UNTOUCHED };
        assert_eq!(
            got,
            want,
            "{what}, {len} elements of {}, element {i} on {team}",
            array.len()
        );
    }
}

/// Every collective of `len` elements on this team.
fn run_all(team: &Team, dest: SymSlice<u64>, source: SymSlice<u64>, len: usize) {
    let n = team.n_pes();
    let pes: Vec<usize> = team.members().iter().collect();
    let source = source.at(..len);
    // Whoever uses an array again has to wait for all.
    let fresh = |len: usize| {
        team.sync();
        dest.at(..len + 3).fill(UNTOUCHED);
        fill(source);
        team.sync();
        dest.at(..len + 3)
    };

    for root in [0, n / 2, n - 1] {
        let room = fresh(len);
        team.broadcast(room.at(..len), source, root);
        assert_all("broadcast", team, room, |i| value(pes[root], i), len);
    }
    let room = fresh(n * len);
    team.fcollect(room, source);
    let joined = |i: usize| value(pes[i / len], i % len);
    assert_all("fcollect", team, room, joined, n * len);

    // Of different lengths, none on some.
    let count = |rank: usize| len * ((rank + 1) % 3) / 2;
    let starts: Vec<usize> = (0..=n).map(|r| (0..r).map(count).sum()).collect();
    let room = fresh(n * len);
    let total = team.collect(room, source.at(..count(team.my_pe())));
    assert_eq!(total, starts[n]);
    let place = |i| {
        let rank = starts.partition_point(|&s| s <= i) - 1;
        value(pes[rank], i - starts[rank])
    };
    assert_all("collect", team, room, place, total);

    let sum = |i| {
        pes.iter()
            .fold(0u64, |sum, &pe| sum.wrapping_add(value(pe, i)))
    };
    let room = fresh(len);
    team.reduce(room.at(..len), source, Sum);
    assert_all("sum", team, room, sum, len);
    let room = fresh(len);
    team.reduce(room.at(..len), source, Xor);
    let xor = |i| pes.iter().fold(0, |xor, &pe| xor ^ value(pe, i));
    assert_all("xor", team, room, xor, len);
    let up_to = |rank: usize| {
        let pes = &pes[..rank];
        move |i| {
            pes.iter()
                .fold(0u64, |sum, &pe| sum.wrapping_add(value(pe, i)))
        }
    };
    let room = fresh(len);
    team.sum_inscan(room.at(..len), source);
    assert_all("inscan", team, room, up_to(team.my_pe() + 1), len);
    let room = fresh(len);
    team.sum_exscan(room.at(..len), source);
    assert_all("exscan", team, room, up_to(team.my_pe()), len);

    // In place.
    for (name, last) in [
        ("inscan", team.my_pe() + 1),
        ("exscan", team.my_pe()),
        ("sum", n),
    ] {
        let room = fresh(len);
        let cells = room.at(..len);
        cells.write_from(&source.to_vec());
        team.sync();
        match name {
            "inscan" => team.sum_inscan(cells, cells),
            "exscan" => team.sum_exscan(cells, cells),
            _ => team.reduce(cells, cells, Sum),
        }
        assert_all(name, team, room, up_to(last), len);
    }
    team.barrier();
}

fn with_arrays(longest: usize, f: impl Fn(SymSlice<u64>, SymSlice<u64>)) {
    let source = alloc::<u64>(longest).unwrap();
    let dest = alloc::<u64>(longest * n_pes() + 3).unwrap();
    f(dest, source);
    free(dest).unwrap();
    free(source).unwrap();
}

fn collectives_on_teams() {
    // Beside the sizes where algorithms change: 128 words are a mailbox, 2304 a box.
    with_arrays(2400, |dest, source| {
        with_teams(|team| {
            for &len in usual_or(&[0, 1, 129, 2400][..], &[0, 1, 2, 127, 129, 777, 2400]) {
                run_all(team, dest, source, len);
            }
        });
    });
}

fn long_collectives_on_teams() {
    with_arrays(30_001, |dest, source| {
        run_all(Team::world(), dest, source, 30_001);
        run_all(Team::shared(), dest, source, 9_000);
        let n = n_pes() as isize;
        let reversed = Team::world().split_strided(n - 1, -1, n).unwrap().unwrap();
        run_all(&reversed, dest, source, 10_007);
        reversed.destroy();
    });
}

/// Reductions and scans of a type, whose values for a PE `of` gives: 5 elements.
fn numbers<T: Arithmetic + PartialEq>(of: impl Fn(usize) -> T) {
    let source = alloc::<T>(5).unwrap();
    let dest = alloc::<T>(5).unwrap();
    source.fill(of(my_pe()));
    barrier_all();
    with_some_teams(|team| {
        let name = std::any::type_name::<T>();
        let values: Vec<T> = team.members().iter().map(&of).collect();
        let fold =
            |f: fn(T, T) -> T, n: usize| values[1..n].iter().fold(values[0], |a, &b| f(a, b));
        let check = |what: &str, want: T| {
            assert_eq!(dest.to_vec(), [want; 5], "{what} of {name} on {team}");
            team.sync();
        };
        let (me, n) = (team.my_pe(), team.n_pes());
        team.reduce(dest, source, Sum);
        check("sum", fold(T::plus, n));
        team.reduce(dest, source, Prod);
        check("prod", fold(T::times, n));
        team.sum_inscan(dest, source);
        check("inscan", fold(T::plus, me + 1));
        team.sum_exscan(dest, source);
        if me > 0 {
            check("exscan", fold(T::plus, me));
        } else {
            let zeros = vec![0u8; 5 * size_of::<T>()];
            assert_eq!(bytes(dest), zeros, "exscan of {name} on {team}");
            team.sync();
        }
    });
    free(dest).unwrap();
    free(source).unwrap();
}

fn bytes<T: Datum>(array: SymSlice<T>) -> Vec<u8> {
    let values = array.to_vec();
    // SAFETY: a `Datum` has no padding.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast::<u8>(), size_of_val(&values[..])) }
        .to_vec()
}

fn bits<T: Bits>(of: impl Fn(usize) -> T) {
    let source = alloc::<T>(3).unwrap();
    let dest = alloc::<T>(3).unwrap();
    source.fill(of(my_pe()));
    barrier_all();
    with_some_teams(|team| {
        fn check<T: Bits, O: ReduceOp<T> + Debug>(
            (team, dest, source): (&Team, SymSlice<T>, SymSlice<T>),
            of: &impl Fn(usize) -> T,
            op: O,
            f: fn(T, T) -> T,
        ) {
            let name = format!("{op:?} on {team}");
            team.reduce(dest, source, op);
            let want = team.members().iter().map(of).reduce(f).unwrap();
            assert_eq!(dest.to_vec(), [want; 3], "{name}");
            team.sync();
        }
        let on = (team, dest, source);
        check(on, &of, And, T::and);
        check(on, &of, Or, T::or);
        check(on, &of, Xor, T::xor);
        check(on, &of, Min, T::smaller);
        check(on, &of, Max, T::larger);
        check(on, &of, Sum, T::plus);
        check(on, &of, Prod, T::times);
    });
    free(dest).unwrap();
    free(source).unwrap();
}

fn types_on_teams() {
    let odd = |pe: usize| 2 * pe + 3;
    bits(|pe| odd(pe) as u8);
    bits(|pe| odd(pe) as i16 - 5);
    bits(|pe| odd(pe) as u32 * 77_777);
    bits(|pe| odd(pe) as i64 - 5);
    bits(|pe| odd(pe) as u128 * u128::from(u64::MAX));
    numbers(|pe| odd(pe) as i32 - 9);
    numbers(|pe| odd(pe) as u64);
    // Exact in any order.
    numbers(|pe| [1.0f32, 2.0, 0.5][pe % 3]);
    numbers(|pe| [1.0f64, -2.0, 0.5][pe % 3]);
    numbers(|pe| Complex {
        re: [1.0f32, 0.0, 2.0][pe % 3],
        im: [1.0, -1.0, 0.0][pe % 3],
    });
    numbers(|pe| Complex {
        re: [0.0f64, 0.5][pe % 2],
        im: 1.0,
    });
    let cells = alloc::<f64>(2).unwrap();
    with_teams(|team| {
        fn check(
            (team, cells): (&Team, SymSlice<f64>),
            op: impl ReduceOp<f64>,
            want: fn(f64, f64) -> f64,
        ) {
            let of = |pe: usize| if pe % 3 == 1 { f64::NAN } else { pe as f64 };
            cells.write_from(&[of(my_pe()), -of(my_pe())]);
            team.sync();
            let wanted = |sign: f64| {
                team.members()
                    .iter()
                    .map(|pe| sign * of(pe))
                    .reduce(want)
                    .unwrap()
            };
            team.reduce(cells, cells, op);
            let same = |a: f64, b: f64| a == b || (a.is_nan() && b.is_nan());
            assert!(same(cells.read(0), wanted(1.0)) && same(cells.read(1), wanted(-1.0)));
            team.sync();
        }
        check((team, cells), Min, f64::min);
        check((team, cells), Max, f64::max);
    });
    free(cells).unwrap();
}

fn exchange_on_teams() {
    fn run<T: Datum + PartialEq>(block: usize, (dst, sst): (usize, usize), of: impl Fn(u64) -> T) {
        let n = n_pes();
        let source = alloc::<T>(n * block * sst).unwrap();
        let dest = alloc::<T>(n * block * dst).unwrap();
        source.write_from(
            &(0..source.len())
                .map(|i| of(value(my_pe(), i)))
                .collect::<Vec<_>>(),
        );
        with_teams(|team| {
            dest.fill(of(UNTOUCHED));
            team.sync();
            team.alltoalls(dest, source, dst, sst, block);
            let mut want = vec![of(UNTOUCHED); dest.len()];
            for (rank, pe) in team.members().iter().enumerate() {
                for i in 0..block {
                    let from = (team.my_pe() * block + i) * sst;
                    want[(rank * block + i) * dst] = of(value(pe, from));
                }
            }
            assert!(
                dest.to_vec() == want,
                "blocks of {block}, strides {dst} and {sst}, on {team}"
            );
            if dst == 1 && sst == 1 {
                dest.fill(of(UNTOUCHED));
                team.sync();
                team.alltoall(dest, source, block);
                assert!(dest.to_vec() == want, "blocks of {block} on {team}");
            }
            team.sync();
        });
        free(dest).unwrap();
        free(source).unwrap();
    }
    run(1, (1, 1), |v| v);
    run(1, (3, 2), |v| v as u16);
    run(5, (1, 4), |v| v as u8);
    run(100, (2, 1), |v| v as u32);
    run(3000, (1, 1), |v| v);
}

/// Two threads, each in collectives of a team of its own.
fn teams_at_the_same_time() {
    const ROUNDS: usize = 20;
    let (me, n) = (my_pe(), n_pes());
    let world = Team::world();
    let copy = || world.split_strided(0, 1, n as isize).unwrap().unwrap();
    let teams = [copy(), copy()];
    let cells = alloc::<u64>(4).unwrap();
    let blocks = alloc::<u64>(2 * 500).unwrap();
    let lists = alloc::<u64>(2 * n * 500).unwrap();
    std::thread::scope(|s| {
        for (t, team) in teams.iter().enumerate() {
            s.spawn(move || {
                let (cell, sum) = (cells.elem(2 * t), cells.elem(2 * t + 1));
                let list = lists.at(t * n * 500..(t + 1) * n * 500);
                for round in 0..ROUNDS {
                    cell.write(0, (me + round + t) as u64);
                    team.reduce(sum, cell, Sum);
                    assert_eq!(sum.read(0) as usize, n * (n - 1) / 2 + n * (round + t));
                    let block = blocks.at(t * 500..t * 500 + [1, 500][round % 2]);
                    block.fill(cell.read(0));
                    team.fcollect(list, block);
                    let want = |i| (i / block.len() + round + t) as u64;
                    let all = list.at(..n * block.len()).to_vec();
                    assert!((0..all.len()).all(|i| all[i] == want(i)), "{round}");
                    team.sync();
                    // Splits at the same time find slots for both.
                    let [row, column] = <[Team; 2]>::from(team.split_2d(2).unwrap());
                    row.sync();
                    column.sync();
                    row.destroy();
                    column.destroy();
                }
            });
        }
    });
    barrier_all();
    for team in teams {
        team.destroy();
    }
    for array in [lists, blocks, cells] {
        free(array).unwrap();
    }
}

/// Collectives of different teams follow each other without anything in between.
fn teams_in_turn() {
    const ROUNDS: usize = 60;
    let (me, n) = (my_pe(), n_pes());
    let world = Team::world();
    let (row, column) = world.split_2d(2).unwrap();
    let back = world
        .split_strided(n as isize - 1, -1, n as isize)
        .unwrap()
        .unwrap();
    let teams: [&Team; 5] = [world, Team::shared(), &row, &column, &back];
    let mut next = noise(7);
    let cell = alloc::<u64>(1).unwrap();
    let dest = alloc::<u64>(ROUNDS * n).unwrap();
    cell.write(0, me as u64 + 1);
    barrier_all();
    let plan: Vec<(usize, u64)> = (0..ROUNDS)
        .map(|_| (next() as usize % 5, next() % 4))
        .collect();
    for (round, &(team, kind)) in plan.iter().enumerate() {
        let (team, room) = (teams[team], dest.at(round * n..(round + 1) * n));
        match kind {
            0 => team.reduce(room.elem(0), cell, Sum),
            1 => team.broadcast(room.elem(0), cell, team.n_pes() - 1),
            2 => team.fcollect(room, cell),
            _ => team.sync(),
        }
    }
    for (round, &(team, kind)) in plan.iter().enumerate() {
        let pes: Vec<u64> = teams[team]
            .members()
            .iter()
            .map(|pe| pe as u64 + 1)
            .collect();
        let got = dest.at(round * n..(round + 1) * n).to_vec();
        match kind {
            0 => assert_eq!(got[0], pes.iter().sum::<u64>(), "round {round}"),
            1 => assert_eq!(got[0], *pes.last().unwrap(), "round {round}"),
            2 => assert_eq!(got[..pes.len()], pes, "round {round}"),
            _ => {}
        }
    }
    for team in [row, column, back] {
        team.destroy();
    }
    free(dest).unwrap();
    free(cell).unwrap();
}
