//! The RDMA devices that a test may use.

use shmem_ib::device::VerbsConfig;
use shmem_ib::device::choice::{Choice, PortRequest, Wanted, choose};
use shmem_ib::device::ibv::{FoundDevice, devices};
use shmem_ib::device::seat::Seat;
use shmem_ib::device::sysfs::Places;

/// `SHMEM_TEST_HCA` names one device, or two that can reach each other with a comma between; without
/// it the best one serves as both.
///
/// # Errors
/// Why there is none.
pub(crate) fn pair() -> Result<([VerbsConfig; 2], Vec<FoundDevice>), String> {
    let wanted = std::env::var("SHMEM_TEST_HCA").unwrap_or_default();
    let found = devices().map_err(|e| e.to_string())?;
    let names: Vec<&str> = wanted.split(',').filter(|n| !n.is_empty()).collect();
    let named = |name: &str| Wanted::Ports(vec![(name.to_owned(), None)]);
    let [one, two] = match names[..] {
        [] => [Wanted::Verbs, Wanted::Verbs],
        [one] => [named(one), named(one)],
        [one, two] => [named(one), named(two)],
        _ => return Err("SHMEM_TEST_HCA names more than two devices".into()),
    };
    Ok(([config(&one)?, config(&two)?], found))
}

/// The port that a job would use.
fn config(wanted: &Wanted) -> Result<VerbsConfig, String> {
    match choose(
        wanted,
        &Seat::default(),
        PortRequest::default(),
        &Places::default().survey(),
    ) {
        Ok(Choice::Verbs { ports, .. }) => {
            let best = &ports[0];
            Ok(VerbsConfig::new(&best.device, best.port, best.gid_index))
        }
        Ok(Choice::Soft(why)) => Err(why),
        Err(e) => Err(e.to_string()),
    }
}
