//! The report for programs.

use shmem_ib::device::abilities::Abilities;
use shmem_ib::device::choice::{Choice, Usable, Verdict};
use shmem_ib::device::hardware::{GidEntry, RdmaDevice, RdmaPort, Transport};
use shmem_node::json::Json;

use crate::facts::Facts;

/// The report as one object.
pub(crate) fn render(facts: &Facts) -> Json {
    let setting = |(name, value): &(&'static str, String)| {
        Json::Object(vec![
            ("name", (*name).into()),
            ("value", value.as_str().into()),
        ])
    };
    let (library, trouble) = match &facts.inspection.library {
        Ok(path) => (Some(path.clone()), None),
        Err(why) => (None, Some(why.clone())),
    };
    let devices = facts.survey.devices.iter().map(|d| device(facts, d));
    Json::Object(vec![
        ("version", facts.version.into()),
        ("use", choice(facts)),
        ("settings", facts.settings.iter().map(setting).collect()),
        ("setting_error", facts.bad_setting.clone().into()),
        ("memlock_bytes", facts.memlock.limit.into()),
        ("memlock_exempt", facts.memlock.privileged.into()),
        ("memlock_trouble", facts.memlock.refuses(facts.heap).into()),
        ("libibverbs", library.into()),
        ("libibverbs_trouble", trouble.into()),
        ("pes", (facts.choices.len() as u64).into()),
        ("devices_trouble", facts.survey.trouble.clone().into()),
        ("devices", devices.collect()),
    ])
}

/// What a PE would use: "soft", "verbs" with the ports in order, or an error.
fn choice(facts: &Facts) -> Json {
    let (kind, why, ports): (&str, Option<String>, &[Usable]) = match &facts.choices[0] {
        Ok(Choice::Soft(why)) => ("soft", Some(why.clone()), &[]),
        Ok(Choice::Verbs { ports, .. }) => ("verbs", None, ports),
        Err(e) => ("error", Some(e.to_string()), &[]),
    };
    Json::Object(vec![
        ("kind", kind.into()),
        ("why", why.into()),
        ("ports", ports.iter().map(usable).collect()),
    ])
}

fn usable(port: &Usable) -> Json {
    Json::Object(vec![
        ("device", port.device.as_str().into()),
        ("port", port.port.into()),
        ("gid_index", port.gid_index.into()),
        ("gid", port.gid.to_string().into()),
        ("fabric", port.fabric.to_string().into()),
        ("partition", port.pkey.0.into()),
        ("why", port.why.as_str().into()),
    ])
}

fn device(facts: &Facts, seen: &RdmaDevice) -> Json {
    let transport = match &seen.transport {
        Transport::InfiniBand => "InfiniBand",
        Transport::Iwarp => "iWARP",
        Transport::Other(name) => name,
    };
    let mut asked = facts.inspection.devices.iter();
    let asked = asked.find(|(name, _)| *name == seen.name).map(|(_, a)| a);
    let abilities = asked.and_then(|a| a.as_ref().ok());
    let trouble = asked.and_then(|a| a.as_ref().err().cloned());
    let ports = seen.ports.iter().map(|p| port(facts, seen, p, abilities));
    Json::Object(vec![
        ("name", seen.name.as_str().into()),
        ("guid", seen.guid.as_str().into()),
        ("emulated", seen.emulated.into()),
        ("numa_node", seen.numa.into()),
        ("transport", transport.into()),
        ("not_usable", refusal(facts, seen, None).into()),
        ("open_error", trouble.into()),
        ("abilities", abilities.map(about).into()),
        ("ports", ports.collect()),
    ])
}

/// Why a device or port is not usable.
fn refusal(facts: &Facts, seen: &RdmaDevice, port: Option<u8>) -> Option<String> {
    let mine = |v: &&Verdict| v.device == seen.name && v.port == port;
    facts.verdicts.iter().find(mine)?.outcome.clone().err()
}

fn about(a: &Abilities) -> Json {
    Json::Object(vec![
        ("firmware", a.firmware.as_str().into()),
        ("vendor_id", a.vendor_id.into()),
        ("vendor_part_id", a.vendor_part_id.into()),
        ("ud", (a.max_ah > 0).into()),
        ("srq", (a.max_srq > 0).into()),
        ("xrc", a.xrc.into()),
        ("atomics", a.atomics.to_string().into()),
        ("on_demand_paging", a.odp.to_string().into()),
        ("max_queue_pairs", a.max_qp.into()),
        ("max_requests", a.max_qp_wr.into()),
        ("max_completions", a.max_cqe.into()),
        ("max_rd_atomic", a.max_qp_rd_atom.into()),
    ])
}

fn port(facts: &Facts, seen: &RdmaDevice, port: &RdmaPort, abilities: Option<&Abilities>) -> Json {
    let mtu = abilities.and_then(|a| Some(a.port(port.number)?.mtu));
    let gid = |entry: &GidEntry| {
        Json::Object(vec![
            ("index", entry.index.into()),
            ("gid", entry.gid.to_string().into()),
            ("type", entry.kind.to_string().into()),
        ])
    };
    Json::Object(vec![
        ("port", port.number.into()),
        ("state", port.state.to_string().into()),
        ("link_layer", port.link.to_string().into()),
        ("rate_mbps", port.rate.into()),
        ("active_mtu", mtu.map(|(now, _)| now.bytes() as u64).into()),
        ("max_mtu", mtu.map(|(_, most)| most.bytes() as u64).into()),
        ("lid", port.lid.into()),
        ("lmc", port.lmc.into()),
        (
            "partitions",
            port.pkeys
                .iter()
                .map(|(_, pkey)| Json::from(pkey.0))
                .collect(),
        ),
        (
            "used_by_pes",
            facts
                .users(&seen.name, port.number)
                .into_iter()
                .map(|pe| Json::from(pe as u64))
                .collect(),
        ),
        ("not_usable", refusal(facts, seen, Some(port.number)).into()),
        ("gids", port.gids.iter().map(gid).collect()),
    ])
}
