//! What PEs say alike is told once, with how often it was said.
//!
//! When a program fails, it often fails on all PEs at once and in the same words. Every agent, and the
//! launcher, remembers what has passed through it: what is new goes on at once, what is not is counted,
//! and the counts go up when the subtree's PEs have ended. So however many fail, few messages travel,
//! and the first is out at once.

use std::borrow::Cow;
use std::collections::HashMap;
use std::fmt;

use serde::{Deserialize, Serialize};

/// Bytes of texts that are remembered. What comes after is told each time.
const REMEMBERED: usize = 256 << 10;
/// What remembering costs beside the text.
const OVERHEAD: usize = 128;

/// Longest beginning of a text that stands for it, in characters.
const EXCERPT: usize = 100;

/// What a PE has said to the user.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Notice {
    /// Its rank; of several, that of one of them.
    pub rank: u32,
    /// Its node.
    pub node: u32,
    /// How often it was said.
    pub count: u64,
    /// Whether it only adds to what was said before: then it is told once and not counted.
    pub adds: bool,
    /// The words.
    pub text: String,
}

impl Notice {
    /// The words, with who says them; `hosts` are the names of the nodes' hosts, if they have their own.
    pub fn line(&self, hosts: &[String]) -> impl fmt::Display {
        let (rank, node) = (self.rank, self.node);
        let host = hosts.get(node as usize);
        let host = host.map_or_else(String::new, |host| format!(", {host}"));
        let text = self.text.trim_end();
        format!("PE {rank} (node {node}{host}): {text}")
    }

    /// The words without the number of the PE that says them, by which texts of several PEs are compared.
    fn key(&self) -> Cow<'_, str> {
        let own = format!("PE {}", self.rank);
        let is_whole = |at: usize| {
            let [before, behind] = [&self.text[..at], &self.text[at + own.len()..]];
            !before.ends_with(char::is_alphanumeric)
                && !behind.starts_with(|c: char| c.is_ascii_digit())
        };
        let mut key = Cow::Borrowed(&self.text[..]);
        let all: Vec<usize> = self.text.match_indices(&own).map(|(at, _)| at).collect();
        for at in all.into_iter().rev().filter(|&at| is_whole(at)) {
            key.to_mut().replace_range(at..at + own.len(), "PE \0");
        }
        key
    }

    /// How often other PEs said the same, where the number of this PE shows which text that is.
    pub fn repetition(&self) -> String {
        let (count, rank) = (self.count, self.rank);
        let says = if count == 1 { "says" } else { "say" };
        format!("{count} more {says} the same as PE {rank}")
    }

    /// How often other PEs said the same, with the beginning of the text.
    pub fn repetition_with_excerpt(&self) -> String {
        let first = self.text.lines().next().unwrap_or_default();
        let excerpt: String = first.chars().take(EXCERPT).collect();
        let rest = if excerpt.len() < self.text.trim_end().len() {
            " ..."
        } else {
            ""
        };
        format!("{}: {excerpt}{rest}", self.repetition())
    }
}

/// What has been told so far.
#[derive(Debug, Default)]
pub struct Repeats {
    known: Vec<Notice>,
    by_key: HashMap<String, usize>,
    bytes: usize,
    /// Whether a notice came for which there was no room.
    is_full: bool,
}

/// What becomes of something that was told.
#[derive(Debug, PartialEq, Eq)]
pub enum Passed {
    /// It is new, and goes on.
    On(Notice),
    /// It was counted.
    Counted,
    /// Nothing more can be remembered. It goes on, however often it comes.
    Unknown(Notice),
}

impl Repeats {
    /// Takes note of something that was told.
    pub fn add(&mut self, notice: Notice) -> Passed {
        let key = notice.key();
        // The number may be the PE's own by chance, as in the same words of another one.
        let known = [&*key, &notice.text]
            .into_iter()
            .find_map(|key| self.by_key.get(key));
        if let Some(&at) = known {
            let known = &mut self.known[at];
            if !known.adds {
                known.count = known.count.saturating_add(notice.count);
            }
            return Passed::Counted;
        }
        let keys = match key {
            Cow::Borrowed(_) => vec![notice.text.clone()],
            Cow::Owned(key) => vec![key, notice.text.clone()],
        };
        let bytes = (1 + keys.len()) * notice.text.len() + OVERHEAD;
        if self.bytes + bytes > REMEMBERED {
            self.is_full = true;
            return Passed::Unknown(notice);
        }
        self.bytes += bytes;
        let at = self.known.len();
        self.by_key.extend(keys.into_iter().map(|key| (key, at)));
        // Once is what is told now.
        let count = notice.count.saturating_sub(1);
        self.known.push(Notice {
            count,
            ..notice.clone()
        });
        Passed::On(Notice { count: 1, ..notice })
    }

    /// Whether the PE has told one text only, which its number then stands for.
    pub fn told_one(&self, rank: u32) -> bool {
        let texts = self.known.iter().filter(|n| n.rank == rank && !n.adds);
        !self.is_full && texts.count() == 1
    }

    /// What was said again since it was told, in the order in which it was first said.
    pub fn take_counts(&mut self) -> Vec<Notice> {
        let again = self.known.iter_mut().filter(|known| known.count > 0);
        let taken = again.map(|known| Notice {
            count: std::mem::take(&mut known.count),
            ..known.clone()
        });
        taken.collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn notice(rank: u32, text: &str) -> Notice {
        Notice {
            rank,
            node: rank / 2,
            count: 1,
            adds: false,
            text: text.into(),
        }
    }

    #[test]
    fn equal_words_pass_once_and_are_counted() {
        let mut fold = Repeats::default();
        assert_eq!(fold.add(notice(3, "ouch")), Passed::On(notice(3, "ouch")));
        for rank in 4..10 {
            assert_eq!(fold.add(notice(rank, "ouch")), Passed::Counted);
        }
        assert_eq!(fold.add(notice(5, "oh")), Passed::On(notice(5, "oh")));
        let added = |rank| Notice {
            adds: true,
            ..notice(rank, "stack")
        };
        assert_eq!(fold.add(added(1)), Passed::On(added(1)));
        assert_eq!(fold.add(added(2)), Passed::Counted);
        let six = Notice {
            count: 6,
            ..notice(3, "ouch")
        };
        assert_eq!(fold.take_counts(), [six]);
        assert_eq!(fold.take_counts(), []);
        assert!(fold.told_one(3) && fold.told_one(5) && !fold.told_one(1));
        fold.add(notice(3, "another"));
        assert!(!fold.told_one(3));
    }

    #[test]
    fn words_that_differ_in_the_pes_own_number_are_equal() {
        let mut fold = Repeats::default();
        let of = |rank: u32, lost: u32| {
            notice(
                rank,
                &format!("PE {rank} initialises, but PE {lost} has ended (PE {rank})"),
            )
        };
        assert_eq!(fold.add(of(97, 5)), Passed::On(of(97, 5)));
        assert_eq!(fold.add(of(9, 5)), Passed::Counted);
        assert_eq!(fold.add(of(5, 7)), Passed::On(of(5, 7)));
        // Another PE's number is another text, if it begins alike, too.
        assert_eq!(
            fold.add(notice(9, "PE 97 is gone")),
            Passed::On(notice(9, "PE 97 is gone"))
        );
        assert_eq!(fold.add(notice(1, "PE 97 is gone")), Passed::Counted);
        let [known, other, ..] = &fold.take_counts()[..] else {
            panic!()
        };
        assert_eq!((known.count, known.rank), (1, 97));
        assert_eq!((other.count, other.rank), (1, 9));
    }

    #[test]
    fn the_same_words_are_equal_for_the_pe_that_they_name() {
        for [first, second] in [[0, 39], [39, 0]] {
            let mut fold = Repeats::default();
            let words = "PE 0 has had enough";
            let new = Passed::On(notice(first, words));
            assert_eq!(fold.add(notice(first, words)), new);
            assert_eq!(fold.add(notice(second, words)), Passed::Counted);
            assert_eq!(fold.add(notice(7, words)), Passed::Counted);
        }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut fold = Repeats::default();
        let text = |i: usize| format!("{i} {}", "x".repeat(1000));
        let unknown = (0..10_000).filter(|&i| {
            let passed = fold.add(notice(0, &text(i)));
            matches!(passed, Passed::Unknown(_))
        });
        assert!(unknown.count() > 9_000);
        assert_eq!(fold.add(notice(1, &text(0))), Passed::Counted);
        assert!(fold.bytes <= REMEMBERED);
    }

    #[test]
    fn lines_say_who_and_how_often() {
        let t = notice(3, "it\nhurts\n");
        assert_eq!(t.line(&[]).to_string(), "PE 3 (node 1): it\nhurts");
        let hosts = ["a".into(), "b".into()];
        assert_eq!(t.line(&hosts).to_string(), "PE 3 (node 1, b): it\nhurts");
        let again = t.repetition_with_excerpt();
        assert_eq!(again, "1 more says the same as PE 3: it ...");
        let many = Notice {
            count: 8191,
            ..notice(0, "no")
        };
        let excerpt = many.repetition_with_excerpt();
        assert_eq!(excerpt, "8191 more say the same as PE 0: no");
        assert_eq!(many.repetition(), "8191 more say the same as PE 0");
    }

    proptest! {
        /// Whatever the tree, nothing is lost: what the root has told and counted is what was said.
        #[test]
        fn a_tree_of_folds_counts_all(said in proptest::collection::vec((0usize..7, 0u32..4), 0..60)) {
            // Of seven agents, each is the parent of two.
            let mut folds: Vec<Repeats> = (0..7).map(|_| Repeats::default()).collect();
            let (mut told_at_all, mut shown) = (HashMap::<String, u64>::new(), HashMap::<String, u64>::new());
            fn up(folds: &mut [Repeats], at: usize, notice: Notice, shown: &mut HashMap<String, u64>) {
                if let Passed::On(notice) = folds[at].add(notice) {
                    match at {
                        0 => *shown.entry(notice.text).or_default() += notice.count,
                        _ => up(folds, (at - 1) / 2, notice, shown),
                    }
                }
            }
            for (at, what) in said {
                let text = format!("words {what}");
                *told_at_all.entry(text.clone()).or_default() += 1;
                up(&mut folds, at, notice(at as u32, &text), &mut shown);
            }
            prop_assert_eq!(shown.values().filter(|n| **n != 1).count(), 0);
            for at in (1..7).rev() {
                for notice in folds[at].take_counts() {
                    up(&mut folds, (at - 1) / 2, notice, &mut shown);
                }
            }
            for notice in folds[0].take_counts() {
                *shown.entry(notice.text).or_default() += notice.count;
            }
            prop_assert_eq!(shown, told_at_all);
        }
    }
}
