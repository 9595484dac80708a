//! Why a benchmark can't run here: said before the timed region, with what would do.

use crate::class::Class;

/// What keeps a benchmark from running. All PEs of a job come to the same one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The benchmark does not run on this number of PEs.
    #[error(
        "{kernel} class {class} does not run on {n_pes} PE{}: it takes {rule}; start it with {} PEs",
        if *.n_pes == 1 { "" } else { "s" },
        list(.try_with)
    )]
    Processes {
        /// The benchmark in capitals.
        kernel: &'static str,
        /// Its class.
        class: Class,
        /// PEs of the job.
        n_pes: usize,
        /// Which numbers it takes: "a square number of PEs up to 16".
        rule: String,
        /// The nearest numbers that it takes.
        try_with: Vec<usize>,
    },
    /// The data does not fit in the memory of a node.
    #[error(
        "{kernel} class {class} on {n_pes} PEs needs {needed_mib} MiB on this node ({on_node} PEs), \
         where {available_mib} MiB are available; use more nodes or a smaller class"
    )]
    Memory {
        /// The benchmark in capitals.
        kernel: &'static str,
        /// Its class.
        class: Class,
        /// PEs of the job.
        n_pes: usize,
        /// PEs of the node.
        on_node: usize,
        /// What they need together.
        needed_mib: u64,
        /// What there is.
        available_mib: u64,
    },
    /// The runtime could not do what was asked, for example find room in the symmetric heap.
    #[error(transparent)]
    Runtime(#[from] shmem::Error),
}

/// "4", "4 or 9", "1, 4 or 9".
fn list(numbers: &[usize]) -> String {
    let words: Vec<_> = numbers.iter().map(usize::to_string).collect();
    match words.split_last() {
        Some((last, [])) => last.clone(),
        Some((last, rest)) => format!("{} or {last}", rest.join(", ")),
        None => "other".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_wrong_number_of_pes_is_told_with_right_ones() {
        let error = Error::Processes {
            kernel: "BT",
            class: Class::S,
            n_pes: 3,
            rule: "a square number of PEs up to 16".to_owned(),
            try_with: vec![1, 4],
        };
        assert_eq!(
            error.to_string(),
            "BT class S does not run on 3 PEs: it takes a square number of PEs up to 16; \
             start it with 1 or 4 PEs"
        );
    }
}
