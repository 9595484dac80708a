//! The wire format between an NLA and its template: one SOCK_SEQPACKET message each way per batch.
//!
//! ```text
//! spawn   u32 1, u32 count, count x { u32 rank, u32 local, u32 has_stdin }
//!         with descriptors, per PE: stdout, stderr, PMI socket, and stdin if has_stdin
//! finish  u32 2
//! reply   u32 errno (0: all started), u32 count, count x u32 pid
//! ```
//! Numbers are in the machine's byte order: both ends are on one machine.

/// PEs in one message at most. Bounds the descriptors that a template holds at any moment, all of
/// which a fork has to copy.
pub const MAX_BATCH: usize = 32;

/// Bytes that hold any message.
pub const MAX_MESSAGE: usize = 8 + 12 * MAX_BATCH;

/// One PE to start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PeSpec {
    /// Rank in the job.
    pub rank: u32,
    /// Position on the node.
    pub local: u32,
    /// Whether a descriptor for standard input comes with it; otherwise it is empty.
    pub has_stdin: bool,
}

impl PeSpec {
    /// Descriptors that come with this PE.
    pub fn fd_count(&self) -> usize {
        3 + usize::from(self.has_stdin)
    }
}

/// What the NLA asks for.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// Start these PEs.
    Spawn(Vec<PeSpec>),
    /// No more will come: exit.
    Finish,
}

/// What the template answers.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Spawned {
    /// Why the PE after the last pid could not be started, or 0.
    pub errno: i32,
    /// Process ids in the order of the request.
    pub pids: Vec<i32>,
}

/// A message that does not follow the format.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("malformed message of {0} bytes between launch agent and template")]
pub struct Malformed(pub usize);

fn words(bytes: &[u8]) -> Result<impl Iterator<Item = u32> + Clone + '_, Malformed> {
    if !bytes.len().is_multiple_of(4) || bytes.len() > MAX_MESSAGE {
        return Err(Malformed(bytes.len()));
    }
    Ok(bytes
        .chunks_exact(4)
        .map(|w| u32::from_ne_bytes([w[0], w[1], w[2], w[3]])))
}

fn pack(words: impl IntoIterator<Item = u32>) -> Vec<u8> {
    words.into_iter().flat_map(u32::to_ne_bytes).collect()
}

impl Request {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Self::Finish => pack([2]),
            Self::Spawn(pes) => pack(
                [1, pes.len() as u32].into_iter().chain(
                    pes.iter()
                        .flat_map(|p| [p.rank, p.local, u32::from(p.has_stdin)]),
                ),
            ),
        }
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If the bytes are no request.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bad = Malformed(bytes.len());
        let mut words = words(bytes)?;
        match words.next() {
            Some(2) if bytes.len() == 4 => Ok(Self::Finish),
            Some(1) => {
                let count = words.next().ok_or(bad)? as usize;
                if count > MAX_BATCH || bytes.len() != 8 + 12 * count {
                    return Err(bad);
                }
                let mut next = || words.next().ok_or(bad);
                (0..count)
                    .map(|_| {
                        Ok(PeSpec {
                            rank: next()?,
                            local: next()?,
                            has_stdin: next()? != 0,
                        })
                    })
                    .collect::<Result<_, _>>()
                    .map(Self::Spawn)
            }
            _ => Err(bad),
        }
    }
}

impl Spawned {
    /// The message's bytes.
    pub fn encode(&self) -> Vec<u8> {
        let head = [self.errno as u32, self.pids.len() as u32];
        pack(head.into_iter().chain(self.pids.iter().map(|&p| p as u32)))
    }

    /// Reads a message.
    ///
    /// # Errors
    /// If the bytes are no reply.
    pub fn decode(bytes: &[u8]) -> Result<Self, Malformed> {
        let bad = Malformed(bytes.len());
        let mut words = words(bytes)?;
        let errno = words.next().ok_or(bad)? as i32;
        let count = words.next().ok_or(bad)? as usize;
        if count > MAX_BATCH || bytes.len() != 8 + 4 * count {
            return Err(bad);
        }
        Ok(Self {
            errno,
            pids: words.map(|w| w as i32).collect(),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn spec() -> impl Strategy<Value = PeSpec> {
        any::<(u32, u32, bool)>().prop_map(|(rank, local, has_stdin)| PeSpec {
            rank,
            local,
            has_stdin,
        })
    }

    proptest! {
        #[test]
        fn requests_round_trip(pes in prop::collection::vec(spec(), 0..=MAX_BATCH)) {
            let request = Request::Spawn(pes);
            prop_assert_eq!(Request::decode(&request.encode()), Ok(request));
        }

        #[test]
        fn replies_round_trip(errno in 0..200, pids in prop::collection::vec(1i32.., 0..=MAX_BATCH)) {
            let reply = Spawned { errno, pids };
            prop_assert_eq!(Spawned::decode(&reply.encode()), Ok(reply));
        }

        #[test]
        fn garbage_is_refused_without_panic(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
            let _ = (Request::decode(&bytes), Spawned::decode(&bytes));
        }
    }

    #[test]
    fn finish_round_trips() {
        assert_eq!(
            Request::decode(&Request::Finish.encode()),
            Ok(Request::Finish)
        );
    }
}
