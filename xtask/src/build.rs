//! Has cargo build what is installed, and asks it where the results are.

use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use crate::error::Error;
use crate::glibc::{self, Glibc, Need};
use crate::object::Machine;

/// The packages whose results are installed.
const PACKAGES: [&str; 4] = ["shmem-launch", "shmem-core", "shmem-capi", "shmem-pmi-c"];

/// How to build.
#[derive(Debug, Clone)]
pub struct Build {
    /// Cargo's profile: `release`, `dev`, ...
    pub profile: String,
    /// For which target, by the name that rustc has for it; for this machine's kind if that is not said.
    pub target: Option<String>,
    /// The oldest glibc that the results must run with; that of this machine if there is none.
    pub glibc: Option<Glibc>,
}

/// Where the results of a build are.
#[derive(Debug, Clone)]
pub struct Products {
    /// The launcher.
    pub shmrun: PathBuf,
    /// The program that shows what the library finds on a machine.
    pub shmem_info: PathBuf,
    /// The C library, for dynamic linking.
    pub shared: PathBuf,
    /// The C library, for static linking.
    pub archive: PathBuf,
    /// The library of PMI-2 for C, for dynamic linking.
    pub pmi_shared: PathBuf,
    /// The same, for static linking.
    pub pmi_archive: PathBuf,
    /// What they run on.
    pub machine: Machine,
}

/// The root of the workspace.
pub fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("xtask is a directory of the workspace")
}

impl Build {
    /// Builds. Cargo's messages go to standard error.
    ///
    /// # Errors
    /// If cargo cannot be run or fails, or does not name one of the results.
    pub fn run(&self) -> Result<Products, Error> {
        let mut targets = vec!["--lib", "--bins"];
        let mut cargo = Cargo::default();
        let target = match self.glibc {
            Some(glibc) => {
                cargo = Cargo::for_a_glibc()?;
                let target = self.target.clone().map_or_else(|| cargo.host(), Ok)?;
                Some(format!("{target}.{glibc}"))
            }
            None => self.target.clone(),
        };
        if let Some(target) = &target {
            targets.extend(["--target", target]);
        }
        let files = cargo.build(&self.profile, &targets, &PACKAGES)?;
        let find = |name: &str| product(&files, name);
        let shared = find("libshmem.so")?;
        let products = Products {
            shmrun: find("shmrun")?,
            shmem_info: find("shmem-info")?,
            machine: Machine::of(&shared)?,
            shared,
            archive: find("libshmem.a")?,
            pmi_shared: find("libshmem_pmi2.so")?,
            pmi_archive: find("libshmem_pmi2.a")?,
        };
        match (self.glibc, products.glibc()?) {
            (Some(wanted), Some((file, need))) if need.version > wanted => {
                Err(Error::Glibc(file, need, wanted))
            }
            _ => Ok(products),
        }
    }
}

impl Products {
    /// The newest glibc that they ask for, with the file that does. Static libraries ask for what the shared ones do.
    ///
    /// # Errors
    /// If a file cannot be read, or is damaged.
    pub fn glibc(&self) -> Result<Option<(PathBuf, Need)>, Error> {
        let mut newest: Option<(PathBuf, Need)> = None;
        for file in [
            &self.shmrun,
            &self.shmem_info,
            &self.shared,
            &self.pmi_shared,
        ] {
            let bytes = std::fs::read(file).map_err(|e| Error::io("read", file, e))?;
            let need = glibc::newest(&bytes).map_err(|e| Error::Elf(file.clone(), e))?;
            if let Some(need) = need
                && newest.as_ref().is_none_or(|(_, most)| need > *most)
            {
                newest = Some((file.clone(), need));
            }
        }
        Ok(newest)
    }
}

/// Has cargo build `targets` of packages, and returns the files.
///
/// # Errors
/// If cargo cannot be run or fails.
pub fn cargo_build(
    profile: &str,
    targets: &[&str],
    packages: &[&str],
) -> Result<Vec<PathBuf>, Error> {
    Cargo::default().build(profile, targets, packages)
}

/// Cargo, or what stands in for it, and the command that builds.
struct Cargo {
    program: OsString,
    build: &'static str,
}

impl Default for Cargo {
    fn default() -> Self {
        Self {
            program: cargo(),
            build: "build",
        }
    }
}

/// The cargo that runs this.
fn cargo() -> OsString {
    std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into())
}

impl Cargo {
    /// What takes a target with a version of glibc behind it.
    fn for_a_glibc() -> Result<Self, Error> {
        if !glibc::can_link() {
            return Err(Error::Zig);
        }
        Ok(Self {
            program: glibc::PROGRAM.into(),
            build: "zigbuild",
        })
    }

    /// The target that cargo builds for by default.
    fn host(&self) -> Result<String, Error> {
        let cargo = cargo();
        let output = Command::new(&cargo).arg("-vV").output();
        let output = output.map_err(|e| Error::io("run", Path::new(&cargo), e))?;
        let said = String::from_utf8_lossy(&output.stdout);
        let host = said.lines().find_map(|line| line.strip_prefix("host: "));
        host.map(str::to_owned).ok_or(Error::Build(output.status))
    }

    fn build(
        &self,
        profile: &str,
        targets: &[&str],
        packages: &[&str],
    ) -> Result<Vec<PathBuf>, Error> {
        let mut command = Command::new(&self.program);
        command
            .args([self.build, "--quiet", "--profile", profile])
            .arg("--message-format=json-render-diagnostics")
            .args(targets)
            .args(packages.iter().flat_map(|p| ["--package", p]))
            .current_dir(workspace())
            .stdin(Stdio::null())
            .stderr(Stdio::inherit());
        let output = command
            .output()
            .map_err(|e| Error::io("run", Path::new(&self.program), e))?;
        match output.status.success() {
            true => Ok(artifacts(&String::from_utf8_lossy(&output.stdout))),
            false => Err(Error::Build(output.status)),
        }
    }
}

/// The file of this name among those that were built.
///
/// # Errors
/// If there is none.
pub fn product(files: &[PathBuf], name: &str) -> Result<PathBuf, Error> {
    files
        .iter()
        .rfind(|f| f.file_name() == Some(OsStr::new(name)))
        .cloned()
        .ok_or_else(|| Error::NoProduct(name.to_owned()))
}

/// The files that cargo's messages, one JSON object a line, name as built (or still fresh).
fn artifacts(messages: &str) -> Vec<PathBuf> {
    messages
        .lines()
        .filter(|line| line.contains(r#""reason":"compiler-artifact""#))
        .filter_map(|line| line.split_once(r#""filenames":["#))
        .flat_map(|(_, list)| strings(list))
        .map(PathBuf::from)
        .collect()
}

/// The strings of a JSON array whose opening bracket has been read.
fn strings(list: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut chars = list.chars();
    while let Some(c) = chars.next() {
        match c {
            ']' => break,
            '"' => {
                let mut text = String::new();
                while let Some(c) = chars.next() {
                    match c {
                        '"' => break,
                        // Paths of cargo need no other escapes than these two.
                        '\\' => text.extend(chars.next()),
                        _ => text.push(c),
                    }
                }
                found.push(text);
            }
            _ => {}
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    /// If a program is linked with the parser of the procedural macros, cargo builds the parser with other options than where
    /// it only expands macros, and all that depends on it twice.
    #[test]
    fn no_program_has_a_parser_of_rust() {
        let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
        let words = "tree --locked --workspace --exclude shmem-macros --edges normal,dev,no-proc-macro --prefix none --format {p}";
        let output = Command::new(cargo)
            .args(words.split(' '))
            .current_dir(workspace())
            .output()
            .unwrap();
        let list = String::from_utf8(output.stdout).unwrap();
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success() && list.contains("libc v"), "{said}");
        let parsers: Vec<_> = list.lines().filter(|p| p.starts_with("syn v")).collect();
        assert!(parsers.is_empty(), "{parsers:?}");
    }

    #[test]
    fn artifacts_are_read_from_messages() {
        let messages = concat!(
            r#"{"reason":"compiler-artifact","target":{"name":"a"},"filenames":["/t/a b/libx.so","/t/\"q\"/liby.a"],"executable":null,"fresh":true}"#,
            "\n",
            r#"{"reason":"build-script-executed","filenames":["/no"]}"#,
            "\n",
            r#"{"reason":"compiler-artifact","filenames":["/t/prog"],"executable":"/t/prog","fresh":false}"#,
            "\n",
            r#"{"reason":"build-finished","success":true}"#,
        );
        let found = artifacts(messages);
        let want = ["/t/a b/libx.so", "/t/\"q\"/liby.a", "/t/prog"].map(PathBuf::from);
        assert_eq!(found, want);
        assert!(artifacts("").is_empty());
    }
}
