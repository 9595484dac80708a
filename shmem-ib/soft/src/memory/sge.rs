//! Lists of local buffers: gathering a packet's payload from them, scattering it over them.
//!
//! A work request lists up to [`MAX_SGE`](crate::MAX_SGE) buffers which count as one, one after
//! the other. A packet is a range of that whole. Keys and rights are checked for the pieces that the
//! packet touches, and before the first byte moves: a refused packet leaves no trace.

#![forbid(unsafe_code)]

use super::mr::{Memory, MrTable};
pub(crate) use shmem_verbs::provider::checks::total;
use shmem_verbs::{Access, Lkey, Sge};

/// A local buffer is not covered by its key with the right needed.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NotCovered;

/// A part of a buffer.
#[derive(Clone, Copy)]
pub(crate) struct Piece {
    pub(crate) addr: u64,
    pub(crate) len: usize,
    pub(crate) lkey: Lkey,
}

/// The parts of the buffers which make up bytes `offset` to `offset + len` of the whole.
pub(crate) fn pieces(sges: &[Sge], offset: u32, len: usize) -> impl Iterator<Item = Piece> + '_ {
    let (mut skip, mut left) = (u64::from(offset), len);
    sges.iter().filter_map(move |sge| {
        let here = u64::from(sge.len);
        if skip >= here {
            skip -= here;
            return None;
        }
        let piece = Piece {
            addr: sge.addr.wrapping_add(skip),
            len: ((here - skip) as usize).min(left),
            lkey: sge.lkey,
        };
        skip = 0;
        left -= piece.len;
        (piece.len > 0).then_some(piece)
    })
}

fn check(
    mrs: &MrTable,
    sges: &[Sge],
    offset: u32,
    len: usize,
    need: Access,
) -> Result<(), NotCovered> {
    let covered = |p: Piece| mrs.covers(p.lkey.0, p.addr, p.len as u64, need);
    match pieces(sges, offset, len).all(covered) {
        true => Ok(()),
        false => Err(NotCovered),
    }
}

/// Where bytes `offset` to `offset + len` of the whole lie, if that is one piece which its key covers with the
/// right needed.
pub(crate) fn in_one_piece(
    mrs: &MrTable,
    sges: &[Sge],
    offset: u32,
    len: usize,
    need: Access,
) -> Option<u64> {
    let piece = pieces(sges, offset, len).next()?;
    let whole = piece.len == len && mrs.covers(piece.lkey.0, piece.addr, len as u64, need);
    whole.then_some(piece.addr)
}

/// Fills `out` from `offset` on. The buffers are long enough.
pub(crate) fn gather<M: Memory>(
    mrs: &MrTable,
    memory: &mut M,
    sges: &[Sge],
    offset: u32,
    out: &mut [u8],
) -> Result<(), NotCovered> {
    check(mrs, sges, offset, out.len(), Access::NONE)?;
    let mut at = 0;
    for piece in pieces(sges, offset, out.len()) {
        memory.read(piece.addr, &mut out[at..at + piece.len]);
        at += piece.len;
    }
    debug_assert_eq!(at, out.len(), "the buffers are too short");
    Ok(())
}

/// Puts `data` in place from `offset` on. The buffers are long enough.
pub(crate) fn scatter<M: Memory>(
    mrs: &MrTable,
    memory: &mut M,
    sges: &[Sge],
    offset: u32,
    data: &[u8],
) -> Result<(), NotCovered> {
    check(mrs, sges, offset, data.len(), Access::LOCAL_WRITE)?;
    let mut at = 0;
    for piece in pieces(sges, offset, data.len()) {
        memory.write(piece.addr, &data[at..at + piece.len]);
        at += piece.len;
    }
    debug_assert_eq!(at, data.len(), "the buffers are too short");
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::VecMemory;

    #[test]
    fn every_range_of_a_list_is_found() {
        let mut mrs = MrTable::new(1);
        let mr = mrs.register(0x1000, 64, Access::LOCAL_WRITE).unwrap();
        let sge = |offset: u64, len| Sge {
            addr: 0x1000 + offset,
            len,
            lkey: mr.lkey,
        };
        // Eleven bytes, not in the order of their addresses, with empty buffers between them.
        let list = [sge(40, 3), sge(0, 0), sge(8, 1), sge(20, 7), sge(0, 0)];
        let places = [40, 41, 42, 8, 20, 21, 22, 23, 24, 25, 26];
        assert_eq!(total(&list), 11);
        for start in 0..=11 {
            for end in start..=11 {
                let mut memory = VecMemory::new(0x1000, 64);
                let data: Vec<u8> = (start..end).map(|i| i as u8 + 1).collect();
                scatter(&mrs, &mut memory, &list, start as u32, &data).unwrap();
                let mut expected = [0; 64];
                for i in start..end {
                    expected[places[i]] = i as u8 + 1;
                }
                assert_eq!(memory.bytes(), expected);
                let mut back = vec![0; data.len()];
                gather(&mrs, &mut memory, &list, start as u32, &mut back).unwrap();
                assert_eq!(back, data);
            }
        }
    }

    #[test]
    fn a_refused_packet_leaves_no_trace() {
        let mut mrs = MrTable::new(1);
        let good = mrs.register(0x1000, 8, Access::LOCAL_WRITE).unwrap();
        let read_only = mrs.register(0x1008, 8, Access::NONE).unwrap();
        let list = [(0x1000, good.lkey), (0x1008, read_only.lkey)].map(|(addr, lkey)| Sge {
            addr,
            len: 8,
            lkey,
        });
        let mut memory = VecMemory::new(0x1000, 16);
        let got = scatter(&mrs, &mut memory, &list, 4, &[9; 8]);
        assert_eq!((got, memory.bytes()), (Err(NotCovered), &[0; 16][..]));
        // Rights matter only where a packet goes.
        assert_eq!(scatter(&mrs, &mut memory, &list, 4, &[9; 4]), Ok(()));
        assert_eq!(gather(&mrs, &mut memory, &list, 4, &mut [0; 8]), Ok(()));
    }
}
