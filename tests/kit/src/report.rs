//! What `shmrun --report FILE.json` wrote.

use std::io;
use std::path::Path;

/// A figure over all PEs that reported.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct Figure {
    /// Smallest of a PE.
    pub min: f64,
    /// Mean over PEs.
    pub mean: f64,
    /// Largest of a PE.
    pub max: f64,
    /// Sum over PEs.
    pub sum: f64,
}

/// A report of a whole job.
#[derive(Debug, Clone)]
pub struct Report(String);

impl Report {
    /// Reads the file that `shmrun` wrote.
    ///
    /// # Errors
    /// If it cannot be read.
    pub fn read(file: &Path) -> io::Result<Self> {
        std::fs::read_to_string(file).map(Self)
    }

    /// How PEs were started.
    pub fn spawn(&self) -> Option<&str> {
        let (_, rest) = self.0.split_once("\"spawn\": \"")?;
        rest.split('"').next()
    }

    /// The figure called `name`, if there is one.
    pub fn find(&self, name: &str) -> Option<Figure> {
        // The report is ours: one figure is one object without objects in it.
        let start = self.0.find(&format!("{{\"name\": \"{name}\", \"unit\""))?;
        let object = self.0[start..].split_once('}')?.0;
        let value = |key: &str| -> Option<f64> {
            let (_, rest) = object.split_once(&format!("\"{key}\": "))?;
            rest.split(',').next()?.trim().parse().ok()
        };
        Some(Figure {
            min: value("min")?,
            mean: value("mean")?,
            max: value("max")?,
            sum: value("sum")?,
        })
    }

    /// Nanoseconds of processor time that all launch agents had.
    pub fn agents_cpu(&self) -> Option<f64> {
        let (_, rest) = self.0.split_once("\"agent_cpu_ns\": {")?;
        let (_, sum) = rest.split_once('}')?.0.split_once("\"sum\": ")?;
        sum.trim().parse().ok()
    }

    /// Nanoseconds of processor time that the processes of all PEs had, to their ends.
    pub fn processes_cpu(&self) -> Option<f64> {
        let (_, processes) = self.0.split_once("\"processes\": [")?;
        let times = |key: &str| -> Option<f64> {
            let each = processes.split(key).skip(1);
            each.map(|rest| rest.split(',').next()?.trim().parse::<f64>().ok())
                .sum()
        };
        Some(times("\"user_ns\": ")? + times("\"system_ns\": ")?)
    }

    /// The figure called `name`.
    ///
    /// # Panics
    /// If there is none.
    #[track_caller]
    pub fn figure(&self, name: &str) -> Figure {
        let found = self.find(name);
        found.unwrap_or_else(|| panic!("no figure {name:?} in {}", self.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_found_by_their_whole_name() {
        let json = "{\"figures\": [\n\
            {\"name\": \"queue pairs\", \"unit\": \"count\", \"min\": 1, \"mean\": 2.5, \"max\": 4, \"sum\": 10},\n\
            {\"name\": \"queue\", \"unit\": \"count\", \"min\": 0, \"mean\": 0, \"max\": 0, \"sum\": 0}\n]}";
        let report = Report(json.to_owned());
        let expected = Figure {
            min: 1.0,
            mean: 2.5,
            max: 4.0,
            sum: 10.0,
        };
        assert_eq!(report.figure("queue pairs"), expected);
        assert_eq!(report.figure("queue").sum, 0.0);
        assert_eq!(report.find("pairs"), None);
        let more = "\"agent_cpu_ns\": {\"min\": 1, \"sum\": 70}, \"processes\": [\n\
            {\"rank\": 0, \"status\": 0, \"user_ns\": 3, \"system_ns\": 2, \"peak_bytes\": 9},\n\
            {\"rank\": 1, \"status\": 0, \"user_ns\": 1, \"system_ns\": 0, \"peak_bytes\": 9}]";
        let more = Report(more.to_owned());
        assert_eq!(
            (more.agents_cpu(), more.processes_cpu()),
            (Some(70.0), Some(6.0))
        );
        let cut = "{\"name\": \"x\", \"unit\": \"count\", \"min\": 1";
        assert_eq!(Report(cut.to_owned()).find("x"), None);
    }
}
