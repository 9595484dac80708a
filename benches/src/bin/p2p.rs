//! Time and CPU time per one-sided operation between two PEs.
//!
//! The twin of `rivals/p2p.c`: the same rows, the same method, the same output, so that this
//! library and others can be measured in one sitting (the figures `p2p` and `p2p-node`). Whoever changes one changes
//! the other.
//!
//! `shmrun -n 2 [--nodes 2] p2p`: on one node the figures are those of shared memory, on two those
//! of the network. PE 0 acts on the last PE, which sits in `barrier_all` (in the ping-pong it
//! answers). All buffers lie in the symmetric heap, but for the local ones of the rows `*_private`,
//! which come from the allocator. (C has one more row, for a flag in a static variable.) Operations
//! are timed in batches of about 40 µs, or of one call where that takes longer. With `BENCH_BIND` in
//! the environment each PE stays on the core of its number. Output is CSV:
//!
//! ```text
//! row,bytes,what,ops,value
//! put+quiet,8,ns,4,9150.25          one batch: its operations and the time of each
//! put+quiet,8,cpu0_ns,5464,9012.1   all batches: CPU time of PE 0 per operation
//! put+quiet,8,cpu1_ns,5464,8923.7   and that of the last PE
//! put+quiet,8,doorbells,5464,1.01   what was counted meanwhile, per operation
//! ```
//!
//! With a number of calls each row is one batch of so many calls, or of fewer that move 8 MiB, after one more; with 0 there are no rows, and
//! the program but begins and ends. `BENCH_COUNTS` in the environment names files of counters, with colons between
//! them, which PE 0 reads before and after: a number, or lines of names and numbers. They count all processes,
//! so they are good where few calls share the barrier's messages.
//!
//! Put alone is time until the source may be used again; rows with `+quiet` have one quiet each. An
//! operation of `put_nbi_x1000`, `put_nbi_x64` and `atomic_add_x1000` is one of the thousand or the 64, with its
//! share of the quiet; an operation of `pingpong` is one way. Data and sums are checked.

use std::time::Duration;

use clap::Parser;
use shmem::{Cmp, SymSlice, alloc, barrier_all, my_pe, n_pes};
use shmem_benches::batches::{Batches, Run};
use shmem_benches::counts::Counters;
use shmem_benches::cpu::{Whose, bind_if_asked, cpu_time};

const LARGEST: usize = 4 << 20;
const STREAM: usize = 1000;
const SHORT_STREAM: usize = 64;

#[derive(Parser)]
#[command(about = "Time and CPU time per one-sided operation between two PEs")]
struct Options {
    /// Milliseconds of measurement per row.
    #[arg(default_value_t = 50.0)]
    milliseconds: f64,
    /// Calls per row, instead.
    calls: Option<usize>,
    /// Print a table of medians, not the samples.
    #[arg(long)]
    table: bool,
}

/// What PE 0 does again and again, and what the target does meanwhile.
trait Exercise {
    /// PE 0: one call.
    fn call(&mut self);
    /// The target, in place of sitting in the barrier.
    fn answer(&mut self) {}
    /// PE 0: ends [`answer`](Self::answer).
    fn end_answers(&mut self) {}
}

impl<F: FnMut()> Exercise for F {
    fn call(&mut self) {
        self();
    }
}

/// A number that goes to the target and comes back. Negative: no more will come.
struct PingPong {
    turn: SymSlice<i64>,
    target: usize,
    sent: i64,
    seen: i64,
}

impl Exercise for PingPong {
    fn call(&mut self) {
        self.sent += 1;
        shmem::p(self.turn, self.sent, self.target);
        shmem::wait_until(self.turn, Cmp::Eq, self.sent);
    }

    fn answer(&mut self) {
        loop {
            self.seen = shmem::wait_until(self.turn, Cmp::Ne, self.seen);
            if self.seen < 0 {
                return;
            }
            shmem::p(self.turn, self.seen, 0);
        }
    }

    fn end_answers(&mut self) {
        shmem::p(self.turn, -self.sent, self.target);
    }
}

/// The method, and what it needs.
struct Bench {
    me: usize,
    target: usize,
    batches: Batches,
    cpu_of_target: SymSlice<u64>,
}

impl Bench {
    /// Collective. Measures calls of `exercise`, each of which is `weight` operations.
    fn measure(&self, row: &str, bytes: usize, weight: usize, mut exercise: impl Exercise) {
        barrier_all();
        let mut per_batch = 1;
        if self.me == 0 {
            per_batch = self.batches.warm_up(bytes * weight, || exercise.call());
        }
        self.meet(&mut exercise);

        let mut run = Run::default();
        let cpu = cpu_time(Whose::Own);
        if self.me == 0 {
            run = self.batches.run(per_batch, weight, || exercise.call());
        }
        self.meet(&mut exercise);
        if self.me == self.target {
            let cpu = cpu_time(Whose::Own) - cpu;
            shmem::p(self.cpu_of_target, cpu.as_nanos() as u64, 0);
        }
        barrier_all();
        if self.me == 0 {
            let of_target = Duration::from_nanos(self.cpu_of_target.read(0));
            self.batches.print(row, bytes, &run, of_target);
        }
    }

    /// Ends a phase: PE 0 has done its work, and the others meet it in the barrier.
    fn meet(&self, exercise: &mut impl Exercise) {
        if self.me == 0 {
            exercise.end_answers();
        }
        if self.me == self.target {
            exercise.answer();
        }
        barrier_all();
    }

    /// Whether `pe`, if it is this one, finds `value` in all of `data`.
    #[track_caller]
    fn expect(&self, pe: usize, data: SymSlice<u8>, value: u8) {
        if self.me == pe {
            let wrong = data.to_vec().iter().filter(|&&b| b != value).count();
            assert!(wrong == 0, "{wrong} of {} bytes did not arrive", data.len());
        }
        barrier_all();
    }

    /// The same for one word.
    #[track_caller]
    fn expect_word(&self, pe: usize, word: SymSlice<i64>, value: i64) {
        assert!(self.me != pe || word.read(0) == value, "it did not arrive");
        barrier_all();
    }
}

/// A local buffer.
enum Local<'a> {
    Symmetric(SymSlice<u8>),
    Private(&'a mut [u8]),
}

impl<'a> Local<'a> {
    /// Its first bytes, all set to `value`.
    fn filled(self, bytes: usize, value: u8) -> &'a mut [u8] {
        let slice = match self {
            // SAFETY: no PE but this one touches the buffer, and it does so through one slice at a time.
            Self::Symmetric(array) => unsafe { array.at(..bytes).as_mut_slice() },
            Self::Private(buffer) => &mut buffer[..bytes],
        };
        slice.fill(value);
        slice
    }
}

/// The rows, and the arrays that they use.
struct Rows {
    bench: Bench,
    area: SymSlice<u8>,
    source: SymSlice<u8>,
    sink: SymSlice<u8>,
    sum: SymSlice<i64>,
    compared: SymSlice<i64>,
    turn: SymSlice<i64>,
    word: SymSlice<i64>,
    /// What was written last.
    mark: u8,
}

impl Rows {
    fn next_mark(&mut self) -> u8 {
        self.mark += 1;
        self.mark
    }

    fn put(&mut self, row: &str, bytes: usize, quiet: bool, of: Local<'_>) {
        let (to, mark) = (self.area.at(..bytes), self.next_mark());
        let (source, target) = (of.filled(bytes, mark), self.bench.target);
        self.bench.measure(row, bytes, 1, || {
            shmem::put(to, source, target);
            if quiet {
                shmem::quiet();
            }
        });
        self.bench.expect(target, to, mark);
    }

    fn get(&mut self, row: &str, bytes: usize, of: Local<'_>) {
        let (from, mark) = (self.area.at(..bytes), self.next_mark());
        from.fill(mark);
        let (sink, target) = (of.filled(bytes, 0), self.bench.target);
        let get = || shmem::get(sink, from, target);
        self.bench.measure(row, bytes, 1, get);
        let good = sink.iter().all(|&b| b == mark);
        assert!(
            good || self.bench.me != 0,
            "{row} of {bytes} bytes: not all arrived"
        );
        barrier_all();
    }

    fn puts_and_gets(&mut self) {
        let mut private = vec![0; LARGEST];
        let (source, sink) = (self.source, self.sink);
        for bytes in [8, 64, 256, 1024, 4096, 16_384, 65_536, 1 << 20, LARGEST] {
            self.put("put", bytes, false, Local::Symmetric(source));
            self.put("put_private", bytes, false, Local::Private(&mut private));
            self.put("put+quiet", bytes, true, Local::Symmetric(source));
            self.get("get", bytes, Local::Symmetric(sink));
            self.get("get_private", bytes, Local::Private(&mut private));
        }
    }

    /// Gives what was added to the sum.
    fn words(&mut self) -> i64 {
        let value = i64::from_ne_bytes([self.next_mark(); 8]);
        let (bench, target) = (&self.bench, self.bench.target);
        let (word, sum, compared) = (self.word, self.sum, self.compared);
        bench.measure("p", 8, 1, || shmem::p(word, value, target));
        bench.expect_word(target, word, value);
        bench.measure("g", 8, 1, || {
            assert_eq!(std::hint::black_box(shmem::g(word, target)), value);
        });
        let (mut added, mut swapped) = (0, 0);
        bench.measure("fetch_add", 8, 1, || {
            assert_eq!(shmem::atomic_fetch_add(sum, 1, target), added);
            added += 1;
        });
        bench.measure("compare_swap", 8, 1, || {
            let old = shmem::atomic_compare_swap(compared, swapped, swapped + 1, target);
            assert_eq!(old, swapped);
            swapped += 1;
        });
        added
    }

    fn long_stream(&mut self) {
        let mark = self.next_mark();
        let (bench, target) = (&self.bench, self.bench.target);
        let (area, source) = (self.area, self.source.at(..8 * STREAM));
        source.fill(mark);
        // SAFETY: nobody writes `source` any more.
        let source = unsafe { source.as_slice() };
        bench.measure("put_nbi_x1000", 8, STREAM, || {
            shmem::nbi(|ops| {
                for (i, word) in source.chunks_exact(8).enumerate() {
                    ops.put(area.at(8 * i..), word, target);
                }
            });
        });
        bench.expect(target, area.at(..8 * STREAM), mark);
    }

    fn short_stream(&mut self, bytes: usize) {
        let mark = self.next_mark();
        let (bench, target) = (&self.bench, self.bench.target);
        let len = (SHORT_STREAM * bytes).min(LARGEST);
        let (area, source) = (self.area, self.source.at(..len));
        source.fill(mark);
        // SAFETY: nobody writes `source` any more.
        let source = unsafe { source.as_slice() };
        bench.measure("put_nbi_x64", bytes, SHORT_STREAM, || {
            shmem::nbi(|ops| {
                for i in 0..SHORT_STREAM {
                    // Where they are more than the buffers hold, they begin again.
                    let at = i * bytes % len;
                    ops.put(area.at(at..), &source[at..at + bytes], target);
                }
            });
        });
        bench.expect(target, area.at(..len), mark);
    }

    /// Additions without result. `added` is what other rows have added to the sum.
    fn additions(&self, mut added: i64) {
        let (bench, sum, target) = (&self.bench, self.sum, self.bench.target);
        bench.measure("atomic_add_x1000", 8, STREAM, || {
            for _ in 0..STREAM {
                shmem::atomic_add(sum, 1, target);
            }
            added += STREAM as i64;
            shmem::quiet();
        });
        if bench.me == 0 {
            assert_eq!(shmem::g(sum, target), added, "additions went astray");
        }
    }
}

fn main() -> Result<(), shmem::Error> {
    let options = Options::parse();
    let _world = shmem::init()?;
    let (me, target) = (my_pe(), n_pes() - 1);
    if target == 0 {
        eprintln!("p2p: needs at least 2 PEs");
        shmem::global_exit(2);
    }
    let bench = Bench {
        me,
        target,
        batches: Batches {
            row_time: Duration::try_from_secs_f64(options.milliseconds / 1e3).unwrap_or_default(),
            calls: options.calls,
            table: options.table,
            counters: Counters::from_env(),
        },
        cpu_of_target: alloc(1)?,
    };
    if options.calls == Some(0) {
        return Ok(());
    }
    let mut rows = Rows {
        bench,
        area: alloc(LARGEST)?,
        source: alloc(LARGEST)?,
        sink: alloc(LARGEST)?,
        sum: alloc(1)?,
        compared: alloc(1)?,
        turn: alloc(1)?,
        word: alloc(1)?,
        mark: 0,
    };
    bind_if_asked(me, n_pes());

    if me == 0 {
        rows.bench.batches.head();
    }
    rows.puts_and_gets();
    let added = rows.words();
    rows.long_stream();
    for bytes in [8, 256, 4096, 65_536, 1 << 20] {
        rows.short_stream(bytes);
    }
    rows.additions(added);
    let pingpong = PingPong {
        turn: rows.turn,
        target,
        sent: 0,
        seen: 0,
    };
    rows.bench.measure("pingpong", 8, 2, pingpong);
    barrier_all();
    Ok(())
}
