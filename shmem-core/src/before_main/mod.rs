//! What happens before `main`: the entry that can turn the program into a template.

mod stack;

use shmem_node::settings::Settings;
use shmem_node::template::marker::Note;

use crate::{attach, network};

/// Tells the launcher that this program has the constructor below.
#[used]
#[unsafe(link_section = ".note.shmem")]
static NOTE: Note = Note::CURRENT;

/// Runs before `main`. Free in a program that is not started as a template.
///
/// The number has linkers sort it before all constructors of the program, or of the shared library, that it is linked
/// into: in a template those run in each PE, after the fork. Constructors of other shared libraries may run before
/// it, and the template sees what they have done. `.preinit_array`, which comes before those, too, is only allowed in
/// programs, and nobody knows here whether this becomes a part of one or of a shared library.
#[used]
#[unsafe(link_section = ".init_array.00001")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn run() {
        shmem_node::template::constructor(warm_up);
    }
    run
};

/// Refers to the constructor, so that a linker that takes out of a static library what is needed takes
/// it, too.
pub(crate) fn keep() {
    std::hint::black_box(&raw const CONSTRUCTOR);
}

/// What costs time and is the same in all PEs of a node, a template does once: it reads the settings, maps the
/// node's memory, searches for RDMA devices, and asks the processor what it can do, which is slow, most of all in a virtual
/// machine, where every question traps to the hypervisor.
fn warm_up() {
    shmem_ib::warm_up();
    shmem_node::sys::register_barrier_everywhere();
    stack::remember();
    shmem_node::cpus::of_machine();
    // Since glibc 2.41 the first random number costs a process four more system calls, and a forked one none.
    let _ = shmem_node::sys::random(&mut [0]);
    Settings::remember_env();
    if let Some(node) = attach::prepare() {
        network::remember_absence(&node);
    }
}
