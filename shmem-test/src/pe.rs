//! A test inside a PE of its job.

use std::any::Any;
use std::io::Write;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Test;
use crate::output::BEGIN;

/// An argument of PEs. For libtest it is the name of one more test, which there is not; and other than a variable
/// it is not inherited by what the PE starts.
pub(crate) const ARGUMENT: &str = "(a PE of the job)";

/// Status of a PE that has panicked, as it should if any should.
pub(crate) const PANICKED: i32 = 101;

/// Whether this process is a PE of a test's job.
pub(crate) fn is_one() -> bool {
    std::env::args_os().any(|word| word == ARGUMENT)
}

/// Runs the program, and ends the process before libtest has more to say.
pub(crate) fn run(test: &Test, program: impl FnOnce()) -> ! {
    // libtest has written already, perhaps the beginning of a line.
    let begin = writeln!(std::io::stdout(), "\n{BEGIN}");
    if let Err(e) = begin {
        eprintln!("cannot write to standard output: {e}");
    }
    let ended = catch_unwind(AssertUnwindSafe(|| __rust_begin_short_backtrace(program)));
    let status = match (ended, test.panics) {
        (Ok(()), _) => 0,
        (Err(_), None) => PANICKED,
        (Err(payload), Some(expected)) => match text(&*payload) {
            text if text.contains(expected) => PANICKED,
            text => {
                eprintln!("the panic should say {expected:?}, and says {text:?}");
                1
            }
        },
    };
    std::process::exit(status)
}

/// Where backtraces of the program end: they look for this name, and what comes below is libtest's and ours.
#[inline(never)]
fn __rust_begin_short_backtrace(program: impl FnOnce()) {
    program();
    // Without this the call would be the last one, and its frame gone.
    std::hint::black_box(());
}

fn text(payload: &(dyn Any + Send)) -> &str {
    match payload.downcast_ref::<String>() {
        Some(text) => text,
        None => payload.downcast_ref::<&str>().unwrap_or(&""),
    }
}
