//! What comes by a stream.
//!
//! The head of a frame tells where its payload belongs. If that is long, and nothing speaks against it, the driver receives
//! it there, and in the same system call the head of the next frame. Whatever else comes goes through a buffer. A run counts
//! only when it is complete: one that the stream's end cuts off was never there, though its memory may have been written to.
//!
//! Packets by a stream are in order. One that is not, or that could not be executed by datagrams either, ends the stream, and the
//! requester sends it again by datagrams; there it gets the answer that it would have got anyway.

#![forbid(unsafe_code)]

use super::{Incoming, Role, StreamId, connection};
use crate::engine::Engine;
use crate::memory::mr::Memory;
use crate::rc::requester::Requester;
use crate::wire::{FRAME_HEAD_MAX, Frame, HELLO_LEN, Header, Packet, STAGED_MAX};
use shmem_verbs::{Access, Pkey, QpState, Qpn};

/// Bytes of the buffer: a frame whose payload goes through it, and more of short ones.
const BUFFER: usize = 2 * STAGED_MAX as usize;

/// Where the next bytes go: first so many to memory, then the others to the buffer.
#[derive(Debug)]
pub struct Room<'a> {
    /// Address in registered memory, and bytes.
    pub direct: Option<(u64, usize)>,
    /// Buffer.
    pub ahead: &'a mut [u8],
}

/// What became of a frame.
enum Took {
    Frame,
    /// There is not all of it.
    NotYet,
    /// It ends the stream.
    Bad,
}

impl<M: Memory> Engine<M> {
    /// Where the next bytes of a stream go. [`Engine::stream_received`] says how many came. `None`: it is not there any more, and
    /// closed.
    pub fn stream_room(&mut self, id: StreamId) -> Option<Room<'_>> {
        let stream = self.streams.table.get_mut(id.0)?;
        let inbox = &mut stream.inbox;
        if let Some(run) = &inbox.run
            && !(self.mrs).covers(run.key, run.addr, run.left as u64, run.need)
        {
            self.stream_broke(id);
            return None;
        }
        let stream = self.streams.table.get_mut(id.0)?;
        let inbox = &mut stream.inbox;
        if inbox.buffer.is_empty() {
            inbox.buffer.resize(BUFFER, 0);
        }
        let direct = inbox.run.map(|run| (run.addr, run.left));
        let end = match (stream.role, direct) {
            (Role::Stranger { .. }, _) => HELLO_LEN,
            (_, Some(_)) => FRAME_HEAD_MAX,
            (_, None) => BUFFER,
        };
        let ahead = &mut inbox.buffer[inbox.have..end];
        Some(Room { direct, ahead })
    }

    /// So many bytes have come to where [`Engine::stream_room`] has said. An error, 0 or what ends the stream otherwise is
    /// [`Engine::stream_broke`].
    pub fn stream_received(&mut self, now: u64, id: StreamId, bytes: usize) {
        self.counters.stream_bytes_received += bytes as u64;
        let Some(stream) = self.streams.get(id) else {
            return;
        };
        let inbox = &mut stream.inbox;
        let direct = inbox.run.map_or(0, |run| run.left).min(bytes);
        if let Some(run) = &mut inbox.run {
            run.addr += direct as u64;
            run.left -= direct;
        }
        inbox.have += bytes - direct;
        if let Role::Stranger { from } = stream.role {
            let Some(hello) = inbox.buffer[..inbox.have]
                .first_chunk::<HELLO_LEN>()
                .copied()
            else {
                return;
            };
            inbox.have = 0;
            if !self.take_hello(id, from, &hello) {
                self.stream_broke(id);
            }
            return;
        }
        if let Role::Inviter { qpn } = stream.role {
            self.stream_moved(now, qpn);
        }
        let mut at = 0;
        loop {
            match self.take_frame(now, id, &mut at) {
                Took::Frame => {}
                Took::NotYet => break,
                Took::Bad => {
                    self.stream_broke(id);
                    break;
                }
            }
        }
        if let Some(stream) = self.streams.get(id) {
            let inbox = &mut stream.inbox;
            inbox.buffer.copy_within(at..inbox.have, 0);
            inbox.have -= at;
        }
    }

    /// Executes the next frame, whose rest begins at `at` in the buffer.
    fn take_frame(&mut self, now: u64, id: StreamId, at: &mut usize) -> Took {
        let Some(stream) = self.streams.get(id) else {
            return Took::NotYet;
        };
        let role = stream.role;
        if let Some(run) = stream.inbox.run {
            if run.left > 0 {
                return Took::NotYet;
            }
            stream.inbox.run = None;
            return self.execute(now, role, &run.frame.header, Some(run.frame.len), &[]);
        }
        let inbox = &stream.inbox;
        let (frame, head) = match Frame::decode(&inbox.buffer[*at..inbox.have]) {
            Ok(Some(decoded)) => decoded,
            Ok(None) => return Took::NotYet,
            Err(_) => return Took::Bad,
        };
        let len = frame.len as usize;
        let (body, have) = (*at + head, inbox.have - *at - head);
        let direct = self.streams.config.is_some_and(|c| frame.len >= c.direct);
        let place = match direct {
            true => self.place_run(role, &frame),
            false => None,
        };
        if let Some((addr, key, need)) = place {
            let Some(stream) = self.streams.table.get_mut(id.0) else {
                return Took::NotYet;
            };
            let inbox = &mut stream.inbox;
            let here = have.min(len);
            self.memory.write(addr, &inbox.buffer[body..body + here]);
            inbox.run = Some(Incoming {
                frame,
                addr: addr + here as u64,
                left: len - here,
                key,
                need,
            });
            *at = body + here;
            return match here == len {
                true => Took::Frame, // Executed in the next turn.
                false => Took::NotYet,
            };
        }
        if frame.len > STAGED_MAX {
            return Took::Bad;
        }
        if have < len {
            return Took::NotYet;
        }
        let Some(stream) = self.streams.get(id) else {
            return Took::NotYet;
        };
        let mut payload = [0; STAGED_MAX as usize];
        payload[..len].copy_from_slice(&stream.inbox.buffer[body..body + len]);
        *at = body + len;
        self.execute(now, role, &frame.header, None, &payload[..len])
    }

    /// Where the payload of a run belongs: address, key, and right.
    fn place_run(&mut self, role: Role, frame: &Frame) -> Option<(u64, u32, Access)> {
        let bth = &frame.header.bth;
        let expected = match role {
            Role::Inviter { qpn } => {
                let rc = connection(&mut self.qps, qpn)?;
                let by_stream = rc.requester.as_ref().is_some_and(Requester::is_by_stream);
                bth.dest_qp == qpn && bth.opcode.is_read_response() && by_stream
            }
            Role::Invited { qpn, .. } => bth.dest_qp == qpn && bth.opcode.is_rc_request(),
            Role::Stranger { .. } => false,
        };
        let place = expected.then(|| self.place_part(&frame.header, frame.len, true));
        place.flatten()
    }

    /// Executes a run that is complete; `placed` bytes of it are where they belong.
    fn execute(
        &mut self,
        now: u64,
        role: Role,
        header: &Header,
        placed: Option<u32>,
        payload: &[u8],
    ) -> Took {
        let packet = Packet {
            bth: header.bth,
            ext: header.ext,
            payload,
        };
        let ours = self.port.lane.pkey.hears(Pkey(header.bth.pkey));
        let opcode = header.bth.opcode;
        let good = match role {
            Role::Invited { qpn, .. } => {
                ours && header.bth.dest_qp == qpn
                    && opcode.is_rc_request()
                    && self.execute_request(now, qpn, &packet, placed)
            }
            Role::Inviter { qpn } => {
                ours && header.bth.dest_qp == qpn
                    && opcode.is_rc_response()
                    && self.handle_response(now, &packet, placed, true)
            }
            Role::Stranger { .. } => false,
        };
        match good {
            true => Took::Frame,
            false => Took::Bad,
        }
    }

    fn execute_request(
        &mut self,
        now: u64,
        qpn: Qpn,
        packet: &Packet<'_>,
        placed: Option<u32>,
    ) -> bool {
        let live = |qp: &&mut Box<crate::qp::Qp>| matches!(qp.state, QpState::Rtr | QpState::Rts);
        if self.qps.get_mut(qpn.0).filter(live).is_none() {
            return false;
        }
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return false;
        };
        let (Some(responder), Some(of)) = (&rc.responder, &mut rc.stream) else {
            return false;
        };
        if responder.expected() != packet.bth.psn {
            return false;
        }
        of.answer_by_stream(packet.bth.psn);
        self.handle_run(now, packet, placed)
    }

    /// Whether a run of requests of this queue pair is under way.
    pub(crate) fn run_under_way(&mut self, qpn: Qpn) -> Option<StreamId> {
        let of = connection(&mut self.qps, qpn)?.stream.as_ref()?;
        let back = of.back?;
        let stream = self.streams.get(back)?;
        stream.inbox.run.is_some().then_some(back)
    }
}
