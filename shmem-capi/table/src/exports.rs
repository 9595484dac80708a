//! The exported functions as Rust source, for the build script of `shmem-capi`.

use std::fmt::Write;

use crate::proto::Param;
use crate::routines::{Contexts, Function, Routine, functions};
use crate::types::{ARITHMETIC, RMA, Types};

/// All functions and their twins, as calls of the macro `export!`; functions that pass a `long
/// double` by value are not among them.
#[must_use]
pub fn rust() -> String {
    let mut out = String::new();
    for (routine, function) in functions() {
        if !function.passes_long_double() {
            export(&mut out, &routine, &function);
        }
    }
    out
}

fn export(out: &mut String, routine: &Routine, function: &Function) {
    let name = &function.proto.name;
    let params: Vec<String> = function
        .proto
        .params
        .iter()
        .filter(|param| param.ty != "...")
        .map(|param| format!("{}: {}", rust_name(param), rust_type(&param.ty)))
        .collect();
    let ret = match function.proto.ret.as_str() {
        "void" => String::new(),
        ret => format!(" -> {}", rust_type(ret)),
    };
    let _ = writeln!(
        out,
        "export! {{ {name} {} ({}){ret} {{ {} }} }}",
        function.twin(),
        params.join(", "),
        call(routine, function)
    );
}

/// The call of the function behind it, which learns the C name for its messages.
fn call(routine: &Routine, function: &Function) -> String {
    let path = match function.element {
        Some(element) => routine.call().replace("{T}", element),
        None => routine.call(),
    };
    let mut args = vec![format!("\"{}\"", function.proto.name)];
    if routine.contexts != Contexts::No && !function.takes_context {
        args.push("Ctx::DEFAULT".to_owned());
    }
    let untyped = !matches!(routine.types, Types::None | Types::Set(_));
    for param in &function.proto.params {
        if param.ty == "..." {
            continue;
        }
        let cast = match untyped && param.ty.ends_with("void *") {
            true => ".cast()",
            false => "",
        };
        args.push(format!("{}{cast}", rust_name(param)));
    }
    format!("{path}({})", args.join(", "))
}

fn rust_name(param: &Param) -> String {
    param.name.to_lowercase()
}

fn rust_type(ty: &str) -> String {
    if let Some(target) = ty.strip_suffix('*') {
        let target = target.trim_end();
        let (pointer, target) = match target.strip_prefix("const ") {
            Some(target) => ("const", target),
            None => ("mut", target),
        };
        // Rust has it at the access, not in the type.
        let target = target.strip_prefix("volatile ").unwrap_or(target);
        return format!("*{pointer} {}", rust_type(target));
    }
    let named = match ty {
        "void" => "c_void",
        "SHMEM_IMPL_NORETURN void" => "!",
        "shmem_ctx_t" => "Ctx",
        "shmem_team_t" => "Team",
        "shmem_team_config_t" => "TeamConfig",
        "shmem_ctx_session_config_t" => "SessionConfig",
        "shmemx_uniqueid_t" => "UniqueIdBytes",
        ty => {
            let (Types::Set(types), Types::Set(more)) = (RMA, ARITHMETIC) else {
                unreachable!("these are sets");
            };
            types
                .iter()
                .chain(more)
                .find(|known| known.c == ty)
                .unwrap_or_else(|| panic!("the table has no type {ty}"))
                .rust
        }
    };
    named.to_owned()
}
