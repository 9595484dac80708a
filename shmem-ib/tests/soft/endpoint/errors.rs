//! What users are told when something is wrong, and that it stays with those it concerns.

use std::time::{Duration, Instant};

use shmem_ib::connect::UdAddress;
use shmem_ib::connect::endpoint::{ConnError, Endpoint, EndpointConfig, Lookup, Source};
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{Qpn, WcStatus};

use shmem_ib_kit::job::{Job, Plain, WORDS};

/// For whoever asks those that do not answer. A peer that answers may be later than that where the machine
/// is busy, so nothing here counts on its being in time.
const DEADLINE: Duration = Duration::from_secs(1);
/// After so long a peer that answers counts as hung.
const PATIENCE: Duration = Duration::from_secs(300);

/// Only PE 0 is in a hurry.
fn short(config: &mut EndpointConfig, _: &mut SoftConfig) {
    config.connect_deadline = match config.pe {
        0 => DEADLINE,
        _ => PATIENCE,
    };
}

/// An operation that needs a connection with somebody who answers, though perhaps not within the deadline.
fn patiently(operation: impl Fn() -> Result<u64, ConnError>) -> u64 {
    let began = Instant::now();
    loop {
        match operation() {
            Err(ConnError::Unreachable { .. }) if began.elapsed() < PATIENCE => {}
            result => return result.unwrap(),
        }
    }
}

#[test]
fn a_peer_that_does_not_answer_is_named_and_holds_up_nobody_else() {
    let job = Job::with(3, short);
    // Its datagrams go to a queue pair that does not exist.
    let nowhere = UdAddress {
        qpn: Qpn(0x00ff_fff0),
        ..job.address(2)
    };
    job.set_address(2, Lookup::Ready(nowhere));
    let pe = &job.pes[0];
    // The connection with PE 1 is there before, so that nothing waits for it.
    patiently(|| pe.endpoint.fetch_add(1, 8, 1));
    std::thread::scope(|scope| {
        let failing = scope.spawn(|| {
            let began = Instant::now();
            let error = pe.endpoint.fetch_add(2, 0, 1).unwrap_err();
            (error, began.elapsed())
        });
        for i in 0..100 {
            pe.put_word(1, 0, i);
        }
        pe.endpoint.quiet().unwrap();
        assert_eq!(job.pes[1].word(0), 99);
        let (error, took) = failing.join().unwrap();
        assert!(took >= DEADLINE, "{took:?}");
        let ConnError::Unreachable { sent, .. } = &error else {
            panic!("{error:?}")
        };
        assert!(*sent > 1, "{error}");
        let text = error.to_string();
        assert!(
            text.contains("PE 2 (node 1)") && text.contains("does not answer"),
            "{text}"
        );
    });
    // The address becomes right, and it works, though perhaps not within the deadline.
    job.set_address(2, Lookup::Ready(job.address(2)));
    assert_eq!(patiently(|| pe.endpoint.fetch_add(2, 0, 5)), 0);
    assert_eq!(job.pes[2].word(0), 5);
}

#[test]
fn a_stranger_without_the_key_gets_no_answer() {
    let job = Job::with(2, short);
    let thief = Job::with(2, |config, _| {
        config.job_key = &[77; 32];
        config.connect_deadline = DEADLINE;
    });
    thief.set_address(1, Lookup::Ready(job.address(1)));
    let error = thief.pes[0].endpoint.fetch_add(1, 0, 1).unwrap_err();
    assert!(matches!(error, ConnError::Unreachable { .. }), "{error:?}");
    let stats = job.pes[1].endpoint.stats();
    assert!(stats.connect.bad_mac > 1);
    assert_eq!(
        (stats.connect.offers_sent, stats.queue_pairs_created),
        (0, 0)
    );
}

#[test]
fn another_job_is_counted_apart() {
    let job = Job::with(2, short);
    let other = Job::with(2, |config, _| {
        config.job_id = [3; 16];
        config.connect_deadline = DEADLINE;
    });
    other.set_address(1, Lookup::Ready(job.address(1)));
    assert!(other.pes[0].endpoint.fetch_add(1, 0, 1).is_err());
    let stats = job.pes[1].endpoint.stats();
    assert!(stats.connect.wrong_job > 1 && stats.connect.bad_mac == 0);
}

#[test]
fn a_dead_peer_fails_its_operations_with_their_names() {
    let mut job = Job::with(3, |config, _| {
        config.rc_timeout = 17; // 0.54 s
        config.rc_retry = 1;
    });
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].put_word(2, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[1].die();
    let pe = &job.pes[0];
    let error = pe.endpoint.fetch_add(1, 64, 1).unwrap_err();
    let ConnError::Operation {
        status: WcStatus::RetryExcErr,
        offset: 64,
        len: 8,
        ..
    } = error
    else {
        panic!("{error:?}")
    };
    let text = error.to_string();
    assert!(
        text.contains("fetch-and-add of 8 bytes at offset 64 of PE 1 (node 0)"),
        "{text}"
    );
    assert!(text.contains("died"), "{text}");
    // Later operations say the same, and others go on.
    // SAFETY: the source lives for the time of the call.
    let again = unsafe {
        pe.endpoint
            .put(1, 0, [0u8; 8].as_ptr(), 8, Source::UntilReturn)
    };
    assert!(matches!(again, Err(ConnError::Operation { .. })));
    pe.put_word(2, 0, 2);
    pe.endpoint.quiet().unwrap();
    assert_eq!(job.pes[2].word(0), 2);
}

#[test]
fn quiet_reports_what_nobody_waited_for() {
    let mut job = Job::with(2, |config, _| {
        config.rc_timeout = 17;
        config.rc_retry = 1;
    });
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[1].die();
    job.pes[0].put_word(1, 8, 1);
    job.pes[0].put_word(1, 16, 1);
    let error = job.pes[0].endpoint.quiet().unwrap_err();
    assert!(
        error
            .to_string()
            .contains("put of 8 bytes at offset 8 of PE 1"),
        "{error}"
    );
    assert!(job.pes[0].endpoint.quiet().is_ok(), "it is reported once");
}

#[test]
fn sources_of_puts_to_a_dead_peer_are_released_with_its_name() {
    let mut job = Job::with(2, |config, _| {
        config.rc_timeout = 17;
        config.rc_retry = 1;
    });
    job.pes[0].put_word(1, 0, 1);
    job.pes[0].endpoint.quiet().unwrap();
    job.pes[1].die();
    let pe = &job.pes[0];
    let long = vec![7u8; 1 << 20];
    for stays in [8, long.len()] {
        // SAFETY: it lives until the sources are released.
        unsafe {
            pe.endpoint
                .put(1, 8, long.as_ptr(), stays, Source::UntilRelease)
        }
        .unwrap();
    }
    let error = pe.endpoint.plain().release_sources().unwrap_err();
    assert!(error.to_string().contains("of PE 1"), "{error}");
    assert!(pe.endpoint.plain().release_sources().is_ok());
    assert_eq!(pe.endpoint.stats().in_flight, 0);
}

#[test]
fn ranges_alignment_and_numbers_are_checked() {
    let job = Job::new(2);
    let pe = &job.pes[0];
    let end = WORDS as u64 * 8;
    let put = |to, at, len| {
        let source = [0u8; 64];
        // SAFETY: the source lives for the time of the call.
        unsafe {
            pe.endpoint
                .put(to, at, source.as_ptr(), len, Source::UntilReturn)
        }
    };
    assert!(put(1, end - 8, 8).is_ok() && put(1, end, 0).is_ok());
    for (at, len) in [
        (end - 7, 8),
        (end, 1),
        (u64::MAX, 8),
        (u64::MAX - 7, 8),
        (end + 1, 0),
    ] {
        let error = put(1, at, len).unwrap_err();
        let ConnError::OutOfRange { size, .. } = error else {
            panic!("{error:?}")
        };
        assert_eq!(size, end);
    }
    assert!(matches!(
        pe.endpoint.fetch_add(1, 4, 1),
        Err(ConnError::Misaligned { .. })
    ));
    assert!(matches!(
        pe.endpoint.add_nbi(1, end, 1),
        Err(ConnError::OutOfRange { .. })
    ));
    for to in [0, 2, u32::MAX] {
        assert!(
            matches!(put(to, 0, 8), Err(ConnError::NoSuchPeer { .. })),
            "{to}"
        );
    }
    pe.endpoint.quiet().unwrap();
}

#[test]
fn addresses_may_come_late_or_never() {
    let job = Job::with(3, short);
    job.set_address(1, Lookup::Pending);
    job.set_address(2, Lookup::Unknown("its node has left the job".into()));
    let pe = &job.pes[0];
    let error = pe.endpoint.fetch_add(2, 0, 1).unwrap_err();
    assert!(
        error
            .to_string()
            .contains("PE 2 (node 1) is not known: its node has left"),
        "{error}"
    );
    let error = pe.endpoint.fetch_add(1, 0, 1).unwrap_err();
    assert!(matches!(&error, ConnError::AddressLate { .. }), "{error:?}");
    // It comes in time to one who is patient.
    let job = Job::with(2, |config, _| config.connect_deadline = PATIENCE);
    let right = job.address(1);
    job.set_address(1, Lookup::Pending);
    let pe = &job.pes[0];
    std::thread::scope(|scope| {
        let waiting = scope.spawn(|| pe.endpoint.fetch_add(1, 0, 4));
        std::thread::sleep(Duration::from_millis(300));
        job.set_address(1, Lookup::Ready(right));
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    });
    assert_eq!(job.pes[1].word(0), 4);
}

#[test]
fn settings_out_of_range_are_named() {
    let hca = std::sync::Arc::new(SoftHca::open(&SoftConfig::loopback(1)).unwrap());
    let good = || EndpointConfig {
        n_pes: 2,
        ..EndpointConfig::default()
    };
    let refused = |config| match Endpoint::new(std::sync::Arc::clone(&hca), config) {
        Err(ConnError::Config { what, .. }) => what,
        other => panic!("{other:?}"),
    };
    assert_eq!(refused(EndpointConfig { pe: 2, ..good() }), "pe");
    assert_eq!(
        refused(EndpointConfig {
            rc_timeout: 32,
            ..good()
        }),
        "rc_timeout"
    );
    assert_eq!(
        refused(EndpointConfig {
            rc_retry: 8,
            ..good()
        }),
        "rc_retry"
    );
    assert_eq!(
        refused(EndpointConfig {
            sq_depth: 0,
            ..good()
        }),
        "sq_depth"
    );
    assert_eq!(
        refused(EndpointConfig {
            cq_depth: 48,
            ..good()
        }),
        "cq_depth"
    );
    assert_eq!(
        refused(EndpointConfig {
            max_rd_atomic: 0,
            ..good()
        }),
        "max_rd_atomic"
    );
}

#[test]
fn a_closed_endpoint_says_so() {
    let job = Job::new(2);
    job.pes[0].put_word(1, 0, 3);
    job.pes[0].endpoint.close();
    assert_eq!(job.pes[1].word(0), 3, "close waits for what is under way");
    assert!(matches!(
        job.pes[0].endpoint.fetch_add(1, 0, 1),
        Err(ConnError::Closed)
    ));
    assert!(matches!(
        job.pes[0].endpoint.quiet(),
        Err(ConnError::Closed)
    ));
    assert_eq!(job.pes[0].endpoint.stats().queue_pairs, 0);
    job.pes[0].endpoint.close();
}
