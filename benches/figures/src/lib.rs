//! The figures of the works that this runtime builds on, measured here, each beside what it is compared with there: all
//! in one list, run and drawn by one command.
//!
//! A figure has its jobs measured in turn in a [`sitting`], which keeps the samples; makes [`chart`]s of them; and says
//! of each number of the work what it is here, and what is different. A [`page`] has all of that.

pub mod axis;
pub mod chart;
pub mod data;
pub mod page;
pub mod plot;
pub mod sitting;
pub mod svg;
pub mod unit;
pub mod works;

mod applications;
mod caches;
mod collectives;
mod exchange;
mod init;
mod launch;
mod p2p;
mod peers;
mod programs;
mod scale;
mod store;
mod virtual_time;
mod xrc;

use std::io;

use chart::Chart;
use sitting::Sitting;
use works::Work;

/// A figure.
#[derive(Debug)]
pub struct Figure {
    /// What it is called on the command line and in files.
    pub name: &'static str,
    /// What it shows.
    pub title: &'static str,
    /// Which figures and tables of which works it repeats.
    pub of: &'static [(&'static Work, &'static str)],
    /// Whether it takes commands of rivals, and what these have to print.
    pub rivals: Option<&'static str>,
    /// Measures it.
    pub measure: fn(&mut Sitting<'_>) -> io::Result<Shown>,
}

/// What came of a figure.
#[derive(Debug, Default)]
pub struct Shown {
    /// To be drawn.
    pub charts: Vec<Chart>,
    /// To be set against the work.
    pub claims: Vec<Claim>,
}

/// What a work says, and what is so here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Claim {
    /// Where it says so.
    pub place: String,
    /// What it says.
    pub paper: String,
    /// What is so here.
    pub ours: String,
    /// What is different besides the machine.
    pub differs: String,
}

impl Claim {
    /// A claim beside what was measured; a dash if it was not.
    pub fn new(place: &str, paper: &str, ours: Option<String>, differs: &str) -> Self {
        Self {
            place: place.to_owned(),
            paper: paper.to_owned(),
            ours: ours.unwrap_or_else(|| "–".to_owned()),
            differs: differs.to_owned(),
        }
    }
}

/// All figures.
pub const FIGURES: &[Figure] = &[
    init::FIGURE,
    p2p::BETWEEN_NODES,
    collectives::FIGURE,
    applications::FIGURE,
    peers::FIGURE,
    exchange::FIGURE,
    virtual_time::FIGURE,
    scale::FIGURE,
    launch::FIGURE,
    store::FIGURE,
    caches::FIGURE,
    xrc::FIGURE,
    p2p::ON_ONE_NODE,
];

/// The figure of a name.
///
/// # Errors
/// Which there are.
pub fn find(name: &str) -> Result<&'static Figure, String> {
    let names = || {
        FIGURES
            .iter()
            .map(|f| f.name)
            .collect::<Vec<_>>()
            .join(", ")
    };
    let found = FIGURES.iter().find(|f| f.name == name);
    found.ok_or_else(|| format!("there are {}", names()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_have_names_of_their_own_that_are_good_for_files() {
        let names: std::collections::BTreeSet<&str> = FIGURES.iter().map(|f| f.name).collect();
        assert_eq!(names.len(), FIGURES.len());
        for figure in FIGURES {
            let good = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '-';
            assert!(figure.name.chars().all(good), "{}", figure.name);
            assert!(find(figure.name).is_ok_and(|found| found.title == figure.title));
        }
        assert!(find("none").is_err_and(|e| e.starts_with("there are init, ")));
    }

    #[test]
    fn every_work_has_a_figure() {
        for work in works::WORKS {
            let of = |f: &Figure| f.of.iter().any(|(of, _)| *of == work);
            assert!(FIGURES.iter().any(of), "{}", work.title);
        }
    }
}
