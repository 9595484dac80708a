//! `cargo xtask`: chores that cargo has no command for.

use std::ffi::OsString;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Parser};
use xtask::build::Build;
use xtask::dist;
use xtask::error::Error;
use xtask::figures;
use xtask::glibc::Glibc;
use xtask::inner;
use xtask::install::{Destination, install, uninstall};

#[derive(Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Chore {
    /// Build the C library, its headers and tools, and install them
    Install {
        #[command(flatten)]
        place: Place,
        #[command(flatten)]
        how: How,
        /// Cargo's profile
        #[arg(long, default_value = "release", value_name = "NAME")]
        profile: String,
    },
    /// Pack an installation that works wherever it is unpacked, or with --source all that builds it
    Dist {
        /// Directory that gets the archive
        #[arg(long, value_name = "DIR", default_value = "target/packages")]
        out: PathBuf,
        /// The sources, with all crates that they need
        #[arg(long, conflicts_with_all = ["target", "glibc", "profile", "wheel"])]
        source: bool,
        /// The installation as a wheel, for environments of Python
        #[arg(long)]
        wheel: bool,
        #[command(flatten)]
        how: How,
        /// Cargo's profile
        #[arg(long, default_value = "dist", value_name = "NAME")]
        profile: String,
    },
    /// Remove what install has put there
    Uninstall {
        #[command(flatten)]
        place: Place,
    },
    /// Test a crate after a change: its unit tests, and a few whole jobs that pass through it
    T {
        /// The crate without `shmem-`, such as core, ib or launch
        #[arg(value_name = "CRATE")]
        name: String,
    },
    /// Measure and draw the figures of the works behind this runtime; --list says which, --help how
    #[command(disable_help_flag = true)]
    Figures {
        /// Cargo's profile
        #[arg(long, default_value = "release", value_name = "NAME")]
        profile: String,
        /// For the program that measures
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Args)]
struct How {
    /// For which target, as rustc names it, such as aarch64-unknown-linux-gnu [default: cargo's]
    #[arg(long, value_name = "TRIPLE")]
    target: Option<String>,
    /// Build for systems with this version of glibc or a newer one, such as 2.28; takes cargo-zigbuild and zig [default:
    /// what this machine's linker makes]
    #[arg(long, value_name = "VERSION")]
    glibc: Option<Glibc>,
}

impl How {
    fn build(self, profile: String) -> Build {
        Build {
            profile,
            target: self.target,
            glibc: self.glibc,
        }
    }
}

#[derive(Args)]
struct Place {
    /// Absolute path of the directory that gets bin, lib, include and share
    #[arg(long, value_name = "DIR")]
    prefix: PathBuf,
    /// Directory to put in front of the prefix, for building packages
    #[arg(long, value_name = "DIR")]
    destdir: Option<PathBuf>,
}

impl Place {
    fn destination(self) -> Result<Destination, Error> {
        Destination::new(&self.prefix, self.destdir.as_deref())
    }
}

/// What to say at the end; nothing if a program has said it.
fn run(chore: Chore) -> Result<String, Error> {
    match chore {
        Chore::Install {
            place,
            how,
            profile,
        } => {
            let destination = place.destination()?;
            destination.prepare()?;
            let products = how.build(profile).run()?;
            let files = install(&products, &destination)?;
            Ok(format!(
                "{} files installed in {}",
                files.len(),
                destination.root().display()
            ))
        }
        Chore::Dist {
            out,
            source,
            wheel,
            how,
            profile,
        } => {
            std::fs::create_dir_all(&out).map_err(|e| Error::io("make directory", &out, e))?;
            let products = || how.build(profile).run();
            let archive = match (source, wheel) {
                (true, _) => dist::source(&out)?,
                (_, true) => dist::wheel(&products()?, &out)?,
                _ => dist::relocatable(&products()?, &out, dist::Compression::best())?,
            };
            let needs = archive
                .glibc
                .map(|v| format!(" (needs glibc {v} or newer)"));
            let needs = needs.unwrap_or_default();
            Ok(format!("{}{needs}", archive.path.display()))
        }
        Chore::Uninstall { place } => {
            let destination = place.destination()?;
            let removed = uninstall(&destination)?;
            Ok(format!(
                "{removed} files removed from {}",
                destination.root().display()
            ))
        }
        Chore::T { name } => inner::run(&name),
        Chore::Figures { profile, arguments } => {
            figures::run(&profile, &arguments).map(|()| String::new())
        }
    }
}

fn main() -> ExitCode {
    match run(Chore::parse()) {
        Ok(done) => {
            if !done.is_empty() {
                println!("{done}");
            }
            ExitCode::SUCCESS
        }
        Err(e) => {
            eprintln!("xtask: {e}");
            ExitCode::FAILURE
        }
    }
}
