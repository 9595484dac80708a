//! What a PE finds when it starts: descriptors at fixed numbers and a few environment variables.
//!
//! Fixed numbers let the environment be the same for all PEs of a node but for the ranks, so a
//! template can prepare it once.

use std::os::fd::RawFd;

/// Connected stream socket to the NLA, for whoever speaks PMI in the process.
pub const PMI_FD: RawFd = 3;
/// The node's table memory, for reading only.
pub const TABLES_FD: RawFd = 4;
/// The node's heap memory.
pub const HEAP_FD: RawFd = 5;
/// The file that names the node's XRC domain, for the HCAs of its PEs.
pub const XRC_FD: RawFd = 6;
/// Socket over which the PEs of a node speak to the NLA: [`ToAgent`](crate::to_agent::ToAgent).
pub const AGENT_FD: RawFd = 7;
/// The first number that means nothing to a PE.
pub const FIRST_FREE_FD: RawFd = 8;

/// Decimal descriptor of the PMI socket, as PMI clients know it.
pub const ENV_PMI_FD: &str = "PMI_FD";
/// This PE's rank in the job.
pub const ENV_PMI_RANK: &str = "PMI_RANK";
/// As `PMI_RANK`, under the name that PMI-2 clients look for.
pub const ENV_PMI_ID: &str = "PMI_ID";
/// Number of PEs in the job.
pub const ENV_PMI_SIZE: &str = "PMI_SIZE";
/// The job's name: 32 hexadecimal digits.
pub const ENV_PMI_JOBID: &str = "PMI_JOBID";
/// Present, and equal to [`NODE_CONTRACT`], when the launcher is `shmrun`: the node segment is at
/// its descriptors. If there is PMI, its server knows the extension commands.
pub const ENV_NODE: &str = "SHMEM_NODE";
/// Position of this PE among the PEs of its node, from 0.
pub const ENV_LOCAL_RANK: &str = "SHMEM_LOCAL_RANK";
/// Number of PEs on this PE's node, under the name by which MPI programs know it.
pub const ENV_LOCAL_SIZE: &str = "MPI_LOCALNRANKS";
/// As `SHMEM_LOCAL_RANK`, under the name by which MPI programs know it.
pub const ENV_LOCAL_ID: &str = "MPI_LOCALRANKID";
/// Present, and `1`, in a job that another one has spawned.
pub const ENV_PMI_SPAWNED: &str = "PMI_SPAWNED";
/// Present in a process that takes the place of one that has died: how often this rank has been started
/// again, from 1.
pub const ENV_PMI_RESPAWNED: &str = "PMI_RESPAWNED";
/// Descriptor over which a program that is exec'ed as a template receives spawn requests.
pub const ENV_TEMPLATE_FD: &str = "SHMEM_TEMPLATE_FD";

/// Processors to which a template binds the PEs that it forks: [`Bindings`](crate::cpus::Bindings).
pub const ENV_BINDINGS: &str = "SHMEM_BINDINGS";

/// Value of [`ENV_NODE`]: changes whenever this crate's memory layout or the descriptors do, so that a launcher and
/// a library of different versions refuse each other instead of misreading memory.
pub const NODE_CONTRACT: &str = "15";

/// Most PEs of a job.
pub const MAX_PES: u32 = 1 << 20;

/// Variables that tell a process its place in a job: ours, and those that other launchers and their PMIx
/// servers give. What is left is settings and names of installations (`PMIX_MCA_gds`, `PMIX_PREFIX`, `OMPI_MCA_btl`)
/// and of allocations (`SLURM_JOB_ID`).
const PLACE_ENV: [&str; 27] = [
    ENV_NODE,
    ENV_LOCAL_RANK,
    ENV_LOCAL_SIZE,
    ENV_LOCAL_ID,
    ENV_TEMPLATE_FD,
    ENV_BINDINGS,
    // As Hydra has it.
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
    "PMIX_NAMESPACE",
    "PMIX_RANK",
    "PMIX_ID",
    "PMIX_REINCARNATION",
    "PMIX_HOSTNAME",
    "PMIX_VERSION",
    "PMIX_GDS_MODULE",
    "PMIX_PTL_MODULE",
    "PMIX_BFROP_BUFFER_TYPE",
    "PMIX_SECURITY_MODE",
    "PMIX_SYSTEM_TMPDIR",
    "PRTE_LAUNCHED",
    "OMPI_UNIVERSE_SIZE",
    "OMPI_NUM_APP_CTX",
    "OMPI_FIRST_RANKS",
    "OMPI_APP_CTX_NUM_PROCS",
    "OMPI_FILE_LOCATION",
    "OMPI_ARGV",
    "OMPI_COMMAND",
    "OMPI_MCA_initial_wdir",
];

/// How others of them begin.
const PLACE_ENV_BEGINS: [&str; 12] = [
    "PMI_",
    "PMIX_SERVER_",
    "PMIX_DSTORE_",
    "PMIX_LAUNCHER_",
    "PMIX_KEEPALIVE_",
    "SLURM_PMI",
    "PALS_",
    "OMPI_COMM_WORLD_",
    "OMPI_MCA_orte_",
    "OMPI_MCA_ess",
    "OMPI_MCA_pmix",
    "OMPI_MCA_num_procs",
];

/// Whether a variable tells a process its place in a job. Who starts PEs does not pass on its own.
pub fn is_place(name: &[u8]) -> bool {
    PLACE_ENV.iter().any(|own| own.as_bytes() == name)
        || PLACE_ENV_BEGINS
            .iter()
            .any(|b| name.starts_with(b.as_bytes()))
}

/// The variables by which all PEs of a job find PMI.
pub fn pmi_env(job_id: &[u8; 16], n_pes: u32) -> [(&'static str, String); 3] {
    [
        (ENV_PMI_FD, PMI_FD.to_string()),
        (ENV_PMI_SIZE, n_pes.to_string()),
        (ENV_PMI_JOBID, hex(job_id)),
    ]
}

/// The variable by which OpenSHMEM programs find their place, which is a PE's own.
pub fn place_env(local: u32) -> (&'static str, u32) {
    (ENV_LOCAL_RANK, local)
}

/// The variables that are a PE's own and tell PMI's clients their place.
pub fn rank_env(rank: u32) -> [(&'static str, u32); 2] {
    [(ENV_PMI_RANK, rank), (ENV_PMI_ID, rank)]
}

/// The variables that programs which are executed for each PE find besides: those of Hydra, the process
/// manager of MPICH.
pub fn mpi_env(local: u32, n_local: u32) -> [(&'static str, u32); 2] {
    [(ENV_LOCAL_SIZE, n_local), (ENV_LOCAL_ID, local)]
}

/// Lower-case hexadecimal digits of `bytes`.
pub fn hex(bytes: &[u8]) -> String {
    use std::fmt::Write;
    bytes
        .iter()
        .fold(String::with_capacity(2 * bytes.len()), |mut s, b| {
            let _ = write!(s, "{b:02x}");
            s
        })
}

/// The bytes that were written as hexadecimal digits of either case; `None` if they are none.
pub fn unhex(digits: &[u8]) -> Option<Vec<u8>> {
    let nibble = |digit: u8| char::from(digit).to_digit(16).map(|n| n as u8);
    let (pairs, rest) = digits.as_chunks::<2>();
    let bytes = pairs
        .iter()
        .map(|&[high, low]| Some(nibble(high)? << 4 | nibble(low)?));
    rest.is_empty().then(|| bytes.collect())?
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_place_in_another_job_is_told_from_settings() {
        for place in [
            "PMI_RANK",
            "PMIX_RANK",
            "PMIX_SERVER_URI41",
            "OMPI_COMM_WORLD_RANK",
            "SLURM_PMIX_MAPPING_SERV",
        ] {
            assert!(is_place(place.as_bytes()), "{place}");
        }
        for kept in [
            "PMIX_MCA_gds",
            "PMIX_PREFIX",
            "OMPI_MCA_btl",
            "SLURM_JOB_ID",
            "OPAL_PREFIX",
            "PATH",
        ] {
            assert!(!is_place(kept.as_bytes()), "{kept}");
        }
    }

    #[test]
    fn digits_come_back_as_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(hex(&bytes).as_bytes()), Some(bytes));
        for damaged in ["0", "0g", "abc", "  "] {
            assert_eq!(unhex(damaged.as_bytes()), None, "{damaged}");
        }
    }
}
