//! Many PEs that write to one at the same time, each on a node of its own, over the software HCA.
//!
//! `incast [--senders 1,2,4,15] [--mib 1] [--puts 64]` runs a job for each number of senders, in turn,
//! several times, and prints for each the rate at which PE 0 gets data, packets and repetitions, and the
//! ratio to the rate of the first. The puts are shared among the senders, so all jobs move the same
//! number of bytes. Raw samples go to standard output, one JSON object a line, behind one
//! that tells where they were taken.

use std::io;
use std::time::{Duration, Instant};

use clap::Parser;
use shmem::{alloc, barrier_all, my_pe, n_pes};
use shmem_benches::stats::median;
use shmem_testkit::samples::Samples;
use shmem_testkit::{Job, job};

#[derive(Parser)]
#[command(about = "Rate of one PE that many PEs write to at the same time")]
struct Options {
    /// Rounds; each runs every number of senders once.
    #[arg(long, default_value_t = 5)]
    runs: usize,
    /// Numbers of senders.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,15")]
    senders: Vec<usize>,
    /// MiB of one put.
    #[arg(long, default_value_t = 1)]
    mib: usize,
    /// Puts of all senders together.
    #[arg(long, default_value_t = 240)]
    puts: usize,
    /// This is a PE of such a job.
    #[arg(long, hide = true)]
    pe: bool,
}

struct Case {
    senders: usize,
    rates: Vec<f64>,
    packets: f64,
    again: f64,
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let options = Options::parse();
    if options.pe {
        send(&options)?;
        return Ok(());
    }
    let mut cases: Vec<Case> = options
        .senders
        .iter()
        .map(|&senders| Case {
            senders,
            rates: Vec::new(),
            packets: 0.0,
            again: 0.0,
        })
        .collect();
    let mut samples = Samples::begin(io::stdout())?;
    for run in 0..options.runs {
        for case in &mut cases {
            let (rate, packets, again) = measure(&options, case.senders)?;
            samples.add(&[
                ("run", &run),
                ("senders", &case.senders),
                ("mib_per_s", &format_args!("{rate:.1}")),
                ("packets", &packets),
                ("again", &again),
            ])?;
            case.rates.push(rate);
            case.packets += packets;
            case.again += again;
        }
    }
    let base = median(&cases[0].rates);
    eprintln!("senders, MiB/s (median), ratio, packets sent again in a thousand");
    for case in &cases {
        let rate = median(&case.rates);
        eprintln!(
            "{:7} {rate:8.0} {:8.2} {:8.2}",
            case.senders,
            rate / base,
            1000.0 * case.again / case.packets
        );
    }
    Ok(())
}

/// Runs a job; gives MiB per second, packets, and those of them that were sent again.
fn measure(options: &Options, senders: usize) -> io::Result<(f64, f64, f64)> {
    let program = std::env::current_exe()?;
    let (mib, puts) = (options.mib.to_string(), options.puts.to_string());
    let program = [
        &program.to_string_lossy()[..],
        "--pe",
        "--mib",
        &mib,
        "--puts",
        &puts,
    ];
    let n = senders + 1;
    let layout = format!("-n {n} --nodes {n}");
    let outcome = Job::reported(job::built("shmrun")?, &layout, &program)
        .env("SHMEM_HCA", "soft")
        .run_within(Duration::from_secs(300))
        .well()?;
    let rate = outcome.stdout.trim().parse().map_err(io::Error::other)?;
    let sum = |name| outcome.report().figure(name).sum;
    Ok((rate, sum("packets sent"), sum("packets retransmitted")))
}

/// One PE: all but the first put into the first. PE 0 prints its rate.
fn send(options: &Options) -> Result<(), shmem::Error> {
    let _world = shmem::init()?;
    let (me, n) = (my_pe(), n_pes());
    let words = options.mib << 17;
    // A place for each sender, so that all is written that is sent.
    let target = alloc::<u64>(words * n)?;
    let data = vec![me as u64 + 1; words];
    let puts = options.puts / (n - 1);
    // Connections and pages come first.
    if me > 0 {
        shmem::put(target.at(me * words..(me + 1) * words), &data, 0);
    }
    barrier_all();
    let start = Instant::now();
    if me > 0 {
        for _ in 0..puts {
            shmem::put(target.at(me * words..(me + 1) * words), &data, 0);
        }
    }
    barrier_all();
    if me == 0 {
        let mib = (options.mib * puts * (n - 1)) as f64;
        println!("{:.1}", mib / start.elapsed().as_secs_f64());
        for pe in 1..n {
            assert_eq!(target.read((pe + 1) * words - 1), pe as u64 + 1, "PE {pe}");
        }
    }
    barrier_all();
    Ok(())
}
