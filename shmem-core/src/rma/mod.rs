//! One-sided copies: put and get in their forms.
//!
//! To a PE of the same node they are plain memory accesses. To others they are RDMA over a
//! connection that the first operation makes. This file has the engine, which knows addresses and
//! byte counts; [`strided`] copies that leave gaps, [`signalled`] puts with a signal, and [`typed`] the routines of
//! the crate.

pub(crate) mod between;
pub(crate) mod signalled;
mod strided;
pub(crate) mod typed;

pub(crate) use self::strided::copy_blocks;
pub(crate) use self::strided::put_blocks_signal;
pub use self::strided::{Blocks, get_blocks, put_blocks};

use shmem_ib::connect::endpoint::Source;
use shmem_node::recording::Routine;

use crate::context::{Ctx, operate};
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::heap::parts::Piece;
use crate::network::Stream;
use crate::recording::RecordedCall;
use crate::runtime::Runtime;

/// What an array is too short for, in messages.
pub(crate) const PUT: [&str; 2] = ["put of", "into"];
pub(crate) const GET: [&str; 2] = ["get of", "from"];

/// When the local buffer of an operation may be used again: a source be changed, a destination be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Completion {
    /// When the call returns, as blocking routines have it.
    OnReturn,
    /// After [`Ctx::release_sources`], for puts; of a get it is as [`OnReturn`](Self::OnReturn).
    AtRelease,
    /// After quiet, as non-blocking routines (`_nbi`) have it.
    AtQuiet,
}

impl Completion {
    /// What is asked of a put that is waited for behind others which follow it.
    pub(crate) const fn behind_others(self) -> Self {
        match self {
            Self::OnReturn => Self::AtRelease,
            Self::AtRelease | Self::AtQuiet => self,
        }
    }

    /// The routine's form that completes so.
    pub(crate) const fn form(self, blocking: Routine, nbi: Routine) -> Routine {
        match self {
            Self::OnReturn => blocking,
            Self::AtRelease | Self::AtQuiet => nbi,
        }
    }

    /// The same in the network's words.
    const fn of_source(self) -> Source {
        match self {
            Self::OnReturn => Source::UntilReturn,
            Self::AtRelease => Source::UntilRelease,
            Self::AtQuiet => Source::UntilQuiet,
        }
    }
}

impl Ctx {
    /// Writes `bytes` bytes to `dest` of PE `pe` of the context. `source` may be reused at `completion`.
    ///
    /// # Safety
    /// `source` is readable for so many bytes until `completion`; `dest` has as many.
    ///
    /// # Panics
    /// If there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_putmem`, `shmem_putmem_nbi`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn put_bytes(
        &self,
        dest: SymAddr,
        source: *const u8,
        bytes: usize,
        pe: usize,
        completion: Completion,
    ) {
        let call = move |pe| {
            let routine = completion.form(Routine::Put, Routine::PutNbi);
            RecordedCall::on(routine, pe, bytes, dest)
        };
        operate!(self, pe, [dest], call, {
            // SAFETY: by the caller.
            Near(to) => unsafe { to.put(source, bytes) },
            // SAFETY: by the caller.
            Far(rt, pe) => unsafe {
                rt.put_far(self.stream(), dest, source, bytes, pe, completion);
            },
        });
    }

    /// Reads `bytes` bytes from `source` of PE `pe` of the context. They are here at `completion`.
    ///
    /// # Safety
    /// `dest` is writable for so many bytes until `completion`, and nobody looks at it before; `source` has as
    /// many.
    ///
    /// # Panics
    /// If there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_getmem`, `shmem_getmem_nbi`.
    #[inline(always)]
    #[track_caller]
    pub unsafe fn get_bytes(
        &self,
        dest: *mut u8,
        source: SymAddr,
        bytes: usize,
        pe: usize,
        completion: Completion,
    ) {
        let call = move |pe| {
            let routine = completion.form(Routine::Get, Routine::GetNbi);
            RecordedCall::on(routine, pe, bytes, source)
        };
        operate!(self, pe, [source], call, {
            // SAFETY: by the caller.
            Near(from) => unsafe { from.get(dest, bytes) },
            // SAFETY: by the caller.
            Far(rt, pe) => unsafe {
                rt.get_far(self.stream(), dest, source, bytes, pe, completion);
            },
        });
    }
}

impl Runtime {
    /// Gives whether the source may still be read, until `completion`.
    ///
    /// # Safety
    /// As for [`Ctx::put_bytes`].
    #[cold]
    pub(crate) unsafe fn put_far(
        &self,
        stream: Stream,
        dest: SymAddr,
        source: *const u8,
        bytes: usize,
        pe: usize,
        completion: Completion,
    ) -> bool {
        let mut kept = false;
        for piece in self.copies(dest.offset(), source, bytes) {
            let Piece {
                part,
                offset,
                at,
                len,
            } = piece;
            // SAFETY: by the caller.
            kept |= self.far(stream, |net| unsafe {
                let stays = completion.of_source();
                net.put(pe as u32, part, offset, source.add(at), len, stays)
            });
        }
        kept
    }

    /// # Safety
    /// As for [`Ctx::get_bytes`].
    #[cold]
    unsafe fn get_far(
        &self,
        stream: Stream,
        dest: *mut u8,
        source: SymAddr,
        bytes: usize,
        pe: usize,
        completion: Completion,
    ) {
        for piece in self.copies(source.offset(), dest, bytes) {
            let Piece {
                part,
                offset,
                at,
                len,
            } = piece;
            // SAFETY: by the caller.
            self.far(stream, |net| unsafe {
                let waits = completion != Completion::AtQuiet;
                net.get(pe as u32, part, offset, dest.add(at), len, waits)
            });
        }
    }

    /// Writes `len` bytes to `offset` of `pe`'s segment, as a message of the runtime.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes until `completion`; the target range lies inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn put_raw(
        &self,
        pe: usize,
        offset: usize,
        from: *const u8,
        len: usize,
        completion: Completion,
    ) {
        if self.is_near(pe) {
            let local = self.nodes.local_of[pe] as usize;
            // SAFETY: by the caller; the range is mapped.
            unsafe { access::copy(from, self.neighbour(local, offset), len) };
            return self.ring(local);
        }
        let dest = SymAddr::new(offset);
        // SAFETY: by the caller.
        unsafe { self.put_far(Stream::RUNTIME, dest, from, len, pe, completion) };
    }

    /// Reads `len` bytes from `offset` of `pe`'s segment, as a message of the runtime.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes until `completion`, and nobody looks at it before; the source range
    /// lies inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn get_raw(
        &self,
        pe: usize,
        offset: usize,
        to: *mut u8,
        len: usize,
        completion: Completion,
    ) {
        if self.is_near(pe) {
            let from = self.neighbour(self.nodes.local_of[pe] as usize, offset);
            // SAFETY: by the caller; the range is mapped.
            return unsafe { access::copy(from, to, len) };
        }
        let source = SymAddr::new(offset);
        // SAFETY: by the caller.
        unsafe { self.get_far(Stream::RUNTIME, to, source, len, pe, completion) };
    }

    /// Completes the runtime's own messages.
    pub(crate) fn quiet_raw(&self) {
        if self.network.is_some() {
            self.far(Stream::RUNTIME, |net| net.quiet());
        }
    }

    /// The pieces in which a copy to or from `offset` of a segment elsewhere goes over the network.
    fn copies(&self, offset: usize, local: *const u8, len: usize) -> impl Iterator<Item = Piece> {
        let inside = (local as usize).wrapping_sub(self.neighbours.own.0 as usize);
        let local = Some(inside).filter(|at| *at < self.node.segment_len());
        self.network().registrar.parts().copies(offset, local, len)
    }
}
