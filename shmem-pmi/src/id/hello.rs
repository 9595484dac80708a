//! The three messages of the handshake, and the frames after it.
//!
//! ```text
//! guest -> host   Hello      who it claims to be, a nonce, a code under the key
//! host  -> guest  Challenge  a nonce, a code over both nonces
//! guest -> host   Proof      a code over both nonces
//! then both       frames     length, kind, bytes, code under a key of this connection and direction
//! ```
//!
//! A host answers nobody who does not have the key. A Hello that somebody repeats gets a challenge, to which
//! only the key gives the proof. Frames are counted in their codes, so none can be repeated, left out, or
//! taken from another connection.

use zerocopy::big_endian::{U32, U64};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

use super::auth::{CODE, Key};

/// Begins with what this is, and in which version.
const MAGIC: [u8; 8] = *b"SHMEMID\x01";

/// What nobody has said before.
pub(super) type Nonce = [u8; 32];

/// What a guest says first.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Hello {
    magic: [u8; 8],
    nonce: Nonce,
    rank: U32,
    size: U32,
    pid: U32,
    /// 1 if this process is the host itself.
    hosts: u8,
    zero: [u8; 3],
    /// A code of the machine's name: equal for those who share memory.
    machine: [u8; CODE],
    code: [u8; CODE],
}

/// What the host answers.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Challenge {
    nonce: Nonce,
    code: [u8; CODE],
}

/// What the guest says then.
#[derive(Debug, Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub(super) struct Proof {
    code: [u8; CODE],
}

/// Who a process claims to be.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Claim {
    pub(super) rank: u32,
    pub(super) size: u32,
    pub(super) pid: u32,
    pub(super) hosts: bool,
    pub(super) machine: [u8; CODE],
}

impl Hello {
    pub(super) const LEN: usize = size_of::<Self>();

    pub(super) fn new(key: &Key, claim: &Claim, nonce: Nonce) -> Self {
        let mut hello = Self {
            magic: MAGIC,
            nonce,
            rank: claim.rank.into(),
            size: claim.size.into(),
            pid: claim.pid.into(),
            hosts: claim.hosts.into(),
            zero: [0; 3],
            machine: claim.machine,
            code: [0; CODE],
        };
        hello.code = key.mac("hello", &[hello.said()]);
        hello
    }

    /// The bytes in front of the code.
    fn said(&self) -> &[u8] {
        &self.as_bytes()[..Self::LEN - CODE]
    }

    /// The one that these bytes are, if somebody with the key has made it.
    pub(super) fn read(key: &Key, bytes: &[u8]) -> Option<Self> {
        let hello = Self::read_from_bytes(bytes).ok()?;
        let made = hello.magic == MAGIC && key.made("hello", &[hello.said()], &hello.code);
        made.then_some(hello)
    }

    pub(super) fn claim(&self) -> Claim {
        Claim {
            rank: self.rank.get(),
            size: self.size.get(),
            pid: self.pid.get(),
            hosts: self.hosts == 1,
            machine: self.machine,
        }
    }
}

impl Challenge {
    pub(super) const LEN: usize = size_of::<Self>();

    pub(super) fn new(key: &Key, hello: &Hello, nonce: Nonce) -> Self {
        let code = key.mac("challenge", &[hello.as_bytes(), &nonce]);
        Self { nonce, code }
    }

    pub(super) fn read(key: &Key, hello: &Hello, bytes: &[u8]) -> Option<Self> {
        let challenge = Self::read_from_bytes(bytes).ok()?;
        let parts: [&[u8]; 2] = [hello.as_bytes(), &challenge.nonce];
        let made = key.made("challenge", &parts, &challenge.code);
        made.then_some(challenge)
    }
}

impl Proof {
    pub(super) const LEN: usize = size_of::<Self>();

    pub(super) fn new(key: &Key, hello: &Hello, challenge: &Challenge) -> Self {
        let code = key.mac("proof", &[hello.as_bytes(), challenge.as_bytes()]);
        Self { code }
    }

    pub(super) fn holds(key: &Key, hello: &Hello, challenge: &Challenge, bytes: &[u8]) -> bool {
        let parts = [hello.as_bytes(), challenge.as_bytes()];
        bytes.len() == Self::LEN && key.made("proof", &parts, bytes)
    }
}

/// Most bytes of a frame.
pub(super) const FRAME_MAX: usize = 64 << 10;
/// Length and kind before them, and a code behind.
const HEADER: usize = 4 + 1;
const TAG: usize = 16;

/// What a frame is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub(super) enum Kind {
    /// Bytes of PMI.
    Pmi = 0,
    /// To the host: the process is no PE any more, and may become one again.
    Leaves = 1,
    /// To the host: it becomes one again.
    Returns = 2,
    /// To a guest: the nodes of some further ranks.
    Nodes = 3,
    /// To a guest: the job ends, with this status, because of that. To the host: it is to. PMI-1 has a command for
    /// that, which carries no blanks.
    End = 4,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        let all = [
            Self::Pmi,
            Self::Leaves,
            Self::Returns,
            Self::Nodes,
            Self::End,
        ];
        all.into_iter().find(|&kind| kind as u8 == byte)
    }
}

/// The frames of one direction of one connection.
#[derive(Clone)]
pub(super) struct Seals {
    key: Key,
    count: u64,
}

/// Seals of guest and host after a handshake.
pub(super) struct Session {
    pub(super) up: Seals,
    pub(super) down: Seals,
}

impl Session {
    pub(super) fn new(key: &Key, hello: &Hello, challenge: &Challenge) -> Self {
        let parts = [hello.as_bytes(), challenge.as_bytes()];
        let seals = |label| Seals {
            key: key.derive(label, &parts),
            count: 0,
        };
        Self {
            up: seals("to the host"),
            down: seals("to the guest"),
        }
    }
}

impl Seals {
    fn code(&mut self, frame: &[u8]) -> [u8; TAG] {
        let code = self
            .key
            .mac("frame", &[U64::new(self.count).as_bytes(), frame]);
        self.count += 1;
        *code.first_chunk().expect("32 bytes")
    }

    /// Appends `bytes` as frames of this kind: one, if there are none.
    pub(super) fn seal(&mut self, kind: Kind, bytes: &[u8], out: &mut Vec<u8>) {
        let mut rest = bytes;
        loop {
            let (part, later) = rest.split_at(rest.len().min(FRAME_MAX));
            rest = later;
            let begin = out.len();
            out.extend_from_slice(&(part.len() as u32).to_be_bytes());
            out.push(kind as u8);
            out.extend_from_slice(part);
            let code = self.code(&out[begin..]);
            out.extend_from_slice(&code);
            if rest.is_empty() {
                return;
            }
        }
    }

    /// Whether the next frame is this one, code included.
    fn holds(&mut self, frame: &[u8], code: &[u8]) -> bool {
        let count = U64::new(self.count);
        self.count += 1;
        self.key.made("frame", &[count.as_bytes(), frame], code)
    }
}

/// Bytes that are no frames, or not from whom they should be. Nothing that follows can be believed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Forged;

/// Takes frames out of what came.
pub(super) struct Opener {
    seals: Seals,
    came: Vec<u8>,
}

impl Opener {
    pub(super) fn new(seals: Seals) -> Self {
        Self {
            seals,
            came: Vec::new(),
        }
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.came.extend_from_slice(bytes);
    }

    /// The next whole frame.
    pub(super) fn next(&mut self) -> Result<Option<(Kind, Vec<u8>)>, Forged> {
        let Some(len) = self.came.first_chunk::<4>() else {
            return Ok(None);
        };
        let len = u32::from_be_bytes(*len) as usize;
        if len > FRAME_MAX {
            return Err(Forged);
        }
        let all = HEADER + len + TAG;
        let Some(whole) = self.came.get(..all) else {
            return Ok(None);
        };
        let (frame, code) = whole.split_at(HEADER + len);
        if !self.seals.holds(frame, code) {
            return Err(Forged);
        }
        let kind = Kind::of(frame[HEADER - 1]).ok_or(Forged)?;
        let bytes = frame[HEADER..].to_vec();
        self.came.drain(..all);
        Ok(Some((kind, bytes)))
    }
}

/// Longest reason that is told.
const WHY_MAX: usize = 4096;

/// The body of an end.
pub(super) fn ending(status: i32, why: &str) -> Vec<u8> {
    let why = &why.as_bytes()[..why.len().min(WHY_MAX)];
    [&status.to_be_bytes()[..], why].concat()
}

/// What such a body says.
pub(super) fn read_ending(bytes: &[u8]) -> Option<(i32, String)> {
    let (status, why) = bytes.split_first_chunk()?;
    let why = String::from_utf8_lossy(why).into_owned();
    Some((i32::from_be_bytes(*status), why))
}
