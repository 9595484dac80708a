//! Which memory the processes of an XRC domain share.

/// Memory that every process of an XRC domain maps, from the same file, though perhaps at different
/// addresses.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct SharedWindow {
    base: u64,
    len: u64,
}

impl SharedWindow {
    /// No memory at all: nothing of this process is reached through targets of others, nor the other
    /// way round.
    pub const NONE: Self = Self { base: 0, len: 0 };

    /// Describes `len` bytes at `base`.
    ///
    /// # Safety
    /// They stay mapped, readable and writable, until the HCA that is told of them is dropped. Every
    /// process of a domain gives a mapping of the same bytes, of the same length. As regions that are
    /// registered for remote access, they change at any time: local code must access them through raw
    /// pointers or atomics only.
    #[must_use]
    pub unsafe fn new(base: *mut u8, len: usize) -> Self {
        Self {
            base: base.expose_provenance() as u64,
            len: len as u64,
        }
    }

    /// All memory of this process, for HCAs that live in one process.
    ///
    /// # Safety
    /// All processes of the domains that HCAs with it open are this one.
    #[must_use]
    pub const unsafe fn everything() -> Self {
        Self {
            base: 0,
            len: u64::MAX,
        }
    }

    /// Where a range lies in the window, if it does as a whole.
    pub(super) fn offset(&self, addr: u64, len: u64) -> Option<u64> {
        let offset = addr.checked_sub(self.base)?;
        (offset <= self.len && len <= self.len - offset).then_some(offset)
    }

    /// The address of a range of the window.
    pub(super) fn address(&self, offset: u64, len: u64) -> Option<u64> {
        (offset <= self.len && len <= self.len - offset).then(|| self.base + offset)
    }
}
