//! Where the processes of the benchmark meet and leave what they have measured: memory that they
//! share, made before they are forked.

use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use shmem_node::sys::{self, Mapping};

/// Samples that are kept of a reader; later ones replace the earliest.
const SAMPLES: usize = 1 << 13;

// Words that all share.
const READY: usize = 0;
const BEGUN: usize = 1;
const OVER: usize = 2;
const ENDED: usize = 3;
const FAILED: usize = 4;
const COMMON: usize = 16;

// Words of each reader.
const GETS: usize = 0;
const MISSES: usize = 1;
const CPU: usize = 2;
const TAKEN: usize = 3;
const FIRST: usize = 4;
const OWN: usize = (FIRST + SAMPLES).next_multiple_of(16);

/// The memory.
pub(crate) struct Board {
    words: &'static [AtomicU64],
    readers: usize,
}

/// What all readers together have measured.
#[derive(Debug)]
pub(crate) struct Measured {
    /// Nanoseconds per get.
    pub(crate) samples: Vec<f64>,
    pub(crate) gets: u64,
    pub(crate) misses: u64,
    pub(crate) cpu_ns: u64,
}

impl Board {
    pub(crate) fn new(readers: u32) -> std::io::Result<Self> {
        let readers = readers as usize;
        let n = COMMON + readers * OWN;
        let memory = sys::memfd(c"pmi_get", 8 * n as u64)?;
        let map = Mapping::new(memory.as_fd(), 8 * n, true)?;
        Ok(Self {
            // SAFETY: atomics, aligned since the mapping is, and zero is valid.
            words: unsafe { map.slice(0, n) },
            readers,
        })
    }

    fn own(&self, reader: usize) -> &[AtomicU64] {
        &self.words[COMMON + reader * OWN..][..OWN]
    }

    fn is(&self, word: usize) -> bool {
        self.words[word].load(Ordering::Acquire) != 0
    }

    /// Whether all readers wait for the beginning, or one has failed.
    pub(crate) fn may_begin(&self) -> bool {
        self.is(FAILED) || self.words[READY].load(Ordering::Acquire) == self.readers as u64
    }

    pub(crate) fn begin(&self) {
        self.words[BEGUN].store(1, Ordering::Release);
    }

    pub(crate) fn end(&self) {
        self.words[OVER].store(1, Ordering::Release);
    }

    pub(crate) fn all_ended(&self) -> bool {
        self.is(FAILED) || self.words[ENDED].load(Ordering::Acquire) == self.readers as u64
    }

    /// For a reader that cannot go on.
    pub(crate) fn fail(&self) {
        self.words[FAILED].store(1, Ordering::Release);
    }

    pub(crate) fn wait_begin(&self) {
        self.words[READY].fetch_add(1, Ordering::AcqRel);
        while !self.is(BEGUN) {
            std::thread::sleep(Duration::from_micros(200));
        }
    }

    pub(crate) fn is_over(&self) -> bool {
        self.is(OVER)
    }

    /// Keeps the time of a batch.
    pub(crate) fn sample(&self, reader: u32, time: Duration) {
        let own = self.own(reader as usize);
        let taken = own[TAKEN].load(Ordering::Relaxed);
        own[FIRST + taken as usize % SAMPLES].store(time.as_nanos() as u64, Ordering::Relaxed);
        own[TAKEN].store(taken + 1, Ordering::Relaxed);
    }

    /// What a reader has done in all.
    pub(crate) fn note(&self, reader: u32, gets: u64, misses: u64, cpu_ns: u64) {
        let own = self.own(reader as usize);
        own[GETS].store(gets, Ordering::Relaxed);
        own[MISSES].store(misses, Ordering::Relaxed);
        own[CPU].store(cpu_ns, Ordering::Relaxed);
        self.words[ENDED].fetch_add(1, Ordering::AcqRel);
    }

    /// After the end of all readers; a sample was of `batch` gets.
    pub(crate) fn measured(&self, batch: u32) -> Measured {
        let mut all = Measured {
            samples: Vec::new(),
            gets: 0,
            misses: 0,
            cpu_ns: 0,
        };
        for reader in 0..self.readers {
            let own = self.own(reader);
            let word = |at: usize| own[at].load(Ordering::Relaxed);
            let kept = (word(TAKEN) as usize).min(SAMPLES);
            let samples = (FIRST..FIRST + kept).map(|at| word(at) as f64 / f64::from(batch));
            all.samples.extend(samples);
            all.gets += word(GETS);
            all.misses += word(MISSES);
            all.cpu_ns += word(CPU);
        }
        all
    }
}

/// Keeps this process on one of the cores that it may use, by turns.
pub(crate) fn bind(reader: u32) {
    // SAFETY: the sets are plain data, valid when zero; the calls get their size.
    unsafe {
        let mut all: libc::cpu_set_t = std::mem::zeroed();
        let size = size_of_val(&all);
        if libc::sched_getaffinity(0, size, &mut all) != 0 {
            return;
        }
        let cores = (0..libc::CPU_SETSIZE as usize).filter(|&core| libc::CPU_ISSET(core, &all));
        let cores: Vec<usize> = cores.collect();
        let mut one: libc::cpu_set_t = std::mem::zeroed();
        libc::CPU_SET(cores[reader as usize % cores.len()], &mut one);
        // One that cannot be bound is measured where it is.
        let _ = libc::sched_setaffinity(0, size, &one);
    }
}

/// Random numbers (xorshift).
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u32) -> Self {
        Self((u64::from(seed) + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    pub(crate) fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 32) as usize % n
    }
}
