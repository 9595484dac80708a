//! `PMIX_Ring` ("PMI Extensions for Scalable MPI Startup", 2014): every PE learns its place in a ring
//! of all PEs and the values of its two neighbours, which is all that it needs to set up connections
//! hop by hop.
//!
//! A scan over the tree: each agent tells its parent how many PEs are below it and the two values at
//! the ends of its piece of the ring, and is told where its piece begins and what lies on both
//! sides of it. So a link carries two values up and two down, however large the job is. The ring
//! goes through the PEs of an agent's own node, then through its children in their order; where
//! ranks are placed in blocks, that is the order of ranks.

use std::sync::Arc;

use super::{LinkName, NodeServer, Output, TreeError, TreeLink, WaitKind, Waiter};
use crate::wire::Reply;
use crate::wire::tree::{Body, Direction, Message, RingPart};

/// The ends of a piece of the ring.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Piece {
    /// Number of PEs.
    count: u32,
    /// The left value of the first, the right value of the last.
    left: Vec<u8>,
    right: Vec<u8>,
}

/// What an agent knows of the ring: the pieces of its PEs, then those of its children.
#[derive(Debug, Default)]
pub(super) struct Pieces {
    locals: Vec<Option<Piece>>,
    children: Vec<Option<Piece>>,
}

/// Where a piece stands.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Standing {
    /// Ring rank of its first PE.
    pub(super) first: u32,
    /// Number of PEs of the ring.
    pub(super) size: u32,
    /// What lies to the left of its first PE, and to the right of its last.
    pub(super) left: Vec<u8>,
    pub(super) right: Vec<u8>,
}

impl From<RingPart<'_>> for Standing {
    fn from(part: RingPart<'_>) -> Self {
        Self {
            first: part.first,
            size: part.count,
            left: part.left.to_vec(),
            right: part.right.to_vec(),
        }
    }
}

impl Standing {
    pub(super) fn part(&self) -> RingPart<'_> {
        RingPart {
            first: self.first,
            count: self.size,
            left: &self.left,
            right: &self.right,
        }
    }
}

fn put(list: &mut Vec<Option<Piece>>, at: usize, piece: Piece) {
    if list.len() <= at {
        list.resize(at + 1, None);
    }
    list[at] = Some(piece);
}

impl Pieces {
    /// A PE of the node joins.
    pub(super) fn add_local(&mut self, local: usize, left: Vec<u8>, right: Vec<u8>) {
        let count = 1;
        put(&mut self.locals, local, Piece { count, left, right });
    }

    /// A child reports.
    pub(super) fn add_child(&mut self, child: usize, part: RingPart<'_>) {
        let piece = Piece {
            count: part.count,
            left: part.left.to_vec(),
            right: part.right.to_vec(),
        };
        put(&mut self.children, child, piece);
    }

    fn all(&self) -> impl DoubleEndedIterator<Item = &Piece> {
        self.locals.iter().chain(&self.children).flatten()
    }

    /// The ends of the piece that all of them make; `None` if there are none.
    fn ends(&self) -> Option<RingPart<'_>> {
        let (first, last) = (self.all().next()?, self.all().next_back()?);
        Some(RingPart {
            first: 0,
            count: self.all().map(|p| p.count).fold(0, u32::saturating_add),
            left: &first.left,
            right: &last.right,
        })
    }

    /// The message for the parent.
    pub(super) fn up(&self, request: u64) -> Option<Vec<u8>> {
        let message = Message {
            direction: Direction::Up,
            request,
            body: Body::Ring(self.ends()?),
        };
        // Two values are far below the limit.
        message.encode().ok()
    }

    /// Where the piece stands that is the whole ring.
    fn closed(&self) -> Option<Standing> {
        let ends = self.ends()?;
        Some(Standing {
            first: 0,
            size: ends.count,
            left: ends.right.to_vec(),
            right: ends.left.to_vec(),
        })
    }

    /// Where each PE of the node and each child stands, when all together stand at `place`.
    pub(super) fn places(
        &self,
        place: &Standing,
    ) -> (Vec<Option<Standing>>, Vec<Option<Standing>>) {
        let lists = [&self.locals, &self.children];
        let mut first = place.first;
        let mut left = &place.left;
        let mut next = self.all().skip(1);
        let [locals, children] = lists.map(|list| {
            let mut places = Vec::with_capacity(list.len());
            for piece in list {
                places.push(piece.as_ref().map(|piece| {
                    let right = next.next().map_or(&place.right, |next| &next.left);
                    let stands = Standing {
                        first,
                        size: place.size,
                        left: left.clone(),
                        right: right.clone(),
                    };
                    first = first.saturating_add(piece.count);
                    left = &piece.right;
                    stands
                }));
            }
            places
        });
        (locals, children)
    }
}

impl NodeServer {
    /// The parent tells where the PEs below stand in a ring.
    pub(super) fn ring_result(&mut self, request: u64, place: &Standing) -> Result<(), TreeError> {
        match self.operations.take_ring() {
            Some((pieces, waiters)) => {
                self.settle_ring(request, &pieces, place, waiters);
                Ok(())
            }
            None => Err(TreeError::OutOfStep {
                link: LinkName(TreeLink::Parent),
                request,
                expected: "the result of what all below have joined, which is no ring".to_owned(),
            }),
        }
    }

    /// All PEs of the job have joined a ring.
    pub(super) fn close_ring(&mut self, request: u64, pieces: &Pieces, waiters: Vec<Waiter>) {
        // A ring begins with its first piece.
        if let Some(place) = pieces.closed() {
            self.settle_ring(request, pieces, &place, waiters);
        }
    }

    /// Tells children and PEs where they stand in a ring. Children without PEs are told, too, so
    /// that they count on.
    fn settle_ring(
        &mut self,
        request: u64,
        pieces: &Pieces,
        place: &Standing,
        waiters: Vec<Waiter>,
    ) {
        let (locals, children) = pieces.places(place);
        for child in 0..self.children.len() {
            let place = children
                .get(child)
                .and_then(Option::as_ref)
                .unwrap_or(place);
            let message = Message {
                direction: Direction::Down,
                request,
                body: Body::Ring(place.part()),
            };
            // Two values are far below the limit of a message.
            if let Ok(bytes) = message.encode() {
                let bytes = Arc::new(bytes);
                self.outbox.push(Output::ToChild { child, bytes });
            }
        }
        let (neighbours, others): (Vec<_>, Vec<_>) = waiters
            .into_iter()
            .partition(|waiter| waiter.kind == WaitKind::Ring);
        self.finish(request, others);
        for waiter in neighbours {
            if let Some(Some(place)) = locals.get(waiter.local) {
                let reply = Reply::Ring {
                    rank: place.first,
                    size: Some(place.size),
                    left: place.left[..].into(),
                    right: place.right[..].into(),
                };
                self.tell(&waiter, reply);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_pe_is_its_own_neighbour() {
        let mut pieces = Pieces::default();
        pieces.add_local(0, b"l".to_vec(), b"r".to_vec());
        let closed = pieces.closed().unwrap();
        let (locals, children) = pieces.places(&closed);
        let place = locals[0].as_ref().unwrap();
        assert_eq!((place.first, place.size), (0, 1));
        assert_eq!((&place.left[..], &place.right[..]), (&b"r"[..], &b"l"[..]));
        assert_eq!(children, []);
    }

    #[test]
    fn pieces_are_chained() {
        let mut pieces = Pieces::default();
        // They come in any order; child 0 has no PEs.
        let part = RingPart {
            first: 0,
            count: 3,
            left: b"c-left",
            right: b"c-right",
        };
        pieces.add_child(1, part);
        pieces.add_local(1, b"b".to_vec(), b"B".to_vec());
        pieces.add_local(0, b"a".to_vec(), b"A".to_vec());
        let ends = pieces.ends().unwrap();
        assert_eq!(
            (ends.count, ends.left, ends.right),
            (5, &b"a"[..], &b"c-right"[..])
        );
        let (left, right) = (b"before".to_vec(), b"behind".to_vec());
        let (first, size) = (10, 20);
        let place = Standing {
            first,
            size,
            left,
            right,
        };
        let (locals, children) = pieces.places(&place);
        let told = |place: &Option<Standing>| {
            let place = place.as_ref().unwrap();
            assert_eq!(place.size, 20);
            let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
            (place.first, text(&place.left), text(&place.right))
        };
        let expected = |first, left: &str, right: &str| (first, left.to_owned(), right.to_owned());
        assert_eq!(told(&locals[0]), expected(10, "before", "b"));
        assert_eq!(told(&locals[1]), expected(11, "A", "c-left"));
        assert_eq!(children[0], None);
        assert_eq!(told(&children[1]), expected(12, "B", "behind"));
    }
}
