//! Which libraries may be MPI, and which of them to take where several are installed.
//!
//! A process that speaks another language to its launcher than the launcher does would be a job of its own. So
//! the library comes first that is known to speak what the launcher's environment offers.

use std::path::{Path, PathBuf};

/// Variable that names the library, as a path or as a name that the dynamic loader knows.
pub const ENV_LIBRARY: &str = "SHMEM_MPI_LIBRARY";

/// With PMI; the second name is Debian's.
const MPICH: [&str; 2] = ["libmpi.so.12", "libmpich.so.12"];
/// Of whoever makes it.
const STANDARD: [&str; 1] = ["libmpi_abi.so.1"];
/// With PMIx.
const OPEN_MPI: [&str; 1] = ["libmpi.so.40"];

/// Variables of launchers.
const PMI: [&str; 3] = ["PMI_FD", "PMI_PORT", "PMI_RANK"];
const PMIX: &str = "PMIX_NAMESPACE";
/// Where an installation of Open MPI is that is not where it was built for.
const OPEN_MPI_PREFIX: &str = "OPAL_PREFIX";

/// The names, best first; `lookup` gives the value of a variable.
pub(crate) fn candidates(lookup: &dyn Fn(&str) -> Option<String>) -> Vec<PathBuf> {
    let prefix = lookup(OPEN_MPI_PREFIX).filter(|prefix| !prefix.is_empty());
    let prefixed = prefix.map(|prefix| Path::new(&prefix).join("lib").join(OPEN_MPI[0]));
    let open_mpi = prefixed.into_iter().chain(OPEN_MPI.map(PathBuf::from));
    let (mpich, standard) = (MPICH.map(PathBuf::from), STANDARD.map(PathBuf::from));
    let speaks_pmix = lookup(PMIX).is_some() && PMI.iter().all(|name| lookup(name).is_none());
    match speaks_pmix {
        true => open_mpi.chain(standard).chain(mpich).collect(),
        false => mpich.into_iter().chain(standard).chain(open_mpi).collect(),
    }
}

/// Whether a file's name is that of an MPI library.
pub(crate) fn is_mpi(file: &str) -> bool {
    let mut known = MPICH.iter().chain(&STANDARD).chain(&OPEN_MPI);
    known.any(|name| {
        file.strip_prefix(name)
            .is_some_and(|rest| !rest.starts_with(|c: char| c.is_ascii_digit()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_launchers_language_decides() {
        let found = |env: &[(&str, &str)]| {
            let lookup = |name: &str| {
                let found = env.iter().find(|(known, _)| *known == name);
                found.map(|(_, value)| (*value).to_owned())
            };
            let found = candidates(&lookup);
            found[0].to_str().unwrap().to_owned()
        };
        assert_eq!(found(&[]), "libmpi.so.12");
        assert_eq!(found(&[("PMI_FD", "3")]), "libmpi.so.12");
        let pmix = (PMIX, "prterun-1@1");
        assert_eq!(found(&[pmix]), "libmpi.so.40");
        assert_eq!(found(&[pmix, ("PMI_RANK", "0")]), "libmpi.so.12");
        let prefix = (OPEN_MPI_PREFIX, "/opt/ompi");
        assert_eq!(found(&[pmix, prefix]), "/opt/ompi/lib/libmpi.so.40");
        assert_eq!(found(&[prefix]), "libmpi.so.12");
    }
}
