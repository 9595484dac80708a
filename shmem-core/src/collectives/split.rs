//! Making teams and ending them.
//!
//! Whether a split makes sense every member of the parent finds out by itself. The slot they must
//! agree on: a reduction over the parent tells which slots are free on all of its members. Then the
//! new members put their slots in order, and a synchronisation of the parent ends the split, so
//! that nobody sends into a slot before its owner is ready.

use shmem_node::waiting::Collective;

use super::combine;
use super::op::And;
use crate::error::Error;
use crate::heap::address::SymAddr;
use crate::runtime::Runtime;
use crate::team::{Members, Team, free_slots, slots};

/// Looks at what is free until a split gives up, where other threads never stand still. All members
/// count them alike.
const LOOKS: u32 = 1000;

impl Team {
    /// Makes a team of the `size` members from `start` on, `stride` apart (negative: downwards; 0 for
    /// a single member). Gives `None` to members of this team who are not in the new one.
    ///
    /// **Collective** over this team, with the same numbers everywhere. The new team can be used at
    /// once.
    ///
    /// # Errors
    /// On all PEs alike: [`Error::NoSuchTeam`] if the numbers describe no set of different members,
    /// and [`Error::TooManyTeams`] if there is no slot that is free on all members of this team.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_split_strided`.
    #[track_caller]
    pub fn split_strided(
        &self,
        start: isize,
        stride: isize,
        size: isize,
    ) -> Result<Option<Team>, Error> {
        let numbers = [start, stride, size, 0].map(isize::cast_unsigned);
        let (rt, _guard) = self.enter(Collective::Split, |said| said.with(numbers));
        let Some(members) = self.members().strided(start, stride, size) else {
            return Err(Error::NoSuchTeam {
                start,
                stride,
                size,
                of: self.n_pes(),
                called: self.called(),
            });
        };
        let [team] = self.make(rt, [members])?;
        Ok(team)
    }

    /// Lays the members out in rows of `xrange` PEs and makes teams of the rows and of the columns.
    /// Gives this PE's row, in which its number is `my_pe() % xrange`, and its column, in which it is
    /// `my_pe() / xrange`. The last row may be shorter. An `xrange` above the number of members
    /// stands for that.
    ///
    /// **Collective** over this team, with the same `xrange` everywhere.
    ///
    /// # Errors
    /// On all PEs alike: [`Error::NoSuchTeam`] if `xrange` is 0, and [`Error::TooManyTeams`] as for
    /// [`split_strided`](Self::split_strided).
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_split_2d`.
    #[track_caller]
    pub fn split_2d(&self, xrange: usize) -> Result<(Team, Team), Error> {
        let (rt, _guard) = self.enter(Collective::Split, |said| said.with([xrange, 0, 0, 1]));
        let n = self.n_pes();
        let width = xrange.min(n);
        if width == 0 {
            return Err(Error::NoSuchTeam {
                start: 0,
                stride: 1,
                size: 0,
                of: n,
                called: self.called(),
            });
        }
        let (x, y) = (self.my_pe() % width, self.my_pe() / width);
        let part = |start: usize, stride: usize, size: usize| {
            self.members()
                .strided(start as isize, stride as isize, size as isize)
                .expect("rows and columns consist of members")
        };
        let rows = part(y * width, 1, width.min(n - y * width));
        let columns = part(x, width, (n - x).div_ceil(width));
        let [row, column] = self.make(rt, [rows, columns])?;
        let mine = |team: Option<Team>| team.expect("a PE is in its row and in its column");
        Ok((mine(row), mine(column)))
    }

    /// Ends the team and gives back its slot.
    ///
    /// **Collective** over the team.
    ///
    /// # Panics
    /// If it is the world or the shared team.
    ///
    /// # Spec
    /// OpenSHMEM 1.6, `shmem_team_destroy`.
    #[track_caller]
    pub fn destroy(self) {
        assert!(!self.is_predefined(), "{self} cannot be destroyed");
        let (rt, guard) = self.enter(Collective::Destroy, |said| said);
        // Not by lines: a PE that has freed the slot may begin it anew while others still look.
        rt.team_leave(&self);
        free_slots().release(1 << self.slot_number());
        drop(guard);
    }

    /// Makes this PE's part of `N` new teams, in slots that are the same on all their members.
    ///
    /// Threads of a PE may split different teams at the same time and find the same slots free. So a
    /// member claims its slots, and if one comes too late all begin again. And while other threads take
    /// slots and give them back, members that look one after the other may find nothing that is free on
    /// all of them, though there is. So that counts only if nobody has moved between two looks.
    fn make<const N: usize>(
        &self,
        rt: &Runtime,
        parts: [Members; N],
    ) -> Result<[Option<Team>; N], Error> {
        /// Says in a proposal that the look is settled. There is no such slot.
        const SETTLED: u64 = 1 << slots::MAX_TEAMS;
        let free = free_slots();
        let mut before = None;
        let mut looks = 0;
        loop {
            let look = free.look();
            let settled = u64::from(look.is_settled(before)) * SETTLED;
            let agreed = self.agree(rt, look.slots | settled);
            before = Some(look);
            let Some(slots) = slots::lowest::<N>(agreed & !SETTLED) else {
                looks += 1;
                if agreed & SETTLED != 0 || looks == LOOKS {
                    return Err(Error::TooManyTeams {
                        most: slots::MAX_TEAMS,
                        called: self.called(),
                    });
                }
                std::thread::yield_now();
                continue;
            };
            let claim = std::iter::zip(&parts, slots)
                .filter(|(members, _)| members.rank_of(rt.me).is_some())
                .fold(0, |claim, (_, slot)| claim | 1 << slot);
            let claimed = free.claim(claim);
            let mut axis = 0;
            let teams = parts.map(|members| {
                axis += 1;
                claimed
                    .then(|| self.join(rt, members, slots[axis - 1]))
                    .flatten()
            });
            // When all know that nobody was late, all are ready.
            let done = self.agree(rt, u64::from(claimed)) == 1;
            if claimed {
                free.settle(claim, done);
            }
            if done {
                return Ok(teams);
            }
        }
    }

    /// The bits that are set in what every member proposes.
    fn agree(&self, rt: &Runtime, mine: u64) -> u64 {
        let [proposal, agreed] = [slots::PROPOSAL, slots::AGREED].map(|at| self.slot(at));
        rt.set_word(proposal, mine);
        let (to, from) = (SymAddr::new(agreed), SymAddr::new(proposal));
        // SAFETY: two words of the slot that nothing else uses; the function is for 8 bytes.
        unsafe { rt.team_reduce(self, to, from, 1, 8, combine::<u64, _>(And)) };
        rt.word(agreed)
    }

    /// This PE's view of a new team, if it is a member.
    fn join(&self, rt: &Runtime, members: Members, slot: usize) -> Option<Team> {
        let team = Team::split(rt, members, slot)?;
        if team.mapping().leads() && team.mapping().n_nodes() > 1 {
            rt.register(slots::offset(slot)..slots::offset(slot) + slots::SLOT_SIZE);
            rt.reset_links(&team);
        }
        rt.reset_lines(&team);
        Some(team)
    }
}
