//! The C headers.

use crate::constants::BLOCKS;
use crate::generics;
use crate::routines::{Routine, Status, chapters};

const BANNER: &str = "\
/* Made from the table in shmem-capi/table; UPDATE_DOCS=1 cargo test -p shmem-capi writes it anew. */
";

/// What follows the guard of `shmem.h`, up to the constants.
const PREAMBLE: &str = r#"
#include <stddef.h>
#include <stdint.h>

#if __STDC_HOSTED__ && !defined(__GLIBC__)
#error "libshmem is for programs with glibc; the headers here are those of another C library"
#endif

#if defined(__cplusplus)
#define SHMEM_IMPL_NORETURN __attribute__((__noreturn__))
#define SHMEM_IMPL_COMPLEX __complex__
#elif defined(__STDC_VERSION__) && __STDC_VERSION__ >= 201112L
#define SHMEM_IMPL_NORETURN _Noreturn
#define SHMEM_IMPL_COMPLEX _Complex
#else
#define SHMEM_IMPL_NORETURN __attribute__((__noreturn__))
#define SHMEM_IMPL_COMPLEX __complex__
#endif

#ifdef __cplusplus
extern "C" {
#endif

/* Handles. The two structures exist only to make the two types distinct. */
typedef struct shmem_impl_ctx *shmem_ctx_t;
typedef struct shmem_impl_team *shmem_team_t;

typedef struct {
    int num_contexts;
} shmem_team_config_t;

typedef struct {
    size_t total_ops;
} shmem_ctx_session_config_t;
"#;

/// C++ before 2011 has no `long long`, and nothing but this keeps compilers from saying so.
const OLD_CXX: &str = r"
#if defined(__cplusplus) && __cplusplus < 201103L && defined(__GNUC__)
#pragma GCC system_header
#endif
";

/// What extensions take.
const EXTENSION_TYPES: &str = r"
/* The id of a job without a launcher, a secret: bytes to hand on as they are, by whatever channel. Written as
   hexadecimal digits they are what SHMEM_UNIQUE_ID takes. */
#define SHMEMX_UNIQUEID_BYTES 128
typedef struct {
    unsigned char bytes[SHMEMX_UNIQUEID_BYTES];
} shmemx_uniqueid_t;
";

const BEGIN: &str = r#"
#ifdef __cplusplus
extern "C" {
#endif
"#;

const END: &str = r"
#ifdef __cplusplus
}
#endif
";

/// A header: its name below `include/`, and its text.
pub struct Header {
    /// `shmem.h`
    pub name: &'static str,
    /// Contents.
    pub text: String,
}

/// All headers.
#[must_use]
pub fn headers() -> Vec<Header> {
    vec![
        Header {
            name: "shmem.h",
            text: shmem(),
        },
        Header {
            name: "pshmem.h",
            text: pshmem(),
        },
        Header {
            name: "shmemx.h",
            text: shmemx(),
        },
        Header {
            name: "mpp/shmem.h",
            text: format!("{BANNER}/* Deprecated place of shmem.h. */\n#include <shmem.h>\n"),
        },
        Header {
            name: "mpp/shmemx.h",
            text: format!("{BANNER}/* Deprecated place of shmemx.h. */\n#include <shmemx.h>\n"),
        },
    ]
}

fn shmem() -> String {
    let mut out = format!(
        "{BANNER}/* OpenSHMEM 1.6: the C interface, its C11 type-generic names and what is deprecated. */\n\
         #ifndef SHMEM_H\n#define SHMEM_H\n{OLD_CXX}{PREAMBLE}"
    );
    for block in BLOCKS {
        out.push_str(&format!("\n/* {} */\n", block.about));
        for constant in block.constants {
            out.push_str(&format!("#define {} {}\n", constant.name, constant.value));
        }
    }
    let standard = routines(|status| status != Status::Extension);
    for (title, routines) in &standard {
        prototypes(&mut out, title, routines, "");
    }
    out.push_str(END);
    let all: Vec<Routine> = standard.into_iter().flat_map(|(_, r)| r).collect();
    out.push_str(&generics::section(&all));
    out.push_str("\n#endif\n");
    out
}

fn shmemx() -> String {
    let extensions = routines(|status| status == Status::Extension);
    let about = match extensions.is_empty() {
        true => "Extensions: there are none beyond OpenSHMEM 1.6.",
        false => "Extensions: what there is beyond OpenSHMEM 1.6.",
    };
    let mut out = format!(
        "{BANNER}/* {about} */\n#ifndef SHMEMX_H\n#define SHMEMX_H\n\n#include <shmem.h>\n"
    );
    if !extensions.is_empty() {
        out.push_str(OLD_CXX);
        out.push_str(EXTENSION_TYPES);
        out.push_str(BEGIN);
        for (title, routines) in &extensions {
            prototypes(&mut out, title, routines, "");
        }
        out.push_str(END);
        let all: Vec<Routine> = extensions.into_iter().flat_map(|(_, r)| r).collect();
        out.push_str(&generics::extensions(&all));
    }
    out.push_str("\n#endif\n");
    out
}

fn pshmem() -> String {
    let mut out = format!(
        "{BANNER}/* The profiling interface: every routine under a second name, for libraries that define the\n   \
         first one. */\n\
         #ifndef PSHMEM_H\n#define PSHMEM_H\n{OLD_CXX}\n#include <shmemx.h>\n{BEGIN}"
    );
    for (title, routines) in routines(|_| true) {
        prototypes(&mut out, title, &routines, "p");
    }
    out.push_str(END);
    out.push_str("\n#endif\n");
    out
}

/// The chapters that have routines of a status, each with those.
fn routines(wanted: impl Fn(Status) -> bool) -> Vec<(&'static str, Vec<Routine>)> {
    let mut found = Vec::new();
    for mut chapter in chapters() {
        chapter.routines.retain(|routine| wanted(routine.status));
        if !chapter.routines.is_empty() {
            found.push((chapter.title, chapter.routines));
        }
    }
    found
}

fn prototypes(out: &mut String, title: &str, routines: &[Routine], prefix: &str) {
    out.push_str(&format!("\n/* {title} */\n"));
    for routine in routines {
        if routine.status == Status::Removed {
            out.push_str("/* no longer in the specification */\n");
        }
        for mut function in routine.functions() {
            function.proto.name.insert_str(0, prefix);
            let text = function.proto.c();
            // What pedantic compilers of older standards warn of.
            if text.contains("long long") || text.contains("COMPLEX") {
                out.push_str("__extension__ ");
            }
            out.push_str(&text);
            out.push_str(";\n");
        }
    }
}
