//! Who talked with whom: operations, bytes and connections of PEs with PEs, folded to as many cells as a picture has
//! room for.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use shmem_node::recording::Recording;

use super::fold::{Cell, cells};
use super::told;

/// Cells of a side at most.
const SIDE: usize = 256;

told! {
    /// Where the cells of a node begin.
    struct Bound {
        at: u32,
        node: Option<u32>,
    }
}

told! {
    /// The matrix.
    struct Matrix {
        /// Whether a cell is more than a PE.
        folded: bool,
        /// Who each row and column is.
        names: Vec<String>,
        /// The nodes, if each cell is of one.
        nodes: Vec<Bound>,
        /// By who called: what is not zero, as four numbers each: how many columns further, bytes, operations,
        /// connections.
        rows: Vec<Vec<u64>>,
    }
}

pub(super) fn matrix(recordings: &[Recording], n_pes: u32) -> Matrix {
    let known: BTreeSet<u32> = recordings.iter().map(|of| of.rank).collect();
    // PEs that did not record are in the picture if somebody talked with them.
    let others = recordings.iter().flat_map(|of| &of.traffic).map(|t| t.pe);
    let others: BTreeSet<u32> = others
        .filter(|pe| *pe < n_pes && !known.contains(pe))
        .collect();
    let mut pes: Vec<(Option<u32>, u32)> = Vec::new();
    pes.extend(recordings.iter().map(|of| (Some(of.node), of.rank)));
    pes.extend(others.into_iter().map(|pe| (None, pe)));
    let cells = cells(pes, SIDE);
    let of_pe: HashMap<u32, u32> = (0..)
        .zip(&cells)
        .flat_map(|(at, cell)| cell.pes.iter().map(move |&pe| (pe, at)))
        .collect();
    let mut rows: Vec<BTreeMap<u32, [u64; 3]>> = vec![BTreeMap::new(); cells.len()];
    for recording in recordings {
        let row = &mut rows[of_pe[&recording.rank] as usize];
        for traffic in &recording.traffic {
            let Some(&column) = of_pe.get(&traffic.pe) else {
                continue;
            };
            let cell = row.entry(column).or_default();
            let more = [traffic.bytes, traffic.operations, traffic.connections];
            for (all, more) in cell.iter_mut().zip(more) {
                *all = all.saturating_add(more);
            }
        }
    }
    let rows = rows.into_iter().map(|row| {
        let mut next = 0;
        let cells = row
            .into_iter()
            .flat_map(|(column, [bytes, operations, connections])| {
                let further =
                    u64::from(column) - std::mem::replace(&mut next, u64::from(column) + 1);
                [further, bytes, operations, connections]
            });
        cells.collect()
    });
    let rows = rows.collect();
    Matrix {
        folded: cells.iter().any(|cell| cell.pes.len() > 1),
        names: cells.iter().map(Cell::name).collect(),
        nodes: bounds(&cells),
        rows,
    }
}

fn bounds(cells: &[Cell]) -> Vec<Bound> {
    if cells.iter().any(|cell| cell.several) {
        return Vec::new();
    }
    let mut bounds: Vec<Bound> = Vec::new();
    for (at, cell) in (0..).zip(cells) {
        if bounds.last().is_none_or(|last| last.node != cell.node) {
            let node = cell.node;
            bounds.push(Bound { at, node });
        }
    }
    bounds
}
