//! How packets are marked: seen by a plain socket, which is told the traffic class by the kernel, and in what
//! is taken of packets that a plain socket sends.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::time::{Duration, Instant};

use super::{SoftConfig, SoftHca};
use crate::wire::{Bth, Deth, Ext, Flow, Header, Opcode, PACKET_MAX, Packet};
use shmem_verbs::{
    Access, AddressVector, Completion, Cq, GRH_LEN, Hca, Lane, Pkey, Psn, Qkey, QpAttr, QpInit,
    QpType, Qpn, RecvWr, SendOp, SendWr, Sge, WcStatus,
};

const QKEY: Qkey = Qkey(0x0123_4567);
/// Whatever takes as long is taken for a hang.
const HANG: Duration = Duration::from_secs(60);

/// An HCA with a UD queue pair that has some receives.
struct Hearer {
    hca: SoftHca,
    cq: Cq,
    qpn: Qpn,
}

impl Hearer {
    fn new(bind: IpAddr, lane: Lane) -> Self {
        let hca = SoftHca::open(&SoftConfig {
            bind,
            lane,
            ..SoftConfig::loopback(1)
        });
        let hca = hca.expect("a socket");
        let cq = hca.create_cq(64).expect("a completion queue");
        let init = QpInit {
            max_recv_wr: 8,
            ..QpInit::new(QpType::Ud, cq)
        };
        let qpn = hca.create_qp(&init).expect("a queue pair");
        for attr in QpAttr::of_ud(QKEY, Psn::new(3)) {
            hca.modify_qp(qpn, &attr).expect("its next state");
        }
        let memory: &'static mut [u8] = Box::leak(vec![0; 8 * 64].into_boxed_slice());
        let access = Access::LOCAL_WRITE;
        // SAFETY: it is never freed, and nobody else accesses it.
        let mr = unsafe { hca.reg_mr(memory.as_mut_ptr(), memory.len(), access) };
        let mr = mr.expect("memory");
        for slot in 0..8 {
            let sges = [Sge {
                addr: mr.addr + slot * 64,
                len: 64,
                lkey: mr.lkey,
            }];
            let wr = RecvWr {
                wr_id: slot,
                sges: &sges,
            };
            // SAFETY: as above.
            unsafe { hca.post_recv(qpn, &wr) }.expect("a receive");
        }
        Self { hca, cq, qpn }
    }

    /// Sends a datagram of no bytes to a plain socket.
    fn send(&self, to: &UdpSocket) {
        let op = SendOp::UdSend {
            av: av(to),
            qpn: Qpn(7),
            qkey: QKEY,
            imm: None,
        };
        // SAFETY: there is no buffer.
        unsafe { self.hca.post_send(self.qpn, &SendWr::new(99, op, &[])) }.expect("it is sent");
    }

    /// Whether a datagram with this key is delivered.
    fn takes(&self, from: &UdpSocket, pkey: u16) -> bool {
        let header = Header {
            bth: Bth {
                pkey,
                ..Bth::new(Opcode::UdSendOnly, self.qpn, Psn::new(1), false)
            },
            ext: Ext::Deth(Deth {
                qkey: QKEY,
                src_qp: Qpn(7),
            }),
        };
        let dst = self.hca.port().av;
        let mut bytes = [0; PACKET_MAX];
        header.encode(&mut bytes, 0);
        let flow = Flow { src: av(from), dst };
        let len = header.seal(&mut bytes, 0, &flow);
        let before = self.hca.counters();
        let to = SocketAddr::new(dst.gid.ip(), dst.udp_port);
        from.send_to(&bytes[..len], to).expect("it is sent");
        let end = Instant::now() + HANG;
        let mut taken = false;
        while self.hca.counters().packets_received == before.packets_received {
            assert!(Instant::now() < end, "it does not come");
            let mut out = [Completion::EMPTY];
            if self.hca.poll_cq(self.cq, &mut out) > 0 {
                assert_eq!(out[0].status, WcStatus::Success);
                taken |= out[0].byte_len as usize == GRH_LEN;
            }
        }
        taken |= self.hca.poll_cq(self.cq, &mut [Completion::EMPTY]) > 0;
        let after = self.hca.counters();
        assert_eq!(after.dropped - before.dropped, u64::from(!taken));
        assert_eq!(after.icrc_errors, 0);
        taken
    }
}

fn av(socket: &UdpSocket) -> AddressVector {
    let address = socket.local_addr().expect("it is bound");
    AddressVector {
        gid: address.ip().into(),
        udp_port: address.port(),
    }
}

/// A socket that is told the traffic class of what it receives.
fn plain(bind: IpAddr) -> UdpSocket {
    let socket = UdpSocket::bind((bind, 0)).expect("a socket");
    socket.set_read_timeout(Some(HANG)).expect("a time");
    let (level, name) = match bind {
        IpAddr::V4(_) => (libc::IPPROTO_IP, libc::IP_RECVTOS),
        IpAddr::V6(_) => (libc::IPPROTO_IPV6, libc::IPV6_RECVTCLASS),
    };
    let (on, len) = (1_i32, size_of::<i32>() as libc::socklen_t);
    // SAFETY: `on` is an i32.
    let rc =
        unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, (&raw const on).cast(), len) };
    assert_eq!(rc, 0, "{}", io::Error::last_os_error());
    socket
}

/// Receives a datagram: its bytes, and its traffic class.
fn received(socket: &UdpSocket) -> (Vec<u8>, u8) {
    let (mut bytes, mut control) = (vec![0; PACKET_MAX], [0_u64; 16]);
    let mut iov = libc::iovec {
        iov_base: bytes.as_mut_ptr().cast(),
        iov_len: bytes.len(),
    };
    // SAFETY: all-zero bytes are a valid msghdr.
    let mut header: libc::msghdr = unsafe { std::mem::zeroed() };
    header.msg_iov = &raw mut iov;
    header.msg_iovlen = 1;
    header.msg_control = control.as_mut_ptr().cast();
    header.msg_controllen = size_of_val(&control) as _;
    // SAFETY: all that `header` points to is alive and of the length given.
    let len = unsafe { libc::recvmsg(socket.as_raw_fd(), &raw mut header, 0) };
    bytes.truncate(usize::try_from(len).expect("a datagram"));
    // SAFETY: the kernel wrote one message: a byte of IPv4, a number of IPv6, whose first byte it is on the
    // machines that this runs on.
    let class = unsafe {
        let first = libc::CMSG_FIRSTHDR(&raw const header);
        assert!(!first.is_null(), "the kernel tells the traffic class");
        match (*first).cmsg_level {
            libc::IPPROTO_IP => *libc::CMSG_DATA(first),
            _ => libc::CMSG_DATA(first).cast::<i32>().read_unaligned() as u8,
        }
    };
    (bytes, class)
}

#[test]
fn packets_carry_partition_and_traffic_class() {
    let lanes = [
        Lane::default(),
        Lane {
            pkey: Pkey(0x8001),
            traffic_class: 106,
            ..Lane::default()
        },
        Lane {
            pkey: Pkey(0x0012),
            traffic_class: 0xff,
            ..Lane::default()
        },
    ];
    for bind in [IpAddr::V4(Ipv4Addr::LOCALHOST), Ipv6Addr::LOCALHOST.into()] {
        if UdpSocket::bind((bind, 0)).is_err() {
            continue; // A machine without IPv6.
        }
        for lane in lanes {
            let (hearer, peer) = (Hearer::new(bind, lane), plain(bind));
            assert_eq!(hearer.hca.port().lane, lane);
            hearer.send(&peer);
            let (bytes, class) = received(&peer);
            let packet = Packet::decode(&bytes).expect("a packet");
            assert_eq!((packet.bth.pkey, class), (lane.pkey.0, lane.traffic_class));
        }
    }
}

#[test]
fn packets_of_other_partitions_are_dropped() {
    let bind = IpAddr::V4(Ipv4Addr::LOCALHOST);
    for (own, heard, others) in [
        (0xffff, vec![0xffff, 0x7fff], vec![0x8001, 0, 0x8000]),
        (0x8001, vec![0x8001, 1], vec![0xffff, 0x8002, 2]),
        // Limited members hear full ones only.
        (1, vec![0x8001], vec![1, 0xffff]),
    ] {
        let lane = Lane {
            pkey: Pkey(own),
            ..Lane::default()
        };
        let (hearer, peer) = (Hearer::new(bind, lane), plain(bind));
        for key in heard {
            assert!(hearer.takes(&peer, key), "{own:#x} takes {key:#x}");
        }
        for key in others {
            assert!(!hearer.takes(&peer, key), "{own:#x} does not take {key:#x}");
        }
    }
}
