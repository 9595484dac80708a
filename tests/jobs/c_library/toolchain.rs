//! The installed library, made once for all tests, and compiling with it.
//!
//! Tests may be threads of one process, or each a process of its own (cargo-nextest). So whatever they share in
//! [`scratch`] is made under a lock, by the test that comes first.

use std::ffi::OsStr;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;
use std::time::SystemTime;

use shmem_testkit::Job;
use shmem_testkit::lock::turn_at;
use shmem_testkit::needs::skipped;
use shmem_testkit::tools::{CC, CXX, NM, Tool, command, made_by};
use xtask::build::{Build, Products, workspace};
use xtask::install::{Destination, install};
use xtask::object::Machine;

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
            Ok(installed())
        })
        .as_ref();
    // Said by each test that goes without, not only by the first.
    made.map_err(|why| skipped("c", why)).ok()
}

/// Builds the library and installs it, unless what is installed is that already.
fn installed() -> Toolchain {
    let prefix = scratch().join("c library"); // with a space: paths are quoted
    let file = scratch().join("c library.record");
    let _turn = turn_at(&prefix);
    let before = Record::read(&file);
    // Another process of this run of tests may have had cargo build all already.
    if let Some(record) = before.as_ref().filter(|r| r.is_of_this_run()) {
        return Toolchain::of(prefix, record.products.clone());
    }
    let build = Build {
        profile: "dev".to_owned(),
        target: None,
        glibc: None,
    };
    let products = build.run().unwrap_or_else(|e| panic!("{e}"));
    let now = Record::of(products);
    if before.is_none_or(|before| before.inputs != now.inputs) {
        // If this process dies meanwhile, the next one begins anew.
        let _ = fs::remove_file(&file);
        let destination = Destination::new(&prefix, None).unwrap();
        install(&now.products, &destination).unwrap_or_else(|e| panic!("{e}"));
    }
    now.write(&file);
    Toolchain::of(prefix, now.products)
}

/// What was installed last, and which run of tests has seen that it is up to date.
struct Record {
    /// The run, if it is one of cargo-nextest. Under `cargo test` one process has all tests, and looks once.
    run: String,
    /// When each file was changed that goes into the installation.
    inputs: String,
    products: Products,
}

impl Record {
    fn run() -> String {
        std::env::var("NEXTEST_RUN_ID").unwrap_or_default()
    }

    fn is_of_this_run(&self) -> bool {
        !self.run.is_empty() && self.run == Self::run()
    }

    fn of(products: Products) -> Self {
        let files = Self::files(&products);
        let mut all: Vec<_> = files.iter().map(|file| newest(file)).collect();
        all.push(newest_text());
        // This program has the code that installs.
        all.push(newest(&std::env::current_exe().expect("a running program")));
        let inputs = all.iter().map(|time| {
            let age = time.duration_since(SystemTime::UNIX_EPOCH);
            age.unwrap_or_default().as_nanos().to_string()
        });
        Self {
            run: Self::run(),
            inputs: inputs.collect::<Vec<_>>().join(" "),
            products,
        }
    }

    fn files(products: &Products) -> [&PathBuf; 6] {
        [
            &products.shmrun,
            &products.shmem_info,
            &products.shared,
            &products.archive,
            &products.pmi_shared,
            &products.pmi_archive,
        ]
    }

    /// A file has a line for each field.
    fn read(file: &Path) -> Option<Self> {
        let text = fs::read_to_string(file).ok()?;
        let lines: Vec<&str> = text.lines().collect();
        let [run, inputs, files @ ..] = &lines[..] else {
            return None;
        };
        let [shmrun, shmem_info, shared, archive, pmi_shared, pmi_archive] =
            <[&str; 6]>::try_from(files).ok()?.map(PathBuf::from);
        Some(Self {
            run: (*run).to_owned(),
            inputs: (*inputs).to_owned(),
            products: Products {
                machine: Machine::of(&shared).ok()?,
                shmrun,
                shmem_info,
                shared,
                archive,
                pmi_shared,
                pmi_archive,
            },
        })
    }

    fn write(&self, file: &Path) {
        let files = Self::files(&self.products).map(|f| f.to_str().expect("a path in UTF-8"));
        let lines = [&[&*self.run, &*self.inputs], &files[..]].concat();
        let fresh = file.with_extension("new");
        fs::write(&fresh, lines.join("\n") + "\n").unwrap();
        fs::rename(&fresh, file).unwrap();
    }
}

/// When the last header or script was changed that is installed as it is.
fn newest_text() -> SystemTime {
    let folders = ["shmem-capi/include", "shmem-pmi/c/include", "xtask/files"];
    let all = folders.map(|folder| newest(&workspace().join(folder)));
    all.into_iter().max().expect("three")
}

impl Toolchain {
    fn of(prefix: PathBuf, products: Products) -> Self {
        let programs = scratch().join("c-programs");
        fs::create_dir_all(&programs).unwrap();
        let libraries = newest(&products.shared).max(newest(&products.pmi_shared));
        Self {
            prefix,
            changed: libraries.max(newest_text()),
            products,
            programs,
        }
    }

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
        let is_there = || Some(newest(&made)) > after;
        if is_there() {
            return made;
        }
        let _turn = turn_at(&made);
        // By whoever had the turn before.
        if is_there() {
            return made;
        }
        let cxx = inputs
            .iter()
            .any(|i| i.extension().is_some_and(|e| e == "cpp"));
        let (wrapper, standard) = match cxx {
            true => ("oshc++", CXX_FLAGS),
            false => ("oshcc", FLAGS),
        };
        let inputs = inputs.iter().map(|input| input.as_os_str());
        let words = standard.iter().map(OsStr::new).chain(inputs);
        let words = words.chain(flags.iter().map(OsStr::new));
        made_by(Command::new(self.tool(wrapper)), &made, words).unwrap_or_else(|e| panic!("{e}"))
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
