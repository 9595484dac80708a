//! The `Job` frame: what a launcher tells the one that it starts for a job which a PE has spawned. All
//! else, such as nodes and options, stands on that one's command line.

use shmem_pmi::question::{Question, SpawnRequest};

use super::codec::{self, CodecError};

/// A job that a PE has spawned.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SpawnedJob {
    /// Counts the spawned jobs from 1: its name in messages and labels.
    pub number: u32,
    /// Id of the job of the PE.
    pub spawner: String,
    /// What the PE asked for.
    pub request: SpawnRequest,
}

impl SpawnedJob {
    /// The body of the frame.
    pub fn encode(&self) -> Vec<u8> {
        let question = Question::Spawn(self.request.clone()).encode();
        codec::encode_first(&(self.number, &self.spawner, question))
    }

    /// Reads the body of the frame.
    ///
    /// # Errors
    /// When the bytes come from another version or describe no job.
    pub fn decode(body: &[u8]) -> Result<Self, CodecError> {
        let (number, spawner, question): (u32, String, &[u8]) = codec::decode_first(body)?;
        match Question::decode(question) {
            Ok(Question::Spawn(request)) => Ok(Self {
                number,
                spawner,
                request,
            }),
            _ => Err(CodecError::Value {
                what: "description of job",
                value: number.into(),
            }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use shmem_pmi::question::SpawnCommand;

    proptest! {
        #[test]
        fn spawned_jobs_round_trip(
            number: u32, spawner: String, program: Vec<u8>, args: Vec<Vec<u8>>, procs: u32,
            info: Vec<(Vec<u8>, Vec<u8>)>, cut: usize, garbage: Vec<u8>,
        ) {
            let command = SpawnCommand { program, args, procs, info: info.clone() };
            let request = SpawnRequest { commands: vec![command], preputs: info };
            let job = SpawnedJob { number, spawner, request };
            let bytes = job.encode();
            prop_assert!(SpawnedJob::decode(&bytes[..cut % bytes.len()]).is_err());
            prop_assert_eq!(SpawnedJob::decode(&bytes), Ok(job));
            let _ = SpawnedJob::decode(&garbage);
        }
    }
}
