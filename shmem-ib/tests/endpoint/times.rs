//! What an endpoint tells its queue pairs of times and retries: heard by a device that passes all of it on to a
//! software HCA.

use std::os::fd::BorrowedFd;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use shmem_ib::connect::endpoint::{Atomics, EndpointConfig};
use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, Completion, Counters, Cq, Failure, Hca, Mr, PortInfo, QpAttr, QpInit, QpType, Qpn,
    RecvWr, SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake, Xrcd,
};
use shmem_ib_kit::job::{Job, Plain};

/// What queue pairs were told, by the kind of each.
type Told = Arc<Mutex<Vec<(QpType, QpAttr)>>>;

struct Listener {
    hca: SoftHca,
    kinds: Mutex<Vec<(Qpn, QpType)>>,
    told: Told,
}

macro_rules! pass_on {
    (
        safe { $( fn $name:ident(&self $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?; )* }
        unsafe { $( fn $uname:ident(&self $(, $uarg:ident: $uty:ty)*) -> $uret:ty; )* }
    ) => {
        impl Hca for Listener {
            fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
                let qpn = self.hca.create_qp(init)?;
                self.kinds.lock().unwrap().push((qpn, init.ty));
                Ok(qpn)
            }
            fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
                let kinds = self.kinds.lock().unwrap();
                let kind = kinds.iter().rev().find(|(qpn, _)| *qpn == qp).unwrap().1;
                self.told.lock().unwrap().push((kind, *attr));
                self.hca.modify_qp(qp, attr)
            }
            $( fn $name(&self $(, $arg: $ty)*) $(-> $ret)? { self.hca.$name($($arg),*) } )*
            $( unsafe fn $uname(&self $(, $uarg: $uty)*) -> $uret {
                // SAFETY: the caller keeps the contract, which is the same.
                unsafe { self.hca.$uname($($uarg),*) }
            } )*
        }
    };
}

pass_on! {
    safe {
        fn port(&self) -> PortInfo;
        fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError>;
        fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError>;
        fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError>;
        fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError>;
        fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError>;
        fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError>;
        fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError>;
        fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError>;
        fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError>;
        fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize;
        fn failure(&self) -> Option<&Failure>;
        fn wait(&self, max: Duration) -> Wake;
        fn set_alarm(&self, after: Option<Duration>);
        fn wake(&self);
        fn wakes(&self) -> u64;
        fn wait_since(&self, wakes: u64, max: Duration) -> Wake;
        fn inbound_mark(&self, qp: Qpn) -> Option<u32>;
        fn counters(&self) -> Counters;
        fn inbound(&self) -> u64;
    }
    unsafe {
        fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError>;
        fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError>;
        fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError>;
        fn post_send_list(&self, qp: Qpn, wrs: &[SendWr<'_>]) -> Result<(), (usize, VerbsError)>;
        fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError>;
    }
}

/// Has two PEs connect, and gives what their connected queue pairs were told: of RTS timeout, retries and RNR
/// retries, of RTR the RNR timer.
fn connected(change: impl Fn(&mut EndpointConfig)) -> (Vec<[u8; 3]>, Vec<u8>) {
    let told = Told::default();
    let job = Job::on(2, |number, config| {
        change(config);
        Listener {
            hca: SoftHca::open(&SoftConfig::loopback(u64::from(number) + 1000)).unwrap(),
            kinds: Mutex::default(),
            told: Arc::clone(&told),
        }
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
