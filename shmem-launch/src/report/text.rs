//! The report for people.

use std::fmt::Write;

use shmem_node::stats::{STATS, Unit};

use super::{Aggregate, Launcher, Reduced, ends, is_moment, phases, spawned};

/// A value with the unit that suits its size.
pub(crate) fn value(unit: Unit, v: f64) -> String {
    let scaled = |steps: &[(f64, &str)]| {
        let (scale, name) = steps
            .iter()
            .copied()
            .find(|&(scale, _)| v >= scale)
            .unwrap_or((1.0, steps[steps.len() - 1].1));
        if scale == 1.0 {
            format!("{v:.0} {name}")
        } else {
            format!("{:.2} {name}", v / scale)
        }
    };
    match unit {
        Unit::Ns => scaled(&[(1e9, "s"), (1e6, "ms"), (1e3, "us"), (1.0, "ns")]),
        Unit::Bytes => scaled(&[
            (1073741824.0, "GiB"),
            (1048576.0, "MiB"),
            (1024.0, "KiB"),
            (1.0, "B"),
        ]),
        Unit::Count if v.fract() == 0.0 => format!("{v:.0}"),
        Unit::Count => format!("{v:.2}"),
    }
}

/// Renders the report.
pub fn to_text(l: &Launcher, r: &Reduced) -> String {
    let mut out = String::new();
    let _ = writeln!(
        out,
        "{}: {} PEs on {} nodes, started by {}, launch tree of degree {} and depth {}, status {}",
        l.program,
        l.n_pes,
        l.n_nodes,
        spawned(l, r),
        l.degree,
        l.depth,
        l.status
    );
    let _ = writeln!(
        out,
        "\n{:<24}{:>14}{:>14}{:>14}",
        "phase", "from", "to", "took"
    );
    for (name, from, to) in phases(l, r) {
        let ns = |v: u64| value(Unit::Ns, v as f64);
        let _ = writeln!(
            out,
            "{name:<24}{:>14}{:>14}{:>14}",
            ns(from),
            ns(to),
            ns(to - from)
        );
    }
    if r.agents > 0 {
        let mean = r.agent_cpu.sum as f64 / r.agents as f64;
        let _ = writeln!(
            out,
            "\nCPU time of {} launch agents: {} each, {} in all",
            r.agents,
            value(Unit::Ns, mean),
            value(Unit::Ns, r.agent_cpu.sum as f64)
        );
    }
    let processes = &r.processes;
    if processes.count > 0 {
        let _ = writeln!(out, "\n{:<32}{:>13}  ranks", "PEs ended", "PEs");
        for (end, count, ranks) in processes.ends.groups() {
            let _ = writeln!(out, "{:<32}{count:>13}  {ranks}", ends::name(end));
        }
        head(&mut out, "per process", processes.count);
        let names = [
            ("CPU time of the program", Unit::Ns),
            ("CPU time of the kernel", Unit::Ns),
            ("most memory", Unit::Bytes),
        ];
        for ((name, unit), used) in names.into_iter().zip(&processes.used) {
            row(&mut out, name, unit, used, processes.count);
        }
    }
    if r.pes == 0 {
        let _ = writeln!(out, "\nNo PE called init.");
        return out;
    }
    head(&mut out, "per PE", r.pes);
    for (at, (aggregate, &(name, unit))) in r.stats.iter().zip(STATS).enumerate() {
        // What nobody counted says nothing.
        if is_moment(at) || aggregate.max == 0 {
            continue;
        }
        row(&mut out, name, unit, aggregate, r.pes);
    }
    out
}

/// The head of a table of figures over so many PEs.
fn head(out: &mut String, what: &str, pes: u64) {
    let head = format!("{what}, over {pes} PEs");
    let _ = writeln!(
        out,
        "\n{head:<32}{:>13}{:>13}{:>13}{:>15}",
        "min", "mean", "max", "sum"
    );
}

fn row(out: &mut String, name: &str, unit: Unit, of: &Aggregate, pes: u64) {
    let mean = of.sum as f64 / pes as f64;
    let _ = writeln!(
        out,
        "{name:<32}{:>13}{:>13}{:>13}{:>15}",
        value(unit, of.min as f64),
        value(unit, mean),
        value(unit, of.max as f64),
        value(unit, of.sum as f64)
    );
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_have_suitable_units() {
        assert_eq!(value(Unit::Ns, 1_500_000.0), "1.50 ms");
        assert_eq!(value(Unit::Ns, 12.0), "12 ns");
        assert_eq!(value(Unit::Bytes, 2048.0), "2.00 KiB");
        assert_eq!(value(Unit::Count, 3.0), "3");
        assert_eq!(value(Unit::Count, 0.0), "0");
        assert_eq!(value(Unit::Count, 2.5), "2.50");
        assert_eq!(value(Unit::Ns, 0.0), "0 ns");
    }

    #[test]
    fn the_report_has_phases_and_figures() {
        let (l, r) = super::super::tests::example();
        let text = to_text(&l, &r);
        for part in [
            "4 PEs on 2 nodes",
            "tree up",
            "3.00 ms",
            "queue pairs",
            "over 4 PEs",
            "2 launch agents",
            "status 0                                    3  0-2",
            "status 1                                    1  3",
            "most memory",
            "3.00 MiB",
        ] {
            assert!(text.contains(part), "{part} in\n{text}");
        }
        assert!(to_text(&l, &Reduced::default()).contains("No PE called init"));
    }
}
