//! Puts with a signal.
//!
//! A put with signal updates a word of the target after its data is there, so that a PE that sees the
//! signal sees the data. Over the network data and signal go one behind the other on the same
//! connection, which delivers in order, and nobody waits between them.

use shmem_node::recording::Routine;

use super::{Completion, PUT};
use crate::atomics::Width;
use crate::context::{Ctx, operate, routines};
use crate::datum::Datum;
use crate::heap::access;
use crate::heap::address::SymAddr;
use crate::recording::RecordedCall;
use crate::signal::{Signal, SignalOp};
use crate::symmetric::array::SymSlice;
use crate::symmetric::element::Element;

impl Ctx {
    /// Writes `bytes` bytes to `dest` of `pe`, then updates the signal there.
    ///
    /// # Safety
    /// `source` is readable for so many bytes until `completion`; the target range and the aligned signal
    /// word lie inside the segment.
    #[inline]
    #[track_caller]
    pub(crate) unsafe fn put_signal_bytes(
        &self,
        dest: SymAddr,
        source: *const u8,
        bytes: usize,
        signal: Signal,
        pe: usize,
        completion: Completion,
    ) {
        let call = move |pe| {
            let routine = completion.form(Routine::PutSignal, Routine::PutSignalNbi);
            RecordedCall::on(routine, pe, bytes, signal.at)
        };
        operate!(self, pe, [dest, signal.at], call, {
            Near(to) => {
                let word = to.elsewhere(signal.at.offset());
                // SAFETY: readable by the caller; the target and the word are mapped, and the word is
                // aligned.
                unsafe {
                    access::copy(source, to.at(), bytes);
                    // ORDERING(signal): after the data; the partner is the acquiring load of a wait.
                    word.post(Width::W8, signal.atomic());
                }
            },
            Far(rt, far) => {
                // The signal follows the data at once, and the source, if it was not copied, is waited for
                // behind it.
                let until = completion.behind_others();
                // SAFETY: by the caller; the source is waited for below, or by the caller that asks for it.
                let kept = unsafe { rt.put_far(self.stream(), dest, source, bytes, far, until) };
                self.signal(signal, pe);
                if kept && until != completion {
                    self.release_sources_towards(rt, far);
                }
            }
        });
    }
}

/// Writes `bytes` bytes to `dest` of PE `pe` of the context, then updates a signal there: a PE that sees
/// the signal sees the data. `source` may be reused at `completion`. Without bytes only the signal is
/// updated.
///
/// # Safety
/// `source` is readable for so many bytes until `completion`; `dest` has as many, and does not overlap the
/// signal.
///
/// # Panics
/// If the signal's address is no multiple of 8, or there is no such PE.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_putmem_signal`, `shmem_putmem_signal_nbi`.
#[inline]
#[track_caller]
pub unsafe fn put_signal_mem(
    ctx: &Ctx,
    dest: SymAddr,
    source: *const u8,
    bytes: usize,
    signal: Signal,
    pe: usize,
    completion: Completion,
) {
    signal.check();
    // SAFETY: by the caller; the alignment was checked.
    unsafe { ctx.put_signal_bytes(dest, source, bytes, signal, pe, completion) };
}

routines! {
    /// Copies `source` into the first elements of `dest` on `pe`, then updates `signal` there. A PE that sees the signal
    /// sees this data; other operations are not ordered. With an empty `source` only the signal is updated. `signal` is no
    /// part of `dest`.
    ///
    /// ```
    /// use shmem::{Cmp, SignalOp};
    ///
    /// # fn main() -> Result<(), shmem::Error> {
    /// let _world = shmem::init()?;
    /// let (data, signal) = (shmem::alloc::<f64>(3)?, shmem::alloc::<u64>(1)?);
    /// let right = (shmem::my_pe() + 1) % shmem::n_pes();
    /// shmem::put_signal(data, &[1.0, 2.0, 3.0], signal, 1, SignalOp::Add, right);
    /// shmem::wait_until(signal, Cmp::Ge, 1);
    /// assert_eq!(data.to_vec(), [1.0, 2.0, 3.0]);
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// # Completion
    /// As for [`put`](crate::put).
    ///
    /// # Panics
    /// If `source` is longer than `dest`, `signal` is an array of another number of elements than one, or there is no such PE.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_put_signal`.
    pub fn put_signal<T: Datum>(
        &ctx,
        dest: SymSlice<T>,
        source: &[T],
        signal: impl Element<u64>,
        value: u64,
        op: SignalOp,
        pe: usize,
    ) {
        let (dest, from) = (dest.up_to(source.len(), PUT).addr(), source.as_ptr().cast());
        let signal = Signal { at: signal.one().addr(), value, op };
        // SAFETY: a slice is readable; the handles lie inside the segment.
        unsafe { ctx.put_signal_bytes(dest, from, size_of_val(source), signal, pe, Completion::OnReturn) };
    }
}
