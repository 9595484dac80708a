//! Memory of a simulated process: a vector at a made-up address.

#![forbid(unsafe_code)]

use super::mr::Memory;

/// `len` bytes which begin at virtual address `base`.
#[derive(Clone, Debug)]
pub struct VecMemory {
    base: u64,
    bytes: Vec<u8>,
}

impl VecMemory {
    /// Zeroed memory.
    #[must_use]
    pub fn new(base: u64, len: usize) -> Self {
        Self {
            base,
            bytes: vec![0; len],
        }
    }

    /// Address of the first byte.
    #[must_use]
    pub const fn base(&self) -> u64 {
        self.base
    }

    /// The bytes.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, to be written by the process itself.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }

    fn slice(&mut self, addr: u64, len: usize) -> &mut [u8] {
        let start = (addr - self.base) as usize;
        &mut self.bytes[start..start + len]
    }

    fn word(&mut self, addr: u64) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(self.slice(addr, 8));
        u64::from_ne_bytes(word)
    }
}

impl Memory for VecMemory {
    fn read(&mut self, addr: u64, out: &mut [u8]) {
        out.copy_from_slice(self.slice(addr, out.len()));
    }

    fn write(&mut self, addr: u64, data: &[u8]) {
        self.slice(addr, data.len()).copy_from_slice(data);
    }

    fn fetch_add(&mut self, addr: u64, add: u64) -> u64 {
        let old = self.word(addr);
        self.write(addr, &old.wrapping_add(add).to_ne_bytes());
        old
    }

    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> u64 {
        let old = self.word(addr);
        if old == compare {
            self.write(addr, &swap.to_ne_bytes());
        }
        old
    }
}
