//! A device that passes everything on to a software HCA, past somebody who looks at it or refuses it.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use shmem_ib::soft::{SoftConfig, SoftHca};
use shmem_ib::verbs::{
    Access, Completion, Counters, Cq, Failure, Hca, Mr, PortInfo, QpAttr, QpInit, Qpn, RecvWr,
    SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake, Xrcd,
};

/// Who is between an endpoint and its HCA.
pub(crate) trait Between: Send + Sync + 'static {
    /// A queue pair is there.
    fn created(&self, _: Qpn, _: &QpInit) {}
    /// A queue pair is told this.
    fn modifies(&self, _: Qpn, _: &QpAttr) {}
    /// A request is posted, unless it is refused.
    fn posts(&self, _: Qpn, _: &SendWr<'_>) -> Result<(), VerbsError> {
        Ok(())
    }
    /// These were taken from a completion queue.
    fn polled(&self, _: &[Completion]) {}
    /// A thread that waits for something is about to sleep.
    fn sleeps(&self) {}
    /// It has slept, and this ended its sleep.
    fn slept(&self, _: Wake) {}
}

/// The device.
pub(crate) struct Through<B> {
    hca: SoftHca,
    between: B,
}

impl<B> Through<B> {
    /// That of a PE.
    pub(crate) fn new(number: u32, between: B) -> Self {
        let config = SoftConfig::loopback(u64::from(number) + 1000);
        let hca = SoftHca::open(&config).unwrap();
        Self { hca, between }
    }
}

macro_rules! pass_on {
    (
        safe { $( fn $name:ident(&self $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?; )* }
        unsafe { $( fn $uname:ident(&self $(, $uarg:ident: $uty:ty)*) -> $uret:ty; )* }
    ) => {
        impl<B: Between> Hca for Through<B> {
            fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError> {
                let qpn = self.hca.create_qp(init)?;
                self.between.created(qpn, init);
                Ok(qpn)
            }
            fn modify_qp(&self, qpn: Qpn, attr: &QpAttr) -> Result<(), VerbsError> {
                self.between.modifies(qpn, attr);
                self.hca.modify_qp(qpn, attr)
            }
            fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize {
                let n = self.hca.poll_cq(cq, out);
                self.between.polled(&out[..n]);
                n
            }
            fn wait_since(&self, wakes: u64, max: Duration) -> Wake {
                self.between.sleeps();
                let wake = self.hca.wait_since(wakes, max);
                self.between.slept(wake);
                wake
            }
            unsafe fn post_send(&self, qpn: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError> {
                self.between.posts(qpn, wr)?;
                // SAFETY: the caller keeps the contract, which is the same.
                unsafe { self.hca.post_send(qpn, wr) }
            }
            unsafe fn post_send_list(
                &self,
                qpn: Qpn,
                wrs: &[SendWr<'_>],
            ) -> Result<(), (usize, VerbsError)> {
                for (i, wr) in wrs.iter().enumerate() {
                    // SAFETY: as above.
                    unsafe { self.post_send(qpn, wr) }.map_err(|e| (i, e))?;
                }
                Ok(())
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
        fn set_key(&self, key: [u8; 16]);
        fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError>;
        fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError>;
        fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError>;
        fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError>;
        fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError>;
        fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError>;
        fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError>;
        fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError>;
        fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError>;
        fn failure(&self) -> Option<&Failure>;
        fn wait(&self, max: Duration) -> Wake;
        fn set_alarm(&self, after: Option<Duration>);
        fn wake(&self);
        fn wakes(&self) -> u64;
        fn inbound_mark(&self, qp: Qpn) -> Option<u32>;
        fn counters(&self) -> Counters;
        fn inbound(&self) -> u64;
    }
    unsafe {
        fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError>;
        fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError>;
        fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError>;
    }
}
