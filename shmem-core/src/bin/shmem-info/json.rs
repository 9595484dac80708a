//! The report for programs.

use shmem_ib::device::choice::{Choice, Usable, Verdict};
use shmem_ib::device::inspect::Abilities;
use shmem_ib::device::survey::{SeenDevice, SeenGid, SeenPort, Transport};
use shmem_node::json::Json;

use crate::facts::Facts;
use crate::text::kind;

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
        ("verbs", facts.verbs.into()),
        ("use", choice(facts)),
        ("settings", facts.settings.iter().map(setting).collect()),
        ("setting_error", facts.bad_setting.clone().into()),
        ("memlock_bytes", facts.memlock.limit.into()),
        ("memlock_exempt", facts.memlock.privileged.into()),
        ("memlock_trouble", facts.memlock.refuses(facts.heap).into()),
        ("libibverbs", library.into()),
        ("libibverbs_trouble", trouble.into()),
        ("devices_trouble", facts.survey.trouble.clone().into()),
        ("devices", devices.collect()),
    ])
}

/// What a PE would use: "soft", "verbs" with the ports in order, or an error.
fn choice(facts: &Facts) -> Json {
    let (kind, why, ports): (&str, Option<String>, &[Usable]) = match &facts.choice {
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
    ])
}

fn device(facts: &Facts, seen: &SeenDevice) -> Json {
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
        ("transport", transport.into()),
        ("not_usable", refusal(facts, seen, None).into()),
        ("open_error", trouble.into()),
        ("abilities", abilities.map(about).into()),
        ("ports", ports.collect()),
    ])
}

/// Why a device or port is not usable.
fn refusal(facts: &Facts, seen: &SeenDevice, port: Option<u8>) -> Option<String> {
    let mine = |v: &&Verdict| v.device == seen.name && v.port == port;
    facts.verdicts.iter().find(mine)?.outcome.clone().err()
}

fn about(a: &Abilities) -> Json {
    Json::Object(vec![
        ("firmware", a.firmware.as_str().into()),
        ("software_driver", a.software.into()),
        ("ud", a.datagrams.into()),
        ("srq", a.srq.into()),
        ("xrc", a.xrc.into()),
        ("atomics", a.atomics.into()),
        ("on_demand_paging", a.on_demand_paging.into()),
        ("max_queue_pairs", a.max_qp.into()),
        ("max_requests", a.max_qp_wr.into()),
        ("max_completions", a.max_cqe.into()),
        ("max_rd_atomic", a.max_rd_atomic.into()),
    ])
}

fn port(facts: &Facts, seen: &SeenDevice, port: &SeenPort, abilities: Option<&Abilities>) -> Json {
    let mtu = abilities.and_then(|a| a.mtus.iter().find(|(n, ..)| *n == port.number));
    let gid = |entry: &SeenGid| {
        Json::Object(vec![
            ("index", entry.index.into()),
            ("gid", entry.gid.to_string().into()),
            ("type", kind(&port.link, entry.kind).into()),
        ])
    };
    Json::Object(vec![
        ("port", port.number.into()),
        ("state", port.state.as_str().into()),
        ("link_layer", port.link.to_string().into()),
        ("rate_mbps", port.rate.into()),
        ("active_mtu", mtu.map(|(_, now, _)| *now).into()),
        ("max_mtu", mtu.map(|(.., most)| *most).into()),
        ("lid", port.lid.into()),
        ("not_usable", refusal(facts, seen, Some(port.number)).into()),
        ("gids", port.gids.iter().map(gid).collect()),
    ])
}
