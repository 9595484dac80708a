//! Opens the device that a process is to use: looks, chooses, and tries.

use super::Device;
use super::choice::{Choice, NO_XRC, NoChoice, PortRequest, Usable, Wanted, choose};
use super::memlock::Memlock;
use super::options::VerbsConfig;
use super::options::VerbsOptions;
use super::seat::Seat;
use super::sysfs::Places;
use crate::ibv::{SysError, VerbsHca};
use crate::inspect::NO_PROVIDER;
use shmem_soft::{SoftConfig, SoftHca};
use shmem_verbs::Hca;
use shmem_verbs::VerbsError;

/// What a process needs of a device.
#[derive(Clone, Debug)]
pub struct Request<'a> {
    /// What its user asks for.
    pub wanted: Wanted,
    /// The number of its node in the job.
    pub node: usize,
    /// Its number among the processes of its node.
    pub local: usize,
    /// Where the kernel tells of devices and of the machine.
    pub places: Places,
    /// The user's choice of a GID.
    pub gid_index: Option<u8>,
    /// Bytes that it is going to register.
    pub memory: u64,
    /// Whether it is going to use XRC.
    pub xrc: bool,
    /// How an RDMA device is to be used.
    pub verbs: VerbsOptions,
    /// How the software HCA is to be.
    pub soft: &'a SoftConfig,
}

/// A device, and how it came to be chosen.
#[derive(Debug)]
pub struct Opened {
    /// The device.
    pub device: Device,
    /// Which it is and why, for messages.
    pub why: String,
}

/// Why no device was opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// What was asked for is not there.
    #[error(transparent)]
    NoChoice(#[from] NoChoice),
    /// No device that was asked for opens.
    #[error("cannot use {refusals}. SHMEM_HCA=soft does without; shmem-info shows what there is")]
    Verbs {
        /// Devices and ports, what stands against each, and what to do.
        refusals: String,
    },
    /// The software HCA does not open.
    #[error("{source}; where software HCAs are is set by SHMEM_SOFT_ADDRESS and SHMEM_SOFT_PORT")]
    Soft {
        /// What stands against it.
        source: VerbsError,
    },
}

/// Opens a device. With [`Wanted::Auto`] nothing that is wrong with RDMA devices is an error.
///
/// # Errors
/// A device was asked for that is not there, cannot be used or does not open; or the software HCA
/// does not open.
pub fn open(request: &Request<'_>) -> Result<Opened, OpenError> {
    let why = match choice(request)? {
        Choice::Soft(why) => why,
        Choice::Verbs { ports, or_soft } => match first_that_opens(request, &ports, or_soft) {
            Ok(opened) => return Ok(opened),
            Err(refusals) if or_soft => refusals,
            Err(refusals) => return Err(OpenError::Verbs { refusals }),
        },
    };
    let device = match SoftHca::open(request.soft) {
        Ok(hca) => Device::Soft(hca),
        Err(source) => return Err(OpenError::Soft { source }),
    };
    Ok(Opened { device, why })
}

/// What to open for the process.
fn choice(request: &Request<'_>) -> Result<Choice, NoChoice> {
    if request.wanted == Wanted::Soft {
        // Without a search for devices.
        return Ok(Choice::Soft("the settings say so".into()));
    }
    // Most PEs without a device end here, and touch no page of what follows.
    if let (Wanted::Auto, Some(why)) = (&request.wanted, request.places.remembered_absence()) {
        return Ok(Choice::Soft(why.to_owned()));
    }
    let asked = PortRequest {
        gid_index: request.gid_index,
        pkey: request.verbs.pkey,
    };
    let places = Places {
        gid_index: asked.gid_index,
        whole_pkeys: asked.pkey.is_some(),
        ..request.places.clone()
    };
    let survey = places.survey();
    // Where a process runs decides among devices.
    let seat = match survey.devices.len() {
        0 => Seat::default(),
        _ => Seat::here(&places, request.node, request.local),
    };
    choose(&request.wanted, &seat, asked, &survey)
}

/// The first port that opens and can do what the process needs; or why none does. It is a function of its own because
/// the frame of its stack is large, which a process without devices need not have in memory.
#[inline(never)]
fn first_that_opens(
    request: &Request<'_>,
    ports: &[Usable],
    or_soft: bool,
) -> Result<Opened, String> {
    let mut refusals = Vec::new();
    for port in ports {
        let name = port.to_string();
        let config = VerbsConfig {
            device: port.device.clone(),
            port: port.port,
            gid_index: port.gid_index,
            path: request.local,
            options: request.verbs,
        };
        let why = match VerbsHca::open(&config) {
            Ok(hca) => match lacking(&hca, request, or_soft) {
                None => {
                    let device = Device::Verbs(hca);
                    let why = format!("{name}: {}", port.why);
                    return Ok(Opened { device, why });
                }
                Some(why) => why,
            },
            // The kernel has it.
            Err(SysError::NoSuchDevice { .. }) => NO_PROVIDER.to_owned(),
            Err(e) => e.to_string(),
        };
        refusals.push(format!("{name}: {why}"));
    }
    Err(refusals.join("; "))
}

/// What the device cannot do for this process, as far as that is known beforehand. How much memory
/// it may pin counts only where there is a choice: who has asked for the device is told when the
/// registration fails.
fn lacking(hca: &VerbsHca, request: &Request<'_>, choice: bool) -> Option<String> {
    let port = hca.port();
    if request.xrc && !port.xrc {
        return Some(NO_XRC.into());
    }
    if choice && port.pins_memory {
        return Memlock::current().refuses(request.memory);
    }
    None
}
