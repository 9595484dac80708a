//! What an endpoint tells its queue pairs of times and retries.

use std::sync::{Arc, Mutex};

use shmem_ib::connect::endpoint::{Atomics, EndpointConfig};
use shmem_ib::verbs::{QpAttr, QpInit, QpType, Qpn};
use shmem_ib_kit::job::{Job, Plain};

use super::through::{Between, Through};

/// What queue pairs were told, by the kind of each.
type Told = Arc<Mutex<Vec<(QpType, QpAttr)>>>;

struct Listener {
    kinds: Mutex<Vec<(Qpn, QpType)>>,
    told: Told,
}

impl Between for Listener {
    fn created(&self, qpn: Qpn, init: &QpInit) {
        self.kinds.lock().unwrap().push((qpn, init.ty));
    }

    fn modifies(&self, qpn: Qpn, attr: &QpAttr) {
        let kinds = self.kinds.lock().unwrap();
        let kind = kinds.iter().rev().find(|(of, _)| *of == qpn).unwrap().1;
        self.told.lock().unwrap().push((kind, *attr));
    }
}

/// Has two PEs connect, and gives what their connected queue pairs were told: of RTS timeout, retries and RNR
/// retries, of RTR the RNR timer.
fn connected(change: impl Fn(&mut EndpointConfig)) -> (Vec<[u8; 3]>, Vec<u8>) {
    let told = Told::default();
    let job = Job::on(2, |number, config| {
        change(config);
        let listener = Listener {
            kinds: Mutex::default(),
            told: Arc::clone(&told),
        };
        Through::new(number, listener)
    });
    job.pes.iter().for_each(|pe| pe.register());
    job.pes[0].put_word(1, 0, 7);
    job.pes[0].endpoint.quiet().unwrap();
    assert_eq!(job.pes[1].word(0), 7);
    drop(job);
    let (mut sends, mut receives) = (Vec::new(), Vec::new());
    for (kind, attr) in told.lock().unwrap().iter() {
        match *attr {
            QpAttr::Rts {
                timeout,
                retry_cnt,
                rnr_retry,
                ..
            } if *kind == QpType::Rc => sends.push([timeout, retry_cnt, rnr_retry]),
            QpAttr::Rtr { dest: Some(dest) } => receives.push(dest.min_rnr_timer),
            _ => {}
        }
    }
    (sends, receives)
}

#[test]
fn times_and_retries_reach_queue_pairs() {
    let (sends, receives) = connected(|config| {
        config.atomics = Atomics::Owner;
        (config.rc_timeout, config.rc_retry) = (17, 3);
        (config.rnr_retry, config.rnr_timer) = (5, 21);
    });
    assert_eq!((sends, receives), (vec![[17, 3, 5]; 2], vec![21; 2]));
    // Nobody sends anything but writes, reads and atomics.
    let (sends, receives) = connected(|config| {
        config.atomics = Atomics::Hca;
        (config.rc_timeout, config.rnr_retry, config.rnr_timer) = (16, 5, 9);
    });
    let retries = EndpointConfig::default().rc_retry;
    assert_eq!((sends, receives), (vec![[16, retries, 0]; 2], vec![9; 2]));
}
