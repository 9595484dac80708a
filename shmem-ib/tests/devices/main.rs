//! RDMA devices, and the kernel's Soft-RoCE. One kind of test at a time, because they use the same devices:
//!
//! ```text
//! devices conformance [CHECK...]                    the checks that every HCA has to pass
//! devices endpoints [CHECK...]                      endpoints with threads as PEs
//! devices interop [ORDER] [MTU] [data] [CHECK...]   the software HCA with the kernel's Soft-RoCE
//! devices marks TRAFFIC_CLASS P_KEY COMMAND...      how the packets of a command are marked
//! ```
//!
//! Without one of these words it runs the first three, with the checks of which the arguments name parts. With
//! `--list` it prints these three words as libtest prints names of tests, so that cargo-nextest can start each. The
//! jobs of `ci/vm.sh` run each kind.
//!
//! `SHMEM_TEST_HCA` names one device, or two that can reach each other with a comma between. Without it the
//! first usable one is taken. A kind that finds no device is skipped, for the need `rdma` of
//! `SHMEM_TEST_REQUIRE`.

mod conformance;
mod device;
mod endpoints;
mod interop;
mod marks;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;
use std::time::Instant;

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let passed = match arguments.split_first() {
        Some((kind, rest)) if kind == "conformance" => conformance::run(rest),
        Some((kind, rest)) if kind == "endpoints" => endpoints::run(rest),
        Some((kind, rest)) if kind == "interop" => interop::run(rest),
        Some((kind, rest)) if kind == "marks" => marks::run(rest),
        _ if has(&arguments, "--list") => {
            if !has(&arguments, "--ignored") {
                println!("conformance: test\nendpoints: test\ninterop: test");
            }
            true
        }
        _ => {
            // All of them, whichever fails.
            let passed = [conformance::run(&arguments), endpoints::run(&arguments)];
            interop::run(&[]) && passed == [true; 2]
        }
    };
    ExitCode::from(u8::from(!passed))
}

fn has(arguments: &[String], option: &str) -> bool {
    arguments.iter().any(|argument| argument == option)
}

/// Results of the checks of one kind.
#[derive(Default)]
struct Tally {
    passed: usize,
    failed: Vec<&'static str>,
}

impl Tally {
    /// Runs a check and prints a line with its result. Afterwards `left_out` names the parts that did not apply.
    fn check(
        &mut self,
        name: &'static str,
        check: impl FnOnce(),
        left_out: impl FnOnce() -> Vec<&'static str>,
    ) {
        let start = Instant::now();
        let ended = catch_unwind(AssertUnwindSafe(check));
        let time = start.elapsed();
        let why = match &left_out()[..] {
            [] => String::new(),
            why => format!(" [left out: {}]", why.join("; ")),
        };
        match ended {
            Ok(()) => {
                self.passed += 1;
                println!("check {name}: ok ({time:.1?}){why}");
            }
            Err(_) => {
                println!("check {name}: FAILED ({time:.1?}){why}");
                self.failed.push(name);
            }
        }
    }

    /// Prints the sums. Returns whether all checks passed.
    fn end(self) -> bool {
        let (passed, failed) = (self.passed, self.failed);
        println!(
            "{passed} checks passed, {} failed: {failed:?}",
            failed.len()
        );
        failed.is_empty()
    }
}

/// Whether the arguments that are no options name a part of this check. Without any, all checks are wanted.
fn wanted(name: &str, arguments: &[String]) -> bool {
    let mut parts = arguments.iter().filter(|a| !a.starts_with('-')).peekable();
    parts.peek().is_none() || parts.any(|part| name.contains(part))
}
