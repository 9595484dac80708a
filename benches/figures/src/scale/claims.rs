//! What the model says beside what was measured, and beside the works.

use npb_ports::kernels::KERNELS;

use super::super::Claim;
use super::super::sitting::{ON_DEMAND, STATIC, Sitting};
use super::super::unit::Unit;
use super::COMPARED;
use super::jobs::{FITTED, is_fitted, place, quickest};
use super::project::{CLUSTER_HELLO, CLUSTER_INIT, HERE_HELLO, HERE_INIT, OF_A_PE, SLOW, model_of};
use shmem_model::scale::fit::Fit;

/// How far the model is off at each size that costs were not fitted to, and how far at most.
fn errors(sitting: &Sitting<'_>, series: &str, quantity: &str) -> Option<String> {
    let data = &sitting.data;
    let fitted = FITTED.iter().filter(|&&job| is_fitted(series, job));
    let fitted: Vec<String> = fitted.map(|&(pes, nodes)| place(pes, nodes)).collect();
    let mut worst: f64 = 0.0;
    let each: Vec<String> = data
        .places(quantity)
        .iter()
        .filter(|place| !fitted.contains(place))
        .filter_map(|place| {
            let measured = data.median(&quickest(series), place, quantity)?;
            let model = data.median(&model_of(series), place, quantity)?;
            let off = model / measured - 1.0;
            worst = worst.max(off.abs());
            Some(format!("{place}: {:+.1} %", off * 100.0))
        })
        .collect();
    let most = Unit::Part.show(worst);
    (!each.is_empty()).then(|| format!("{}; at most {most}", each.join(", ")))
}

/// Between what the rounds of the largest job were, if they differ.
fn range(sitting: &Sitting<'_>, series: &str, quantity: &str, unit: Unit) -> Option<String> {
    let data = &sitting.data;
    let samples = |place: &String| data.samples(series, place, quantity).to_vec();
    let places = data.places(quantity);
    let place = places.iter().rev().find(|place| samples(place).len() > 1)?;
    let all = samples(place);
    let low = all.iter().copied().fold(f64::INFINITY, f64::min);
    let high = all.iter().copied().fold(0.0, f64::max);
    let [from, to] = [low, high].map(|value| unit.show(value));
    (from != to).then(|| format!("rounds of {place} were {from} to {to}"))
}

pub(super) fn claims(sitting: &Sitting<'_>, fitted: &Fit) -> Vec<Claim> {
    let data = &sitting.data;
    let mut claims = Vec::new();
    let from = FITTED.map(|(pes, nodes)| format!("{pes} on {nodes}"));
    let from = format!(
        "costs come from other jobs, of {} nodes; pace {}",
        from.join(", "),
        Unit::Count.show(fitted.pace)
    );
    for series in [ON_DEMAND, STATIC] {
        for (quantity, _, what, unit) in COMPARED {
            let differs = match range(sitting, series, quantity, unit) {
                Some(range) => format!("{from}; {range}"),
                None => from.clone(),
            };
            claims.push(Claim::new(
                "–",
                &format!("{what}, {series}: the model is within 25 % of what is measured"),
                errors(sitting, series, quantity),
                &differs,
            ));
        }
    }
    let ratio = |quantity: &str| {
        let of = |series| data.median(series, "8192", quantity);
        of(STATIC).zip(of(ON_DEMAND)).map(|(a, b)| a / b)
    };
    let both = |here: &str, there: &str| {
        let slow = data.median(SLOW, "8192", there)? / data.median(ON_DEMAND, "8192", there)?;
        let [here, there, slow] = [ratio(here)?, ratio(there)?, slow].map(|r| Unit::Count.show(r));
        Some(format!(
            "{here} times on this machine; on a cluster {there} times, and {slow} times with slow queue pairs"
        ))
    };
    let virtual_time =
        "virtual time; costs of queue pairs and network on a cluster are published ones";
    let spared = |series: &str| {
        let each = data.median(series, "1024", OF_A_PE)?;
        let all = data.median(STATIC, "1024", OF_A_PE)?;
        Some(Unit::Part.show(1.0 - each / all))
    };
    let kernels = KERNELS.iter().filter(|k| k.name != "FT" && k.name != "IS");
    let kernels: Vec<String> = kernels
        .map(|kernel| {
            let part = 1.0 - kernel.peers(1024, 1024).mean() / 1023.0;
            format!("{} {}", kernel.name, Unit::Part.show(part))
        })
        .collect();
    let fewer = || {
        Some(format!(
            "hello {}, all collectives but alltoall {}; each PE on a node of its own: {}",
            spared(ON_DEMAND)?,
            spared("all collectives but alltoall")?,
            kernels.join(", ")
        ))
    };
    claims.extend([
        Claim::new(
            "Fig. 5(a), init",
            "static takes nearly 30 times as long, at 8,192",
            both(HERE_INIT, CLUSTER_INIT),
            virtual_time,
        ),
        Claim::new(
            "Fig. 5(a), hello",
            "static takes 8.3 times as long, at 8,192",
            both(HERE_HELLO, CLUSTER_HELLO),
            virtual_time,
        ),
        Claim::new(
            "Fig. 9",
            "more than 90 % fewer endpoints than static at 1,024",
            fewer(),
            "counts: of the model, of the runtime's plans, and of the model of the benchmarks",
        ),
    ]);
    claims
}
