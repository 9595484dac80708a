//! Collectives: connected statically and on demand, by the number of PEs and by bytes.

use std::io;

use super::chart::{Chart, Kind};
use super::data::Data;
use super::sitting::{Case, Launch, ON_DEMAND, STATIC, Sitting};
use super::unit::Unit;
use super::{Claim, Figure, Shown, works};
use shmem_benches::rows;
use shmem_benches::stats::median;

/// The figure.
pub(super) const FIGURE: Figure = Figure {
    name: "collectives",
    title: "Collectives, static against on demand",
    of: &[(&works::ON_DEMAND, "Fig. 7")],
    rivals: Some(
        "print the rows of `collectives` of {n} PEs, as benches/rivals/collectives.c does with {arguments}",
    ),
    measure,
};

/// PEs of a node, as in the paper.
const PER_NODE: usize = 8;

const OPERATIONS: [(&str, &str); 2] = [
    ("fcollect", "collect"),
    ("reduce", "reduce, sums of 64 bits"),
];

/// Rows of `collectives`, the names of their charts, and titles.
const BY_PES: [(&str, &str, &str); 5] = [
    ("sync_all", "sync-by-pes", "sync_all"),
    ("broadcast 8", "broadcast-by-pes", "broadcast of 8 bytes"),
    ("sum_reduce 8", "reduce-by-pes", "reduce, a sum"),
    ("fcollect 8", "collect-by-pes", "collect of 8 bytes of each"),
    (
        "alltoall 8",
        "alltoall-by-pes",
        "alltoall of 8 bytes for each",
    ),
];

fn measure(sitting: &mut Sitting<'_>) -> io::Result<Shown> {
    let ours = [Case::fully_connected(), Case::on_demand()];
    let sizes = sitting.sizes(&[16, 32], &[16, 32, 64, 128, 256]);
    let rounds = sitting.by_time(3, 5);
    let all = sitting.with_rivals(ours.clone());
    let launch = |pes: usize, program, arguments: &str| Launch {
        pes,
        nodes: (pes / PER_NODE).max(2).min(pes),
        program,
        arguments: arguments.to_owned(),
    };
    for &pes in &sizes {
        sitting.turns(&all, rounds, |sitting, case| {
            let milliseconds = sitting.by_time("5", "50");
            let ran = sitting.run(case, &launch(pes, "collectives", milliseconds))?;
            let rows = rows::read(&ran.stdout).map_err(io::Error::other)?;
            let sample =
                |row: rows::Row| (pes.to_string(), of_row(&row), median(&row.samples) / 1e9);
            Ok(rows.into_iter().map(sample).collect())
        })?;
    }
    let pes = sitting.sizes(&[16], &[64])[0];
    sitting.turns(&ours, rounds, |sitting, case| {
        let which = sitting.by_time(
            "reduce=8,256,8192 fcollect=8,256,4096",
            "reduce=8,64,512,4096,32768,262144 fcollect=8,64,512,4096,32768",
        );
        let ran = sitting.run(case, &launch(pes, "by_bytes", which))?;
        let rows = rows::read(&ran.stdout).map_err(io::Error::other)?;
        let sample = |row: rows::Row| (row.bytes.to_string(), row.name, median(&row.samples) / 1e9);
        Ok(rows.into_iter().map(sample).collect())
    })?;

    Ok(Shown {
        charts: charts(&sitting.data, pes),
        claims: claims(&sitting.data, &sizes),
    })
}

/// Charts by number of PEs, and charts by number of bytes, measured on `pes` PEs.
fn charts(data: &Data, pes: usize) -> Vec<Chart> {
    let mut charts = vec![data.chart(
        "barrier",
        "barrier_all, 8 PEs a node",
        "PEs",
        "barrier_all",
        Unit::Seconds,
        Kind::Lines,
    )];
    charts.extend(OPERATIONS.map(|(row, title)| {
        let title = format!("{title}, and a barrier, of {pes} PEs");
        data.chart(row, &title, "bytes", row, Unit::Seconds, Kind::Lines)
    }));
    charts.extend(
        BY_PES.map(|(row, name, title)| {
            data.chart(name, title, "PEs", row, Unit::Seconds, Kind::Lines)
        }),
    );
    charts
}

fn claims(data: &Data, sizes: &[usize]) -> Vec<Claim> {
    let barrier = || {
        let each = sizes.iter().filter_map(|pes| {
            let of = |series| data.median(series, &pes.to_string(), "barrier_all");
            let ratio = of(ON_DEMAND)? / of(STATIC)?;
            Some(format!("{} at {pes}", Unit::Part.show(ratio)))
        });
        let each: Vec<String> = each.collect();
        (!each.is_empty()).then(|| format!("on demand takes, of static: {}", each.join(", ")))
    };
    let by_bytes = |row: &str| {
        let each = data.places(row).into_iter().filter_map(|bytes| {
            let of = |series| data.median(series, &bytes, row);
            Some(of(ON_DEMAND)? / of(STATIC)?)
        });
        let each: Vec<f64> = each.collect();
        (!each.is_empty()).then(|| {
            format!(
                "on demand takes {} of static in the median size",
                Unit::Part.show(median(&each))
            )
        })
    };
    let warm = "connections are made before the timing begins, in the paper within it; PEs outnumber cores";
    vec![
        Claim::new(
            "Fig. 7(a), barrier",
            "static and on demand are alike at all numbers of PEs",
            barrier(),
            warm,
        ),
        Claim::new(
            "Fig. 7, collect of 512",
            "they are alike",
            by_bytes("fcollect"),
            "fewer PEs",
        ),
        Claim::new(
            "Fig. 7, reduce of 512",
            "they are alike",
            by_bytes("reduce"),
            "fewer PEs",
        ),
    ]
}

/// A row of `collectives`, with its bytes where it has any.
fn of_row(row: &rows::Row) -> String {
    match row.bytes {
        0 => row.name.clone(),
        bytes => format!("{} {bytes}", row.name),
    }
}
