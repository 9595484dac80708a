//! The XRC domains that an HCA has open.

#![forbid(unsafe_code)]

use hashbrown::HashMap;

use super::domain::{Domain, FileId};
use shmem_verbs::provider::{MAX_SLOTS, Slots};
use shmem_verbs::{Access, Mr, Rkey, Srq, SrqNum, VerbsError, Xrcd};

#[derive(Debug)]
struct Open {
    domain: Box<dyn Domain>,
    /// Opening the same file again gives the same domain.
    file: Option<FileId>,
    opened: u32,
    targets: u32,
    srqs: HashMap<SrqNum, Srq>,
}

/// All open domains of one HCA.
#[derive(Debug, Default)]
pub(crate) struct DomainTable(Slots<Open>);

impl DomainTable {
    /// Opens once more the domain of a file that is open already.
    pub(crate) fn reopen(&mut self, file: FileId) -> Option<Xrcd> {
        let same = |(_, open): &(u32, &mut Open)| open.file == Some(file);
        let (number, open) = self.0.iter_numbered().find(same)?;
        open.opened += 1;
        Some(Xrcd(number))
    }

    /// Opens a domain: that of `file`, or a private one.
    pub(crate) fn open(
        &mut self,
        domain: Box<dyn Domain>,
        file: Option<FileId>,
    ) -> Result<Xrcd, VerbsError> {
        let open = Open {
            domain,
            file,
            opened: 1,
            targets: 0,
            srqs: HashMap::new(),
        };
        let (what, limit) = ("XRC domains", MAX_SLOTS);
        let number = self.0.insert(open);
        number
            .map(Xrcd)
            .ok_or(VerbsError::Exhausted { what, limit })
    }

    /// Closes a domain as often as it was opened.
    pub(crate) fn close(&mut self, xrcd: Xrcd) -> Result<(), VerbsError> {
        let open = self.find(xrcd)?;
        if open.opened > 1 {
            open.opened -= 1;
            return Ok(());
        }
        if open.targets > 0 || !open.srqs.is_empty() {
            let what = "an XRC domain";
            return Err(VerbsError::Busy { what });
        }
        self.0.remove(xrcd.0);
        Ok(())
    }

    fn find(&mut self, xrcd: Xrcd) -> Result<&mut Open, VerbsError> {
        self.0.get_mut(xrcd.0).ok_or(VerbsError::NoSuchXrcd(xrcd))
    }

    /// The domain, for a target queue pair.
    pub(crate) fn get(&self, xrcd: Xrcd) -> Option<&dyn Domain> {
        self.0.get(xrcd.0).map(|open| &*open.domain)
    }

    /// The receive queue of this process that a packet names.
    pub(crate) fn srq(&self, xrcd: Xrcd, srqn: SrqNum) -> Option<Srq> {
        self.0.get(xrcd.0)?.srqs.get(&srqn).copied()
    }

    /// A target is created in a domain.
    pub(crate) fn add_target(&mut self, xrcd: Xrcd) -> Result<(), VerbsError> {
        self.find(xrcd)?.targets += 1;
        Ok(())
    }

    /// A target is destroyed.
    pub(crate) fn remove_target(&mut self, xrcd: Xrcd) {
        if let Some(open) = self.0.get_mut(xrcd.0) {
            open.targets -= 1;
        }
    }

    pub(crate) fn check(&self, xrcd: Xrcd) -> Result<(), VerbsError> {
        match self.get(xrcd) {
            Some(_) => Ok(()),
            None => Err(VerbsError::NoSuchXrcd(xrcd)),
        }
    }

    /// Gives a receive queue its number.
    pub(crate) fn add_srq(&mut self, xrcd: Xrcd, srq: Srq) -> Result<SrqNum, VerbsError> {
        let open = self.find(xrcd)?;
        let srqn = open.domain.add_srq()?;
        open.srqs.insert(srqn, srq);
        Ok(srqn)
    }

    /// Takes the number of a receive queue back.
    pub(crate) fn remove_srq(&mut self, xrcd: Xrcd, srqn: SrqNum) {
        if let Some(open) = self.0.get_mut(xrcd.0) {
            open.srqs.remove(&srqn);
            open.domain.remove_srq(srqn);
        }
    }

    /// Lists a region in all domains, or in none.
    pub(crate) fn publish(&mut self, mr: &Mr, access: Access) -> Result<(), VerbsError> {
        let refused = self
            .0
            .iter_mut()
            .find_map(|open| open.domain.publish(mr, access).err());
        match refused {
            None => Ok(()),
            Some(error) => {
                self.withdraw(mr.rkey);
                Err(error)
            }
        }
    }

    /// Takes a region off the lists.
    pub(crate) fn withdraw(&mut self, rkey: Rkey) {
        for open in self.0.iter_mut() {
            open.domain.withdraw(rkey);
        }
    }
}
