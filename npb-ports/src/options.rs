//! The options that all benchmarks have, and their help.

use crate::class::Class;
use crate::cpu::Level;
use clap::error::ErrorKind;
use clap::{Args, Command, FromArgMatches};

/// What the user asked for.
#[derive(Clone, Debug, Args)]
pub struct Options {
    /// Problem class [default: S]
    #[arg(value_name = "CLASS")]
    positional: Option<Class>,

    /// The same by name
    #[arg(long = "class", value_name = "CLASS", conflicts_with = "positional")]
    named: Option<Class>,

    /// Print one JSON object on one line instead of text
    #[arg(long)]
    json: bool,

    /// Vector instructions to use: baseline, avx2 or avx512 [default: the best of this processor]
    #[arg(long, value_name = "LEVEL", value_parser = level)]
    simd: Option<Level>,
}

fn level(name: &str) -> Result<Level, String> {
    Level::named(name).ok_or_else(|| {
        let names: Vec<_> = Level::supported()
            .iter()
            .map(|level| level.name())
            .collect();
        format!("this processor has {}", names.join(", "))
    })
}

impl Options {
    /// The problem class, S if none was given.
    #[must_use]
    pub fn class(&self) -> Class {
        self.positional.or(self.named).unwrap_or(Class::S)
    }

    /// Whether the report is to be JSON.
    #[must_use]
    pub fn json(&self) -> bool {
        self.json
    }

    /// The vector instructions to use.
    #[must_use]
    pub fn level(&self) -> Level {
        self.simd.unwrap_or_else(Level::best)
    }

    /// Parses the arguments of the program that runs `kernel`, which has all classes; the first is how it was
    /// called.
    ///
    /// # Errors
    /// What is wrong with them, or the help text if that was asked for.
    pub fn parse_from<I, T>(kernel: &str, about: &str, args: I) -> clap::error::Result<Self>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        Self::parse_up_to(kernel, about, Class::F, args)
    }

    /// As [`parse_from`](Self::parse_from), for a benchmark whose largest class is `largest`.
    ///
    /// # Errors
    /// As there, and if the class is larger.
    pub fn parse_up_to<I, T>(
        kernel: &str,
        about: &str,
        largest: Class,
        args: I,
    ) -> clap::error::Result<Self>
    where
        I: IntoIterator<Item = T>,
        T: Into<std::ffi::OsString> + Clone,
    {
        let letters = Class::ALL[..=largest.index()]
            .iter()
            .map(Class::to_string)
            .collect::<Vec<_>>();
        let help = format!("Problem class: {} [default: S]", letters.join(", "));
        let mut command = Self::augment_args(Command::new("npb"))
            .display_name(program(kernel))
            .bin_name(program(kernel))
            .about(format!("NAS benchmark {kernel}: {about}"))
            .after_help(
                AFTER_HELP
                    .replace("PROGRAM", &program(kernel))
                    .replace("LARGEST", &largest.to_string()),
            )
            .mut_arg("positional", |arg| arg.help(help));
        let options = Self::from_arg_matches(&command.try_get_matches_from_mut(args)?)?;
        let class = options.class();
        if class > largest {
            let classes = letters.join(", ");
            let message = format!("{kernel} has no problem class `{class}`: use one of {classes}");
            return Err(command.error(ErrorKind::ValueValidation, message));
        }
        Ok(options)
    }
}

/// What follows the options in the help text.
const AFTER_HELP: &str = "\
Start it as a job: shmrun -n 4 PROGRAM A
S and W are for tests, A to C for one machine, D to LARGEST for large ones. A number of PEs on which the
benchmark does not run, and a size that does not fit into memory, are told with what would do.
Exit status: 0 verified, 1 failed or could not run, 2 wrong command line.";

/// The program that runs `kernel`: `npb-ep` for EP.
pub(crate) fn program(kernel: &str) -> String {
    format!("npb-{}", kernel.to_lowercase())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(args: &[&str]) -> Result<Options, String> {
        let args = std::iter::once("npb-ep").chain(args.iter().copied());
        Options::parse_from("EP", "test", args).map_err(|error| error.to_string())
    }

    #[test]
    fn class_by_position_and_by_name() {
        assert_eq!(parse(&[]).unwrap().class(), Class::S);
        assert_eq!(parse(&["A"]).unwrap().class(), Class::A);
        assert_eq!(parse(&["b", "--json"]).unwrap().class(), Class::B);
        assert_eq!(parse(&["--class", "w"]).unwrap().class(), Class::W);
        assert_eq!(parse(&["--class=C"]).unwrap().class(), Class::C);
        assert!(!parse(&["A"]).unwrap().json());
        assert!(parse(&["A", "--json"]).unwrap().json());
    }

    #[test]
    fn errors_say_what_was_wrong() {
        let error = parse(&["Z"]).unwrap_err();
        assert!(
            error.contains("no problem class `Z`: use one of S, W, A"),
            "{error}"
        );
        assert!(
            parse(&["A", "--class", "B"])
                .unwrap_err()
                .contains("cannot be used with")
        );
        assert!(
            parse(&["A", "B"])
                .unwrap_err()
                .contains("unexpected argument 'B'")
        );
        assert!(
            parse(&["--simd", "mmx"])
                .unwrap_err()
                .contains("this processor has baseline")
        );
    }

    #[test]
    fn a_class_that_only_others_have_is_refused_with_those_there_are() {
        let parse = |largest, args: &[&str]| {
            let args = std::iter::once("npb-is").chain(args.iter().copied());
            Options::parse_up_to("IS", "test", largest, args).map_err(|error| error.to_string())
        };
        assert_eq!(parse(Class::E, &["E"]).unwrap().class(), Class::E);
        assert_eq!(parse(Class::F, &["F"]).unwrap().class(), Class::F);
        for args in [&["f"][..], &["--class", "F"]] {
            let error = parse(Class::E, args).unwrap_err();
            assert!(
                error.contains("IS has no problem class `F`: use one of S, W, A, B, C, D, E\n"),
                "{error}"
            );
        }
        let help = parse(Class::E, &["--help"]).unwrap_err();
        assert!(
            help.contains("D, E [default: S]") && help.contains("D to E for large"),
            "{help}"
        );
        let help = parse(Class::F, &["--help"]).unwrap_err();
        assert!(
            help.contains("D, E, F [default: S]") && help.contains("D to F for large"),
            "{help}"
        );
    }

    #[test]
    fn level_by_name() {
        assert_eq!(
            parse(&["--simd", "baseline"]).unwrap().level(),
            Level::BASELINE
        );
        assert_eq!(parse(&[]).unwrap().level(), Level::best());
    }
}
