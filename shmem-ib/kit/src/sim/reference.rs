//! What an RC connection has to do, said in the simplest way: one direction's operations executed
//! in the order of posting, on a copy of the memory.
//!
//! A test lets a [`Reference`] propose work requests, posts them to an engine on a network as bad
//! as it likes, and gives every completion back. Errors of the engine come out as sentences:
//! a completion twice, out of order or missing; a value read or fetched that is not the one of
//! that moment; memory at the end; an atomic executed twice or never.

#![forbid(unsafe_code)]

use std::collections::VecDeque;
use std::ops::Range;

use shmem_soft::VecMemory;
use shmem_verbs::{Completion, Lkey, Rkey, SendOp, SendWr, Sge, WcOpcode, WcStatus};

/// Where a direction's operations come from and go to.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// Buffers of the requester: address, length in bytes, key.
    pub local: u64,
    /// Half of it is in use at most.
    pub local_len: usize,
    /// Key of these buffers.
    pub lkey: Lkey,
    /// The area of the responder that only this direction writes.
    pub remote: u64,
    /// Its length in bytes, a multiple of 8.
    pub remote_len: usize,
    /// Words of the responder that several directions add to.
    pub shared: u64,
    /// Number of these words; may be 0.
    pub shared_words: usize,
    /// Key of both.
    pub rkey: Rkey,
    /// Longest payload, at most 4096.
    pub max_len: usize,
    /// Receive buffers of the responder, one after the other, numbered by `wr_id`; each of
    /// `max_len` bytes.
    pub receives: u64,
    /// Whether there are any: without, nothing is sent that needs one.
    pub sends: bool,
}

/// What has to be in the local buffer at completion.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Expect {
    Nothing,
    /// As in the copy of the local buffers.
    Copy,
    /// The value before an addition to this shared word.
    Shared(usize),
}

#[derive(Clone, Debug)]
struct Posted {
    signaled: bool,
    expect: Expect,
    /// In the local buffers.
    at: usize,
    len: usize,
    /// What a READ looks at: writes have to stay away, since an unfenced WRITE may pass a READ.
    reads: Range<usize>,
}

/// A work request that has been proposed.
#[derive(Debug)]
pub struct Proposal {
    op: SendOp,
    sge: Sge,
    wr_id: u64,
    /// Whether the payload is to be given inline.
    pub inline: bool,
    /// The payload of a WRITE, which lies in the local buffer as well.
    pub data: Range<usize>,
    posted: Posted,
    target: usize,
    word: Option<u64>,
    message: Option<Message>,
}

/// What a receive has to bring.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Message {
    len: usize,
    stamp: u64,
    imm: Option<u32>,
    /// A WRITE with immediate data: the buffer stays as it was.
    write: bool,
}

impl Proposal {
    /// The local buffer.
    #[must_use]
    pub const fn sge(&self) -> Sge {
        self.sge
    }

    /// The request to be posted, with [`Proposal::sge`], and with the bytes of [`Proposal::data`]
    /// if [`Proposal::inline`] says so.
    #[must_use]
    pub fn wr<'a>(&self, sges: &'a [Sge], inline: Option<&'a [u8]>) -> SendWr<'a> {
        SendWr {
            inline,
            signaled: self.posted.signaled,
            ..SendWr::new(self.wr_id, self.op, sges)
        }
    }

    /// Makes the request signaled, if `yes`: the last of all has to be.
    pub const fn signal(&mut self, yes: bool) {
        self.posted.signaled |= yes;
    }
}

/// Additions to shared words, from all directions.
#[derive(Clone, Debug, Default)]
pub struct Sums {
    /// For each word: which old values were fetched.
    fetched: Vec<Vec<u64>>,
}

impl Sums {
    fn note(&mut self, word: usize, old: u64) -> Result<(), String> {
        if self.fetched.len() <= word {
            self.fetched.resize(word + 1, Vec::new());
        }
        let bits = &mut self.fetched[word];
        let (index, bit) = ((old / 64) as usize, 1 << (old % 64));
        if old > 1 << 32 {
            return Err(format!("an addition to word {word} fetched {old}"));
        }
        if bits.len() <= index {
            bits.resize(index + 1, 0);
        }
        if bits[index] & bit != 0 {
            return Err(format!("two additions to word {word} fetched {old}"));
        }
        bits[index] |= bit;
        Ok(())
    }

    /// Checks that word `word` has the value `value`, with one addition of 1 for every value below.
    /// If `unsure` there may be more: additions without a successful completion.
    ///
    /// # Errors
    /// What is wrong.
    pub fn check(&self, word: usize, value: u64, unsure: bool) -> Result<(), String> {
        let bits = self.fetched.get(word).map_or(&[][..], |b| b);
        let count: u64 = bits.iter().map(|b| u64::from(b.count_ones())).sum();
        let highest = bits.iter().rposition(|b| *b != 0).map_or(0, |i| {
            64 * i as u64 + 64 - u64::from(bits[i].leading_zeros())
        });
        if highest > value || (!unsure && count != value) {
            return Err(format!(
                "word {word} is {value} after {count} additions, the last of which made it {highest}"
            ));
        }
        Ok(())
    }
}

/// The model of one direction. Its rules stand at the head of this file.
#[derive(Clone, Debug)]
pub struct Reference {
    place: Place,
    /// What the remote area contains once everything posted is executed.
    area: Vec<u8>,
    /// What the local buffers contain once everything posted is completed.
    copy: Vec<u8>,
    posted: VecDeque<Posted>,
    /// Messages without a receive completion.
    messages: VecDeque<Message>,
    /// `wr_id` of the first of `posted`.
    first: u64,
    /// Where the next local buffer begins.
    next: usize,
    /// Bytes of local buffers in use.
    used: usize,
    failed: bool,
    distrusted: bool,
}

impl Reference {
    /// A direction on zeroed memory.
    #[must_use]
    pub fn new(place: Place) -> Self {
        Self {
            place,
            area: vec![0; place.remote_len],
            copy: vec![0; place.local_len],
            posted: VecDeque::new(),
            messages: VecDeque::new(),
            first: 0,
            next: 0,
            used: 0,
            failed: false,
            distrusted: false,
        }
    }

    /// Requests posted so far.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.first + self.posted.len() as u64
    }

    /// Requests posted and not completed.
    #[must_use]
    pub fn outstanding(&self) -> usize {
        self.posted.len()
    }

    /// Whether a signaled request has not completed.
    #[must_use]
    pub fn awaits_completion(&self) -> bool {
        self.posted.iter().any(|p| p.signaled)
    }

    /// From now on requests may fail, and those without a successful completion may or may not
    /// have been executed. Those with one have brought the right values all the same.
    pub fn may_fail(&mut self) {
        self.failed = true;
    }

    /// From now on values may be wrong: somebody has forged packets, or the connection was made
    /// anew while packets of its former life were on their way.
    pub fn distrust(&mut self) {
        self.failed = true;
        self.distrusted = true;
    }

    /// The send queue has vanished (RESET, destroyed): nothing of it completes any more.
    pub fn forget(&mut self) {
        self.failed = true;
        self.first = self.count();
        self.posted.clear();
        self.messages.clear();
        self.used = 0;
    }

    /// Proposes a request, as `pick` says: `pick(n)` is a number below `n`. The payload of a WRITE
    /// is put into `memory`, the requester's. `None` if the request would collide with
    /// a READ, or too many completions have not been taken.
    pub fn propose(
        &mut self,
        memory: &mut VecMemory,
        mut pick: impl FnMut(u64) -> u64,
    ) -> Option<Proposal> {
        let place = self.place;
        let kind = pick(if place.sends { 20 } else { 16 });
        let signaled = pick(4) != 0;
        let len = match pick(4) {
            0 | 1 => 8,
            2 => pick(65) as usize,
            _ => pick(place.max_len as u64 + 1) as usize,
        };
        let is_word = (11..16).contains(&kind);
        let len = if is_word { 8 } else { len.min(place.max_len) };
        if self.used + len > place.local_len / 2 {
            return None; // completions have to be taken first
        }
        if self.next + len > place.local_len {
            self.next = 0;
        }
        let at = self.next;
        let mut target = pick((place.remote_len - len.max(8)) as u64 + 1) as usize;
        if is_word {
            target &= !7;
        }
        let raddr = place.remote + target as u64;
        let rkey = place.rkey;
        let overlaps = |p: &Posted| p.reads.start < target + len && target < p.reads.end;
        if !matches!(kind, 6..11 | 15 | 18..) && self.posted.iter().any(overlaps) {
            return None;
        }
        let mut posted = Posted {
            signaled,
            expect: Expect::Copy,
            at,
            len,
            reads: 0..0,
        };
        let mut word = None;
        let mut message = None;
        let op = match kind {
            0..6 | 16.. => {
                posted.expect = Expect::Nothing;
                let start = (memory_offset(memory, place.local)) + at;
                let stamp = self.count().wrapping_mul(0x9e37_79b9_7f4a_7c15);
                fill(&mut memory.bytes_mut()[start..start + len], stamp);
                let imm = (kind >= 16 && (kind < 18 || pick(2) == 0)).then_some(stamp as u32);
                message = (kind >= 16).then_some(Message {
                    len,
                    stamp,
                    imm,
                    write: kind < 18,
                });
                if kind < 18 {
                    SendOp::Write { raddr, rkey, imm }
                } else {
                    SendOp::Send { imm }
                }
            }
            6..11 => {
                posted.reads = target..target + len;
                SendOp::Read { raddr, rkey }
            }
            11 | 12 => {
                let add = pick(u64::MAX);
                word = Some(self.word(target).wrapping_add(add));
                SendOp::fetch_add(raddr, rkey, add)
            }
            15 if place.shared_words > 0 => {
                let index = pick(place.shared_words as u64) as usize;
                posted.expect = Expect::Shared(index);
                let raddr = place.shared + 8 * index as u64;
                SendOp::fetch_add(raddr, rkey, 1)
            }
            _ => {
                if kind == 15 && self.posted.iter().any(overlaps) {
                    return None;
                }
                let (old, swap) = (self.word(target), pick(u64::MAX));
                let compare = if pick(2) == 0 { old } else { !old };
                word = Some(if compare == old { swap } else { old });
                SendOp::CmpSwap {
                    raddr,
                    rkey,
                    compare,
                    swap,
                }
            }
        };
        let sge = Sge {
            addr: place.local + at as u64,
            len: len as u32,
            lkey: place.lkey,
        };
        Some(Proposal {
            op,
            sge,
            wr_id: self.count(),
            inline: posted.expect == Expect::Nothing && len <= 64 && pick(2) == 0,
            data: at..at + len,
            posted,
            target,
            word,
            message,
        })
    }

    fn word(&self, at: usize) -> u64 {
        let mut word = [0; 8];
        word.copy_from_slice(&self.area[at..at + 8]);
        u64::from_ne_bytes(word)
    }

    /// The proposal was posted.
    pub fn posted(&mut self, proposal: Proposal, memory: &VecMemory) {
        let Proposal {
            posted,
            target,
            word,
            message,
            ..
        } = proposal;
        let (at, len) = (posted.at, posted.len);
        match posted.expect {
            Expect::Nothing if message.is_some_and(|m| !m.write) => {}
            Expect::Nothing => {
                let start = memory_offset(memory, self.place.local) + at;
                let data = &memory.bytes()[start..start + len];
                self.area[target..target + len].copy_from_slice(data);
            }
            Expect::Copy => {
                self.copy[at..at + len].copy_from_slice(&self.area[target..target + len]);
            }
            Expect::Shared(_) => {}
        }
        if let Some(word) = word {
            self.area[target..target + 8].copy_from_slice(&word.to_ne_bytes());
        }
        self.messages.extend(message);
        self.next = (at + len).next_multiple_of(8);
        self.used += len.next_multiple_of(8);
        self.posted.push_back(posted);
    }

    /// A completion has come; `memory` is the requester's.
    ///
    /// # Errors
    /// What is wrong with it.
    pub fn complete(
        &mut self,
        c: &Completion,
        memory: &VecMemory,
        sums: &mut Sums,
    ) -> Result<(), String> {
        let upto = c.wr_id.wrapping_sub(self.first);
        if upto >= self.posted.len() as u64 {
            let known = self.first..self.count();
            return Err(format!("{c:?}, but only {known:?} may complete"));
        }
        let start = memory_offset(memory, self.place.local);
        for _ in 0..=upto {
            let Some(p) = self.posted.pop_front() else {
                break;
            };
            let id = self.first;
            self.first += 1;
            self.used -= p.len.next_multiple_of(8);
            let last = id == c.wr_id;
            if !last && p.signaled {
                return Err(format!("{c:?}, but {id} has not completed"));
            }
            if last && c.status != WcStatus::Success {
                if !self.failed {
                    return Err(format!("{c:?} without a reason"));
                }
                continue;
            }
            if last && !p.signaled {
                return Err(format!("{c:?}, which is unsignaled"));
            }
            let got = &memory.bytes()[start + p.at..start + p.at + p.len];
            match p.expect {
                Expect::Nothing => {}
                Expect::Copy => {
                    let want = &self.copy[p.at..p.at + p.len];
                    if got != want && !self.distrusted {
                        let i = got.iter().zip(want).position(|(g, w)| g != w);
                        return Err(format!(
                            "request {id} of {} bytes brought a wrong byte at {i:?}",
                            p.len
                        ));
                    }
                }
                Expect::Shared(_) if self.distrusted => {}
                Expect::Shared(word) => {
                    let mut old = [0; 8];
                    old.copy_from_slice(got);
                    sums.note(word, u64::from_ne_bytes(old))?;
                }
            }
        }
        Ok(())
    }

    /// Messages without a receive completion.
    #[must_use]
    pub fn unreceived(&self) -> usize {
        self.messages.len()
    }

    /// A receive completion of the responder; `memory` is the responder's.
    ///
    /// # Errors
    /// It is not the next message, or the buffer does not contain that.
    pub fn receive(&mut self, c: &Completion, memory: &VecMemory) -> Result<(), String> {
        if self.failed {
            return Ok(()); // one side may have forgotten some
        }
        if c.status != WcStatus::Success {
            return Err(format!("{c:?} without a reason"));
        }
        let Some(m) = self.messages.pop_front() else {
            return Err(format!("{c:?}, but nothing was sent"));
        };
        let opcode = if m.write {
            WcOpcode::RecvRdmaWithImm
        } else {
            WcOpcode::Recv
        };
        if (c.opcode, c.imm, c.byte_len as usize) != (opcode, m.imm, m.len) {
            return Err(format!("{c:?} instead of {m:?}"));
        }
        if !m.write {
            let start = memory_offset(memory, self.place.receives);
            let start = start + self.place.max_len * c.wr_id as usize;
            let mut want = [0; 4096];
            fill(&mut want[..m.len], m.stamp);
            if memory.bytes()[start..start + m.len] != want[..m.len] {
                return Err(format!("{c:?} brought other bytes than {m:?}"));
            }
        }
        Ok(())
    }

    /// Checks the responder's memory, once everything has completed.
    ///
    /// # Errors
    /// The first byte that differs.
    pub fn check(&self, memory: &VecMemory) -> Result<(), String> {
        if self.failed {
            return Ok(());
        }
        let start = memory_offset(memory, self.place.remote);
        let got = &memory.bytes()[start..start + self.area.len()];
        match got.iter().zip(&self.area).position(|(g, w)| g != w) {
            None => Ok(()),
            Some(at) => Err(format!("byte {at} of the target area differs")),
        }
    }
}

/// A payload that tells which one it is, and where each word belongs.
fn fill(data: &mut [u8], stamp: u64) {
    for (i, chunk) in data.chunks_mut(8).enumerate() {
        let value = stamp.rotate_left(i as u32 & 63) ^ i as u64;
        chunk.copy_from_slice(&value.to_ne_bytes()[..chunk.len()]);
    }
}

fn memory_offset(memory: &VecMemory, address: u64) -> usize {
    (address - memory.base()) as usize
}
