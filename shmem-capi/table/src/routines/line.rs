//! A line of the table, and its expansion into C functions.

use crate::proto::{Param, Proto};
use crate::types::{LONGDOUBLE, Type, Types};

/// Whether a routine takes a context.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Contexts {
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
    /// Never had it: a routine of this library, `shmemx_...`, which `shmemx.h` declares.
    Extension,
}

/// The C11 type-generic name of a routine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Generic {
    /// The macro.
    pub name: String,
    /// Which argument has the type, counted without the context.
    pub on: usize,
    /// The types that it takes; none, if only contexts are to be told apart.
    pub types: Types,
}

/// A line of the table: prototypes that differ in type, width and context only. Everything else follows
/// from the C name, unless the line says otherwise.
#[derive(Clone, Debug)]
pub struct Routine {
    /// The C prototype without context, `T` standing for the type and `N` for the width.
    pub proto: Proto,
    /// Types or widths.
    pub types: Types,
    /// Contexts.
    pub contexts: Contexts,
    /// What the specification says of it.
    pub status: Status,
    /// The current routine that does the same, of a deprecated one: its C name.
    pub replaced_by: Option<String>,
    /// Module of the C library that has the function behind it.
    module: &'static str,
    behind: Option<String>,
    generic: Option<Types>,
    rust: Option<Vec<String>>,
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
    /// A current routine without types or contexts, or an extension, by its name. The function behind it is
    /// in a module of the C library.
    pub(super) fn new(module: &'static str, proto: &str) -> Self {
        let proto = Proto::parse(proto);
        Self {
            types: Types::None,
            contexts: Contexts::No,
            status: match proto.name.starts_with("shmemx_") {
                true => Status::Extension,
                false => Status::Current,
            },
            replaced_by: None,
            module,
            behind: None,
            generic: None,
            rust: None,
            proto,
        }
    }

    pub(super) fn types(self, types: Types) -> Self {
        Self { types, ..self }
    }

    pub(super) fn contexts(self, contexts: Contexts) -> Self {
        Self { contexts, ..self }
    }

    pub(super) fn status(self, status: Status) -> Self {
        Self { status, ..self }
    }

    /// The function behind it has another name than its [`stem`](Self::stem). `{T}` stands for the type.
    pub(super) fn behind(self, function: impl Into<String>) -> Self {
        let behind = Some(function.into());
        Self { behind, ..self }
    }

    /// There is a C11 type-generic name for more than the prototype's types, or though it has none.
    pub(super) fn generic(self, types: Types) -> Self {
        let generic = Some(types);
        Self { generic, ..self }
    }

    /// Crate `shmem` has it under these names, as [`rust_names`](Self::rust_names) gives them.
    pub(super) fn rust<const N: usize>(self, names: [&str; N]) -> Self {
        let rust = Some(names.map(str::to_owned).to_vec());
        Self { rust, ..self }
    }

    /// Does what a current routine does.
    pub(super) fn replaced_by(self, current: &Self) -> Self {
        Self {
            module: current.module,
            behind: Some(current.function()),
            rust: Some(vec![current.rust_names().swap_remove(0)]),
            replaced_by: Some(current.proto.name.clone()),
            status: Status::Deprecated,
            ..self
        }
    }

    /// The C name without prefix, type and width, as `put_signal` of `shmem_putN_signal`.
    #[must_use]
    pub fn stem(&self) -> String {
        let name = &self.proto.name[self.prefix().len()..];
        match self.types {
            Types::None => name.to_owned(),
            Types::Set(_) => name.replacen("T_", "", 1),
            Types::Widths(_) => name.replacen('N', "", 1),
            Types::Bytes => name.replacen("mem", "", 1),
        }
    }

    /// `shmem_` or `shmemx_`; old names have none.
    fn prefix(&self) -> &'static str {
        let prefixes = ["shmem_", "shmemx_"].into_iter();
        let of_name = |prefix: &&str| self.proto.name.starts_with(prefix);
        prefixes.clone().find(of_name).unwrap_or_default()
    }

    fn function(&self) -> String {
        let typed = match self.types {
            Types::None => "",
            _ => "::<{T}>",
        };
        let by_stem = || format!("{}{typed}", self.stem());
        self.behind.clone().unwrap_or_else(by_stem)
    }

    /// The Rust function of the C library behind it; `{T}` stands for the type.
    #[must_use]
    pub fn call(&self) -> String {
        format!("{}::{}", self.module, self.function())
    }

    /// Its C11 type-generic name: current routines with types have one.
    #[must_use]
    pub fn generic_name(&self) -> Option<Generic> {
        let types = match (self.status, self.generic, self.types) {
            (_, Some(types), _) => types,
            (Status::Current | Status::Extension, None, types @ Types::Set(_)) => types,
            _ => return None,
        };
        let params = self.proto.params.iter();
        Some(Generic {
            name: format!("{}{}", self.prefix(), self.stem()),
            on: params.take_while(|param| !param.ty.contains("T *")).count(),
            types,
        })
    }

    /// The items of crate `shmem` that do the same, as paths below it with their type arguments (`T` for a
    /// type of elements).
    #[must_use]
    pub fn rust_names(&self) -> Vec<String> {
        if let Some(names) = &self.rust {
            return names.clone();
        }
        let stem = self.stem();
        let first = self.proto.params.first().map(|param| param.ty.as_str());
        let name = match (first, stem.strip_suffix("_nbi")) {
            (Some("shmem_team_t"), _) => format!("Team::{}", stem.replacen("team_", "", 1)),
            (Some("shmem_ctx_t"), _) => format!("Context::{}", stem.replacen("ctx_", "", 1)),
            (_, Some(blocking)) => format!("Nbi::{blocking}"),
            _ => stem,
        };
        let typed = match self.types {
            Types::None => "",
            _ => "::<T>",
        };
        let mut names = vec![format!("{name}{typed}")];
        if self.contexts == Contexts::Any && !name.contains("::") {
            names.push(format!("Context::{name}{typed}"));
        }
        names
    }

    /// All C functions of this line.
    #[must_use]
    pub fn functions(&self) -> Vec<Function> {
        let mut functions = self.on_default();
        if self.contexts == Contexts::Any {
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
        match self.contexts {
            Contexts::Any => vec![on_context(&name), name],
            _ => vec![name],
        }
    }
}

/// The function behind a reduction, by the operation's part of the name.
pub(super) fn reduce(op: &str) -> String {
    format!("reduce::<{{T}}, {}>", type_of(op))
}

/// The type of an operation, as `Sum` of `sum`.
pub(super) fn type_of(op: &str) -> String {
    let (first, rest) = op.split_at(1);
    first.to_uppercase() + rest
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
    name.replacen('_', "_ctx_", 1)
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

/// The line whose C name, as the table spells it, is `name`.
pub(super) fn find<'a>(chapters: &'a [Chapter], name: &str) -> &'a Routine {
    let mut all = chapters.iter().flat_map(|chapter| &chapter.routines);
    all.find(|routine| routine.proto.name == name)
        .unwrap_or_else(|| panic!("the table has no {name}"))
}
