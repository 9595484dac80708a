//! One-sided operations beside other OpenSHMEM libraries, in one sitting.
//!
//! `compare --out DIR` runs `p2p` on two emulated nodes, and its twin in C on the libraries that
//! are installed, over TCP on the loopback device: each once a round, starting with another one in
//! each round, so that all see the same machine. Nothing else should run meanwhile.
//!
//! * Open MPI (`oshcc`, `oshrun` on the PATH) over UCX, `UCX_TLS=tcp,self`.
//! * Sandia OpenSHMEM over libfabric, provider `tcp;ofi_rxm`. `SOS_PREFIX` names the directory it
//!   is installed in; it is started with `mpiexec.hydra`.
//!
//! What is not there is left out with a message. The table goes to standard output and, with all
//! samples, the machine and the commit, into the directory.

use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode, Stdio};
use std::time::Duration;

use clap::Parser;
use shmem_benches::about::{about, first_line};
use shmem_benches::job::{self, End};
use shmem_benches::p2p::{self, Library};

/// The twin of `p2p`, for the other libraries.
const SOURCE: &str = include_str!("../../rivals/p2p.c");

#[derive(Parser)]
#[command(about = "One-sided operations beside other OpenSHMEM libraries")]
struct Options {
    /// Rounds; each runs every library once.
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// Milliseconds of measurement per row.
    #[arg(long, default_value_t = 50)]
    milliseconds: u32,
    /// Seconds after which a run that hangs is ended.
    #[arg(long, default_value_t = 120)]
    limit: u64,
    /// Directory for the samples and the table; made if need be.
    #[arg(long)]
    out: PathBuf,
}

/// A library with the command that runs its program.
struct Candidate {
    /// For file names.
    key: &'static str,
    name: &'static str,
    version: String,
    launcher: Vec<String>,
    env: &'static [(&'static str, &'static str)],
    program: PathBuf,
}

/// Loopback only, and bound to cores, which is best for both.
const OPEN_MPI_ENV: &[(&str, &str)] = &[
    ("UCX_TLS", "tcp,self"),
    ("UCX_NET_DEVICES", "lo"),
    ("OMPI_MCA_oob_tcp_if_include", "lo"),
    ("OMPI_MCA_btl_tcp_if_include", "lo"),
    // With this component Open MPI 4.1 crashes in shmem_finalize.
    ("OMPI_MCA_osc", "^rdma"),
    ("OMPI_ALLOW_RUN_AS_ROOT", "1"),
    ("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1"),
];
const SANDIA_ENV: &[(&str, &str)] = &[
    ("SHMEM_OFI_PROVIDER", "tcp;ofi_rxm"),
    ("FI_TCP_IFACE", "lo"),
];

fn main() -> ExitCode {
    match compare(&Options::parse()) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("compare: {e}");
            ExitCode::FAILURE
        }
    }
}

/// Whether all runs were good.
fn compare(options: &Options) -> io::Result<bool> {
    fs::create_dir_all(&options.out)?;
    let mut candidates = vec![ours()?];
    for (name, other) in [
        ("Open MPI", open_mpi(&options.out)),
        ("Sandia OpenSHMEM", sandia(&options.out)),
    ] {
        match other {
            Ok(candidate) => candidates.push(candidate),
            Err(why) => eprintln!("compare: {name} is left out: {why}"),
        }
    }
    let mut head = about();
    for c in &candidates {
        head.push_str(&format!("{}: {}\n", c.name, c.version));
    }
    fs::write(options.out.join("about.txt"), &head)?;

    let mut libraries: Vec<Library> = candidates
        .iter()
        .map(|c| Library {
            name: c.name.to_owned(),
            runs: Vec::new(),
        })
        .collect();
    let mut good = true;
    for round in 0..options.rounds {
        for at in 0..candidates.len() {
            let which = (round + at) % candidates.len();
            let candidate = &candidates[which];
            match measure(candidate, round, options)? {
                Ok(rows) => libraries[which].runs.push(rows),
                Err(why) => {
                    good = false;
                    eprintln!("compare: round {round}, {}: {why}", candidate.name);
                }
            }
        }
        eprintln!("compare: {} of {} rounds", round + 1, options.rounds);
    }
    let table = p2p::table(&libraries);
    fs::write(options.out.join("table.md"), &table)?;
    print!("{table}");
    Ok(good)
}

/// One run. The inner error says what was wrong with it.
fn measure(
    candidate: &Candidate,
    round: usize,
    options: &Options,
) -> io::Result<Result<Vec<p2p::Row>, String>> {
    let file = |ending: &str| {
        let name = format!("{}.{round}.{ending}", candidate.key);
        options.out.join(name)
    };
    let (samples, messages) = (file("csv"), file("err"));
    let mut command = Command::new(&candidate.launcher[0]);
    command
        .args(&candidate.launcher[1..])
        .arg(&candidate.program)
        .arg(options.milliseconds.to_string())
        .envs(candidate.env.iter().copied())
        .stdin(Stdio::null())
        .stdout(File::create(&samples)?)
        .stderr(File::create(&messages)?);
    let end = job::run(&mut command, Duration::from_secs(options.limit))?;
    let said = fs::read_to_string(&messages).unwrap_or_default();
    if said.is_empty() {
        fs::remove_file(&messages)?;
    }
    let last = said.lines().last().unwrap_or("nothing was said");
    Ok(match end {
        End::TimedOut => Err(format!("ended after {} s ({last})", options.limit)),
        End::Exited(status) if !status.success() => Err(format!("{status} ({last})")),
        End::Exited(_) => p2p::read(&fs::read_to_string(&samples)?),
    })
}

fn ours() -> io::Result<Candidate> {
    let shmrun = job::built("shmrun")?.to_string_lossy().into_owned();
    Ok(Candidate {
        key: "ours",
        name: "shmem",
        version: first_line(&shmrun, &["--version"]).unwrap_or_default(),
        launcher: [&shmrun, "-n", "2", "--nodes", "2"].map(Into::into).into(),
        env: &[],
        program: job::built("p2p")?,
    })
}

fn open_mpi(out: &Path) -> Result<Candidate, String> {
    let version = first_line("oshcc", &["--showme:version"])
        .ok_or("there is no oshcc of Open MPI on the PATH")?;
    let launcher = ["oshrun", "--oversubscribe", "--bind-to", "core", "-np", "2"];
    Ok(Candidate {
        key: "open-mpi",
        name: "Open MPI, UCX tcp",
        version,
        launcher: launcher.map(Into::into).into(),
        env: OPEN_MPI_ENV,
        program: compile(Path::new("oshcc"), &out.join("p2p-open-mpi"))?,
    })
}

fn sandia(out: &Path) -> Result<Candidate, String> {
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
    let launcher = [
        "mpiexec.hydra",
        "-iface",
        "lo",
        "-bind-to",
        "core",
        "-np",
        "2",
    ];
    Ok(Candidate {
        key: "sandia",
        name: "Sandia, libfabric tcp;ofi_rxm",
        version: version.unwrap_or_else(|| "unknown version".to_owned()),
        launcher: launcher.map(Into::into).into(),
        env: SANDIA_ENV,
        program: compile(&prefix.join("bin/oshcc"), &out.join("p2p-sandia"))?,
    })
}

/// Compiles the twin with a library's compiler wrapper.
fn compile(oshcc: &Path, program: &Path) -> Result<PathBuf, String> {
    let source = program.with_extension("c");
    let failed = |e: io::Error| format!("{}: {e}", oshcc.display());
    fs::write(&source, SOURCE).map_err(failed)?;
    let output = Command::new(oshcc)
        .args(["-std=c99", "-O2", "-o"])
        .arg(program)
        .arg(&source)
        .output();
    fs::remove_file(&source).map_err(failed)?;
    let output = output.map_err(failed)?;
    if !output.status.success() {
        let said = String::from_utf8_lossy(&output.stderr);
        return Err(format!("{} failed:\n{said}", oshcc.display()));
    }
    // A path with a slash, or launchers look for it on the PATH.
    std::path::absolute(program).map_err(failed)
}
