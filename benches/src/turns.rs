//! What is compared is measured in turn: A B, B A, A B, and so on. So all see the same machine, drift and all, and none
//! gains by its place in a round.

use std::io;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Turns {
    /// Rounds; each runs every case once.
    pub rounds: usize,
    /// Whether there is a round before the first, of which nothing is kept: it fills caches, and faults pages in.
    pub warm_up: bool,
}

impl Turns {
    /// Runs the cases with these numbers. `one` is told the case, and the round whose sample it is: none when
    /// warming up.
    ///
    /// # Errors
    /// The first of `one`.
    pub fn run(
        self,
        cases: usize,
        mut one: impl FnMut(usize, Option<usize>) -> io::Result<()>,
    ) -> io::Result<()> {
        let rounds = (0..self.rounds).map(Some);
        for round in self.warm_up.then_some(None).into_iter().chain(rounds) {
            for at in 0..cases {
                one((round.unwrap_or(0) + at) % cases, round)?;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn order(rounds: usize, warm_up: bool, cases: usize) -> Vec<(usize, Option<usize>)> {
        let mut seen = Vec::new();
        let turns = Turns { rounds, warm_up };
        turns
            .run(cases, |case, round| {
                seen.push((case, round));
                Ok(())
            })
            .expect("nothing fails");
        seen
    }

    #[test]
    fn each_round_runs_all_and_another_first() {
        let [a, b] = [0, 1];
        let (first, second) = (Some(0), Some(1));
        let all = [
            (a, None),
            (b, None),
            (a, first),
            (b, first),
            (b, second),
            (a, second),
        ];
        assert_eq!(order(2, true, 2), all);
        assert_eq!(order(2, false, 2), all[2..]);
        assert_eq!(order(3, true, 0), []);
    }

    #[test]
    fn a_failure_ends_it() {
        let turns = Turns {
            rounds: 2,
            warm_up: false,
        };
        let mut calls = 0;
        let ended = turns.run(3, |_, _| {
            calls += 1;
            Err(io::Error::other("no"))
        });
        assert!(ended.is_err() && calls == 1);
    }
}
