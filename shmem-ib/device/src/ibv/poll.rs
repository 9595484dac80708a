//! Polling, the other hot path, and the translation of completions.

use std::mem::MaybeUninit;
use std::sync::PoisonError;
use std::sync::atomic::Ordering;

use rdma_sys::{ibv_poll_cq, ibv_wc, ibv_wc_flags};

use super::hca::VerbsHca;
use super::map;
use super::objects::CqObject;
use shmem_verbs::{Completion, Cq, QpType, Qpn, WcOpcode, WcStatus};

/// Completions taken by one call of the driver.
const BATCH: usize = 16;
/// Polls without result after which a thread offers its core to the driver of an emulated device.
const EMPTY_POLLS: u32 = 4;

impl VerbsHca {
    /// See [`shmem_verbs::Hca::poll_cq`].
    #[inline]
    pub(super) fn poll(&self, cq: Cq, out: &mut [Completion]) -> usize {
        let Some(queue) = self.cqs.get(cq.0) else {
            return 0;
        };
        let mut n = 0;
        if !queue.stash.is_empty() {
            n = queue.stash.take(out);
        }
        n += self.take_from_device(&queue, &mut out[n..]);
        drop(queue);
        if self.port.told.emulated {
            self.give_way(n > 0);
        }
        n
    }

    /// The driver of an emulated device works on the cores that pollers would keep for themselves.
    fn give_way(&self, busy: bool) {
        let empty = &self.found.empty;
        if busy {
            empty.store(0, Ordering::Relaxed);
        } else if empty.fetch_add(1, Ordering::Relaxed) >= EMPTY_POLLS {
            std::thread::yield_now();
        }
    }

    /// Takes what the device has, as far as there is room.
    pub(super) fn take_from_device(&self, queue: &CqObject, out: &mut [Completion]) -> usize {
        // Relaxed: it is set before the number of a UD queue pair is known to anybody.
        let datagrams = queue.datagrams.load(Ordering::Relaxed);
        let in_order = || {
            queue
                .in_order
                .lock()
                .unwrap_or_else(PoisonError::into_inner)
        };
        let _in_order = datagrams.then(in_order);
        let mut raw = [const { MaybeUninit::<ibv_wc>::uninit() }; BATCH];
        let mut n = 0;
        while n < out.len() {
            let most = (out.len() - n).min(BATCH);
            // SAFETY: the queue is open while the caller uses it, and there is room for so many.
            let got =
                unsafe { ibv_poll_cq(queue.raw(), most as i32, raw.as_mut_ptr().cast::<ibv_wc>()) };
            let got = match usize::try_from(got) {
                Ok(got) => got.min(most),
                Err(_) => {
                    self.queue_failed(got);
                    0
                }
            };
            for (slot, wc) in out[n..n + got].iter_mut().zip(&raw) {
                // SAFETY: the driver has filled in so many.
                *slot = self.completion(queue, unsafe { wc.assume_init_ref() });
            }
            n += got;
            if got < most {
                break;
            }
        }
        n
    }

    #[cold]
    fn queue_failed(&self, code: i32) {
        self.port.events.fail(format!(
            "a completion queue cannot be polled any more (ibv_poll_cq gave {code}): see the kernel's \
             log (`dmesg`)"
        ));
    }

    fn completion(&self, queue: &CqObject, wc: &ibv_wc) -> Completion {
        let mut completion = Completion {
            wr_id: wc.wr_id,
            status: map::wc_status(wc.status),
            qpn: Qpn(wc.qp_num),
            ..Completion::EMPTY
        };
        // Of a failure the device tells no more than this.
        if completion.status != WcStatus::Success {
            return completion;
        }
        let Some(opcode) = map::wc_opcode(wc.opcode) else {
            return completion;
        };
        completion.opcode = opcode;
        let received = matches!(opcode, WcOpcode::Recv | WcOpcode::RecvRdmaWithImm);
        if received || opcode == WcOpcode::Read {
            completion.byte_len = wc.byte_len;
        }
        if received {
            let has = |flag: u32| wc.wc_flags & flag != 0;
            let word = &wc.__bindgen_anon_1;
            if has(ibv_wc_flags::IBV_WC_WITH_IMM) {
                // SAFETY: both parts of the union are 32 plain bits; the flag says which it is.
                completion.imm = Some(u32::from_be(unsafe { word.imm_data }));
            }
            completion.srqn = queue.xrc.only();
        }
        // Relaxed: it is set before the number of a UD queue pair is known to anybody.
        if queue.datagrams.load(Ordering::Relaxed) {
            self.complete_datagram(wc, &mut completion);
        }
        completion
    }

    fn complete_datagram(&self, wc: &ibv_wc, completion: &mut Completion) {
        let Some(qp) = self.qps.get(wc.qp_num) else {
            return;
        };
        let Some(datagrams) = &qp.datagrams else {
            return;
        };
        if completion.opcode != WcOpcode::Recv {
            datagrams.sent(wc.wr_id);
            return;
        }
        debug_assert_eq!(qp.init.ty, QpType::Ud);
        self.found.datagrams.fetch_add(1, Ordering::Relaxed);
        if qp.init.srq.is_some() {
            return; // Which buffer it was, only its owner knows.
        }
        // SAFETY: the completion is not handed out yet.
        let header = unsafe { datagrams.received(wc.wr_id) };
        let with_header = wc.wc_flags & ibv_wc_flags::IBV_WC_GRH != 0;
        let header = header.filter(|_| with_header);
        if header.is_some() || !self.port.origin.ethernet {
            let av = self.port.origin.source_of(header.as_ref(), wc.slid);
            completion.src = Some((av, Qpn(wc.src_qp)));
        }
    }
}
