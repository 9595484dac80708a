//! The command line, and the environment variables that the reference program has.

use crate::generator::SCALES;
use crate::golden;
use crate::roots;
use crate::search::Algorithm;
use clap::Parser;
use clap::error::ErrorKind;
use std::ffi::OsString;
use std::path::PathBuf;

/// The Graph500 benchmark 3.0, breadth-first search, over OpenSHMEM
#[derive(Clone, Debug, Parser)]
#[command(name = "graph500", after_help = AFTER_HELP)]
pub struct Options {
    /// Vertices of the graph, as a power of two
    #[arg(value_name = "SCALE", value_parser = clap::value_parser!(u32).range(scales()))]
    pub scale: u32,

    /// Edges for each vertex
    #[arg(value_name = "EDGEFACTOR", default_value_t = 16, value_parser = clap::value_parser!(u64).range(1..=1024))]
    pub edge_factor: u64,

    /// Searches, each from another root
    #[arg(long, value_name = "N", default_value_t = roots::NUMBER as u32, value_parser = clap::value_parser!(u32).range(1..=65536))]
    pub roots: u32,

    /// How to search
    #[arg(long, value_enum, default_value_t = Algorithm::DirectionOptimising)]
    pub algorithm: Algorithm,

    /// Take MPI's collectives for what OpenSHMEM has no routines for; libmpi is looked for when the program starts
    #[arg(long)]
    pub hybrid: bool,

    /// Write the results, with every search, as one JSON object to a file; `-` is standard output, without the text
    #[arg(long, value_name = "FILE")]
    pub json: Option<PathBuf>,

    /// Compare edges, roots and levels with values of the reference, which are known of SCALE 10, 14, 16 and 18
    #[arg(long)]
    pub check: bool,

    /// Say what goes on only when something is wrong
    #[arg(long, short)]
    pub quiet: bool,

    /// Build the graph, and search nothing (`SKIP_BFS`)
    #[arg(skip)]
    pub skip_searches: bool,

    /// Do not validate (`SKIP_VALIDATION`)
    #[arg(skip)]
    pub skip_validation: bool,
}

const AFTER_HELP: &str = "\
Start it as a job: shmrun -n 4 graph500 20
Variables of the reference program: with SKIP_VALIDATION set results are not validated, with SKIP_BFS the graph is built and
not searched. What does not fit into the symmetric heap or into memory is told before anything is made.
Exit status: 0 valid results, 1 wrong results or it could not run, 2 wrong command line.";

fn scales() -> std::ops::RangeInclusive<i64> {
    i64::from(*SCALES.start())..=i64::from(*SCALES.end())
}

impl Options {
    /// Of a command line, the first word of which is how the program was called, and an environment.
    ///
    /// # Errors
    /// What is wrong with it, or the help text if that was asked for.
    pub fn from(
        args: impl IntoIterator<Item = OsString>,
        is_set: impl Fn(&str) -> bool,
    ) -> clap::error::Result<Self> {
        let mut options = Self::try_parse_from(args)?;
        if options.check && golden::of(options.scale, options.edge_factor).is_none() {
            let command = <Self as clap::CommandFactory>::command();
            return Err(command.clone().error(
                ErrorKind::ArgumentConflict,
                "--check knows SCALE 10, 14, 16 and 18 with an edge factor of 16",
            ));
        }
        options.skip_searches = is_set("SKIP_BFS");
        options.skip_validation = is_set("SKIP_VALIDATION");
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Options, String> {
        let words = line.split_whitespace().map(OsString::from);
        let args = std::iter::once("graph500".into()).chain(words);
        Options::from(args, |name| name == "SKIP_BFS").map_err(|error| error.to_string())
    }

    #[test]
    fn arguments_are_those_of_the_reference() {
        let options = parse("14").unwrap();
        assert_eq!((options.scale, options.edge_factor), (14, 16));
        assert_eq!(options.roots, 64);
        assert_eq!(options.algorithm, Algorithm::DirectionOptimising);
        assert!(options.skip_searches && !options.skip_validation);
        let options = parse("14 8 --roots 3 --algorithm top-down --json out").unwrap();
        assert_eq!((options.edge_factor, options.roots), (8, 3));
        assert_eq!(options.algorithm, Algorithm::TopDown);
    }

    #[test]
    fn errors_say_what_was_wrong() {
        for (line, message) in [
            ("", "<SCALE>"),
            ("0", "0 is not in 1..=31"),
            ("32", "32 is not in 1..=31"),
            ("x", "invalid digit"),
            ("10 0", "0 is not in 1..=1024"),
            ("10 16 3", "unexpected argument '3'"),
            ("10 --roots 0", "0 is not in 1..=65536"),
            ("10 --algorithm dfs", "top-down, direction-optimising"),
            ("11 --check", "--check knows SCALE 10"),
            ("10 8 --check", "--check knows SCALE 10"),
        ] {
            let error = parse(line).unwrap_err();
            assert!(error.contains(message), "{line}: {error}");
        }
    }
}
