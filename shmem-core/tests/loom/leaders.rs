//! Links between the leaders of nodes: meetings along the tree, and the trade of pieces in rounds.

use shmem_testkit::models::{model, noticed};

use crate::runtime::{Blocks, Layout, Runtime, job, slot_words};
use crate::sync::Ordering;
use crate::team::Team;

const SOURCE: usize = 4096;
const DEST: usize = 8192;
/// Of the block for each member.
const WORDS: usize = 5;

fn words() -> Vec<usize> {
    let arrays = (0..2 * WORDS).flat_map(|word| [SOURCE + 8 * word, DEST + 8 * word]);
    arrays.chain(slot_words()).collect()
}

fn all(rt: &Runtime) -> Team {
    Team {
        me: rt.me,
        n: rt.n_pes,
    }
}

/// Each writes to the next leader before they meet; three times, so that flags are overwritten.
fn meetings(n: usize) {
    job(n, Layout::Apart, &words(), |rt| {
        let team = all(rt);
        for round in 1..=3 {
            rt.put((rt.me + 1) % rt.n_pes, DEST + 8 * round, round as u64);
            rt.leaders_meet(&team);
            assert_eq!(rt.get(rt.me, DEST + 8 * round), round as u64);
        }
    });
}

#[test]
fn who_leaves_a_meeting_finds_what_others_wrote_before() {
    model(3, || meetings(2));
    model(1, || meetings(3));
    noticed(3, Ordering::Acquire, Ordering::Relaxed, || meetings(2));
    noticed(3, Ordering::Release, Ordering::Relaxed, || meetings(2));
}

/// Two leaders exchange as much as fills the staging room, of two pieces, twice over.
fn trades(times: u64) {
    const BYTES: usize = 8 * WORDS;
    let blocks = Blocks {
        count: 1,
        bytes: BYTES,
        dest_stride: BYTES,
        source_stride: BYTES,
    };
    job(2, Layout::Apart, &words(), move |rt| {
        let team = all(rt);
        let words = || (0..rt.n_pes).flat_map(|of| (0..WORDS).map(move |word| (of, word)));
        for time in 1..=times {
            let value = |from: usize, to: usize, word: usize| {
                time * 10_000 + (1000 * from + 100 * to + word) as u64
            };
            for (to, word) in words() {
                let at = SOURCE + to * BYTES + 8 * word;
                rt.put(rt.me, at, value(rt.me, to, word));
            }
            rt.leaders_exchange(&team, DEST, SOURCE, blocks);
            for (from, word) in words() {
                let at = DEST + from * BYTES + 8 * word;
                assert_eq!(rt.get(rt.me, at), value(from, rt.me, word));
            }
        }
    });
}

#[test]
fn no_piece_is_overwritten_before_it_was_taken() {
    model(2, || trades(1));
    model(0, || trades(2));
    noticed(1, Ordering::Acquire, Ordering::Relaxed, || trades(1));
    noticed(1, Ordering::Release, Ordering::Relaxed, || trades(1));
}
