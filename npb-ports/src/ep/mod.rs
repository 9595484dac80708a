//! EP, "embarrassingly parallel": Gaussian deviates from uniform random numbers.
//!
//! The random sequence is cut into batches of 2^16 pairs. A PE takes consecutive batches, jumps
//! to its part of the sequence, and tallies it alone ([`npb_kernels::ep`]). Then one sum over all PEs
//! joins the tallies, and a maximum the times: that is all the communication.

pub use npb_kernels::ep::{kernel, params};

use crate::console::Console;
use crate::error::Error;
use crate::job::{self, Reduction};
use crate::numbers::scientific;
use crate::options::Options;
use crate::report::{Report, Size, Value};
use crate::verify::{Check, Verification};
use kernel::Tally;
use params::{ANNULI, Batches, Params};
use std::fmt::Write as _;

/// Words of a tally on its way through the reduction: two sums and the counts, which an `f64`
/// holds exactly.
const WORDS: usize = 2 + ANNULI;

/// Runs EP on all PEs.
///
/// # Errors
/// If the symmetric heap has no room for the tallies (200 bytes).
pub fn run(options: &Options) -> Result<Report, Error> {
    let params = Params::of(options.class());
    let (pe, n_pes) = (shmem::my_pe(), shmem::n_pes());
    Console::new(options).say(format_args!(
        " Number of random numbers generated: {:15}  (class {})\n \
         Total number of processes: {n_pes:24}\n",
        params.random_numbers(),
        options.class(),
    ));
    let all = Reduction::new(WORDS)?;

    let start = job::begin();
    let tally = kernel::tally(Batches::of_pe(params.batches(), pe, n_pes), options.level());
    let mut words = to_words(&tally);
    all.sums(&mut words);
    let seconds = start.elapsed().as_secs_f64();

    let seconds = all.max(seconds);
    all.free()?;
    Ok(report(options, params, &from_words(&words), seconds, n_pes))
}

fn to_words(tally: &Tally) -> [f64; WORDS] {
    std::array::from_fn(|i| match i {
        0 => tally.sx,
        1 => tally.sy,
        _ => tally.counts[i - 2] as f64,
    })
}

fn from_words(words: &[f64; WORDS]) -> Tally {
    Tally {
        sx: words[0],
        sy: words[1],
        counts: std::array::from_fn(|l| words[2 + l] as u64),
    }
}

fn report(options: &Options, params: Params, tally: &Tally, seconds: f64, n_pes: usize) -> Report {
    const TOLERANCE: f64 = 1e-8;
    let class = options.class();
    let checks = vec![
        Check {
            name: "sum of X",
            value: tally.sx,
            reference: params.sx,
            tolerance: TOLERANCE,
        },
        Check {
            name: "sum of Y",
            value: tally.sy,
            reference: params.sy,
            tolerance: TOLERANCE,
        },
    ];
    let batches = usize::try_from(params.batches()).unwrap_or(usize::MAX);
    Report {
        name: "EP",
        class,
        size: Size::Count(params.random_numbers()),
        iterations: 0,
        seconds,
        processes: n_pes,
        active: n_pes.min(batches),
        operations: params.random_numbers() as f64,
        operation_type: "Random numbers generated",
        verification: Verification::new(class, checks),
        results: vec![
            ("pairs", Value::Count(tally.pairs())),
            ("counts", Value::Counts(tally.counts.to_vec())),
            ("simd", Value::Text(options.level().to_string())),
        ],
        results_text: results_text(params, tally, seconds),
    }
}

fn results_text(params: Params, tally: &Tally, seconds: f64) -> String {
    let mut text = format!(
        "EP Benchmark Results:\n\nCPU Time ={seconds:10.4}\nN = 2^{:5}\n\
         No. Gaussian Pairs ={:16}\nSums ={:>25}{:>25}\nCounts:\n",
        params.m,
        tally.pairs(),
        scientific(tally.sx, 15),
        scientific(tally.sy, 15),
    );
    for (l, count) in tally.counts.iter().enumerate() {
        let _ = writeln!(text, "{l:3}{count:16}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::class::Class;

    const TALLY: Tally = Tally {
        sx: -3.24783465203474e3,
        sy: -6.958407078382297e3,
        counts: [6140517, 5865300, 1100361, 68546, 1648, 17, 0, 0, 0, 0],
    };

    fn options(class: &str) -> Options {
        Options::parse_from("EP", "test", ["npb-ep", class]).unwrap()
    }

    #[test]
    fn words_round_trip() {
        assert_eq!(from_words(&to_words(&TALLY)), TALLY);
        // More pairs than class F has are still exact.
        let mut large = TALLY;
        large.counts[0] = (1 << 53) - 1;
        assert_eq!(from_words(&to_words(&large)), large);
    }

    #[test]
    fn text_is_that_of_the_reference() {
        let report = report(&options("S"), Params::of(Class::S), &TALLY, 0.125, 300);
        let expected = "EP Benchmark Results:

CPU Time =    0.1250
N = 2^   24
No. Gaussian Pairs =        13176389
Sums =   -3.247834652034740E+03   -6.958407078382297E+03
Counts:
  0         6140517
  1         5865300
  2         1100361
  3           68546
  4            1648
  5              17
  6               0
  7               0
  8               0
  9               0
";
        let text = report.to_string();
        assert!(text.starts_with(expected), "{text}");
        for line in [
            " VERIFICATION SUCCESSFUL",
            " EP Benchmark Completed.",
            " Size            =                 33554432",
            " Total processes =                      300",
            " Active processes=                      256",
            " Mop/s total     =                   268.44",
            " Operation type  = Random numbers generated",
            " Verification    =               SUCCESSFUL",
        ] {
            assert!(
                text.lines().any(|l| l == line),
                "no line `{line}` in {text}"
            );
        }
    }

    #[test]
    fn wrong_sums_do_not_verify() {
        for (sx, sy) in [(TALLY.sx * (1.0 + 1e-7), TALLY.sy), (TALLY.sx, f64::NAN)] {
            let wrong = Tally { sx, sy, ..TALLY };
            let report = report(&options("S"), Params::of(Class::S), &wrong, 1.0, 1);
            assert!(!report.verification.successful());
        }
        let other_class = report(&options("W"), Params::of(Class::W), &TALLY, 1.0, 1);
        assert!(!other_class.verification.successful());
    }
}
