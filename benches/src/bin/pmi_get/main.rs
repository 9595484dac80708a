//! Latency of a get from the node's key-value store, by the number of processes that read at the
//! same time: the measurement of "A Scalable PMIx Database" (EuroMPI 2018), figure 1, for the stores
//! that `SHMEM_PMI_STORE` chooses from.
//!
//! `pmi_get` makes a node segment as a launch agent does, fills its store, and forks the readers, each
//! on one core, by turns. They get keys in random order for a while, all at the same time, once with
//! nobody writing and once while this process replaces values. For `message` the readers ask a PMI
//! server in this process, over sockets; there nothing is replaced, because that takes a fence.
//!
//! Standard output is CSV, one line a run:
//!
//! ```text
//! store,readers,writer,gets,median_ns,p99_ns,cpu_ns,misses,inserts,insert_median_ns,insert_p99_ns
//! ```
//!
//! Median and percentile are of batches of gets, whose time is divided by their number; where readers share cores a get
//! takes longer than its instructions do, so `cpu_ns` is CPU time per get, the server's included.

mod board;
mod server;

use std::os::fd::OwnedFd;
use std::time::{Duration, Instant};

use board::{Board, Measured};
use clap::Parser;
use shmem_benches::stats::{median, percentile};
use shmem_node::hca_address::HcaAddresses;
use shmem_node::kvs::{MAX_VALUE, Store, StorePlan, Writer};
use shmem_node::segment::{JobFacts, NodeSegment};
use shmem_node::settings::{HeapCommit, HeapPages, Settings, StoreKind};
use shmem_node::sys;
use shmem_node::template::marker::StaticsRoom;

type Outcome<T> = Result<T, Box<dyn std::error::Error>>;

#[derive(Parser)]
#[command(about = "Latency of a get from the node's key-value store, by the number of readers")]
struct Options {
    /// Numbers of reading processes.
    #[arg(long, value_delimiter = ',', default_value = "1,2,4,8,16,32,64")]
    readers: Vec<u32>,
    /// Stores, as SHMEM_PMI_STORE names them.
    #[arg(
        long,
        value_delimiter = ',',
        default_value = "shared,2n,rwlock,message"
    )]
    stores: Vec<String>,
    /// Keys in the store.
    #[arg(long, default_value_t = 1024)]
    keys: usize,
    /// Bytes of a value.
    #[arg(long, default_value_t = 64)]
    value: usize,
    /// Gets in a sample; of messages there is always one.
    #[arg(long, default_value_t = 16)]
    batch: u32,
    /// Milliseconds of a run.
    #[arg(long, default_value_t = 200)]
    milliseconds: u64,
    /// Microseconds between two insertions of the writer.
    #[arg(long, default_value_t = 100)]
    pause: u64,
}

/// What is being measured.
#[derive(Debug)]
struct Case {
    store: String,
    writer: bool,
    readers: u32,
}

fn main() -> Outcome<()> {
    let options = Options::parse();
    println!(
        "store,readers,writer,gets,median_ns,p99_ns,cpu_ns,misses,inserts,insert_median_ns,insert_p99_ns"
    );
    for &readers in &options.readers {
        for (store, writer) in options.stores.iter().flat_map(|s| [(s, false), (s, true)]) {
            if writer && store == "message" {
                continue;
            }
            let case = Case {
                store: store.clone(),
                writer,
                readers,
            };
            let (measured, inserts) = run(&case, &options)?;
            let Measured { gets, misses, .. } = measured;
            println!(
                "{store},{readers},{},{gets},{:.1},{:.1},{:.1},{misses},{},{:.0},{:.0}",
                u8::from(writer),
                median(&measured.samples),
                percentile(&measured.samples, 99.0),
                measured.cpu_ns as f64 / gets as f64,
                inserts.len(),
                median(&inserts),
                percentile(&inserts, 99.0),
            );
        }
    }
    Ok(())
}

/// Measures one case. The second half are the times of the writer's insertions in ns.
fn run(case: &Case, options: &Options) -> Outcome<(Measured, Vec<f64>)> {
    let lookup = |name: &str| (name == "SHMEM_PMI_STORE").then(|| case.store.clone());
    let settings = Settings::parse(lookup)?;
    let time = Duration::from_millis(options.milliseconds);
    let keys: Vec<String> = (0..options.keys).map(|n| format!("bc-{n}-seg0")).collect();
    let value = vec![b'v'; options.value.min(MAX_VALUE)];
    let board = Board::new(case.readers)?;

    if settings.pmi_store == StoreKind::Message {
        let (mut server, sockets) = server::Server::new(case.readers, &keys, &value)?;
        let pids = fork_readers(&board, case.readers, |reader| {
            let store = server::Message::attach(&sockets, reader)?;
            board.read(reader, &store, &keys, 1);
            Ok(())
        })?;
        drop::<Vec<OwnedFd>>(sockets);
        let cpu = sys::process_cpu_ns();
        server.serve_until(|| board.may_begin())?;
        board.begin();
        let end = Instant::now() + time;
        server.serve_until(|| Instant::now() >= end)?;
        board.end();
        server.serve_until(|| board.all_ended())?;
        let cpu = sys::process_cpu_ns() - cpu;
        reap(&pids)?;
        let mut measured = board.measured(1);
        measured.cpu_ns += cpu;
        return Ok((measured, Vec::new()));
    }

    let n = case.readers as usize;
    let mut segment = segment(&settings, &vec![0; n])?;
    let mut writer = segment.kvs_writer().ok_or("the store has a writer")?;
    for key in &keys {
        writer.insert(key.as_bytes(), &value)?;
    }
    let view = *segment.view();
    let pids = fork_readers(&board, case.readers, |reader| {
        let store = view.kvs(reader as usize);
        board.read(reader, &store, &keys, options.batch);
        Ok(())
    })?;
    while !board.may_begin() {
        std::thread::sleep(Duration::from_millis(1));
    }
    board.begin();
    let inserts = match case.writer {
        true => replace(&mut writer, &keys, value, time, options.pause)?,
        false => {
            std::thread::sleep(time);
            Vec::new()
        }
    };
    board.end();
    reap(&pids)?;
    Ok((board.measured(options.batch), inserts))
}

/// A node whose PEs are the readers.
fn segment(settings: &Settings, node_of: &[u32]) -> Outcome<NodeSegment> {
    Ok(NodeSegment::create(&JobFacts {
        job_id: [0; 16],
        job_key: [0; 32],
        node_of,
        n_nodes: 1,
        node: 0,
        on_machine: node_of.len() as u32,
        heap_size: 4096,
        statics: StaticsRoom::default(),
        heap_commit: HeapCommit::Lazy,
        heap_pages: HeapPages::Default,
        store: StorePlan::new(settings, node_of.len()),
        hca_addresses: HcaAddresses::shared(std::net::Ipv4Addr::LOCALHOST.into()),
        spins: 0,
        report: false,
        calls: 0,
    })?)
}

/// Gives keys other values for a while; gives the time of each insertion in ns.
fn replace(
    writer: &mut Writer,
    keys: &[String],
    mut value: Vec<u8>,
    time: Duration,
    pause: u64,
) -> Outcome<Vec<f64>> {
    let mut random = board::Random::new(0);
    let mut times = Vec::new();
    let end = Instant::now() + time;
    while Instant::now() < end {
        let key = &keys[random.below(keys.len())];
        let round = times.len().to_le_bytes();
        value.iter_mut().zip(round).for_each(|(v, r)| *v = r);
        let start = Instant::now();
        writer.insert(key.as_bytes(), &value)?;
        times.push(start.elapsed().as_nanos() as f64);
        std::thread::sleep(Duration::from_micros(pause));
    }
    Ok(times)
}

/// Forks a process for each reader, which does `work` on a core and leaves.
fn fork_readers(
    board: &Board,
    readers: u32,
    work: impl Fn(u32) -> Outcome<()>,
) -> Outcome<Vec<libc::pid_t>> {
    let mut pids = Vec::new();
    for reader in 0..readers {
        // SAFETY: this process has one thread, so the copy is whole.
        match unsafe { libc::fork() } {
            -1 => return Err(std::io::Error::last_os_error().into()),
            0 => {
                board::bind(reader);
                let outcome = work(reader);
                if let Err(error) = &outcome {
                    eprintln!("pmi_get: reader {reader}: {error}");
                    board.fail();
                }
                // SAFETY: ends the process without what the parent is to do at its end.
                unsafe { libc::_exit(i32::from(outcome.is_err())) }
            }
            pid => pids.push(pid),
        }
    }
    Ok(pids)
}

fn reap(pids: &[libc::pid_t]) -> Outcome<()> {
    let mut failed = 0;
    for &pid in pids {
        let mut status = 0;
        // SAFETY: a child of this process; the status is writable.
        unsafe { libc::waitpid(pid, &mut status, 0) };
        failed += i32::from(status != 0);
    }
    match failed {
        0 => Ok(()),
        n => Err(format!("{n} readers failed").into()),
    }
}

impl Board {
    /// For a reader: waits for the beginning, gets keys until the end, and notes what it took.
    fn read(&self, reader: u32, store: &impl Store, keys: &[String], batch: u32) {
        let mut value = [0; MAX_VALUE];
        let mut random = board::Random::new(reader + 1);
        // The first gets make page table entries.
        for key in keys {
            store.get(key.as_bytes(), &mut value);
        }
        self.wait_begin();
        let cpu = sys::process_cpu_ns();
        let (mut gets, mut misses) = (0, 0);
        while !self.is_over() {
            let start = Instant::now();
            for _ in 0..batch {
                let key = keys[random.below(keys.len())].as_bytes();
                let found = store.get(key, std::hint::black_box(&mut value));
                misses += u64::from(found.is_none());
            }
            self.sample(reader, start.elapsed());
            gets += u64::from(batch);
        }
        self.note(reader, gets, misses, sys::process_cpu_ns() - cpu);
    }
}
