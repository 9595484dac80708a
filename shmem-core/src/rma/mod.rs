//! One-sided copies: put and get in their forms.
//!
//! To a PE of the same node they are plain memory accesses. To others they are RDMA over a
//! connection that the first operation makes. This module has the engine, which knows addresses and
//! byte counts; [`strided`] copies that leave gaps, [`typed`] the routines of the crate, and `nbi`
//! the scope that makes non-blocking operations safe.

mod nbi;
mod strided;
mod typed;

pub use nbi::{Nbi, nbi};
pub use strided::{Blocks, get_blocks, put_blocks};
pub use typed::{g, get, get_nbi, ibget, ibput, iget, iput, p, put, put_nbi};

use crate::context::Ctx;
use crate::heap::access;
use crate::heap::address::Sym;
use crate::heap::parts::Piece;
use crate::runtime::{Place, Runtime};

/// When a source buffer may be used again.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Source {
    /// When the call returns.
    Reusable,
    /// Not before `quiet`.
    Stays,
}

impl Ctx {
    /// Writes `bytes` bytes to `dest` of `pe`.
    ///
    /// # Safety
    /// `source` is readable for so many bytes, until this returns, or with `nbi` until quiet; the
    /// target range lies inside the segment.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn put_bytes(
        &self,
        dest: Sym,
        source: *const u8,
        bytes: usize,
        pe: usize,
        nbi: bool,
    ) {
        let rt = self.rt();
        match self.place(rt, pe, dest.offset()) {
            Place::Here(to) => {
                // SAFETY: readable by the caller; the target is mapped.
                unsafe { access::copy(source, to.at, bytes) };
                rt.ring(to.local);
            }
            // SAFETY: by the caller.
            Place::There(pe) => unsafe { self.put_far(rt, dest, source, bytes, pe, nbi) },
        }
    }

    /// # Safety
    /// As for [`Ctx::put_bytes`].
    #[cold]
    unsafe fn put_far(
        &self,
        rt: &Runtime,
        dest: Sym,
        source: *const u8,
        bytes: usize,
        pe: usize,
        nbi: bool,
    ) {
        for piece in rt.copies(dest.offset(), source, bytes) {
            let Piece {
                part,
                offset,
                at,
                len,
            } = piece;
            // SAFETY: by the caller.
            rt.far(|net| unsafe {
                let net = net.context(self.id());
                net.put(pe as u32, part, offset, source.add(at), len, nbi)
            });
        }
    }

    /// Reads `bytes` bytes from `source` of `pe`. With `nbi` they may arrive as late as quiet.
    ///
    /// # Safety
    /// `dest` is writable for so many bytes (with `nbi`: until quiet, and nobody looks at it
    /// before); the source range lies inside the segment.
    #[inline(always)]
    #[track_caller]
    pub(crate) unsafe fn get_bytes(
        &self,
        dest: *mut u8,
        source: Sym,
        bytes: usize,
        pe: usize,
        nbi: bool,
    ) {
        let rt = self.rt();
        match self.place(rt, pe, source.offset()) {
            // SAFETY: the source is mapped; writable by the caller.
            Place::Here(from) => unsafe { access::copy(from.at, dest, bytes) },
            // SAFETY: by the caller.
            Place::There(pe) => unsafe { self.get_far(rt, dest, source, bytes, pe, nbi) },
        }
    }

    /// # Safety
    /// As for [`Ctx::get_bytes`].
    #[cold]
    unsafe fn get_far(
        &self,
        rt: &Runtime,
        dest: *mut u8,
        source: Sym,
        bytes: usize,
        pe: usize,
        nbi: bool,
    ) {
        for piece in rt.copies(source.offset(), dest, bytes) {
            let Piece {
                part,
                offset,
                at,
                len,
            } = piece;
            // SAFETY: by the caller.
            rt.far(|net| unsafe {
                let net = net.context(self.id());
                net.get(pe as u32, part, offset, dest.add(at), len, !nbi)
            });
        }
    }
}

impl Runtime {
    /// Writes `len` bytes to `offset` of `pe`'s segment, on the default context.
    ///
    /// # Safety
    /// `from` is readable for `len` bytes, until the time that `source` says; the target range
    /// lies inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn put_raw(
        &self,
        pe: usize,
        offset: usize,
        from: *const u8,
        len: usize,
        source: Source,
    ) {
        let (dest, nbi) = (Sym::new(offset), source == Source::Stays);
        // SAFETY: by the caller.
        unsafe { Ctx::default_ctx().put_bytes(dest, from, len, pe, nbi) };
    }

    /// Reads `len` bytes from `offset` of `pe`'s segment, on the default context. Without `blocking`
    /// the bytes may arrive as late as `quiet`.
    ///
    /// # Safety
    /// `to` is writable for `len` bytes (without `blocking`: until quiet, and nobody looks at it
    /// before); the source range lies inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn get_raw(
        &self,
        pe: usize,
        offset: usize,
        to: *mut u8,
        len: usize,
        blocking: bool,
    ) {
        // SAFETY: by the caller.
        unsafe { Ctx::default_ctx().get_bytes(to, Sym::new(offset), len, pe, !blocking) };
    }

    /// The pieces in which a copy to or from `offset` of a segment elsewhere goes over the network.
    fn copies(&self, offset: usize, local: *const u8, len: usize) -> impl Iterator<Item = Piece> {
        let inside = (local as usize).wrapping_sub(self.own.0 as usize);
        let local = Some(inside).filter(|at| *at < self.node.segment_len());
        self.remote().registrar.parts().copies(offset, local, len)
    }

    /// Ends the job if the network failed: a one-sided program cannot go on without a peer.
    pub(crate) fn or_die<T, E: std::fmt::Display>(&self, result: Result<T, E>) -> T {
        match result {
            Ok(value) => value,
            Err(e) => self.die(&e),
        }
    }

    #[cold]
    fn die(&self, error: &dyn std::fmt::Display) -> ! {
        crate::fault::fail(&error.to_string())
    }
}

/// Writes `bytes` bytes to `dest` of PE `pe` of the context. `source` may be reused on return, with
/// `nbi` after quiet.
///
/// # Safety
/// `source` is readable for so many bytes, until this returns, or with `nbi` until quiet; `dest` has
/// as many.
///
/// # Panics
/// If there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_putmem`, `shmem_putmem_nbi`.
#[inline]
#[track_caller]
pub unsafe fn put_mem(ctx: &Ctx, dest: Sym, source: *const u8, bytes: usize, pe: usize, nbi: bool) {
    // SAFETY: by the caller.
    unsafe { ctx.put_bytes(dest, source, bytes, pe, nbi) };
}

/// Reads `bytes` bytes from `source` of PE `pe` of the context. They are here on return, with `nbi`
/// after quiet.
///
/// # Safety
/// `dest` is writable for so many bytes, until this returns, or with `nbi` until quiet, and then
/// nobody looks at it before; `source` has as many.
///
/// # Panics
/// If there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_getmem`, `shmem_getmem_nbi`.
#[inline]
#[track_caller]
pub unsafe fn get_mem(ctx: &Ctx, dest: *mut u8, source: Sym, bytes: usize, pe: usize, nbi: bool) {
    // SAFETY: by the caller.
    unsafe { ctx.get_bytes(dest, source, bytes, pe, nbi) };
}
