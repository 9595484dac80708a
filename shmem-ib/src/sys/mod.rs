//! RDMA devices through libibverbs. The only place with foreign functions of it.
//!
//! # Map
//! * [`devices`]: what there is ([`DeviceInfo`]), for choosing.
//! * `library`: libibverbs, loaded when it is first needed.
//! * `context`: an open device and its protection domain.
//! * `error`: what went wrong, and what to do.

mod context;
mod device;
mod discover;
mod error;
mod library;

pub use device::{
    Atomics, DeviceCaps, DeviceGid, DeviceInfo, DevicePort, GidKind, LinkLayer, Odp, OdpOps,
    PortState,
};
pub use discover::{FoundDevice, devices};
pub use error::SysError;
