//! Ranks of keys from a count of each, and the order that follows from them.
//!
//! A slice of counts begins with the count of key `low`, and has one for every key that occurs.

/// Counts `keys`, the lowest of which is `low` or more.
pub fn count(keys: &[u32], low: u32, counts: &mut [u32]) {
    for key in keys {
        counts[key.wrapping_sub(low) as usize] += 1;
    }
}

/// Replaces the count of each key by the number of keys up to and with it.
pub fn sum_up(counts: &mut [u32]) {
    let mut sum = 0;
    for count in counts {
        sum += *count;
        *count = sum;
    }
}

/// Puts each of `keys` at the last place that is left for it.
pub fn place(keys: &[u32], low: u32, upto: &mut [u32], sorted: &mut [u32]) {
    for key in keys {
        let left = &mut upto[key.wrapping_sub(low) as usize];
        *left -= 1;
        sorted[*left as usize] = *key;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_counted_and_put_in_order() {
        let keys = [12, 10, 14, 12, 10, 12];
        let mut upto = [0; 6];
        count(&keys, 10, &mut upto);
        assert_eq!(upto, [2, 0, 3, 0, 1, 0]);
        sum_up(&mut upto);
        assert_eq!(upto, [2, 2, 5, 5, 6, 6]);
        let mut sorted = [0; 6];
        place(&keys, 10, &mut upto, &mut sorted);
        assert_eq!(sorted, [10, 10, 12, 12, 12, 14]);
    }
}
