//! Mistakes in arguments, and calls outside of init and finalize, are told at the line of the program that makes
//! them, whichever public function finds them out.

use crate::programs::{PLACES, shmrun};

#[test]
fn mistakes_are_told_at_the_programs_line() {
    for options in ["-n 1", "-n 2", "-n 3 --nodes 3"] {
        let out = shmrun(options, &[PLACES]).succeed();
        assert!(
            out.contains(" mistakes were told at their lines"),
            "{options}: {out}"
        );
    }
}
