//! Codecs of what clients and servers in use do differently, and of values that one message alone has.

use std::borrow::Cow;

use super::{Fact, FullInitReply, Maxes};
use crate::wire::codec::{Codec, Flag, Maybe, Number, Or, Text};
use crate::wire::data::Operation;
use crate::wire::fields::Fields;
use crate::wire::writer::Writer;
use crate::wire::{MAX_VALUE, Version, WireError};

/// The name of the key-value space, which PMI-1 has in each request.
pub(super) struct KvsName;

impl<'a> Codec<'a, Option<Cow<'a, str>>> for KvsName {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<Cow<'a, str>>, WireError> {
        Present(Text("kvsname")).read(fields)
    }

    fn write(&self, w: &mut Writer<'_>, job_id: &Option<Cow<'a, str>>) {
        w.field("kvsname", job_id.as_deref().unwrap_or_default().as_bytes());
    }
}

/// What another version may leave out, and this one has to tell.
pub(super) struct Present<C>(pub(super) C);

impl<'a, T, C: Codec<'a, T>> Codec<'a, Option<T>> for Present<C> {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<T>, WireError> {
        self.0.read(fields).map(Some)
    }

    fn write(&self, w: &mut Writer<'_>, value: &Option<T>) {
        if let Some(value) = value {
            self.0.write(w, value);
        }
    }
}

/// Servers differ in which field they read: with PMI-2 Slurm reads `msg`, current MPICH `message`.
pub(super) struct LastWords;

impl<'a> Codec<'a, Cow<'a, [u8]>> for LastWords {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        let message = |name| match fields.version() {
            Version::V1 => fields.rest(name).map(Cow::Borrowed),
            Version::V2 => fields.get(name).cloned(),
        };
        let message = message("message").or_else(|| message("msg"));
        Ok(message.unwrap_or_default())
    }

    fn write(&self, w: &mut Writer<'_>, message: &Cow<'a, [u8]>) {
        match w.version() {
            _ if message.is_empty() => {}
            Version::V1 => w.message("message", &String::from_utf8_lossy(message)),
            Version::V2 => {
                w.field("msg", message);
                w.field("message", message);
            }
        }
    }
}

/// The last field of a command that could have a list behind it.
pub(super) struct WithoutInfo(pub(super) &'static str);

impl<'a> Codec<'a, Cow<'a, [u8]>> for WithoutInfo {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        fields.need(self.0)
    }

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, [u8]>) {
        w.field(self.0, value);
        w.number("infokeycount", 0);
    }
}

/// A value for a neighbour in a ring.
pub(super) struct RingValue(pub(super) &'static str);

impl<'a> Codec<'a, Cow<'a, [u8]>> for RingValue {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        match fields.need(self.0)? {
            value if value.len() > MAX_VALUE => Err(WireError::TooLong {
                what: "the value of a ring",
                len: value.len(),
                max: MAX_VALUE,
            }),
            value => Ok(value),
        }
    }

    fn write(&self, w: &mut Writer<'_>, value: &Cow<'a, [u8]>) {
        w.field(self.0, value);
    }
}

/// Which operation with data.
pub(super) struct OperationName;

impl<'a> Codec<'a, Operation> for OperationName {
    fn read(&self, fields: &Fields<'a>) -> Result<Operation, WireError> {
        Operation::from_name(&fields.need("op")?)
            .ok_or_else(|| fields.bad("op", "an operation of the NLA layer"))
    }

    fn write(&self, w: &mut Writer<'_>, operation: &Operation) {
        w.field("op", operation.name().as_bytes());
    }
}

/// A fact of the port model.
pub(super) struct FactWord;

impl<'a> Codec<'a, Fact> for FactWord {
    fn read(&self, fields: &Fields<'a>) -> Result<Fact, WireError> {
        Ok(if let Some(size) = fields.number("size", "a number")? {
            Fact::Size(size)
        } else if let Some(rank) = fields.number("rank", "a rank")? {
            Fact::Rank(rank)
        } else if let Some(level) = fields.number("debug", "a number")? {
            Fact::Debug(level)
        } else {
            Fact::Other
        })
    }

    fn write(&self, w: &mut Writer<'_>, fact: &Fact) {
        match *fact {
            Fact::Size(size) => w.number("size", size),
            Fact::Rank(rank) => w.number("rank", rank),
            Fact::Debug(level) => w.number("debug", level),
            Fact::Other => {}
        }
    }
}

/// What `fullinit-response` says.
pub(super) struct Facts;

impl<'a> Codec<'a, FullInitReply<'a>> for Facts {
    fn read(&self, fields: &Fields<'a>) -> Result<FullInitReply<'a>, WireError> {
        Ok(FullInitReply {
            rank: Number("rank", "a rank").read(fields)?,
            size: Number("size", "a number of PEs").read(fields)?,
            appnum: Or(Number("appnum", "a number"), -1).read(fields)?,
            debugged: Flag("debugged").read(fields)?,
            verbose: Flag("pmiverbose").read(fields)?,
            spawner: Maybe(Text("spawner-jobid")).read(fields)?,
            restarts: Or(Number("restarts", "a number"), 0).read(fields)?,
            first_request: Or(Number("first-request", "the number of a request"), 0)
                .read(fields)?,
        })
    }

    fn write(&self, w: &mut Writer<'_>, facts: &FullInitReply<'a>) {
        w.number("pmi-version", 2);
        w.number("pmi-subversion", 0);
        w.number("rank", facts.rank);
        w.number("size", facts.size);
        w.number("appnum", facts.appnum);
        w.flag("debugged", facts.debugged);
        w.flag("pmiverbose", facts.verbose);
        Maybe(Text("spawner-jobid")).write(w, &facts.spawner);
        if facts.restarts > 0 {
            w.number("restarts", facts.restarts);
            w.number("first-request", facts.first_request);
        }
    }
}

/// What `maxes` says.
pub(super) struct Lengths;

impl<'a> Codec<'a, Maxes> for Lengths {
    fn read(&self, fields: &Fields<'a>) -> Result<Maxes, WireError> {
        let max = |name| fields.need_number(name, "a length");
        Ok(Maxes {
            kvsname: max("kvsname_max")?,
            key: max("keylen_max")?,
            value: max("vallen_max")?,
        })
    }

    fn write(&self, w: &mut Writer<'_>, maxes: &Maxes) {
        w.number("kvsname_max", maxes.kvsname);
        w.number("keylen_max", maxes.key);
        w.number("vallen_max", maxes.value);
        w.number("rc", 0);
    }
}

/// A value, and with PMI-2 whether there is one; not all servers say both. That there is none PMI-1
/// says by other words.
pub(super) struct Found;

impl<'a> Codec<'a, Option<Cow<'a, [u8]>>> for Found {
    fn read(&self, fields: &Fields<'a>) -> Result<Option<Cow<'a, [u8]>>, WireError> {
        let value = fields.get("value").cloned();
        Ok(match fields.version() {
            Version::V1 => Some(value.ok_or_else(|| fields.missing("value"))?),
            Version::V2 => match fields.flag("found")? {
                Some(false) => None,
                Some(true) => Some(fields.need("value")?),
                None => value,
            },
        })
    }

    fn write(&self, w: &mut Writer<'_>, value: &Option<Cow<'a, [u8]>>) {
        if w.version() == Version::V2 {
            w.flag("found", value.is_some());
        }
        if let Some(value) = value {
            w.stored("value", value);
        }
    }
}

/// Clients and servers differ in where they look for it.
pub(super) struct Port;

impl<'a> Codec<'a, Cow<'a, [u8]>> for Port {
    fn read(&self, fields: &Fields<'a>) -> Result<Cow<'a, [u8]>, WireError> {
        match (fields.version(), fields.get("port")) {
            (Version::V2, None) => fields.need("value"),
            _ => fields.need("port"),
        }
    }

    fn write(&self, w: &mut Writer<'_>, port: &Cow<'a, [u8]>) {
        w.stored("port", port);
        match w.version() {
            Version::V1 => {
                w.message("info", "ok");
                w.number("rc", 0);
                w.message("msg", "success");
            }
            Version::V2 => {
                w.field("value", port);
                w.flag("found", true);
            }
        }
    }
}
