//! The layouts that suites run on: how many PEs on how many nodes, with which settings.
//!
//! In every run that is a covering array of settings ([`settings`], [`covering`]) and the layouts with a star in
//! `named.txt`. `SHMEM_LAYOUTS` chooses others, of all suites:
//!
//! * `all`: the covering array, and every layout of `named.txt`;
//! * a number: the covering array of that seed, and the layouts with a star;
//! * names of `named.txt`, with commas between: those.
//!
//! A suite is divided into [`PARTS`] tests, so that they can run at the same time.

mod covering;
mod settings;

use std::fmt;

use shmem_testkit::Job;

use crate::programs::shmrun;

/// Into how many tests a suite is divided.
pub(crate) const PARTS: usize = 4;

/// The variable that chooses layouts.
const CHOSEN: &str = "SHMEM_LAYOUTS";

/// Options of `shmrun`, and settings.
#[derive(Clone)]
pub(crate) struct Layout {
    name: String,
    options: String,
    env: Vec<(String, String)>,
}

impl Layout {
    /// A job of `shmrun`.
    pub(crate) fn job(&self, program: &[&str]) -> Job {
        self.settings(shmrun(&self.options, program))
    }

    /// Options of `shmrun`.
    pub(crate) fn options(&self) -> &str {
        &self.options
    }

    /// A job with these settings.
    pub(crate) fn settings(&self, job: Job) -> Job {
        let free = shmem_testkit::ports::free_udp().to_string();
        let value = |value: &'_ str| match value {
            "free" => free.clone(),
            _ => value.to_owned(),
        };
        job.envs(self.env.iter().map(|(name, v)| (name.clone(), value(v))))
    }
}

/// As a shell would take it.
impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:", self.name)?;
        for (name, value) in &self.env {
            write!(f, " {name}={value}")?;
        }
        write!(f, " shmrun {}", self.options)
    }
}

/// Runs a suite on its layouts of one of the parts. A failure names the layout.
pub(crate) fn each(suite: &str, part: usize, mut run: impl FnMut(&Layout)) {
    /// Names the layout if the suite panics there.
    struct Here<'a>(&'a Layout);
    impl Drop for Here<'_> {
        fn drop(&mut self) {
            if std::thread::panicking() {
                eprintln!("this was layout {}", self.0);
            }
        }
    }
    let chosen = std::env::var(CHOSEN).unwrap_or_default();
    let layouts = layouts(suite, &chosen);
    if layouts.is_empty() {
        eprintln!("{CHOSEN}={chosen} names no layout of suite {suite}");
    }
    for layout in layouts.iter().skip(part).step_by(PARTS) {
        println!("layout {layout}");
        let _here = Here(layout);
        run(layout);
    }
}

/// The layouts of a suite, by the value of `SHMEM_LAYOUTS`.
fn layouts(suite: &str, chosen: &str) -> Vec<Layout> {
    let named = named(suite);
    let every_run = || {
        named
            .iter()
            .filter(|(_, always)| *always)
            .map(|(l, _)| l.clone())
    };
    let covers = |seed| match suite {
        "conformance" | "lives" => covering(seed),
        _ => Vec::new(),
    };
    if chosen == "all" {
        let all = named.iter().map(|(layout, _)| layout.clone());
        let mut covers = covers(0);
        for layout in &mut covers {
            let more = layout
                .options
                .replace(settings::FEW_ON_3, settings::MORE_ON_3);
            layout.options = more;
        }
        return covers.into_iter().chain(all).collect();
    }
    if chosen.is_empty() || chosen.bytes().all(|b| b.is_ascii_digit()) {
        let seed = match chosen {
            "" => 0,
            seed => seed.parse().expect("a seed in SHMEM_LAYOUTS"),
        };
        return covers(seed).into_iter().chain(every_run()).collect();
    }
    let wanted: Vec<_> = chosen.split(',').collect();
    for name in &wanted {
        let there = table().any(|row| row[0] == *name);
        assert!(
            there,
            "{CHOSEN}={chosen}: tests/jobs/layouts/named.txt has no {name}"
        );
    }
    let is_wanted = |layout: &Layout| wanted.contains(&&layout.name[..]);
    named
        .into_iter()
        .map(|(l, _)| l)
        .filter(is_wanted)
        .collect()
}

/// Rows of the table: name, options, suites, settings.
fn table() -> impl Iterator<Item = [&'static str; 4]> {
    let rows = include_str!("named.txt")
        .lines()
        .filter(|line| !line.starts_with('#'));
    rows.map(|row| {
        let fields: Vec<_> = row.split('|').map(str::trim).collect();
        fields
            .try_into()
            .unwrap_or_else(|_| panic!("four fields in {row}"))
    })
}

/// The layouts of the table that a suite runs on, and whether it does so in every run.
fn named(suite: &str) -> Vec<(Layout, bool)> {
    let mut found = Vec::new();
    for [name, options, suites, env] in table() {
        let Some(of) = suites.split(',').find(|s| s.trim_end_matches('*') == suite) else {
            continue;
        };
        let env = env.split(' ').filter(|word| *word != "-").map(|word| {
            let (name, value) = word.split_once('=').expect("NAME=VALUE");
            (name.to_owned(), value.to_owned())
        });
        let layout = Layout {
            name: name.to_owned(),
            options: options.to_owned(),
            env: env.collect(),
        };
        found.push((layout, of.ends_with('*')));
    }
    assert!(!found.is_empty(), "no layout is of suite {suite}");
    found
}

/// All pairs of settings, in a few layouts.
fn covering(seed: u64) -> Vec<Layout> {
    let counts: Vec<_> = settings::SETTINGS.iter().map(|s| s.values.len()).collect();
    let rows = covering::rows(&counts, settings::allowed, seed);
    let layout = |(at, row): (usize, Vec<usize>)| {
        let mut layout = Layout {
            name: format!("{at} of seed {seed}"),
            options: String::new(),
            env: Vec::new(),
        };
        for (setting, value) in settings::SETTINGS.iter().zip(row) {
            match setting.values[value].1 {
                settings::Choice::Options(words) => {
                    layout.options = format!("{} {words}", layout.options).trim().to_owned();
                }
                settings::Choice::Env(env) => {
                    let owned =
                        |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
                    layout.env.extend(env.iter().map(owned));
                }
            }
        }
        layout
    };
    rows.into_iter().enumerate().map(layout).collect()
}

#[test]
fn names_are_unique_and_suites_known() {
    let mut names: Vec<_> = table().map(|row| row[0]).collect();
    names.sort_unstable();
    let all = names.len();
    names.dedup();
    assert_eq!(names.len(), all);
    for [name, _, suites, _] in table() {
        for suite in suites.split(',') {
            let known = ["conformance", "few", "collectives", "lives", "c"];
            assert!(
                known.contains(&suite.trim_end_matches('*')),
                "{name}: {suite}"
            );
        }
    }
}

#[test]
fn layouts_are_chosen_by_seed_by_name_and_all() {
    let of = |chosen: &str| layouts("conformance", chosen).len();
    assert_eq!(layouts("conformance", "lossy").len(), 1);
    assert_eq!(layouts("c", "lossy,xrc_uneven").len(), 1);
    assert!(of("") == of("0") && of("all") > 3 * of(""));
    // Of all sizes: continuous integration takes one from the commit.
    for seed in (0..20).map(|n: u64| n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> (3 * n)) {
        let rows = covering(seed).len();
        assert!((9..=13).contains(&rows), "{rows} of seed {seed}");
    }
    let refused = std::panic::catch_unwind(|| layouts("conformance", "lossi"));
    assert!(refused.is_err());
}
