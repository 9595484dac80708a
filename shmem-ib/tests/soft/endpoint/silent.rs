//! Operations whose work requests do not tell of their completion: few do, and nothing is lost of the others.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex};

use shmem_ib::connect::endpoint::{Atomics, ContextId, EndpointConfig, Source};
use shmem_ib::soft::SoftConfig;
use shmem_ib::verbs::rng::Rng;
use shmem_ib::verbs::{Completion, QpInit, QpType, Qpn, SendOp, SendWr, VerbsError};
use shmem_ib_kit::job::{Job, Plain};

use super::through::{Between, Through};

#[test]
fn of_a_stream_few_requests_tell() {
    const PUTS: u64 = 1000;
    let job = Job::new(2);
    let (a, b) = (&job.pes[0], &job.pes[1]);
    a.put_word(1, 0, 1);
    a.endpoint.quiet().unwrap();
    let before = a.endpoint.stats();
    for i in 0..PUTS {
        a.put_word(1, 8 * i, i);
    }
    a.endpoint.quiet().unwrap();
    let after = a.endpoint.stats();
    assert!((0..PUTS).all(|i| b.word(8 * i) == i));
    let requests = after.requests - before.requests;
    let tell = requests - (after.silent - before.silent);
    // How often the queue is full, and a thread waits, depends on the processors.
    assert!((PUTS..PUTS + 300).contains(&requests), "{requests}");
    assert!(tell < requests / 2, "{tell} of {requests}");
    assert_eq!(after.in_flight, 0);
}

/// A send queue as devices keep it: the place of a request, and of those before it, is free when its completion was taken
/// from the completion queue.
#[derive(Default)]
struct Places {
    depth: usize,
    /// Number of each request in the queue, and whether it tells.
    queue: VecDeque<(u64, bool)>,
    /// Requests with data that were posted ever.
    puts: u64,
}

/// The places of the one queue pair that its PE sends by.
#[derive(Clone, Default)]
struct Shared(Arc<Mutex<Places>>);

impl Between for Shared {
    fn created(&self, _: Qpn, init: &QpInit) {
        if init.ty == QpType::Rc {
            self.0.lock().unwrap().depth = init.max_send_wr as usize;
        }
    }

    fn posts(&self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
        let SendOp::Write { .. } = wr.op else {
            return Ok(());
        };
        let mut places = self.0.lock().unwrap();
        let depth = places.depth as u32;
        if places.queue.len() == places.depth {
            let queue = "send";
            return Err(VerbsError::QueueFull { qpn, queue, depth });
        }
        places.queue.push_back((wr.wr_id, wr.signaled));
        places.puts += u64::from(!wr.sges.is_empty());
        Ok(())
    }

    fn polled(&self, completions: &[Completion]) {
        let mut places = self.0.lock().unwrap();
        for completion in completions {
            let told = |(id, _): &(u64, bool)| *id == completion.wr_id;
            if let Some(at) = places.queue.iter().position(told) {
                places.queue.drain(..=at);
            }
        }
    }
}

/// Puts whose source stays are held while others are under way; a program that computes then, and makes no call, has
/// them at their target all the same: a completion is to come that wakes the thread which lets them go. So it is where
/// they are more than their queue takes.
#[test]
fn what_is_held_arrives_while_the_program_computes() {
    for (depth, puts) in [(256, 20), (64, 70), (64, 100), (8, 12), (8, 40)] {
        for atomics in [Atomics::Hca, Atomics::Owner] {
            let places = Shared::default();
            let job = Job::on(2, |number, config| {
                config.sq_depth = depth;
                config.atomics = atomics;
                let its = if number == 0 {
                    places.clone()
                } else {
                    Shared::default()
                };
                Through::new(number, its)
            });
            job.pes.iter().for_each(|pe| pe.register());
            let (a, b) = (&job.pes[0], &job.pes[1]);
            for round in 1..=100_u64 {
                let case = format!("{atomics:?}, depth {depth}, {puts} puts, round {round}");
                for i in 0..puts {
                    let from = a.place(8 * (1000 + i));
                    // SAFETY: nobody else uses it before quiet.
                    unsafe {
                        from.cast::<u64>().write_volatile(round);
                        a.endpoint
                            .put(1, 8 * i, from, 8, Source::UntilQuiet)
                            .unwrap();
                    }
                    let waits_for_nothing = || {
                        let places = places.0.lock().unwrap();
                        let held = (round - 1) * puts + i + 1 - places.puts;
                        held > 0 && !places.queue.iter().any(|(_, tells)| *tells)
                    };
                    if waits_for_nothing() {
                        // Unless the other thread is just about it: it has let go before it gives back the lock.
                        let _ = a.endpoint.stats();
                        assert!(!waits_for_nothing(), "{case}: behind put {i}");
                    }
                }
                let began = std::time::Instant::now();
                while b.word(8 * (puts - 1)) != round {
                    assert!(
                        began.elapsed().as_secs() < 60,
                        "{case}: the last one was not sent"
                    );
                    std::thread::yield_now();
                }
                a.endpoint.quiet().unwrap();
                assert!((0..puts).all(|i| b.word(8 * i) == round));
            }
        }
    }
}

#[test]
fn who_waits_for_each_operation_hears_of_each_without_another_request() {
    let job = Job::new(2);
    let a = &job.pes[0];
    a.put_word(1, 0, 1);
    a.endpoint.quiet().unwrap();
    let before = a.endpoint.stats();
    for i in 0..100 {
        a.put_word(1, 8 * i, i);
        a.endpoint.quiet().unwrap();
    }
    let after = a.endpoint.stats();
    assert_eq!(after.requests - before.requests, 100);
    assert_eq!(after.silent, before.silent);
}

/// Random operations of two contexts towards two peers, with queues of all depths: what is read is what was written
/// before, and quiet is the end of everything.
#[test]
fn nothing_is_lost_whatever_the_depth_of_the_queues() {
    const WORDS: u64 = 512;
    for (seed, depth) in [(1, 1), (2, 2), (3, 5), (4, 16), (5, 64), (6, 256)] {
        let shallow = |config: &mut EndpointConfig, _: &mut SoftConfig| {
            config.sq_depth = depth;
            config.cq_depth = 32 + 16 + 2 * depth;
            config.signal_every = 1 + depth / 3;
            config.hold = 1 + depth / 2;
        };
        let job = Job::with(3, shallow);
        let a = &job.pes[0];
        let mut rng = Rng::new(seed);
        let mut model = [vec![0_u64; WORDS as usize], vec![0_u64; WORDS as usize]];
        for round in 0..300 {
            let mut expected = Vec::new();
            for i in 0..rng.below(64) {
                let (peer, word) = (rng.below(2) as usize, rng.below(WORDS));
                let (pe, at) = (peer as u32 + 1, 8 * word);
                let context = a.endpoint.context(ContextId::new(rng.below(2) as u16));
                let value = rng.next_u64();
                match rng.below(14) {
                    // It stays until it is released, and is written over then.
                    12.. => {
                        let mut sources = [value; 8];
                        for (k, source) in sources.iter().enumerate() {
                            let (from, at) = (
                                std::ptr::from_ref(source).cast(),
                                (at + 8 * k as u64) % (8 * WORDS),
                            );
                            // SAFETY: it stays until the release.
                            unsafe { context.put(pe, 0, at, from, 8, Source::UntilRelease) }
                                .unwrap();
                            model[peer][(at / 8) as usize] = value;
                        }
                        match value % 2 {
                            0 => context.release_sources().unwrap(),
                            _ => context.release_sources_towards(pe).unwrap(),
                        }
                        // SAFETY: nobody reads it any more.
                        unsafe { sources.as_mut_ptr().write_volatile(!value) };
                        sources.fill(!value);
                        std::hint::black_box(&sources);
                    }
                    // In the own segment, where it stays until quiet.
                    8.. => {
                        let from = a.place(8 * (2 * WORDS + i));
                        // SAFETY: nobody else uses it before quiet.
                        unsafe {
                            from.cast::<u64>().write_volatile(value);
                            context.put(pe, 0, at, from, 8, Source::UntilQuiet).unwrap();
                        }
                        model[peer][word as usize] = value;
                    }
                    0..=4 => {
                        let from = (&raw const value).cast();
                        // SAFETY: it is copied before this returns.
                        unsafe { context.put(pe, 0, at, from, 8, Source::UntilReturn) }.unwrap();
                        model[peer][word as usize] = value;
                    }
                    5 => {
                        // In the own segment, so that there is no slot to give back.
                        let to = a.place(8 * (WORDS + i));
                        // SAFETY: nobody else uses it before quiet.
                        unsafe { context.get(pe, 0, at, to, 8, false) }.unwrap();
                        expected.push((8 * (WORDS + i), model[peer][word as usize]));
                    }
                    6 => {
                        let mut got = u64::MAX;
                        let to = (&raw mut got).cast();
                        // SAFETY: it is valid, and the call waits.
                        unsafe { context.get(pe, 0, at, to, 8, true) }.unwrap();
                        assert_eq!(got, model[peer][word as usize], "seed {seed}, {round}");
                    }
                    _ => {
                        let old = a.endpoint.fetch_add(pe, at, value).unwrap();
                        let known = &mut model[peer][word as usize];
                        assert_eq!(old, *known, "seed {seed}, {round}");
                        *known = known.wrapping_add(value);
                    }
                }
            }
            a.endpoint.quiet_all().unwrap();
            assert_eq!(a.endpoint.stats().in_flight, 0, "seed {seed}, {round}");
            for (at, value) in expected {
                assert_eq!(a.word(at), value, "seed {seed}, {round}");
            }
        }
        for (peer, words) in model.iter().enumerate() {
            for (word, value) in (0_u64..).zip(words) {
                assert_eq!(job.pes[peer + 1].word(8 * word), *value, "seed {seed}");
            }
        }
    }
}

#[test]
fn a_peer_that_dies_ends_silent_operations_with_an_error() {
    let mut job = Job::with(2, |config, _| {
        // 67 ms: a peer that only waits for a processor is not dead.
        (config.rc_timeout, config.rc_retry) = (14, 2);
    });
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[1].die();
    let a = &job.pes[0];
    for i in 0..30_u64 {
        let word = (&raw const i).cast();
        // SAFETY: it is copied before this returns.
        if unsafe { a.endpoint.put(1, 8 * i, word, 8, Source::UntilReturn) }.is_err() {
            break;
        }
    }
    let error = a.endpoint.quiet().unwrap_err();
    assert!(error.to_string().contains("PE 1"), "{error}");
    assert_eq!(a.endpoint.stats().in_flight, 0);
}
