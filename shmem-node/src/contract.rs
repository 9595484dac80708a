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
/// Descriptor over which a program that is exec'ed as a template receives spawn requests.
pub const ENV_TEMPLATE_FD: &str = "SHMEM_TEMPLATE_FD";

/// Value of [`ENV_NODE`]: changes whenever this crate's memory layout or the descriptors do, so that a launcher and
/// a library of different versions refuse each other instead of misreading memory.
pub const NODE_CONTRACT: &str = "5";

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
