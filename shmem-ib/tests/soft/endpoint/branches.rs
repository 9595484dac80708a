//! Branches: endpoints of a PE beside its first, with connections of their own.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Barrier};
use std::thread::JoinHandle;
use std::time::Duration;

use shmem_ib::atomic::{AtomicOp, Width};
use shmem_ib::connect::endpoint::{
    Atomics, ConnError, Endpoint, EndpointConfig, Source, Transport,
};
use shmem_ib::soft::{Faults, SoftConfig, SoftHca};
use shmem_ib::verbs::Hca;

use shmem_ib_kit::job::{Job, Pe, Plain};

/// A branch of a PE, served as in a job.
struct Branch {
    endpoint: Arc<Endpoint<SoftHca>>,
    hca: Arc<SoftHca>,
    stop: Arc<AtomicBool>,
    progress: Option<JoinHandle<()>>,
}

impl Branch {
    fn new(pe: &Pe, number: u32, max_qps: u32) -> Self {
        Self::with(pe, number, max_qps, Faults::default())
    }

    fn with(pe: &Pe, number: u32, max_qps: u32, faults: Faults) -> Self {
        let seed = u64::from(1000 * number + pe.number);
        let soft = SoftConfig {
            faults,
            ..SoftConfig::loopback(seed)
        };
        let hca = Arc::new(SoftHca::open(&soft).unwrap());
        let endpoint = pe.endpoint.branch(Arc::clone(&hca), number, max_qps, seed);
        let mut branch = Self {
            endpoint: endpoint.unwrap(),
            hca,
            stop: Arc::default(),
            progress: None,
        };
        branch.serve();
        branch
    }

    fn serve(&mut self) {
        self.stop.store(false, Ordering::Relaxed);
        let (endpoint, stop) = (Arc::clone(&self.endpoint), Arc::clone(&self.stop));
        self.progress = Some(std::thread::spawn(move || {
            while !stop.load(Ordering::Relaxed) {
                endpoint.progress_wait(Duration::from_millis(100));
            }
        }));
    }

    fn end_progress(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hca.wake();
        if let Some(thread) = self.progress.take() {
            thread.join().unwrap();
        }
    }

    fn put(&self, to: u32, offset: u64, value: u64) -> Result<(), ConnError> {
        let src = std::ptr::from_ref(&value).cast();
        // SAFETY: the source may go as soon as this returns.
        unsafe { self.endpoint.put(to, offset, src, 8, Source::UntilReturn) }
    }

    fn get(&self, from: u32, offset: u64) -> u64 {
        let mut value = 0u64;
        let dst = std::ptr::from_mut(&mut value).cast();
        // SAFETY: blocking, so the destination lives long enough.
        unsafe { self.endpoint.get(from, offset, dst, 8, true).unwrap() };
        value
    }
}

impl Drop for Branch {
    fn drop(&mut self) {
        self.end_progress();
    }
}

/// Operations of all kinds, in the first half of the segment by the endpoint and in the second by the branch.
fn use_both(pe: &Pe, branch: &Branch, to: u32, rounds: u64) {
    let (mine, own) = (64 * u64::from(pe.number), 4096 + 64 * u64::from(pe.number));
    for round in 1..=rounds {
        pe.put_word(to, mine, round);
        branch.put(to, own, round).unwrap();
        pe.endpoint.fetch_add(to, mine + 8, 1).unwrap();
        assert_eq!(
            branch.endpoint.fetch_add(to, own + 8, 2).unwrap(),
            2 * (round - 1)
        );
        let plain = branch.endpoint.plain();
        plain
            .atomic_plain(to, 0, own + 16, Width::W4, AtomicOp::Xor(1))
            .unwrap();
        plain
            .atomic_plain(to, 0, 8192, Width::W8, AtomicOp::Add(1))
            .unwrap();
        pe.endpoint.add_nbi(to, 8192, 1).unwrap();
        branch.endpoint.quiet().unwrap();
        assert_eq!(branch.get(to, own), round);
        pe.endpoint.quiet().unwrap();
        assert_eq!(pe.get_word(to, mine), round);
    }
}

const WAYS: [fn(&mut EndpointConfig); 4] = [
    |_| {},
    |config| config.atomics = Atomics::Owner,
    |config| config.max_qps = 1,
    |config| (config.max_qps, config.atomics) = (2, Atomics::Owner),
];

/// Two PEs, each with a branch, use each other over all four; words that both write are right. What one PE has with
/// another counts as one peer, and close is told to all.
#[test]
fn branches_and_endpoints_use_the_same_peers() {
    for (way, lossy) in WAYS.into_iter().flat_map(|way| [(way, false), (way, true)]) {
        let faults = Faults {
            drop: 20_000 * u32::from(lossy),
            duplicate: 20_000 * u32::from(lossy),
            reorder: 20_000 * u32::from(lossy),
            seed: 3,
        };
        let job = Job::with(3, |config, soft| {
            way(config);
            soft.faults = faults;
        });
        let mut config = EndpointConfig::default();
        way(&mut config);
        let most = config.max_qps;
        let branches: Vec<_> = job
            .pes
            .iter()
            .map(|pe| Branch::with(pe, 1 + pe.number, most, faults))
            .collect();
        job.run(|pe| {
            let branch = &branches[pe.number as usize];
            for to in [(pe.number + 1) % 3, (pe.number + 2) % 3] {
                use_both(pe, branch, to, 10);
            }
        });
        for pe in &job.pes {
            assert_eq!(pe.word(8192), 40, "two PEs, twice ten each");
            let peers = pe.endpoint.connected_peers();
            assert!(peers.iter().all(|peer| *peer < 3 && *peer != pe.number));
        }
        job.run(|pe| pe.endpoint.close());
        for (pe, branch) in job.pes.iter().zip(&branches) {
            for endpoint in [&pe.endpoint, &branch.endpoint] {
                assert!(matches!(endpoint.quiet(), Err(ConnError::Closed)));
                let missed = endpoint.stats().connect.byes_missed;
                assert!(lossy || missed == 0, "{missed}");
                assert_eq!(endpoint.stats().queue_pairs, 0);
            }
        }
    }
}

/// A long put of the endpoint is under way, and stays so, as nobody makes progress on it. The branch completes its
/// own operations towards the same peer all the same.
#[test]
fn a_branch_does_not_wait_for_what_is_under_way() {
    for atomics in [Atomics::Hca, Atomics::Owner] {
        let mut job = Job::with(2, |config, _| config.atomics = atomics);
        let branch = Branch::new(&job.pes[0], 1, 0);
        job.pes[0].put_word(1, 0, 1);
        job.pes[0].endpoint.quiet().unwrap();
        branch.put(1, 8, 1).unwrap();
        branch.endpoint.quiet().unwrap();
        // Acknowledgements are not taken, and what is beyond a window is not sent.
        job.pes[0].pause();
        let source = vec![7u8; 4 << 20];
        // SAFETY: the source lives until the quiet at the end.
        unsafe {
            let (src, len) = (source.as_ptr(), source.len());
            job.pes[0]
                .endpoint
                .put(1, 1 << 20, src, len, Source::UntilQuiet)
                .unwrap();
        }
        for round in 1..=100 {
            branch.put(1, 8, round).unwrap();
            assert_eq!(branch.endpoint.fetch_add(1, 16, 1).unwrap(), round - 1);
            branch.endpoint.quiet().unwrap();
            assert_eq!(job.pes[1].word(8), round);
        }
        assert!(
            job.pes[0].endpoint.stats().in_flight > 0,
            "the bulk is under way"
        );
        assert_eq!(branch.endpoint.stats().in_flight, 0);
        job.pes[0].endpoint.quiet().unwrap();
        assert_eq!(job.pes[1].word((5 << 20) - 8), 0x0707_0707_0707_0707);
        job.pes[0].resume();
    }
}

/// What the endpoint registers later is used in place by branches that are there already, and peers
/// reach no memory over a branch.
#[test]
fn memory_is_that_of_the_endpoint() {
    let job = Job::new(2);
    let branch = Branch::new(&job.pes[0], 64, 0);
    let more = vec![5u64; 8192].leak();
    // SAFETY: it is never freed, and not borrowed from here on.
    let base: *mut u8 = more.as_mut_ptr().cast();
    // SAFETY: as above.
    unsafe {
        job.pes[0]
            .endpoint
            .register_segment(3, base, 65_536)
            .unwrap()
    };
    // From the segment that is there from the beginning, and from the new one.
    for (from, word) in [(job.pes[0].place(0), 0), (base, 5)] {
        // SAFETY: both stay as they are.
        unsafe {
            branch
                .endpoint
                .put(1, 0, from, 65_536, Source::UntilQuiet)
                .unwrap()
        };
        branch.endpoint.quiet().unwrap();
        assert_eq!(job.pes[1].word(65_528), word);
    }
    job.pes[1].put_word(0, 8, 3);
    assert_eq!(branch.endpoint.stats().hca.rdma_inbound, 0);
}

/// There are 64, none over XRC, and none of an endpoint that is closed.
#[test]
fn branches_are_refused() {
    let hca = || Arc::new(SoftHca::open(&SoftConfig::loopback(9)).unwrap());
    let job = Job::new(2);
    let text = |pe: &Pe, number| {
        let made = pe.endpoint.branch(hca(), number, 0, 1);
        made.err().map(|e| e.to_string()).unwrap_or_default()
    };
    assert_eq!(text(&job.pes[0], 64), "");
    assert!(text(&job.pes[0], 65).contains("64"));
    job.run(|pe| pe.endpoint.close());
    assert!(matches!(
        job.pes[0].endpoint.branch(hca(), 1, 0, 1),
        Err(ConnError::Closed)
    ));
    let xrc = Job::with(2, |config, _| {
        config.transport = Transport::Xrc { domain: None };
    });
    assert!(text(&xrc.pes[0], 1).contains("XRC"));
}

/// Threads that use a branch each, and all of the job's PEs at once.
#[test]
fn a_branch_per_thread() {
    const EACH: u64 = 200;
    let job = Job::new(2);
    let (start, end) = (Barrier::new(4), Barrier::new(2));
    job.run(|pe| {
        let branches = [1, 2].map(|number| Branch::new(pe, number, 0));
        std::thread::scope(|scope| {
            for branch in &branches {
                let start = &start;
                scope.spawn(move || {
                    start.wait();
                    for i in 0..EACH {
                        branch.endpoint.add_nbi(1 - pe.number, 0, 1).unwrap();
                        branch.put(1 - pe.number, 8, i).unwrap();
                        branch.endpoint.quiet().unwrap();
                    }
                });
            }
        });
        end.wait();
        pe.endpoint.close();
    });
    assert!(job.pes.iter().all(|pe| pe.word(0) == 2 * EACH));
}

/// Operations under way in branches are completed by close and by the quiet of all, whoever serves them.
#[test]
fn closing_completes_what_branches_have_under_way() {
    for served in [true, false] {
        // Longer than a busy machine keeps a PE from its turn.
        let job = Job::with(2, |config, _| config.linger = Duration::from_secs(20));
        let mut branch = Branch::new(&job.pes[0], 1, 0);
        branch.put(1, 0, 1).unwrap();
        branch.endpoint.quiet().unwrap();
        if !served {
            branch.end_progress();
        }
        let source = vec![9u8; 4 << 20];
        // SAFETY: the source lives longer than the endpoint is open.
        unsafe {
            let (src, len) = (source.as_ptr(), source.len());
            branch
                .endpoint
                .put(1, 1 << 20, src, len, Source::UntilQuiet)
                .unwrap();
        }
        job.run(|pe| pe.endpoint.close());
        assert_eq!(job.pes[1].word((5 << 20) - 8), 0x0909_0909_0909_0909);
        let missed = |endpoint: &Endpoint<SoftHca>| endpoint.stats().connect.byes_missed;
        assert_eq!(missed(&branch.endpoint) + missed(&job.pes[1].endpoint), 0);
    }
}

/// Another life: the same branch, with new addresses and keys, and nothing of before.
#[test]
fn branches_live_again() {
    let job = Job::new(2);
    let mut branch = Branch::new(&job.pes[0], 1, 0);
    for life in 1..=3 {
        branch.put(1, 0, life).unwrap();
        branch.endpoint.quiet().unwrap();
        assert_eq!(job.pes[1].word(0), life);
        job.run(|pe| pe.endpoint.close());
        branch.end_progress();
        for pe in &job.pes {
            pe.endpoint
                .reopen(life as u32, life + u64::from(pe.number))
                .unwrap();
            pe.endpoint.set_directory(job.table.clone());
        }
        for pe in 0..2 {
            job.set_address(
                pe,
                shmem_ib::connect::endpoint::Lookup::Ready(job.address(pe)),
            );
        }
        job.pes.iter().for_each(Pe::register);
        job.pes[0]
            .endpoint
            .renew_branch(&branch.endpoint, life)
            .unwrap();
        branch.serve();
    }
}

/// A peer dies while a branch waits for it: the wait ends, and the other connections are as they were.
#[test]
fn a_peer_dies_while_a_branch_waits() {
    let mut job = Job::with(3, |config, _| {
        (config.rc_timeout, config.rc_retry) = (14, 1);
        config.connect_deadline = Duration::from_millis(500);
        config.linger = Duration::from_millis(50);
    });
    let branch = Branch::new(&job.pes[0], 1, 0);
    for to in [1, 2] {
        branch.put(to, 0, 1).unwrap();
    }
    branch.endpoint.quiet().unwrap();
    job.pes[2].die();
    branch.put(2, 0, 2).unwrap();
    let error = branch.endpoint.quiet().unwrap_err().to_string();
    assert!(error.contains("PE 2 (node 1)"), "{error}");
    branch.put(1, 0, 3).unwrap();
    branch.endpoint.quiet().unwrap();
    job.pes[0].put_word(1, 8, 4);
    job.pes[0].endpoint.quiet().unwrap();
    assert_eq!((job.pes[1].word(0), job.pes[1].word(8)), (3, 4));
    // Who died counts for nobody else; over a new connection it is the branch that says so.
    let late = Branch::new(&job.pes[0], 2, 0);
    let error = late.put(2, 0, 1).unwrap_err().to_string();
    assert!(error.contains("PE 2 (node 1)"), "{error}");
}
