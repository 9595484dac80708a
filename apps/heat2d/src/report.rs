//! What is printed at the end: text, or one JSON object.

use std::fmt::{self, Write as _};

use crate::blocks::Blocks;
use crate::options::{Options, Shape};
use crate::verify::Verified;

/// The same on all PEs.
#[derive(Clone, Debug)]
pub(crate) struct Report<'a> {
    pub(crate) options: &'a Options,
    pub(crate) blocks: Blocks,
    pub(crate) n_pes: usize,
    pub(crate) steps: u64,
    /// A step and its change.
    pub(crate) seen: u64,
    pub(crate) change: f64,
    /// Whether it has ended since that is small enough.
    pub(crate) converged: bool,
    /// Sum of all temperatures.
    pub(crate) heat: f64,
    pub(crate) seconds: f64,
    /// Bytes that were put in all steps, by all PEs.
    pub(crate) bytes: u64,
    /// Other PEs to which a PE puts, mean and most.
    pub(crate) peers: [f64; 2],
    /// Seconds that a plain loop nest took for the same blocks and steps, if it was timed.
    pub(crate) plain_seconds: Option<f64>,
    pub(crate) verified: Verified,
}

impl Report<'_> {
    /// Points that were computed in a second, by a PE that has a block.
    fn speed(&self, seconds: f64) -> f64 {
        let points = self.options.size.points() as f64 * self.steps as f64;
        points / seconds.max(1e-9) / self.blocks.count() as f64
    }

    /// One JSON object on one line. Names are those of the NAS benchmarks where these have the same.
    pub(crate) fn json(&self) -> String {
        let Shape { rows, cols } = self.options.size;
        let mut out = format!(
            "{{\"name\":\"heat2d\",\"size\":[{rows},{cols}],\"method\":\"{}\",\"iterations\":{},\"seconds\":{:?},\
             \"processes\":{},\"active_processes\":{},\"blocks\":[{},{}],\"converged\":{},\"tolerance\":{:?},\
             \"change\":{:?},\"change_of_step\":{},\"heat\":{:?},\"points_per_second\":{:?},\
             \"points_per_second_per_process\":{:?},\"bytes\":{},\"peers\":{:?},\"most_peers\":{:?}",
            self.options.method.name(),
            self.steps,
            self.seconds,
            self.n_pes,
            self.blocks.count(),
            self.blocks.down,
            self.blocks.across,
            self.converged,
            self.options.tolerance,
            self.change,
            self.seen,
            self.heat,
            self.speed(self.seconds) * self.blocks.count() as f64,
            self.speed(self.seconds),
            self.bytes,
            self.peers[0],
            self.peers[1],
        );
        if let Some(seconds) = self.plain_seconds {
            let speed = self.speed(seconds);
            let _ = write!(out, ",\"plain_points_per_second_per_process\":{speed:?}");
        }
        let _ = write!(
            out,
            ",\"verified\":true,\"verified_by\":\"{}\"}}",
            self.verified.name()
        );
        out
    }
}

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (options, blocks) = (self.options, self.blocks);
        let speed = |seconds| format!("{:.1} million points/s", self.speed(seconds) / 1e6);
        let end = if self.converged {
            "at most"
        } else {
            "more than"
        };
        let [mean, most] = self.peers;
        writeln!(
            f,
            "A plate of {} points, {}, on {} in {} x {} blocks",
            options.size,
            options.method.name(),
            count(self.n_pes, "PE"),
            blocks.down,
            blocks.across,
        )?;
        writeln!(f, "steps     {}", self.steps)?;
        writeln!(
            f,
            "change    {:.6e} in step {}, {end} {:?}",
            self.change, self.seen, options.tolerance
        )?;
        writeln!(f, "heat      {:.6}", self.heat)?;
        writeln!(f, "seconds   {:.6}", self.seconds)?;
        writeln!(f, "speed     {} of a PE", speed(self.seconds))?;
        if let Some(seconds) = self.plain_seconds {
            writeln!(
                f,
                "plain     {} of a PE, a plain loop nest without other PEs",
                speed(seconds)
            )?;
        }
        writeln!(
            f,
            "put       {} bytes, by a PE to {mean:.2} others, {most} at most",
            self.bytes
        )?;
        let verified = match self.verified {
            Verified::Serial => "the same as of a plain loop nest, to the last bit",
            Verified::Mode => "the mode has decayed as it should",
            Verified::Bounds => "no point is colder or hotter than edges and beginning",
        };
        writeln!(f, "verified  {verified}")
    }
}

/// "1 PE", "2 PEs".
fn count(n: usize, what: &str) -> String {
    format!("{n} {what}{}", if n == 1 { "" } else { "s" })
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[test]
    fn text_and_json_say_the_same() {
        let options = Options::parse_from(["heat2d", "10x20", "-e", "0.5"]);
        let report = Report {
            options: &options,
            blocks: Blocks::new(options.size, 4),
            n_pes: 4,
            steps: 100,
            seen: 96,
            change: 0.25,
            converged: true,
            heat: 1e3,
            seconds: 0.5,
            bytes: 640,
            peers: [1.5, 2.0],
            plain_seconds: Some(0.25),
            verified: Verified::Serial,
        };
        let text = report.to_string();
        for line in [
            "A plate of 10x20 points, red-black, on 4 PEs in ",
            "change    2.500000e-1 in step 96, at most 0.5\n",
            "put       640 bytes, by a PE to 1.50 others, 2 at most\n",
        ] {
            assert!(text.contains(line), "{text}");
        }
        let json = report.json();
        for part in [
            "{\"name\":\"heat2d\",\"size\":[10,20],\"method\":\"red-black\",\"iterations\":100,\"seconds\":0.5,",
            "\"converged\":true",
            "\"points_per_second\":40000.0,\"points_per_second_per_process\":10000.0",
            "\"plain_points_per_second_per_process\":20000.0,\"verified\":true,\"verified_by\":\"serial\"}",
        ] {
            assert!(json.contains(part), "{json}");
        }
    }
}
