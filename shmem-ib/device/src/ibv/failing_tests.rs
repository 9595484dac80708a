//! Devices that fail, under an endpoint whose peer is silent.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use super::VerbsHca;
use super::fake::{Fake, NAME};
use crate::options::VerbsConfig;
use shmem_connect::UdAddress;
use shmem_connect::endpoint::{ConnError, Directory, Endpoint, EndpointConfig, Lookup};
use shmem_ib_kit::job::Plain as _;
use shmem_verbs::Hca;

/// Whatever takes as long is taken for a hang.
const HANG: Duration = Duration::from_secs(120);

struct Silent(UdAddress);

impl Directory for Silent {
    fn lookup(&self, _: u32) -> Lookup {
        Lookup::Ready(self.0)
    }
    fn wait(&self, _: u32, _: Duration) {}
}

/// PE 0 of 2 on a fake device, with a progress thread that may sleep for an hour.
struct Pe {
    fake: &'static Fake,
    hca: Arc<VerbsHca>,
    end: Arc<Endpoint<VerbsHca>>,
    told: Arc<Mutex<Vec<String>>>,
    stop: Arc<AtomicBool>,
    progress: Option<JoinHandle<()>>,
}

impl Pe {
    fn new() -> Self {
        let fake = Fake::new();
        let hca = VerbsHca::open(&VerbsConfig::new(NAME, 1, 0)).expect("the fake opens");
        let hca = Arc::new(hca);
        let config = EndpointConfig {
            n_pes: 2,
            connect_deadline: Duration::from_secs(600),
            ..EndpointConfig::default()
        };
        let end = Endpoint::new(Arc::clone(&hca), config).expect("an endpoint");
        let memory: &'static [AtomicU64] = Box::leak(Box::new([const { AtomicU64::new(0) }; 8]));
        // SAFETY: it is never freed, and accessed by atomics only.
        unsafe { end.register(memory.as_ptr().cast_mut().cast(), 64) }.expect("memory");
        end.set_directory(Arc::new(Silent(end.ud_address())));
        let told = Arc::new(Mutex::new(Vec::new()));
        let news = Arc::clone(&told);
        end.on_failure(move |error| news.lock().expect("no panics").push(error.to_string()));
        let stop = Arc::new(AtomicBool::new(false));
        let (served, stopped) = (Arc::clone(&end), Arc::clone(&stop));
        let progress = std::thread::spawn(move || {
            while !stopped.load(Ordering::Relaxed) {
                served.progress_wait(Duration::from_secs(3600));
            }
        });
        Self {
            fake,
            hca,
            end,
            told,
            stop,
            progress: Some(progress),
        }
    }

    fn told(&self) -> Vec<String> {
        self.told.lock().expect("no panics").clone()
    }

    /// What somebody is told, while this thread is in no call.
    fn is_told(&self) -> String {
        self.is_told_while(|| std::thread::sleep(Duration::from_millis(1)))
    }

    fn is_told_while(&self, mut work: impl FnMut()) -> String {
        let end = Instant::now() + HANG;
        while self.told().is_empty() {
            assert!(Instant::now() < end, "nobody is told");
            work();
        }
        let told = self.told();
        assert_eq!(told.len(), 1, "{told:?}");
        assert!(
            told[0].starts_with("RDMA device fake0 has failed"),
            "{told:?}"
        );
        told[0].clone()
    }
}

impl Drop for Pe {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        self.hca.wake();
        if let Some(thread) = self.progress.take() {
            let _ = thread.join();
        }
    }
}

fn operation_while(pe: &Pe, fail: impl FnOnce()) -> ConnError {
    operation_of(&pe.end, fail)
}

/// Runs `fail` once an operation waits for its peer; the operation has to end with an error.
fn operation_of(endpoint: &Endpoint<VerbsHca>, fail: impl FnOnce()) -> ConnError {
    std::thread::scope(|scope| {
        let operation = scope.spawn(|| endpoint.fetch_add(1, 0, 1));
        let end = Instant::now() + HANG;
        while endpoint.stats().connect.offers_sent == 0 {
            if Instant::now() >= end {
                eprintln!("no message goes out");
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        fail();
        while !operation.is_finished() {
            if Instant::now() >= end {
                // Not a panic: the scope would wait for the thread.
                eprintln!("the operation hangs");
                std::process::abort();
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        let result = operation.join().expect("no panic");
        result.expect_err("the peer is silent")
    })
}

#[test]
fn a_fatal_event_reaches_a_pe_that_sleeps() {
    let pe = Pe::new();
    pe.fake.die();
    let text = pe.is_told();
    assert!(text.contains("IBV_EVENT_DEVICE_FATAL"), "{text}");
    let later = pe.end.fetch_add(1, 0, 1).expect_err("the device is dead");
    assert_eq!(later.to_string(), text);
}

#[test]
fn a_fatal_event_ends_an_operation_that_waits() {
    let pe = Pe::new();
    let error = operation_while(&pe, || pe.fake.die());
    assert!(matches!(error, ConnError::Device { .. }), "{error}");
    pe.is_told();
}

#[test]
fn a_fatal_event_reaches_a_pe_that_polls_all_the_time() {
    let pe = Pe::new();
    pe.fake.die();
    pe.is_told_while(|| {
        pe.end.progress();
    });
}

/// One HCA takes the event, and others on the same device hear of it: an operation of a branch ends, and so does
/// the endpoint that it belongs to.
#[test]
fn a_fatal_event_ends_branches_and_endpoint() {
    let pe = Pe::new();
    let beside = Arc::new(pe.hca.beside().expect("the fake has queues"));
    assert!(beside.shares_memory(&pe.hca) && pe.hca.shares_memory(&beside));
    let branch = pe.end.branch(beside, 1, 0, 7).expect("a branch");
    let error = operation_of(&branch, || pe.fake.die());
    assert!(matches!(error, ConnError::Device { .. }), "{error}");
    pe.is_told();
}

#[test]
fn a_queue_that_cannot_be_polled_is_a_failure() {
    let pe = Pe::new();
    let error = operation_while(&pe, || pe.fake.polled.store(-1, Ordering::Relaxed));
    let text = error.to_string();
    assert!(text.contains("ibv_poll_cq gave -1"), "{text}");
    assert_eq!(pe.is_told(), text);
}

#[test]
fn an_overrun_queue_is_a_failure() {
    let pe = Pe::new();
    pe.fake.overrun();
    let text = pe.is_told();
    assert!(text.contains("IBV_EVENT_CQ_ERR"), "{text}");
}

#[test]
fn a_device_that_is_taken_away_is_a_failure() {
    let pe = Pe::new();
    pe.fake.vanish();
    let text = pe.is_told();
    assert!(text.contains("it is gone"), "{text}");
}

#[test]
fn a_port_that_stays_down_is_a_failure() {
    let pe = Pe::new();
    pe.fake.port(false);
    let text = pe.is_told();
    assert!(text.contains("port 1 is down"), "{text}");
}

#[test]
fn a_port_that_comes_back_is_none() {
    let pe = Pe::new();
    for _ in 0..3 {
        pe.fake.port(false);
        pe.fake.port(true);
    }
    // Far beyond the time after which a port that is down counts.
    std::thread::sleep(Duration::from_secs(2));
    assert!(pe.hca.failure().is_none() && pe.told().is_empty());
}

#[test]
fn a_port_that_came_back_while_nobody_looked_is_none() {
    let fake = Fake::new();
    let hca = VerbsHca::open(&VerbsConfig::new(NAME, 1, 0)).expect("the fake opens");
    fake.port(false);
    assert!(hca.port.events.take());
    fake.port(true);
    std::thread::sleep(Duration::from_secs(1));
    assert_eq!(hca.failure(), None);
    // And one that did not, is.
    fake.port(false);
    assert!(hca.port.events.take());
    let end = Instant::now() + HANG;
    while hca.failure().is_none() {
        assert!(Instant::now() < end, "it is down for good");
        std::thread::sleep(Duration::from_millis(1));
    }
}
