//! A process in a domain: what it has listed in the table, and the waiting that ends a region.

#![forbid(unsafe_code)]

use std::collections::BTreeSet;
use std::time::{Duration, Instant};

use super::domain::{Domain, Reach, SrqOwner};
use super::sizes::{MEMBERS, REGIONS, SRQS};
use super::table::{Region, Table, Words};
use super::window::SharedWindow;
use shmem_verbs::{Access, Mr, Rkey, SrqNum, VerbsError};

/// How long the end of a region waits for a process that is in the middle of an access. Such a
/// process needs microseconds, unless it was stopped or killed there.
const PATIENCE: Duration = Duration::from_secs(1);

/// Membership in a domain whose table lies in `W`.
#[derive(Debug)]
pub struct Member<W: Words> {
    words: W,
    me: usize,
    window: SharedWindow,
    srqs: BTreeSet<SrqNum>,
    regions: BTreeSet<Rkey>,
}

impl<W: Words> Member<W> {
    /// Joins. `Ok(None)`: the words hold something else than a table.
    ///
    /// # Errors
    /// The domain is full.
    pub fn join(words: W, window: SharedWindow) -> Result<Option<Self>, VerbsError> {
        let Some(table) = Table::on(words.words()) else {
            return Ok(None);
        };
        let me = table.join().ok_or(VerbsError::Exhausted {
            what: "processes in an XRC domain",
            limit: MEMBERS as u32,
        })?;
        Ok(Some(Self {
            words,
            me,
            window,
            srqs: BTreeSet::new(),
            regions: BTreeSet::new(),
        }))
    }

    fn table(&self) -> Table<'_> {
        Table::known(self.words.words())
    }
}

impl<W: Words> Domain for Member<W> {
    fn add_srq(&mut self) -> Result<SrqNum, VerbsError> {
        let srqn = self.table().add_srq(self.me).ok_or(VerbsError::Exhausted {
            what: "receive queues in an XRC domain",
            limit: SRQS as u32,
        })?;
        self.srqs.insert(srqn);
        Ok(srqn)
    }

    fn remove_srq(&mut self, srqn: SrqNum) {
        if self.srqs.remove(&srqn) {
            self.table().remove_srq(self.me, srqn);
        }
    }

    fn owner(&self, srqn: SrqNum) -> SrqOwner {
        match self.table().owner(srqn) {
            Some(owner) if owner == self.me => SrqOwner::Here,
            Some(_) => SrqOwner::Elsewhere,
            None => SrqOwner::Nobody,
        }
    }

    fn publish(&mut self, mr: &Mr, access: Access) -> Result<(), VerbsError> {
        let Some(offset) = self.window.offset(mr.addr, mr.len) else {
            return Ok(());
        };
        let region = Region {
            rkey: mr.rkey,
            access,
            va: mr.addr,
            len: mr.len,
            offset,
        };
        if !self.table().publish(self.me, &region) {
            return Err(VerbsError::Exhausted {
                what: "regions that a process lists in an XRC domain",
                limit: REGIONS as u32,
            });
        }
        self.regions.insert(mr.rkey);
        Ok(())
    }

    fn withdraw(&mut self, rkey: Rkey) {
        if !self.regions.remove(&rkey) || !self.table().withdraw(self.me, rkey) {
            return;
        }
        let start = Instant::now();
        let table = self.table();
        for (member, turns) in table.accessing().filter(|(m, _)| *m != self.me) {
            while !table.has_moved_on(member, turns) && start.elapsed() < PATIENCE {
                std::thread::yield_now();
            }
        }
    }

    fn enter(&self) {
        self.table().enter(self.me);
    }

    fn exit(&self) {
        self.table().exit(self.me);
    }

    fn resolve(&self, srqn: SrqNum, reach: &Reach) -> Option<u64> {
        self.window
            .address(self.table().resolve(srqn, reach)?, reach.len)
    }
}

impl<W: Words> Drop for Member<W> {
    fn drop(&mut self) {
        for rkey in self.regions.clone() {
            self.withdraw(rkey);
        }
        for srqn in self.srqs.clone() {
            self.remove_srq(srqn);
        }
        self.table().exit(self.me);
        self.table().leave(self.me);
    }
}

/// A domain of this process alone.
#[derive(Debug, Default)]
pub struct Private {
    srqs: BTreeSet<SrqNum>,
    last: u32,
}

impl Domain for Private {
    fn add_srq(&mut self) -> Result<SrqNum, VerbsError> {
        if self.srqs.len() >= SRQS {
            return Err(VerbsError::Exhausted {
                what: "receive queues in an XRC domain",
                limit: SRQS as u32,
            });
        }
        loop {
            self.last = self.last % shmem_verbs::Psn::MASK + 1;
            if self.srqs.insert(SrqNum(self.last)) {
                return Ok(SrqNum(self.last));
            }
        }
    }

    fn remove_srq(&mut self, srqn: SrqNum) {
        self.srqs.remove(&srqn);
    }

    fn owner(&self, srqn: SrqNum) -> SrqOwner {
        match self.srqs.contains(&srqn) {
            true => SrqOwner::Here,
            false => SrqOwner::Nobody,
        }
    }

    fn publish(&mut self, _mr: &Mr, _access: Access) -> Result<(), VerbsError> {
        Ok(())
    }

    fn withdraw(&mut self, _rkey: Rkey) {}

    fn enter(&self) {}

    fn exit(&self) {}

    fn resolve(&self, _srqn: SrqNum, _reach: &Reach) -> Option<u64> {
        None
    }
}
