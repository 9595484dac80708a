//! What a PE finds when it starts: descriptors and a few environment variables.
//!
//! All PEs of a node have their descriptors at the same numbers. Their environments then differ in
//! the ranks only, so a template can prepare them once.

use std::fmt;
use std::ops::Range;
use std::os::fd::RawFd;

/// The numbers of the descriptors that a PE starts with: six in a row.
///
/// Scripts between `shmrun` and a program use small numbers (`exec 3>log`) and round ones (`flock 200`), and a
/// shell keeps the script that it reads at 255 or the next number below that is free.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Descriptors {
    first: RawFd,
}

impl Descriptors {
    /// Those of a program that may have so many open.
    pub(crate) const USUAL: Self = Self { first: 231 };
    const COUNT: RawFd = 6;
    /// The number of `flock 200`.
    const OF_SCRIPTS: RawFd = 200;

    /// The highest numbers that are right for a program that may open descriptors below `limit`.
    pub fn below(limit: u64) -> Self {
        let limit = RawFd::try_from(limit).unwrap_or(RawFd::MAX);
        let first = limit
            .saturating_sub(Self::COUNT)
            .clamp(3, Self::USUAL.first);
        let highest = Self { first };
        if highest.all().contains(&Self::OF_SCRIPTS) {
            let first = Self::OF_SCRIPTS - Self::COUNT;
            return Self { first };
        }
        highest
    }

    /// All of them.
    pub(crate) fn all(self) -> Range<RawFd> {
        self.first..self.first + Self::COUNT
    }

    /// The template's socket, which a PE does not have any more.
    pub fn template(self) -> RawFd {
        self.first
    }

    /// Connected stream socket to the NLA, for the library that speaks PMI in the process.
    pub fn pmi(self) -> RawFd {
        self.first + 1
    }

    /// The node's table memory, for reading only.
    pub fn tables(self) -> RawFd {
        self.first + 2
    }

    /// The node's heap memory.
    pub fn heap(self) -> RawFd {
        self.first + 3
    }

    /// The file that names the node's XRC domain, for the HCAs of its PEs.
    pub fn xrc(self) -> RawFd {
        self.first + 4
    }

    /// Socket over which the PEs of a node speak to the NLA: [`ToAgent`](crate::to_agent::ToAgent).
    pub fn agent(self) -> RawFd {
        self.first + 5
    }
}

/// A descriptor that `shmrun` has left to a PE, at whose number the PE finds something else.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Replaced {
    fd: RawFd,
    by: Option<String>,
}

impl Replaced {
    /// For what the calling process has at this number.
    pub fn at(fd: RawFd) -> Self {
        let by = std::fs::read_link(format!("/proc/self/fd/{fd}")).ok();
        let by = by.map(|path| path.display().to_string());
        Self { fd, by }
    }
}

impl fmt::Display for Replaced {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (fd, by) = (self.fd, self.by.as_deref().unwrap_or("something else"));
        write!(
            f,
            "descriptor {fd} is {by}, and not what shmrun has left there: a script or program between shmrun and this \
             program uses that number. Let it use another one; 3 to 9 are free"
        )
    }
}

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
/// Present when the launcher is `shmrun`: the contract and where the [`Descriptors`] begin, as [`node_env`] writes
/// it. If there is PMI, its server knows the extension commands.
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
/// Present in a program that is executed as a template, and what it has to know:
/// [`TemplateStart`](crate::template::TemplateStart).
pub const ENV_TEMPLATE: &str = "SHMEM_TEMPLATE";

/// Processors to which a template binds the PEs that it starts: [`Bindings`](crate::cpus::Bindings).
pub const ENV_BINDINGS: &str = "SHMEM_BINDINGS";

/// The first part of [`ENV_NODE`]: changes whenever this crate's memory layout or the descriptors do, so that a launcher and
/// a library of different versions refuse each other instead of misreading memory.
pub const NODE_CONTRACT: &str = "25";

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
    ENV_TEMPLATE,
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

/// The variable by which all PEs of a node find what the launcher has left them.
pub fn node_env(fds: Descriptors) -> (&'static str, String) {
    (ENV_NODE, format!("{NODE_CONTRACT}:{}", fds.first))
}

/// Reads the value of [`ENV_NODE`].
///
/// # Errors
/// The contract of the launcher, if it is not this one.
pub fn offered(value: &str) -> Result<Descriptors, OtherContract> {
    let (version, first) = value.split_once(':').unwrap_or((value, ""));
    let first = first.parse().ok().filter(|&first: &RawFd| first >= 3);
    match first.filter(|_| version == NODE_CONTRACT) {
        Some(first) => Ok(Descriptors { first }),
        None => Err(OtherContract(version.to_owned())),
    }
}

/// What [`ENV_NODE`] offers this process, if `shmrun` has started it.
pub fn offered_here() -> Option<Result<Descriptors, OtherContract>> {
    Some(offered(&std::env::var(ENV_NODE).ok()?))
}

/// The launcher is of another version.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "this program was built for launch contract {NODE_CONTRACT}, but shmrun offers {0}; use the shmrun that was built \
     with it"
)]
pub struct OtherContract(String);

/// The variables by which all PEs of a job find PMI.
pub fn pmi_env(fds: Descriptors, job_id: &[u8; 16], n_pes: u32) -> [(&'static str, String); 3] {
    [
        (ENV_PMI_FD, fds.pmi().to_string()),
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
    fn descriptors_lie_where_scripts_and_shells_have_none() {
        for limit in (9..=300).chain([1024, u64::MAX]) {
            let fds = Descriptors::below(limit);
            let numbers = fds.template()..=fds.agent();
            assert_eq!(numbers.clone().count(), 6);
            assert!(*numbers.start() >= 3 && (*numbers.end() as u64) < limit);
            // Those that shells can write with one digit, if there are others at all.
            assert!(limit < 16 || *numbers.start() > 9, "{limit}: {fds:?}");
            assert!(
                !numbers.contains(&200) && !numbers.contains(&255),
                "{limit}: {fds:?}"
            );
            let (_, value) = node_env(fds);
            assert_eq!(offered(&value), Ok(fds));
        }
    }

    #[test]
    fn an_offer_of_another_version_is_none() {
        let own = |rest: &str| format!("{NODE_CONTRACT}{rest}");
        for value in ["".into(), "999:231".into(), own(""), own(":x"), own(":0")] {
            let other = offered(&value).expect_err(&value).to_string();
            assert!(other.contains("built with it"), "{value}: {other}");
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
