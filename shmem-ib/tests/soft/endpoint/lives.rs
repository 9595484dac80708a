//! One endpoint after the other, as a process opens them that joins its job again and again.

use std::sync::Arc;
use std::time::Duration;

use shmem_ib::connect::endpoint::{Atomics, Endpoint, EndpointConfig, Lookup, Source, Transport};
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{Hca, QpInit, QpType, SrqInit, SrqKind};

use shmem_ib_kit::job::{AddressTable, Job, Plain};

/// A message that was recorded in one life of a job is sent again in the next, to a PE that has not
/// heard its peer yet. It opens nothing, and the peer itself is not kept out by it.
#[test]
fn an_offer_of_an_earlier_life_is_refused() {
    let [earlier, job] = [0, 1].map(|life| {
        Job::with(2, |config, _| {
            config.life = life;
            config.linger = Duration::from_millis(50);
        })
    });
    earlier.set_address(1, Lookup::Ready(job.address(1)));
    let target = &job.pes[1].endpoint;
    std::thread::scope(|scope| {
        let late = scope.spawn(|| {
            let (pe, value) = (&earlier.pes[0], 9u64);
            let src = std::ptr::from_ref(&value).cast();
            // SAFETY: the source may go as soon as this returns.
            unsafe { pe.endpoint.put(1, 0, src, 8, Source::UntilReturn) }
        });
        while target.stats().connect.wrong_job == 0 {
            assert_eq!(target.stats().connect.accepted, 0, "it was let in");
            std::thread::sleep(Duration::from_millis(1));
        }
        job.pes[0].put_word(1, 0, 5);
        job.pes[0].endpoint.quiet().unwrap();
        earlier.pes[0].endpoint.close();
        assert!(late.join().unwrap().is_err());
    });
    assert_eq!(job.pes[1].word(0), 5);
    let connect = target.stats().connect;
    assert_eq!((connect.accepted, connect.replaced), (1, 0));
}

/// A thread that still waits in a life that is over does not touch the next one.
#[test]
fn a_call_does_not_go_on_in_the_next_life() {
    let job = Job::with(2, |config, _| config.linger = Duration::from_millis(50));
    job.set_address(1, Lookup::Pending);
    let pe = &job.pes[0];
    std::thread::scope(|scope| {
        let waits = scope.spawn(|| pe.put_word(1, 0, 1));
        // It has asked for the address of its peer, and asks again later.
        std::thread::sleep(Duration::from_millis(100));
        pe.endpoint.close();
        pe.endpoint.reopen(1, 77).unwrap();
        let panic = waits.join().unwrap_err();
        let text = panic.downcast_ref::<String>().map(String::as_str);
        let text = text.or_else(|| panic.downcast_ref::<&str>().copied());
        assert!(text.is_some_and(|t| t.contains("opened again")), "{text:?}");
    });
    // Nor is the next one any worse for it.
    let other = &job.pes[1].endpoint;
    other.close();
    other.reopen(1, 78).unwrap();
    for pe in &job.pes {
        pe.register();
        pe.endpoint.set_directory(Arc::clone(&job.table) as Arc<_>);
    }
    job.set_address(1, Lookup::Ready(job.address(1)));
    pe.put_word(1, 8, 3);
    pe.endpoint.quiet().unwrap();
    assert_eq!(job.pes[1].word(8), 3);
}

/// Objects of a software HCA are numbered by their places in tables, in the lower 16 bits. Those of queue
/// pairs are mixed with bits that are the HCA's own, which its first one shows.
fn place(number: u32) -> u32 {
    number & 0xffff
}

/// What endpoints made on an HCA is gone when they are closed, whether new ones follow or they are
/// opened again, and so is what one made that could not be opened: the next objects get the first places.
#[test]
fn endpoints_leave_nothing_on_their_hca() {
    const LIVES: u32 = 40;
    let kinds: [fn(&mut EndpointConfig); 3] = [
        |_| {},
        |config| config.atomics = Atomics::Owner,
        |config| config.transport = Transport::Xrc { domain: None },
    ];
    let hcas = [1, 2].map(|seed| Arc::new(SoftHca::open(&SoftConfig::loopback(seed)).unwrap()));
    let first = hcas.each_ref().map(|hca| {
        let cq = hca.create_cq(1).unwrap();
        hca.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap()
    });
    let mut segments = [vec![0u64; 64], vec![0u64; 64]];
    let mut expected = 0;
    for kind in kinds.into_iter().chain(kinds) {
        let pes = [0u32, 1].map(|pe| {
            let mut config = EndpointConfig {
                pe,
                n_pes: 2,
                ..EndpointConfig::default()
            };
            kind(&mut config);
            Endpoint::new(Arc::clone(&hcas[pe as usize]), config).unwrap()
        });
        for life in 0..LIVES {
            if life > 0 {
                for (pe, seed) in pes.iter().zip([5, 6]) {
                    pe.reopen(life, seed + u64::from(life)).unwrap();
                }
            }
            let address = |pe: &Arc<Endpoint<_>>| Some(Lookup::Ready(pe.ud_address()));
            let table = Arc::new(AddressTable::default());
            *table.0.lock().unwrap() = pes.iter().map(address).collect();
            for (pe, segment) in pes.iter().zip(&mut segments) {
                // SAFETY: the segments outlive the endpoints, and are looked at when they are closed.
                unsafe { pe.register(segment.as_mut_ptr().cast(), 512).unwrap() };
                pe.set_directory(Arc::clone(&table) as Arc<_>);
            }
            std::thread::scope(|scope| {
                for (pe, to) in pes.iter().zip([1, 0]) {
                    scope.spawn(move || {
                        pe.fetch_add(to, 8, 1).unwrap();
                        pe.close();
                    });
                }
            });
            assert!(!pes[0].progress(), "it is closed");
            expected += 1;
            assert_eq!(segments.each_ref().map(|s| s[1]), [expected; 2]);
        }
    }
    // The domain is no file.
    let file = std::fs::File::open("/dev/null").unwrap();
    let refused = EndpointConfig {
        transport: Transport::Xrc {
            domain: Some(Arc::new(file.into())),
        },
        ..EndpointConfig::default()
    };
    for _ in 0..LIVES {
        Endpoint::new(Arc::clone(&hcas[0]), refused.clone()).unwrap_err();
    }
    for (hca, first) in hcas.iter().zip(first) {
        // Places rest for a while.
        let cq = hca.create_cq(1).unwrap();
        assert!(place(cq.0) < 32, "{cq:?}");
        let qp = hca.create_qp(&QpInit::new(QpType::Rc, cq)).unwrap();
        assert!(place(qp.0 ^ first.0) < 32, "{first:?} {qp:?}");
        let srq = hca.create_srq(&SrqInit {
            max_wr: 1,
            max_sge: 1,
            kind: SrqKind::Basic,
        });
        let srq = srq.unwrap();
        assert!(place(srq.0) < 32, "{srq:?}");
        let xrcd = hca.open_xrcd(None).unwrap();
        assert!(place(xrcd.0) < 32, "{xrcd:?}");
    }
}
