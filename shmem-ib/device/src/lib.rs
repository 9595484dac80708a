//! The device of a process, which is known only when it runs: the software HCA, or a port of an
//! RDMA device.
//!
//! [`Device`] is an [`Hca`] that is one or the other, so that one endpoint of connections serves both.

pub mod abilities;
pub mod choice;
#[cfg(test)]
mod choice_tests;
pub mod hardware;
pub mod ibv;
pub mod inspect;
pub mod memlock;
mod networks;
mod open;
mod options;
mod order;
#[cfg(test)]
mod order_tests;
pub mod quirks;
pub mod seat;
pub mod sysfs;

pub use open::{OpenError, Opened, Request, open};
pub use options::{VerbsConfig, VerbsOptions};

use std::os::fd::BorrowedFd;
use std::time::Duration;

use crate::ibv::VerbsHca;
use shmem_soft::{SoftConfig, SoftHca};
use shmem_verbs::{
    Access, Completion, Counters, Cq, Fabric, Failure, Hca, Mr, PortInfo, QpAttr, QpInit, Qpn,
    RecvWr, SendWr, Srq, SrqInit, SrqNum, VerbsError, Wake, Xrcd,
};

/// An [`Hca`] of whatever kind.
#[derive(Debug)]
#[allow(
    clippy::large_enum_variant,
    reason = "a process has one, and reaches it without a pointer more"
)]
pub enum Device {
    /// The software HCA, which is always there.
    Soft(SoftHca),
    /// A port of an RDMA device.
    Verbs(VerbsHca),
}

impl Device {
    /// Another HCA at the same port, which shares no lock and no queue with this one: a software HCA as `soft`
    /// says, or on a device more of its queues.
    ///
    /// # Errors
    /// There is no port, descriptor or queue left for it.
    pub fn beside(&self, soft: &SoftConfig) -> Result<Self, BesideError> {
        match self {
            Self::Soft(_) => Ok(Self::Soft(SoftHca::open(soft)?)),
            Self::Verbs(hca) => Ok(Self::Verbs(hca.beside()?)),
        }
    }
}

/// Why there is no more than one HCA at a port.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BesideError {
    /// The software HCA does not open.
    #[error(transparent)]
    Soft(#[from] VerbsError),
    /// The device refuses.
    #[error(transparent)]
    Verbs(#[from] ibv::SysError),
}

/// Implements [`Hca`] by calls to the device that is there. They are always inlined: an operation
/// costs one predictable branch more at most, and no call.
macro_rules! delegate {
    (
        safe { $( fn $name:ident(&self $(, $arg:ident: $ty:ty)*) $(-> $ret:ty)?; )* }
        unsafe { $( fn $uname:ident(&self $(, $uarg:ident: $uty:ty)*) -> $uret:ty; )* }
    ) => {
        impl Hca for Device {
            fn shares_memory(&self, other: &Self) -> bool {
                match (self, other) {
                    (Self::Verbs(hca), Self::Verbs(other)) => hca.shares_memory(other),
                    _ => false,
                }
            }

            $(
                #[inline(always)]
                fn $name(&self $(, $arg: $ty)*) $(-> $ret)? {
                    match self {
                        Self::Soft(hca) => hca.$name($($arg),*),
                        Self::Verbs(hca) => hca.$name($($arg),*),
                    }
                }
            )*
            $(
                #[inline(always)]
                unsafe fn $uname(&self $(, $uarg: $uty)*) -> $uret {
                    match self {
                        // SAFETY: the caller keeps the contract, which is the same.
                        Self::Soft(hca) => unsafe { hca.$uname($($uarg),*) },
                        // SAFETY: as above.
                        Self::Verbs(hca) => unsafe { hca.$uname($($uarg),*) },
                    }
                }
            )*
        }
    };
}

delegate! {
    safe {
        fn port(&self) -> PortInfo;
        fn fabric(&self) -> Fabric;
        fn set_key(&self, key: [u8; 16]);
        fn dereg_mr(&self, mr: &Mr) -> Result<(), VerbsError>;
        fn create_cq(&self, depth: u32) -> Result<Cq, VerbsError>;
        fn destroy_cq(&self, cq: Cq) -> Result<(), VerbsError>;
        fn create_srq(&self, init: &SrqInit) -> Result<Srq, VerbsError>;
        fn srq_num(&self, srq: Srq) -> Result<SrqNum, VerbsError>;
        fn destroy_srq(&self, srq: Srq) -> Result<(), VerbsError>;
        fn open_xrcd(&self, domain: Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError>;
        fn close_xrcd(&self, xrcd: Xrcd) -> Result<(), VerbsError>;
        fn create_qp(&self, init: &QpInit) -> Result<Qpn, VerbsError>;
        fn modify_qp(&self, qp: Qpn, attr: &QpAttr) -> Result<(), VerbsError>;
        fn destroy_qp(&self, qp: Qpn) -> Result<(), VerbsError>;
        fn poll_cq(&self, cq: Cq, out: &mut [Completion]) -> usize;
        fn wait(&self, max: Duration) -> Wake;
        fn set_alarm(&self, after: Option<Duration>);
        fn wake(&self);
        fn wakes(&self) -> u64;
        fn wait_since(&self, wakes: u64, max: Duration) -> Wake;
        fn inbound_mark(&self, qp: Qpn) -> Option<u32>;
        fn counters(&self) -> Counters;
        fn inbound(&self) -> u64;
        fn failure(&self) -> Option<&Failure>;
    }
    unsafe {
        fn reg_mr(&self, addr: *mut u8, len: usize, access: Access) -> Result<Mr, VerbsError>;
        fn post_srq_recv(&self, srq: Srq, wr: &RecvWr<'_>) -> Result<(), VerbsError>;
        fn post_send(&self, qp: Qpn, wr: &SendWr<'_>) -> Result<(), VerbsError>;
        fn post_send_list(&self, qp: Qpn, wrs: &[SendWr<'_>]) -> Result<(), (usize, VerbsError)>;
        fn post_recv(&self, qp: Qpn, wr: &RecvWr<'_>) -> Result<(), VerbsError>;
    }
}
