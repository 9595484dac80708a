//! Starting the PEs of a node from a template.
//!
//! Executing a program costs the kernel and the dynamic linker several times what forking it does.
//! So the NLA executes the program once. A constructor in the `shmem` library runs before `main`.
//! If it finds that the process was started as a template, it serves *spawn
//! requests*: for each PE it forks, and the child puts its descriptors and environment in place
//! and returns from the constructor into `main`, as if it had been executed. Programs without the
//! constructor are started by a *spawner* ([`exec`]), a process that the NLA forks early and that
//! executes the program once per PE. Both speak the protocol of [`message`].
//!
//! A template in which something has happened already that a fork loses ([`Lost`]), such as a library's constructor
//! that has started a thread, executes its own program for each PE instead, as a spawner does.
//!
//! PEs are plain children of the template or spawner. When the last one is started the template
//! exits and the PEs fall to the NLA, which is their sub-reaper (`PR_SET_CHILD_SUBREAPER`) and
//! waits for them as for any child. The NLA itself never forks a PE, so its thousands of
//! descriptors are never copied.
//!
//! # What a forked PE shares with its siblings
//! Program text, relocated data until written, and the address layout (one randomisation per node
//! and job, not per PE). What has to be its own is: process id, standard streams, PMI socket,
//! environment, and the 16 random bytes of `AT_RANDOM`. Signal dispositions and mask are those that
//! an executed program would have, because the template changes none.

pub mod exec;
pub mod marker;
pub mod message;

mod lost;
mod nla;
mod requests;
mod serve;

pub use lost::Lost;
pub use message::{PeSpec, TemplateStart};
pub use nla::{NlaSide, Reply};
pub use serve::constructor;
