//! Names of services: what PEs publish, so that PEs of other jobs may find them. The launcher keeps
//! them for its job and for all that were spawned from it; those of a job go when the job ends.
//!
//! Terms and texts are those of PMI (`PMI_Publish_name`, `PMI_Lookup_name`, `PMI_Unpublish_name`).

use std::collections::HashMap;

use shmem_pmi::question::{Answer, NAME_TAKEN, NO_SUCH_NAME};

/// Most names at a time.
pub const MAX_NAMES: usize = 1 << 16;

/// Most bytes of all names and ports together.
pub const MAX_BYTES: usize = 16 << 20;

/// Return code of a name that is there already, or is not there.
const FAIL: i32 = 1;

#[derive(Debug)]
struct Entry {
    port: Vec<u8>,
    job: u32,
}

/// All names.
#[derive(Debug, Default)]
pub struct Names {
    entries: HashMap<Vec<u8>, Entry>,
    bytes: usize,
}

fn refused(reason: &str) -> Answer {
    Answer::Refused {
        rc: FAIL,
        reason: reason.to_owned(),
    }
}

impl Names {
    /// Publishes a name for job number `job`. A name that is taken stays as it is.
    pub fn publish(&mut self, job: u32, name: Vec<u8>, port: Vec<u8>) -> Answer {
        if self.entries.contains_key(&name) {
            return refused(NAME_TAKEN);
        }
        let bytes = name.len() + port.len();
        if self.entries.len() >= MAX_NAMES || self.bytes + bytes > MAX_BYTES {
            return refused("no room for more published names");
        }
        self.bytes += bytes;
        self.entries.insert(name, Entry { port, job });
        Answer::Done
    }

    /// The port of a name.
    pub fn lookup(&self, name: &[u8]) -> Answer {
        let entry = self.entries.get(name);
        entry.map_or_else(
            || refused(NO_SUCH_NAME),
            |entry| Answer::Port(entry.port.clone()),
        )
    }

    /// Takes a name back. Any job may, as with other process managers.
    pub fn unpublish(&mut self, name: &[u8]) -> Answer {
        match self.entries.remove(name) {
            Some(entry) => {
                self.bytes -= name.len() + entry.port.len();
                Answer::Done
            }
            None => refused(NO_SUCH_NAME),
        }
    }

    /// Takes back whatever a job has published.
    pub fn forget(&mut self, job: u32) {
        let bytes = &mut self.bytes;
        self.entries.retain(|name, entry| {
            let stays = entry.job != job;
            if !stays {
                *bytes -= name.len() + entry.port.len();
            }
            stays
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_unique_and_go_with_their_job() {
        let mut names = Names::default();
        let publish = |names: &mut Names, job, name: &str| {
            names.publish(job, name.into(), format!("port of {name}").into())
        };
        assert_eq!(publish(&mut names, 0, "a"), Answer::Done);
        assert_eq!(publish(&mut names, 1, "b"), Answer::Done);
        assert_eq!(publish(&mut names, 1, "a"), refused(NAME_TAKEN));
        assert_eq!(names.lookup(b"a"), Answer::Port(b"port of a".to_vec()));
        names.forget(0);
        assert_eq!(names.lookup(b"a"), refused(NO_SUCH_NAME));
        assert_eq!(names.lookup(b"b"), Answer::Port(b"port of b".to_vec()));
        assert_eq!(names.unpublish(b"b"), Answer::Done);
        assert_eq!(names.unpublish(b"b"), refused(NO_SUCH_NAME));
        assert_eq!((names.entries.len(), names.bytes), (0, 0));
    }

    #[test]
    fn names_are_bounded_in_number_and_bytes() {
        let mut names = Names::default();
        for i in 0..MAX_NAMES as u32 {
            let name = i.to_le_bytes().to_vec();
            assert_eq!(names.publish(0, name, Vec::new()), Answer::Done);
        }
        assert_ne!(names.publish(0, b"one more".to_vec(), vec![]), Answer::Done);
        names.forget(0);
        let large = vec![0; MAX_BYTES / 2];
        assert_eq!(names.publish(0, vec![1], large.clone()), Answer::Done);
        assert_ne!(names.publish(0, vec![2], large), Answer::Done);
        assert_eq!(names.publish(0, vec![2], vec![0; 64]), Answer::Done);
    }
}
