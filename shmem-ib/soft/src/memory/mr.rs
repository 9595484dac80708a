//! Memory regions: which keys cover which bytes with which rights.

#![forbid(unsafe_code)]

use hashbrown::HashMap;

use crate::secrets::Secrets;
use shmem_verbs::provider::checks::check_registration;
use shmem_verbs::{Access, Lkey, Mr, MrHandle, Rkey, VerbsError};

/// The memory that regions lie in, addressed by virtual addresses.
///
/// The engine calls these only for ranges that a live registration covers with the right
/// needed. Words of 4 and 8 bytes at their natural alignment are accessed as one.
pub trait Memory {
    /// Copies memory to `out`.
    fn read(&mut self, addr: u64, out: &mut [u8]);
    /// Copies `data` to memory. What earlier calls wrote is visible before this.
    fn write(&mut self, addr: u64, data: &[u8]);
    /// Adds to the word at `addr`, which is aligned to 8, and returns its old value.
    fn fetch_add(&mut self, addr: u64, add: u64) -> u64;
    /// Replaces the word at `addr`, aligned to 8, if it is `compare`; returns the old value.
    fn compare_swap(&mut self, addr: u64, compare: u64, swap: u64) -> u64;
}

/// A registration.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Region {
    addr: u64,
    len: u64,
    access: Access,
}

impl Region {
    fn new(addr: u64, len: u64, access: Access) -> Result<Self, VerbsError> {
        check_registration(addr, len, access)?;
        Ok(Self { addr, len, access })
    }

    const fn mr(&self, key: u32) -> Mr {
        Mr {
            handle: MrHandle(key),
            addr: self.addr,
            len: self.len,
            lkey: Lkey(key),
            rkey: Rkey(key),
        }
    }
}

/// All registrations of one HCA.
#[derive(Debug)]
pub(crate) struct MrTable {
    regions: HashMap<u32, Region>,
    secrets: Secrets,
}

impl MrTable {
    /// `secret` decides the keys.
    pub(crate) fn new(secret: impl Into<Secrets>) -> Self {
        Self {
            regions: HashMap::new(),
            secrets: secret.into(),
        }
    }

    /// Keys are another secret's from now on.
    pub(crate) fn set_secret(&mut self, secret: Secrets) {
        self.secrets = secret;
    }

    /// Registers a range under a new random key: a peer that was not told cannot guess it.
    pub(crate) fn register(
        &mut self,
        addr: u64,
        len: u64,
        access: Access,
    ) -> Result<Mr, VerbsError> {
        let region = Region::new(addr, len, access)?;
        let key = self.new_key();
        self.regions.insert(key, region);
        Ok(region.mr(key))
    }

    fn new_key(&mut self) -> u32 {
        loop {
            let key = self.secrets.next_u32();
            if key != 0 && !self.regions.contains_key(&key) {
                return key;
            }
        }
    }

    /// All registrations.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Mr, Access)> {
        let regions = self.regions.iter();
        regions.map(|(key, region)| (region.mr(*key), region.access))
    }

    /// Ends a registration.
    pub(crate) fn deregister(&mut self, handle: MrHandle) -> Result<(), VerbsError> {
        match self.regions.remove(&handle.0) {
            Some(_) => Ok(()),
            None => Err(VerbsError::NoSuchMr(handle.0)),
        }
    }

    /// Whether `key` covers the range with all rights of `need`.
    pub(crate) fn covers(&self, key: u32, addr: u64, len: u64, need: Access) -> bool {
        let Some(region) = self.regions.get(&key) else {
            return false;
        };
        let Some(offset) = addr.checked_sub(region.addr) else {
            return false;
        };
        region.access.contains(need) && offset <= region.len && len <= region.len - offset
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_and_rights_are_exact() {
        let mut table = MrTable::new(1);
        let mr = table
            .register(1000, 100, Access::LOCAL_WRITE | Access::REMOTE_READ)
            .unwrap();
        let ok = |addr, len, need| table.covers(mr.rkey.0, addr, len, need);
        assert!(ok(1000, 100, Access::REMOTE_READ));
        assert!(ok(1100, 0, Access::REMOTE_READ));
        assert!(!ok(1000, 101, Access::REMOTE_READ));
        assert!(!ok(999, 1, Access::REMOTE_READ));
        assert!(!ok(1099, 2, Access::REMOTE_READ));
        assert!(!ok(1001, u64::MAX, Access::REMOTE_READ));
        assert!(!ok(1000, 1, Access::REMOTE_WRITE));
        assert!(!table.covers(mr.rkey.0 ^ 1, 1000, 1, Access::NONE));
        table.deregister(mr.handle).unwrap();
        assert!(!table.covers(mr.rkey.0, 1000, 1, Access::NONE));
        assert!(matches!(
            table.deregister(mr.handle),
            Err(VerbsError::NoSuchMr(_))
        ));
    }

    #[test]
    fn senseless_registrations_are_refused() {
        let mut table = MrTable::new(1);
        for (addr, len, access) in [
            (1, 0, Access::NONE),
            (u64::MAX, 2, Access::NONE),
            (1, 1, Access::REMOTE_WRITE),
        ] {
            let got = table.register(addr, len, access);
            assert!(
                matches!(got, Err(VerbsError::BadRegistration { .. })),
                "{got:?}"
            );
        }
    }
}
