//! Teams: sets of PEs that number themselves anew and have collectives of their own.
//!
//! A team costs no message: what a member knows of it are a few numbers ([`Members`]), where its
//! node's members are ([`place`](self)), and a slot in the runtime's part of the segments
//! ([`slots`]) that all members agreed on when the team was split from its parent ([`split`]).

mod members;
mod place;
pub(crate) mod slots;
mod split;

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use shmem_node::barrier::NodeBarrier;
use shmem_node::segment::NodeView;

pub use members::Members;
pub use slots::MAX_TEAMS;

use crate::datum::Datum;
use crate::heap::address::{self, Sym};
use crate::heap::sym::SymSlice;
use crate::runtime::{Runtime, rt};
pub(crate) use place::Place;

/// What a team is created with.
///
/// # Spec
/// OpenSHMEM 1.6, `shmem_team_config_t`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TeamConfig {
    /// How many contexts the program means to have on the team at a time. Nothing is set aside for
    /// them, and no more are refused.
    pub num_contexts: usize,
}

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
/// if let Some(evens) = world.split_strided(0, 2, half, None).unwrap() {
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
    config: TeamConfig,
    place: Place,
    /// Where the members of this node meet.
    barrier: &'static NodeBarrier,
    /// Whether the PEs of this node poll while they wait.
    polls: bool,
    /// Whether a thread is in a collective.
    meeting: AtomicBool,
    /// Which init the team comes from. Only world and shared are taken along into the next, by init, which
    /// publishes the runtime after that.
    era: AtomicU32,
}

/// The era of an init: a team that was split does not outlive its finalize.
fn new_era() -> u32 {
    static ERAS: AtomicU32 = AtomicU32::new(1);
    ERAS.fetch_add(1, Ordering::Relaxed)
}

/// The teams that always exist, and what is left for others.
#[derive(Debug)]
pub(crate) struct Teams {
    pub(crate) world: Team,
    shared: Team,
    /// Slots in which this PE has no team.
    free: slots::Free,
}

impl Teams {
    /// The teams of a PE that begins. Sends nothing, and does nothing that grows with the job.
    pub(crate) fn new(node: &NodeView, me: usize) -> Self {
        let era = new_era();
        let local = node.local_of()[me] as usize;
        let team = |name, slot, members: Members, my_pe, place: Place| Team {
            name,
            slot,
            members,
            my_pe,
            config: TeamConfig::default(),
            barrier: barrier_at(node.segment(place.local(0)), slot),
            polls: node.spins() > 0,
            place,
            meeting: AtomicBool::new(false),
            era: AtomicU32::new(era),
        };
        let everybody = Members::all(node.n_pes());
        let neighbours = Members::listed(node.ranks());
        Self {
            world: team(
                Name::World,
                slots::WORLD,
                everybody,
                me,
                Place::of_world(node, local),
            ),
            shared: team(
                Name::Shared,
                slots::SHARED,
                neighbours,
                local,
                Place::of_node(node, local),
            ),
            free: slots::Free::new(),
        }
    }

    /// Only the teams that always exist are left from now on, in another init.
    pub(crate) fn renew(&self) {
        let era = new_era();
        for team in [&self.world, &self.shared] {
            team.era.store(era, Ordering::Relaxed);
        }
        self.free.renew();
    }
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

/// The thread that is in a collective of a team.
#[derive(Debug)]
pub(crate) struct Guard<'a>(&'a Team);

impl Drop for Guard<'_> {
    fn drop(&mut self) {
        // ORDERING(collective): pairs with `Team::enter`.
        self.0.meeting.store(false, Ordering::Release);
    }
}

impl Team {
    /// All PEs of the job.
    ///
    /// # Panics
    /// Before init.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `SHMEM_TEAM_WORLD`.
    #[track_caller]
    pub fn world() -> &'static Team {
        &rt().teams.world
    }

    /// The PEs that share memory with this one: those of its node, in the order of their numbers.
    ///
    /// # Panics
    /// Before init.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `SHMEM_TEAM_SHARED`.
    #[track_caller]
    pub fn shared() -> &'static Team {
        &rt().teams.shared
    }

    /// Who is in the team.
    #[inline]
    pub fn members(&self) -> &Members {
        &self.members
    }

    /// Number of this PE in the team.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_my_pe`.
    #[inline]
    pub fn my_pe(&self) -> usize {
        self.my_pe
    }

    /// Number of members.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_n_pes`.
    #[inline]
    pub fn n_pes(&self) -> usize {
        self.members.len()
    }

    /// What the team was created with.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_get_config`.
    pub fn config(&self) -> TeamConfig {
        self.config
    }

    /// The number that PE `pe` of this team has in the team `to`; `None` if there is no such PE in
    /// this team, or it is no member of the other.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_translate_pe`.
    #[inline]
    pub fn translate(&self, pe: usize, to: &Team) -> Option<usize> {
        to.members.rank_of(self.members.world_pe(pe)?)
    }

    /// The number in the world team of PE `pe` of this team.
    ///
    /// # Panics
    /// If there is no such PE.
    #[inline]
    #[track_caller]
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
    pub fn ptr<T: Datum>(&self, array: SymSlice<T>, pe: usize) -> Option<*mut T> {
        array.ptr(self.members.world_pe(pe)?)
    }

    /// Whether this is a team that [`destroy`](Self::destroy) is not for: the world or the shared one.
    pub fn is_predefined(&self) -> bool {
        self.name != Name::Split
    }

    pub(crate) fn place(&self) -> &Place {
        &self.place
    }

    pub(crate) fn meeting_point(&self) -> &'static NodeBarrier {
        self.barrier
    }

    #[inline]
    pub(crate) fn polls(&self) -> bool {
        self.polls
    }

    /// Offset in every member's segment of what lies `at` bytes into the team's slot.
    #[inline]
    pub(crate) fn slot(&self, at: usize) -> usize {
        slots::offset(self.slot) + at
    }

    /// Marks this thread as the one that is in a collective of the team.
    ///
    /// Two at once would mix up rounds and, in a leader, write the same buffers. That is a mistake of
    /// the program (OpenSHMEM 1.6, thread support: the program orders the collectives of its
    /// threads), so it has to be found, not obeyed.
    ///
    /// # Panics
    /// If another thread is, or the PE is not initialised, or is again.
    #[inline]
    #[track_caller]
    pub(crate) fn enter(&self) -> (&'static Runtime, Guard<'_>) {
        let rt = rt();
        let era = |team: &Self| team.era.load(Ordering::Relaxed);
        if era(&rt.teams.world) != era(self) {
            self.outlived();
        }
        // ORDERING(collective): a thread sees what the one before it has done in collectives.
        if self.meeting.swap(true, Ordering::Acquire) {
            self.crowded();
        }
        (rt, Guard(self))
    }

    #[cold]
    #[track_caller]
    fn no_such_pe(&self, pe: usize) -> ! {
        panic!(
            "PE {pe} does not exist in {self}, which has PEs 0 to {}",
            self.n_pes() - 1
        )
    }

    #[cold]
    #[track_caller]
    fn outlived(&self) -> ! {
        panic!("{self} ended with the finalize that came after it was made; make it anew")
    }

    #[cold]
    #[track_caller]
    fn crowded(&self) -> ! {
        panic!(
            "two threads of PE {} are in collectives of {self} at once; let one thread call them, \
             lock, or use a team for each",
            self.members.world_pe(self.my_pe).unwrap_or_default()
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
pub fn team_ptr(team: &Team, sym: Sym, pe: usize) -> Option<*mut u8> {
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
