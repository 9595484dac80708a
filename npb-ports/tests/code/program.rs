//! The functions of a program, their instructions and whom they call.

use addr2line::Loader;
use iced_x86::{Decoder, DecoderOptions, Instruction, OpKind};
use object::read::elf::ElfFile64;
use object::{Object, ObjectSection, ObjectSymbol, RelocationTarget, SymbolKind};
use std::collections::{BTreeMap, HashMap};
use std::path::Path;

/// A program with its symbols and line tables.
pub(crate) struct Program {
    text: Vec<u8>,
    start: u64,
    /// Sizes of functions, by address.
    sizes: BTreeMap<u64, u64>,
    /// Functions whose addresses stand in memory, by where: the dynamic linker writes them there.
    pointers: HashMap<u64, Callee>,
    debug: Loader,
}

/// Who is called.
#[derive(Clone, Debug)]
pub(crate) enum Callee {
    /// The function of the program at an address.
    Own(u64),
    /// A function of a library.
    Library(String),
}

impl Program {
    /// Reads the program at `path`.
    ///
    /// # Panics
    /// If it is none.
    pub(crate) fn new(path: &Path) -> Self {
        let wrong = |error: &dyn std::fmt::Display| -> ! { panic!("{}: {error}", path.display()) };
        let data = std::fs::read(path).unwrap_or_else(|error| wrong(&error));
        let file: ElfFile64<'_> = ElfFile64::parse(&*data).unwrap_or_else(|error| wrong(&error));
        let section = file.section_by_name(".text").expect("instructions");
        let functions = file
            .symbols()
            .filter(|symbol| symbol.kind() == SymbolKind::Text && symbol.size() > 0);
        let libraries: HashMap<_, _> = file
            .dynamic_symbols()
            .map(|symbol| (symbol.index(), symbol.name().unwrap_or("?").to_owned()))
            .collect();
        let pointers = file.dynamic_relocations().into_iter().flatten();
        let callee = |target, addend: i64| match target {
            RelocationTarget::Symbol(index) => Callee::Library(libraries[&index].clone()),
            _ => Callee::Own(addend.cast_unsigned()),
        };
        Self {
            text: section.data().expect("its bytes").to_vec(),
            start: section.address(),
            sizes: functions
                .map(|symbol| (symbol.address(), symbol.size()))
                .collect(),
            pointers: pointers
                .map(|(at, to)| (at, callee(to.target(), to.addend())))
                .collect(),
            debug: Loader::new(path).unwrap_or_else(|error| wrong(&error)),
        }
    }

    /// Addresses of all functions.
    pub(crate) fn functions(&self) -> impl Iterator<Item = u64> + '_ {
        self.sizes.keys().copied()
    }

    /// The function at `address`, with the types that it was made for where line tables have them.
    pub(crate) fn name(&self, address: u64) -> String {
        let frames = self.frames(address);
        let of_symbol = || self.debug.find_symbol(address).map(str::to_owned);
        frames
            .last()
            .and_then(|frame| frame.function.clone())
            .or_else(of_symbol)
            .unwrap_or_else(|| format!("{address:#x}"))
    }

    /// The line that the instruction at `address` comes from: the innermost one of npb-ports or npb-kernels that is none of `passed`, files of
    /// arithmetic which is inlined everywhere.
    pub(crate) fn line(&self, address: u64, passed: &[&str]) -> String {
        let frames = self.frames(address);
        let ours = frames.iter().filter_map(|frame| {
            let (file, line) = frame.line.as_ref()?;
            let (_, file) = file.rsplit_once("npb-ports/")?;
            Some((file, line))
        });
        ours.into_iter()
            .find(|(file, _)| !passed.contains(file))
            .map_or_else(|| "?".to_owned(), |(file, line)| format!("{file}:{line}"))
    }

    /// The function that `address` is in, last, and before it what was inlined there.
    fn frames(&self, address: u64) -> Vec<Frame> {
        let mut all = Vec::new();
        let Ok(mut frames) = self.debug.find_frames(address) else {
            return all;
        };
        while let Ok(Some(frame)) = frames.next() {
            let name = |f: addr2line::FunctionName<_>| Some(f.raw_name().ok()?.into_owned());
            let line = frame
                .location
                .and_then(|l| Some((l.file?.to_owned(), l.line?)));
            all.push(Frame {
                function: frame.function.and_then(name),
                line,
            });
        }
        all
    }

    /// The instructions of the function at `address`; none if there is none.
    pub(crate) fn instructions(&self, address: u64) -> Vec<Instruction> {
        let Some(size) = self.sizes.get(&address) else {
            return Vec::new();
        };
        let offset = (address - self.start) as usize;
        let code = &self.text[offset..offset + *size as usize];
        let decoder = Decoder::with_ip(64, code, address, DecoderOptions::NONE);
        decoder.into_iter().collect()
    }

    /// The function that `instruction` calls or jumps to, or whose address it takes from memory in order to call it.
    pub(crate) fn callee(&self, instruction: &Instruction) -> Option<Callee> {
        if instruction.op0_kind() == OpKind::NearBranch64 {
            let target = instruction.near_branch_target();
            let function = self.sizes.contains_key(&target);
            return function.then_some(Callee::Own(target));
        }
        let memory = instruction.is_ip_rel_memory_operand();
        let pointer = memory.then(|| instruction.ip_rel_memory_address())?;
        self.pointers.get(&pointer).cloned()
    }
}

struct Frame {
    function: Option<String>,
    line: Option<(String, u32)>,
}
