//! Exchanges of parts whose lengths only their senders know.
//!
//! Lengths go first, all to all; the receiver says back where each part begins, and then everybody puts
//! its parts there. Two exchanges of a word for each pair cost little beside the puts, of which there is one
//! for each pair, too.

use std::ops::Range;

use shmem_node::recording::Routine;

use crate::allocate::scratch::lend;
use crate::collectives::values::Parts;
use crate::datum::Datum;
use crate::error::Error;
use crate::nonblocking::nbi;
use crate::symmetric::array::SymSlice;
use crate::team::Team;

/// Words that the exchange of lengths takes for each member.
const WORDS: usize = 3;

/// Where a member's parts go, and where those of others come to lie.
struct Plan {
    /// For each member, the element of its destination at which this one's part begins.
    starts: Vec<u64>,
    /// For each member, the elements of the own destination that its part takes.
    incoming: Vec<Range<usize>>,
}

impl Plan {
    fn total(&self) -> usize {
        self.incoming.last().map_or(0, |last| last.end)
    }
}

impl Team {
    /// Tells all members how much this one has for each of them.
    #[track_caller]
    fn plan(&self, lens: impl Iterator<Item = usize>, work: SymSlice<u64>) -> Plan {
        let n = self.n_pes();
        let (own, rest) = work.at(..WORDS * n).split_at(n);
        let (lengths, starts) = rest.split_at(n);
        own.write_from(&lens.map(|len| len as u64).collect::<Vec<_>>());
        self.alltoall(lengths, own, 1);
        let mut end = 0;
        let incoming: Vec<_> = lengths
            .iter()
            .map(|len| {
                let start = end;
                // What is too much finds no room later.
                end = usize::try_from(len).map_or(usize::MAX, |len| end.saturating_add(len));
                start..end
            })
            .collect();
        let begins: Vec<_> = incoming.iter().map(|part| part.start as u64).collect();
        own.write_from(&begins);
        // Nobody writes `lengths` again before this member has come here.
        self.alltoall(starts, own, 1);
        Plan {
            starts: starts.to_vec(),
            incoming,
        }
    }

    /// Puts each part where its receiver wants it; nobody goes on before all have all.
    #[track_caller]
    fn deliver<T: Datum>(&self, dest: SymSlice<T>, parts: &[impl AsRef<[T]>], plan: &Plan) {
        let n = self.n_pes();
        let mut places = Vec::with_capacity(n);
        for (to, part) in parts.iter().enumerate() {
            let (start, len) = (plan.starts[to], part.as_ref().len());
            let Some(place) = dest.elsewhere(start, len) else {
                panic!(
                    "alltoallv_into: the {len} elements for PE {} would begin at element {start} of dest, where no array \
                     reaches: `work` is not the same array on all PEs, or another PE wrote to it meanwhile",
                    self.world_pe(to)
                )
            };
            places.push(place);
        }
        nbi(|ops| {
            // Not all to the same at a time.
            for to in (0..n).map(|step| (self.my_pe() + step) % n) {
                let part = parts[to].as_ref();
                if !part.is_empty() {
                    ops.put(places[to], part, self.world_pe(to));
                }
            }
        });
        self.sync();
    }

    #[track_caller]
    fn check_parts(&self, parts: usize) {
        assert!(
            parts == self.n_pes(),
            "alltoallv: {parts} parts for the {} PEs of {self}: give one for each, perhaps empty",
            self.n_pes()
        );
    }

    /// Sends `parts[i]` to member `i`, and puts what comes from all members one after the other into `dest`, in
    /// order of their numbers. Gives the elements of `dest` that each member's part takes. `dest` may be longer
    /// than what comes. `work` is for the exchange of lengths: three words for each member.
    ///
    /// [`alltoallv`](Self::alltoallv) needs no symmetric memory of the program's.
    ///
    /// **Collective** over the team; what this PE has started on the default context is complete on return.
    ///
    /// # Panics
    /// If there is not a part for each member, `work` is too short, `dest` has no room for what comes, or a part would lie outside
    /// of the heap, because `work` is not the same array on all members or another PE writes to it; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_Alltoallv`.
    #[doc(alias("MPI_Alltoallv"))]
    #[track_caller]
    pub fn alltoallv_into<T: Datum>(
        &self,
        dest: SymSlice<T>,
        parts: &[impl AsRef<[T]>],
        work: SymSlice<u64>,
    ) -> Vec<Range<usize>> {
        self.check_parts(parts.len());
        assert!(
            work.len() >= WORDS * self.n_pes(),
            "alltoallv_into: work has {} words, but needs {WORDS} for each of {} PEs",
            work.len(),
            self.n_pes()
        );
        let _recorded = self.composed(Routine::Alltoallv);
        let plan = self.plan(parts.iter().map(|part| part.as_ref().len()), work);
        assert!(
            plan.total() <= dest.len(),
            "alltoallv_into: dest has {} elements, but {} come",
            dest.len(),
            plan.total()
        );
        // A PE that has too little room does not come here, so nobody writes past an array.
        self.sync();
        self.deliver(dest, parts, &plan);
        plan.incoming
    }

    /// Sends `parts[i]` to member `i`, and gives what comes from all members, in order of their numbers.
    ///
    /// ```
    /// # fn main() -> Result<(), shmem::Error> {
    /// # let world = shmem::init()?;
    /// // Each number to the PE that is responsible for it.
    /// let mut parts = vec![Vec::new(); world.n_pes()];
    /// for number in 0..100u32 {
    ///     parts[number as usize % world.n_pes()].push(number);
    /// }
    /// let inbox = world.alltoallv(&parts)?;
    /// assert!(inbox.iter().all(|&number| number as usize % world.n_pes() == world.my_pe()));
    /// assert!(inbox.parts().all(|from_one| from_one == parts[world.my_pe()]));
    /// # Ok(())
    /// # }
    /// ```
    ///
    /// Takes symmetric memory for its time: as much on every PE as the one needs that receives most, and three
    /// words for each PE. [`alltoallv_into`](Self::alltoallv_into) takes an array of the program instead, and has fewer barriers.
    /// Teams other than the world team have no such memory: there each member in turn hands its parts out to all nodes. That
    /// takes two gatherings for each member, and is meant for few members and short parts.
    ///
    /// **Collective** over the team; in the world team, what this PE has started on the default context is complete on return.
    ///
    /// # Errors
    /// [`Error::HeapExhausted`], on all PEs alike.
    ///
    /// # Panics
    /// If there is not a part for each member; and as [`sync`](Self::sync).
    ///
    /// # Spec
    /// None; MPI has `MPI_Alltoallv`.
    #[doc(alias("MPI_Alltoallv"))]
    #[track_caller]
    pub fn alltoallv<T: Datum>(&self, parts: &[impl AsRef<[T]>]) -> Result<Parts<T>, Error> {
        self.check_parts(parts.len());
        let _recorded = self.composed(Routine::Alltoallv);
        if !self.is_world() {
            return Ok(self.hand_out_in_turn(parts));
        }
        let work = lend::<SymSlice<u64>>(WORDS * self.n_pes())?;
        let plan = self.plan(parts.iter().map(|part| part.as_ref().len()), work.arrays());
        let most = self.max(plan.total());
        let got = match lend::<SymSlice<T>>(most) {
            Ok(inbox) => {
                self.deliver(inbox.arrays(), parts, &plan);
                let ends = plan.incoming.iter().map(|part| part.end).collect();
                let got = Parts::new(inbox.arrays().at(..plan.total()).to_vec(), ends);
                inbox.give_back().map(|()| got)
            }
            Err(e) => Err(e),
        };
        work.give_back()?;
        got
    }

    #[track_caller]
    fn hand_out_in_turn<T: Datum>(&self, parts: &[impl AsRef<[T]>]) -> Parts<T> {
        let (mut all, mut ends) = (Vec::new(), Vec::new());
        for root in 0..self.n_pes() {
            all.extend(self.scatter_parts(parts, root));
            ends.push(all.len());
        }
        Parts::new(all, ends)
    }
}

/// [`Team::alltoallv`] of all PEs.
///
/// **Collective**; what this PE has started on the default context is complete on return.
///
/// # Errors
/// [`Error::HeapExhausted`], on all PEs alike.
///
/// # Panics
/// If there is not a part for each PE.
///
/// # Spec
/// None; MPI has `MPI_Alltoallv`.
#[doc(alias("MPI_Alltoallv"))]
#[track_caller]
pub fn alltoallv<T: Datum>(parts: &[impl AsRef<[T]>]) -> Result<Parts<T>, Error> {
    Team::world().alltoallv(parts)
}
