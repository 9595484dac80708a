//! What goes out by a stream: heads of frames and short payloads from a buffer, long payloads from the memory where they lie.
//!
//! Frames are made when the ones before are out. Memory is read by the driver's system calls, so before each of them it is
//! asked once more whether it is registered: a frame whose source has gone cannot be finished, and ends the stream.

#![forbid(unsafe_code)]

use smallvec::SmallVec;

use super::{Piece, Role, Source, StreamId, connection};
use crate::engine::Engine;
use crate::memory::mr::Memory;
use crate::memory::sge;
use crate::queues::send::Payload;
use crate::wire::{Bth, Header};
use shmem_verbs::{Access, Qpn, Rkey, WcStatus};

/// Longest payload that is copied behind its head instead of being sent from where it lies.
const COPIED_MAX: usize = 1024;
/// With so many bytes of short frames a system call is worth its time.
const ENOUGH: usize = 4096;

/// What is to be sent next: the buffer, then the pieces.
#[derive(Debug)]
pub struct Output<'a> {
    /// From the buffer.
    pub head: &'a [u8],
    /// From memory. It is valid until a registration ends.
    pub pieces: SmallVec<[Piece; 4]>,
}

impl<M: Memory> Engine<M> {
    /// What a stream has to send. [`Engine::stream_sent`] says how much of it was.
    pub fn stream_output(&mut self, now: u64, id: StreamId) -> Option<Output<'_>> {
        let role = self.streams.get(id)?.role;
        loop {
            let out = &self.streams.get(id)?.out;
            if !out.sources.is_empty() || out.head.len() >= ENOUGH {
                break;
            }
            let made = match role {
                Role::Stranger { .. } => false,
                Role::Invited { connected, .. } if !connected => false,
                Role::Inviter { qpn } => self.make_request(now, id, qpn),
                Role::Invited { qpn, .. } => self.make_answer(id, qpn),
            };
            if !made {
                break;
            }
        }
        let out = &self.streams.get(id)?.out;
        if !out.covered(&self.mrs) {
            self.source_is_gone(now, id, role);
            return None;
        }
        let out = &self.streams.get(id)?.out;
        let pieces = out.sources.iter().map(|s| s.piece).collect();
        let head = &out.head[out.sent..];
        (!out.is_empty()).then_some(Output { head, pieces })
    }

    /// So many bytes of it were sent.
    pub fn stream_sent(&mut self, now: u64, id: StreamId, bytes: usize) {
        self.counters.stream_bytes_sent += bytes as u64;
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        stream.out.advance(bytes);
        if let Role::Inviter { qpn } = stream.role {
            self.stream_moved(now, qpn);
        }
    }

    pub(super) fn stream_moved(&mut self, now: u64, qpn: Qpn) {
        if let Some(rc) = connection(&mut self.qps, qpn)
            && let Some(requester) = &mut rc.requester
        {
            requester.stream_moved(now);
        }
    }

    /// Appends the next request of a queue pair; whether there was one.
    fn make_request(&mut self, now: u64, id: StreamId, qpn: Qpn) -> bool {
        let pkey = self.port.lane.pkey.0;
        let run = self.streams.config.map_or(0, |config| config.run);
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return false;
        };
        let (Some(dest), Some(requester)) = (rc.dest, &mut rc.requester) else {
            return false;
        };
        let Some(stream) = self.streams.table.get_mut(id.0) else {
            return false;
        };
        let Some(r) = requester.poll_run(now, run) else {
            // It may have gone back to datagrams.
            if !requester.is_by_stream() && requester.has_unsent() {
                self.mark_ready(qpn);
            }
            return false;
        };
        let held = rc.turns.holds();
        rc.turns.sent();
        let psn = r.psn;
        let bth = Bth {
            pkey,
            ..Bth::new(r.opcode, dest.qpn, psn, r.ack_req)
        };
        let header = Header { bth, ext: r.ext };
        let out = &mut stream.out;
        let (mrs, memory) = (&self.mrs, &mut self.memory);
        let stored = match r.payload {
            Payload::None => {
                out.begin(header, 0);
                Ok(())
            }
            Payload::Inline(data) => {
                out.begin(header, data.len() as u32);
                out.say(data);
                Ok(())
            }
            Payload::Gather { sges, offset, len } if len as usize <= COPIED_MAX => {
                out.begin(header, len);
                out.copy(len as usize, |buf| {
                    sge::gather(mrs, memory, sges, offset, buf)
                })
            }
            Payload::Gather { sges, offset, len } => {
                out.begin(header, len);
                out.psn = psn;
                let pieces = sge::pieces(sges, offset, len as usize);
                out.sources.extend(pieces.map(|p| Source {
                    piece: Piece {
                        addr: p.addr,
                        len: p.len,
                    },
                    key: p.lkey.0,
                    need: Access::NONE,
                }));
                match out.covered(mrs) {
                    true => Ok(()),
                    false => Err(sge::NotCovered),
                }
            }
        };
        if stored.is_err() {
            requester.fail(now, psn, WcStatus::LocProtErr, &mut self.done);
            self.fail_qp(qpn);
            return false;
        }
        if held {
            self.mark_ready(qpn); // What is held leaves with this, by a datagram.
        }
        self.queue_timer(qpn);
        true
    }

    /// Appends the next answer of a queue pair; whether there was one.
    fn make_answer(&mut self, id: StreamId, qpn: Qpn) -> bool {
        let pkey = self.port.lane.pkey.0;
        let run = self.streams.config.map_or(0, |config| config.run);
        let Some(qp) = self.qps.get_mut(qpn.0) else {
            return false;
        };
        let access = qp.access;
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return false;
        };
        let (Some(dest), Some(responder)) = (rc.dest, &mut rc.responder) else {
            return false;
        };
        if rc.stream.as_ref().is_none_or(|of| !of.answers) {
            return false;
        }
        let Some(stream) = self.streams.table.get_mut(id.0) else {
            return false;
        };
        let packets = (run / dest.mtu.bytes() as u32).max(1);
        responder.set_ack(self.share.syndrome());
        let Some(r) = responder.poll(&self.mrs, access, None, packets) else {
            return false;
        };
        if responder.has_failed() {
            // The refusal goes by a datagram, since streams end with their queue pair.
            responder.refuse_again();
            self.fail_qp(qpn);
            self.mark_ready(qpn);
            return false;
        }
        let bth = Bth {
            pkey,
            ..Bth::new(r.opcode, dest.qpn, r.psn, false)
        };
        let header = Header { bth, ext: r.ext };
        let out = &mut stream.out;
        let Some((addr, len)) = r.payload else {
            out.begin(header, 0);
            return true;
        };
        out.begin(header, len);
        let memory = &mut self.memory;
        if len as usize <= COPIED_MAX {
            let copied: Result<(), ()> = out.copy(len as usize, |buf| {
                memory.read(addr, buf);
                Ok(())
            });
            debug_assert!(copied.is_ok());
        } else {
            out.psn = r.psn;
            out.sources.push(Source {
                piece: Piece {
                    addr,
                    len: len as usize,
                },
                key: r.rkey.unwrap_or(Rkey(0)).0,
                need: Access::REMOTE_READ,
            });
        }
        true
    }

    /// A frame cannot be finished.
    fn source_is_gone(&mut self, now: u64, id: StreamId, role: Role) {
        let psn = self.streams.get(id).map(|stream| stream.out.psn);
        let (Some(psn), Role::Inviter { qpn } | Role::Invited { qpn, .. }) = (psn, role) else {
            return;
        };
        if let Some(rc) = connection(&mut self.qps, qpn) {
            match (role, &mut rc.requester, &mut rc.responder) {
                (Role::Inviter { .. }, Some(requester), _) => {
                    requester.fail(now, psn, WcStatus::LocProtErr, &mut self.done);
                }
                (_, _, Some(responder)) => responder.lost_source(psn),
                _ => {}
            }
        }
        self.fail_qp(qpn);
        self.mark_ready(qpn);
    }
}
