//! PEs side by side on few places, node by node: what a picture has room for.

use std::fmt::Write;

/// PEs that share a place of a picture.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Cell {
    /// Their node; the first of several. `None` if it is not known.
    pub(super) node: Option<u32>,
    /// Their ranks, which ascend within a node.
    pub(super) pes: Vec<u32>,
    /// Whether they are of several nodes.
    pub(super) several: bool,
}

impl Cell {
    /// Who they are.
    pub(super) fn name(&self) -> String {
        match *self.pes {
            [] => String::new(),
            [pe] => format!("PE {pe}"),
            [first, .., last] => {
                let mut name = format!("PEs {first}");
                let whole = u64::from(last) - u64::from(first.min(last)) + 1;
                let _ = match whole == self.pes.len() as u64 {
                    true => write!(name, "-{last}"),
                    false => write!(name, ",...,{last} ({} PEs)", self.pes.len()),
                };
                name
            }
        }
    }
}

/// Puts PEs (node and rank) in at most `most` cells, in the order of nodes and ranks: as few in each as that
/// allows, of one node if there are no more nodes than cells.
pub(super) fn cells(mut pes: Vec<(Option<u32>, u32)>, most: usize) -> Vec<Cell> {
    // Those of no known node come last.
    pes.sort_unstable_by_key(|&(node, pe)| (node.is_none(), node, pe));
    pes.dedup();
    let nodes: Vec<&[(Option<u32>, u32)]> = pes.chunk_by(|a, b| a.0 == b.0).collect();
    let cell = |several, of: &[(Option<u32>, u32)]| Cell {
        node: of[0].0,
        pes: of.iter().map(|pe| pe.1).collect(),
        several,
    };
    let most = most.max(1);
    if nodes.len() > most {
        let each = nodes.len().div_ceil(most);
        let groups = nodes.chunks(each);
        return groups
            .map(|group| cell(group.len() > 1, &group.concat()))
            .collect();
    }
    let count = |each| {
        nodes
            .iter()
            .map(|node| node.len().div_ceil(each))
            .sum::<usize>()
    };
    // The smallest that suffices: with those of the largest node in one cell there is a cell for each node.
    let (mut few, mut each) = (0, pes.len().max(1));
    while each - few > 1 {
        let middle = few + (each - few) / 2;
        match count(middle) <= most {
            true => each = middle,
            false => few = middle,
        }
    }
    let chunks = nodes.iter().flat_map(|node| node.chunks(each));
    chunks.map(|chunk| cell(false, chunk)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(n: u32, per_node: u32, most: usize) -> Vec<Cell> {
        let pes = (0..n).map(|pe| (Some(pe / per_node), pe));
        cells(pes.collect(), most)
    }

    #[test]
    fn cells_end_with_nodes() {
        let names = |cells: Vec<Cell>| cells.iter().map(Cell::name).collect::<Vec<_>>();
        assert_eq!(names(of(3, 2, 8)), ["PE 0", "PE 1", "PE 2"]);
        // Three to a cell would do, but nodes of five take two cells each.
        assert_eq!(
            names(of(10, 5, 4)),
            ["PEs 0-2", "PEs 3-4", "PEs 5-7", "PEs 8-9"]
        );
        assert_eq!(names(of(8, 2, 2)), ["PEs 0-3", "PEs 4-7"]);
        assert!(of(8, 2, 2).iter().all(|cell| cell.several));
        assert_eq!(of(8192, 64, 256).len(), 256);
        assert_eq!(of(0, 1, 256), []);
    }

    #[test]
    fn ranks_may_be_dealt_out_over_nodes() {
        let pes = vec![
            (Some(0), 0),
            (Some(1), 1),
            (Some(0), 2),
            (None, 9),
            (Some(1), 3),
        ];
        let cells = cells(pes, 3);
        let names: Vec<String> = cells.iter().map(Cell::name).collect();
        assert_eq!(
            names,
            ["PEs 0,...,2 (2 PEs)", "PEs 1,...,3 (2 PEs)", "PE 9"]
        );
        assert_eq!(cells[2].node, None);
    }
}
