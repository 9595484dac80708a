//! Datagrams: one packet each, no acknowledgement, no second try.

#![forbid(unsafe_code)]

use super::machine::Engine;
use crate::engine::tx::{Sent, Transmit};
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::qp::Service;
use crate::queues::receive::Received;
use crate::queues::send::Payload;
use crate::queues::shared::Receives;
use crate::wire::{Bth, Deth, Ext, Flow, Header, Opcode, Packet};
use shmem_verbs::{AddressVector, Completion, GRH_LEN, Gid, QpState, Qpn, SendOp, WcStatus};

/// Bytes of a UDP header.
const UDP_LEN: usize = 8;

impl<M: Memory> Engine<M> {
    pub(crate) fn transmit_ud(&mut self, qpn: Qpn, buf: &mut [u8]) -> Sent {
        let (src, pkey) = (self.port.av, self.port.lane.pkey.0);
        let Some(qp) = self.qps.get_mut(qpn.0).filter(|q| q.state == QpState::Rts) else {
            return Sent::Nothing;
        };
        let Service::Ud(ud) = &mut qp.service else {
            return Sent::Nothing;
        };
        let Some(wqe) = ud.sq.pop_front() else {
            return Sent::Nothing;
        };
        let SendOp::UdSend {
            av,
            qpn: dest_qp,
            qkey,
            imm,
        } = wqe.op
        else {
            return Sent::Nothing;
        };
        let deth = Deth { qkey, src_qp: qpn };
        let (opcode, ext) = match imm {
            None => (Opcode::UdSendOnly, Ext::Deth(deth)),
            Some(imm) => (Opcode::UdSendOnlyImm, Ext::DethImm(deth, imm)),
        };
        let bth = Bth {
            pkey,
            ..Bth::new(opcode, dest_qp, ud.psn, false)
        };
        let header = Header { bth, ext };
        let len = wqe.len as usize;
        let at = header.encode(buf, len);
        let out = &mut buf[at..at + len];
        match wqe.payload(0, wqe.len) {
            Payload::None => {}
            Payload::Inline(data) => out.copy_from_slice(data),
            Payload::Gather { sges, .. } => {
                if sge::gather(&self.mrs, &mut self.memory, sges, 0, out).is_err() {
                    self.done.push(wqe.done(WcStatus::LocProtErr));
                    return Sent::SendFailed;
                }
            }
        }
        ud.psn = ud.psn.add(1);
        if wqe.signaled {
            ud.unreported = 0;
            self.done.push(wqe.done(WcStatus::Success));
            self.report(qpn);
        } else {
            ud.unreported += 1;
        }
        Sent::Packet(Transmit {
            dst: av,
            len: header.seal(buf, len, &Flow { src, dst: av }),
            ends_burst: false,
            lent: None,
        })
    }

    /// Takes a datagram; returns whether it was delivered.
    pub(crate) fn handle_ud(&mut self, src: AddressVector, packet: &Packet<'_>) -> bool {
        let qpn = packet.bth.dest_qp;
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return false;
        };
        let Service::Ud(ud) = &qp.service else {
            return false;
        };
        let (deth, imm) = match &packet.ext {
            Ext::Deth(deth) => (deth, None),
            Ext::DethImm(deth, imm) => (deth, Some(*imm)),
            _ => return false,
        };
        let hears = matches!(qp.state, QpState::Rtr | QpState::Rts | QpState::Sqe);
        if !hears || deth.qkey != ud.qkey {
            return false;
        }
        let srq = qp.init.srq;
        let mut receives = Receives {
            own: &mut qp.rq,
            shared: srq.and_then(|srq| self.srqs.get_mut(srq)),
        };
        let byte_len = GRH_LEN + packet.payload.len();
        // A datagram without a receive, or too long for it, vanishes; the receive stays.
        if receives
            .front()
            .is_none_or(|wqe| wqe.capacity() < byte_len as u64)
        {
            return false;
        }
        let Some(wqe) = receives.take() else {
            return false;
        };
        let packet_len = packet.header().packet_len(packet.payload.len());
        let grh = grh(src.gid, self.port.av.gid, UDP_LEN + packet_len);
        let (mrs, memory) = (&self.mrs, &mut self.memory);
        let stored = sge::scatter(mrs, memory, &wqe.sges, 0, &grh)
            .and_then(|()| sge::scatter(mrs, memory, &wqe.sges, GRH_LEN as u32, packet.payload));
        let status = match stored {
            Ok(()) => WcStatus::Success,
            Err(_) => WcStatus::LocProtErr,
        };
        self.counters.ud_received += 1;
        let recv_cq = qp.init.recv_cq;
        let completion = Completion {
            byte_len: byte_len as u32,
            src: Some((src, deth.src_qp)),
            imm,
            ..Received::new(wqe.wr_id, status).completion(qpn)
        };
        self.complete(recv_cq, completion);
        if status != WcStatus::Success {
            self.fail_qp(qpn);
        }
        true
    }
}

/// The 40 bytes in front of a received datagram: an IPv6 header, or with IPv4 twenty undefined
/// bytes (here zero) and then the IPv4 header. What a socket program does not see of the header
/// (type of service, identification, time to live on arrival) is as a sender without routers between
/// would have it.
fn grh(src: Gid, dst: Gid, datagram_len: usize) -> [u8; GRH_LEN] {
    const HOPS: u8 = 64;
    const UDP: u8 = 17;
    let mut grh = [0; GRH_LEN];
    match (src.ip(), dst.ip()) {
        (std::net::IpAddr::V4(s), std::net::IpAddr::V4(d)) => {
            let ip = &mut grh[20..];
            ip[0] = 0x45;
            ip[2..4].copy_from_slice(&(datagram_len as u16 + 20).to_be_bytes());
            ip[6] = 0x40;
            ip[8] = HOPS;
            ip[9] = UDP;
            ip[12..16].copy_from_slice(&s.octets());
            ip[16..20].copy_from_slice(&d.octets());
            let sum = ip.chunks_exact(2).fold(0, |sum, w| {
                sum + u32::from(u16::from_be_bytes([w[0], w[1]]))
            });
            let sum = (sum & 0xffff) + (sum >> 16);
            let sum = (sum & 0xffff) + (sum >> 16);
            ip[10..12].copy_from_slice(&(!sum as u16).to_be_bytes());
        }
        _ => {
            grh[0] = 0x60;
            grh[4..6].copy_from_slice(&(datagram_len as u16).to_be_bytes());
            grh[6] = UDP;
            grh[7] = HOPS;
            grh[8..24].copy_from_slice(&src.0);
            grh[24..40].copy_from_slice(&dst.0);
        }
    }
    grh
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::IpAddr;

    fn gid(text: &str) -> Gid {
        Gid::from(text.parse::<IpAddr>().unwrap())
    }

    #[test]
    fn the_header_of_a_datagram_says_whence_it_came() {
        let grh4 = grh(gid("10.0.0.1"), gid("10.0.0.2"), 100);
        assert_eq!(grh4[..20], [0; 20]);
        let ip = &grh4[20..];
        assert_eq!(ip[..4], [0x45, 0, 0, 120]);
        assert_eq!(ip[12..], [10, 0, 0, 1, 10, 0, 0, 2]);
        let sum: u32 = ip
            .chunks(2)
            .map(|w| u32::from(u16::from_be_bytes([w[0], w[1]])))
            .sum();
        assert_eq!((sum & 0xffff) + (sum >> 16), 0xffff, "checksum");
        let grh6 = grh(gid("fd00::1"), gid("fd00::2"), 100);
        assert_eq!(grh6[..8], [0x60, 0, 0, 0, 0, 100, 17, 64]);
        assert_eq!(grh6[8..24], gid("fd00::1").0);
        assert_eq!(grh6[24..], gid("fd00::2").0);
    }
}
