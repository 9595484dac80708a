//! The routines, a chapter of the specification a file, and their expansion into C functions.

mod atomics;
mod collectives;
mod old;
mod rma;
mod setup;
mod signal;
mod sync;

use crate::proto::{Param, Proto};
use crate::types::{LONGDOUBLE, Type, Types};

/// Whether a routine takes a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// It has nothing to do with contexts.
    No,
    /// It works on the default context only.
    Default,
    /// It works on the default context, and `shmem_ctx_...` on the one given.
    Any,
}

/// Whether the specification still has a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Status {
    /// It has.
    Current,
    /// Deprecated, but to be supported.
    Deprecated,
    /// Gone, but old programs still call it.
    Removed,
}

/// The C11 type-generic name of a routine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Generic {
    /// The macro.
    pub name: &'static str,
    /// Which argument has the type, counted without the context.
    pub on: usize,
    /// The types that it takes, where they are more than the prototype's.
    pub types: Option<Types>,
}

/// A line of the table: prototypes that differ in type, width and context only.
#[derive(Clone, Debug)]
pub struct Routine {
    /// The C prototype without context, `T` standing for the type and `N` for the width.
    pub proto: Proto,
    /// Types or widths.
    pub types: Types,
    /// Contexts.
    pub context: Context,
    /// The Rust function of the C library behind it; `{T}` stands for the type.
    pub call: &'static str,
    /// The type-generic name.
    pub generic: Option<Generic>,
    /// What the specification says of it.
    pub status: Status,
    /// The items of crate `shmem` that do the same, as paths below it; none if there is none.
    pub rust: &'static str,
}

/// Routines that the specification treats together.
#[derive(Clone, Debug)]
pub struct Chapter {
    /// Heading.
    pub title: &'static str,
    /// The routines.
    pub routines: Vec<Routine>,
    /// Tests of the Rust API and of the C library: files of the repository.
    pub tests: &'static [&'static str],
}

/// A C function.
#[derive(Clone, Debug)]
pub struct Function {
    /// Its prototype.
    pub proto: Proto,
    /// What `T` is in Rust, if there is one.
    pub element: Option<&'static str>,
    /// The type it is named by.
    pub ty: Option<&'static Type>,
    /// Whether its first parameter is a context.
    pub takes_context: bool,
}

impl Function {
    /// Whether a `long double` is passed or returned by value, which Rust has no type for.
    #[must_use]
    pub fn passes_long_double(&self) -> bool {
        let by_value = |ty: &str| ty == LONGDOUBLE.c;
        by_value(&self.proto.ret) || self.proto.params.iter().any(|p| by_value(&p.ty))
    }

    /// The name of its twin for profiling.
    #[must_use]
    pub fn twin(&self) -> String {
        format!("p{}", self.proto.name)
    }
}

impl Routine {
    /// A current routine without types, contexts or generic name.
    fn new(proto: &str, call: &'static str, rust: &'static str) -> Self {
        Self {
            proto: Proto::parse(proto),
            types: Types::None,
            context: Context::No,
            call,
            generic: None,
            status: Status::Current,
            rust,
        }
    }

    fn types(self, types: Types) -> Self {
        Self { types, ..self }
    }

    fn context(self, context: Context) -> Self {
        Self { context, ..self }
    }

    fn generic(self, name: &'static str, on: usize) -> Self {
        let types = None;
        Self {
            generic: Some(Generic { name, on, types }),
            ..self
        }
    }

    fn generic_types(mut self, types: Types) -> Self {
        if let Some(generic) = &mut self.generic {
            generic.types = Some(types);
        }
        self
    }

    fn status(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// All C functions of this line.
    #[must_use]
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = self.on_default();
        if self.context == Context::Any {
            let on_any: Vec<Function> = functions.iter().map(with_context).collect();
            functions.extend(on_any);
        }
        functions
    }

    fn on_default(&self) -> Vec<Function> {
        let one =
            |proto: Proto, element: Option<&'static str>, ty: Option<&'static Type>| Function {
                proto,
                element,
                ty,
                takes_context: false,
            };
        match self.types {
            Types::None => vec![one(self.proto.clone(), None, None)],
            Types::Bytes => vec![one(self.proto.clone(), Some("u8"), None)],
            Types::Widths(widths) => widths
                .iter()
                .map(|&bits| {
                    let mut proto = self.proto.clone();
                    proto.name = proto.name.replace('N', &bits.to_string());
                    one(proto, Some(element(bits)), None)
                })
                .collect(),
            Types::Set(types) => types
                .iter()
                .map(|&ty| {
                    let mut proto = self.proto.clone();
                    proto.name = proto.name.replace('T', ty.name);
                    proto.ret = proto.ret.replace('T', ty.c);
                    for param in &mut proto.params {
                        param.ty = param.ty.replace('T', ty.c);
                    }
                    one(proto, Some(ty.rust), Some(ty))
                })
                .collect(),
        }
    }

    /// The table's own spelling of its C names, `T` and `N` unresolved.
    #[must_use]
    pub fn names(&self) -> Vec<String> {
        let name = self.proto.name.clone();
        match self.context {
            Context::Any => vec![on_context(&name), name],
            _ => vec![name],
        }
    }
}

fn element(bits: u32) -> &'static str {
    match bits {
        8 => "u8",
        16 => "u16",
        32 => "u32",
        64 => "u64",
        128 => "u128",
        _ => unreachable!("the table has no other width"),
    }
}

fn on_context(name: &str) -> String {
    name.replacen("shmem_", "shmem_ctx_", 1)
}

fn with_context(function: &Function) -> Function {
    let mut function = function.clone();
    function.proto.name = on_context(&function.proto.name);
    let param = Param {
        ty: "shmem_ctx_t".to_owned(),
        name: "ctx".to_owned(),
    };
    function.proto.params.insert(0, param);
    function.takes_context = true;
    function
}

/// The whole table.
#[must_use]
pub fn chapters() -> Vec<Chapter> {
    let mut all = setup::chapters();
    all.extend(rma::chapters());
    all.extend(atomics::chapters());
    all.push(signal::chapter());
    all.push(collectives::chapter());
    all.extend(sync::chapters());
    all.extend(old::chapters());
    all
}

/// All C functions with the lines they come from.
#[must_use]
pub fn functions() -> Vec<(Routine, Function)> {
    chapters()
        .into_iter()
        .flat_map(|chapter| chapter.routines)
        .flat_map(|routine| {
            let functions = routine.functions();
            functions.into_iter().map(move |f| (routine.clone(), f))
        })
        .collect()
}
