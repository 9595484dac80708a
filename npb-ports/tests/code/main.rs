//! Whether the compiler made vector code of the kernels, in the programs as users run them.
//!
//! Kernels are plain loops and arrays of eight, which compilers turn into vector instructions, or not: a closure that is not
//! inlined, or one more bounds check, and the code is right, scalar and several times slower, which no other test sees.

#![cfg(all(target_arch = "x86_64", target_os = "linux"))]

mod count;
mod program;

use count::{Count, SCALAR, What};
use npb_ports::kernels::{KERNELS, Kernel};
use program::Program;
use std::fmt::Write as _;
use std::path::Path;

/// The functions of `cpu.rs` and `cpu/vectors.rs` in npb-kernels that are compiled once a kernel, and the bits of their vectors.
const LEVELS: [(&str, usize); 3] = [("baseline", 128), ("avx2", 256), ("avx512", 512)];

/// What is asked of a kernel.
struct Row {
    /// Its type.
    kernel: &'static str,
    what: What,
    /// By level: bits of the vectors that it should compute with.
    widths: [usize; LEVELS.len()],
    /// By level: percent of the instructions that compute which should do so with these. What is missing to 100 comes before and
    /// after loops, or is the same for all lanes; some percent are left to compilers.
    least: [usize; LEVELS.len()],
    /// Instructions that load from, or store to, many places: at most so many.
    gathers: usize,
    /// Functions that compute with `f64` and need not be inlined: they are called once, when all is done.
    calls: &'static [&'static str],
}

const fn floats(kernel: &'static str, least: [usize; LEVELS.len()]) -> Row {
    Row {
        kernel,
        what: What::Floats,
        widths: [128, 256, 512],
        least,
        gathers: 0,
        calls: &[],
    }
}

impl Row {
    const fn of(self, what: What) -> Self {
        Self { what, ..self }
    }

    const fn gathers(self, gathers: usize) -> Self {
        Self { gathers, ..self }
    }

    const fn calls(self, calls: &'static [&'static str]) -> Self {
        Self { calls, ..self }
    }

    const fn widths(self, widths: [usize; LEVELS.len()]) -> Self {
        Self { widths, ..self }
    }
}

/// All kernels; one has two rows if it computes both.
const ROWS: [Row; 28] = [
    floats("adi::rhs::Apply", [96, 94, 91]),
    floats("adi::sweep::Along<bt::solver::Bt, 0>", [96, 95, 94]),
    floats("adi::sweep::Along<bt::solver::Bt, 1>", [96, 96, 95]),
    floats("adi::sweep::Along<bt::solver::Bt, 2>", [96, 96, 95]),
    // The first two points of a line, before the loop, are computed in pieces.
    floats("adi::sweep::Along<sp::solver::Sp, 0>", [96, 93, 88]),
    floats("adi::sweep::Along<sp::solver::Sp, 1>", [96, 88, 82]),
    floats("adi::sweep::Along<sp::solver::Sp, 2>", [96, 91, 82]).gathers(1),
    // Two pairs of the vector and the product are a vector, of which there are not more at once.
    floats("cg::share::Product", [70, 20, 25]).widths([128, 256, 256]),
    // The last pairs, less than eight, are gathered.
    floats("cg::vector_kernels::Descend", [40, 35, 40]),
    floats("cg::vector_kernels::Dot", [20, 8, 38]).gathers(2),
    floats("cg::vector_kernels::Norms", [30, 6, 35]).gathers(3),
    floats("cg::vector_kernels::Start", [45, 20, 38]),
    floats("cg::vector_kernels::Turn", [45, 20, 20]),
    floats("ep::kernel::Sweep", [93, 92, 94]).calls(&["sum_of_lanes"]),
    floats("ep::kernel::Sweep", [38, 38, 18]).of(What::Products),
    floats("ft::line::Copied", [90, 90, 90]).of(What::Moves),
    floats("ft::line::Evolved", [97, 97, 97]),
    floats("ft::line::Gathered", [97, 97, 97]),
    floats("ft::plane::Back", [97, 97, 97]),
    floats("ft::plane::Initial", [84, 97, 97]),
    // As vectors they take as long or longer: without AVX-512 such a product is several instructions.
    floats("is::keys::Generate", [0, 0, 0]).of(What::Products),
    // Of what comes from the plane above, each number is for one lane of eight.
    floats("lu::sweep::Sweep<false>", [95, 94, 93]).gathers(10),
    floats("lu::sweep::Sweep<true>", [95, 94, 92]).gathers(10),
    floats("mg::stencil::Plane<false, true>", [66, 64, 55]),
    floats("mg::stencil::Plane<true, false>", [75, 65, 56]),
    floats("mg::transfer::Interpolate<false>", [50, 60, 45]),
    floats("mg::transfer::Interpolate<true>", [50, 55, 42]),
    floats("mg::transfer::Restrict", [87, 60, 70]),
];

/// A kernel in a program.
struct Found {
    program: String,
    /// Of [`LEVELS`].
    level: usize,
    kernel: String,
    count: Count,
}

/// The kernels of all programs.
fn found() -> Vec<Found> {
    let built = Path::new(env!("CARGO_BIN_EXE_npb-ep"));
    let mut all = Vec::new();
    for name in KERNELS.map(Kernel::program) {
        let program = Program::new(&built.with_file_name(&name));
        for address in program.functions() {
            let function = program.name(address).replace("npb_kernels::", "");
            let of_level = |(level, of): (usize, &(&str, usize))| {
                let kernel = function.strip_prefix(of.0)?.strip_prefix('<')?;
                Some((level, kernel.strip_suffix('>')?.to_owned()))
            };
            if let Some((level, kernel)) = LEVELS.iter().enumerate().find_map(of_level) {
                all.push(Found {
                    program: name.clone(),
                    level,
                    kernel,
                    count: Count::of(&program, address),
                });
            }
        }
    }
    all
}

impl Found {
    /// Adds a line to `table`; gives what is wrong.
    fn judge(&self, row: &Row, table: &mut String) -> Vec<String> {
        let (count, what) = (&self.count, row.what);
        let (level, width) = (LEVELS[self.level].0, row.widths[self.level]);
        let least = row.least[self.level];
        let good = count.with(what, width..=usize::MAX);
        let narrow = count.with(what, SCALAR + 1..=width - 1);
        let scalar = count.with(what, SCALAR..=SCALAR);
        let all = count.with(what, SCALAR..=usize::MAX);
        let percent = (100 * good).checked_div(all).unwrap_or(0);
        let gathers = count.gathers;
        let Self {
            program, kernel, ..
        } = self;
        writeln!(
            table,
            "{kernel:37} {what:8?} {program:6} {level:8} {width:4} {good:5} {narrow:7} {scalar:6} {percent:4}% {least:5}% {gathers:7}",
        )
        .expect("memory");

        let mut wrong = Vec::new();
        if percent < least {
            let lines = count.below(what, width).into_iter();
            let lines: Vec<_> = lines.map(|(line, n)| format!("{line} ({n})")).collect();
            wrong.push(format!(
                "{good} of {all} instructions that compute ({what:?}) do so with {width} bits: {percent} percent, where {least} are asked for. \
                 The others come from {}",
                lines.join(", "),
            ));
        }
        if gathers > row.gathers {
            wrong.push(format!(
                "{gathers} instructions load from many places or store there, where {} may: numbers that should lie side by side do not",
                row.gathers,
            ));
        }
        let called = count.called.iter().map(String::as_str);
        let called: Vec<_> = called.filter(|name| !row.calls.contains(name)).collect();
        if what == What::Floats && !called.is_empty() {
            wrong.push(format!(
                "calls what computes and should be inlined: {}",
                called.join(", ")
            ));
        }
        let place = format!("{kernel}, {level}, in {program}");
        wrong
            .into_iter()
            .map(|wrong| format!("{place}: {wrong}."))
            .collect()
    }
}

/// What to do where the test fails.
const ADVICE: &str = "\
Look at these lines for what the compiler does not see through: a closure that is not inlined (as in `array::map`), a loop with a bounds check \
or an early end, a function without `#[inline(always)]`. `objdump -d` shows the code. If it is as fast as before, change the row in \
tests/code/main.rs.";

#[test]
#[cfg_attr(debug_assertions, ignore = "looks at code as it is used: --release")]
fn kernels_are_vector_code() {
    let mut found = found();
    found.sort_by(|a, b| (&a.kernel, &a.program, a.level).cmp(&(&b.kernel, &b.program, b.level)));
    let mut table = format!(
        "{:37} {:8} {:6} {:8} {:>4} {:>5} {:>7} {:>6} {:>5} {:>6} {:>7}\n",
        "kernel",
        "what",
        "in",
        "level",
        "bits",
        "these",
        "shorter",
        "scalar",
        "share",
        "least",
        "gathers",
    );
    let mut wrong = Vec::new();
    for found in &found {
        let mut rows = ROWS
            .iter()
            .filter(|row| row.kernel == found.kernel)
            .peekable();
        if rows.peek().is_none() {
            wrong.push(format!(
                "{} has no row in tests/code/main.rs.",
                found.kernel
            ));
        }
        wrong.extend(rows.flat_map(|row| found.judge(row, &mut table)));
    }
    for row in &ROWS {
        for (level, (name, _)) in LEVELS.iter().enumerate() {
            if !found
                .iter()
                .any(|f| f.kernel == row.kernel && f.level == level)
            {
                wrong.push(format!("{}, {name}: in no program. (Functions are found by line tables, which the profile must ask for.)", row.kernel));
            }
        }
    }
    println!("{table}");
    assert!(
        wrong.is_empty(),
        "\n{}\n\n{ADVICE}\n\n{table}",
        wrong.join("\n")
    );
}
