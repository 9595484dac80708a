//! The charges of the right-hand side, from what all PEs found in their blocks.

use super::charges::{Extremes, MOST, words_of_all};
use crate::job::Reduction;

/// Joins the candidates of all PEs, who call this together, in two collectives. `reduction` has room for
/// [`COUNTS`](super::charges::COUNTS) numbers.
///
/// # Errors
/// If the symmetric heap has no room for a kilobyte or so.
pub fn join(mine: &Extremes, reduction: &Reduction) -> Result<Extremes, shmem::Error> {
    let mut counts = mine.counts();
    reduction.sums(&mut counts);
    let words = mine.words_within(&counts);
    let mine = shmem::alloc::<f64>(MOST)?;
    let all = shmem::alloc::<f64>(words_of_all(&counts))?;
    mine.write_from(&words);
    let count = shmem::collect(all, mine.at(..words.len()));
    let joined = Extremes::of_words(&all.at(..count).to_vec());
    shmem::free(all)?;
    shmem::free(mine)?;
    Ok(joined)
}
