//! Threads that share an endpoint: each learns at once what another one has found.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Wake as Task, Waker};

use shmem_ib::atomic::{AtomicOp, Width};
use shmem_ib::connect::endpoint::{Endpoint, Source};
use shmem_ib::soft::SoftHca;
use shmem_ib::verbs::Wake;
use shmem_ib_kit::job::{Job, Pe, Plain};

use super::through::{Between, Through};

/// What another thread does while the first one falls asleep.
type Other = Box<dyn FnOnce() + Send>;

/// Lets another thread be faster than one that falls asleep, and keeps what ended each sleep.
#[derive(Clone, Default)]
struct Sleeps {
    other: Arc<Mutex<Option<Other>>>,
    ended: Arc<Mutex<Vec<Wake>>>,
}

impl Between for Sleeps {
    fn sleeps(&self) {
        let other = self.other.lock().unwrap().take();
        if let Some(other) = other {
            other();
        }
    }

    fn slept(&self, wake: Wake) {
        self.ended.lock().unwrap().push(wake);
    }
}

/// Something that PE 0 waits for while PE 1 does not answer.
type Waits = fn(&Pe<Through<Sleeps>>);

/// All that a thread can wait for without naming the operation.
const WAITS: [(&str, Waits); 4] = [
    ("quiet", |pe| {
        pe.put_word(1, 8, 1);
        pe.endpoint.quiet().unwrap();
    }),
    ("room in the queue", |pe| {
        for i in 0..33 {
            pe.put_word(1, 8 * i, i);
        }
    }),
    ("a slot for a copy", |pe| {
        for _ in 0..65 {
            pe.put_bytes(1, 0, &[1; 1000]);
        }
    }),
    ("the release of a source", |pe| {
        let (from, len) = (pe.place(0), 100 << 10);
        // SAFETY: the source is the segment, which stays.
        unsafe {
            pe.endpoint
                .put(1, 0, from, len, Source::UntilRelease)
                .unwrap();
        }
        pe.endpoint.plain().release_sources().unwrap();
    }),
];

/// The thread that waits finds nothing, and before it sleeps another one takes all completions.
#[test]
fn a_thread_that_falls_asleep_is_woken_for_what_another_one_has_found() {
    for (what, wait) in WAITS {
        let sleeps = Sleeps::default();
        let mut job = Job::on(2, |number, config| {
            config.spin_rounds = 0;
            if what == "room in the queue" {
                config.sq_depth = 32;
            }
            let between = match number {
                0 => sleeps.clone(),
                _ => Sleeps::default(),
            };
            Through::new(number, between)
        });
        job.pes.iter().for_each(Pe::register);
        job.pes[0].put_word(1, 0, 7);
        job.pes[0].endpoint.quiet().unwrap();
        job.pes.iter_mut().for_each(Pe::pause);
        let [own, peer] = [0, 1].map(|i: usize| Arc::clone(&job.pes[i].endpoint));
        sleeps.ended.lock().unwrap().clear();
        *sleeps.other.lock().unwrap() = Some(Box::new(move || {
            while own.stats().in_flight > 0 {
                peer.progress();
                own.progress();
            }
        }));
        wait(&job.pes[0]);
        let ended = std::mem::take(&mut *sleeps.ended.lock().unwrap());
        assert_eq!(ended, [Wake::Woken], "{what}");
        job.pes.iter_mut().for_each(Pe::resume);
    }
}

/// Counts how often a task is to be polled again.
#[derive(Default)]
struct Wakes(AtomicU32);

impl Task for Wakes {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }
}

/// A task that waits for a point is polled again when any thread finds something new, and not before.
#[test]
fn a_task_is_woken_when_something_is_complete() {
    let mut job = Job::with(2, |_, _| {});
    job.pes[0].put_word(1, 0, 7);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes.iter_mut().for_each(Pe::pause);
    let (own, peer) = (&job.pes[0], &job.pes[1]);
    own.put_word(1, 8, 1);
    let ctx = own.endpoint.plain();
    let point = ctx.point(1).expect("the peer has not answered");
    let wakes = Arc::new(Wakes::default());
    let waker = Waker::from(Arc::clone(&wakes));
    for _ in 0..10 {
        assert!(!ctx.is_past_or_wakes(&point, &waker).unwrap());
    }
    own.endpoint.progress();
    assert_eq!(wakes.0.load(Ordering::Relaxed), 0);
    while own.endpoint.stats().in_flight > 0 {
        peer.endpoint.progress();
        own.endpoint.progress();
    }
    assert_eq!(wakes.0.load(Ordering::Relaxed), 1);
    assert!(ctx.is_past_or_wakes(&point, &waker).unwrap());
    job.pes.iter_mut().for_each(Pe::resume);
}

/// What wrote memory of the PE, and what did not.
#[test]
fn gets_are_told_of_and_puts_are_not() {
    let job = Job::with(2, |_, _| {});
    let own = &job.pes[0];
    let told = Arc::new(AtomicU32::new(0));
    let count = Arc::clone(&told);
    own.endpoint.on_fetch(move || {
        count.fetch_add(1, Ordering::Relaxed);
    });
    let tells = |what: &dyn Fn(&Endpoint<SoftHca>)| {
        told.store(0, Ordering::Relaxed);
        what(&own.endpoint);
        own.endpoint.quiet().unwrap();
        told.load(Ordering::Relaxed) > 0
    };
    assert!(!tells(&|_| own.put_word(1, 0, 7)));
    assert!(!tells(&|_| (0..100).for_each(|i| own.put_word(
        1,
        8 * i,
        i
    ))));
    assert!(!tells(&|own| own.add_nbi(1, 0, 1).unwrap()));
    assert!(!tells(&|own| _ = own.fetch_add(1, 0, 1).unwrap()));
    assert!(tells(&|_| _ = own.get_word(1, 0)));
    let (to, len) = (own.place(64), 32);
    // SAFETY: the destination is the segment, which stays.
    assert!(tells(&|own| unsafe {
        own.get(1, 64, to, len, false).unwrap()
    }));
    let op = AtomicOp::Add(1);
    // SAFETY: as above.
    assert!(tells(&|own| unsafe {
        own.plain()
            .atomic_fetch_into(1, 0, 0, Width::W8, op, to)
            .unwrap()
    }));
}
