//! A covering array: few rows of values, one for each setting, in which every pair of values of two settings meets.
//!
//! Most faults show as soon as two settings meet. All combinations of thirteen settings would be thousands of jobs, all
//! pairs are about a dozen. The rows are found greedily: of some random rows the one with the most new pairs is taken, until
//! no pair is left. [`rows`] makes several arrays so and returns the shortest. They follow from a seed, so another seed is another
//! array.

/// A value: the number of its setting, and its own number in the setting.
pub(super) type Value = (usize, usize);

/// Rows for settings with so many values each, the simplest first; `allowed` says whether two values of different settings
/// may meet.
///
/// # Panics
/// If a pair is allowed that fits into no row.
pub(super) fn rows(
    counts: &[usize],
    allowed: impl Fn(Value, Value) -> bool,
    seed: u64,
) -> Vec<Vec<usize>> {
    /// How many arrays are made.
    const ARRAYS: usize = 20;
    let mut random = Random(seed);
    let arrays = (0..ARRAYS).map(|_| array(counts, &allowed, &mut random));
    arrays.min_by_key(Vec::len).expect("there are some")
}

fn array(
    counts: &[usize],
    allowed: &impl Fn(Value, Value) -> bool,
    random: &mut Random,
) -> Vec<Vec<usize>> {
    /// How many rows compete for each place. With more, the first rows are better and the last ones worse.
    const CANDIDATES: usize = 5;
    let mut open = pairs(counts, allowed);
    let mut rows = Vec::new();
    while !open.is_empty() {
        let mut best: Option<(usize, Vec<usize>)> = None;
        for _ in 0..CANDIDATES {
            let begin = open[random.below(open.len())];
            let Some(row) = candidate(counts, allowed, &open, begin, random) else {
                continue;
            };
            let new = open.iter().filter(|pair| has(&row, **pair)).count();
            if best.as_ref().is_none_or(|(most, _)| new > *most) {
                best = Some((new, row));
            }
        }
        let (_, row) = best.expect("a row for each pair that is allowed");
        open.retain(|pair| !has(&row, *pair));
        rows.push(row);
    }
    rows
}

/// All pairs of values that may meet.
fn pairs(counts: &[usize], allowed: &impl Fn(Value, Value) -> bool) -> Vec<(Value, Value)> {
    let values = || (0..counts.len()).flat_map(|s| (0..counts[s]).map(move |v| (s, v)));
    let of = |a: Value| values().filter(move |b| a.0 < b.0).map(move |b| (a, b));
    values()
        .flat_map(of)
        .filter(|(a, b)| allowed(*a, *b))
        .collect()
}

fn has(row: &[usize], (a, b): (Value, Value)) -> bool {
    row[a.0] == a.1 && row[b.0] == b.1
}

/// A row with a given pair. The other settings get, in random order, the value that brings the most new pairs, or their first
/// if none does. `None` if no value of a setting may meet those that are there.
fn candidate(
    counts: &[usize],
    allowed: &impl Fn(Value, Value) -> bool,
    open: &[(Value, Value)],
    (a, b): (Value, Value),
    random: &mut Random,
) -> Option<Vec<usize>> {
    let mut chosen = vec![a, b];
    let mut rest: Vec<usize> = (0..counts.len())
        .filter(|s| *s != a.0 && *s != b.0)
        .collect();
    while !rest.is_empty() {
        let setting = rest.swap_remove(random.below(rest.len()));
        let new = |value: Value| {
            let with = |c: &&Value| open.contains(&(**c.min(&&value), **c.max(&&value)));
            chosen.iter().filter(with).count()
        };
        let may = |value: &Value| chosen.iter().all(|c| allowed(*c, *value));
        let values = (0..counts[setting]).map(|v| (setting, v)).filter(may);
        let rated: Vec<_> = values.map(|value| (new(value), value)).collect();
        let most = rated.iter().map(|(new, _)| *new).max()?;
        let best: Vec<_> = rated.iter().filter(|(new, _)| *new == most).collect();
        // Where no value brings a new pair, the row is as simple as it can be.
        let which = if most == 0 {
            0
        } else {
            random.below(best.len())
        };
        chosen.push(best[which].1);
    }
    let mut row = vec![0; counts.len()];
    for (setting, value) in chosen {
        row[setting] = value;
    }
    Some(row)
}

/// SplitMix64.
struct Random(u64);

impl Random {
    fn below(&mut self, bound: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((z ^ (z >> 31)) % bound as u64) as usize
    }
}

#[test]
fn every_pair_that_may_meets_and_no_other() {
    let counts = [4, 3, 3, 2, 2, 2, 2, 2, 2, 2];
    // The last value of one setting does not go with the first of some others.
    let allowed = |a: Value, b: Value| {
        let no = |x: Value, y: Value| x == (9, 1) && (y == (3, 0) || y == (0, 0));
        !no(a, b) && !no(b, a)
    };
    for seed in 0..40 {
        let rows = rows(&counts, allowed, seed);
        for a in 0..counts.len() {
            for b in a + 1..counts.len() {
                for (va, vb) in (0..counts[a]).flat_map(|v| (0..counts[b]).map(move |w| (v, w))) {
                    let pair = ((a, va), (b, vb));
                    let met = rows.iter().any(|row| has(row, pair));
                    assert_eq!(met, allowed(pair.0, pair.1), "seed {seed}: {pair:?}");
                }
            }
        }
        assert!(rows.len() <= 15, "seed {seed}: {} rows", rows.len());
    }
}
