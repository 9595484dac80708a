//! OpenSHMEM libraries that are measured beside each other: how programs are compiled for each and
//! started.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::process::Command;

use shmem_testkit::job;
use shmem_testkit::samples::first_line;

use crate::table::Part;

/// A benchmark that exists as a Rust program and as a C source, with the same rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bench {
    /// Name of both.
    pub name: &'static str,
    source: &'static str,
}

/// One-sided operations between two PEs.
pub const P2P: Bench = Bench {
    name: "p2p",
    source: include_str!("../rivals/p2p.c"),
};

/// Collectives on all PEs.
pub const COLLECTIVES: Bench = Bench {
    name: "collectives",
    source: include_str!("../rivals/collectives.c"),
};

/// The header of what is no library.
const RAW_HEADER: &str = include_str!("../rivals/raw/shmem.h");

/// What a library's PEs talk over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Over {
    /// The memory of one node.
    Memory,
    /// The loopback device, between two nodes that are emulated on this machine if need be.
    Loopback,
}

/// A library with what is needed to run programs with it.
#[derive(Debug, Clone)]
pub struct Candidate {
    /// For file names.
    pub key: &'static str,
    /// For people.
    pub name: &'static str,
    /// Its version.
    pub version: String,
    /// What it is in the comparison.
    pub part: Part,
    over: Over,
    launcher: Launcher,
    /// Compiler of the C source; none for our programs in Rust.
    compiler: Option<Vec<String>>,
    /// What it runs instead of a benchmark.
    instead: Option<&'static str>,
    env: Vec<(&'static str, &'static str)>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Launcher {
    /// `shmrun` or a wrapper of it, at this path.
    Ours(String),
    OpenMpi,
    Hydra,
    /// The program starts its PEs itself.
    None,
}

const OPEN_MPI_ENV: &[(&str, &str)] = &[
    ("OMPI_MCA_oob_tcp_if_include", "lo"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    // With this component Open MPI 4.1 crashes in shmem_finalize.
    ("OMPI_MCA_osc", "^rdma"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
const UCX_TCP: &[(&str, &str)] = &[("UCX_TLS", "tcp,self"), ("UCX_NET_DEVICES", "lo")];

impl Candidate {
    /// Our library and its programs in Rust.
    ///
    /// # Errors
    /// If `shmrun` has not been built.
    pub fn rust(over: Over) -> io::Result<Self> {
        let shmrun = job::built("shmrun")?.to_string_lossy().into_owned();
        Ok(Self {
            key: "ours",
            name: "shmem",
            version: first_line(&shmrun, &["--version"]).unwrap_or_default(),
            part: Part::Ours,
            over,
            launcher: Launcher::Ours(shmrun),
            compiler: None,
            instead: None,
            env: Vec::new(),
        })
    }

    /// Our library from C, as `SHMEM_PREFIX` says where it is installed.
    ///
    /// # Errors
    /// Why it is left out.
    pub fn c(over: Over) -> Result<Self, String> {
        let prefix = std::env::var_os("SHMEM_PREFIX")
            .map(PathBuf::from)
            .ok_or("SHMEM_PREFIX does not say where it is installed (cargo xtask install)")?;
        let tool = |name: &str| prefix.join("bin").join(name).to_string_lossy().into_owned();
        Ok(Self {
            key: "ours-c",
            name: "shmem, C",
            version: first_line(&tool("oshrun"), &["--version"])
                .ok_or_else(|| format!("{} does not run", tool("oshrun")))?,
            part: Part::Ours,
            over,
            launcher: Launcher::Ours(tool("oshrun")),
            compiler: Some(vec![tool("oshcc")]),
            instead: None,
            env: Vec::new(),
        })
    }

    /// Open MPI.
    ///
    /// # Errors
    /// Why it is left out.
    pub fn open_mpi(over: Over) -> Result<Self, String> {
        let version = first_line("oshcc", &["--showme:version"])
            .ok_or("there is no oshcc of Open MPI on the PATH")?;
        let mut env = OPEN_MPI_ENV.to_vec();
        if over == Over::Loopback {
            env.extend(UCX_TCP);
        }
        Ok(Self {
            key: "open-mpi",
            name: match over {
                Over::Memory => "Open MPI, UCX",
                Over::Loopback => "Open MPI, UCX tcp",
            },
            version,
            part: Part::Rival,
            over,
            launcher: Launcher::OpenMpi,
            compiler: Some(vec!["oshcc".into()]),
            instead: None,
            env,
        })
    }

    /// Sandia OpenSHMEM over libfabric, which needs the provider for the network.
    ///
    /// # Errors
    /// Why it is left out.
    pub fn sandia() -> Result<Self, String> {
        let prefix = std::env::var_os("SOS_PREFIX")
            .map(PathBuf::from)
            .ok_or("SOS_PREFIX does not say where it is installed")?;
        first_line("mpiexec.hydra", &["--version"])
            .ok_or("there is no mpiexec.hydra on the PATH to start it with")?;
        let pc = fs::read_to_string(prefix.join("lib/pkgconfig/sandia-openshmem.pc"));
        let version = pc
            .unwrap_or_default()
            .lines()
            .find_map(|line| line.strip_prefix("Version:").map(|v| v.trim().to_owned()));
        let oshcc = prefix.join("bin/oshcc").to_string_lossy().into_owned();
        Ok(Self {
            key: "sandia",
            name: "Sandia, libfabric tcp;ofi_rxm",
            version: version.unwrap_or_else(|| "unknown version".to_owned()),
            part: Part::Rival,
            over: Over::Loopback,
            launcher: Launcher::Hydra,
            compiler: Some(vec![oshcc]),
            instead: None,
            env: vec![
                ("SHMEM_OFI_PROVIDER", "tcp;ofi_rxm"),
                ("FI_TCP_IFACE", "lo"),
            ],
        })
    }

    /// No library: two processes that share memory.
    ///
    /// # Errors
    /// Why it is left out.
    pub fn raw(dir: &Path) -> Result<Self, String> {
        let version = first_line("cc", &["--version"]).ok_or("there is no cc on the PATH")?;
        let include = dir.join("raw");
        fs::create_dir_all(&include)
            .and_then(|()| fs::write(include.join("shmem.h"), RAW_HEADER))
            .map_err(|e| format!("{}: {e}", include.display()))?;
        Ok(Self {
            key: "raw",
            name: "raw memory",
            version,
            part: Part::Limit,
            over: Over::Memory,
            launcher: Launcher::None,
            compiler: Some(vec!["cc".into(), format!("-I{}", include.display())]),
            instead: None,
            env: Vec::new(),
        })
    }

    /// No library: two processes that spin on UDP sockets.
    ///
    /// # Errors
    /// If it has not been built.
    pub fn sockets() -> Result<Self, String> {
        const PROGRAM: &str = "raw-sockets";
        job::built(PROGRAM).map_err(|e| e.to_string())?;
        Ok(Self {
            key: "raw",
            name: "raw UDP",
            version: first_line("uname", &["-r"]).unwrap_or_default(),
            part: Part::Limit,
            over: Over::Loopback,
            launcher: Launcher::None,
            compiler: None,
            instead: Some(PROGRAM),
            env: Vec::new(),
        })
    }

    /// Whether it can run `bench` on so many PEs.
    pub fn can(&self, bench: Bench, n_pes: usize) -> bool {
        self.launcher != Launcher::None || (bench == P2P && n_pes == 2)
    }

    /// The program of a benchmark; in `dir`, where it has to be compiled.
    ///
    /// # Errors
    /// What failed.
    pub fn program(&self, bench: Bench, dir: &Path) -> Result<PathBuf, String> {
        match &self.compiler {
            None => job::built(self.instead.unwrap_or(bench.name)).map_err(|e| e.to_string()),
            Some(compiler) => {
                let program = dir.join(format!("{}-{}", bench.name, self.key));
                compile(compiler, bench.source, &program)
            }
        }
    }

    /// The command that runs `program` on so many PEs, bound to cores if there are enough.
    pub fn command(&self, program: &Path, n_pes: usize) -> Command {
        let cores = std::thread::available_parallelism().map_or(1, usize::from);
        let bind = if n_pes <= cores { "core" } else { "none" };
        let n = n_pes.to_string();
        let launcher: Vec<&str> = match (&self.launcher, self.over) {
            (Launcher::Ours(path), Over::Memory) => vec![path, "--bind-to", bind, "-n", &n],
            (Launcher::Ours(path), Over::Loopback) => {
                vec![path, "--bind-to", bind, "-n", &n, "--nodes", "2"]
            }
            (Launcher::OpenMpi, _) => {
                vec!["oshrun", "--oversubscribe", "--bind-to", bind, "-np", &n]
            }
            (Launcher::Hydra, _) => {
                vec!["mpiexec.hydra", "-iface", "lo", "-bind-to", bind, "-np", &n]
            }
            (Launcher::None, _) => Vec::new(),
        };
        let mut command = match launcher.split_first() {
            Some((first, rest)) => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
            None => Command::new(program),
        };
        command.envs(self.env.iter().copied());
        if self.over == Over::Memory || self.launcher == Launcher::None {
            command.env("BENCH_BIND", "1");
        }
        command
    }
}

/// Compiles a source with a library's compiler wrapper.
fn compile(compiler: &[String], text: &str, program: &Path) -> Result<PathBuf, String> {
    let source = program.with_extension("c");
    let failed = |e: io::Error| format!("{}: {e}", compiler[0]);
    fs::write(&source, text).map_err(failed)?;
    let output = Command::new(&compiler[0])
        .args(&compiler[1..])
        .args(["-std=gnu99", "-O2", "-o"])
        .arg(program)
        .arg(&source)
        .output();
    fs::remove_file(&source).map_err(failed)?;
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed:\n{said}", compiler[0]));
    }
    // A path with a slash, or launchers look for it on the PATH.
    std::path::absolute(program).map_err(failed)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limits_are_measured_without_a_library() {
        let dir = std::env::temp_dir().join(format!("shmem-benches-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let Ok(raw) = Candidate::raw(&dir) else {
            return; // no compiler
        };
        assert!(raw.can(P2P, 2) && !raw.can(COLLECTIVES, 2) && !raw.can(P2P, 3));
        let program = raw.program(P2P, &dir).expect("it compiles");
        let output = raw
            .command(&program, 2)
            .arg("0.01")
            .output()
            .expect("it runs");
        let text = String::from_utf8_lossy(&output.stdout);
        let rows = crate::table::read(&text).unwrap_or_else(|e| panic!("{e}"));
        assert!(output.status.success());
        assert!(rows.iter().any(|r| r.name == "pingpong"));
        fs::remove_dir_all(&dir).expect("it is ours");
    }
}
