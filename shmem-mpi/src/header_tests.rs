//! Has C compilers compare the numbers of [`crate::abi`] with headers, where there are any.

use std::fmt::Write as _;
use std::path::PathBuf;
use std::process::Command;

use shmem_testkit::needs::skipped;
use shmem_testkit::tools::{self, command};

use crate::abi::{Constants, Interface, Predefined, Status};

/// In the order of [`crate::element::Kind`].
const KINDS: [&str; 10] = [
    "INT8_T", "INT16_T", "INT32_T", "INT64_T", "UINT8_T", "UINT16_T", "UINT32_T", "UINT64_T",
    "FLOAT", "DOUBLE",
];

/// A program that names what differs.
fn program(header: &str, interface: Interface) -> String {
    let c: &Constants<Predefined> = interface.constants();
    let mut checks = String::new();
    let mut handle = |name: &str, of_type: &str, value: Predefined| {
        let value = match value {
            Predefined::Number(number) => number.to_string(),
            Predefined::Symbol(symbol) => format!("(long)&{symbol}"),
        };
        let _ = writeln!(
            checks,
            "check(\"{name}\", (long)({of_type})MPI_{name}, {value});"
        );
    };
    handle("COMM_WORLD", "MPI_Comm", c.world);
    handle("REQUEST_NULL", "MPI_Request", c.no_request);
    handle("INFO_NULL", "MPI_Info", c.no_info);
    handle("ERRORS_RETURN", "MPI_Errhandler", c.errors_return);
    for (name, op) in ["SUM", "MAX", "MIN"].into_iter().zip(c.ops) {
        handle(name, "MPI_Op", op);
    }
    for (name, kind) in KINDS.into_iter().zip(c.kinds) {
        handle(name, "MPI_Datatype", kind);
    }
    let [single, funneled, serialized, multiple] = c.thread_levels;
    for (name, value) in [
        ("MPI_ANY_SOURCE", c.any_source as isize),
        ("MPI_ANY_TAG", c.any_tag as isize),
        ("MPI_COMM_TYPE_SHARED", c.shared as isize),
        ("MPI_THREAD_SINGLE", single as isize),
        ("MPI_THREAD_FUNNELED", funneled as isize),
        ("MPI_THREAD_SERIALIZED", serialized as isize),
        ("MPI_THREAD_MULTIPLE", multiple as isize),
        ("MPI_IN_PLACE", c.in_place),
        ("MPI_STATUS_IGNORE", c.status_ignore as isize),
        ("MPI_SUCCESS", 0),
        ("offsetof(MPI_Status, MPI_SOURCE)", 4 * c.source_at as isize),
        (
            "offsetof(MPI_Status, MPI_TAG)",
            4 * c.source_at as isize + 4,
        ),
    ] {
        let _ = writeln!(checks, "check(\"{name}\", (long)({name}), {value});");
    }
    let int = match interface.has_int_handles() {
        true => "sizeof(int)",
        false => "sizeof(void *)",
    };
    let _ = writeln!(checks, "check(\"handles\", sizeof(MPI_Comm), {int});");
    let room = size_of::<Status>();
    let _ = writeln!(checks, "check(\"room\", sizeof(MPI_Status) <= {room}, 1);");
    format!(
        "#include <{header}>\n#include <stddef.h>\n#include <stdio.h>\nstatic int differ;\n\
         static void check(const char *name, long is, long ours) {{\n\
             if (is != ours) {{ printf(\"%s is %ld, not %ld\\n\", name, is, ours); differ = 1; }}\n}}\n\
         int main(void) {{\n{checks}return differ;\n}}\n"
    )
}

/// Compiles and runs it.
fn compare(
    name: &str,
    (header, interface): (&str, Interface),
    compiler: &str,
    options: &[&str],
    need: &str,
) {
    let dir = std::env::temp_dir().join(format!("shmem-mpi-{}-{name}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory for the program");
    let (source, binary) = (dir.join("check.c"), dir.join("check"));
    std::fs::write(&source, program(header, interface)).expect("a file for the program");
    let compiled = command(compiler)
        .arg(&source)
        .arg("-o")
        .arg(&binary)
        .args(options)
        .output();
    let why_not = match &compiled {
        Ok(output) if output.status.success() => None,
        Ok(output) => Some(String::from_utf8_lossy(&output.stderr).into_owned()),
        Err(e) => Some(e.to_string()),
    };
    let ran = why_not.is_none().then(|| Command::new(&binary).output());
    let _ = std::fs::remove_dir_all(&dir);
    match ran {
        None => skipped(
            need,
            format_args!("{compiler}: {}", why_not.unwrap_or_default()),
        ),
        Some(ran) => {
            let ran = ran.expect("the program can be run");
            let said = String::from_utf8_lossy(&ran.stdout);
            assert!(
                ran.status.success(),
                "{name}: {said}{}",
                String::from_utf8_lossy(&ran.stderr)
            );
        }
    }
}

fn prefix(variable: &str, need: &str) -> Option<PathBuf> {
    let prefix = std::env::var_os(variable).map(PathBuf::from);
    if prefix.is_none() {
        skipped(need, format_args!("{variable} is not set"));
    }
    prefix
}

#[test]
fn mpich_has_these_numbers() {
    compare(
        "mpich",
        ("mpi.h", Interface::Mpich),
        "mpicc.mpich",
        &[],
        "mpich",
    );
}

#[test]
fn mpich_5_has_these_numbers_and_so_has_the_standard() {
    let Some(prefix) = prefix("PMI_SPAWN_MPICH", "mpich-spawn") else {
        return;
    };
    let include = format!("-I{}", prefix.join("include").display());
    for (name, of) in [
        ("mpich5", ("mpi.h", Interface::Mpich)),
        ("standard", ("mpi_abi.h", Interface::Standard)),
    ] {
        compare(name, of, &tools::CC.words(), &[&include], "mpich-spawn");
    }
}

#[test]
fn open_mpi_has_these_numbers() {
    let of = ("mpi.h", Interface::OpenMpi);
    compare("openmpi4", of, "mpicc.openmpi", &[], "openmpi-c");
    let Some(prefix) = prefix("OPENMPI_PREFIX", "openmpi5") else {
        return;
    };
    let (include, lib) = (prefix.join("include"), prefix.join("lib"));
    let options = [
        format!("-I{}", include.display()),
        format!("-L{}", lib.display()),
        "-l:libmpi.so.40".to_owned(),
        format!("-Wl,-rpath,{}", lib.display()),
        "-Wl,--allow-shlib-undefined".to_owned(),
    ];
    let options = options.each_ref().map(String::as_str);
    compare("openmpi5", of, &tools::CC.words(), &options, "openmpi5");
}
