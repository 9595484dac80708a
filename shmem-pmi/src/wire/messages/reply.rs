//! What is sent for a reply, and how those of other servers are read.

use std::borrow::Cow;

use super::codecs::FactWord;
use super::{Reply, Verb};
use crate::question;
use crate::wire::codec::Codec;
use crate::wire::fields::Fields;
use crate::wire::writer::Writer;
use crate::wire::{Version, WireError, excerpt};

const UNKNOWN_RESULT: &str = "unknown_result";
const SUFFIX: &str = "-response";

impl<'a> Reply<'a> {
    /// The command that is answered, if it is a known one.
    pub fn verb(&self) -> Option<Verb> {
        match self {
            Self::Refused { command, .. } => {
                let named = |version| Verb::named(version, command.as_bytes());
                named(Version::V2).or_else(|| named(Version::V1))
            }
            reply => reply.row(),
        }
    }

    /// The name of the command that is answered.
    pub(crate) fn command(&self) -> &str {
        match self {
            Self::Refused { command, .. } => command,
            Self::Set(_) => "set",
            reply => reply.row().map_or("", Verb::name),
        }
    }

    /// The value of `cmd` with PMI-1.
    pub fn line_name(&self) -> &'static str {
        if let Self::Set(_) = self {
            return "set";
        }
        let name = self.verb().and_then(|verb| verb.names().v1_reply);
        name.unwrap_or(UNKNOWN_RESULT)
    }

    /// The number of the collective operation that it is about, if it tells.
    pub(crate) fn request(&self) -> Option<u64> {
        match self {
            Self::Iallgather(request)
            | Self::Allgather(request)
            | Self::Ifence(request)
            | Self::Wait(request)
            | Self::Data { request, .. } => Some(*request),
            _ => None,
        }
    }

    /// Reads a reply from a line of PMI-1 (without newline).
    ///
    /// Tolerant where servers differ: order of the words, words that it does not know, absent
    /// `rc` and `msg`, `info=fail` for a failure, and all the ways to say that a key is not there.
    ///
    /// # Errors
    ///
    /// The line is malformed, no known reply, or lacks a field.
    pub fn decode_line(line: &'a [u8]) -> Result<Self, WireError> {
        let fields = Fields::of_line(line)?;
        if fields.command() == b"set" {
            return FactWord.read(&fields).map(Self::Set);
        }
        let verb = Verb::answered_by(fields.command());
        let rc = fields.number("rc", "a return code")?.unwrap_or(0);
        let word = |name, value: &[u8]| fields.get(name).is_some_and(|word| **word == *value);
        let absent = word("found", b"FALSE");
        if verb == Some(Verb::Init) || rc == 0 && !absent && !word("info", b"fail") {
            return Self::read(verb.ok_or_else(|| fields.unknown())?, &fields);
        }
        // The message of some servers has blanks in it.
        let message = String::from_utf8_lossy(fields.phrase("msg").unwrap_or_default());
        // Servers have one code for all failures of `get`; that the key is not there is told by
        // words, by a flag, or by saying nothing.
        if verb == Some(Verb::KvsGet)
            && (absent || message.is_empty() || message.contains("not_found"))
        {
            return Ok(Self::KvsGet(None));
        }
        let name = || fields.command_text().into();
        Ok(Self::Refused {
            command: verb.map_or_else(name, |verb| verb.name().into()),
            rc: if rc == 0 { -1 } else { rc },
            message,
        })
    }

    /// Appends the line of PMI-1 to `out`.
    ///
    /// # Errors
    ///
    /// As for [`super::Command::encode_line`], except that the value of [`Reply::KvsGet`] and the port of
    /// [`Reply::NameFound`] may have backslashes. `out` is then unchanged.
    pub fn encode_line(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut w = Writer::line(out, self.line_name());
        let (rc, message) = match self {
            // Their codecs put it elsewhere.
            Self::Init(_) | Self::Maxes(_) | Self::NameFound(_) | Self::Set(_) => (None, ""),
            Self::KvsGet(None) => (Some(-1), "key_not_found"),
            Self::Refused { rc, message, .. } => (Some(*rc), &message[..]),
            Self::NamePublished | Self::NameUnpublished => {
                w.message("info", "ok");
                (Some(0), "success")
            }
            Self::KvsPut | Self::KvsGet(_) => (Some(0), "success"),
            _ => (Some(0), ""),
        };
        if let Some(rc) = rc {
            w.number("rc", rc);
        }
        if !message.is_empty() {
            w.message("msg", message);
        }
        match self {
            Self::Set(fact) => FactWord.write(&mut w, fact),
            Self::Refused { .. } if self.verb() != Some(Verb::KvsGet) => {}
            Self::Refused { .. } | Self::KvsGet(None) => w.message("value", "unknown"),
            reply => reply.write(&mut w),
        }
        w.finish()
    }

    /// Reads a reply from the fields of a body of PMI-2.
    pub(in crate::wire) fn of_body(fields: &Fields<'a>) -> Result<Self, WireError> {
        let unknown = || fields.unknown();
        let command = fields.command().strip_suffix(SUFFIX.as_bytes());
        let command = command.ok_or_else(unknown)?;
        let mut rc = fields.number("rc", "a return code")?.unwrap_or(0);
        let mut message = fields.get("errmsg").map_or(Cow::Borrowed(""), |text| {
            Cow::Owned(String::from_utf8_lossy(text).into_owned())
        });
        let verb = Verb::named(Version::V2, command);
        if rc == 0 && verb == Some(Verb::NameLookup) && fields.flag("found")? == Some(false) {
            (rc, message) = (-1, Cow::Borrowed(question::NO_SUCH_NAME));
        }
        match rc {
            0 => Self::read(verb.ok_or_else(unknown)?, fields),
            rc => Ok(Self::Refused {
                command: Cow::Owned(excerpt(command)),
                rc,
                message,
            }),
        }
    }

    /// Appends the body of PMI-2, with its header, to `out`.
    pub(in crate::wire) fn encode_body(
        &self,
        thread_id: Option<&[u8]>,
        out: &mut Vec<u8>,
    ) -> Result<(), WireError> {
        let mut w = Writer::body(out, self.command(), SUFFIX, thread_id);
        if let Self::Refused { rc, message, .. } = self {
            w.number("rc", *rc);
            if !message.is_empty() {
                w.message("errmsg", message);
            }
        } else {
            w.number("rc", 0);
            self.write(&mut w);
        }
        w.finish()
    }
}
