//! Copies of blocks that lie apart: `iput`, `iget`, `ibput`, `ibget`.
//!
//! Over the network every block that lies alone at the target of a put is a work request of its own,
//! since RDMA writes no gaps; they are posted one behind the other and nobody waits between them.
//! Blocks that touch each other there are packed first and go as one. A get may read gaps, too:
//! where they are small it reads all of a stretch at once and picks the blocks out, which costs a
//! request for kilobytes of blocks.

use std::mem::MaybeUninit;

use shmem_node::recording::Routine;

use super::Completion::{self, AtQuiet, OnReturn};
use crate::context::{Ctx, operate};
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::recording::RecordedCall;
use crate::signal::Signal;

/// How blocks lie on both sides of a copy. Everything is in bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Blocks {
    /// How many.
    pub count: usize,
    /// Bytes per block.
    pub bytes: usize,
    /// From one block's beginning to the next at the destination; at least `bytes`.
    pub dest_stride: usize,
    /// The same at the source.
    pub source_stride: usize,
}

/// Memory for packed blocks, on the stack: long enough for a work request to be worth its cost, and
/// short enough that the endpoint copies it while posting.
const STAGE: usize = 8 << 10;
/// Most that is read at a time where gaps are read, too.
const READ: usize = 128 << 10;
/// A READ brings so many bytes in about the time that another request costs. It decides whether
/// gaps are read.
const GAP: usize = 1 << 10;

impl Blocks {
    /// So many bytes in one piece.
    pub(crate) const fn dense(bytes: usize) -> Self {
        Self {
            count: 1,
            bytes,
            dest_stride: bytes,
            source_stride: bytes,
        }
    }

    /// The same without `n` blocks.
    fn without(self, n: usize) -> Self {
        Self {
            count: self.count - n,
            ..self
        }
    }

    /// Blocks that lie one behind the other on both sides.
    const fn is_one(&self) -> bool {
        self.count == 1 || self.dest_stride == self.bytes && self.source_stride == self.bytes
    }
}

/// Copies blocks of one mapped memory to another.
///
/// # Safety
/// Both sides are mapped for all blocks, and `to` is writable.
#[inline]
pub(crate) unsafe fn copy_blocks(from: *const u8, to: *mut u8, blocks: Blocks) {
    if blocks.is_one() {
        // SAFETY: by the caller.
        return unsafe { access::copy(from, to, blocks.count * blocks.bytes) };
    }
    for i in 0..blocks.count {
        // SAFETY: by the caller.
        unsafe {
            access::copy(
                from.add(i * blocks.source_stride),
                to.add(i * blocks.dest_stride),
                blocks.bytes,
            );
        }
    }
}

impl Ctx {
    /// # Safety
    /// As for [`put_blocks`].
    #[cold]
    unsafe fn put_blocks_far(
        &self,
        source: *const u8,
        dest: SymAddr,
        mut blocks: Blocks,
        pe: usize,
        completion: Completion,
    ) {
        let whole = blocks.count * blocks.bytes;
        if blocks.is_one() {
            // SAFETY: by the caller.
            return unsafe { self.put_bytes(dest, source, whole, pe, completion) };
        }
        if blocks.dest_stride == blocks.bytes && blocks.bytes <= STAGE / 2 {
            let mut stage = [MaybeUninit::<u8>::uninit(); STAGE];
            let stage = stage.as_mut_ptr().cast::<u8>();
            let (mut source, mut dest, per) = (source, dest, STAGE / blocks.bytes);
            while blocks.count > 0 {
                let count = blocks.count.min(per);
                let packed = Blocks { count, ..blocks };
                // SAFETY: the source by the caller; the stage has room for `per` blocks.
                unsafe {
                    copy_blocks(source, stage, packed);
                    self.put_bytes(dest, stage, count * blocks.bytes, pe, OnReturn);
                }
                source = source.wrapping_add(count * blocks.source_stride);
                dest = dest.at(count * blocks.bytes);
                blocks = blocks.without(count);
            }
            return;
        }
        // All together, and the device is told of many at once.
        let (rt, far, each) = (self.rt(), self.in_job(pe), completion.behind_others());
        let mut kept = false;
        for i in 0..blocks.count {
            let (from, to) = (i * blocks.source_stride, i * blocks.dest_stride);
            // SAFETY: by the caller; what is not copied at once is waited for below.
            kept |= unsafe {
                rt.put_far(
                    self.stream(),
                    dest.at(to),
                    source.add(from),
                    blocks.bytes,
                    far,
                    each,
                )
            };
        }
        if kept && each != completion {
            self.release_sources_towards(rt, far);
        }
    }

    /// # Safety
    /// As for [`get_blocks`].
    #[cold]
    unsafe fn get_blocks_far(
        &self,
        dest: *mut u8,
        source: SymAddr,
        mut blocks: Blocks,
        pe: usize,
        completion: Completion,
    ) {
        let whole = blocks.count * blocks.bytes;
        if blocks.is_one() {
            // SAFETY: by the caller.
            return unsafe { self.get_bytes(dest, source, whole, pe, completion) };
        }
        let gap = blocks.source_stride - blocks.bytes;
        if gap <= GAP && blocks.bytes + blocks.source_stride <= READ {
            let span = (blocks.count - 1) * blocks.source_stride + blocks.bytes;
            let mut stage = Vec::<u8>::with_capacity(span.min(READ));
            let stage = stage.as_mut_ptr();
            let (mut dest, mut source) = (dest, source);
            let per = (READ - blocks.bytes) / blocks.source_stride + 1;
            while blocks.count > 0 {
                let count = blocks.count.min(per);
                let span = (count - 1) * blocks.source_stride + blocks.bytes;
                let read = Blocks { count, ..blocks };
                // SAFETY: `span` fits into the stage, and what it covers lies between the first and
                // the last byte of the source; the destination by the caller.
                unsafe {
                    self.get_bytes(stage, source, span, pe, OnReturn);
                    copy_blocks(stage, dest, read);
                }
                source = source.at(count * blocks.source_stride);
                dest = dest.wrapping_add(count * blocks.dest_stride);
                blocks = blocks.without(count);
            }
            return;
        }
        for i in 0..blocks.count {
            let (from, to) = (i * blocks.source_stride, i * blocks.dest_stride);
            // SAFETY: by the caller; all are waited for below, or by quiet.
            unsafe { self.get_bytes(dest.add(to), source.at(from), blocks.bytes, pe, AtQuiet) };
        }
        if completion != AtQuiet {
            self.pe_quiet([pe]);
        }
    }
}

/// Copies blocks to `dest` of PE `pe` of the context. The source may be reused at `completion`.
///
/// # Safety
/// All blocks of the source are readable until `completion`, and all of `dest` lie inside a symmetric
/// object.
///
/// # Panics
/// If there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_iput`, `shmem_ibput`.
#[inline]
#[track_caller]
pub unsafe fn put_blocks(
    ctx: &Ctx,
    dest: SymAddr,
    source: *const u8,
    blocks: Blocks,
    pe: usize,
    completion: Completion,
) {
    let call = move |pe| RecordedCall::on(Routine::Iput, pe, blocks.count * blocks.bytes, dest);
    operate!(ctx, pe, [dest], call, {
        Near(to) => {
            // SAFETY: by the caller; the target is mapped.
            unsafe { copy_blocks(source, to.at(), blocks) };
            to.ring();
        },
        Far(_rt, _far) => match blocks.count * blocks.bytes {
            0 => {}
            // SAFETY: by the caller.
            _ => unsafe { ctx.put_blocks_far(source, dest, blocks, pe, completion) },
        },
    });
}

/// [`put_blocks`], then updates a signal there, which no block overlaps: a PE that sees the signal sees the blocks.
///
/// # Safety
/// As for [`put_blocks`].
///
/// # Panics
/// If the signal's address is no multiple of 8, or there is no such PE.
#[inline]
#[track_caller]
pub(crate) unsafe fn put_blocks_signal(
    ctx: &Ctx,
    dest: SymAddr,
    source: *const u8,
    blocks: Blocks,
    signal: Signal,
    pe: usize,
    completion: Completion,
) {
    signal.check();
    let rt = ctx.rt();
    let begun = rt.call_begins();
    // SAFETY: by the caller.
    unsafe { put_blocks(ctx, dest, source, blocks, pe, completion) };
    ctx.signal(signal, pe);
    rt.call_ends(begun, || {
        let bytes = blocks.count * blocks.bytes;
        RecordedCall::on(Routine::Iput, ctx.in_job(pe), bytes, signal.at)
    });
}

/// Copies blocks of `source` of PE `pe` of the context here. They are here at `completion`, or earlier: where
/// gaps are read, too, they are on return.
///
/// # Safety
/// All blocks of `dest` are writable until `completion`, and nobody looks at them before; all of the source
/// lie inside a symmetric object.
///
/// # Panics
/// If there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_iget`, `shmem_ibget`.
#[inline]
#[track_caller]
pub unsafe fn get_blocks(
    ctx: &Ctx,
    dest: *mut u8,
    source: SymAddr,
    blocks: Blocks,
    pe: usize,
    completion: Completion,
) {
    let call = move |pe| RecordedCall::on(Routine::Iget, pe, blocks.count * blocks.bytes, source);
    operate!(ctx, pe, [source], call, {
        // SAFETY: by the caller; the source is mapped.
        Near(from) => unsafe { copy_blocks(from.at(), dest, blocks) },
        Far(_rt, _far) => match blocks.count * blocks.bytes {
            0 => {}
            // SAFETY: by the caller.
            _ => unsafe { ctx.get_blocks_far(dest, source, blocks, pe, completion) },
        },
    });
}
