//! Collectives of plain values, exchanges of unequal parts, scratch memory, and views of symmetric arrays.

use shmem::{
    Cmp, Datum, Max, SymSlice, Team, alloc, alloc_from, alloc_value, alltoallv, barrier_all, free,
    get_sym, get_sym_nbi, my_pe, n_pes, put_sym, put_sym_nbi, quiet, scratch,
};

use crate::check::{Check, noise, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("sums_of_values", sums_of_values),
    ("values_from_everywhere", values_from_everywhere),
    ("values_back_to_back", values_back_to_back),
    ("all_values", all_values),
    ("large_values", large_values),
    ("parts_of_all_lengths", parts_of_all_lengths),
    ("values_on_teams", values_on_teams),
    ("unequal_exchange", unequal_exchange),
    ("scratch_is_freed", scratch_is_freed),
    ("between_symmetric_arrays", between_symmetric_arrays),
    ("scalars", scalars),
    ("grids", grids),
];

fn sums_of_values() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    assert_eq!(world.sum(me + 1), n * (n + 1) / 2);
    assert_eq!(
        world.sum([me as f64, 0.5, -1.0]),
        [(n * (n - 1) / 2) as f64, 0.5 * n as f64, -(n as f64)]
    );
    assert_eq!(world.prod(2u64), 1u64.checked_shl(n as u32).unwrap_or(0));
    assert_eq!((world.min(me as i8), world.max(me)), (0, n - 1));
    assert_eq!(world.sum_before(3), 3 * me);
    assert_eq!(world.sum([0u8; 0]), []);
    let height = |pe: usize| (pe * 7) % 5;
    let highest = (0..n).max_by_key(|&pe| (height(pe), n - pe)).unwrap();
    assert_eq!(
        world.max_loc(height(me) as f32),
        (height(highest) as f32, highest)
    );
    assert_eq!(world.min_loc(height(me) as i64), (0, 0));
    let partly = if me == n - 1 { 1.5 } else { f64::NAN };
    assert_eq!(world.max_loc(partly), (1.5, n - 1));
    assert_eq!(world.min_loc(if me == 0 { 0.0 } else { -0.0 }).1, 0);
    let (nan, first) = world.max_loc(f64::NAN);
    assert!(nan.is_nan() && first == 0);
    let bits = world.reduce_value(1u128 << (me % 128), |a: u128, b: u128| a | b);
    assert_eq!(bits.count_ones() as usize, n.min(128));
    // The first of those that have most.
    let of = |pe: usize| [((pe * 7) % 5) as u64, pe as u64];
    let found = world.reduce_value(
        of(me),
        |a: [u64; 2], b: [u64; 2]| {
            if (a[0], b[1]) < (b[0], a[1]) { b } else { a }
        },
    );
    let most = (0..n).map(|pe| of(pe)[0]).max().unwrap();
    let first = (0..n).find(|&pe| of(pe)[0] == most).unwrap();
    assert_eq!(found, of(first));
}

fn values_from_everywhere() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    for root in 0..n {
        assert_eq!(world.broadcast_value(me as u32, root), root as u32);
        let long: [u64; 31] = std::array::from_fn(|i| (me * 100 + i) as u64);
        let got = world.broadcast_value(long, root);
        assert!(
            got.iter()
                .enumerate()
                .all(|(i, &v)| v == (root * 100 + i) as u64)
        );
    }
}

/// Who is ahead does not write into a value that another one still has to read.
fn values_back_to_back() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    let mut next = noise(17);
    for i in 0..300usize {
        let (root, slow) = (next() as usize % n, next() as usize % n);
        if me == slow && i % 8 == 0 {
            std::thread::yield_now();
        }
        match next() % 4 {
            0 | 1 => assert_eq!(world.broadcast_value([me, i], root), [root, i], "{i}"),
            2 => assert_eq!(world.reduce_value(me * i, Max), (n - 1) * i, "{i}"),
            _ => assert_eq!(world.sum_before(i), me * i, "{i}"),
        }
    }
}

fn all_values() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    for round in 0..5 {
        let all = world.all_gather((me * 3 + round) as u16);
        assert!(
            all.iter()
                .enumerate()
                .all(|(pe, &v)| v as usize == pe * 3 + round)
        );
        assert_eq!(all.len(), n);
    }
    assert_eq!(world.all_gather([0u64; 0]).len(), n);
    // More than a box holds.
    let all = world.all_gather([me as u64; 1000]);
    assert!(
        all.iter()
            .enumerate()
            .all(|(pe, v)| *v == [pe as u64; 1000])
    );
}

fn large_values() {
    fn filled<const N: usize>(pe: usize) -> [u32; N] {
        std::array::from_fn(|i| (pe * N + i) as u32)
    }
    fn run<const N: usize>() {
        let (world, me, n) = (Team::world(), my_pe(), n_pes());
        for root in [0, n - 1, n / 2] {
            assert_eq!(
                world.broadcast_value(filled::<N>(me), root),
                filled::<N>(root)
            );
        }
        let sum = world.sum(filled::<N>(me));
        let want = |i| (0..n).map(|pe| filled::<N>(pe)[i]).sum::<u32>();
        assert!(sum.iter().enumerate().all(|(i, &v)| v == want(i)));
    }
    run::<63>();
    run::<64>();
    run::<65>();
    run::<129>();
    run::<2000>();
}

fn parts_of_all_lengths() {
    fn run<T: Datum + PartialEq>(len: impl Fn(usize) -> usize, of: impl Fn(usize, usize) -> T) {
        let (world, me, n) = (Team::world(), my_pe(), n_pes());
        let part = |pe| (0..len(pe)).map(|i| of(pe, i)).collect::<Vec<T>>();
        let all = world.all_gather_parts(&part(me));
        assert_eq!(all.parts().len(), n);
        for pe in 0..n {
            assert_eq!(all.part(pe), part(pe), "{pe}");
        }
        assert_eq!(all.len(), (0..n).map(&len).sum::<usize>());
    }
    run(|_| 0, |_, i| i as u8);
    run(|pe| pe % 3, |pe, i| (pe + i) as u8);
    run(|pe| if pe == 0 { 70_001 } else { 0 }, |_, i| i as u8);
    run(|pe| (pe * 37) % 11 * 400, |pe, i| [pe as u64, i as u64, 3]);
}

fn values_on_teams() {
    let world = Team::world();
    let (me, n) = (my_pe(), n_pes());
    let half = n.div_ceil(2) as isize;
    let evens = world.split_strided(0, 2, half).unwrap();
    let odds = match n {
        1 => None,
        _ => world.split_strided(1, 2, n as isize - half).unwrap(),
    };
    for team in [&evens, &odds].into_iter().flatten() {
        for root in 0..team.n_pes() {
            let got = team.broadcast_value(me, root);
            assert_eq!(got, team.world_pe(root));
        }
        let members: Vec<_> = (0..team.n_pes()).map(|pe| team.world_pe(pe)).collect();
        assert_eq!(team.all_gather(me), members);
        assert_eq!(team.sum(me), members.iter().sum());
        let parts: Vec<_> = (0..team.n_pes()).map(|to| vec![me; to + 1]).collect();
        let want: usize = (team.my_pe() + 1) * team.n_pes();
        assert_eq!(
            team.all_gather_parts(&parts[team.my_pe()]).len(),
            parts.len() * (parts.len() + 1) / 2
        );
        assert_eq!(team.sum(team.my_pe() + 1) * team.n_pes(), team.sum(want));
    }
    // Teams' exchanges of unequal parts take arrays, which all PEs allocate.
    let (dest, work) = (alloc::<usize>(n * n).unwrap(), alloc::<u64>(3 * n).unwrap());
    for team in [&evens, &odds].into_iter().flatten() {
        let parts: Vec<_> = (0..team.n_pes()).map(|to| vec![me; to + 1]).collect();
        for _ in 0..3 {
            let inbox = team.alltoallv(&parts).unwrap();
            assert!(
                inbox
                    .parts()
                    .eq((0..team.n_pes()).map(|from| vec![team.world_pe(from); team.my_pe() + 1]))
            );
            let ranges = team.alltoallv_into(dest, &parts, work);
            for (from, range) in ranges.iter().enumerate() {
                assert_eq!(
                    dest.at(range.clone()),
                    vec![team.world_pe(from); team.my_pe() + 1]
                );
            }
            team.sync();
        }
    }
    free(work).unwrap();
    free(dest).unwrap();
    for team in [evens, odds].into_iter().flatten() {
        team.destroy();
    }
}

fn unequal_exchange() {
    fn run(len: impl Fn(usize, usize) -> usize) {
        let (me, n) = (my_pe(), n_pes());
        let of = |from, to| -> Vec<u32> {
            (0..len(from, to))
                .map(|i| (from * 1000 + to * 10 + i) as u32)
                .collect()
        };
        let parts: Vec<_> = (0..n).map(|to| of(me, to)).collect();
        let inbox = alltoallv(&parts).unwrap();
        assert_eq!(inbox.parts().len(), n);
        for from in 0..n {
            assert_eq!(inbox.part(from), of(from, me), "from {from}");
        }
    }
    run(|_, _| 0);
    run(|_, _| 1);
    run(|from, to| (from * 5 + to * 3) % 7);
    run(|from, to| {
        if from == 0 && to + 1 == n_pes() {
            5000
        } else {
            0
        }
    });
    run(|from, to| if (from + to) % 2 == 0 { 3000 + from } else { 1 });
}

fn scratch_is_freed() {
    let (me, n) = (my_pe(), n_pes());
    // All of the heap that one array can have, again and again: by a function that comes to its end, and by
    // one that does not.
    let mut most = 1usize << 20;
    while let Ok(found) = scratch(most * 2, |array: SymSlice<u8>| array.len()) {
        most = found;
    }
    for i in 0..usual_or(2, 4u64) {
        let half = most / 2;
        let got: Result<u64, String> =
            scratch((half, n), |(_, cells): (SymSlice<u8>, SymSlice<u64>)| {
                barrier_all();
                shmem::p(cells.elem(me), i, (me + 1) % n);
                barrier_all();
                let value = cells.read((me + n - 1) % n);
                if i % 2 == 0 {
                    Err("odd ones only")?;
                }
                Ok(value)
            })
            .unwrap();
        assert_eq!(got.ok(), (i % 2 == 1).then_some(i));
    }
    let after = alloc::<u8>(most).unwrap();
    let error = scratch((most, 1usize), |_: (SymSlice<u8>, SymSlice<u8>)| {
        unreachable!("no room")
    });
    assert!(matches!(
        error,
        Err::<(), _>(shmem::Error::HeapExhausted { .. })
    ));
    free(after).unwrap();
}

fn between_symmetric_arrays() {
    let (me, n) = (my_pe(), n_pes());
    let (left, right) = ((me + n - 1) % n, (me + 1) % n);
    for len in [1, 100, 40_000] {
        let of = |pe: usize| (0..len).map(|i| (pe * 7 + i) as u64).collect::<Vec<_>>();
        let field = alloc::<u64>(4 * len).unwrap();
        let (own, from_left, from_right, again) = (
            field.at(..len),
            field.at(len..2 * len),
            field.at(2 * len..3 * len),
            field.at(3 * len..),
        );
        own.write_from(&of(me));
        barrier_all();
        put_sym(from_left, own, right);
        put_sym_nbi(from_right, own, left);
        get_sym(again, own, left);
        assert_eq!(again, of(left));
        get_sym_nbi(again, own, right);
        quiet();
        assert_eq!(again, of(right));
        barrier_all();
        assert!(from_left == of(left) && from_right == of(right));
        free(field).unwrap();
    }
}

fn scalars() {
    let (me, n) = (my_pe(), n_pes());
    let cell = alloc_value(me as u64 * 10).unwrap();
    let right = (me + 1) % n;
    assert_eq!(cell.get(right), right as u64 * 10);
    barrier_all();
    cell.put(7, right);
    barrier_all();
    assert_eq!((cell.read(), cell.fetch(right)), (7, 7));
    barrier_all();
    cell.add(1, 0);
    let before = cell.fetch_add(1, 0);
    assert!((7..7 + 2 * n as u64).contains(&before));
    if me == 0 {
        assert_eq!(cell.wait_until(Cmp::Ge, 7 + 2 * n as u64), 7 + 2 * n as u64);
        assert!(cell.test(Cmp::Eq, 7 + 2 * n as u64));
    }
    barrier_all();
    let won = cell
        .compare_exchange(7 + 2 * n as u64, me as u64, 0)
        .is_ok();
    assert_eq!(Team::world().sum(won as u32), 1);
    assert!(cell.compare_exchange(u64::MAX, 0, 0).is_err());
    barrier_all();
    cell.set(0b1100, me);
    assert_eq!(cell.fetch_and(0b0110, me), 0b1100);
    assert_eq!(cell.fetch_or(0b0001, me), 0b0100);
    assert_eq!(cell.fetch_xor(0b0111, me), 0b0101);
    assert_eq!(cell.swap(9, me), 0b0010);
    cell.write(cell.read() + 1);
    assert_eq!(cell.slice().to_vec(), [10]);
    barrier_all();
    free(cell.slice()).unwrap();
    let pairs = alloc_from(&[[me as f32; 2], [0.5; 2]]).unwrap();
    assert_eq!(pairs.value(0).get(right), [right as f32; 2]);
    barrier_all();
    free(pairs).unwrap();
}

fn grids() {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    let left = (me + n - 1) % n;
    let (rows, cols) = (30, 50);
    let of = |pe: usize, i: usize, j: usize| (pe * 10_000 + i * 100 + j) as u32;
    let field = alloc::<u32>(2 * rows * cols).unwrap();
    let (grid, halo) = (
        field.at(..rows * cols).grid(rows, cols),
        field.at(rows * cols..).grid(rows, cols),
    );
    let all: Vec<_> = (0..rows * cols)
        .map(|at| of(me, at / cols, at % cols))
        .collect();
    grid.write_from(&all);
    barrier_all();
    for (r, c) in [
        (0..rows, 0..1),
        (3..4, 0..cols),
        (2..29, 10..41),
        (5..5, 0..3),
        (0..rows, 0..cols),
    ] {
        let part = |pe| -> Vec<u32> {
            r.clone()
                .flat_map(|i| c.clone().map(move |j| (i, j)))
                .map(|(i, j)| of(pe, i, j))
                .collect()
        };
        let (from, to) = (grid.at(r.clone(), c.clone()), halo.at(r.clone(), c.clone()));
        assert_eq!(from.get_vec(right), part(right));
        let mut got = vec![0; part(me).len()];
        from.get(&mut got, left);
        assert_eq!(got, part(left));
        to.put(&part(me), right);
        barrier_all();
        to.read_to(&mut got);
        assert_eq!(got, part(left));
        barrier_all();
        to.put_sym(from, left);
        barrier_all();
        to.read_to(&mut got);
        assert_eq!(got, part(right));
        barrier_all();
        field.at(rows * cols..).fill(1);
        barrier_all();
        to.put_sym(from, right);
        barrier_all();
        let inside = |i, j| r.contains(&i) && c.contains(&j);
        for (i, j) in (0..rows).flat_map(|i| (0..cols).map(move |j| (i, j))) {
            let want = if inside(i, j) { of(left, i, j) } else { 1 };
            assert_eq!(halo.read(i, j), want, "{i}, {j}");
        }
        barrier_all();
    }
    free(field).unwrap();
}
