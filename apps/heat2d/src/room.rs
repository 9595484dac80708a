//! Memory that the job needs, and whether there is so much: asked before any of it is used.

use shmem::{SymSlice, Team, World};
use shmem_node::machine::{Machine, Size};

use crate::blocks::{Blocks, SIDES};
use crate::halo::Halo;
use crate::options::Options;
use crate::picture::Band;
use crate::plain::Plain;
use crate::sweep::Sweep;

/// Symmetric memory.
pub(crate) struct Room {
    /// Of [`Halo`], for sides of up to `longest` points.
    pub(crate) places: SymSlice<f64>,
    pub(crate) longest: usize,
    /// Of [`Sums`](crate::sums::Sums).
    pub(crate) values: SymSlice<f64>,
    /// A word for each side of either.
    pub(crate) come: SymSlice<u64>,
    /// Of the picture.
    pub(crate) band: Option<Band>,
}

impl Room {
    /// Takes it. Collective. What is told if there is not enough is told on all PEs alike.
    pub(crate) fn take(options: &Options, blocks: &Blocks) -> Result<Self, String> {
        let longest = blocks.longest_side();
        let (numbers, words) = (Halo::places(longest) + SIDES.len(), 2 * SIDES.len());
        let band = options.picture.is_some().then(|| Band::bytes(options.size));
        let mut missing = 8 * (numbers + words) + band.unwrap_or(0);
        let mut taken = |bytes: usize| missing -= bytes;
        let mut take = || -> Result<Self, shmem::Error> {
            let numbers = shmem::alloc::<f64>(numbers)?;
            taken(8 * numbers.len());
            let come = shmem::alloc::<u64>(words)?;
            taken(8 * come.len());
            let band = band.map(shmem::alloc::<u8>).transpose()?;
            let (values, places) = numbers.split_at(SIDES.len());
            let band = band.map(|bytes| Band::new(options.size, bytes));
            Ok(Self {
                places,
                longest,
                values,
                come,
                band,
            })
        };
        take().map_err(|error| match error {
            shmem::Error::HeapExhausted { size, used, .. } => format!(
                "the symmetric heap of {} has no room for the halos of blocks with sides of {longest} points{}; \
                 set SHMEM_SYMMETRIC_SIZE={}M or more",
                Size(size as u64),
                if options.picture.is_some() { " and a band of the picture" } else { "" },
                mebibytes(used.saturating_add(missing)),
            ),
            other => other.to_string(),
        })
    }
}

/// Whole MiB in which so many bytes fit, and the few that come with each array.
fn mebibytes(bytes: usize) -> usize {
    const SPARE: usize = 64 << 10;
    bytes.saturating_add(SPARE).div_ceil(1 << 20)
}

/// Whether the blocks of this node's PEs fit into its memory. A system promises more than it has, and kills
/// who believes it.
pub(crate) fn fits(world: &World, options: &Options, blocks: &Blocks) -> Result<(), String> {
    let (rows, cols) = blocks
        .block(world.my_pe())
        .map_or((0, 0), |block| (block.rows.len(), block.cols.len()));
    let mut bytes = Sweep::bytes(options.method, rows, cols);
    if options.plain {
        bytes = bytes.saturating_add(Plain::bytes(options.method, rows, cols));
    }
    let here = Team::shared();
    let needed = here.reduce_value(bytes as u64, u64::saturating_add);
    let left = Machine::read().map(|m| m.group_left.map_or(m.available, |g| g.min(m.available)));
    match left {
        Some(left) if needed > left => Err(format!(
            "a plate of {} points by {} takes {} of memory on a node with {} PEs, which has {} left; use more nodes \
             or a smaller plate",
            options.size,
            options.method.name(),
            Size(needed),
            here.n_pes(),
            Size(left),
        )),
        _ => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn told_sizes_have_room_for_all() {
        assert_eq!(mebibytes(0), 1);
        assert_eq!(mebibytes((1 << 20) - (64 << 10)), 1);
        assert_eq!(mebibytes(1 << 20), 2);
        assert_eq!(mebibytes(usize::MAX), usize::MAX.div_ceil(1 << 20));
    }
}
