//! Registration of this PE's segment with the network device: all at once, or part by part as
//! allocations reach into it.
//!
//! Allocation is collective and ends with a barrier. A PE registers what its allocation reaches before
//! it enters that barrier, so whoever uses the memory afterwards addresses what is registered, and
//! at most waits for word of it, which connections carry (see the endpoint's segments).

use std::ops::Range;
use std::sync::Mutex;

use shmem_ib::connect::endpoint::Endpoint;
use shmem_ib::verbs::{Fabric, Hca};
use shmem_node::layout::INTERNAL_SIZE;
use shmem_node::machine::Machine;
use shmem_node::segment::NodeView;
use shmem_node::settings::{HeapCommit, HeapPages, HeapRegister, Settings};
use shmem_node::stats::{Stat, StatsRecord};
use shmem_node::sys;

use super::limits::{Demand, Limits, RegisterError, affordable, may_lock};
use crate::heap::parts::{MOST, Parts};

/// What is registered of the segment, and with what kind of device.
#[derive(Debug)]
pub(crate) struct Registrar {
    parts: Parts,
    /// Bytes of static data in the first part, behind what is the runtime's own. There may be more room.
    statics: usize,
    /// Whether all parts are registered in init.
    at_once: bool,
    /// Whether a registration takes the memory of its pages.
    pins: bool,
    /// Whether the heap has all its memory already.
    set_aside: bool,
    /// PEs of the job on this machine: what one registers, all of them do.
    on_machine: usize,
    done: Mutex<Done>,
}

#[derive(Debug, Default)]
struct Done {
    parts: [bool; MOST],
    bytes: u64,
    nanoseconds: u64,
}

/// How a segment is laid out.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Bytes of static data that other PEs access.
    pub(crate) statics: usize,
    /// Where the heap begins.
    pub(crate) heap_start: usize,
    /// Bytes in all.
    pub(crate) len: usize,
}

impl Shape {
    /// That of a PE's segment which holds so many bytes of static data.
    pub(crate) fn of(view: &NodeView, statics: usize) -> Self {
        Self {
            statics,
            heap_start: view.heap_start(),
            len: view.segment_len(),
        }
    }
}

/// Bytes that a PE registers in init at least, with a device that takes the memory of registered pages.
pub(crate) fn at_least(settings: &Settings, heap_start: usize, len: usize) -> usize {
    match settings.heap_register {
        // Refused, or nothing is taken.
        HeapRegister::OnDemandPaging => 0,
        HeapRegister::Whole => len,
        HeapRegister::Auto | HeapRegister::Grow => {
            // Static data is not known yet, and the room for it not taken.
            let parts = Parts::growing(heap_start, len);
            match parts.count() {
                1 => INTERNAL_SIZE,
                _ => INTERNAL_SIZE + parts.range(1).len(),
            }
        }
    }
}

/// Whether registered pages should be made when they are touched, if the device can do that.
pub(crate) const fn wants_paging(settings: &Settings) -> bool {
    matches!(
        settings.heap_register,
        HeapRegister::Auto | HeapRegister::OnDemandPaging
    )
}

impl Registrar {
    /// Plans the registration of a segment, of the lengths in `shape`, with a device that takes the memory of
    /// registered pages or not (`pins`). The parts depend on the setting and the fabric alone, which
    /// are the same for all PEs: of the devices of a job some may page on demand and some not, but
    /// software HCAs never take memory. `on_machine` PEs do the same on this machine.
    pub(crate) fn new(
        settings: &Settings,
        fabric: Fabric,
        pins: bool,
        shape: Shape,
        on_machine: usize,
    ) -> Result<Self, RegisterError> {
        let Shape {
            statics,
            heap_start,
            len,
        } = shape;
        let (whole, at_once) = match settings.heap_register {
            HeapRegister::OnDemandPaging if pins => {
                return Err(RegisterError::NoPaging);
            }
            HeapRegister::Whole | HeapRegister::OnDemandPaging => (true, true),
            HeapRegister::Grow => (false, false),
            HeapRegister::Auto => (fabric == Fabric::Soft, !pins),
        };
        let parts = if whole {
            Parts::whole(len)
        } else {
            Parts::growing(heap_start, len)
        };
        Ok(Self {
            parts,
            statics,
            at_once,
            pins,
            set_aside: settings.heap_pages == HeapPages::Huge
                || settings.heap_commit == HeapCommit::Reserve,
            on_machine,
            done: Mutex::default(),
        })
    }

    /// How the segment is cut.
    pub(crate) fn parts(&self) -> &Parts {
        &self.parts
    }

    /// The parts that are registered in init. `leader`: this PE's mailboxes are used, which lie in
    /// the first part, as static data does. Every PE has the first part of the heap registered, so that peers can connect.
    fn first(&self, leader: bool) -> Range<usize> {
        if self.at_once || self.parts.count() == 1 {
            0..self.parts.count()
        } else {
            usize::from(!leader && self.statics == 0)..2
        }
    }

    /// What is registered of a part: of the first one only what is used.
    fn used(&self, part: usize) -> Range<usize> {
        let range = self.parts.range(part);
        match part {
            0 if self.parts.count() > 1 => range.start..range.end.min(INTERNAL_SIZE + self.statics),
            _ => range,
        }
    }

    /// Registers what must be there from the beginning.
    ///
    /// # Safety
    /// As for [`Registrar::register`].
    pub(crate) unsafe fn register_first<H: Hca>(
        &self,
        endpoint: &Endpoint<H>,
        base: *mut u8,
        leader: bool,
        figures: &StatsRecord,
    ) -> Result<(), RegisterError> {
        // SAFETY: by the caller.
        unsafe { self.register_parts(endpoint, base, self.first(leader), figures) }
    }

    /// Nothing is registered any more: the endpoint was closed.
    pub(crate) fn forget(&self) {
        *self.done.lock().unwrap_or_else(|e| e.into_inner()) = Done::default();
    }

    /// Registers what is not yet registered of the parts into which a range of the segment reaches.
    ///
    /// # Safety
    /// `base` is the first byte of this PE's segment, which is mapped, readable and writable until the
    /// endpoint is closed.
    pub(crate) unsafe fn register<H: Hca>(
        &self,
        endpoint: &Endpoint<H>,
        base: *mut u8,
        range: Range<usize>,
        figures: &StatsRecord,
    ) -> Result<(), RegisterError> {
        // SAFETY: by the caller.
        unsafe { self.register_parts(endpoint, base, self.parts.touched(range), figures) }
    }

    /// # Safety
    /// As for [`Registrar::register`].
    unsafe fn register_parts<H: Hca>(
        &self,
        endpoint: &Endpoint<H>,
        base: *mut u8,
        parts: Range<usize>,
        figures: &StatsRecord,
    ) -> Result<(), RegisterError> {
        let mut done = self.done.lock().unwrap_or_else(|e| e.into_inner());
        let missing = |done: &Done| -> u64 {
            let missing = parts.clone().filter(|&part| !done.parts[part]);
            missing.map(|part| self.used(part).len() as u64).sum()
        };
        let more = missing(&done);
        if more == 0 {
            return Ok(());
        }
        if self.pins {
            let demand = Demand {
                more,
                before: done.bytes,
                pes: self.on_machine as u64,
                at_once: self.at_once,
            };
            let limits = Limits {
                locked: may_lock(),
                machine: Machine::read().filter(|_| !self.set_aside),
            };
            affordable(demand, limits)?;
        }
        let began = sys::monotonic_ns();
        for part in parts {
            if done.parts[part] {
                continue;
            }
            let range = self.used(part);
            let bytes = range.len() as u64;
            // SAFETY: the part lies in the segment, of which the caller promises what is needed.
            unsafe { endpoint.register_segment(part as u8, base.add(range.start), range.len()) }
                .map_err(|source| RegisterError::Device { bytes, source })?;
            done.parts[part] = true;
            done.bytes += bytes;
        }
        done.nanoseconds += sys::monotonic_ns() - began;
        figures.set(Stat::Registered, done.bytes);
        figures.set(Stat::RegisteringWall, done.nanoseconds);
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use shmem_ib::connect::endpoint::EndpointConfig;
    use shmem_ib::soft::{SoftConfig, SoftHca};
    use std::sync::Arc;

    fn shape(len: usize) -> Shape {
        Shape {
            statics: 0,
            heap_start: INTERNAL_SIZE,
            len,
        }
    }

    #[test]
    fn every_choice_and_kind_of_device() {
        use HeapRegister::{Auto, Grow, OnDemandPaging, Whole};
        let len = INTERNAL_SIZE + (256 << 20);
        let (soft, pinning, paging) = (
            (Fabric::Soft, false),
            (Fabric::Roce, true),
            (Fabric::InfiniBand, false),
        );
        let settings = |heap_register| Settings {
            heap_register,
            ..Settings::default()
        };
        let new = |choice, (fabric, pins), len| {
            Registrar::new(&settings(choice), fabric, pins, shape(len), 1)
        };
        let plan = |choice, device| new(choice, device, len).unwrap();
        for (choice, device, count, leader, other) in [
            (Auto, soft, 1, 0..1, 0..1),
            (Auto, pinning, 6, 0..2, 1..2),
            // Other PEs' devices may pin: the parts are those of all.
            (Auto, paging, 6, 0..6, 0..6),
            (Whole, pinning, 1, 0..1, 0..1),
            (Grow, soft, 6, 0..2, 1..2),
            (OnDemandPaging, paging, 1, 0..1, 0..1),
            (OnDemandPaging, soft, 1, 0..1, 0..1),
        ] {
            let plan = plan(choice, device);
            let found = (plan.parts().count(), plan.first(true), plan.first(false));
            assert_eq!(found, (count, leader, other), "{choice:?}");
        }
        let refused = new(OnDemandPaging, pinning, len).unwrap_err();
        assert!(refused.to_string().contains("grow"), "{refused}");
        for (choice, bytes) in [
            (Auto, 5 << 20),
            (Grow, 5 << 20),
            (Whole, len),
            (OnDemandPaging, 0),
        ] {
            assert_eq!(
                at_least(&settings(choice), INTERNAL_SIZE, len),
                bytes,
                "{choice:?}"
            );
        }
        // Static data is everybody's.
        let statics = Shape {
            statics: 8192,
            heap_start: INTERNAL_SIZE + (1 << 30),
            len: len + (1 << 30),
        };
        let own = Registrar::new(&settings(Grow), Fabric::Roce, true, statics, 1).unwrap();
        assert_eq!(own.first(false), 0..2);
        assert_eq!(
            own.used(0),
            0..INTERNAL_SIZE + 8192,
            "whatever room there is"
        );
        assert_eq!(own.used(1), own.parts().range(1));
        assert_eq!(
            at_least(&settings(Auto), statics.heap_start, statics.len),
            5 << 20
        );
        // No heap at all: the first part is everything.
        let tiny = new(Grow, pinning, INTERNAL_SIZE).unwrap();
        assert_eq!(tiny.first(false), 0..1);
    }

    /// As in a job, but that nobody uses the memory.
    #[test]
    fn parts_are_registered_once_and_when_they_are_reached() {
        const MIB: usize = 1 << 20;
        let hca = SoftHca::open(&SoftConfig::loopback(7)).unwrap();
        let endpoint = Endpoint::new(Arc::new(hca), EndpointConfig::default()).unwrap();
        let len = INTERNAL_SIZE + 64 * MIB;
        let memory = vec![0u64; len / 8].leak();
        let base: *mut u8 = memory.as_mut_ptr().cast();
        let figures = StatsRecord::default();
        let registered = || figures.read().get(Stat::Registered) as usize / MIB;
        let registrar = |heap_register, pins, on_machine| {
            let settings = Settings {
                heap_register,
                ..Settings::default()
            };
            Registrar::new(&settings, Fabric::Roce, pins, shape(len), on_machine).unwrap()
        };
        let growing = registrar(HeapRegister::Grow, false, 4);
        // SAFETY: the memory is leaked.
        unsafe {
            growing
                .register_first(&endpoint, base, false, &figures)
                .unwrap();
            assert_eq!(registered(), 1);
            for (offset, mib) in [(100, 1), (MIB, 5), (MIB, 5), (30 * MIB, 64 - 16)] {
                let at = INTERNAL_SIZE + offset;
                growing
                    .register(&endpoint, base, at..at + 100, &figures)
                    .unwrap();
                assert_eq!(registered(), mib, "at {offset}");
            }
            // The part between, and the one of leaders.
            growing.register(&endpoint, base, 0..len, &figures).unwrap();
            assert_eq!(registered(), 68);
        }
        // More than any machine has: refused before the device is asked. Where this process may lock
        // little memory, that is found first.
        let whole = registrar(HeapRegister::Whole, true, 1 << 40);
        // SAFETY: the memory is leaked.
        let all = unsafe { whole.register_first(&endpoint, base, true, &figures) };
        let refused = matches!(
            all,
            Err(RegisterError::Memory { .. } | RegisterError::Locked { .. })
        );
        assert!(refused, "{all:?}");
        // So is what an allocation reaches.
        let crowded = registrar(HeapRegister::Grow, true, 1 << 40);
        // SAFETY: the memory is leaked.
        let more = unsafe { crowded.register(&endpoint, base, INTERNAL_SIZE..len, &figures) };
        assert!(more.is_err());
        assert_eq!(registered(), 68);
    }
}
