//! Endpoints on software HCAs in one process, for tests that look into them.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::{Directory, Endpoint, EndpointConfig, Lookup};
use crate::UdAddress;
use shmem_soft::{SoftConfig, SoftHca};
use shmem_verbs::Hca;

struct Book(Vec<UdAddress>);

impl Directory for Book {
    fn lookup(&self, pe: u32) -> Lookup {
        Lookup::Ready(self.0[pe as usize])
    }
    fn wait(&self, _: u32, _: Duration) {}
    fn describe(&self, pe: u32) -> String {
        format!("PE {pe} (node 7)")
    }
}

/// A few PEs with progress threads, each with a segment of 64-bit words.
pub(super) struct Job {
    pub(super) ends: Vec<Arc<Endpoint<SoftHca>>>,
    pub(super) hcas: Vec<Arc<SoftHca>>,
    pub(super) words: Vec<Box<[AtomicU64]>>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl Job {
    /// `n` PEs, which differ from `config` in what tells them apart.
    pub(super) fn new(n: u32, words: usize, config: &EndpointConfig) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (mut ends, mut hcas) = (Vec::new(), Vec::new());
        for pe in 0..n {
            let hca = Arc::new(SoftHca::open(&SoftConfig::loopback(pe.into())).expect("a socket"));
            let config = EndpointConfig {
                pe,
                n_pes: n,
                seed: pe.into(),
                ..config.clone()
            };
            ends.push(Endpoint::new(Arc::clone(&hca), config).expect("an endpoint"));
            hcas.push(hca);
        }
        let book: Arc<dyn Directory> =
            Arc::new(Book(ends.iter().map(|e| e.ud_address()).collect()));
        let segment = || (0..words).map(|_| AtomicU64::new(0)).collect();
        let segments: Vec<Box<[AtomicU64]>> = ends.iter().map(|_| segment()).collect();
        let mut threads = Vec::new();
        for (end, segment) in ends.iter().zip(&segments) {
            end.set_directory(Arc::clone(&book));
            let base = segment.as_ptr().cast_mut().cast();
            // SAFETY: the words outlive the endpoints (`drop`), and are accessed by atomics only.
            unsafe { end.register(base, words * 8).expect("memory") };
            let (end, stop) = (Arc::clone(end), Arc::clone(&stop));
            threads.push(std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    end.progress_wait(Duration::from_secs(3600));
                }
            }));
        }
        Self {
            ends,
            hcas,
            words: segments,
            stop,
            threads,
        }
    }
}

impl Drop for Job {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hcas.iter().for_each(|hca| hca.wake());
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        self.ends.iter().for_each(|end| end.abort());
    }
}
