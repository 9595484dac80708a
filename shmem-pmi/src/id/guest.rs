//! A process's end of its connection to the host, as a pure machine: bytes in, bytes and news out.

use zerocopy::IntoBytes;

use super::auth::Key;
use super::hello::{
    Challenge, Claim, Forged, Hello, Kind, Nonce, Opener, Proof, Seals, Session, read_ending,
};

/// What came.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum News {
    /// The host has the key, too: to be sent to it.
    Proof(Vec<u8>),
    /// All processes have come: the node of each rank.
    Nodes(Vec<u32>),
    /// Bytes of PMI.
    Pmi(Vec<u8>),
    /// The job ends.
    End { status: i32, why: String },
}

enum Stage {
    /// The host has yet to show that it has the key.
    Greets { came: Vec<u8> },
    /// The host has shown that it has the key.
    Talks { frames: Opener },
}

/// A process that joins.
pub(super) struct Guest {
    key: Key,
    hello: Hello,
    size: usize,
    stage: Stage,
    nodes: Vec<u32>,
    /// For what it sends; taken by who sends.
    seals: Option<Seals>,
}

impl Guest {
    /// Bytes of the host's first answer.
    pub(super) const ANSWER: usize = Challenge::LEN;

    /// How many of them have not come.
    pub(super) fn answer_missing(&self) -> usize {
        match &self.stage {
            Stage::Greets { came } => Challenge::LEN - came.len(),
            Stage::Talks { .. } => 0,
        }
    }

    /// With the bytes to be sent first.
    pub(super) fn new(key: &Key, claim: &Claim, nonce: Nonce) -> (Self, Vec<u8>) {
        let hello = Hello::new(key, claim, nonce);
        let first = hello.as_bytes().to_vec();
        let guest = Self {
            key: key.clone(),
            hello,
            size: claim.size as usize,
            stage: Stage::Greets { came: Vec::new() },
            nodes: Vec::new(),
            seals: None,
        };
        (guest, first)
    }

    /// What seals its frames, once, when the host has the key.
    pub(super) fn take_seals(&mut self) -> Option<Seals> {
        self.seals.take()
    }

    /// Takes in bytes of the host.
    pub(super) fn handle(&mut self, bytes: &[u8]) -> Result<Vec<News>, Forged> {
        let mut news = Vec::new();
        let mut rest = bytes;
        if let Stage::Greets { came } = &mut self.stage {
            let take = rest.len().min(Challenge::LEN - came.len());
            came.extend_from_slice(&rest[..take]);
            rest = &rest[take..];
            if came.len() < Challenge::LEN {
                return Ok(news);
            }
            let challenge = Challenge::read(&self.key, &self.hello, came).ok_or(Forged)?;
            let proof = Proof::new(&self.key, &self.hello, &challenge);
            news.push(News::Proof(proof.as_bytes().to_vec()));
            let Session { up, down } = Session::new(&self.key, &self.hello, &challenge);
            self.seals = Some(up);
            self.stage = Stage::Talks {
                frames: Opener::new(down),
            };
        }
        if let Stage::Talks { frames } = &mut self.stage {
            frames.push(rest);
            while let Some((kind, bytes)) = frames.next()? {
                match kind {
                    Kind::Pmi => news.push(News::Pmi(bytes)),
                    Kind::Nodes => {
                        let (more, odd) = bytes.as_chunks::<4>();
                        if !odd.is_empty() || self.nodes.len() + more.len() > self.size {
                            return Err(Forged);
                        }
                        let more = more.iter().map(|node| u32::from_be_bytes(*node));
                        self.nodes.extend(more);
                        if self.nodes.len() == self.size {
                            news.push(News::Nodes(self.nodes.clone()));
                        }
                    }
                    Kind::End => {
                        let (status, why) = read_ending(&bytes).ok_or(Forged)?;
                        news.push(News::End { status, why });
                    }
                    Kind::Leaves | Kind::Returns => return Err(Forged),
                }
            }
        }
        Ok(news)
    }
}
