//! The sitting in which a figure is measured: jobs of ours and of rivals in turn, samples kept as they come.

use std::collections::BTreeSet;
use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::process::Command;
use std::time::Duration;

use shmem_testkit::job;
use shmem_testkit::report::Report;
use shmem_testkit::samples::{Samples, quoted};
use shmem_testkit::{Job, Outcome};

use super::data::Data;
use super::unit::Unit;
use shmem_benches::cpu::{Whose, cpu_time};
use shmem_benches::memory::available_kib;
use shmem_benches::turns::Turns;

/// What holds for all figures.
#[derive(Debug, Clone)]
pub struct Options {
    /// Smaller sizes and fewer rounds.
    pub quick: bool,
    /// Rounds, if not those of the figure.
    pub rounds: Option<usize>,
    /// No larger numbers of PEs.
    pub most: Option<usize>,
    /// Commands of rivals.
    pub vs: Vec<String>,
    /// After which a job is ended.
    pub limit: Duration,
    /// Directory for results.
    pub out: PathBuf,
}

/// What is measured beside what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Case {
    /// Name of its series.
    pub name: String,
    settings: Vec<(&'static str, String)>,
    /// The command, if it is not `shmrun`'s.
    command: Option<String>,
    /// Whether there may be sizes at which it fails.
    may_fail: bool,
}

impl Case {
    /// Our own library under settings.
    pub fn ours(name: &str, settings: &[(&'static str, &str)]) -> Self {
        Self {
            name: name.to_owned(),
            settings: settings
                .iter()
                .map(|(n, v)| (*n, (*v).to_owned()))
                .collect(),
            command: None,
            may_fail: false,
        }
    }

    /// All connections in init, as libraries did before. It takes memory and time by the square of the job, so it may
    /// fail.
    pub fn fully_connected() -> Self {
        Self {
            may_fail: true,
            ..Self::ours(STATIC, &[("SHMEM_CONNECT", "static")])
        }
    }

    /// Connections when two PEs first talk.
    pub fn on_demand() -> Self {
        Self::ours(ON_DEMAND, &[("SHMEM_CONNECT", "ondemand")])
    }

    /// A program without a launcher.
    pub fn alone(name: &str) -> Self {
        Self::command(name, "'{program}' {arguments}")
    }

    /// A command of ours, for the shell.
    pub fn command(name: &str, command: &str) -> Self {
        Self {
            command: Some(command.to_owned()),
            ..Self::ours(name, &[])
        }
    }

    /// A command of somebody else's, for the shell; see [`Sitting::run`]. It goes by a name that stands before it with a
    /// colon and a space, or else by itself.
    pub fn rival(text: &str) -> Self {
        let (name, command) = text.split_once(": ").unwrap_or((text, text));
        Self {
            may_fail: true,
            ..Self::command(name, command)
        }
    }
}

/// Name of the series whose PEs are all connected in init.
pub const STATIC: &str = "static";
/// Name of that whose PEs connect when they first talk.
pub const ON_DEMAND: &str = "on demand";

/// A job: a program that was built with this one, and where its PEs are.
#[derive(Debug, Clone)]
pub struct Launch<'a> {
    /// PEs.
    pub pes: usize,
    /// Emulated nodes.
    pub nodes: usize,
    /// The program.
    pub program: &'a str,
    /// Its arguments.
    pub arguments: String,
}

/// A job that ended well.
#[derive(Debug)]
pub struct Ran {
    /// Seconds from the start to the end of the launcher.
    pub wall: f64,
    /// Seconds that all its processes had of processors.
    pub cpu: f64,
    /// What it said.
    pub stdout: String,
    /// What `shmrun` counted; nobody else counts.
    pub report: Option<Report>,
}

impl Ran {
    /// The mean over PEs of a figure of the report, in base units.
    pub fn mean(&self, name: &str) -> Option<f64> {
        Some(self.report.as_ref()?.find(name)?.mean)
    }

    /// The same of a time, in seconds.
    pub fn seconds(&self, name: &str) -> Option<f64> {
        self.mean(name).map(|ns| ns / 1e9)
    }
}

/// A sample: at which place, of what, and the value.
pub type Sample = (String, String, f64);

/// The sitting of one figure.
#[derive(Debug)]
pub struct Sitting<'a> {
    /// What holds for all.
    pub options: &'a Options,
    /// What has been measured.
    pub data: Data,
    /// What was left out, and why.
    pub notes: Vec<String>,
    /// The most rounds of anything so far.
    pub rounds: usize,
    file: Samples<File>,
    /// Cases that have failed, and will not be tried again.
    failed: BTreeSet<String>,
}

impl<'a> Sitting<'a> {
    /// Begins one, with the file of its samples.
    ///
    /// # Errors
    /// If that cannot be written.
    pub fn begin(figure: &str, options: &'a Options) -> io::Result<Self> {
        std::fs::create_dir_all(&options.out)?;
        let file = File::create(options.out.join(format!("{figure}.jsonl")))?;
        let mut file = Samples::begin(file)?;
        file.add(&[("figure", &quoted(figure)), ("quick", &options.quick)])?;
        Ok(Self {
            options,
            data: Data::default(),
            notes: Vec::new(),
            rounds: 0,
            file,
            failed: BTreeSet::new(),
        })
    }

    /// One of two, by how much time there is.
    pub fn by_time<T>(&self, quick: T, full: T) -> T {
        if self.options.quick { quick } else { full }
    }

    /// Numbers of PEs, at most as many as are allowed; these if all were more.
    pub fn sizes(&self, quick: &[usize], full: &[usize]) -> Vec<usize> {
        let all = self.by_time(quick, full);
        let most = self.options.most.unwrap_or(usize::MAX);
        match all
            .iter()
            .copied()
            .filter(|&n| n <= most)
            .collect::<Vec<_>>()
        {
            none if none.is_empty() => vec![most],
            some => some,
        }
    }

    /// A rival for each command that was given.
    pub fn rivals(&self) -> impl Iterator<Item = Case> {
        self.options.vs.iter().map(|command| Case::rival(command))
    }

    /// The cases, and the rivals.
    pub fn with_rivals(&self, ours: impl IntoIterator<Item = Case>) -> Vec<Case> {
        ours.into_iter().chain(self.rivals()).collect()
    }

    /// Measures the cases in turn. A case that may fail, and does, is not tried any more, and a note says why.
    ///
    /// # Errors
    /// Another case fails, or samples cannot be written.
    pub fn turns(
        &mut self,
        cases: &[Case],
        rounds: usize,
        one: impl FnMut(&Self, &Case) -> io::Result<Vec<Sample>>,
    ) -> io::Result<()> {
        let turns = Turns {
            rounds: self.options.rounds.unwrap_or(rounds),
            warm_up: true,
        };
        self.measure(cases, turns, one)
    }

    /// The same once, of what is counted: it does not change from round to round.
    ///
    /// # Errors
    /// As [`Sitting::turns`].
    pub fn once(
        &mut self,
        cases: &[Case],
        one: impl FnMut(&Self, &Case) -> io::Result<Vec<Sample>>,
    ) -> io::Result<()> {
        let turns = Turns {
            rounds: 1,
            warm_up: false,
        };
        self.measure(cases, turns, one)
    }

    fn measure(
        &mut self,
        cases: &[Case],
        turns: Turns,
        mut one: impl FnMut(&Self, &Case) -> io::Result<Vec<Sample>>,
    ) -> io::Result<()> {
        self.rounds = self.rounds.max(turns.rounds);
        turns.run(cases.len(), |case, round| {
            let case = &cases[case];
            if self.failed.contains(&case.name) {
                return Ok(());
            }
            let samples = match one(self, case) {
                Ok(samples) => samples,
                Err(e) if case.may_fail => {
                    self.leave_out(&case.name, &e.to_string());
                    return Ok(());
                }
                Err(e) => return Err(e),
            };
            let Some(round) = round else { return Ok(()) };
            for (place, quantity, value) in samples {
                self.keep(&case.name, &place, &quantity, round, value)?;
            }
            Ok(())
        })
    }

    /// Keeps what is no matter of turns: a count, or a time that is computed.
    ///
    /// # Errors
    /// If it cannot be written.
    pub fn keep(
        &mut self,
        series: &str,
        place: &str,
        quantity: &str,
        round: usize,
        value: f64,
    ) -> io::Result<()> {
        self.file.add(&[
            ("series", &quoted(series)),
            ("place", &quoted(place)),
            ("quantity", &quoted(quantity)),
            ("round", &round),
            ("value", &value),
        ])?;
        self.data.add(series, place, quantity, value);
        Ok(())
    }

    /// Does not try a case any more.
    pub fn leave_out(&mut self, case: &str, why: &str) {
        let why = why.lines().take(3).collect::<Vec<_>>().join(" ");
        eprintln!("figures: {case} is left out from here on: {why}");
        self.notes
            .push(format!("`{case}` is left out from here on: {why}"));
        self.failed.insert(case.to_owned());
    }

    /// Runs a job. In a rival's command `{n}`, `{nodes}`, `{program}` and `{arguments}` stand for those of the job.
    ///
    /// # Errors
    /// If the job fails, or has not ended in time.
    pub fn run(&self, case: &Case, launch: &Launch<'_>) -> io::Result<Ran> {
        let Launch {
            pes,
            nodes,
            program,
            arguments,
        } = launch;
        let program = job::built(program)?;
        let shown = program.to_string_lossy();
        let layout = format!("-n {pes} --nodes {nodes}");
        let job = match &case.command {
            None => {
                let words: Vec<&str> = std::iter::once(&*shown)
                    .chain(arguments.split_whitespace())
                    .collect();
                Job::reported(job::built("shmrun")?, &layout, &words)
            }
            Some(line) => {
                let line = line
                    .replace("{nodes}", &nodes.to_string())
                    .replace("{n}", &pes.to_string())
                    .replace("{program}", &shown)
                    .replace("{arguments}", arguments);
                let mut command = Command::new("/bin/sh");
                command.arg("-c").arg(line);
                Job::of(command)
            }
        };
        let settings = case.settings.iter().map(|(name, value)| (name, value));
        let before = cpu_time(Whose::Children);
        let ended = job.envs(settings).run_within(self.options.limit);
        let cpu = cpu_time(Whose::Children) - before;
        let ended = ended.well().map_err(|e| {
            io::Error::other(format!(
                "{} {pes} PEs on {nodes} nodes, {}: {e}",
                launch.program, case.name
            ))
        })?;
        let Outcome {
            took,
            stdout,
            report,
            ..
        } = ended;
        Ok(Ran {
            wall: took.as_secs_f64(),
            cpu: cpu.as_secs_f64(),
            stdout,
            report,
        })
    }

    /// Leaves out the fully connected case where `factor` times the PEs would take more memory than there is, or more
    /// time than a job may take: both grow by the square.
    pub fn mind_the_square(&mut self, bytes: f64, wall: f64, factor: f64) {
        let square = factor * factor;
        let there = available_kib() as f64 * 1024.0 * 0.7;
        let [needed, there, long] = [bytes * square, there, wall * square];
        let why = if needed > there {
            let [needed, there] = [needed, there].map(|bytes| Unit::Bytes.show(bytes));
            format!("it would take about {needed} of memory, and {there} may be taken")
        } else if long > self.options.limit.as_secs_f64() {
            format!("a job would take about {}", Unit::Seconds.show(long))
        } else {
            return;
        };
        if !self.failed.contains(STATIC) {
            self.leave_out(STATIC, &why);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rivals_go_by_a_name_or_by_their_command() {
        let of = |text| {
            let case = Case::rival(text);
            (case.name, case.command.expect("it has one"))
        };
        let pair = |a: &str, b: &str| (a.to_owned(), b.to_owned());
        assert_eq!(of("Hydra: mpiexec {n}"), pair("Hydra", "mpiexec {n}"));
        assert_eq!(of("A=b:c x"), pair("A=b:c x", "A=b:c x"));
    }
}
