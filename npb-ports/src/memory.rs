//! Whether the data of a benchmark fits into memory, asked before any of it is touched.
//!
//! The operating system promises memory that it does not have and kills a process that believes
//! it, in the middle of a run. The large classes need terabytes, and a user who tries one wants to
//! be told how many.

use crate::class::Class;
use crate::error::Error;
use crate::job::Reduction;
use shmem_node::machine::Machine;

/// Fails, on all PEs alike, if on some node the PEs together need more memory than is left there.
///
/// `bytes_per_pe` is what this PE is going to touch, its share of the symmetric heap included; it
/// may differ between PEs. What is left is what `/proc/meminfo` calls available, or less if a
/// control group allows less; swap space does not count, since a benchmark that is swapped out
/// measures nothing. Nodes that are emulated on one machine count as one. Where the system does not
/// tell, there is no check.
///
/// **Collective**: all PEs call this together, outside of the timed region and before they allocate.
///
/// # Errors
/// [`Error::Memory`] of the node that lacks most; [`Error::Heap`] if the symmetric heap has no room
/// for nine numbers.
pub fn check(kernel: &'static str, class: Class, bytes_per_pe: u64) -> Result<(), Error> {
    let all = Reduction::new(3)?;
    let machine = machine().unwrap_or(-(shmem::my_pe() as f64));
    // A node's PEs may need different amounts: as many times the largest is never too little.
    let mut largest = [bytes_per_pe as f64, machine, -machine];
    all.maxima(&mut largest);
    let [most, last, first] = largest;
    let on_node = if last == -first {
        shmem::n_pes()
    } else {
        shmem::Team::shared().n_pes()
    };
    let needed = most * on_node as f64;
    let available = Machine::read().map(left);
    let lacking = shortfall(needed, available);
    let worst = all.max(lacking);
    let outcome = if worst > 0.0 {
        // One PE of such a node speaks for it.
        let me = shmem::my_pe() as f64;
        let speaker = all.max(if lacking == worst { me } else { -1.0 });
        let mut figures = match available {
            Some(available) if me == speaker => [on_node as f64, available as f64],
            _ => [0.0; 2],
        };
        all.maxima(&mut figures);
        Err(Error::Memory {
            kernel,
            class,
            n_pes: shmem::n_pes(),
            on_node: figures[0] as usize,
            needed: (most * figures[0]) as u64,
            available: figures[1] as u64,
        })
    } else {
        Ok(())
    };
    all.free()?;
    outcome
}

/// A number that no other machine is likely to have: what its kernel drew when it started.
fn machine() -> Option<f64> {
    number_of(&std::fs::read_to_string("/proc/sys/kernel/random/boot_id").ok()?)
}

/// The first digits of a UUID, as many as an `f64` holds, and not 0.
fn number_of(uuid: &str) -> Option<f64> {
    let digits: String = uuid
        .chars()
        .filter(char::is_ascii_hexdigit)
        .take(13)
        .collect();
    let number = u64::from_str_radix(&digits, 16).ok()?;
    (digits.len() == 13).then_some((number | 1) as f64)
}

/// Bytes that processes of this machine can still have.
fn left(machine: Machine) -> u64 {
    machine
        .group_left
        .map_or(machine.available, |group| group.min(machine.available))
}

/// Bytes that are missing, or 0.
fn shortfall(needed: f64, available: Option<u64>) -> f64 {
    available.map_or(0.0, |available| (needed - available as f64).max(0.0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_groups_only_take_away() {
        let machine = Machine {
            total: 100,
            available: 60,
            swap_total: 50,
            swap_free: 50,
            group_left: None,
            group_limit: None,
        };
        let in_group = |left| Machine {
            group_left: Some(left),
            ..machine
        };
        assert_eq!(left(machine), 60);
        assert_eq!(left(in_group(10)), 10);
        assert_eq!(left(in_group(90)), 60);
    }

    #[test]
    fn machines_have_numbers() {
        let number = |uuid| number_of(uuid);
        assert_eq!(number("00000000-0000-0fff-8000-000000000000\n"), Some(1.0));
        assert_eq!(
            number("ffffffff-ffff-ffff-8000-000000000000"),
            Some(((1u64 << 52) - 1) as f64)
        );
        assert_ne!(
            number("3d813cbb-47fb-32ba-91df-831e1593ac29"),
            number("3d813cbb-47fb-12ba-91df-831e1593ac29")
        );
        assert_eq!((number(""), number("3d813cbb")), (None, None));
    }

    #[test]
    fn what_is_missing() {
        assert_eq!(shortfall(100.0, Some(60)), 40.0);
        assert_eq!(shortfall(60.0, Some(60)), 0.0);
        assert_eq!(shortfall(1e20, None), 0.0);
        // More than an integer of 64 bits holds is a shortfall, too.
        assert!(shortfall(1e30, Some(u64::MAX)) > 9e29);
    }
}
