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
    /// A peer has invalidated its key.
    invalid: bool,
}

impl Region {
    fn new(addr: u64, len: u64, access: Access) -> Result<Self, VerbsError> {
        check_registration(addr, len, access)?;
        Ok(Self {
            addr,
            len,
            access,
            invalid: false,
        })
    }

    /// Its rights.
    pub(crate) const fn access(&self) -> Access {
        self.access
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

    /// Changes a registration. It keeps its key if everything that the key allowed is still
    /// allowed; otherwise it gets a new one, so that peers who know the old range or the old rights
    /// are told no.
    pub(crate) fn reregister(
        &mut self,
        handle: MrHandle,
        range: Option<(u64, u64)>,
        access: Option<Access>,
    ) -> Result<Mr, VerbsError> {
        let old = self.regions.get(&handle.0);
        let old = *old.ok_or(VerbsError::NoSuchMr(handle.0))?;
        let (addr, len) = range.unwrap_or((old.addr, old.len));
        let new = Region::new(addr, len, access.unwrap_or(old.access))?;
        let grows =
            addr <= old.addr && addr + len >= old.addr + old.len && new.access.contains(old.access);
        let key = match grows && !old.invalid {
            true => handle.0,
            false => self.new_key(),
        };
        self.regions.remove(&handle.0);
        self.regions.insert(key, new);
        Ok(new.mr(key))
    }

    /// A registration as it is, for [`MrTable::put_back`].
    pub(crate) fn get(&self, handle: MrHandle) -> Option<Region> {
        self.regions.get(&handle.0).copied()
    }

    /// Undoes a change.
    pub(crate) fn put_back(&mut self, changed: MrHandle, old: MrHandle, region: Region) {
        self.regions.remove(&changed.0);
        self.regions.insert(old.0, region);
    }

    /// All registrations whose keys are valid.
    pub(crate) fn all(&self) -> impl Iterator<Item = (Mr, Access)> {
        let valid = self.regions.iter().filter(|(_, region)| !region.invalid);
        valid.map(|(key, region)| (region.mr(*key), region.access))
    }

    /// Ends a registration.
    pub(crate) fn deregister(&mut self, handle: MrHandle) -> Result<(), VerbsError> {
        match self.regions.remove(&handle.0) {
            Some(_) => Ok(()),
            None => Err(VerbsError::NoSuchMr(handle.0)),
        }
    }

    /// Makes a key useless, as a peer asked over a queue pair with `rights`; returns whether there was
    /// such a key, and the peer has any use for it: what it may not touch it may not take from others. The
    /// registration itself stays until its owner ends it.
    pub(crate) fn invalidate(&mut self, rkey: Rkey, rights: Access) -> bool {
        match self.regions.get_mut(&rkey.0) {
            Some(region) if !region.invalid && region.access.shares_remote(rights) => {
                region.invalid = true;
                true
            }
            _ => false,
        }
    }

    /// Whether `key` covers the range with all rights of `need`.
    pub(crate) fn covers(&self, key: u32, addr: u64, len: u64, need: Access) -> bool {
        let Some(region) = self.regions.get(&key).filter(|r| !r.invalid) else {
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
    fn a_key_outlives_a_change_that_takes_nothing_away() {
        let mut table = MrTable::new(1);
        let read = Access::LOCAL_WRITE | Access::REMOTE_READ;
        let mr = table.register(1000, 100, read).unwrap();
        let more = read | Access::REMOTE_WRITE;
        let grown = table
            .reregister(mr.handle, Some((900, 300)), Some(more))
            .unwrap();
        assert_eq!(grown.rkey, mr.rkey);
        assert!(table.covers(mr.rkey.0, 900, 300, more));
        let changes = [
            (Some((901, 299)), None),
            (Some((900, 299)), None),
            (None, Some(read)),
        ];
        let mut now = grown;
        for (range, access) in changes {
            let changed = table.reregister(now.handle, range, access).unwrap();
            assert_ne!(changed.rkey, now.rkey, "{range:?} {access:?}");
            assert!(!table.covers(now.rkey.0, 1000, 1, Access::NONE));
            assert!(table.covers(changed.rkey.0, 1000, 1, read));
            // Back to everything, which takes nothing away.
            now = table
                .reregister(changed.handle, Some((900, 300)), Some(more))
                .unwrap();
            assert_eq!(now.rkey, changed.rkey);
        }
        // What is refused changes nothing, and an invalidated key stays invalid.
        assert!(table.reregister(now.handle, Some((1, 0)), None).is_err());
        assert!(table.covers(now.rkey.0, 900, 300, more));
        assert!(table.invalidate(now.rkey, more));
        let fresh = table.reregister(now.handle, None, None).unwrap();
        assert_ne!(fresh.rkey, now.rkey);
        assert!(matches!(
            table.reregister(now.handle, None, None),
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
