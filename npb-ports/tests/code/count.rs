//! On how many numbers at a time a kernel computes.

use super::program::{Callee, Program};
use iced_x86::{Instruction, Register};
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;

/// What is counted of a kernel.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum What {
    /// Arithmetic with `f64`.
    Floats,
    /// Products of integers, of which random numbers are made.
    Products,
    /// Numbers from and to memory, where nothing is computed.
    Moves,
}

/// Instructions of a kernel, and of all that it calls but by pointers that only a running program knows.
#[derive(Debug, Default)]
pub(crate) struct Count {
    /// By bits of the registers that are computed in ([`SCALAR`] for one number), and the lines that they come from.
    lines: BTreeMap<(What, usize, String), usize>,
    /// Loads from, and stores to, as many places as there are numbers.
    pub(crate) gathers: usize,
    /// Functions that are called and compute with `f64`: mathematical ones, and what is not inlined.
    pub(crate) called: BTreeSet<String>,
}

/// Files of arithmetic, to which no blame is put.
const ARITHMETIC: [&str; 3] = [
    "kernels/src/cpu.rs",
    "kernels/src/cpu/vectors.rs",
    "kernels/src/simd.rs",
];

/// How the names of instructions with `f64` begin, but for a `v`.
const OPERATIONS: [&str; 11] = [
    "add", "sub", "mul", "div", "sqrt", "min", "max", "fmadd", "fmsub", "fnmadd", "fnmsub",
];

/// How the names of instructions that load and store vectors begin, but for a `v`.
const MOVES: [&str; 4] = ["movup", "movap", "movnt", "movdq"];

/// Functions of the mathematical library, which compilers call where there is no instruction.
const FUNCTIONS: [&str; 14] = [
    "fma", "exp", "exp2", "log", "log2", "log10", "pow", "sin", "cos", "sincos", "tan", "sqrt",
    "cbrt", "fmod",
];

impl Count {
    /// Counts the kernel which is the function at `address`.
    pub(crate) fn of(program: &Program, address: u64) -> Self {
        let mut count = Self::default();
        let (mut seen, mut next) = (BTreeSet::from([address]), vec![address]);
        while let Some(function) = next.pop() {
            let floats = count.floats();
            for instruction in program.instructions(function) {
                count.add(program, &instruction);
                let name = match program.callee(&instruction) {
                    None => continue,
                    Some(Callee::Own(to)) => {
                        if !seen.insert(to) {
                            continue;
                        }
                        next.push(to);
                        program.name(to)
                    }
                    Some(Callee::Library(name)) => name,
                };
                if FUNCTIONS.contains(&&*name) {
                    count.called.insert(name);
                }
            }
            if function != address && count.floats() > floats {
                count.called.insert(program.name(function));
            }
        }
        count
    }

    fn floats(&self) -> usize {
        self.with(What::Floats, SCALAR..=usize::MAX)
    }

    fn add(&mut self, program: &Program, instruction: &Instruction) {
        let name = format!("{:?}", instruction.mnemonic()).to_lowercase();
        let name = name.strip_prefix('v').unwrap_or(&name);
        if ["gather", "scatter", "pgather", "pscatter"]
            .iter()
            .any(|g| name.starts_with(g))
        {
            self.gathers += 1;
        }
        let float = OPERATIONS
            .iter()
            .any(|operation| name.starts_with(operation));
        let (what, width) = match name {
            _ if float && name.ends_with("sd") => (What::Floats, SCALAR),
            _ if float && name.ends_with("pd") => (What::Floats, width(instruction)),
            "imul" | "mul" | "mulx" => (What::Products, SCALAR),
            "pmuludq" | "pmullq" | "pmulld" => (What::Products, width(instruction)),
            "movsd" => (What::Moves, SCALAR),
            _ if MOVES.iter().any(|moves| name.starts_with(moves)) => {
                (What::Moves, width(instruction))
            }
            _ => return,
        };
        let line = program.line(instruction.ip(), &ARITHMETIC);
        *self.lines.entry((what, width, line)).or_default() += 1;
    }

    /// Instructions that compute in registers of any of `widths`.
    pub(crate) fn with(&self, what: What, widths: RangeInclusive<usize>) -> usize {
        let lines = self.lines.iter();
        lines
            .filter(|((of, width, _), _)| *of == what && widths.contains(width))
            .map(|(_, n)| n)
            .sum()
    }

    /// The lines that most instructions with less than `width` bits come from, and how many do.
    pub(crate) fn below(&self, what: What, width: usize) -> Vec<(&str, usize)> {
        let mut by_line = BTreeMap::new();
        for ((of, bits, line), n) in &self.lines {
            if *of == what && *bits < width {
                *by_line.entry(&**line).or_default() += n;
            }
        }
        let mut lines: Vec<_> = by_line.into_iter().collect();
        lines.sort_by_key(|(_, n)| std::cmp::Reverse(*n));
        lines.truncate(5);
        lines
    }
}

/// The width of an instruction on one number.
pub(crate) const SCALAR: usize = 64;

/// Bits of the register that `instruction` computes in, or stores.
fn width(instruction: &Instruction) -> usize {
    let first = instruction.op0_register();
    let register = match first {
        Register::None => instruction.op1_register(),
        _ => first,
    };
    match register {
        r if (Register::ZMM0..=Register::ZMM31).contains(&r) => 512,
        r if (Register::YMM0..=Register::YMM31).contains(&r) => 256,
        _ => 128,
    }
}
