//! The C11 type-generic names.
//!
//! A name is a macro over `_Generic`. Whether the first argument is a context decides between the
//! two forms of a routine; then the type that a pointer argument points to decides on the function.
//! All branches of a `_Generic` have to be valid whatever the arguments are, so what is looked at is
//! first turned into a pointer that can be followed: `SHMEM_IMPL_OF`.

use std::fmt::Write;

use crate::routines::{Contexts, Function, Generic, Routine};
use crate::types::{self, Type, Types};

const HELPERS: &str = r"
/* C11: names that serve all types. */

#define SHMEM_IMPL_FIRST(a, ...) a
#define SHMEM_IMPL_SECOND(a, b, ...) b
struct shmem_impl_other {
    char nothing;
};
/* Never defined: a call that comes here does not compile. */
void shmem_impl_type_without_this_routine(struct shmem_impl_other, struct shmem_impl_other);
/* What p points to; for what is not to be followed, something of no routine's type. */
#define SHMEM_IMPL_OTHER (struct shmem_impl_other *) 0
#define SHMEM_IMPL_OF(p) *_Generic((p), \
    float: SHMEM_IMPL_OTHER, double: SHMEM_IMPL_OTHER, long double: SHMEM_IMPL_OTHER, \
    _Bool: SHMEM_IMPL_OTHER, char: SHMEM_IMPL_OTHER, signed char: SHMEM_IMPL_OTHER, \
    short: SHMEM_IMPL_OTHER, int: SHMEM_IMPL_OTHER, long: SHMEM_IMPL_OTHER, \
    long long: SHMEM_IMPL_OTHER, unsigned char: SHMEM_IMPL_OTHER, \
    unsigned short: SHMEM_IMPL_OTHER, unsigned int: SHMEM_IMPL_OTHER, \
    unsigned long: SHMEM_IMPL_OTHER, unsigned long long: SHMEM_IMPL_OTHER, \
    void *: SHMEM_IMPL_OTHER, const void *: SHMEM_IMPL_OTHER, \
    shmem_ctx_t: SHMEM_IMPL_OTHER, shmem_team_t: SHMEM_IMPL_OTHER, \
    default: (p))
";

/// The sets that generic names range over, and their macros.
const SETS: [(&str, Types); 7] = [
    ("RMA", types::RMA),
    ("STANDARD", types::STANDARD),
    ("EXTENDED", types::EXTENDED),
    ("BITWISE", types::BITWISE),
    ("WAITED", types::WAITED),
    ("ARITHMETIC", types::ARITHMETIC),
    ("BITS", types::BITS),
];

/// Whether names are chosen by type: C++ has overloading, and older C nothing.
const IF_C11: &str = r"
#if !defined(__cplusplus) && defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
";

/// The section of `shmem.h` with what the names of `routines` need.
pub(crate) fn section(routines: &[Routine]) -> String {
    let mut out = format!("{IF_C11}{HELPERS}");
    for (name, types) in SETS {
        let Types::Set(types) = types else {
            unreachable!("these are sets");
        };
        let _ = write!(out, "#define SHMEM_IMPL_{name}(before, after)");
        for ty in distinct(types) {
            let _ = write!(out, " \\\n    {}: before##{}##after,", ty.c, ty.name);
        }
        out.push_str(" \\\n    default: shmem_impl_type_without_this_routine\n");
    }
    out.push('\n');
    out.push_str(&definitions(routines));
    out.push_str(
        "#define shmem_sync(...) _Generic((SHMEM_IMPL_FIRST(__VA_ARGS__, 0)), \\\n    \
         shmem_team_t: shmem_team_sync, default: shmem_sync)(__VA_ARGS__)\n\n#endif\n",
    );
    out
}

/// The names of extensions, for `shmemx.h`.
pub(crate) fn extensions(routines: &[Routine]) -> String {
    format!("{IF_C11}\n{}\n#endif\n", definitions(routines))
}

fn definitions(routines: &[Routine]) -> String {
    let of = |routine: &Routine| Some(definition(routine, routine.generic_name()?));
    routines.iter().filter_map(of).collect()
}

/// One of each basic type: `_Generic` refuses two names of one.
fn distinct(types: &[&'static Type]) -> Vec<&'static Type> {
    let mut kept: Vec<&'static Type> = Vec::new();
    for &ty in types {
        if !kept.iter().any(|other| other.basic == ty.basic) {
            kept.push(ty);
        }
    }
    kept
}

fn definition(routine: &Routine, generic: Generic) -> String {
    let Generic { name, on, types } = generic;
    if types == Types::None {
        // Only the context is to be told apart.
        let [plain, on_context] = two_names(routine);
        return format!(
            "#define {name}(...) _Generic((SHMEM_IMPL_FIRST(__VA_ARGS__, 0)), \\\n    \
             shmem_ctx_t: {on_context}, default: {plain})(__VA_ARGS__)\n"
        );
    }
    let set = set(types);
    // Deprecated names call what replaced them, which exists for more types.
    let target = routine.replaced_by.as_ref().unwrap_or(&routine.proto.name);
    let (before, after) = target
        .split_once('T')
        .unwrap_or_else(|| panic!("{target} has no type in its name"));
    let argument = |n: usize| match n {
        0 => "SHMEM_IMPL_FIRST(__VA_ARGS__, 0)",
        1 => "SHMEM_IMPL_SECOND(__VA_ARGS__, 0, 0)",
        _ => unreachable!("no routine has its type further back"),
    };
    let choose = |before: &str, n: usize| {
        format!(
            "_Generic(SHMEM_IMPL_OF({}), SHMEM_IMPL_{set}({before}, {after}))",
            argument(n)
        )
    };
    if routine.contexts == Contexts::Any {
        format!(
            "#define {name}(...) _Generic(({}), \\\n    shmem_ctx_t: {}, \\\n    default: \
             {})(__VA_ARGS__)\n",
            argument(0),
            choose(&before.replacen('_', "_ctx_", 1), on + 1),
            choose(before, on)
        )
    } else {
        format!(
            "#define {name}(...) \\\n    {}(__VA_ARGS__)\n",
            choose(before, on)
        )
    }
}

/// Minima and maxima range over the arithmetic types but the complex ones, which have no macro of
/// their own.
fn set(types: Types) -> &'static str {
    if types == types::ORDERED {
        // The element types are those of copies.
        return "RMA";
    }
    SETS.iter()
        .find(|(_, set)| *set == types)
        .unwrap_or_else(|| panic!("no macro for {types:?}"))
        .0
}

fn two_names(routine: &Routine) -> [String; 2] {
    let names: Vec<String> = routine
        .functions()
        .into_iter()
        .map(|Function { proto, .. }| proto.name)
        .collect();
    names.try_into().expect("with a context and without")
}
