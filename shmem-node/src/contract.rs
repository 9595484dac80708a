//! What a PE finds when it starts: descriptors at fixed numbers and a few environment variables.
//!
//! Fixed numbers let the environment be the same for all PEs of a node but for the ranks, so a
//! template can prepare it once.

use std::os::fd::RawFd;

/// Connected stream socket to the NLA, speaking PMI-2.
pub const PMI_FD: RawFd = 3;
/// The node's table memory, for reading only.
pub const TABLES_FD: RawFd = 4;
/// The node's heap memory.
pub const HEAP_FD: RawFd = 5;
/// The file that names the node's XRC domain, for the HCAs of its PEs.
pub const XRC_FD: RawFd = 6;
/// The first number that means nothing to a PE.
pub const FIRST_FREE_FD: RawFd = 7;

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
/// its descriptors and the PMI server knows the extension commands.
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
pub const NODE_CONTRACT: &str = "9";

/// Most PEs of a job.
pub const MAX_PES: u32 = 1 << 20;

/// Variables that tell a process its place in a job, besides those that begin with `PMI_`. Who starts PEs
/// does not pass on its own.
pub const PLACE_ENV: [&str; 4] = [
    ENV_LOCAL_RANK,
    ENV_LOCAL_SIZE,
    ENV_LOCAL_ID,
    // As Hydra has it.
    "MPIR_CVAR_CH3_INTERFACE_HOSTNAME",
];

/// The variables that all PEs of a job share.
pub fn common_env(job_id: &[u8; 16], n_pes: u32) -> Vec<(&'static str, String)> {
    vec![
        (ENV_NODE, NODE_CONTRACT.to_owned()),
        (ENV_PMI_FD, PMI_FD.to_string()),
        (ENV_PMI_SIZE, n_pes.to_string()),
        (ENV_PMI_JOBID, hex(job_id)),
    ]
}

/// The variables that are a PE's own.
pub fn pe_env(rank: u32, local: u32) -> [(&'static str, String); 3] {
    [
        (ENV_PMI_RANK, rank.to_string()),
        (ENV_PMI_ID, rank.to_string()),
        (ENV_LOCAL_RANK, local.to_string()),
    ]
}

/// The variables that programs which are executed for each PE find besides: those of Hydra, the process
/// manager of MPICH.
pub fn mpi_env(local: u32, n_local: u32) -> [(&'static str, String); 2] {
    [
        (ENV_LOCAL_SIZE, n_local.to_string()),
        (ENV_LOCAL_ID, local.to_string()),
    ]
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
    fn digits_come_back_as_bytes() {
        let bytes: Vec<u8> = (0..=255).collect();
        assert_eq!(unhex(hex(&bytes).as_bytes()), Some(bytes));
        for damaged in ["0", "0g", "abc", "  "] {
            assert_eq!(unhex(damaged.as_bytes()), None, "{damaged}");
        }
    }
}
