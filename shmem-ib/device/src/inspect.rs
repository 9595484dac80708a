//! What only libibverbs knows of RDMA devices: for reports, not for the choice. Opens each device
//! for a moment.

use super::abilities::Abilities;

/// What stands against a device that the kernel has, and libibverbs does not list.
pub const NO_PROVIDER: &str = "libibverbs has no provider (driver) for it: install the package \
    ibverbs-providers (Debian, Ubuntu), libibverbs (Fedora, RHEL) or the vendor's; in a container, as new a \
    one as the host's";

/// What is found through libibverbs.
#[derive(Clone, Debug)]
pub struct Inspection {
    /// Where the library is, or why it is not used.
    pub library: Result<String, String>,
    /// Each device by its name, or why it cannot be asked.
    pub devices: Vec<(String, Result<Abilities, String>)>,
}

/// Asks libibverbs about all devices.
#[must_use]
pub fn inspect() -> Inspection {
    match crate::ibv::devices() {
        Ok(found) => Inspection {
            library: Ok(library_path()),
            devices: found
                .into_iter()
                .map(|device| (device.name, device.info.map_err(|e| e.to_string())))
                .collect(),
        },
        Err(e) => Inspection {
            library: if is_loaded() {
                Ok(library_path())
            } else {
                Err(e.to_string())
            },
            devices: Vec::new(),
        },
    }
}

/// The file of the library, from the list of this process's mappings.
fn mapped() -> Option<String> {
    let maps = std::fs::read_to_string("/proc/self/maps").ok()?;
    let line = maps.lines().find(|line| line.contains("/libibverbs.so"))?;
    Some(line.get(line.find('/')?..)?.to_owned())
}

fn is_loaded() -> bool {
    mapped().is_some()
}

fn library_path() -> String {
    mapped().unwrap_or_else(|| "libibverbs.so.1".into())
}
