//! Where a PE writes down what its threads wait for.
//!
//! Few threads of a PE wait at a time, and a wait may stand inside another (a barrier that needs a
//! connection), so there is room for a few notes. A thread takes a free one, writes, and shows it; the
//! count of changes, which is odd while a note is shown, tells a reader whether what it has read was one
//! note (a seqlock). Nobody waits for anybody: who finds no room is not told of.
//!
//! A file of its own because the model in `tests/loom` compiles it against loom's atomics.

use super::WORDS;
use crate::sync::{AtomicU32, AtomicU64, Ordering, fence};

/// How many waits of a PE are told at a time.
pub const WAITERS: usize = 4;

/// One wait.
#[repr(C, align(64))]
#[derive(Debug, Default)]
struct Note {
    /// Odd while what follows is shown.
    changes: AtomicU32,
    /// Whether a thread has it.
    taken: AtomicU32,
    /// When the wait began to be serious, by the machine's monotonic clock.
    since: AtomicU64,
    words: [AtomicU64; WORDS],
}

/// What the threads of a PE wait for. Zeroed memory is a PE that waits for nothing.
#[repr(C)]
#[derive(Debug, Default)]
pub struct Record {
    notes: [Note; WAITERS],
    /// When a wait ended last.
    ended: AtomicU64,
}

/// A note as a reader has found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// Since when.
    pub since: u64,
    /// For what: see [`Wait::decode`](super::Wait::decode).
    pub words: [u64; WORDS],
}

impl Record {
    /// Shows a wait that began at `now`; gives the number of its note, if there was room.
    pub fn begin(&self, now: u64, words: &[u64; WORDS]) -> Option<usize> {
        let at = self.notes.iter().position(|note| {
            // ORDERING(wait-note): after the last owner has hidden what it wrote.
            note.taken.load(Ordering::Relaxed) == 0
                && note
                    .taken
                    .compare_exchange(0, 1, Ordering::Acquire, Ordering::Relaxed)
                    .is_ok()
        })?;
        // ORDERING(wait-change): of `since`, which another thread may have hidden. See `hide`.
        fence(Ordering::Release);
        self.notes[at].since.store(now, Ordering::Relaxed);
        self.notes[at].show(words);
        Some(at)
    }

    /// Shows other words in a note that is shown.
    pub fn change(&self, note: usize, words: &[u64; WORDS]) {
        self.notes[note].hide();
        self.notes[note].show(words);
    }

    /// The wait of this note is over.
    pub fn end(&self, note: usize, now: u64) {
        self.ended.store(now, Ordering::Relaxed);
        self.notes[note].hide();
        // ORDERING(wait-note): pairs with `begin`.
        self.notes[note].taken.store(0, Ordering::Release);
    }

    /// What is shown at the moment, one wait inside another after it. Of those that began at one tick of the clock, notes
    /// in front come first, as the one that stands around another has taken its own before.
    pub fn read(&self) -> impl Iterator<Item = Seen> {
        let mut seen: Vec<Seen> = self.notes.iter().filter_map(Note::read).collect();
        seen.sort_by_key(|seen| seen.since);
        seen.into_iter()
    }

    /// When a wait ended last; 0 if none has.
    pub fn ended(&self) -> u64 {
        self.ended.load(Ordering::Relaxed)
    }
}

impl Note {
    /// For the owner, while it is hidden.
    fn show(&self, words: &[u64; WORDS]) {
        for (word, &value) in self.words.iter().zip(words) {
            word.store(value, Ordering::Relaxed);
        }
        let changes = self.changes.load(Ordering::Relaxed);
        // ORDERING(wait-words): the words come before the count that shows them.
        self.changes.store(changes | 1, Ordering::Release);
    }

    fn hide(&self) {
        let changes = self.changes.load(Ordering::Relaxed);
        // Even, and another one than ever before.
        self.changes
            .store((changes | 1).wrapping_add(1), Ordering::Relaxed);
        // ORDERING(wait-change): whoever reads a later word finds that the count has changed.
        fence(Ordering::Release);
    }

    fn read(&self) -> Option<Seen> {
        // ORDERING(wait-words): pairs with `show`.
        let changes = self.changes.load(Ordering::Acquire);
        if changes.is_multiple_of(2) {
            return None;
        }
        let seen = Seen {
            since: self.since.load(Ordering::Relaxed),
            words: std::array::from_fn(|i| self.words[i].load(Ordering::Relaxed)),
        };
        // ORDERING(wait-change): pairs with `hide`.
        fence(Ordering::Acquire);
        (self.changes.load(Ordering::Relaxed) == changes).then_some(seen)
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn words(value: u64) -> [u64; WORDS] {
        [value; WORDS]
    }

    #[test]
    fn waits_are_shown_while_they_last() {
        let record = Record::default();
        assert_eq!((record.read().count(), record.ended()), (0, 0));
        let outer = record.begin(5, &words(1)).unwrap();
        let inner = record.begin(9, &words(2)).unwrap();
        let seen = |since, value| Seen {
            since,
            words: words(value),
        };
        let shown = || record.read().collect::<Vec<_>>();
        assert_eq!(shown(), [seen(5, 1), seen(9, 2)]);
        record.change(inner, &words(3));
        assert_eq!(shown(), [seen(5, 1), seen(9, 3)]);
        record.end(inner, 20);
        assert_eq!((shown(), record.ended()), (vec![seen(5, 1)], 20));
        record.end(outer, 21);
        assert_eq!(record.read().count(), 0);
        let again = record.begin(30, &words(4)).unwrap();
        assert_eq!((again, shown()), (outer, vec![seen(30, 4)]));
    }

    #[test]
    fn who_finds_no_room_is_not_told_of() {
        let record = Record::default();
        let notes: Vec<_> = (0..=WAITERS as u64)
            .map(|i| record.begin(i, &words(i)))
            .collect();
        assert!(notes[..WAITERS].iter().all(Option::is_some));
        assert_eq!(notes[WAITERS], None);
        record.end(2, 9);
        assert_eq!(record.begin(9, &words(9)), Some(2));
    }

    /// Words of different notes are never read together.
    #[test]
    fn a_reader_sees_whole_notes() {
        let record = Record::default();
        let over = std::sync::atomic::AtomicBool::new(false);
        std::thread::scope(|s| {
            for thread in 0..2u64 {
                let (record, over) = (&record, &over);
                s.spawn(move || {
                    let mut value = thread;
                    while !over.load(Ordering::Relaxed) {
                        let note = record.begin(value, &words(value)).unwrap();
                        record.change(note, &words(value));
                        record.end(note, value);
                        value += 2;
                    }
                });
            }
            let mut found = 0;
            while found < 1000 {
                for seen in record.read() {
                    assert_eq!(seen.words, words(seen.since));
                    found += 1;
                }
            }
            over.store(true, Ordering::Relaxed);
        });
    }
}
