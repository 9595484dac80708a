//! The report for programs: one JSON object, all times in nanoseconds.

use std::fmt::Write;

use shmem_node::json::string;
use shmem_node::stats::{STATS, Unit};

use super::{Aggregate, Ended, Launcher, Reduced, phases, spawned};
use crate::exit::End;

fn aggregate(out: &mut String, a: &Aggregate, n: u64) {
    let min = if n == 0 { 0 } else { a.min };
    let mean = if n == 0 { 0.0 } else { a.sum as f64 / n as f64 };
    let _ = write!(
        out,
        "\"min\": {min}, \"mean\": {mean}, \"max\": {}, \"sum\": {}",
        a.max, a.sum
    );
}

/// Renders the report.
pub fn to_json(l: &Launcher, r: &Reduced) -> String {
    let mut out = String::from("{\n  \"program\": ");
    string(&mut out, &l.program);
    let _ = write!(
        out,
        ",\n  \"pes\": {}, \"nodes\": {}, \"degree\": {}, \"depth\": {}, \"spawn\": \"{}\", \"status\": {},\n  \"phases\": [",
        l.n_pes,
        l.n_nodes,
        l.degree,
        l.depth,
        spawned(l, r),
        l.status
    );
    for (at, (name, from, to)) in phases(l, r).into_iter().enumerate() {
        out.push_str(if at == 0 {
            "\n    {\"name\": "
        } else {
            ",\n    {\"name\": "
        });
        string(&mut out, name);
        let _ = write!(out, ", \"from_ns\": {from}, \"to_ns\": {to}}}");
    }
    let _ = write!(
        out,
        "\n  ],\n  \"agents\": {}, \"agent_cpu_ns\": {{",
        r.agents
    );
    aggregate(&mut out, &r.agent_cpu, r.agents);
    let _ = write!(
        out,
        "}},\n  \"reporting_pes\": {},\n  \"figures\": [",
        r.pes
    );
    for (at, (a, &(name, unit))) in r.stats.iter().zip(STATS).enumerate() {
        out.push_str(if at == 0 {
            "\n    {\"name\": "
        } else {
            ",\n    {\"name\": "
        });
        string(&mut out, name);
        let unit = match unit {
            Unit::Ns => "ns",
            Unit::Bytes => "bytes",
            Unit::Count => "count",
        };
        let _ = write!(out, ", \"unit\": \"{unit}\", ");
        aggregate(&mut out, a, r.pes);
        out.push('}');
    }
    out.push_str("\n  ],\n  \"processes\": [");
    let mut each: Vec<&Ended> = r.processes.each.iter().collect();
    each.sort_by_key(|pe| pe.rank);
    for (at, pe) in each.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        let (what, number) = match pe.end {
            End::Code(code) => ("status", code.to_string()),
            End::Signal { signal, .. } | End::OutOfMemory { signal, .. } => {
                ("signal", signal.to_string())
            }
            End::Unknown => ("status", "null".to_owned()),
        };
        let _ = write!(
            out,
            "{comma}\n    {{\"rank\": {}, \"{what}\": {number}, \"user_ns\": {}, \"system_ns\": {}, \"peak_bytes\": {}}}",
            pe.rank, pe.used.user_ns, pe.used.system_ns, pe.used.peak
        );
    }
    out.push_str("\n  ]\n}\n");
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_object_is_complete() {
        let (l, r) = super::super::tests::example();
        let json = to_json(&l, &r);
        json.parse::<tinyjson::JsonValue>().expect("JSON");
        for part in [
            "\"tree up\", \"from_ns\": 1000000, \"to_ns\": 3000000",
            "\"pes\": 4",
            "\"rank\": 3, \"status\": 1, \"user_ns\": 3000, \"system_ns\": 7, \"peak_bytes\": 3145728}",
            "he\\\"llo",
        ] {
            assert!(json.contains(part), "{part} in\n{json}");
        }
        assert!(!to_json(&l, &Reduced::default()).contains(&u64::MAX.to_string()));
    }
}
