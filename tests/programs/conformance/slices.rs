//! Collectives of slices of ordinary memory: each length on its way through slots, boxes and symmetric memory.

use shmem::{Datum, Max, SymSlice, Team, alloc, free, my_pe, n_pes, scratch};

use crate::check::{Check, noise, usual_or};

pub(crate) const CHECKS: &[Check] = &[
    ("slices_are_combined", slices_are_combined),
    ("slices_from_one", slices_from_one),
    ("gathered_at_one", gathered_at_one),
    ("handed_out_by_one", handed_out_by_one),
    ("slices_on_teams", slices_on_teams),
    ("slices_without_room", slices_without_room),
    ("slices_back_to_back", slices_back_to_back),
];

fn value(pe: usize, i: usize) -> u64 {
    (pe * 1_000_003 + i * 7) as u64
}

fn filled(pe: usize, len: usize) -> Vec<u64> {
    (0..len).map(|i| value(pe, i)).collect()
}

fn sums(team: &Team, len: usize) {
    let members = || (0..team.n_pes()).map(|pe| team.world_pe(pe));
    let mut mine = filled(my_pe(), len);
    team.sum_slice(&mut mine);
    for (i, &sum) in mine.iter().enumerate() {
        assert_eq!(sum, members().map(|pe| value(pe, i)).sum(), "{i} of {len}");
    }
}

fn slices_are_combined() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    for len in [0, 1, 63, 64, 65, 512, 513, usual_or(3000, 100_000)] {
        sums(world, len);
    }
    let mut low: Vec<i16> = (0..1000).map(|i| (i + me) as i16).collect();
    let mut high = low.clone();
    world.min_slice(&mut low);
    world.max_slice(&mut high);
    assert!((0..1000).all(|i| low[i] == i as i16 && high[i] == (i + n - 1) as i16));
    let mut twos = [2u128; 3];
    world.prod_slice(&mut twos);
    assert_eq!(twos, [1u128.checked_shl(n as u32).unwrap_or(0); 3]);
    // Elements that do not fit into a place.
    let mut large = vec![[me as u32; 200]; 3];
    world.reduce_slice(&mut large, |a: [u32; 200], b: [u32; 200]| {
        std::array::from_fn(|i| a[i].max(b[i]))
    });
    assert_eq!(large, vec![[n as u32 - 1; 200]; 3]);
    let mut large = [[me as u32; 200]];
    world.max_slice(large.as_flattened_mut());
    assert_eq!(large, [[n as u32 - 1; 200]]);
    let mut alone = [[me as u64; 120]];
    world.sum_slice(&mut alone);
    assert_eq!(alone, [[(n * (n - 1) / 2) as u64; 120]]);
    world.sum_slice(&mut [[0u8; 0]; 2]);
}

fn slices_from_one() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    for len in [0, 1, 100, 2304, 2305, 9216, 9217, usual_or(12_000, 300_000)] {
        let root = len % n;
        // The others' slices mean nothing.
        let mine = if me == root {
            filled(root, len)
        } else {
            filled(me, me)
        };
        assert_eq!(
            world.broadcast_slice(&mine, root),
            filled(root, len),
            "{len}"
        );
    }
    let text = if me == n - 1 { "from the last" } else { "" };
    let got = world.broadcast_slice(text.as_bytes(), n - 1);
    assert_eq!(got, b"from the last");
}

fn gathered_at_one() {
    fn at_root<T: Datum + PartialEq>(got: Option<Vec<T>>, root: usize, of: impl Fn(usize) -> T) {
        assert_eq!(got.is_some(), my_pe() == root);
        let want = || (0..n_pes()).map(&of).collect::<Vec<_>>();
        assert!(got.is_none_or(|got| got == want()));
    }
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    for root in 0..n.min(usual_or(3, 9)) {
        at_root(world.gather(me as u16, root), root, |pe| pe as u16);
        at_root(world.gather([me as u64; 1000], root), root, |pe| {
            [pe as u64; 1000]
        });
        let len = |pe| (pe * 37) % 11 * 400;
        let parts = world.gather_parts(&filled(me, len(me)), root);
        assert_eq!(parts.is_some(), me == root);
        for (pe, part) in parts.iter().flat_map(|parts| parts.parts().enumerate()) {
            assert_eq!(part, filled(pe, len(pe)), "{pe}");
        }
    }
}

fn handed_out_by_one() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    for root in 0..n.min(usual_or(3, 9)) {
        let values: Vec<_> = (0..n).map(|pe| [value(pe, root); 300]).collect();
        let given = if me == root { &values[..] } else { &[] };
        assert_eq!(world.scatter(given, root), [value(me, root); 300]);
        let len = |pe| (pe * 29) % 7 * 900;
        let parts: Vec<_> = (0..n).map(|pe| filled(pe, len(pe))).collect();
        let given = if me == root { &parts[..] } else { &[] };
        assert_eq!(world.scatter_parts(given, root), filled(me, len(me)));
    }
}

fn slices_on_teams() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    let half = n.div_ceil(2) as isize;
    let evens = world.split_strided(0, 2, half).unwrap();
    let all = world.split_strided(0, 1, n as isize).unwrap();
    for team in evens.iter().chain(&all).chain([Team::shared()]) {
        let (number, members) = (team.my_pe(), team.n_pes());
        for len in [1, 700, usual_or(3000, 20_000)] {
            sums(team, len);
            let root = len % members;
            let from = team.world_pe(root);
            assert_eq!(
                team.broadcast_slice(&filled(me, len), root),
                filled(from, len)
            );
        }
        let all = team.gather(me, members - 1);
        assert_eq!(all.is_some(), number == members - 1);
        assert!(all.is_none_or(|all| (0..members).all(|i| all[i] == team.world_pe(i))));
        let numbers: Vec<usize> = (0..members).map(|i| team.world_pe(i)).collect();
        assert_eq!(team.scatter(&numbers, 0), me);
    }
    for team in [evens, all].into_iter().flatten() {
        team.destroy();
    }
}

/// Where the heap is full, long slices go in pieces.
fn slices_without_room() {
    let world = Team::world();
    let mut most = 1usize << 20;
    while let Ok(found) = scratch(most * 2, |array: SymSlice<u8>| array.len()) {
        most = found;
    }
    // Takes all but what is too small for the slices below.
    let mut taken = Vec::new();
    while most >= 4096 {
        match alloc::<u8>(most) {
            Ok(block) => taken.push(block),
            Err(_) => most /= 2,
        }
    }
    let room = scratch(3000 * size_of::<u64>(), |array: SymSlice<u8>| array.len());
    assert!(room.is_err(), "{room:?}");
    sums(world, 3000);
    let root = n_pes() - 1;
    assert_eq!(
        world.broadcast_slice(&filled(my_pe(), 12_000), root),
        filled(root, 12_000)
    );
    for block in taken {
        free(block).unwrap();
    }
}

/// Who is ahead does not write into what another one still has to read.
fn slices_back_to_back() {
    let (world, me, n) = (Team::world(), my_pe(), n_pes());
    let mut next = noise(29);
    for i in 0..usual_or(60, 300usize) {
        let (root, len) = (next() as usize % n, next() as usize % 4000);
        if me == next() as usize % n && i % 8 == 0 {
            std::thread::yield_now();
        }
        match next() % 5 {
            0 => assert_eq!(
                world.broadcast_slice(&filled(me, len), root),
                filled(root, len)
            ),
            1 => sums(world, len),
            2 => assert_eq!(world.gather(me, root).is_some(), me == root),
            3 => assert_eq!(world.scatter(&(0..n).collect::<Vec<_>>(), root), me),
            _ => assert_eq!(world.reduce_value(me * i, Max), (n - 1) * i, "{i}"),
        }
    }
}
