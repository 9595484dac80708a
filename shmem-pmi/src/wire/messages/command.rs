//! The names of commands, what is true of each, and what is sent for them.

use super::{Command, Names, Verb};
use crate::wire::fields::Fields;
use crate::wire::writer::Writer;
use crate::wire::{Version, WireError, v1};

impl Verb {
    /// Name with PMI-2, or with PMI-1 if PMI-2 has no such command.
    pub fn name(self) -> &'static str {
        let Names { v1, v2, .. } = self.names();
        v2.or(v1).unwrap_or_default()
    }

    /// Whether there is such a command in a version.
    pub fn is_in(self, version: Version) -> bool {
        self.name_in(version).is_some()
    }

    pub(super) fn name_in(self, version: Version) -> Option<&'static str> {
        match version {
            Version::V1 => self.names().v1,
            Version::V2 => self.names().v2,
        }
    }

    /// The command with this name in a version.
    pub(super) fn named(version: Version, name: &[u8]) -> Option<Self> {
        Self::find(name, |verb| verb.name_in(version))
    }

    /// The command whose reply has this name with PMI-1.
    pub(super) fn answered_by(name: &[u8]) -> Option<Self> {
        Self::find(name, |verb| verb.names().v1_reply)
    }

    fn find(name: &[u8], of: impl Fn(Self) -> Option<&'static str>) -> Option<Self> {
        let mut all = Self::ALL.iter().copied();
        all.find(|&verb| of(verb).is_some_and(|known| known.as_bytes() == name))
    }
}

impl<'a> Command<'a> {
    /// The name of its verb.
    pub fn name(&self) -> &'static str {
        self.verb().name()
    }

    /// Without a wildcard: a new command does not compile before this is said of it.
    const fn kind(&self) -> Kind {
        let (extension, collective, withheld) = match self {
            Self::Init(_)
            | Self::InitAck { .. }
            | Self::FullInit { .. }
            | Self::GetMaxes
            | Self::GetAppnum
            | Self::GetUniverseSize
            | Self::JobGetId
            | Self::JobAttr { .. }
            | Self::PutNodeAttr { .. }
            | Self::NodeAttr { wait: false, .. }
            | Self::KvsPut { .. }
            | Self::Finalize
            | Self::Abort { .. }
            | Self::JobConnect { .. }
            | Self::JobDisconnect { .. } => (false, false, false),
            Self::NodeAttr { wait: true, .. }
            | Self::KvsGet { .. }
            | Self::NamePublish { .. }
            | Self::NameLookup { .. }
            | Self::NameUnpublish { .. }
            | Self::Spawn(_) => (false, false, true),
            Self::KvsFence { .. } | Self::Ring { .. } => (false, true, true),
            Self::Iallgather { .. } | Self::Ifence => (true, true, false),
            Self::Allgather { .. } | Self::Data { .. } => (true, true, true),
            Self::Wait { .. } | Self::Receive { .. } => (true, false, true),
            Self::Send { .. } => (true, false, false),
        };
        Kind {
            extension,
            collective,
            withheld,
        }
    }

    /// Whether the command is one of the extensions.
    pub const fn is_extension(&self) -> bool {
        self.kind().extension
    }

    /// Whether all PEs send it in the same order.
    pub const fn is_collective(&self) -> bool {
        self.kind().collective
    }

    /// Whether the server may answer later requests first.
    pub(crate) const fn may_be_withheld(&self) -> bool {
        self.kind().withheld
    }

    /// Reads a command from its fields.
    ///
    /// # Errors
    ///
    /// The command is unknown, or a field is absent or has an impossible value. The message
    /// boundaries are intact: the next message can be read.
    pub fn from_fields(fields: &Fields<'a>) -> Result<Self, WireError> {
        let verb = Verb::named(fields.version(), fields.command());
        // PMI-1 spawns by blocks of lines, and not by a line.
        let verb = verb.filter(|verb| (fields.version(), *verb) != (Version::V1, Verb::Spawn));
        Self::read(verb.ok_or_else(|| fields.unknown())?, fields)
    }

    /// Reads a command from a line of PMI-1 (without newline).
    ///
    /// # Errors
    ///
    /// As [`Fields::of_line`] and [`Command::from_fields`].
    pub fn decode_line(line: &'a [u8]) -> Result<Self, WireError> {
        Self::from_fields(&Fields::of_line(line)?)
    }

    /// Appends the line of PMI-1 to `out`; of a [`Command::Spawn`] the blocks.
    ///
    /// # Errors
    ///
    /// PMI-1 has no such command; a name, key or value is empty or not one word, or the line is longer
    /// than [`v1::MAX_SENT_LINE`]; or as [`v1::encode_spawn`]. `out` is then unchanged.
    pub fn encode_line(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        if let Self::Spawn(request) = self {
            return v1::encode_spawn(request, out);
        }
        let Some(name) = self.verb().names().v1 else {
            let name = self.name().to_owned();
            return Err(WireError::UnknownCommand { name });
        };
        let mut w = Writer::line(out, name);
        self.write(&mut w);
        w.finish()
    }

    /// Appends the body of PMI-2, with its header, to `out`.
    pub(in crate::wire) fn encode_body(
        &self,
        thread_id: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let mut w = Writer::body(out, self.name(), "", thread_id);
        self.write(&mut w);
        w.finish()
    }
}

/// Of a command: whether it is an extension, whether all PEs send it in the same order, and whether the
/// server may answer later requests first.
struct Kind {
    extension: bool,
    collective: bool,
    withheld: bool,
}
