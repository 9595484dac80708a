//! Lists of verbs: bytes say what two HCAs are told to do, and what becomes of each packet.
//!
//! Two RC connections and a UD queue pair per HCA. The input posts, polls, delivers, loses,
//! doubles, damages and forges packets, lets time pass, and breaks, resets, reconnects and
//! destroys queue pairs. Then the network is healed. Checked are: no panic; completions once
//! and in order; on a connection that nobody has interfered with, every value and all memory;
//! additions executed once; and that everything posted comes to an end.

mod layout;
mod pair;
mod seeds;
mod world;

pub use seeds::verbs_seeds;

use crate::Choices;

/// Runs the list of operations in `data`.
///
/// # Panics
/// If an HCA does something wrong.
pub fn verbs(data: &[u8]) {
    let mut choices = Choices::new(data);
    let mut world = world::World::new(&mut choices);
    while choices.any() {
        world.step(&mut choices);
    }
    world.finish();
}
