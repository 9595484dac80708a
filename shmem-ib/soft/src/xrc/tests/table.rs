//! The table by itself: numbers, ranges, and regions that end while others use them.

use std::sync::atomic::{AtomicBool, AtomicU32};

use shmem_verbs::Psn;

use super::*;

fn region(rkey: u32, va: u64, len: u64, offset: u64) -> Region {
    Region {
        rkey: Rkey(rkey),
        access: Access::LOCAL_WRITE | Access::REMOTE_WRITE,
        va,
        len,
        offset,
    }
}

fn reach(rkey: u32, va: u64, len: u64) -> Reach {
    Reach {
        rkey: Rkey(rkey),
        va,
        len,
        need: Access::REMOTE_WRITE,
    }
}

#[test]
fn members_are_few_and_foreign_files_are_refused() {
    let words = Anonymous::default();
    let table = Table::on(words.words()).unwrap();
    assert!(Table::on(words.words()).is_some(), "who comes second");
    let all: Vec<usize> = std::iter::from_fn(|| table.join()).collect();
    assert_eq!(all.len(), MEMBERS);
    table.leave(7);
    assert_eq!(table.join(), Some(7));
    words.words()[0].store(1, Ordering::Relaxed);
    assert!(Table::on(words.words()).is_none());
    assert!(Table::on(&words.words()[1..]).is_none());
}

#[test]
fn numbers_are_unique_and_old_ones_are_not_taken_for_new_ones() {
    let words = Anonymous::default();
    let table = Table::on(words.words()).unwrap();
    let (a, b) = (table.join().unwrap(), table.join().unwrap());
    let mut all = std::collections::HashSet::new();
    for i in 0..SRQS {
        let me = [a, b][i % 2];
        let srqn = table.add_srq(me).unwrap();
        assert!(srqn.0 > 0 && srqn.0 < 1 << 24 && all.insert(srqn));
        assert_eq!(table.owner(srqn), Some(me));
    }
    assert_eq!(table.add_srq(a), None);
    let old = *all.iter().find(|n| table.owner(**n) == Some(a)).unwrap();
    table.remove_srq(b, old);
    assert_eq!(table.owner(old), Some(a), "not b's to remove");
    table.remove_srq(a, old);
    for _ in 0..100 {
        let new = table.add_srq(b).unwrap();
        assert_ne!(new, old);
        assert_eq!((table.owner(old), table.owner(new)), (None, Some(b)));
        table.remove_srq(b, new);
    }
    assert_eq!(table.owner(SrqNum(0)), None);
    assert_eq!(table.owner(SrqNum(Psn::MASK)), None);
}

#[test]
fn regions_are_found_by_owner_key_range_and_rights() {
    let words = Anonymous::default();
    let table = Table::on(words.words()).unwrap();
    let (a, b) = (table.join().unwrap(), table.join().unwrap());
    let (of_a, of_b) = (table.add_srq(a).unwrap(), table.add_srq(b).unwrap());
    // The same key in two processes names two regions.
    assert!(table.publish(a, &region(5, 1000, 100, 0)));
    assert!(table.publish(b, &region(5, 1000, 100, 4096)));
    assert!(table.publish(b, &region(6, 5000, 8, 64)));
    let at = |srqn, r: Reach| table.resolve(srqn, &r);
    assert_eq!(at(of_a, reach(5, 1010, 90)), Some(10));
    assert_eq!(at(of_b, reach(5, 1010, 90)), Some(4106));
    assert_eq!(at(of_b, reach(6, 5000, 8)), Some(64));
    assert_eq!(at(of_a, reach(6, 5000, 8)), None);
    assert_eq!(at(of_a, reach(5, 1010, 91)), None);
    assert_eq!(at(of_a, reach(5, 999, 1)), None);
    assert_eq!(at(of_a, reach(5, 1001, u64::MAX)), None);
    assert_eq!(at(SrqNum(77), reach(5, 1000, 1)), None);
    let reads = Reach {
        need: Access::REMOTE_READ,
        ..reach(5, 1000, 1)
    };
    assert_eq!(at(of_a, reads), None);
    assert!(table.withdraw(a, Rkey(5)) && !table.withdraw(a, Rkey(5)));
    assert_eq!(at(of_a, reach(5, 1010, 90)), None);
    assert_eq!(at(of_b, reach(5, 1010, 90)), Some(4106));
    let more = (0..).take_while(|i| table.publish(a, &region(100 + i, 0, 1, 0)));
    assert_eq!(more.count(), REGIONS);
}

/// Regions come and go while another member looks for them. It finds the whole of one or nothing,
/// and none that it found ends before its access is over.
#[test]
fn a_region_ends_when_nobody_uses_it() {
    const ROUNDS: u32 = 1000;
    let words = Anonymous::default();
    let table = Table::on(words.words()).unwrap();
    let (owner, user) = (table.join().unwrap(), table.join().unwrap());
    let srqn = table.add_srq(owner).unwrap();
    let current = AtomicU32::new(1);
    let ended = AtomicU32::new(0);
    let found = AtomicU32::new(0);
    let ending = AtomicU32::new(0);
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let user_thread = scope.spawn(|| {
            while !stop.load(Ordering::Relaxed) {
                let key = current.load(Ordering::Relaxed);
                table.enter(user);
                if let Some(at) = table.resolve(srqn, &reach(key, u64::from(key), 8)) {
                    found.fetch_add(1, Ordering::Relaxed);
                    assert_eq!(at, u64::from(key) * 3, "fields of two regions");
                    // In the rounds that wait for the user: until the owner is about to end it.
                    while key.is_multiple_of(50) && ending.load(Ordering::Relaxed) < key {
                        std::thread::yield_now();
                    }
                    for _ in 0..50 {
                        std::thread::yield_now();
                        let ended = ended.load(Ordering::Relaxed);
                        assert!(ended < key, "region {key} has ended under its user");
                    }
                }
                table.exit(user);
            }
        });
        for key in 1..=ROUNDS {
            let at = u64::from(key);
            assert!(table.publish(owner, &region(key, at, 8, at * 3)));
            current.store(key, Ordering::Relaxed);
            // Now and then the user has to have found it.
            let before = found.load(Ordering::Relaxed);
            while key.is_multiple_of(50)
                && found.load(Ordering::Relaxed) == before
                && !user_thread.is_finished()
            {
                std::thread::yield_now();
            }
            ending.store(key, Ordering::Relaxed);
            assert!(table.withdraw(owner, Rkey(key)));
            for (member, turns) in table.accessing() {
                while !table.has_moved_on(member, turns) {
                    std::thread::yield_now();
                }
            }
            ended.store(key, Ordering::Relaxed);
        }
        stop.store(true, Ordering::Relaxed);
    });
}
