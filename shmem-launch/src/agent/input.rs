//! Standard input on its way down: which subtrees have PEs that get it, and how fast it may come.
//!
//! Whoever gets input says how much of it was taken; an agent passes on how much all have taken, so
//! that nobody has to store more than [`STDIN_WINDOW`](crate::frame::STDIN_WINDOW) bytes and the
//! slowest decides. Who takes no more says 0, and is waited for no longer.

/// Where input goes from an agent.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InputRoute {
    /// Local numbers of the PEs that get it.
    pub here: std::ops::Range<u32>,
    /// The children with PEs below them that get it.
    pub children: Vec<usize>,
}

#[derive(Debug, Default)]
struct Taker {
    taken: u64,
    ended: bool,
}

/// All that take input from an agent: its own PEs as one, and children.
#[derive(Debug)]
pub(super) struct Input {
    /// `None` for the agent's own PEs.
    takers: Vec<(Option<usize>, Taker)>,
    reported: u64,
    end_reported: bool,
}

impl Input {
    pub(super) fn new(route: &InputRoute) -> Self {
        let own = (!route.here.is_empty()).then_some(None);
        let children = route.children.iter().map(|&child| Some(child));
        Self {
            takers: own
                .into_iter()
                .chain(children)
                .map(|who| (who, Taker::default()))
                .collect(),
            reported: 0,
            end_reported: false,
        }
    }

    /// The children to which it is passed on.
    pub(super) fn children(&self) -> impl Iterator<Item = usize> + '_ {
        let left = self.takers.iter().filter(|(_, taker)| !taker.ended);
        left.filter_map(|(who, _)| *who)
    }

    /// Whether PEs of this node get it.
    pub(super) fn is_for_own(&self) -> bool {
        self.takers.iter().any(|(who, _)| who.is_none())
    }

    /// Somebody has taken so many bytes; 0 if nobody there takes any more. Gives what is to be said
    /// to the parent.
    #[must_use]
    pub(super) fn taken(&mut self, who: Option<usize>, n: u32) -> Option<u32> {
        for (_, taker) in self.takers.iter_mut().filter(|(of, _)| *of == who) {
            taker.taken += u64::from(n);
            taker.ended |= n == 0;
        }
        let left = self.takers.iter().filter(|(_, taker)| !taker.ended);
        match left.map(|(_, taker)| taker.taken).min() {
            Some(all) => {
                let n = all.saturating_sub(self.reported) as u32;
                self.reported += u64::from(n);
                (n > 0).then_some(n)
            }
            None if self.takers.is_empty() => None,
            None => (!std::mem::replace(&mut self.end_reported, true)).then_some(0),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_slowest_decides_until_it_takes_no_more() {
        let mut input = Input::new(&InputRoute {
            here: 0..2,
            children: vec![1, 3],
        });
        assert!(input.is_for_own() && input.children().eq([1, 3]));
        assert_eq!(input.taken(None, 10), None);
        assert_eq!(input.taken(Some(1), 4), None);
        assert_eq!(input.taken(Some(3), 7), Some(4));
        assert_eq!(input.taken(Some(1), 1), Some(1));
        assert_eq!(input.taken(Some(1), 0), Some(2), "no longer waited for");
        assert!(input.children().eq([3]));
        assert_eq!(input.taken(Some(3), 0), Some(3));
        assert_eq!(input.taken(Some(2), 9), None, "who gets nothing");
        assert_eq!(input.taken(None, 0), Some(0));
        assert_eq!(input.taken(None, 0), None);
    }
}
