//! The UD queue pair of an endpoint: takes and sends connection messages.

use crate::UdAddress;
use crate::endpoint::buffers::Registered;
use crate::endpoint::error::ConnError;
use crate::endpoint::wr_id::Whose;
use crate::message::MAX_LEN;
use shmem_verbs::rng::Rng;
use shmem_verbs::{
    Completion, Cq, GRH_LEN, Hca, Psn, Qkey, QpAttr, QpInit, QpType, RecvWr, SendOp, SendWr, Sge,
    VerbsError,
};

/// Datagrams that may be on their way out; more are dropped, and repeated later.
pub(crate) const SEND_SLOTS: u32 = 16;
/// Bytes of one receive buffer.
const RECV_LEN: usize = (GRH_LEN + MAX_LEN).next_multiple_of(64);

/// A UD queue pair with its buffers.
#[derive(Debug)]
pub(crate) struct UdPort {
    pub(crate) address: UdAddress,
    buffers: Registered,
    receives: u32,
    max_inline: usize,
    free_sends: Vec<u32>,
    /// Messages dropped because too many were on their way.
    pub(crate) dropped: u64,
}

impl UdPort {
    /// Creates the queue pair, ready to send, and to take so many datagrams at once.
    pub(crate) fn new<H: Hca>(
        hca: &H,
        cq: Cq,
        receives: u32,
        rng: &mut Rng,
    ) -> Result<Self, ConnError> {
        let port = hca.port();
        let max_inline = port.max_inline.min(MAX_LEN as u32);
        let init = QpInit {
            max_send_wr: SEND_SLOTS,
            max_recv_wr: receives,
            max_inline,
            ..QpInit::new(QpType::Ud, cq)
        };
        // Bit 31 stays clear: keys with it are privileged.
        let qkey = Qkey(rng.next_u32() >> 1);
        let qpn = hca
            .create_qp(&init)
            .map_err(ConnError::verbs("create the UD queue pair"))?;
        let attrs = QpAttr::of_ud(qkey, Psn::new(rng.next_u32()));
        let start = || {
            for attr in &attrs {
                hca.modify_qp(qpn, attr)
                    .map_err(ConnError::verbs("start the UD queue pair"))?;
            }
            let len = receives as usize * RECV_LEN + SEND_SLOTS as usize * MAX_LEN;
            Registered::new(hca, len).map_err(ConnError::verbs("register datagram buffers"))
        };
        let buffers = start().inspect_err(|_| {
            let _ = hca.destroy_qp(qpn);
        })?;
        let address = UdAddress {
            gid: port.av.gid,
            udp_port: port.av.udp_port,
            qpn,
            qkey,
        };
        let this = Self {
            address,
            buffers,
            receives,
            max_inline: max_inline as usize,
            free_sends: (0..SEND_SLOTS).collect(),
            dropped: 0,
        };
        for slot in 0..receives {
            if let Err(e) = this.post_receive(hca, slot) {
                this.release(hca);
                return Err(ConnError::verbs("post receives")(e));
            }
        }
        Ok(this)
    }

    /// Lends a receive buffer to the HCA (again).
    pub(crate) fn post_receive<H: Hca>(&self, hca: &H, slot: u32) -> Result<(), VerbsError> {
        let sge = self.buffers.sge(slot as usize * RECV_LEN, RECV_LEN);
        // SAFETY: the buffer lives until `release`, which first destroys the queue pair, and is
        // read only between a completion and the next post of the same slot.
        unsafe {
            hca.post_recv(
                self.address.qpn,
                &RecvWr {
                    wr_id: Whose::Received(slot).to_wr_id(),
                    sges: &[sge],
                },
            )
        }
    }

    /// Copies out the datagram that a receive completion announces.
    pub(crate) fn received(&self, slot: u32, completion: &Completion) -> ([u8; MAX_LEN], usize) {
        let mut bytes = [0; MAX_LEN];
        let len = (completion.byte_len as usize)
            .saturating_sub(GRH_LEN)
            .min(MAX_LEN);
        let from = self.buffers.at(slot as usize * RECV_LEN + GRH_LEN);
        // SAFETY: the slot has room for the header and MAX_LEN bytes, and the HCA has given it
        // back.
        unsafe { std::ptr::copy_nonoverlapping(from, bytes.as_mut_ptr(), len) };
        (bytes, len)
    }

    /// Sends a datagram, or drops it if too many are on their way.
    pub(crate) fn send<H: Hca>(&mut self, hca: &H, to: &UdAddress, bytes: &[u8]) {
        let Some(slot) = self.free_sends.pop() else {
            self.dropped += 1;
            return;
        };
        let at = self.receives as usize * RECV_LEN + slot as usize * MAX_LEN;
        let inline = bytes.len() <= self.max_inline;
        let sge = if inline {
            Sge::default()
        } else {
            self.buffers.sge(at, bytes.len())
        };
        if !inline {
            // SAFETY: the slot is free, so the HCA does not use it, and MAX_LEN bytes long.
            unsafe {
                let target = self.buffers.at(at);
                std::ptr::copy_nonoverlapping(bytes.as_ptr(), target, bytes.len());
            }
        }
        let op = SendOp::UdSend {
            av: to.av(),
            qpn: to.qpn,
            qkey: to.qkey,
            imm: None,
        };
        let sges = [sge];
        let wr = SendWr {
            inline: inline.then_some(bytes),
            ..SendWr::new(Whose::Sent(slot).to_wr_id(), op, &sges)
        };
        // SAFETY: the slot is not reused before the completion, and lives until `release`.
        if unsafe { hca.post_send(self.address.qpn, &wr) }.is_err() {
            self.free_sends.push(slot);
            self.dropped += 1;
        }
    }

    /// A send has completed.
    pub(crate) fn sent(&mut self, slot: u32) {
        self.free_sends.push(slot);
    }

    /// Whether every datagram is out.
    pub(crate) fn is_idle(&self) -> bool {
        self.free_sends.len() == SEND_SLOTS as usize
    }

    /// Destroys the queue pair and frees the buffers.
    pub(crate) fn release<H: Hca>(self, hca: &H) {
        if hca.destroy_qp(self.address.qpn).is_ok() {
            self.buffers.release(hca);
        }
    }
}
