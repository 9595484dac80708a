//! What all benchmarks have in common: how often criterion repeats them, and when it reports a change.

use std::time::Duration;

use criterion::Criterion;
use criterion::measurement::Measurement;

/// Criterion with the settings of this project and those of the command line.
///
/// Criterion reports a change if it is larger than one in ten and unlikely to be chance: most rows differ by less than that
/// from one run to the next, see "Judging a change" in `docs/performance.md`.
pub(crate) fn criterion<M: Measurement>(measured: M) -> Criterion<M> {
    Criterion::default()
        .warm_up_time(Duration::from_millis(500))
        .measurement_time(Duration::from_secs(2))
        .sample_size(50)
        .noise_threshold(0.1)
        .significance_level(0.01)
        .without_plots()
        .with_measurement(measured)
        .configure_from_args()
}
