//! Output of many PEs as one text per stream: whose turn it is, and what the text looks like.
//!
//! # What is promised
//! * The bytes of a PE come in their order and unchanged, whatever they are, and all of them.
//! * A line stays whole, however long it is, and lines of different PEs are not mixed.
//! * A line whose end has not come is seen within a tenth of a second once the program has flushed it
//!   (a question to the user, dots of progress), unless another PE's line is open at that time.
//! * Nobody waits for ever behind a line that does not end. If others have something to say and the
//!   PE whose line is open has been silent for [`SILENCE`], or brings less than [`FLOW`] bytes in
//!   [`DRIBBLE`], they get their turn. The launcher then ends the line first. It does
//!   so, too, for a PE that has ended within a line, once something follows. Those line ends are the
//!   only bytes that it adds. (With labels, what the PE adds to its line later has a label again.)
//! * What is held back is bounded: by one budget for all PEs of a node, and by the credit of the link
//!   for what comes from other nodes.
//!
//! # How
//! At each place where output of several sources comes together (the PEs and child agents of an
//! agent; node 0 and the spawned jobs of the launcher) a [`Turns`] for each stream says whose line is
//! open. So every link carries one line at a time, and what is promised holds for the whole tree by
//! induction: nobody has to keep a line until its end has come, and nobody asks anybody far away.
//! The launcher's [`Mixer`] writes labels and the line ends of its own.

mod mixer;
mod separate;
mod turns;

pub use mixer::{Mixer, Speaker};
pub use separate::Separate;
pub use turns::{DRIBBLE, FLOW, LINE_MAX, SILENCE, Said, Turns};
