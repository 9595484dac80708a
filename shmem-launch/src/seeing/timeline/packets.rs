//! Perfetto's packets: what of its schema a timeline needs, by the numbers of the fields.
//!
//! The schema is `protos/perfetto/trace` of Perfetto's sources. All packets are of one sequence, whose first brings
//! the names that recur; a name's number is that of its [`Routine`], [`Group`] or [`Note`].

use shmem_node::recording::{Group, Routine};

use super::protobuf::Message;

/// Fields of `Trace` and `TracePacket`.
mod packet {
    pub(super) const PACKET: u64 = 1;
    pub(super) const TIMESTAMP: u64 = 8;
    pub(super) const SEQUENCE_ID: u64 = 10;
    pub(super) const TRACK_EVENT: u64 = 11;
    pub(super) const INTERNED_DATA: u64 = 12;
    pub(super) const SEQUENCE_FLAGS: u64 = 13;
    pub(super) const TRACK_DESCRIPTOR: u64 = 60;
    pub(super) const FIRST_ON_SEQUENCE: u64 = 87;
    /// Flags: names begin, names are needed.
    pub(super) const CLEARED: u64 = 1;
    pub(super) const NEEDED: u64 = 2;
}

/// Fields of `InternedData`, and of each of its entries.
mod interned {
    pub(super) const CATEGORIES: u64 = 1;
    pub(super) const NAMES: u64 = 2;
    pub(super) const ANNOTATIONS: u64 = 3;
    pub(super) const IID: u64 = 1;
    pub(super) const NAME: u64 = 2;
}

/// Fields of `TrackDescriptor`, `ProcessDescriptor`, `ThreadDescriptor` and `CounterDescriptor`.
mod track {
    pub(super) const UUID: u64 = 1;
    pub(super) const NAME: u64 = 2;
    pub(super) const PROCESS: u64 = 3;
    pub(super) const THREAD: u64 = 4;
    pub(super) const PARENT: u64 = 5;
    pub(super) const COUNTER: u64 = 8;
    pub(super) const CHILD_ORDER: u64 = 11;
    pub(super) const RANK: u64 = 12;
    pub(super) const EXPLICIT: u64 = 3;
    pub(super) const PID: u64 = 1;
    pub(super) const PROCESS_NAME: u64 = 6;
    pub(super) const TID: u64 = 2;
    pub(super) const THREAD_NAME: u64 = 5;
    pub(super) const UNIT: u64 = 3;
    pub(super) const COUNT: u64 = 2;
}

/// Fields of `TrackEvent` and `DebugAnnotation`.
mod event {
    pub(super) const CATEGORY_IID: u64 = 3;
    pub(super) const ANNOTATION: u64 = 4;
    pub(super) const TYPE: u64 = 9;
    pub(super) const NAME_IID: u64 = 10;
    pub(super) const TRACK: u64 = 11;
    pub(super) const CATEGORY: u64 = 22;
    pub(super) const NAME: u64 = 23;
    pub(super) const COUNTER_VALUE: u64 = 30;
    pub(super) const FLOW: u64 = 47;
    pub(super) const NOTE_IID: u64 = 1;
    pub(super) const NOTE_VALUE: u64 = 3;
}

/// What kind of event a packet is.
#[derive(Debug, Clone, Copy)]
enum Kind {
    Begin = 1,
    End = 2,
    Instant = 3,
    Counter = 4,
}

macro_rules! notes {
    ($($note:ident, $text:literal;)*) => {
        /// What is told of a call besides its name and its times.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Note { $( #[doc = $text] $note, )* }

        /// Their names.
        const NOTES: &[(Note, &str)] = &[ $( (Note::$note, $text), )* ];
    };
}

notes! {
    Pe, "PE";
    Bytes, "bytes";
    Offset, "offset in the segment";
    Collective, "collective";
    Slot, "slot of the team";
    First, "first PE of the team";
    Open, "queue pairs";
    Last, "last to arrive: PE";
    Waited, "waited for it, ns";
    By, "ended by PE";
    Lost, "calls without room";
}

impl Note {
    /// Its number; 0 is none.
    const fn iid(self) -> u64 {
        self as u64 + 1
    }
}

/// What a slice or an instant is called.
#[derive(Debug, Clone, Copy)]
pub(super) enum Name<'a> {
    /// As the routine, in the category of its group.
    Routine(Routine),
    /// So, in this category.
    Text(&'a str, &'a str),
}

/// A track, by its number.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Track(u64);

/// Numbers of the one sequence.
const SEQUENCE: u64 = 1;

/// A trace that is being written.
pub(super) struct Packets {
    out: Message,
    packet: Message,
    event: Message,
    note: Message,
    tracks: u64,
}

impl Packets {
    /// One with the names that recur.
    pub(super) fn new() -> Self {
        let mut packets = Self {
            out: Message::default(),
            packet: Message::default(),
            event: Message::default(),
            note: Message::default(),
            tracks: 0,
        };
        packets
            .packet
            .number(packet::SEQUENCE_ID, SEQUENCE)
            .number(packet::SEQUENCE_FLAGS, packet::CLEARED)
            .number(packet::FIRST_ON_SEQUENCE, 1)
            .inner(packet::INTERNED_DATA, |names| {
                let mut name = |field, iid: u64, text: &str| {
                    names.inner(field, |entry| {
                        entry.number(interned::IID, iid).text(interned::NAME, text);
                    });
                };
                for &group in Group::ALL {
                    name(interned::CATEGORIES, group as u64, group.text());
                }
                for &routine in Routine::ALL {
                    name(interned::NAMES, routine as u64, routine.text());
                }
                for &(note, text) in NOTES {
                    name(interned::ANNOTATIONS, note.iid(), text);
                }
            });
        packets.push();
        packets
    }

    /// The trace.
    pub(super) fn into_bytes(self) -> Vec<u8> {
        self.out.into_bytes()
    }

    fn push(&mut self) {
        self.out.message(packet::PACKET, &self.packet);
        self.packet.clear();
    }

    fn describe(&mut self, fill: impl FnOnce(&mut Message)) -> Track {
        self.tracks += 1;
        let uuid = self.tracks;
        self.packet.number(packet::SEQUENCE_ID, SEQUENCE).inner(
            packet::TRACK_DESCRIPTOR,
            |track| {
                track.number(track::UUID, uuid);
                fill(track);
            },
        );
        self.push();
        Track(uuid)
    }

    /// A process, whose tracks are in the order of their ranks.
    pub(super) fn process(&mut self, pid: u64, name: &str) -> Track {
        self.describe(|track| {
            track.number(track::CHILD_ORDER, track::EXPLICIT);
            track.inner(track::PROCESS, |process| {
                process
                    .number(track::PID, pid)
                    .text(track::PROCESS_NAME, name);
            });
        })
    }

    /// A thread of a process.
    pub(super) fn thread(&mut self, parent: Track, pid: u64, tid: u64, name: &str) -> Track {
        self.describe(|track| {
            track.number(track::PARENT, parent.0);
            track.inner(track::THREAD, |thread| {
                thread
                    .number(track::PID, pid)
                    .number(track::TID, tid)
                    .text(track::THREAD_NAME, name);
            });
        })
    }

    /// Another track of a process. Those with the same name are shown as one.
    pub(super) fn track(&mut self, parent: Track, rank: u64, name: &str) -> Track {
        self.describe(|track| {
            track
                .number(track::PARENT, parent.0)
                .number(track::RANK, rank)
                .text(track::NAME, name);
        })
    }

    /// A count over time.
    pub(super) fn counter(&mut self, parent: Track, rank: u64, name: &str) -> Track {
        self.describe(|track| {
            track
                .number(track::PARENT, parent.0)
                .number(track::RANK, rank)
                .text(track::NAME, name)
                .inner(track::COUNTER, |counter| {
                    counter.number(track::UNIT, track::COUNT);
                });
        })
    }

    fn event(&mut self, at: u64, track: Track, kind: Kind, fill: impl FnOnce(&mut Message)) {
        self.event
            .number(event::TYPE, kind as u64)
            .number(event::TRACK, track.0);
        fill(&mut self.event);
        self.packet
            .number(packet::TIMESTAMP, at)
            .number(packet::SEQUENCE_ID, SEQUENCE)
            .number(packet::SEQUENCE_FLAGS, packet::NEEDED)
            .message(packet::TRACK_EVENT, &self.event);
        self.event.clear();
        self.push();
    }

    fn named(
        &mut self,
        at: u64,
        track: Track,
        kind: Kind,
        name: Name<'_>,
        notes: &[(Note, u64)],
        flows: &[u64],
    ) {
        let mut scratch = std::mem::take(&mut self.note);
        self.event(at, track, kind, |event| {
            match name {
                Name::Routine(routine) => event
                    .number(event::CATEGORY_IID, routine.group() as u64)
                    .number(event::NAME_IID, routine as u64),
                Name::Text(name, category) => event
                    .text(event::CATEGORY, category)
                    .text(event::NAME, name),
            };
            for &(note, value) in notes {
                scratch
                    .clear()
                    .number(event::NOTE_IID, note.iid())
                    .number(event::NOTE_VALUE, value);
                event.message(event::ANNOTATION, &scratch);
            }
            for &flow in flows {
                event.fixed(event::FLOW, flow);
            }
        });
        self.note = scratch;
    }

    /// A slice begins, from which these arrows go.
    pub(super) fn begin(
        &mut self,
        at: u64,
        track: Track,
        name: Name<'_>,
        notes: &[(Note, u64)],
        flows: &[u64],
    ) {
        self.named(at, track, Kind::Begin, name, notes, flows);
    }

    /// The slice of the track that began last ends, at which this arrow arrives.
    pub(super) fn end(&mut self, at: u64, track: Track, flow: Option<u64>) {
        self.event(at, track, Kind::End, |event| {
            if let Some(flow) = flow {
                event.fixed(event::FLOW, flow);
            }
        });
    }

    /// Something without duration.
    pub(super) fn instant(&mut self, at: u64, track: Track, name: Name<'_>, notes: &[(Note, u64)]) {
        self.named(at, track, Kind::Instant, name, notes, &[]);
    }

    /// A count changes.
    pub(super) fn count(&mut self, at: u64, track: Track, value: u64) {
        self.event(at, track, Kind::Counter, |event| {
            event.number(event::COUNTER_VALUE, value.min(i64::MAX as u64));
        });
    }
}
