//! The report for people.

use std::fmt::{self, Write};

use shmem_ib::device::abilities::Abilities;
use shmem_ib::device::choice::Choice;
use shmem_ib::device::hardware::{GidEntry, RdmaDevice, RdmaPort};
use shmem_ib::device::inspect::NO_PROVIDER;

use crate::facts::Facts;

/// Renders the report.
pub(crate) fn render(facts: &Facts) -> String {
    let mut out = String::new();
    // Writing to a String does not fail.
    let _ = write(&mut out, facts);
    out
}

fn write(out: &mut String, facts: &Facts) -> fmt::Result {
    writeln!(out, "shmem {}", facts.version)?;
    writeln!(out, "\nA PE here uses")?;
    match &facts.choices[0] {
        Ok(Choice::Soft(why)) => writeln!(out, "  the software HCA: {why}")?,
        Ok(Choice::Verbs { ports, or_soft }) => {
            for port in ports.iter().take(1) {
                writeln!(out, "  {port}: {}", port.why)?;
            }
            for port in ports.iter().skip(1) {
                writeln!(out, "  or, if that does not open, {port}")?;
            }
            if *or_soft {
                writeln!(out, "  or, if none opens, the software HCA")?;
            }
        }
        Err(e) => writeln!(out, "  nothing: {e}")?,
    }
    if let Some(error) = &facts.bad_setting {
        writeln!(
            out,
            "  (as if no variable were set; but no PE starts while one cannot be used: {error})"
        )?;
    }
    settings(out, facts)?;
    writeln!(out, "\nMemory that a process may pin")?;
    match (facts.memlock.privileged, facts.memlock.limit) {
        (true, _) => writeln!(out, "  any: it has CAP_IPC_LOCK")?,
        (false, None) => writeln!(out, "  unlimited")?,
        (false, Some(bytes)) => writeln!(out, "  {bytes} bytes")?,
    }
    if let Some(why) = facts.memlock.refuses(facts.heap) {
        writeln!(
            out,
            "  too little for the whole heap on a device without on-demand paging: {why}"
        )?;
    }
    writeln!(out, "\nDevices")?;
    writeln!(
        out,
        "  software HCA: always there (RC, UD, XRC, SRQ, atomics)"
    )?;
    match &facts.inspection.library {
        Ok(path) => writeln!(out, "  libibverbs: {path}")?,
        Err(why) => writeln!(out, "  libibverbs: not used: {why}")?,
    }
    if let Some(trouble) = &facts.survey.trouble {
        writeln!(out, "  {trouble}")?;
    }
    for seen in &facts.survey.devices {
        device(out, facts, seen)?;
    }
    Ok(())
}

fn settings(out: &mut String, facts: &Facts) -> fmt::Result {
    if !facts.settings.is_empty() {
        writeln!(out, "\nSettings that are not the defaults")?;
    }
    for (name, value) in &facts.settings {
        writeln!(out, "  {name}={value}")?;
    }
    Ok(())
}

fn device(out: &mut String, facts: &Facts, seen: &RdmaDevice) -> fmt::Result {
    writeln!(out, "  {} (GUID {})", seen.name, seen.guid)?;
    let mut asked = facts.inspection.devices.iter();
    let asked = asked.find(|(name, _)| *name == seen.name).map(|(_, a)| a);
    let abilities = match asked {
        Some(Ok(abilities)) => {
            about(out, abilities)?;
            Some(abilities)
        }
        Some(Err(why)) => {
            writeln!(out, "    {why}")?;
            None
        }
        None if facts.inspection.library.is_ok() => {
            writeln!(out, "    {NO_PROVIDER}")?;
            None
        }
        None => None,
    };
    let mut whole = facts.verdicts.iter().filter(|v| v.device == seen.name);
    if let Some(verdict) = whole.find(|v| v.port.is_none())
        && let Err(why) = &verdict.outcome
    {
        writeln!(out, "    not usable: {why}")?;
    }
    for port in &seen.ports {
        about_port(out, port, abilities)?;
        let mine = |v: &&_| is_of(v, seen, port);
        match facts.verdicts.iter().find(mine).map(|v| &v.outcome) {
            Some(Ok(usable)) => writeln!(out, "      usable, with GID index {}", usable.gid_index)?,
            Some(Err(why)) => writeln!(out, "      not usable: {why}")?,
            None => {}
        }
    }
    Ok(())
}

fn is_of(verdict: &shmem_ib::device::choice::Verdict, seen: &RdmaDevice, port: &RdmaPort) -> bool {
    verdict.device == seen.name && verdict.port == Some(port.number)
}

fn about(out: &mut String, a: &Abilities) -> fmt::Result {
    let yes = |there| if there { "yes" } else { "no" };
    let kind = if a.emulated {
        ", a software driver"
    } else {
        ""
    };
    writeln!(
        out,
        "    vendor {:#06x} part {}, firmware {}{kind}; UD {}, SRQ {}, XRC {}; atomics: {}; on-demand paging: {}",
        a.vendor_id,
        a.vendor_part_id,
        if a.firmware.is_empty() {
            "unknown"
        } else {
            &a.firmware
        },
        yes(a.max_ah > 0),
        yes(a.max_srq > 0),
        yes(a.xrc),
        a.atomics,
        a.odp,
    )?;
    writeln!(
        out,
        "    at most {} queue pairs, {} requests a queue, {} completions a queue, {} outstanding \
         READs and atomics",
        a.max_qp, a.max_qp_wr, a.max_cqe, a.max_qp_rd_atom,
    )
}

fn about_port(out: &mut String, port: &RdmaPort, abilities: Option<&Abilities>) -> fmt::Result {
    write!(
        out,
        "    port {}: {}, {}",
        port.number, port.state, port.link
    )?;
    if port.rate > 0 {
        write!(out, ", {} Gb/s", f64::from(port.rate) / 1000.0)?;
    }
    if let Some(told) = abilities.and_then(|a| a.port(port.number)) {
        let (now, most) = told.mtu;
        write!(out, ", MTU {} of {}", now.bytes(), most.bytes())?;
    }
    if port.lid != 0 {
        write!(out, ", LID {}", port.lid)?;
    }
    writeln!(out)?;
    for entry in &port.gids {
        let GidEntry { index, gid, kind } = entry;
        writeln!(out, "      GID {index}: {gid} ({kind})")?;
    }
    Ok(())
}
