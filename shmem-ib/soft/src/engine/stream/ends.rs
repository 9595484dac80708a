//! What the driver has to do next for which stream, and how streams end.

#![forbid(unsafe_code)]

use super::{Role, Stream, StreamAction, StreamConfig, StreamId, connection};
use crate::engine::Engine;
use crate::memory::mr::Memory;
use crate::wire::{Opcode, Packet, RUN_MAX};
use shmem_verbs::Qpn;

impl<M: Memory> Engine<M> {
    /// Has long messages go by streams, for which the driver has sockets; not where peers are devices of other makes. To be called
    /// before queue pairs are made.
    pub fn set_streams(&mut self, config: StreamConfig) {
        self.streams.config = Some(StreamConfig {
            run: config.run.min(RUN_MAX),
            ..config
        });
    }

    /// What the driver has to do next.
    pub fn poll_stream_action(&mut self) -> Option<StreamAction> {
        self.streams.actions.pop_front()
    }

    /// Whether [`Engine::poll_stream_action`] or [`Engine::next_stream`] has something.
    pub fn streams_wait(&self) -> bool {
        !self.streams.actions.is_empty() || !self.streams.ready.is_empty()
    }

    /// How many streams there are.
    pub const fn stream_count(&self) -> usize {
        self.streams.count + self.streams.strangers
    }

    /// The next stream with something to send. Who cannot send all of it says so with [`Engine::stream_unblocked`].
    pub fn next_stream(&mut self) -> Option<StreamId> {
        loop {
            let id = self.streams.ready.pop_front()?;
            if let Some(stream) = self.streams.get(id) {
                stream.in_ready = false;
                return Some(id);
            }
        }
    }

    /// There is more to send by this stream, as soon as it takes it.
    pub fn stream_unblocked(&mut self, id: StreamId) {
        self.streams.mark(id);
    }

    /// A stream has ended, or says what it must not.
    pub fn stream_broke(&mut self, id: StreamId) {
        if let Some(role) = self.streams.remove(id) {
            self.stream_ended(id, role);
        }
    }

    /// What follows from the end of a stream: its queue pair goes on with datagrams.
    fn stream_ended(&mut self, id: StreamId, role: Role) {
        self.streams.find_until();
        let qpn = match role {
            Role::Stranger { .. } => return,
            Role::Inviter { qpn } | Role::Invited { qpn, .. } => qpn,
        };
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let Some(of) = &mut rc.stream else { return };
        if of.out == Some(id) {
            of.out = None;
            if let Some(requester) = &mut rc.requester {
                requester.stream_broke();
            }
        }
        if of.back == Some(id) {
            (of.back, of.token, of.answers) = (None, None, false);
        }
        self.mark_ready(qpn);
        self.queue_timer(qpn);
    }

    /// Ends the stream that the requester of a queue pair has left by itself.
    pub(crate) fn end_left_stream(&mut self, qpn: Qpn) {
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let (Some(requester), Some(of)) = (&mut rc.requester, &mut rc.stream) else {
            return;
        };
        if requester.has_left_stream()
            && let Some(id) = of.out
        {
            self.stream_broke(id);
        }
    }

    /// An answer has come by a datagram to who sends by a stream: the peer has left that. Nothing may come by both, since
    /// what is received where it belongs would be late.
    pub(crate) fn leave_stream_for(&mut self, packet: &Packet<'_>) {
        let qpn = packet.bth.dest_qp;
        let Some(rc) = connection(&mut self.qps, qpn) else {
            return;
        };
        let (Some(requester), Some(of)) = (&rc.requester, &rc.stream) else {
            return;
        };
        let data = packet.bth.opcode != Opcode::Ack;
        if data
            && requester.is_by_stream()
            && requester.concerns(packet.bth.psn)
            && let Some(id) = of.out
        {
            self.stream_broke(id);
        }
    }

    /// A request that came by a datagram was executed: what a stream still brings is too late.
    pub(crate) fn end_run_under_way(&mut self, qpn: Qpn) {
        if let Some(id) = self.run_under_way(qpn) {
            self.stream_broke(id);
        }
    }

    /// Ends what has taken too long.
    pub(crate) fn streams_timeout(&mut self, now: u64) -> bool {
        if self.streams.until.is_none_or(|until| now < until) {
            return false;
        }
        let late = |(id, stream): (u32, &mut Box<Stream>)| {
            let late = stream.until.is_some_and(|until| until <= now);
            late.then_some(StreamId(id))
        };
        let ids: Vec<_> = self
            .streams
            .table
            .iter_numbered()
            .filter_map(late)
            .collect();
        for id in ids {
            self.stream_broke(id);
        }
        self.streams.find_until();
        true
    }
}
