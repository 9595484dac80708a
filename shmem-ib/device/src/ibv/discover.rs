//! Which devices there are: each is opened for a moment and asked what it can do.

use std::ffi::CStr;

use rdma_sys::{
    ibv_atomic_cap, ibv_device_attr_ex, ibv_device_cap_flags, ibv_gid_type, ibv_odp_general_caps,
    ibv_odp_transport_cap_bits, ibv_port_attr,
};

use super::SysError;
use super::context::{Context, DeviceList};
use crate::abilities::{Abilities, Odp, OdpOps, PortAbilities};
use crate::hardware::{Atomics, GidEntry, GidKind, LinkLayer, PhysicalState, PortState, RdmaPort};
use crate::quirks::Quirks;
use crate::sysfs;
use shmem_verbs::{Gid, Mtu};

/// A device, and what it is unless it cannot be asked.
#[derive(Clone, Debug)]
pub struct FoundDevice {
    /// Name by which it is opened.
    pub name: String,
    /// What it is, or why this process cannot use it.
    pub info: Result<Abilities, SysError>,
}

/// All RDMA devices of this machine. Opens each, so it costs some milliseconds per device.
///
/// # Errors
/// libibverbs is missing, or the devices cannot be listed. That a single device cannot be used is
/// told in its place.
pub fn devices() -> Result<Vec<FoundDevice>, SysError> {
    let list = DeviceList::new()?;
    let ask = |(name, device): (String, _)| {
        let info = Context::open_listed(&list, &name, device).and_then(|c| describe(&c));
        FoundDevice { name, info }
    };
    Ok(list.iter().map(ask).collect())
}

/// What the device is.
pub(super) fn describe(context: &Context) -> Result<Abilities, SysError> {
    let attr = context.query_device()?;
    let firmware = attr.orig_attr.fw_ver.map(|c| c.to_ne_bytes()[0]);
    let firmware = CStr::from_bytes_until_nul(&firmware)
        .map(|text| text.to_string_lossy().into_owned())
        .unwrap_or_default();
    let raw_ports = (1..=attr.orig_attr.phys_port_cnt)
        .map(|number| Ok((number, context.query_port(number)?)))
        .collect::<Result<Vec<_>, SysError>>()?;
    let most = raw_ports
        .iter()
        .map(|(_, port)| port.gid_tbl_len.max(0) as usize)
        .sum();
    let mut ports = raw_ports.iter().map(|p| port(*p)).collect::<Vec<_>>();
    match context.query_gids(most)? {
        Some(entries) => {
            for entry in entries {
                let number = |p: &&mut PortAbilities| u32::from(p.port.number) == entry.port_num;
                let kind = match entry.gid_type {
                    ibv_gid_type::IBV_GID_TYPE_ROCE_V1 => GidKind::RoceV1,
                    ibv_gid_type::IBV_GID_TYPE_ROCE_V2 => GidKind::RoceV2,
                    _ => GidKind::InfiniBand,
                };
                // SAFETY: all parts of the union are 16 plain bytes.
                let gid = Gid(unsafe { entry.gid.raw });
                if let (Some(port), Ok(index)) =
                    (ports.iter_mut().find(number), entry.gid_index.try_into())
                {
                    port.port.gids.push(GidEntry { index, gid, kind });
                }
            }
        }
        None => {
            for (port, (_, raw)) in ports.iter_mut().zip(&raw_ports) {
                let most = raw.gid_tbl_len.clamp(0, 256) as u16;
                let path = sysfs::Places::default().port(&context.name, port.port.number);
                let entry = |index| sysfs::gid(&path, &port.port.link, index).ok().flatten();
                port.port.gids = (0..most).filter_map(entry).collect();
            }
        }
    }
    for port in &mut ports {
        port.port.gids.sort_unstable_by_key(|g| g.index);
    }
    let mut told = abilities(&attr);
    told.firmware = firmware;
    told.ports = ports;
    told.emulated = sysfs::Places::default().is_emulated(&context.name);
    let quirks = Quirks::of(told.vendor_id, told.vendor_part_id);
    Ok(told.corrected(quirks))
}

/// `IBV_QPF_GRH_REQUIRED` of `<infiniband/verbs.h>`.
const QPF_GRH_REQUIRED: u8 = 1;

fn port((number, attr): (u8, ibv_port_attr)) -> PortAbilities {
    // A port that is down may tell no MTU.
    let mtu = |code: u32| Mtu::from_code(code as u8).unwrap_or(Mtu::M256);
    PortAbilities {
        port: RdmaPort {
            number,
            state: PortState::from_code(attr.state),
            // Drivers from before RoCE leave it unspecified.
            link: match attr.link_layer {
                0 | 1 => LinkLayer::InfiniBand,
                2 => LinkLayer::Ethernet,
                other => LinkLayer::Other(format!("unknown link layer {other}")),
            },
            rate: 0,
            physical: PhysicalState::from_code(attr.phys_state),
            lid: attr.lid,
            lmc: attr.lmc,
            sm_lid: attr.sm_lid,
            needs_grh: attr.flags & QPF_GRH_REQUIRED != 0,
            gids: Vec::new(),
            pkeys: Vec::new(),
        },
        mtu: (mtu(attr.active_mtu), mtu(attr.max_mtu)),
        max_msg: attr.max_msg_sz.into(),
    }
}

fn abilities(attr: &ibv_device_attr_ex) -> Abilities {
    let (dev, odp) = (&attr.orig_attr, &attr.odp_caps);
    let count = |n: i32| u32::try_from(n).unwrap_or(0);
    let general = |bit: u32| odp.general_caps & u64::from(bit) != 0;
    let rc = |bit: u32| odp.per_transport_caps.rc_odp_caps & bit != 0;
    Abilities {
        vendor_id: dev.vendor_id,
        vendor_part_id: dev.vendor_part_id,
        max_qp: count(dev.max_qp),
        max_qp_wr: count(dev.max_qp_wr),
        max_sge: count(dev.max_sge),
        max_sge_rd: count(dev.max_sge_rd),
        max_cqe: count(dev.max_cqe),
        max_mr: count(dev.max_mr),
        max_mr_size: dev.max_mr_size,
        max_ah: count(dev.max_ah),
        max_srq: count(dev.max_srq),
        max_srq_wr: count(dev.max_srq_wr),
        max_srq_sge: count(dev.max_srq_sge),
        max_qp_rd_atom: count(dev.max_qp_rd_atom),
        max_qp_init_rd_atom: count(dev.max_qp_init_rd_atom),
        atomics: match dev.atomic_cap {
            ibv_atomic_cap::IBV_ATOMIC_HCA => Atomics::Device,
            ibv_atomic_cap::IBV_ATOMIC_GLOB => Atomics::Global,
            _ => Atomics::None,
        },
        xrc: dev.device_cap_flags & ibv_device_cap_flags::IBV_DEVICE_XRC != 0,
        odp: Odp {
            supported: general(ibv_odp_general_caps::IBV_ODP_SUPPORT),
            implicit: general(ibv_odp_general_caps::IBV_ODP_SUPPORT_IMPLICIT),
            rc: OdpOps {
                send: rc(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_SEND),
                recv: rc(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_RECV),
                write: rc(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_WRITE),
                read: rc(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_READ),
                atomic: rc(ibv_odp_transport_cap_bits::IBV_ODP_SUPPORT_ATOMIC),
            },
        },
        ..Abilities::default()
    }
}
