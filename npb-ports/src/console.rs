//! What a benchmark says while it runs: as the reference programs, and only where somebody reads it.

use crate::class::Class;
use crate::options::Options;
use crate::report::{Size, VERSION};
use std::fmt;
use std::io::{self, Write};

/// Prints on PE 0 if the report is to be text. On other PEs, and before a JSON report, it formats
/// and prints nothing, so that a time loop may hold one.
#[derive(Clone, Copy, Debug)]
pub struct Console {
    speaks: bool,
}

impl Console {
    /// The console of this PE. The job has been joined.
    #[must_use]
    pub fn new(options: &Options) -> Self {
        Self {
            speaks: shmem::my_pe() == 0 && !options.json(),
        }
    }

    /// Prints `line` and a line end: `console.say(format_args!(" Time step {step:4}"))`. The
    /// reference programs say so in the first step and in every 20th (BT, SP), or in the first,
    /// the last and every fifth (MG).
    ///
    /// Output that nobody reads any longer (a closed pipe) is no reason to leave the other PEs
    /// alone in the job: such errors are ignored.
    #[inline]
    pub fn say(&self, line: fmt::Arguments<'_>) {
        if self.speaks {
            let _ = print(line);
        }
    }

    /// Prints the title, before anything else.
    pub(crate) fn title(&self, kernel: &str) {
        self.say(format_args!("{}", title(kernel)));
    }

    /// Prints what is about to run: the size, the iterations, and the time step of a benchmark
    /// that has one.
    pub fn opening(&self, class: Class, size: Size, iterations: u32, dt: Option<f64>) {
        if self.speaks {
            let text = opening(class, size, iterations, dt, shmem::n_pes());
            self.say(format_args!("{text}"));
        }
    }
}

/// Prints `line` and a line end.
#[cold]
pub(crate) fn print(line: fmt::Arguments<'_>) -> io::Result<()> {
    let mut out = io::stdout().lock();
    writeln!(out, "{line}").and_then(|()| out.flush())
}

fn title(kernel: &str) -> String {
    format!("\n\n NAS Parallel Benchmarks {VERSION} (OpenSHMEM) -- {kernel} Benchmark\n")
}

fn opening(class: Class, size: Size, iterations: u32, dt: Option<f64>, n_pes: usize) -> String {
    let dt = dt.map_or(String::new(), |dt| format!("    dt: {dt:11.7}"));
    format!(
        " Size: {size}  (class {class})\n Iterations: {iterations:4}{dt}\n \
         Total number of processes: {n_pes:6}\n"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_that_of_the_reference() {
        assert_eq!(
            opening(Class::S, Size::Grid([12; 3]), 60, Some(0.01), 4),
            " Size:   12x  12x  12  (class S)
 Iterations:   60    dt:   0.0100000
 Total number of processes:      4
"
        );
        assert_eq!(
            opening(Class::E, Size::Grid([2048; 3]), 50, None, 1024),
            " Size: 2048x2048x2048  (class E)
 Iterations:   50
 Total number of processes:   1024
"
        );
        assert!(title("BT").ends_with(" -- BT Benchmark\n"));
    }
}
