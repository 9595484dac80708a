//! Which port of which device to use, and why not the others: a decision about plain data.

#![forbid(unsafe_code)]

use std::fmt;

use super::hardware::{GidKind, LinkLayer, RdmaDevice, RdmaPort, Reach, Survey, Transport};
pub use super::order::Usable;
use super::order::in_order;
use super::seat::Seat;
use shmem_verbs::memory::ORDERS_DEVICES;
use shmem_verbs::{Fabric, Gid, Pkey};

/// What stands against a device that opens, but has no XRC for those who need it.
pub const NO_XRC: &str = "it has no XRC, which SHMEM_TRANSPORT=xrc needs";

/// What a user asks for.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Wanted {
    /// A port of an RDMA device if one can be used, else the software HCA.
    Auto,
    /// The software HCA.
    Soft,
    /// The best port of an RDMA device.
    Verbs,
    /// One of these devices and ports, by turns. Without a port: its first usable one.
    Ports(Vec<(String, Option<u8>)>),
}

/// What a user asks of ports, whichever it is.
#[derive(Clone, Copy, PartialEq, Eq, Default, Debug)]
pub struct PortRequest {
    /// The entry of the GID table to send from.
    pub gid_index: Option<u8>,
    /// The partition to be in.
    pub pkey: Option<Pkey>,
}

/// What a look at one port came to.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Verdict {
    /// Name of the device.
    pub device: String,
    /// Number of the port; `None` for what holds for the whole device.
    pub port: Option<u8>,
    /// How to use it, or why not.
    pub outcome: Result<Usable, String>,
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.outcome {
            Ok(usable) => write!(f, "{usable} can be used"),
            Err(why) => {
                f.write_str(&self.device)?;
                if let Some(port) = self.port {
                    write!(f, " port {port}")?;
                }
                write!(f, ": {why}")
            }
        }
    }
}

/// Judges every port.
#[must_use]
pub fn judge(survey: &Survey, asked: PortRequest) -> Vec<Verdict> {
    judge_on(ORDERS_DEVICES, survey, asked)
}

/// As [`judge`], on a processor that orders what devices write in a known way, or does not.
pub(super) fn judge_on(orders_devices: bool, survey: &Survey, asked: PortRequest) -> Vec<Verdict> {
    let mut verdicts = Vec::new();
    for device in &survey.devices {
        let whole = |why: String| Verdict {
            device: device.name.clone(),
            port: None,
            outcome: Err(why),
        };
        if let Err(why) = usable_device(orders_devices, device) {
            verdicts.push(whole(why));
            continue;
        }
        if device.ports.is_empty() {
            verdicts.push(whole("it has no ports".into()));
        }
        for port in &device.ports {
            verdicts.push(Verdict {
                device: device.name.clone(),
                port: Some(port.number),
                outcome: usable_port(device, port, asked),
            });
        }
    }
    verdicts
}

fn usable_device(orders_devices: bool, device: &RdmaDevice) -> Result<(), String> {
    if !orders_devices {
        return Err(format!(
            "this program does not know how {} processors order what a device writes into memory; it uses \
             RDMA devices on x86-64 and AArch64 only",
            std::env::consts::ARCH
        ));
    }
    match &device.transport {
        Transport::InfiniBand => device.access.clone(),
        Transport::Iwarp => Err(
            "it speaks iWARP, which has neither datagrams nor remote atomics: set SHMEM_HCA=soft \
             to use its Ethernet port"
                .into(),
        ),
        Transport::Other(name) => Err(format!(
            "its transport {name:?} is not InfiniBand's: only that has what this program needs"
        )),
    }
}

fn usable_port(device: &RdmaDevice, port: &RdmaPort, asked: PortRequest) -> Result<Usable, String> {
    if !port.state.is_active() {
        let (state, remedy) = (&port.state, port.remedy());
        return Err(format!("its state is {state}, not ACTIVE: {remedy}"));
    }
    let (fabric, (gid_index, gid, gid_why)) = match &port.link {
        LinkLayer::InfiniBand if port.lid == 0 => {
            return Err(
                "it has no LID: no subnet manager has set it up; start one (opensm), or the one of the \
                 switch"
                    .into(),
            );
        }
        LinkLayer::InfiniBand => (Fabric::InfiniBand, infiniband_gid(port, asked.gid_index)?),
        LinkLayer::Ethernet => (Fabric::Roce, roce_gid(port, asked.gid_index)?),
        LinkLayer::Other(name) => {
            return Err(format!("its link layer {name:?} is not known"));
        }
    };
    Ok(Usable {
        device: device.name.clone(),
        port: port.number,
        gid_index,
        gid,
        gid_why,
        pkey: port.pkey(asked.pkey)?.1,
        sm_lid: port.sm_lid,
        numa: device.numa,
        fabric,
        rate: port.rate,
        emulated: device.emulated,
        why: String::new(),
    })
}

/// Index and address of a GID, and why it is that one.
type Chosen = (u8, Gid, &'static str);

/// Why a GID is used that somebody asked for.
const AS_ASKED: &str = "SHMEM_GID_INDEX";

fn infiniband_gid(port: &RdmaPort, wanted: Option<u8>) -> Result<Chosen, String> {
    let index = wanted.unwrap_or(0);
    let why = wanted.map_or("the first", |_| AS_ASKED);
    let entry = port.gids.iter().find(|e| e.index == u16::from(index));
    entry
        .map(|e| (index, e.gid, why))
        .ok_or_else(|| format!("its GID table has nothing at index {index}"))
}

fn roce_gid(port: &RdmaPort, wanted: Option<u8>) -> Result<Chosen, String> {
    if let Some(index) = wanted {
        let entry = port.gids.iter().find(|e| e.index == u16::from(index));
        return match entry {
            None => Err(format!(
                "its GID table has nothing at index {index} (SHMEM_GID_INDEX)"
            )),
            Some(e) if e.kind != GidKind::RoceV2 => Err(format!(
                "the GID at index {index} (SHMEM_GID_INDEX) is one of RoCE v1; RoCEv2 is needed"
            )),
            Some(e) => Ok((index, e.gid, AS_ASKED)),
        };
    }
    let v2 = || port.gids.iter().filter(|e| e.kind == GidKind::RoceV2);
    let fit = v2()
        .filter(|e| Reach::of(e.gid) > Reach::LinkLocal)
        .filter_map(|e| Some((u8::try_from(e.index).ok()?, e.gid)))
        // Of equals the first.
        .rev()
        .max_by_key(|(_, gid)| Reach::of(*gid));
    let why = |gid| match Reach::of(gid) {
        Reach::Ipv4 => "the first IPv4 address of RoCEv2",
        Reach::Ipv6 => "the first IPv6 address of RoCEv2; there is no IPv4 one",
        Reach::Loopback | Reach::LinkLocal => "nothing but loopback",
    };
    let fit = fit.map(|(index, gid)| (index, gid, why(gid)));
    fit.ok_or_else(|| match (v2().next(), port.gids.first()) {
        (Some(e), _) if Reach::of(e.gid) == Reach::LinkLocal => format!(
            "its only addresses are link-local ({}): give its network interface an IP \
                 address, or take this one with SHMEM_GID_INDEX={}",
            e.gid, e.index
        ),
        (Some(e), _) => format!("its first GID of RoCEv2 has index {}, above 255", e.index),
        (None, Some(_)) => "it has GIDs of RoCE v1 only; RoCEv2 is needed".into(),
        (None, None) => "it has no GID: its network interface is down or has no address".into(),
    })
}

/// What to open, in this order.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Choice {
    /// The software HCA, and why.
    Soft(String),
    /// The first of these that opens, not empty. If none does: the software HCA if `or_soft`, else
    /// that is an error.
    Verbs {
        /// Best first.
        ports: Vec<Usable>,
        /// Whether the user left the choice to us.
        or_soft: bool,
    },
}

/// That what the user wants cannot be had.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
#[error(
    "SHMEM_HCA={wanted} cannot be had: {found}. Mend that, or set SHMEM_HCA=soft; shmem-info shows what there is"
)]
pub struct NoChoice {
    /// What was asked for.
    pub wanted: String,
    /// What there is instead.
    pub found: String,
}

/// Chooses for the process at this seat.
///
/// # Errors
/// A device was asked for, and none that was can be used.
pub fn choose(
    wanted: &Wanted,
    seat: &Seat,
    asked: PortRequest,
    survey: &Survey,
) -> Result<Choice, NoChoice> {
    choose_on(ORDERS_DEVICES, wanted, seat, asked, survey)
}

/// As [`choose`], on a processor that orders what devices write in a known way, or does not.
pub(super) fn choose_on(
    orders_devices: bool,
    wanted: &Wanted,
    seat: &Seat,
    asked: PortRequest,
    survey: &Survey,
) -> Result<Choice, NoChoice> {
    if *wanted == Wanted::Soft {
        return Ok(Choice::Soft("the settings say so".into()));
    }
    let mut verdicts = judge_on(orders_devices, survey, asked);
    let or_soft = *wanted == Wanted::Auto;
    if or_soft {
        verdicts.iter_mut().for_each(leave_out_emulated);
    }
    match wanted {
        Wanted::Auto | Wanted::Verbs | Wanted::Soft => {
            let ports = in_order(usable(&verdicts).cloned().collect(), seat, survey);
            match (ports.is_empty(), or_soft) {
                (false, _) => Ok(Choice::Verbs { ports, or_soft }),
                (true, true) => Ok(Choice::Soft(reasons(survey, &verdicts))),
                (true, false) => Err(NoChoice {
                    wanted: "verbs".into(),
                    found: reasons(survey, &verdicts),
                }),
            }
        }
        Wanted::Ports(list) => {
            // So that nodes that are emulated on one machine take different ones, too.
            let turn = (seat.node + seat.local) % list.len().max(1);
            let Some((device, port)) = list.get(turn) else {
                return Err(NoChoice {
                    wanted: String::new(),
                    found: "the list is empty".into(),
                });
            };
            let named = |v: &&Verdict| {
                v.device == *device && (port.is_none() || v.port.is_none() || v.port == *port)
            };
            let of_it: Vec<Verdict> = verdicts.iter().filter(named).cloned().collect();
            if let Some(port) = usable(&of_it).next() {
                let why = match list.len() {
                    1 => "the settings say so".to_owned(),
                    all => format!("entry {} of {all} of SHMEM_HCA, by turns", turn + 1),
                };
                return Ok(Choice::Verbs {
                    ports: vec![Usable {
                        why,
                        ..port.clone()
                    }],
                    or_soft,
                });
            }
            let known = survey.devices.iter().any(|d| d.name == *device);
            let found = match (known, of_it.is_empty()) {
                (true, false) => reasons(survey, &of_it),
                (true, true) => format!("{device} has no such port"),
                (false, _) => no_such_device(device, survey),
            };
            let port = port.map(|port| format!(":{port}")).unwrap_or_default();
            Err(NoChoice {
                wanted: format!("{device}{port}"),
                found,
            })
        }
    }
}

/// Of two emulations of a device the software HCA is the better one to have by default: it pins no memory,
/// its atomics are the processor's, and it tells when peers have written.
fn leave_out_emulated(verdict: &mut Verdict) {
    if verdict.outcome.as_ref().is_ok_and(|port| port.emulated) {
        verdict.outcome = Err(format!(
            "it is Soft-RoCE, an emulation like the software HCA, but one that pins memory: \
             SHMEM_HCA={} takes it",
            verdict.device
        ));
    }
}

fn usable(verdicts: &[Verdict]) -> impl Iterator<Item = &Usable> {
    verdicts.iter().filter_map(|v| v.outcome.as_ref().ok())
}

fn no_such_device(device: &str, survey: &Survey) -> String {
    let names: Vec<_> = survey.devices.iter().map(|d| d.name.as_str()).collect();
    match (&survey.trouble, names.is_empty()) {
        (Some(trouble), true) => trouble.clone(),
        _ => format!("there is no device {device}, only {}", names.join(", ")),
    }
}

/// Why nothing of this can be used.
fn reasons(survey: &Survey, verdicts: &[Verdict]) -> String {
    let texts = verdicts.iter().map(ToString::to_string);
    let texts: Vec<_> = survey.trouble.iter().cloned().chain(texts).collect();
    texts.join("; ")
}
