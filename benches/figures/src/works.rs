//! The works whose figures are repeated, and what of them cannot be measured on a machine like the one at hand.

/// A work.
#[derive(Debug, PartialEq, Eq)]
pub struct Work {
    /// Its title.
    pub title: &'static str,
    /// Who wrote it, and when.
    pub by: &'static str,
}

/// Connections on demand.
pub const ON_DEMAND: Work = Work {
    title: "On-demand Connection Management for OpenSHMEM and OpenSHMEM+MPI",
    by: "Chakraborty, Subramoni, Perkins, Awan, Panda, 2015",
};

/// PMI that does not block.
pub const NON_BLOCKING_PMI: Work = Work {
    title: "Non-blocking PMI Extensions for Fast MPI Startup",
    by: "Chakraborty, Subramoni, Moody, Venkatesh, Perkins, Panda, 2015",
};

/// PMI itself.
pub const PMI: Work = Work {
    title: "PMI: A Scalable Parallel Process-Management Interface for Extreme-Scale Systems",
    by: "Balaji, Buntinas, Goodell, Gropp, Krishna, Lusk, Thakur, 2010",
};

/// Locks of a node's store.
pub const PMIX_DATABASE: Work = Work {
    title: "A Scalable PMIx Database",
    by: "Polyakov, Ladd, Shipunova, Karasev, 2018",
};

/// Launch agents of nodes, their caches, and connections to nodes.
pub const SCELA: Work = Work {
    title: "Scalable Job Startup and Inter-Node Communication in Multi-Core InfiniBand Clusters",
    by: "Sridhar, the thesis about ScELA, 2009",
};

/// All of them.
pub const WORKS: [&Work; 5] = [&ON_DEMAND, &NON_BLOCKING_PMI, &PMI, &PMIX_DATABASE, &SCELA];

/// Figures that are not measured here, and why.
pub const NOT_MEASURED: &[(&Work, &str, &str)] = &[
    (
        &ON_DEMAND,
        "anything on InfiniBand, or on more than one machine",
        "there is one machine without a device; the pages say what differs, and `ci/vm.sh` measures on Soft-RoCE",
    ),
    (
        &NON_BLOCKING_PMI,
        "the times of Fig. 10 and 13: MPI_Init and NAS with each kind of exchange",
        "our init has one kind, which does not block; what it takes is in `init`",
    ),
    (
        &PMI,
        "Fig. 2, launch time and requests with PMI-1 and PMI-2",
        "under `shmrun` our programs find their nodes without a request of either; `launch --vs` has other launchers' time",
    ),
    (
        &PMI,
        "Fig. 3, what a process manager takes from computing processes",
        "it takes a native process manager to compare with, and cores that nobody shares",
    ),
    (
        &PMI,
        "Fig. 4, requests of several threads at a time",
        "no program here makes them yet",
    ),
    (
        &SCELA,
        "Fig. 2.4, the ring of MPD; 2.6, MVAPICH's launcher with PMGR",
        "neither is to be had any more",
    ),
    (
        &SCELA,
        "Fig. 4.5, latency and bandwidth of MPI over RC and XRC",
        "it is the device's doing; the software HCA treats both alike",
    ),
];

/// By which number a work is called.
///
/// # Panics
/// If it is not in the list.
pub fn number(work: &Work) -> usize {
    let at = WORKS.iter().position(|w| *w == work);
    at.expect("a work of the list") + 1
}
