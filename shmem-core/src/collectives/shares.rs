//! How work is cut into parts: among the members of a node, and among nodes.

use std::ops::Range;

use super::select::shares;

/// Part `i` of `n` things in `parts` parts of almost equal size.
pub(super) fn part(n: usize, parts: usize, i: usize) -> Range<usize> {
    let (each, rest) = (n / parts, n % parts);
    let start = i * each + i.min(rest);
    start..start + each + usize::from(i < rest)
}

/// Which of `workers` among `members` the member `i` is, if any. They are spread over all, who may be bound to
/// different processors.
pub(super) fn worker(members: usize, workers: usize, i: usize) -> Option<usize> {
    let number = (i * workers).div_ceil(members);
    (number * members / workers == i).then_some(number)
}

/// Which of `n` elements of `elem` bytes the member `i` of `members` works on, perhaps none.
pub(super) fn share(n: usize, elem: usize, members: usize, i: usize) -> Range<usize> {
    let workers = shares(members, n * elem, n * elem);
    match worker(members, workers, i) {
        Some(i) => part(n, workers, i),
        None => n..n,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_cover_and_differ_by_at_most_one() {
        for n in [0, 1, 2, 7, 100, 101] {
            for parts in 1..12 {
                let all: Vec<_> = (0..parts).map(|i| part(n, parts, i)).collect();
                assert!(all.windows(2).all(|w| w[0].end == w[1].start));
                assert_eq!((all[0].start, all[parts - 1].end), (0, n));
                assert!(
                    all.iter()
                        .all(|p| p.len() <= all[0].len() && p.len() + 1 >= all[0].len())
                );
            }
        }
    }

    #[test]
    fn workers_are_numbered_among_members() {
        for members in 1..100 {
            for workers in 1..=members {
                let numbers = (0..members).filter_map(|i| worker(members, workers, i));
                assert!(numbers.eq(0..workers), "{workers} of {members}");
            }
        }
    }

    /// In a crowd more work where each has much to do for every other.
    #[test]
    fn large_vectors_have_more_workers() {
        let workers = |members, bytes| {
            let all = (0..members).map(|i| share(bytes, 1, members, i));
            all.filter(|share| !share.is_empty()).count()
        };
        let found = [
            (32, 1),
            (33, 1),
            (128, 1),
            (128, 4),
            (128, 8),
            (128, 64),
            (500, 64),
        ];
        let found = found.map(|(members, mib)| workers(members, mib << 20));
        assert_eq!(found, [32, 16, 16, 64, 128, 128, 500]);
    }

    #[test]
    fn shares_cover_and_are_pages_or_more() {
        for (n, elem, members) in [
            (0, 8, 4),
            (1, 8, 4),
            (4096, 8, 64),
            (1 << 20, 8, 500),
            (1000, 16, 2),
            (9, 4096, 3),
        ] {
            let all: Vec<_> = (0..members).map(|i| share(n, elem, members, i)).collect();
            let covered: Vec<usize> = all.iter().cloned().flatten().collect();
            assert_eq!(covered, (0..n).collect::<Vec<_>>());
            let working = all.iter().filter(|share| !share.is_empty());
            assert!(
                working.clone().count() <= 1
                    || working.map(|s| s.len() * elem).all(|b| b > 2 << 10)
            );
        }
    }
}
