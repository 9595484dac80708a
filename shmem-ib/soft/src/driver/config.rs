//! How a software HCA is to be.

#![forbid(unsafe_code)]

use std::net::IpAddr;

use shmem_verbs::{Lane, Mtu};

use super::faults::Faults;
use crate::xrc::SharedWindow;

/// Usual [`SoftConfig::receive_buffer`]: as much as the system allows. It takes memory only when used.
const RECEIVE_BUFFER: u32 = 64 << 20;

/// How a software HCA is to be.
#[derive(Clone, Copy, Debug)]
pub struct SoftConfig {
    /// Address to bind to, and by which peers find this port. Not the unspecified one.
    pub bind: IpAddr,
    /// UDP ports, from the first to the last, of which to bind one that is free; 0 and 0: any. 4791 is
    /// the one of RoCEv2.
    pub ports: (u16, u16),
    /// Payload per packet: [`Mtu::M1024`] on Ethernet; on the loopback [`Mtu::M4096`], or [`Mtu::M61440`] if no peer is of
    /// another make.
    pub mtu: Mtu,
    /// How packets are marked. Service levels mean nothing to sockets.
    pub lane: Lane,
    /// Whether peers may be RoCEv2 devices of other makes. Then each packet is sent as a datagram
    /// of its own, and a packet is taken from any UDP port of its sender and with any IPv4
    /// identification ([`crate::wire::icrc::solve_ip_id`] says what that costs). All ports in use
    /// have to be the same, usually 4791.
    pub interop: bool,
    /// Memory that all processes of the XRC domains opened here share, if there is any: see
    /// [`crate::xrc`].
    pub shared: Option<SharedWindow>,
    /// Tells nothing of what peers do to the memory, as RDMA devices do not: for tests of those who
    /// have to look for themselves then. See [`notices_inbound`](shmem_verbs::PortInfo::notices_inbound).
    pub silent: bool,
    /// Bytes of received packets that the kernel keeps for this port, unless the system allows less
    /// (`net.core.rmem_max`).
    pub receive_buffer: u32,
    /// Tells peers how much each may send when many do. It costs system calls instead of losses, and pays
    /// where all of them run at the same time: not where processes outnumber cores, and take turns.
    pub shares: bool,
    /// Bytes from which a WRITE or READ goes by a stream (TCP) instead of by datagrams, if the peer's HCA has streams, too; `None`:
    /// never. For paths that are no loopback: not with [`Mtu::M61440`], nor with `interop`, whatever this says.
    pub stream: Option<u32>,
    /// Packets to mistreat, for tests.
    pub faults: Faults,
    /// Decides jitter, and which of the ports is tried first. Keys and queue pair numbers are random numbers of the system.
    pub seed: u64,
}

impl SoftConfig {
    /// A port on the loopback, without faults.
    #[must_use]
    pub fn loopback(seed: u64) -> Self {
        Self {
            bind: IpAddr::V4(std::net::Ipv4Addr::LOCALHOST),
            ports: (0, 0),
            mtu: Mtu::M4096,
            lane: Lane::default(),
            interop: false,
            shared: None,
            silent: false,
            receive_buffer: RECEIVE_BUFFER,
            shares: true,
            stream: None,
            faults: Faults::default(),
            seed,
        }
    }
}
