//! The command line, and what of it is refused before any work is done.

use std::path::PathBuf;
use std::str::FromStr;

use clap::{Parser, ValueEnum};

/// Heat in a plate, by many PEs: how it spreads until it hardly changes any more.
///
/// The plate's edges are held at a temperature: the middle third of the upper one at 550, the others at 0. Inside it
/// is cold in the beginning. In each step every point becomes the mean of its four neighbours, until the change is
/// small. PEs look at that every 32 steps, and know it 31 steps later.
#[derive(Clone, Debug, Parser)]
#[command(
    name = "heat2d",
    after_help = "\
Start it as a job: shmrun -n 4 heat2d 1000x1000
Exit status: 0 done and verified, 1 could not run, 2 wrong command line; a wrong result ends the job by a panic."
)]
pub(crate) struct Options {
    /// Points of the plate, without its edges
    #[arg(value_name = "HEIGHTxWIDTH", default_value = "32x48")]
    pub(crate) size: Shape,

    /// Most steps that are done
    #[arg(short, long, value_name = "N", default_value_t = 100_000)]
    #[arg(value_parser = clap::value_parser!(u64).range(1..1 << 40))]
    pub(crate) steps: u64,

    /// Change of a step at which it ends, the root of the sum of the squares of all points' changes; 0 goes on
    /// until nothing changes
    #[arg(short = 'e', long, value_name = "EPSILON", default_value = "5", value_parser = tolerance)]
    pub(crate) tolerance: f64,

    /// How the points of a step are computed
    #[arg(short, long, value_enum, default_value_t = Method::RedBlack)]
    pub(crate) method: Method,

    /// Begin with M times N half waves between cold edges, whose decay is known
    #[arg(long, value_name = "MxN")]
    pub(crate) mode: Option<Shape>,

    /// Write a picture of the plate at the end, as PNG
    #[arg(short, long, value_name = "FILE")]
    pub(crate) picture: Option<PathBuf>,

    /// Also time a plain loop nest over each PE's block, without other PEs, and print its speed
    #[arg(long)]
    pub(crate) plain: bool,

    /// Say each second how far it has come, on standard error; the default where that is a terminal, which it is
    /// not for a PE that shmrun has started
    #[arg(long)]
    pub(crate) progress: bool,

    /// Print one JSON object on one line instead of text
    #[arg(long)]
    pub(crate) json: bool,
}

/// How the points of a step are computed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Method {
    /// First the red points of a checkerboard, then the black ones from the new red ones (Gauss-Seidel): fewer
    /// steps, half as many in the long run, and half the memory
    RedBlack,
    /// All points from those of the step before
    Jacobi,
}

impl Method {
    /// As it is written on the command line.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::RedBlack => "red-black",
            Self::Jacobi => "jacobi",
        }
    }
}

/// Points in either direction: at least 1, and so few that their bytes can be counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shape {
    pub(crate) rows: usize,
    pub(crate) cols: usize,
}

impl Shape {
    pub(crate) fn points(self) -> usize {
        self.rows * self.cols
    }
}

impl FromStr for Shape {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Beyond, sums of squares over all points would not be exact any more.
        const MOST: usize = 1 << 48;
        let (rows, cols) = text
            .split_once(['x', 'X'])
            .ok_or("two numbers with an x between them are needed, such as 32x48")?;
        let number = |what: &str, text: &str| match text.parse::<usize>() {
            Ok(0) => Err(format!("the {what} is 0, and must be 1 or more")),
            Ok(n) => Ok(n),
            Err(e) => Err(format!("the {what} {text:?} is no number of points: {e}")),
        };
        let (rows, cols) = (number("height", rows)?, number("width", cols)?);
        match rows.checked_mul(cols) {
            Some(points) if points <= MOST => Ok(Self { rows, cols }),
            _ => Err(format!("{rows} times {cols} are more than 2^48 points")),
        }
    }
}

impl std::fmt::Display for Shape {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}x{}", self.rows, self.cols)
    }
}

fn tolerance(text: &str) -> Result<f64, String> {
    match text.parse::<f64>() {
        Ok(value) if value.is_finite() && value >= 0.0 => Ok(value),
        Ok(_) => Err("it must be 0 or more, and finite".to_owned()),
        Err(e) => Err(e.to_string()),
    }
}

impl Options {
    /// Parses the command line; the first argument is how the program was called.
    pub(crate) fn parse_all(
        args: impl IntoIterator<Item = std::ffi::OsString>,
    ) -> clap::error::Result<Self> {
        let options = Self::try_parse_from(args)?;
        let (size, wrong) = (options.size, |what: String| {
            use clap::{CommandFactory, error::ErrorKind};
            Self::command().error(ErrorKind::ValueValidation, what)
        });
        if let Some(mode) = options.mode
            && (mode.rows > size.rows || mode.cols > size.cols)
        {
            return Err(wrong(format!(
                "--mode {mode}: a plate of {size} points has at most as many half waves"
            )));
        }
        let most = (1 << 31) - 1; // of the format
        if options.picture.is_some() && size.rows.max(size.cols) > most {
            return Err(wrong(format!(
                "--picture: a PNG has at most {most} points in either direction, and the plate {size}"
            )));
        }
        Ok(options)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &str) -> Result<Options, String> {
        let args = std::iter::once("heat2d").chain(args.split_whitespace());
        Options::parse_all(args.map(Into::into)).map_err(|e| e.to_string())
    }

    #[test]
    fn all_have_defaults() {
        let options = parse("").unwrap();
        assert_eq!(options.size, Shape { rows: 32, cols: 48 });
        assert_eq!(options.method, Method::RedBlack);
        assert!(!options.plain && !options.json && options.mode.is_none());
    }

    #[test]
    fn what_is_given_is_taken() {
        let options = parse("7X9 -s 5 -e 0 -m jacobi --mode 7x1 -p a.png").unwrap();
        assert_eq!(options.size, Shape { rows: 7, cols: 9 });
        assert_eq!((options.steps, options.tolerance), (5, 0.0));
        assert_eq!(options.mode, Some(Shape { rows: 7, cols: 1 }));
        assert_eq!(options.picture, Some("a.png".into()));
        for method in [Method::RedBlack, Method::Jacobi] {
            assert_eq!(
                parse(&format!("-m {}", method.name())).unwrap().method,
                method
            );
        }
    }

    #[test]
    fn what_cannot_be_is_told() {
        for (args, said) in [
            ("48", "two numbers with an x between them"),
            ("0x5", "the height is 0"),
            ("5x0", "the width is 0"),
            ("5x-1", "the width \"-1\" is no number of points"),
            ("99999999999999999999x1", "too large"),
            ("4294967296x4294967296", "more than 2^48 points"),
            ("-s 0", "0 is not in 1.."),
            ("-e nan", "0 or more, and finite"),
            ("-e=-1", "0 or more, and finite"),
            ("-e cold", "invalid float"),
            ("-m sor", "possible values: red-black, jacobi"),
            ("4x4 --mode 5x1", "has at most as many half waves"),
            ("3000000000x1 -p a.png", "at most 2147483647 points"),
        ] {
            let error = parse(args).unwrap_err();
            assert!(error.contains(said), "{args}: {error}");
        }
    }
}
