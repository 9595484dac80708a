//! The program's static data as symmetric memory.
//!
//! OpenSHMEM has C programs use their global and static variables as symmetric objects. They lie at
//! addresses of the linker's choice, in private memory. So when the C library initialises, the pages of
//! the main program's writable data are moved into this PE's segment and mapped from there, at the
//! addresses that they have: the program does not notice, and from then on a static variable is an
//! offset in the segment like everything else. Nothing depends on load addresses being equal; what
//! must be equal is the layout of the program's data, because all PEs run one executable.
//!
//! The room in the segment is as large as the launcher found the program's data to be. Variables of
//! shared libraries, thread-local ones and constants are not symmetric (section 3 of the specification
//! demands the former of none). Where anything stands in the way, static data just is not symmetric,
//! and whoever passes it to a routine is told why.

mod fork;
mod image;
mod remap;
pub(crate) mod stretch;

use std::os::fd::{AsRawFd, BorrowedFd};

use shmem_node::elf::StaticData;
use shmem_node::layout::INTERNAL_SIZE;
use shmem_node::machine::Size;
use shmem_node::segment::NodeView;
use shmem_node::settings::{HeapPages, Settings};
use shmem_node::sys;

use self::stretch::Stretch;

/// What became of static data.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Statics {
    /// It is symmetric.
    Shared(&'static [Stretch]),
    /// It is not.
    Private(Why),
}

impl Statics {
    /// Bytes from the first of it to the last in the segment, behind what is the runtime's own.
    pub(crate) fn len(&self) -> usize {
        match self {
            Self::Shared(stretches) => {
                let ends = stretches.iter().map(|s| s.at + s.pages() - INTERNAL_SIZE);
                ends.max().unwrap_or(0)
            }
            Self::Private(_) => 0,
        }
    }
}

/// Why static data is not symmetric.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Why {
    /// The program was not initialised through the C interface.
    NotAsked,
    /// The launcher left no room.
    NoRoom { need: u64 },
    /// The room is too small.
    TooSmall { need: u64, room: u64 },
    /// The room was made for another program.
    Other { need: u64 },
    /// Huge pages are too large.
    HugePages,
    /// There is none, or it cannot be found.
    Nothing,
    /// The operating system refused.
    Os(i32),
    /// Other threads may be writing it, and cannot be stopped: why.
    Threads(&'static str),
}

impl std::fmt::Display for Why {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let set = |f: &mut std::fmt::Formatter<'_>, need: u64| {
            write!(f, "; set SHMEM_STATICS_SIZE={}k", need.div_ceil(1024))
        };
        match *self {
            Self::NotAsked => f.write_str(
                "the program was initialised through the Rust interface, which leaves static data \
                 private",
            ),
            Self::NoRoom { need } => {
                f.write_str("the launcher left no room for this program's static data")?;
                set(f, need)
            }
            Self::TooSmall { need, room } => {
                let (need, room) = (Size(need), Size(room));
                write!(
                    f,
                    "its static data takes {need}, but there is room for {room}"
                )?;
                set(f, need.0)
            }
            Self::Other { need } => {
                f.write_str(
                    "the launcher left room for the static data of another program, which seems to \
                     have started this one",
                )?;
                set(f, need)
            }
            Self::HugePages => f.write_str(
                "SHMEM_HEAP_PAGES=huge, whose pages are too large for static data; set it to \
                 transparent or default",
            ),
            Self::Threads(why) => write!(
                f,
                "shmem_init cannot stop the other threads of the process while it moves static data: {why}; start threads \
                 after shmem_init"
            ),
            Self::Nothing => f.write_str("the program seems to have no static data"),
            Self::Os(errno) => write!(
                f,
                "its static data cannot be mapped: {}",
                std::io::Error::from_raw_os_error(errno)
            ),
        }
    }
}

/// Whether data with this layout finds its room in the segment.
fn fits(data: &StaticData, view: &NodeView, settings: &Settings) -> Result<(), Why> {
    let (need, room) = (data.room, view.statics());
    if settings.heap_pages == HeapPages::Huge {
        return Err(Why::HugePages);
    }
    if room.bytes == 0 {
        return Err(Why::NoRoom { need });
    }
    if room.layout != 0 && room.layout != data.layout {
        return Err(Why::Other { need });
    }
    if need > room.bytes {
        return Err(Why::TooSmall {
            need,
            room: room.bytes,
        });
    }
    Ok(())
}

/// Moves the main program's static data into the segment of this PE, the `local`th of its node, and
/// tells the others. `heap` is the file of the node's heap memory.
///
/// No signal handler of this thread and no other thread runs while the data moves: what they stored would be lost.
/// Threads that block all signals do run: they must not write static data before init returns.
pub(crate) fn share(
    view: &NodeView,
    local: usize,
    settings: &Settings,
    heap: BorrowedFd<'static>,
) -> Statics {
    match move_all(view, local, settings, heap) {
        Ok((stretches, layout)) => {
            use std::sync::atomic::Ordering;
            // Read by others after the barrier of init.
            let block = view.pe_block(local);
            block.statics.store(layout, Ordering::Relaxed);
            Statics::Shared(stretches)
        }
        Err(why) => Statics::Private(why),
    }
}

fn move_all(
    view: &NodeView,
    local: usize,
    settings: &Settings,
    heap: BorrowedFd<'static>,
) -> Result<(&'static [Stretch], u64), Why> {
    let image = image::main_program().ok_or(Why::Nothing)?;
    let page = sys::page_size();
    let data = image.statics(page).ok_or(Why::Nothing)?;
    fits(&data, view, settings)?;
    let place = |s: &shmem_node::elf::Stretch| Stretch {
        start: image.base + s.start as usize,
        len: (s.end - s.start) as usize,
        at: INTERNAL_SIZE + (s.start - data.origin) as usize,
    };
    let stretches: Vec<Stretch> = data.stretches.iter().map(place).collect();
    let stretches: &'static [Stretch] = Vec::leak(stretches);
    let mut pages = remap::Present::open(page);
    // From here on nothing is allocated until threads go on again: one of them may hold the allocator's lock.
    let undisturbed = sys::Undisturbed::begin();
    let stopped = sys::stop_others(&undisturbed).map_err(|e| Why::Threads(e.to_string().leak()))?;
    for (stretch, from) in stretches.iter().zip(&data.stretches) {
        let job = remap::Job {
            stretch: *stretch,
            from_file: (from.file_end - from.start) as usize,
            segment: view.segment(local),
            file: heap.as_raw_fd(),
            in_file: view.segment_in_file(local),
        };
        // SAFETY: no other thread writes the stretch meanwhile: `stopped` holds all that take a signal, and a thread that
        // blocks all signals is the library's own, which writes none of the program's data, or one whose program promises the
        // same (see `share`). The stretch is writable data of the main program, which stays loaded for ever; its room in the
        // segment is this PE's own, and no other PE knows that it is used.
        unsafe { remap::remap(job, &mut pages) }.map_err(Why::Os)?;
    }
    drop(stopped);
    drop(undisturbed);
    fork::keep_private(
        stretches,
        heap,
        view.segment_in_file(local),
        image.is_static(),
    );
    Ok((stretches, data.layout))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reasons_say_what_to_do() {
        for (why, part) in [
            (Why::NoRoom { need: 5000 }, "SHMEM_STATICS_SIZE=5k"),
            (
                Why::TooSmall {
                    need: 8192,
                    room: 4096,
                },
                "takes 8.0 KiB, but there is room for 4.0 KiB; set SHMEM_STATICS_SIZE=8k",
            ),
            (Why::Other { need: 4096 }, "SHMEM_STATICS_SIZE=4k"),
            (Why::HugePages, "SHMEM_HEAP_PAGES"),
            (
                Why::Threads("a reason"),
                "data: a reason; start threads after shmem_init",
            ),
            (Why::Os(libc::ENOMEM), "memory"),
        ] {
            let text = why.to_string();
            assert!(text.contains(part), "{text}");
        }
    }
}
