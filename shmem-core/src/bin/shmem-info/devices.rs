//! The table of ports: which PEs of this node take which, and why the others are left.

use std::fmt::Write;

use shmem_ib::device::choice::{Choice, Usable};
use shmem_ib::device::hardware::{RdmaDevice, RdmaPort};

use crate::facts::Facts;

const HEAD: [&str; 9] = [
    "device",
    "port",
    "state",
    "rate",
    "link",
    "NUMA",
    "partition",
    "GID",
    "use",
];

/// PEs that are named one by one.
const NAMED: usize = 8;

/// Renders the table.
pub(crate) fn render(facts: &Facts) -> String {
    let mut rows = vec![HEAD.map(str::to_owned)];
    for device in &facts.survey.devices {
        if device.ports.is_empty() {
            rows.push(row(facts, device, None));
        }
        rows.extend(
            device
                .ports
                .iter()
                .map(|port| row(facts, device, Some(port))),
        );
    }
    let mut soft = HEAD.map(|_| String::new());
    soft[0] = "software HCA".into();
    soft[HEAD.len() - 1] = software(facts);
    rows.push(soft);
    let mut out = format!(
        "Ports of RDMA devices, as for {} PEs (--pes) that may run {}\n\n",
        facts.choices.len(),
        match facts.seat.bound() {
            Some(nodes) => format!("on {nodes}, as this process may"),
            None => "anywhere on this machine".into(),
        }
    );
    let width = |column: usize| {
        let cells = rows.iter().map(|row| row[column].chars().count());
        cells.max().unwrap_or(0)
    };
    let widths: Vec<usize> = (0..HEAD.len() - 1).map(width).collect();
    for row in &rows {
        for (cell, width) in row.iter().zip(&widths) {
            // Writing to a String does not fail.
            let _ = write!(out, "{cell:width$}  ");
        }
        let _ = writeln!(out, "{}", row[HEAD.len() - 1]);
    }
    let troubles = [&facts.survey.trouble, &facts.bad_setting];
    for trouble in troubles.into_iter().flatten() {
        let _ = writeln!(out, "\n{trouble}");
    }
    out
}

fn row(facts: &Facts, device: &RdmaDevice, port: Option<&RdmaPort>) -> [String; HEAD.len()] {
    let number = port.map(|port| port.number);
    let verdict = facts
        .verdicts
        .iter()
        .filter(|v| v.device == device.name)
        .find(|v| v.port.is_none() || v.port == number);
    let usable = verdict.and_then(|v| v.outcome.as_ref().ok());
    let refused = verdict.and_then(|v| v.outcome.as_ref().err());
    let of_port = |tell: &dyn Fn(&RdmaPort) -> String| port.map(tell).unwrap_or_default();
    [
        device.name.clone(),
        of_port(&|p| p.number.to_string()),
        of_port(&|p| p.state.to_string()),
        of_port(&|p| match p.rate {
            0 => String::new(),
            rate => format!("{} Gb/s", f64::from(rate) / 1000.0),
        }),
        of_port(&|p| p.link.to_string()),
        device.numa.map_or_else(|| "-".into(), |n| n.to_string()),
        usable.map_or_else(String::new, |u| u.pkey.to_string()),
        usable.map_or_else(String::new, |u| {
            format!("{}: {} ({})", u.gid_index, u.gid, u.gid_why)
        }),
        match (refused, usable) {
            (Some(why), _) => format!("not used: {why}"),
            (None, Some(usable)) => used(facts, usable),
            (None, None) => String::new(),
        },
    ]
}

/// Which PEs take a port that could be used, and why; else why nobody does.
fn used(facts: &Facts, port: &Usable) -> String {
    let users = facts.users(&port.device, port.port);
    let seen_by = users.first().copied().unwrap_or(0);
    let why = match &facts.choices[seen_by] {
        Ok(Choice::Verbs { ports, .. }) => {
            let mut ports = ports.iter();
            let mine = ports.find(|p| p.device == port.device && p.port == port.port);
            mine.map_or("SHMEM_HCA does not name it", |p| p.why.as_str())
        }
        Ok(Choice::Soft(why)) => why,
        Err(e) => return format!("not used: {e}"),
    };
    match users.is_empty() {
        true => format!("not used: {why}"),
        false => format!("{}: {why}", named(&users)),
    }
}

fn software(facts: &Facts) -> String {
    let takes = |i: &usize| matches!(facts.choices[*i], Ok(Choice::Soft(_)));
    let users: Vec<usize> = (0..facts.choices.len()).filter(takes).collect();
    match users.first().map(|first| &facts.choices[*first]) {
        Some(Ok(Choice::Soft(why))) => format!("{}: {why}", named(&users)),
        _ => "not used".into(),
    }
}

/// PEs by their numbers on the node.
fn named(users: &[usize]) -> String {
    let numbers: Vec<String> = users.iter().take(NAMED).map(ToString::to_string).collect();
    let more = match users.len() {
        0..=NAMED => String::new(),
        all => format!(",... ({all} of them)"),
    };
    let word = if users.len() == 1 { "PE" } else { "PEs" };
    format!("{word} {}{more}", numbers.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_pes_are_counted() {
        assert_eq!(named(&[3]), "PE 3");
        assert_eq!(named(&[0, 2, 4]), "PEs 0,2,4");
        let all: Vec<usize> = (0..64).collect();
        assert_eq!(named(&all), "PEs 0,1,2,3,4,5,6,7,... (64 of them)");
    }
}
