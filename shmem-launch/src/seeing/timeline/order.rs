//! The order in which the slices of a track begin and end.
//!
//! Perfetto has no slice with a duration: one begins, one ends, and what ends is what began last. So slices of a
//! track nest, or lie one behind the other.

/// Something that begins or ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step<T> {
    /// This begins at that time.
    Begin(u64, T),
    /// The one that began last ends.
    End(u64, T),
}

/// The steps of slices (begin, end, which) that nest: of those that begin together the longest is the outermost,
/// and what ends comes before what begins at that time. One that outlasts the slice in which it began, as where more
/// threads share a track than can be told apart, is shown to end with it.
pub(super) fn nested<T: Copy + Ord>(slices: &mut [(u64, u64, T)], mut step: impl FnMut(Step<T>)) {
    slices.sort_unstable_by_key(|&(begin, end, which)| (begin, std::cmp::Reverse(end), which));
    let mut open: Vec<(u64, T)> = Vec::new();
    for &(begin, end, which) in &*slices {
        while let Some(&(at, last)) = open.last()
            && at <= begin
        {
            step(Step::End(at, last));
            open.pop();
        }
        let within = open.last().map_or(u64::MAX, |&(at, _)| at);
        step(Step::Begin(begin, which));
        open.push((end.max(begin).min(within), which));
    }
    while let Some((at, last)) = open.pop() {
        step(Step::End(at, last));
    }
}

/// Slices (begin, end, which) that overlap in any way, dealt out to as few lanes as have none that overlap.
pub(super) fn lanes<T: Copy + Ord>(slices: &mut [(u64, u64, T)]) -> Vec<Vec<(u64, u64, T)>> {
    slices.sort_unstable();
    let mut lanes: Vec<Vec<(u64, u64, T)>> = Vec::new();
    // Lanes by when they are free, the soonest on top.
    let mut free = std::collections::BinaryHeap::new();
    for &slice in &*slices {
        let lane = match free.peek() {
            Some(&std::cmp::Reverse((at, lane))) if at <= slice.0 => {
                free.pop();
                lane
            }
            _ => {
                lanes.push(Vec::new());
                lanes.len() - 1
            }
        };
        lanes[lane].push(slice);
        free.push(std::cmp::Reverse((slice.1.max(slice.0), lane)));
    }
    lanes
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn steps(slices: &[(u64, u64, u32)]) -> Vec<Step<u32>> {
        let mut out = Vec::new();
        nested(&mut slices.to_vec(), |step| out.push(step));
        out
    }

    #[test]
    fn ends_come_before_beginnings_and_longer_ones_first() {
        use Step::{Begin, End};
        let want = [
            Begin(5, 1),
            Begin(5, 0),
            End(7, 0),
            Begin(7, 2),
            End(7, 2),
            End(9, 1),
            Begin(9, 3),
            End(12, 3),
        ];
        assert_eq!(steps(&[(5, 7, 0), (5, 9, 1), (7, 7, 2), (9, 12, 3)]), want);
        let clipped = [Begin(1, 0), Begin(2, 1), End(4, 1), End(4, 0)];
        assert_eq!(steps(&[(1, 4, 0), (2, 9, 1)]), clipped);
    }

    proptest! {
        #[test]
        fn all_slices_nest(all in prop::collection::vec((0u64..50, 0u64..9), 0..60)) {
            let slices: Vec<_> = (0..).zip(&all).map(|(which, &(begin, took))| (begin, begin + took, which)).collect();
            let (mut open, mut now) = (Vec::new(), 0);
            for step in steps(&slices) {
                let at = match step {
                    Step::Begin(at, which) => { open.push(which); at }
                    Step::End(at, which) => { prop_assert_eq!(open.pop(), Some(which)); at }
                };
                prop_assert!(at >= now);
                now = at;
            }
            prop_assert!(open.is_empty());
        }

        #[test]
        fn lanes_have_nothing_that_overlaps(all in prop::collection::vec((0u64..50, 0u64..9), 0..60)) {
            let mut slices: Vec<_> = (0..).zip(&all).map(|(which, &(begin, took))| (begin, begin + took, which)).collect::<Vec<(u64, u64, u32)>>();
            let lanes = lanes(&mut slices);
            for lane in &lanes {
                prop_assert!(lane.windows(2).all(|w| w[0].1 <= w[1].0));
            }
            prop_assert_eq!(lanes.iter().map(Vec::len).sum::<usize>(), all.len());
            // As few as are ever needed at a time.
            let most = (0..60).map(|t| slices.iter().filter(|s| s.0 <= t && t < s.1.max(s.0 + 1)).count()).max();
            prop_assert!(lanes.len() <= most.unwrap_or(0));
        }
    }
}
