//! The installed library, made once for all tests, and compiling with it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::SystemTime;

use shmem_testkit::needs::skipped;
use shmem_testkit::tools::{CC, CXX, NM, Tool, command};
use shmem_testkit::{Job, text};
use xtask::build::{Build, Products, workspace};
use xtask::install::{Destination, install};

/// Options for all compilations: what the tests are strict about.
const FLAGS: [&str; 5] = ["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"];
const CXX_FLAGS: [&str; 5] = ["-std=gnu++11", "-O1", "-Wall", "-Wextra", "-Werror"];

/// An installed library, and a place for programs.
pub(crate) struct Toolchain {
    pub(crate) prefix: PathBuf,
    pub(crate) products: Products,
    programs: PathBuf,
    /// When the library or a header was changed last.
    changed: SystemTime,
}

/// Directory for what the tests make.
pub(crate) fn scratch() -> &'static Path {
    Path::new(env!("CARGO_TARGET_TMPDIR"))
}

/// The tests' C sources.
pub(crate) fn sources() -> PathBuf {
    workspace().join("tests/c")
}

/// Whether `words --version` works.
pub(crate) fn works(words: &str) -> bool {
    let output = command(words).arg("--version").output();
    output.is_ok_and(|o| o.status.success())
}

fn newest(path: &Path) -> SystemTime {
    let Ok(entries) = fs::read_dir(path) else {
        let modified = fs::metadata(path).and_then(|m| m.modified());
        return modified.unwrap_or(SystemTime::UNIX_EPOCH);
    };
    entries
        .flatten()
        .map(|e| newest(&e.path()))
        .max()
        .unwrap_or(SystemTime::UNIX_EPOCH)
}

/// The installed library; `None` where C cannot be compiled.
pub(crate) fn toolchain() -> Option<&'static Toolchain> {
    static TOOLCHAIN: OnceLock<Result<Toolchain, String>> = OnceLock::new();
    let made = TOOLCHAIN
        .get_or_init(|| {
            let tools = [CC, CXX, NM].map(Tool::words);
            if let Some(missing) = tools.iter().find(|c| !works(c)) {
                return Err(format!("there is no {missing}"));
            }
            let build = Build {
                profile: "dev".to_owned(),
                target: None,
            };
            let products = build.run().unwrap_or_else(|e| panic!("{e}"));
            let prefix = scratch().join("c library"); // with a space: paths are quoted
            let destination = Destination::new(&prefix, None).unwrap();
            install(&products, &destination).unwrap_or_else(|e| panic!("{e}"));
            let programs = scratch().join("c-programs");
            fs::create_dir_all(&programs).unwrap();
            let changed = newest(&products.shared)
                .max(newest(&products.pmi_shared))
                .max(newest(&workspace().join("shmem-capi/include")))
                .max(newest(&workspace().join("shmem-pmi/c/include")))
                .max(newest(&workspace().join("xtask/files")));
            Ok(Toolchain {
                prefix,
                products,
                programs,
                changed,
            })
        })
        .as_ref();
    // Said by each test that goes without, not only by the first.
    made.map_err(|why| skipped("c", why)).ok()
}

impl Toolchain {
    /// A command of the installation.
    pub(crate) fn tool(&self, name: &str) -> PathBuf {
        self.prefix.join("bin").join(name)
    }

    /// A job of a program, started by the installed `oshrun`.
    pub(crate) fn job(&self, options: &str, program: &Path, args: &[&str]) -> Job {
        let program = program.to_str().expect("a path in UTF-8");
        let mut words = vec![program];
        words.extend(args);
        let oshrun = self.tool("oshrun");
        Job::new(oshrun.to_str().expect("a path in UTF-8"), options, &words)
    }

    /// Makes file `name` from `inputs` with a compiler wrapper, unless it is newer than all of its
    /// sources and the library.
    pub(crate) fn make(&self, name: &str, inputs: &[PathBuf], flags: &[&str]) -> PathBuf {
        let made = self.programs.join(name);
        let after = inputs.iter().map(|i| newest(i)).max();
        let after = after.max(Some(self.changed.max(newest(&sources()))));
        if Some(newest(&made)) > after {
            return made;
        }
        let cxx = inputs
            .iter()
            .any(|i| i.extension().is_some_and(|e| e == "cpp"));
        let (wrapper, standard) = match cxx {
            true => ("oshc++", CXX_FLAGS),
            false => ("oshcc", FLAGS),
        };
        // Programs that run keep theirs, tests that run at the same time see whole files only, and each makes its own:
        // threads of this process, too.
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let fresh = made.with_extension(format!("{}-{number}.new", std::process::id()));
        let mut command = Command::new(self.tool(wrapper));
        command
            .args(standard)
            .args(inputs)
            .args(flags)
            .arg("-o")
            .arg(&fresh);
        let output = command
            .output()
            .unwrap_or_else(|e| panic!("{wrapper}: {e}"));
        let messages = text(&output.stderr);
        assert!(output.status.success(), "{command:?}:\n{messages}");
        fs::rename(&fresh, &made).unwrap();
        made
    }

    /// The objects of the conformance program, one for each file of tests/c.
    pub(crate) fn conformance_objects(&self) -> &'static [PathBuf] {
        static OBJECTS: OnceLock<Vec<PathBuf>> = OnceLock::new();
        OBJECTS.get_or_init(|| {
            let mut files: Vec<_> = fs::read_dir(sources())
                .unwrap()
                .map(|e| e.unwrap().path())
                .filter(|p| p.extension().is_some_and(|e| e == "c"))
                .collect();
            files.sort();
            let object = |file: &PathBuf| {
                let name = file.file_stem().unwrap().to_str().unwrap();
                self.make(
                    &format!("{name}.o"),
                    std::slice::from_ref(file),
                    &["-c", "-fPIC"],
                )
            };
            // Two halves at a time: the files are large once their macros are expanded.
            let (first, second) = files.split_at(files.len() / 2);
            std::thread::scope(|s| {
                let rest = s.spawn(|| second.iter().map(object).collect::<Vec<_>>());
                let mut objects: Vec<_> = first.iter().map(object).collect();
                objects.extend(rest.join().unwrap());
                objects
            })
        })
    }

    /// A program of tests/c/programs.
    pub(crate) fn program(&self, name: &str) -> PathBuf {
        let source = sources().join("programs").join(format!("{name}.c"));
        self.make(name, &[source], &["-pthread"])
    }
}
