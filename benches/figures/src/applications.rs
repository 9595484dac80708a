//! Whole jobs of applications: connected statically and on demand.

use std::io;

use super::chart::Kind;
use super::programs::{self, Program};
use super::sitting::{Case, ON_DEMAND, STATIC, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "applications",
    title: "Whole jobs of the NAS benchmarks and Graph500, static against on demand",
    of: &[(&works::ON_DEMAND, "Fig. 8(a), 8(b)")],
    rivals: None,
    measure,
};

const WALL: &str = "the job";
const CPU: &str = "processor time of the job";
const GRAPH500: &str = "Graph500";

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    // 8 PEs a node, as in the paper. A square, for BT and SP.
    let pes = sitting.sizes(&[16], &[64])[0];
    let nodes = (pes / 8).max(2).min(pes);
    let rounds = sitting.by_time(3, 7);
    let mut programs = programs::kernels(!sitting.options.quick);
    programs.push(Program {
        name: GRAPH500.to_owned(),
        built: "graph500".to_owned(),
        arguments: &["10 16 --quiet"],
    });
    let cases = [Case::fully_connected(), Case::on_demand()];
    for program in &programs {
        sitting.turns(&cases, rounds, |sitting, case| {
            let ran = programs::run(sitting, case, program, pes, nodes)?;
            let sample =
                |(quantity, value): (&str, f64)| (program.name.clone(), quantity.to_owned(), value);
            Ok([(WALL, ran.wall), (CPU, ran.cpu)].map(sample).into())
        })?;
    }

    let data = &sitting.data;
    let layout = format!("{pes} PEs on {nodes} nodes");
    let bars = |name, title: &str, quantity| {
        data.chart(
            name,
            &format!("{title}, {layout}"),
            "program",
            quantity,
            Unit::Seconds,
            Kind::Bars,
        )
    };
    let charts = vec![
        bars("wall", "Time of the whole job", WALL),
        bars("cpu", "Processor time of the whole job", CPU),
    ];
    let saved = |program: &str| {
        Some(1.0 - data.median(ON_DEMAND, program, WALL)? / data.median(STATIC, program, WALL)?)
    };
    let of = |names: &[&str]| {
        let each = names
            .iter()
            .filter_map(|name| Some(format!("{name} {}", Unit::Part.show(saved(name)?))));
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| each.join(", "))
    };
    let claims = vec![
        Claim::new(
            "Fig. 8(a)",
            "on demand saves 18 % to 35 % of the time of BT, EP, MG and SP, class B on 256 cores",
            of(&["BT", "EP", "MG", "SP"]),
            "fewer PEs, smaller classes, which start up as long but compute less",
        ),
        Claim::new(
            "Fig. 8(b)",
            "less than 2 % between them for Graph500 of 1,024 vertices and 16,384 edges, up to 512 processes",
            of(&[GRAPH500]),
            "OpenSHMEM alone, not MPI besides",
        ),
    ];
    Ok(Shown { charts, claims })
}
