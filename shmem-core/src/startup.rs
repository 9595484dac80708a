//! What happens before `main`: the entry that can turn the program into a template.

use shmem_node::template::marker::Note;

/// Tells the launcher that this program has the constructor below.
#[used]
#[unsafe(link_section = ".note.shmem")]
static NOTE: Note = Note::CURRENT;

/// Runs before `main`. Free in a program that is not started as a template.
#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn run() {
        shmem_node::template::constructor(warm_up);
    }
    run
};

/// Asking the processor what it can do is slow, most of all in a virtual machine (every question
/// traps to the hypervisor), so a template asks for all its PEs.
fn warm_up() {
    shmem_ib::warm_up();
    shmem_node::sys::register_barrier_everywhere();
}
