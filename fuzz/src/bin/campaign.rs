//! Mutations by the million: `campaign --total 100000000` runs all targets in turn, each for a
//! slice of time, until so many inputs have been tried, and tells how many each target got.
//!
//! An input on which a target panics is written to the directory of `--crashes`, and the campaign
//! goes on; it ends with failure if there was any. Memory that was allocated because an input
//! announced it shows as peak of the process.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::panic::{self, catch_unwind};
use std::path::PathBuf;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};
use std::{env, fs, io};

use shmem_fuzz::mutation::{inputs, mutate};
use shmem_fuzz::{TARGETS, Target};
use shmem_ib::rng::Rng;

const USAGE: &str = "usage: campaign [--total N] [--seconds S] [--threads N] [--seed N] \
                     [--crashes DIR] [TARGET...]";
/// Time for one target before the next has its turn.
const SLICE: Duration = Duration::from_millis(200);
/// Crashes of one target that are kept.
const MAX_CRASHES: u64 = 20;

struct Options {
    total: u64,
    seconds: u64,
    threads: u64,
    seed: u64,
    crashes: PathBuf,
    targets: Vec<Target>,
}

/// What was tried on one target.
#[derive(Default)]
struct Tally {
    tried: AtomicU64,
    crashes: AtomicU64,
    nanoseconds: AtomicU64,
    slowest: AtomicU64,
}

thread_local! {
    /// Whether this thread runs a target, whose panic is not to be printed in full.
    static TRYING: Cell<bool> = const { Cell::new(false) };
}

fn main() -> ExitCode {
    match options().and_then(|options| run(&options).map_err(|e| e.to_string())) {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::FAILURE,
        Err(e) => {
            eprintln!("campaign: {e}");
            ExitCode::FAILURE
        }
    }
}

fn options() -> Result<Options, String> {
    let mut options = Options {
        total: 1_000_000,
        seconds: u64::MAX,
        threads: 1,
        seed: 1,
        crashes: PathBuf::from("crashes"),
        targets: Vec::new(),
    };
    let mut args = env::args().skip(1);
    while let Some(arg) = args.next() {
        let mut value = || args.next().ok_or(format!("{arg} needs a value; {USAGE}"));
        let number = |text: String| {
            let bad = |_| format!("{arg}: {text:?} is no number; {USAGE}");
            text.parse::<u64>().map_err(bad)
        };
        match &arg[..] {
            "--total" => options.total = number(value()?)?,
            "--seconds" => options.seconds = number(value()?)?,
            "--threads" => options.threads = number(value()?)?.max(1),
            "--seed" => options.seed = number(value()?)?,
            "--crashes" => options.crashes = value()?.into(),
            name => {
                let target = TARGETS.iter().find(|target| target.name == name);
                let unknown = || format!("there is no target {name}; {USAGE}");
                options.targets.push(*target.ok_or_else(unknown)?);
            }
        }
    }
    if options.targets.is_empty() {
        options.targets = TARGETS.to_vec();
    }
    Ok(options)
}

/// Whether nothing crashed.
fn run(options: &Options) -> io::Result<bool> {
    let before = panic::take_hook();
    panic::set_hook(Box::new(move |info| match TRYING.get() {
        true => eprintln!("campaign: {info}"),
        false => before(info),
    }));
    let inputs: Vec<Vec<Vec<u8>>> = options.targets.iter().map(inputs).collect();
    let tallies: Vec<Tally> = options.targets.iter().map(|_| Tally::default()).collect();
    let start = Instant::now();
    let (turn, tried) = (AtomicUsize::new(0), AtomicU64::new(0));
    let over = AtomicBool::new(false);
    let failure = Mutex::new(None);
    std::thread::scope(|scope| {
        for thread in 0..options.threads {
            let (inputs, tallies, turn, tried) = (&inputs, &tallies, &turn, &tried);
            let (over, failure) = (&over, &failure);
            scope.spawn(move || {
                let mut rng = Rng::new(options.seed.wrapping_mul(0x9e37_79b9).wrapping_add(thread));
                while !over.load(Ordering::Relaxed) {
                    let at = turn.fetch_add(1, Ordering::Relaxed) % options.targets.len();
                    let (target, tally) = (&options.targets[at], &tallies[at]);
                    match slice(target, &inputs[at], tally, &mut rng, options) {
                        Ok(n) => {
                            let tried = tried.fetch_add(n, Ordering::Relaxed) + n;
                            let late = start.elapsed().as_secs() >= options.seconds;
                            // Not before the last target has had its turn.
                            let round_is_over = at + 1 == options.targets.len();
                            if round_is_over && (tried >= options.total || late) {
                                over.store(true, Ordering::Relaxed);
                            }
                        }
                        Err(e) => {
                            *failure.lock().unwrap_or_else(|e| e.into_inner()) = Some(e);
                            over.store(true, Ordering::Relaxed);
                        }
                    }
                }
            });
        }
    });
    if let Some(e) = failure.into_inner().unwrap_or_else(|e| e.into_inner()) {
        return Err(e);
    }
    Ok(tell(options, &tallies, start.elapsed()))
}

/// One target for some time; gives the number of inputs.
fn slice(
    target: &Target,
    inputs: &[Vec<u8>],
    tally: &Tally,
    rng: &mut Rng,
    options: &Options,
) -> io::Result<u64> {
    let (mut tried, mut bytes) = (0, Vec::new());
    let (start, mut last) = (Instant::now(), Instant::now());
    while last - start < SLICE {
        mutate(rng, inputs, &mut bytes);
        TRYING.set(true);
        let outcome = catch_unwind(|| (target.body)(&bytes));
        TRYING.set(false);
        tried += 1;
        let now = Instant::now();
        let took = (now - last).as_nanos() as u64;
        tally.slowest.fetch_max(took, Ordering::Relaxed);
        last = now;
        if outcome.is_err() {
            let number = tally.crashes.fetch_add(1, Ordering::Relaxed);
            if number < MAX_CRASHES {
                fs::create_dir_all(&options.crashes)?;
                let path = options.crashes.join(format!("{}-{number}", target.name));
                fs::write(&path, &bytes)?;
                eprintln!("campaign: {} panics on {}", target.name, path.display());
            }
        }
    }
    let took = start.elapsed().as_nanos() as u64;
    tally.nanoseconds.fetch_add(took, Ordering::Relaxed);
    tally.tried.fetch_add(tried, Ordering::Relaxed);
    Ok(tried)
}

/// Prints the table; says whether nothing crashed.
fn tell(options: &Options, tallies: &[Tally], took: Duration) -> bool {
    let get = |of: &AtomicU64| of.load(Ordering::Relaxed);
    println!("| target | executions | a second | slowest | crashes |");
    println!("|---|---:|---:|---:|---:|");
    let rows: BTreeMap<_, _> = options
        .targets
        .iter()
        .map(|t| t.name)
        .zip(tallies)
        .collect();
    for (name, tally) in &rows {
        let (tried, seconds) = (get(&tally.tried), get(&tally.nanoseconds) as f64 / 1e9);
        println!(
            "| {name} | {tried} | {:.0} | {:.2} ms | {} |",
            tried as f64 / seconds.max(1e-9),
            get(&tally.slowest) as f64 / 1e6,
            get(&tally.crashes)
        );
    }
    let tried: u64 = tallies.iter().map(|tally| get(&tally.tried)).sum();
    let crashes: u64 = tallies.iter().map(|tally| get(&tally.crashes)).sum();
    let status = fs::read_to_string("/proc/self/status").unwrap_or_default();
    let peak = status.lines().find_map(|line| line.strip_prefix("VmHWM:"));
    println!(
        "{tried} executions in {:.0} s, {} threads, seed {}; {crashes} crashes; peak of memory {}",
        took.as_secs_f64(),
        options.threads,
        options.seed,
        peak.unwrap_or("unknown").trim()
    );
    crashes == 0
}
