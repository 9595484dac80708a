//! The RDMA devices that a test may use.

use shmem_ib::sys::{FoundDevice, VerbsConfig, devices};

/// `SHMEM_TEST_HCA` names one device, or two that can reach each other with a comma between; without
/// it the first usable one serves as both.
///
/// # Errors
/// Why there is none.
pub(crate) fn pair() -> Result<([VerbsConfig; 2], Vec<FoundDevice>), String> {
    let wanted = std::env::var("SHMEM_TEST_HCA").unwrap_or_default();
    let found = devices().map_err(|e| e.to_string())?;
    let names: Vec<&str> = wanted.split(',').filter(|n| !n.is_empty()).collect();
    let usable = || found.iter().find(|d| config(d).is_ok());
    let names = match names[..] {
        [] => [&usable().ok_or("no RDMA device is usable")?.name; 2].map(String::as_str),
        [one] => [one; 2],
        [one, two] => [one, two],
        _ => return Err("SHMEM_TEST_HCA names more than two devices".into()),
    };
    let open = |name: &str| {
        let device = found.iter().find(|d| d.name == name);
        config(device.ok_or_else(|| format!("there is no device {name}"))?)
    };
    Ok(([open(names[0])?, open(names[1])?], found))
}

fn config(device: &FoundDevice) -> Result<VerbsConfig, String> {
    let info = device.info.as_ref().map_err(ToString::to_string)?;
    let port = info.ports.iter().find(|p| p.is_active());
    let port = port.ok_or_else(|| format!("{} has no active port", info.name))?;
    let gid = port.best_gid();
    let gid = gid.ok_or_else(|| format!("port {} of {} has no GID", port.number, info.name))?;
    Ok(VerbsConfig::new(&info.name, port.number, gid.index))
}

/// Whether it is a failure that there is no device.
pub(crate) fn is_required() -> bool {
    std::env::var("SHMEM_TEST_HCA_REQUIRED").is_ok_and(|v| v == "1")
}
