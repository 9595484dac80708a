//! Inputs near those that are known to be interesting, such as a fuzzer makes them.

use std::path::Path;

use shmem_ib::rng::Rng;

use crate::Target;

/// Longest input that is made: beyond that, targets only become slower.
const MAX_LEN: usize = 4096;

/// Bytes that mean something in some format: ends, separators, extremes, numbers.
const TOKENS: &[&[u8]] = &[
    b"\0",
    b"\n",
    b";",
    b";;",
    b"=",
    b"cmd=",
    b"-1",
    b"0",
    b"4294967295",
    b"18446744073709551616",
    b"999999",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\x7f",
    b"\0\0\0\0",
    b"\x01\0\0\0",
    b"\xff\xff\xff\xff\xff\xff\xff\xff",
];

/// The seeds of a target and its corpus.
///
/// # Panics
/// If the corpus cannot be read.
pub fn inputs(target: &Target) -> Vec<Vec<u8>> {
    let mut inputs = (target.seeds)();
    let directory = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("corpus")
        .join(target.name);
    if let Ok(entries) = std::fs::read_dir(directory) {
        let mut paths: Vec<_> = entries
            .map(|e| e.expect("a readable corpus").path())
            .collect();
        paths.sort();
        let read = |path| std::fs::read(path).expect("a readable corpus");
        inputs.extend(paths.iter().map(read));
    }
    inputs
}

/// One of `inputs` with a few changes, in `bytes`.
pub fn mutate(rng: &mut Rng, inputs: &[Vec<u8>], bytes: &mut Vec<u8>) {
    let pick = |rng: &mut Rng| &inputs[rng.below(inputs.len() as u64) as usize][..];
    bytes.clear();
    bytes.extend_from_slice(pick(rng));
    for _ in 0..=rng.below(6) {
        let len = bytes.len();
        let at = rng.below(len.max(1) as u64) as usize;
        match rng.below(10) {
            0..3 if len > 0 => bytes[at] = rng.next_u32() as u8,
            3 if len > 0 => bytes[at] ^= 1 << rng.below(8),
            4 => bytes.truncate(at),
            5 if len > 0 => {
                bytes.remove(at);
            }
            6 => bytes.insert(at.min(len), rng.next_u32() as u8),
            7 => {
                let token = TOKENS[rng.below(TOKENS.len() as u64) as usize];
                let replaced = match rng.below(2) {
                    0 => at.min(len)..at.min(len),
                    _ => at.min(len)..(at + token.len()).min(len),
                };
                bytes.splice(replaced, token.iter().copied());
            }
            8 if len > 0 => {
                let end = at + 1 + rng.below((len - at) as u64) as usize;
                let to = rng.below(len as u64) as usize;
                let piece = bytes[at..end.min(len)].to_vec();
                bytes.splice(to..to, piece);
            }
            _ => {
                let other = pick(rng);
                let from = rng.below(other.len().max(1) as u64) as usize;
                bytes.truncate(at);
                bytes.extend_from_slice(&other[from.min(other.len())..]);
            }
        }
    }
    bytes.truncate(MAX_LEN);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn changes_are_many_and_repeat_with_the_seed() {
        let inputs = [b"cmd=init;".to_vec(), Vec::new(), vec![7; 40]];
        let run = |seed| {
            let mut rng = Rng::new(seed);
            let mut bytes = Vec::new();
            let mut all = Vec::new();
            for _ in 0..2000 {
                mutate(&mut rng, &inputs, &mut bytes);
                assert!(bytes.len() <= MAX_LEN);
                all.push(bytes.clone());
            }
            all
        };
        let first = run(1);
        assert_eq!(first, run(1));
        let mut different = first;
        different.sort();
        different.dedup();
        assert!(different.len() > 1000, "{}", different.len());
    }
}
