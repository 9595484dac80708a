//! Teams: sets of PEs that number themselves anew and have collectives of their own.
//!
//! A team costs no message: what a member knows of it are a few numbers ([`Members`]), where its
//! node's members are ([`Mapping`]), and a slot in the runtime's part of the segments ([`slots`]) that all
//! members agreed on when the team was split from its parent. Splitting is a collective, and so among
//! those; [`entry`] keeps a PE's threads apart in them.

mod entry;
mod mapping;
mod members;
pub(crate) mod slots;

use std::panic::Location;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU64, Ordering};

use shmem_node::barrier::NodeBarrier;
use shmem_node::recording;
use shmem_node::segment::NodeView;
use shmem_node::waiting::{self, Collective, Place, TeamKind};

pub(crate) use self::entry::{Guard, ProgramOperation};
pub(crate) use self::mapping::Mapping;
pub use self::members::Members;
pub use self::slots::MAX_TEAMS;
use crate::datum::Datum;
use crate::error::Called;
use crate::fault;
use crate::heap::address::SymAddr;
use crate::runtime::{Runtime, rt};
use crate::symmetric::address;
use crate::symmetric::array::SymSlice;

/// What a team is called in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    World,
    Shared,
    Split,
}

/// A set of PEs, numbered from 0, that have collectives of their own: barriers, broadcasts and
/// reductions that no other PE takes part in. This PE is a member.
///
/// [`world`](Self::world) and [`shared`](Self::shared) always exist. Others are split from them,
/// and from each other:
///
/// ```
/// # let _world = shmem::init().unwrap();
/// use shmem::Team;
///
/// // The PEs with even numbers; those with odd ones get None.
/// let world = Team::world();
/// let half = (world.n_pes() as isize + 1) / 2;
/// if let Some(evens) = world.split_strided(0, 2, half).unwrap() {
///     assert_eq!(evens.my_pe(), world.my_pe() / 2);
///     evens.sync();
///     evens.destroy();
/// }
/// ```
///
/// A team that is dropped without [`destroy`](Self::destroy) keeps its slot until finalize; a PE can
/// be in [`MAX_TEAMS`] teams at a time.
///
/// # Rules for callers
/// Members call the collectives of a team in the same order, with matching arguments, one thread
/// of a PE at a time; a second one panics. Different threads may be in collectives of different
/// teams at the same time.
#[derive(Debug)]
pub struct Team {
    name: Name,
    slot: usize,
    members: Members,
    my_pe: usize,
    mapping: Mapping,
    /// Where the members of this node meet.
    barrier: &'static NodeBarrier,
    /// Whether the PEs of this node poll while they wait.
    polls: bool,
    /// Whether a thread is in a collective.
    meeting: AtomicBool,
    /// Whether a thread of this PE has left one half done.
    broken: AtomicBool,
    /// Whether all members were found to have the static data of this PE, which is for ever.
    alike: AtomicBool,
    /// In which, or was last; and how many it has begun: in the upper half.
    now: AtomicU64,
    /// Where the program called it; null before the first.
    called_at: AtomicPtr<Location<'static>>,
    /// The [life](Runtime::life) in which the team was split, whose finalize it does not
    /// outlive; `None` for those that exist in each.
    life: Option<u32>,
}

/// The teams that always exist, and what is left for others. A process is in one job, so there is one.
#[derive(Debug)]
struct Teams {
    world: Team,
    shared: Team,
    /// Slots in which this PE has no team.
    free: slots::Free,
}

static TEAMS: OnceLock<Teams> = OnceLock::new();

/// # Panics
/// Before init.
#[inline]
#[track_caller]
fn teams() -> &'static Teams {
    let _initialised = rt();
    TEAMS.get().expect("init makes the teams that always exist")
}

/// The slots in which this PE has no team.
#[track_caller]
pub(crate) fn free_slots() -> &'static slots::Free {
    &teams().free
}

/// Only the teams that always exist are there from now on, at the beginning of a life of PE `me`. Sends
/// nothing, and does nothing that grows with the job.
pub(crate) fn begin(node: &NodeView, me: usize) {
    let teams = TEAMS.get_or_init(|| {
        let local = node.local_of()[me] as usize;
        let team = |name, slot, members, my_pe, mapping| {
            Team::new(name, slot, members, my_pe, mapping, node)
        };
        let everybody = Members::all(node.n_pes());
        let neighbours = Members::listed(node.ranks());
        let (world, shared) = (
            Mapping::of_world(node, local),
            Mapping::of_node(node, local),
        );
        Teams {
            world: team(Name::World, slots::WORLD, everybody, me, world),
            shared: team(Name::Shared, slots::SHARED, neighbours, local, shared),
            free: slots::Free::new(),
        }
    });
    teams.free.renew();
}

/// The barrier of a slot in the segment that begins at `segment`.
fn barrier_at(segment: *mut u8, slot: usize) -> &'static NodeBarrier {
    // SAFETY: the runtime's part of a segment holds a barrier there, aligned to a page, in a mapping
    // that lives until the process ends. It consists of atomics, and zeroed memory is a barrier.
    unsafe {
        &*segment
            .add(slots::offset(slot) + slots::BARRIER)
            .cast::<NodeBarrier>()
    }
}

impl Team {
    /// This PE's view of a team that is being split from another, if it is a member.
    pub(crate) fn split(rt: &Runtime, members: Members, slot: usize) -> Option<Self> {
        let my_pe = members.rank_of(rt.me)?;
        let tables = mapping::Tables {
            n_nodes: rt.node.n_nodes(),
            node_of: rt.nodes.node_of,
            local_of: rt.nodes.local_of,
            ranks: rt.node.ranks(),
        };
        let mapping = Mapping::of(&members, rt.me, tables);
        Some(Self {
            life: Some(rt.life()),
            ..Self::new(Name::Split, slot, members, my_pe, mapping, &rt.node)
        })
    }

    fn new(
        name: Name,
        slot: usize,
        members: Members,
        my_pe: usize,
        mapping: Mapping,
        node: &NodeView,
    ) -> Self {
        Self {
            name,
            slot,
            members,
            my_pe,
            barrier: barrier_at(node.segment(mapping.local(0)), slot),
            polls: node.spins() > 0,
            mapping,
            meeting: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            alike: AtomicBool::new(false),
            now: AtomicU64::new(0),
            called_at: AtomicPtr::new(std::ptr::null_mut()),
            life: None,
        }
    }

    /// All PEs of the job.
    ///
    /// # Panics
    /// Before init.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `SHMEM_TEAM_WORLD`.
    #[track_caller]
    #[must_use]
    pub fn world() -> &'static Team {
        &teams().world
    }

    /// The PEs that share memory with this one: those of its node, in the order of their numbers.
    ///
    /// # Panics
    /// Before init.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `SHMEM_TEAM_SHARED`.
    #[track_caller]
    #[must_use]
    pub fn shared() -> &'static Team {
        &teams().shared
    }

    /// Who is in the team.
    #[inline]
    #[must_use]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Number of this PE in the team.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_my_pe`.
    #[inline]
    #[must_use]
    pub fn my_pe(&self) -> usize {
        self.my_pe
    }

    /// Number of members.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_n_pes`.
    #[inline]
    #[must_use]
    pub fn n_pes(&self) -> usize {
        self.members.len()
    }

    /// The number that PE `pe` of this team has in the team `to`; `None` if there is no such PE in
    /// this team, or it is no member of the other.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_translate_pe`.
    #[inline]
    #[must_use]
    pub fn translate(&self, pe: usize, to: &Team) -> Option<usize> {
        to.members.rank_of(self.members.world_pe(pe)?)
    }

    /// The number in the world team of PE `pe` of this team.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn world_pe(&self, pe: usize) -> usize {
        match self.members.world_pe(pe) {
            Some(pe) => pe,
            None => self.no_such_pe(pe),
        }
    }

    /// Where this PE can load and store the copy of an array that PE `pe` of this team has: its own, or
    /// that of a PE of the same node. `None` if there is no such PE in the team, too.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_ptr`.
    #[inline]
    #[track_caller]
    #[must_use]
    pub fn ptr<T: Datum>(&self, array: SymSlice<T>, pe: usize) -> Option<*mut T> {
        array.ptr(self.members.world_pe(pe)?)
    }

    /// Whether this is a team that [`destroy`](Self::destroy) is not for: the world or the shared one.
    #[must_use]
    pub fn is_predefined(&self) -> bool {
        self.name != Name::Split
    }

    /// Whether all PEs are in it because it is the world team.
    #[inline]
    pub(crate) fn is_world(&self) -> bool {
        self.slot == slots::WORLD
    }

    /// Whether all members are known to have the static data of this PE.
    pub(crate) fn shares_statics(&self) -> bool {
        self.alike.load(Ordering::Relaxed)
    }

    /// Notes that they do.
    pub(crate) fn note_shared_statics(&self) {
        self.alike.store(true, Ordering::Relaxed);
    }

    /// Notes that this PE begins a collective; gives how many of this team it has begun with that. One thread of
    /// a PE does at a time.
    #[inline]
    pub(crate) fn begin(&self, call: Collective, at: &'static Location<'static>) -> u32 {
        let at = std::ptr::from_ref(at).cast_mut();
        self.called_at.store(at, Ordering::Relaxed);
        let number = (self.now.load(Ordering::Relaxed) >> 32) as u32;
        let number = number.wrapping_add(1);
        let now = u64::from(number) << 32 | u64::from(call as u8);
        self.now.store(now, Ordering::Relaxed);
        number
    }

    /// What tells a collective of this team, the `number`th, from others of the job.
    #[cold]
    pub(crate) fn collective_number(&self, number: u32) -> usize {
        let first = self.members.world_pe(0).unwrap_or_default();
        recording::collective_number(self.slot as u8, first as u32, number) as usize
    }

    /// Where the program called the collective that this PE is in, or was in last.
    pub(crate) fn called(&self) -> Called {
        let at = self.called_at.load(Ordering::Relaxed);
        // SAFETY: null, or of a reference that lives for ever, which nobody writes through.
        unsafe { at.as_ref() }.filter(|_| fault::places_are_the_programs())
    }

    /// Which collective that is, how many this PE has begun, and where the program called it.
    pub(crate) fn begun(&self) -> (Collective, u32, Place) {
        let at = self.called();
        let now = self.now.load(Ordering::Relaxed);
        let call = Collective::from_number(now as u8).unwrap_or(Collective::Sync);
        let place = at.map_or(Place::NOWHERE, |at| Place::of(at));
        (call, (now >> 32) as u32, place)
    }

    /// What the team is, as others are told of it.
    pub(crate) fn told(&self) -> waiting::Team {
        let kind = match self.name {
            Name::World => TeamKind::World,
            Name::Shared => TeamKind::Shared,
            Name::Split => TeamKind::Split,
        };
        self.members.told(kind, self.slot)
    }

    #[inline]
    pub(crate) fn mapping(&self) -> &Mapping {
        &self.mapping
    }

    pub(crate) fn meeting_point(&self) -> &'static NodeBarrier {
        self.barrier
    }

    #[inline]
    pub(crate) fn polls(&self) -> bool {
        self.polls
    }

    /// Number of the team's slot.
    pub(crate) fn slot_number(&self) -> usize {
        self.slot
    }

    /// Offset in every member's segment of what lies `at` bytes into the team's slot.
    #[inline]
    pub(crate) fn slot(&self, at: usize) -> usize {
        slots::offset(self.slot) + at
    }

    #[cold]
    #[track_caller]
    fn no_such_pe(&self, pe: usize) -> ! {
        panic!(
            "PE {pe} does not exist in {self}, which has PEs 0 to {}",
            self.n_pes() - 1
        )
    }
}

/// Where this PE can load and store the copy of what lies at `sym` that PE `pe` of a team has; `None`
/// if that is on another node or does not exist.
///
/// # Panics
/// Before init, or if `sym` lies outside the segment.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_team_ptr`.
#[inline]
#[track_caller]
pub fn team_ptr(team: &Team, sym: SymAddr, pe: usize) -> Option<*mut u8> {
    address::ptr(sym, team.members.world_pe(pe)?)
}

/// For messages: which team, and of whom.
impl std::fmt::Display for Team {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.name {
            Name::World => f.write_str("the world team"),
            Name::Shared => write!(f, "the shared team of {}", self.members),
            Name::Split => write!(f, "the team of {}", self.members),
        }
    }
}
