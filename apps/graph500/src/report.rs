//! What the benchmark prints: the lines of the reference program, and the same as JSON with every single search.

use crate::format::{general, json};
use crate::search::Algorithm;
use crate::statistics::Statistics;
use std::fmt::{self, Write as _};

/// One search.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// Where it started.
    pub root: u32,
    /// How long it took on the slowest PE.
    pub seconds: f64,
    /// Edges of the part of the graph that it reached.
    pub nedge: u64,
    /// Vertices of each level.
    pub levels: Vec<u64>,
    /// Levels that were searched from below.
    pub from_below: usize,
    /// How long the validation took; none if there was none.
    pub validation: Option<f64>,
}

impl Run {
    /// Edges a second.
    #[must_use]
    pub fn teps(&self) -> f64 {
        self.nedge as f64 / self.seconds
    }
}

/// The results, the same on every PE.
#[derive(Clone, Debug, PartialEq)]
pub struct Report {
    /// The scale.
    pub scale: u32,
    /// Edges for each vertex.
    pub edge_factor: u64,
    /// PEs.
    pub n_pes: usize,
    /// Nodes.
    pub nodes: usize,
    /// How searches went.
    pub algorithm: Algorithm,
    /// Whether MPI was used, too.
    pub hybrid: bool,
    /// Seconds that it took to make the edges.
    pub generation: f64,
    /// Seconds of kernel 1.
    pub construction: f64,
    /// The searches; none if they were skipped.
    pub runs: Vec<Run>,
}

impl Report {
    fn statistics(&self, of: impl Fn(&Run) -> f64) -> Option<Statistics> {
        let numbers: Vec<f64> = self.runs.iter().map(of).collect();
        Statistics::of(&numbers)
    }

    fn times(&self) -> Option<Statistics> {
        self.statistics(|run| run.seconds)
    }

    fn edges(&self) -> Option<Statistics> {
        self.statistics(|run| run.nedge as f64)
    }

    fn rates(&self) -> Option<Statistics> {
        let seconds_per_edge = self.statistics(|run| 1.0 / run.teps());
        seconds_per_edge.map(|seconds| seconds.inverse(self.runs.len()))
    }

    /// Of validations; -1 for each that was skipped, as in the reference.
    fn validations(&self) -> Option<Statistics> {
        self.statistics(|run| run.validation.unwrap_or(-1.0))
    }

    /// One JSON object on one line.
    #[must_use]
    pub fn json(&self) -> String {
        let algorithm = match self.algorithm {
            Algorithm::TopDown => "top-down",
            Algorithm::DirectionOptimising => "direction-optimising",
        };
        let mut out = format!(
            "{{\"name\":\"graph500-bfs\",\"scale\":{},\"edgefactor\":{},\"nbfs\":{},\"pes\":{},\"nodes\":{},\
             \"algorithm\":\"{algorithm}\",\"hybrid\":{},\"graph_generation\":{},\"construction_time\":{}",
            self.scale,
            self.edge_factor,
            self.runs.len(),
            self.n_pes,
            self.nodes,
            self.hybrid,
            json(self.generation),
            json(self.construction),
        );
        let validated = self.runs.iter().all(|run| run.validation.is_some());
        let validations = self.validations().filter(|_| validated);
        for (name, statistics) in [
            ("time", self.times()),
            ("nedge", self.edges()),
            ("teps", self.rates()),
            ("validate", validations),
        ] {
            let Some(statistics) = statistics else {
                continue;
            };
            let _ = write!(out, ",\"{name}\":{{");
            for (i, (of, value)) in statistics.named().into_iter().enumerate() {
                let harmonic = if name == "teps" && matches!(of, "mean" | "stddev") {
                    "harmonic_"
                } else {
                    ""
                };
                let comma = if i > 0 { "," } else { "" };
                let _ = write!(out, "{comma}\"{harmonic}{of}\":{}", json(value));
            }
            out.push('}');
        }
        out.push_str(",\"runs\":[");
        for (i, run) in self.runs.iter().enumerate() {
            let comma = if i > 0 { "," } else { "" };
            // The debug form of integers is a JSON array.
            let _ = write!(
                out,
                "{comma}{{\"root\":{},\"seconds\":{},\"nedge\":{},\"teps\":{},\"levels\":{:?},\"from_below\":{},\
                 \"validate\":{}}}",
                run.root,
                json(run.seconds),
                run.nedge,
                json(run.teps()),
                run.levels,
                run.from_below,
                json(run.validation.unwrap_or(f64::NAN)),
            );
        }
        out.push_str("]}");
        out
    }
}

/// The lines of the reference program.
impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut line = |name: &str, value: &str| writeln!(f, "{name:<32}{value}");
        line("SCALE:", &self.scale.to_string())?;
        line("edgefactor:", &self.edge_factor.to_string())?;
        line("NBFS:", &self.runs.len().to_string())?;
        line("graph_generation:", &general(self.generation, 6))?;
        line("num_mpi_processes:", &self.n_pes.to_string())?;
        line("construction_time:", &general(self.construction, 6))?;
        for (kernel, name, digits, statistics) in [
            ("bfs  ", "time", 6, self.times()),
            ("", "nedge", 11, self.edges()),
            ("bfs  ", "TEPS", 6, self.rates()),
            ("bfs  ", "validate", 6, self.validations()),
        ] {
            for (of, value) in statistics.iter().flat_map(Statistics::named) {
                let value = general(value, digits);
                match (name, of) {
                    ("TEPS", "mean") => {
                        line("bfs  harmonic_mean_TEPS:     !", &value)?;
                    }
                    ("TEPS", "stddev") => line("bfs  harmonic_stddev_TEPS:", &value)?,
                    _ => line(&format!("{kernel}{of}_{name}:"), &value)?,
                }
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn report() -> Report {
        let run = |seconds, validation| Run {
            root: 7,
            seconds,
            nedge: 16239,
            levels: vec![1, 8],
            from_below: 1,
            validation,
        };
        Report {
            scale: 10,
            edge_factor: 16,
            n_pes: 3,
            nodes: 2,
            algorithm: Algorithm::DirectionOptimising,
            hybrid: false,
            generation: 0.5,
            construction: 0.25,
            runs: vec![run(0.001, Some(0.5)), run(0.002, None)],
        }
    }

    #[test]
    fn lines_are_those_of_the_reference() {
        assert_eq!(
            report().to_string(),
            "\
SCALE:                          10
edgefactor:                     16
NBFS:                           2
graph_generation:               0.5
num_mpi_processes:              3
construction_time:              0.25
bfs  min_time:                  0.001
bfs  firstquartile_time:        0.001
bfs  median_time:               0.0015
bfs  thirdquartile_time:        0.002
bfs  max_time:                  0.002
bfs  mean_time:                 0.0015
bfs  stddev_time:               0.000707107
min_nedge:                      16239
firstquartile_nedge:            16239
median_nedge:                   16239
thirdquartile_nedge:            16239
max_nedge:                      16239
mean_nedge:                     16239
stddev_nedge:                   0
bfs  min_TEPS:                  8.1195e+06
bfs  firstquartile_TEPS:        8.1195e+06
bfs  median_TEPS:               1.0826e+07
bfs  thirdquartile_TEPS:        1.6239e+07
bfs  max_TEPS:                  1.6239e+07
bfs  harmonic_mean_TEPS:     !  1.0826e+07
bfs  harmonic_stddev_TEPS:      5.10343e+06
bfs  min_validate:              -1
bfs  firstquartile_validate:    -1
bfs  median_validate:           -0.25
bfs  thirdquartile_validate:    0.5
bfs  max_validate:              0.5
bfs  mean_validate:             -0.25
bfs  stddev_validate:           1.06066
"
        );
    }

    #[test]
    fn json_has_every_search() {
        let text = report().json();
        assert!(
            text.starts_with(
                "{\"name\":\"graph500-bfs\",\"scale\":10,\"edgefactor\":16,\"nbfs\":2,"
            )
        );
        assert!(text.contains("\"algorithm\":\"direction-optimising\",\"hybrid\":false"));
        assert!(text.contains("\"teps\":{\"min\":81"));
        assert!(text.contains("\"harmonic_mean\":1082"));
        assert!(text.contains("\"levels\":[1, 8],\"from_below\":1,\"validate\":0.5}"));
        assert!(text.contains("\"validate\":null}]}"));
        assert!(!text.contains("\"validate\":{"), "not all were validated");
    }

    #[test]
    fn skipped_searches_have_no_statistics() {
        let report = Report {
            runs: Vec::new(),
            ..report()
        };
        assert_eq!(report.to_string().lines().count(), 6);
        assert!(
            report
                .json()
                .ends_with("\"construction_time\":0.25,\"runs\":[]}")
        );
    }
}
