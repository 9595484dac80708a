//! Ranks of whole classes, on several PEs in one process.

use super::keys::{change, generate};
use super::params::{ITERATIONS, Params, TESTS};
use super::ranker::{Ranker, sizes};
use super::{opening, report};
use crate::class::Class;
use crate::cpu::Level;
use crate::exchange::model::Mailboxes;
use crate::options::Options;

/// Tested keys that were right in all iterations, and PEs whose keys were in order.
fn run(class: Class, n_pes: usize, level: Level) -> (u64, usize) {
    let params = Params::of(class).unwrap();
    let results = Mailboxes::new(n_pes, &sizes(&params, n_pes).slots()).run(|pe, mut mailbox| {
        let mut ranker = Ranker::new(params, pe, n_pes, level).unwrap();
        ranker.rank(1, &mut mailbox);
        let ranks = 1..=ITERATIONS;
        let right: u64 = ranks
            .map(|iteration| ranker.rank(iteration, &mut mailbox))
            .sum();
        (right, ranker.sorts(&mut mailbox).unwrap())
    });
    let right = results.iter().map(|(right, _)| right).sum();
    (right, results.iter().filter(|(_, sorted)| *sorted).count())
}

const ALL: u64 = TESTS as u64 * ITERATIONS as u64;

#[test]
fn class_s_verifies_on_any_number_of_pes() {
    for level in Level::supported() {
        for n_pes in [1, 2, 3, 4, 7, 13, 16] {
            assert_eq!(
                run(Class::S, n_pes, level),
                (ALL, n_pes),
                "{n_pes}, {level}"
            );
        }
    }
    assert_eq!(run(Class::S, 128, Level::best()), (ALL, 128));
}

#[test]
fn class_w_verifies() {
    for n_pes in [1, 2, 5] {
        assert_eq!(run(Class::W, n_pes, Level::best()), (ALL, n_pes), "{n_pes}");
    }
}

#[test]
fn a_key_that_is_not_as_it_should_be_is_found() {
    let params = Params::of(Class::S).unwrap();
    Mailboxes::new(2, &sizes(&params, 2).slots()).run(|pe, mut mailbox| {
        let mut ranker = Ranker::new(params, pe, 2, Level::best()).unwrap();
        // The ranks of another iteration.
        let right = ranker.rank(3, &mut mailbox);
        assert!(right < TESTS as u64);
    });
}

/// What is verified as a published number is also the number of smaller keys.
#[test]
fn published_ranks_are_ranks() {
    for class in [Class::S, Class::W, Class::A] {
        let params = Params::of(class).unwrap();
        let mut keys = generate(&params, 0..params.keys(), Level::best()).unwrap();
        for iteration in 1..=3 {
            change(&params, &mut keys, iteration);
            for (test, place) in params.tested().into_iter().enumerate() {
                let key = keys[place as usize];
                let smaller = keys.iter().filter(|other| **other < key).count() as u64;
                assert_eq!(
                    smaller,
                    params.rank(test, iteration),
                    "{class} {test} {iteration}"
                );
            }
        }
    }
}

#[test]
fn text_is_that_of_the_reference() {
    let options = Options::parse_from("IS", "test", ["npb-is", "W"]).unwrap();
    let params = Params::of(Class::W).unwrap();
    assert_eq!(
        opening(&params, 2),
        " Size:  1048576  (class W)\n Iterations:   10\n Number of processes:     2"
    );
    let good = report(&options, &params, 0.24, 2, [50.0, 2.0]);
    assert!(good.verification.successful());
    let text = good.to_string();
    for line in [
        " IS Benchmark Completed.",
        " Size            =                  1048576",
        " Iterations      =                       10",
        " Active processes=                        2",
        " Mop/s total     =                    43.69",
        " Operation type  =              keys ranked",
        " Verification    =               SUCCESSFUL",
    ] {
        assert!(
            text.lines().any(|l| l == line),
            "no line `{line}` in {text}"
        );
    }
    for right in [[49.0, 2.0], [50.0, 1.0]] {
        let bad = report(&options, &params, 0.24, 2, right);
        assert!(
            bad.to_string()
                .contains(" Verification    =             UNSUCCESSFUL\n")
        );
    }
}
