//! Where things lie in the tables memory.

use super::region_up;
use crate::address::ADDRESS_LEN;
use crate::kvs::KvsLayout;
use crate::slot::SlotHeader;

/// Allgather results that may be outstanding or unread at once; request `r` lies in slot
/// `r % GATHER_SLOTS`.
pub const GATHER_SLOTS: usize = 8;

/// Exchanges of addresses whose results lie there: one for a life of the PEs, `life % ADDRESS_SLOTS`. When that of
/// the next is complete, all PEs have left the one before it.
const ADDRESS_SLOTS: usize = 2;

/// Longest allgather value of one PE in bytes.
const GATHER_VALUE_MAX: usize = 1024;

/// Where results of allgathers lie, each in a slot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SlotsLayout {
    /// How many: the result of request `r` lies in slot `r % count`.
    pub count: usize,
    /// Longest value of one PE in bytes.
    pub value_max: usize,
    /// `[SlotHeader; count]`.
    pub headers: usize,
    /// Values of slot `s` start at `values + s * stride`.
    pub values: usize,
    /// Bytes of one slot's values.
    pub stride: usize,
}

impl SlotsLayout {
    fn new(after: usize, count: usize, value_max: usize, n_pes: usize) -> Self {
        let headers = region_up(after);
        Self {
            count,
            value_max,
            headers,
            values: region_up(headers + count * size_of::<SlotHeader>()),
            stride: region_up(n_pes * value_max),
        }
    }

    fn end(&self) -> usize {
        self.values + self.count * self.stride
    }
}

/// Offsets in the tables memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TablesLayout {
    /// `[u32; n_pes]`: node of each rank.
    pub node_of: usize,
    /// `[u32; n_pes]`: position of each rank among the PEs of its node.
    pub local_of: usize,
    /// `[u32; n_nodes]`: lowest rank of each node.
    pub leader_of: usize,
    /// `[u32; n_local]`: the ranks of this node.
    pub ranks: usize,
    /// Results of PMI's allgathers.
    pub gather: SlotsLayout,
    /// Results of the exchanges of addresses.
    pub addresses: SlotsLayout,
    /// The key-value store.
    pub kvs: KvsLayout,
    /// Length of the whole memory.
    pub len: usize,
}

impl TablesLayout {
    /// The layout for a job, with a key-value store whose log has `kvs_log` bytes (0: none). The first
    /// page, of `page` bytes, holds the header and nothing else: core files hold the others.
    pub fn new(n_pes: usize, n_nodes: usize, n_local: usize, kvs_log: usize, page: usize) -> Self {
        let node_of = page;
        let local_of = node_of + 4 * n_pes;
        let leader_of = local_of + 4 * n_pes;
        let ranks = leader_of + 4 * n_nodes;
        let gather = SlotsLayout::new(ranks + 4 * n_local, GATHER_SLOTS, GATHER_VALUE_MAX, n_pes);
        let addresses = SlotsLayout::new(gather.end(), ADDRESS_SLOTS, ADDRESS_LEN, n_pes);
        let kvs = KvsLayout::new(addresses.end(), kvs_log);
        Self {
            node_of,
            local_of,
            leader_of,
            ranks,
            gather,
            addresses,
            kvs,
            len: kvs.end,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::REGION;
    use super::*;
    use crate::elf::PAGE_SIZES;

    #[test]
    fn regions_follow_each_other_without_overlap() {
        let jobs = [(1, 1, 1), (5, 2, 3), (8192, 512, 16), (8192, 1, 8192)];
        for (page, (n_pes, n_nodes, n_local)) in
            PAGE_SIZES.into_iter().flat_map(|p| jobs.map(|j| (p, j)))
        {
            let t = TablesLayout::new(n_pes, n_nodes, n_local, 1 << 20, page);
            let order = [
                page,
                t.node_of,
                t.local_of,
                t.leader_of,
                t.ranks,
                t.gather.headers,
                t.gather.values,
                t.addresses.headers,
                t.addresses.values,
                t.kvs.head,
                t.kvs.index,
                t.kvs.log,
                t.len,
            ];
            assert!(order.is_sorted(), "{t:?}");
            assert!(t.ranks + 4 * n_local <= t.gather.headers);
            assert_eq!(t.len % REGION, 0);
            // All that a larger page costs is the rest of the first one.
            let small = TablesLayout::new(n_pes, n_nodes, n_local, 1 << 20, 4096);
            assert_eq!(t.len - small.len, page - 4096);
        }
    }
}
