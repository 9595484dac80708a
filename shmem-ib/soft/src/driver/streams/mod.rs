//! The sockets of streams: TCP connections between software HCAs, by which long messages go.
//!
//! The engine says which there are to be, what goes out and where what comes belongs ([`crate::stream`]). Here are descriptors.
//! One epoll instance, made with the first of them, watches all, by edges: a stream is read until it has nothing, and written to
//! until it takes nothing, and then not looked at before the kernel says so. Who sleeps watches that instance
//! beside the UDP socket.
//!
//! Who polls looks at it only now and then while no stream moves: a long message does not mind that, and the short
//! ones between would pay for a system call each.

mod bytes;
pub(super) mod links;
pub(super) mod sockets;

use std::io;
use std::net::SocketAddr;
use std::os::fd::{AsFd, BorrowedFd};

use rustix::io::Errno;

use super::hca::{BYTES_PER_PUMP, Inner, SoftHca};
use crate::stream::{StreamAction, StreamId};
use bytes::{receive, send};
use links::Link;
use sockets::{Epoll, Happened};

/// While streams have moved not longer ago than this, each pump looks at them; else one in so long a time.
const ACTIVE_NS: u64 = 100_000;
const LOOK_NS: u64 = 10_000;
/// Bytes received, and sent, before others get their turn.
const BYTES_PER_TURN: usize = 1 << 20;
const BYTES_OUT_PER_TURN: usize = 4 << 20;

impl SoftHca {
    /// What sleepers watch for streams.
    pub(super) fn watched_streams(&self) -> Option<BorrowedFd<'_>> {
        self.epoll.get().map(AsFd::as_fd)
    }

    fn epoll(&self, inner: &Inner) -> io::Result<&Epoll> {
        if self.epoll.get().is_none() {
            let made = Epoll::new()?;
            // A thread that sleeps already does not watch it yet.
            if self.epoll.set(made).is_ok() && inner.rest.anybody() {
                self.event.signal();
            }
        }
        let made = self.epoll.get();
        made.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    /// Does what the engine wants done about streams.
    pub(super) fn tend_streams(&self, inner: &mut Inner) {
        while let Some(action) = inner.engine.poll_stream_action() {
            match action {
                StreamAction::Listen => {
                    let port = self.listen(inner).ok();
                    inner.engine.stream_listening(port);
                }
                StreamAction::Unlisten => {
                    if let Some(fd) = inner.links.listener.take() {
                        sockets::end(&fd);
                    }
                }
                StreamAction::Connect(id, to) => {
                    if self.connect(inner, id, to).is_err() {
                        inner.engine.stream_broke(id);
                    }
                }
                StreamAction::Close(id) => {
                    if let Some(link) = inner.links.links.remove(&id.0) {
                        sockets::end(&link.fd);
                    }
                }
            }
        }
    }

    /// Without a descriptor or a port there are datagrams.
    fn listen(&self, inner: &mut Inner) -> io::Result<u16> {
        let epoll = self.epoll(inner)?;
        let (fd, port) = sockets::listen(self.socket.av().gid.ip(), &self.streams)?;
        epoll.watch_listener(&fd)?;
        inner.links.listener = Some(fd);
        Ok(port)
    }

    fn connect(&self, inner: &mut Inner, id: StreamId, to: SocketAddr) -> io::Result<()> {
        let epoll = self.epoll(inner)?;
        let fd = sockets::connect(self.socket.av().gid.ip(), to, &self.streams)?;
        epoll.watch(&fd, id)?;
        inner.links.links.insert(id.0, Link::new(fd, true));
        Ok(())
    }

    fn accept(&self, inner: &mut Inner, now: u64) {
        inner.links.accept_due = false;
        for _ in 0..sockets::BACKLOG {
            let Some(listener) = &inner.links.listener else {
                return;
            };
            let (fd, from) = match sockets::accept(listener, &self.streams) {
                Ok(Some(accepted)) => accepted,
                Ok(None) => continue,
                Err(Errno::AGAIN) => return,
                Err(_) => break, // There may be descriptors later.
            };
            let Some(id) = inner.engine.stream_accepted(now, from) else {
                continue;
            };
            let watched = self.epoll(inner).and_then(|epoll| epoll.watch(&fd, id));
            if watched.is_ok() {
                inner.links.links.insert(id.0, Link::new(fd, false));
            } else {
                inner.engine.stream_broke(id);
            }
        }
        inner.links.accept_due = true;
    }

    /// Asks the kernel which streams can go on.
    fn look_at_streams(&self, inner: &mut Inner, now: u64) {
        let Some(epoll) = self.epoll.get() else {
            return;
        };
        inner.links.look_at = now + LOOK_NS;
        if inner.links.accept_due {
            self.accept(inner, now);
        }
        epoll.take(|happened| {
            inner.links.active_until = now + ACTIVE_NS;
            match happened {
                Happened::Listener => self.accept(inner, now),
                Happened::Stream {
                    id,
                    reads,
                    writes,
                    ends,
                } => {
                    let Some(link) = inner.links.links.get_mut(&id.0) else {
                        return;
                    };
                    link.ends |= ends;
                    if writes && std::mem::take(&mut link.connecting) {
                        match sockets::connected(&link.fd) {
                            Ok(()) => inner.engine.stream_connected(id),
                            Err(_) => return inner.engine.stream_broke(id),
                        }
                    }
                    if writes && std::mem::take(&mut link.blocked) {
                        inner.engine.stream_unblocked(id);
                    }
                    if reads && !link.connecting {
                        inner.links.mark_readable(id);
                    }
                }
            }
        });
    }

    /// Takes what has come by streams, and answers. Returns whether anything has.
    pub(super) fn pump_streams(&self, inner: &mut Inner, now: u64) -> bool {
        let links = &inner.links;
        if now < links.active_until || now >= links.look_at || links.pending() {
            self.look_at_streams(inner, now);
        }
        let (mut left, mut busy) = (BYTES_PER_TURN, inner.engine.streams_wait());
        while left > 0
            && let Some(id) = inner.links.readable.pop_front()
        {
            busy = true;
            let took = self.receive_stream(inner, now, id, &mut left);
            if let Some(link) = inner.links.links.get_mut(&id.0) {
                match took {
                    Ok(()) => inner.links.readable.push_back(id),
                    Err(Errno::AGAIN) => link.readable = false,
                    Err(_) => {
                        link.readable = false;
                        inner.engine.stream_broke(id);
                    }
                }
            }
            self.transmit(inner, now, &mut { BYTES_PER_PUMP });
            // As with packets: whoever waits for completions looks at them first.
            if inner.engine.unpolled() > 0 {
                break;
            }
        }
        if inner.engine.streams_wait() {
            self.transmit(inner, now, &mut { BYTES_PER_PUMP });
        }
        busy
    }

    /// One system call; an error says that there is nothing more, or that the stream has ended.
    fn receive_stream(
        &self,
        inner: &mut Inner,
        now: u64,
        id: StreamId,
        left: &mut usize,
    ) -> Result<(), Errno> {
        let Inner { engine, links, .. } = inner;
        let link = links.links.get(&id.0).ok_or(Errno::PIPE)?;
        let room = engine.stream_room(id).ok_or(Errno::PIPE)?;
        let all = room.direct.map_or(0, |(_, len)| len) + room.ahead.len();
        // SAFETY: the engine names only registered memory, see `RawMemory::new`.
        let got = unsafe { receive(link.fd.as_fd(), room.direct, room.ahead) };
        engine.counters_mut().recv_calls += 1;
        let got = match got {
            Ok(0) => return Err(Errno::PIPE),
            Err(Errno::INTR) => return Ok(()),
            got => got?,
        };
        *left = left.saturating_sub(got);
        engine.stream_received(now, id, got);
        // Less than there was room for is all that there was, except for the end.
        match got < all && !link.ends {
            true => Err(Errno::AGAIN),
            false => Ok(()),
        }
    }

    /// Sends what streams take. Returns whether that was as much as a turn allows.
    pub(super) fn transmit_streams(&self, inner: &mut Inner, now: u64) -> bool {
        let mut left = BYTES_OUT_PER_TURN;
        while left > 0 {
            let Some(id) = inner.engine.next_stream() else {
                return false;
            };
            inner.links.active_until = now + ACTIVE_NS;
            self.send_stream(inner, now, id, &mut left);
        }
        true
    }

    fn send_stream(&self, inner: &mut Inner, now: u64, id: StreamId, left: &mut usize) {
        let Inner { engine, links, .. } = inner;
        let Some(link) = links.links.get_mut(&id.0) else {
            return;
        };
        while !link.blocked && !link.connecting {
            if *left == 0 {
                engine.stream_unblocked(id); // It stays in turn.
                return;
            }
            let Some(out) = engine.stream_output(now, id) else {
                return;
            };
            let all = out.head.len() + out.pieces.iter().map(|p| p.len).sum::<usize>();
            // SAFETY: what the engine gives lies in registered memory, see `RawMemory::new`.
            let sent = unsafe { send(link.fd.as_fd(), &out) };
            engine.counters_mut().send_calls += 1;
            match sent {
                Ok(sent) => {
                    engine.stream_sent(now, id, sent);
                    *left = left.saturating_sub(sent);
                    link.blocked = sent < all;
                }
                Err(Errno::AGAIN) => link.blocked = true,
                Err(Errno::INTR) => {}
                Err(_) => return engine.stream_broke(id),
            }
        }
    }
}
