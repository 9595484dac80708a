//! What a member says of the collective that it calls, to be compared with what the others say.
//!
//! An announcement is plain words and bytes without pointers, as it lies in the memory of others and
//! goes from node to node. What has to be alike are its [`Facts`]; the rest is there to be told.

use std::any::type_name;
use std::cell::Cell;
use std::fmt;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::panic::Location;

use shmem_node::text::beginning;
use shmem_node::waiting::{Collective, Place};

use super::combine::Combine;
use crate::fault;
use crate::heap::address::SymAddr;
use crate::rma::Blocks;
use crate::runtime::try_rt;

/// What all members have to say alike.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Facts {
    /// Number of the [`Collective`].
    call: u64,
    /// What one member gives, or what is allocated.
    bytes: u64,
    /// Stands for the types of elements and operation.
    types: u64,
    /// What else belongs to the call: see those who set it.
    numbers: [u64; 4],
    /// Offsets of destination and source, and one; none has zero.
    arrays: [u64; 2],
}

/// The beginning of a name, or nothing.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Name([u8; 32]);

impl Name {
    fn new(text: &str) -> Self {
        let mut name = Self::default();
        let text = beginning(text, name.0.len()).as_bytes();
        name.0[..text.len()].copy_from_slice(text);
        name
    }

    fn is_empty(&self) -> bool {
        self.0[0] == 0
    }
}

/// The name of a type without the paths to it and to those inside it. A program may be several, which have the same
/// type from different crates.
fn short(path: &str) -> String {
    let in_path = |c: char| c.is_alphanumeric() || "_:{}".contains(c);
    let mut text = String::new();
    let mut rest = path;
    while let Some(next) = rest.chars().next() {
        let end = match in_path(next) {
            true => rest.find(|c| !in_path(c)).unwrap_or(rest.len()),
            false => next.len_utf8(),
        };
        let (word, others) = rest.split_at(end);
        text += word.rsplit("::").next().unwrap_or(word);
        rest = others;
    }
    text
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let len = self.0.iter().position(|&byte| byte == 0);
        f.write_str(&String::from_utf8_lossy(
            &self.0[..len.unwrap_or(self.0.len())],
        ))
    }
}

/// What a member calls. Any bytes are one.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Announcement {
    facts: Facts,
    /// Elements of so many bytes together, if their type is known.
    count: u64,
    element: Name,
    op: Name,
    /// What the program called, if that says more than the place.
    routine: Name,
    place: Place,
}

/// What a closure is called, whichever it is.
const CLOSURE: &str = "{{closure}}";

thread_local! {
    /// See [`named`].
    static ROUTINE: Cell<Name> = const { Cell::new(Name([0; 32])) };
}

/// Says by which name the program calls the collective that comes next, for messages: where the place of the
/// call is not known, as in C. Does nothing unless PEs compare what they call (`SHMEM_CHECK`).
#[inline]
pub fn named(routine: &str) {
    if try_rt().is_some_and(|rt| rt.checks) {
        ROUTINE.set(Name::new(routine));
    }
}

impl Announcement {
    pub(super) fn new(call: Collective, at: &Location<'_>) -> Self {
        let routine = ROUTINE.take();
        Self {
            facts: Facts {
                call: call as u64,
                ..Facts::default()
            },
            count: 0,
            element: Name::default(),
            op: Name::default(),
            routine,
            place: match routine.is_empty() {
                true => fault::place_in_program(at),
                false => Place::NOWHERE,
            },
        }
    }

    /// So many bytes of each member.
    pub(crate) fn bytes(mut self, n: usize) -> Self {
        self.facts.bytes = n as u64;
        self
    }

    /// So many elements of each member.
    pub(crate) fn elements<T>(mut self, n: usize) -> Self {
        self.count = n as u64;
        self.of::<T>().bytes(n.saturating_mul(size_of::<T>()))
    }

    /// Elements of this type.
    pub(crate) fn of<T>(mut self) -> Self {
        let name = short(type_name::<T>());
        self.element = Name::new(&name);
        self.add_type(&name)
    }

    /// So many elements of each member, which are combined.
    pub(super) fn combined(mut self, n: usize, size: usize, combine: Combine) -> Self {
        let [element, op] = combine.names().map(short);
        self.count = n as u64;
        (self.element, self.op) = (Name::new(&element), Name::new(&op));
        self = self.add_type(&element).bytes(n.saturating_mul(size));
        // All closures have one name, and PEs may give the same one from different places.
        match op.contains(CLOSURE) {
            true => self,
            false => self.add_type(&op),
        }
    }

    fn add_type(mut self, name: &str) -> Self {
        let mut hasher = DefaultHasher::new();
        (self.facts.types, name).hash(&mut hasher);
        self.facts.types = hasher.finish();
        self
    }

    /// Blocks for every member.
    pub(super) fn blocks(mut self, blocks: Blocks) -> Self {
        self.facts.numbers =
            [blocks.bytes, blocks.dest_stride, blocks.source_stride, 0].map(|number| number as u64);
        self.bytes(blocks.count.saturating_mul(blocks.bytes))
    }

    /// With these numbers: the root; the destination of a collect, whose lengths differ; the alignment of a block, or its offset; whether a scan is exclusive; or
    /// which members a new team has.
    pub(crate) fn with<const N: usize>(mut self, numbers: [usize; N]) -> Self {
        for (to, number) in self.facts.numbers.iter_mut().zip(numbers) {
            *to = number as u64;
        }
        self
    }

    /// Into this array, if anything goes there.
    pub(super) fn dest(mut self, dest: SymAddr) -> Self {
        self.facts.arrays[0] = self.array(dest);
        self
    }

    /// From this array, if anything comes from there.
    pub(super) fn source(mut self, source: SymAddr) -> Self {
        self.facts.arrays[1] = self.array(source);
        self
    }

    fn array(&self, at: SymAddr) -> u64 {
        match self.facts.bytes {
            0 => 0,
            _ => 1 + at.offset() as u64,
        }
    }

    /// Whether all is alike that has to be.
    pub(super) fn agrees(&self, other: &Self) -> bool {
        self.facts == other.facts
    }

    /// In words, which follow "in": with all that tells it from another one. Of the world team, or of another.
    pub(super) fn beside(&self, other: &Self, world: bool) -> impl fmt::Display {
        let (facts, others) = (&self.facts, &other.facts);
        let call = u8::try_from(facts.call)
            .ok()
            .and_then(Collective::from_number);
        let mut text = match call {
            _ if !self.routine.is_empty() => self.routine.to_string(),
            None => "no collective".to_owned(),
            Some(call @ (Collective::Barrier | Collective::Sync)) if world => {
                format!("{}_all", call.text())
            }
            Some(Collective::Scan) if facts.numbers[0] == 0 => "an inclusive scan".to_owned(),
            Some(Collective::Scan) => "an exclusive scan".to_owned(),
            Some(call) => call.phrase(),
        };
        let [first, second, third, fourth] = facts.numbers;
        let same_call = facts.call == others.call;
        let numbers_differ = same_call && facts.numbers != others.numbers;
        text += &match call {
            Some(Collective::Alloc) if numbers_differ => format!(" of {self}, aligned to {first}"),
            Some(Collective::Broadcast | Collective::Scatter) if facts.bytes == 0 => {
                format!(" of {} from PE {first}", self.element)
            }
            Some(Collective::Broadcast | Collective::Scatter) => {
                format!(" of {self} from PE {first}")
            }
            Some(Collective::Gather) if facts.bytes == 0 => {
                format!(" of {} to PE {first}", self.element)
            }
            Some(Collective::Gather) => format!(" of {self} to PE {first}"),
            Some(Collective::Alltoall) if numbers_differ => format!(
                " of blocks of {self}, in pieces of {first} bytes that are {second} bytes apart in dest and \
                 {third} in source"
            ),
            Some(Collective::Alltoall) => format!(" of blocks of {self}"),
            Some(Collective::Reduce) if self.op == Name::new(CLOSURE) => {
                format!(" of {self} by a closure")
            }
            Some(Collective::Reduce) if !self.op.is_empty() => format!(" of {self} by {}", self.op),
            Some(Collective::Realloc) => format!(" to {self} of the block at offset {first:#x}"),
            Some(Collective::Free) => format!(" of the block at offset {first:#x}"),
            Some(Collective::Split) if fourth == 0 => format!(
                " of {} members from {} on, {} apart",
                third.cast_signed(),
                first.cast_signed(),
                second.cast_signed()
            ),
            Some(Collective::Split) => format!(" into rows of {first}"),
            Some(Collective::Collect) if numbers_differ => {
                format!(" of {} into the array at offset {first:#x}", self.element)
            }
            Some(Collective::Collect) if !self.element.is_empty() => {
                format!(" of {}", self.element)
            }
            Some(Collective::AllGatherParts) => format!(" of {}", self.element),
            Some(
                Collective::Barrier
                | Collective::Sync
                | Collective::Collect
                | Collective::Destroy
                | Collective::Finalize,
            )
            | None => String::new(),
            Some(_) => format!(" of {self}"),
        };
        for (word, i) in [("into", 0), ("from", 1)] {
            if same_call && facts.arrays[i] != others.arrays[i] {
                let at = facts.arrays[i].saturating_sub(1);
                text += &format!(" {word} the array at offset {at:#x}");
            }
        }
        if !self.place.is_nowhere() {
            text += &format!(" at {}", self.place);
        }
        text
    }
}

/// How much it is.
impl fmt::Display for Announcement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let bytes = self.facts.bytes;
        write!(f, "{bytes} {}", if bytes == 1 { "byte" } else { "bytes" })?;
        match (self.element.is_empty(), self.count) {
            (true, _) => Ok(()),
            (false, 0) if bytes > 0 => write!(f, " ({})", self.element),
            (false, count) => write!(f, " ({count} {})", self.element),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::combine::combine;
    use super::super::op::{Max, Sum};
    use super::*;

    fn said(call: Collective) -> Announcement {
        Announcement::new(call, Location::caller())
    }

    /// What both say, without their places.
    #[track_caller]
    fn differ(mine: Announcement, theirs: Announcement) -> [String; 2] {
        assert!(!mine.agrees(&theirs) && !theirs.agrees(&mine));
        assert!(mine.agrees(&mine));
        [(mine, theirs), (theirs, mine)].map(|(said, other)| {
            let text = said.beside(&other, true).to_string();
            let (text, place) = text.split_once(" at shmem-core").expect("a place");
            assert!(place.contains("/announce.rs:"), "{place}");
            text.to_owned()
        })
    }

    #[test]
    fn what_differs_is_told() {
        let sum = |n| said(Collective::Reduce).combined(n, 8, combine::<u64, _>(Sum));
        let max = said(Collective::Reduce).combined(1, 8, combine::<u64, _>(Max));
        let signed = said(Collective::Reduce).combined(1, 8, combine::<i64, _>(Sum));
        let found = differ(sum(2), sum(1));
        assert_eq!(
            found,
            [
                "a reduction of 16 bytes (2 u64) by Sum",
                "a reduction of 8 bytes (1 u64) by Sum"
            ]
        );
        assert_eq!(
            differ(sum(1), max)[1],
            "a reduction of 8 bytes (1 u64) by Max"
        );
        assert_eq!(
            differ(sum(1), signed)[1],
            "a reduction of 8 bytes (1 i64) by Sum"
        );
        let from = |root| said(Collective::Broadcast).elements::<f64>(3).with([root]);
        assert_eq!(
            differ(from(0), from(3))[1],
            "a broadcast of 24 bytes (3 f64) from PE 3"
        );
        let alloc = |align| said(Collective::Alloc).elements::<u8>(1).with([align]);
        assert_eq!(
            differ(alloc(8), said(Collective::Barrier)),
            ["alloc of 1 byte (1 u8)", "barrier_all"]
        );
        assert_eq!(
            differ(alloc(8), alloc(64))[1],
            "alloc of 1 byte (1 u8), aligned to 64"
        );
        let split = |start: isize| said(Collective::Split).with([start as usize, 2, 3, 0]);
        assert_eq!(
            differ(split(-1), said(Collective::Split).with([4, 0, 0, 1])),
            [
                "a split of 3 members from -1 on, 2 apart",
                "a split into rows of 4"
            ]
        );
    }

    #[test]
    fn arrays_are_told_where_they_differ() {
        let from = |at| {
            said(Collective::Fcollect)
                .bytes(8)
                .dest(SymAddr::new(16))
                .source(SymAddr::new(at))
        };
        assert_eq!(
            differ(from(64), from(80))[0],
            "fcollect of 8 bytes from the array at offset 0x40"
        );
        let empty = |at| said(Collective::Fcollect).bytes(0).source(SymAddr::new(at));
        assert!(empty(64).agrees(&empty(80)));
    }

    #[test]
    fn what_has_a_name_is_called_by_it() {
        let named = Announcement {
            routine: Name::new("shmem_malloc"),
            place: Place::NOWHERE,
            ..said(Collective::Alloc).bytes(800)
        };
        let text = named.beside(&said(Collective::Sync), true).to_string();
        assert_eq!(text, "shmem_malloc of 800 bytes");
    }

    #[test]
    fn names_that_are_too_long_are_cut() {
        let text = "ä".repeat(40);
        assert_eq!(Name::new(&text).to_string(), "ä".repeat(16));
    }

    #[test]
    fn paths_are_left_out() {
        for (path, name) in [
            ("u64", "u64"),
            ("a::b::Most", "Most"),
            ("a::Of<b::C, (d::E, u8)>", "Of<C, (E, u8)>"),
            ("[a::Cell; 4]", "[Cell; 4]"),
            ("a::main::{{closure}}", CLOSURE),
        ] {
            assert_eq!(short(path), name);
        }
    }

    /// They may be the same, of programs or functions that call it in different ways.
    #[test]
    fn closures_agree() {
        let max = said(Collective::Reduce).combined(1, 8, combine(|a: u64, b: u64| a.max(b)));
        let min = said(Collective::Reduce).combined(1, 8, combine(|a: u64, b: u64| a.min(b)));
        assert!(max.agrees(&min));
        let sum = said(Collective::Reduce).combined(1, 8, combine::<u64, _>(Sum));
        assert_eq!(
            differ(max, sum)[0],
            "a reduction of 8 bytes (1 u64) by a closure"
        );
    }
}
