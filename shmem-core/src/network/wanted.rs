//! The device that the settings ask for. Also part of the program `shmem-info`, which decides as a
//! PE does.

use shmem_ib::device::VerbsOptions;
use shmem_ib::device::choice::Wanted;
use shmem_ib::verbs::Pkey;
use shmem_node::settings::{Faults, HcaChoice, Settings};

/// What the user asks for. Some settings say how software HCAs are to treat each other, and mean
/// nothing to devices; with these, the free choice is the software HCA.
pub(crate) fn wanted(settings: &Settings) -> Wanted {
    let soft = settings.soft_netns.is_some()
        || settings.soft_interop
        || settings.soft_faults != Faults::default();
    match &settings.hca {
        HcaChoice::Auto if soft => Wanted::Soft,
        HcaChoice::Auto => Wanted::Auto,
        HcaChoice::Soft => Wanted::Soft,
        HcaChoice::Verbs => Wanted::Verbs,
        HcaChoice::Ports(ports) => {
            Wanted::Ports(ports.iter().map(|p| (p.device.clone(), p.port)).collect())
        }
    }
}

/// How a device is to be used, but for what depends on the heap.
pub(crate) fn options(settings: &Settings) -> VerbsOptions {
    VerbsOptions {
        on_demand_paging: false,
        pkey: settings.pkey.map(Pkey),
        service_level: settings.service_level,
        traffic_class: settings.traffic_class,
        global_route: settings.global_route,
    }
}
