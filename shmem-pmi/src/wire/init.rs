//! The first line of a connection and its answer, the same in all versions of PMI: they decide which
//! version the rest is.

use super::WireError;
use super::codec::{Codec, Number, Or};
use super::fields::Fields;
use super::writer::Writer;

/// The line with which a client opens the connection, whichever version it speaks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitLine {
    /// Major protocol version that the client wants.
    pub version: u32,
    /// Minor protocol version that the client wants.
    pub subversion: u32,
}

impl InitLine {
    /// The line of a PMI-1 client.
    pub const V1: Self = Self {
        version: 1,
        subversion: 1,
    };

    /// The line of a PMI-2 client.
    pub const V2: Self = Self {
        version: 2,
        subversion: 0,
    };
}

/// The server's answer to an [`InitLine`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct InitReply {
    /// Major protocol version that the server has.
    pub version: u32,
    /// Minor protocol version that the server has.
    pub subversion: u32,
    /// 0 if the client's version is served; else the version may be 0.0, if the server does not tell.
    pub rc: i32,
    /// With PMI-1, how often the PE's process has been started again; above 0, the server also sends
    /// the next field. With PMI-2 the reply to `fullinit` has it.
    pub restarts: u32,
    /// Number of the PE's next collective operation.
    pub first_request: u64,
}

impl InitReply {
    /// The answer to a client that asked for `version`: what it gets is 1.1 or 2.0; 1.2 is for a server
    /// to add that has group barriers.
    pub fn to_init(asked: InitLine) -> Self {
        let (served, rc) = match (asked.version, asked.subversion) {
            (2, 0) => (InitLine::V2, 0),
            (1, 0..=2) => (InitLine::V1, 0),
            (2.., _) => (InitLine::V2, -1),
            _ => (InitLine::V1, -1),
        };
        Self {
            version: served.version,
            subversion: served.subversion,
            rc,
            restarts: 0,
            first_request: 0,
        }
    }
}

const VERSION: Number = Number("pmi_version", "a version number");
const SUBVERSION: Number = Number("pmi_subversion", "a version number");

/// The version that a client speaks.
pub(super) struct Versions;

impl<'a> Codec<'a, InitLine> for Versions {
    fn read(&self, fields: &Fields<'a>) -> Result<InitLine, WireError> {
        Ok(InitLine {
            version: VERSION.read(fields)?,
            subversion: SUBVERSION.read(fields)?,
        })
    }

    fn write(&self, w: &mut Writer<'_>, line: &InitLine) {
        VERSION.write(w, &line.version);
        SUBVERSION.write(w, &line.subversion);
    }
}

/// The version that a server speaks.
pub(super) struct InitFacts;

impl<'a> Codec<'a, InitReply> for InitFacts {
    fn read(&self, fields: &Fields<'a>) -> Result<InitReply, WireError> {
        let rc = Or(Number("rc", "a return code"), 0).read(fields)?;
        // Flux refuses without saying what it would serve.
        let served = |number: Number| match rc {
            0 => number.read(fields),
            _ => Or(number, 0).read(fields),
        };
        Ok(InitReply {
            version: served(VERSION)?,
            subversion: served(SUBVERSION)?,
            rc,
            restarts: Or(Number("restarts", "a number"), 0).read(fields)?,
            first_request: Or(Number("first-request", "a number"), 0).read(fields)?,
        })
    }

    fn write(&self, w: &mut Writer<'_>, reply: &InitReply) {
        VERSION.write(w, &reply.version);
        SUBVERSION.write(w, &reply.subversion);
        w.number("rc", reply.rc);
        if reply.restarts > 0 {
            w.number("restarts", reply.restarts);
            w.number("first-request", reply.first_request);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::{Command, Reply};
    use super::*;

    #[test]
    fn first_lines() {
        let mut out = Vec::new();
        InitLine::V2.encode(&mut out);
        assert_eq!(out, b"cmd=init pmi_version=2 pmi_subversion=0\n");
        let (version, subversion) = (1, 7);
        assert_eq!(
            Command::decode_line(b"cmd=init  pmi_subversion=7 pmi_version=1 extra=7"),
            Ok(Command::Init(InitLine {
                version,
                subversion
            }))
        );
        assert!(Command::decode_line(b"cmd=init pmi_version=2").is_err());
        let refused = InitReply {
            version: 0,
            subversion: 0,
            rc: -1,
            restarts: 0,
            first_request: 0,
        };
        assert_eq!(
            Reply::decode_line(b"cmd=response_to_init rc=-1"),
            Ok(Reply::Init(refused))
        );
        assert!(Reply::decode_line(b"cmd=response_to_init rc=0").is_err());
    }

    #[test]
    fn versions_that_are_served() {
        for (version, subversion, served) in [
            (1, 0, (1, 1, 0)),
            (1, 1, (1, 1, 0)),
            (1, 2, (1, 1, 0)),
            (2, 0, (2, 0, 0)),
            (2, 1, (2, 0, -1)),
            (3, 0, (2, 0, -1)),
            (1, 3, (1, 1, -1)),
            (0, 9, (1, 1, -1)),
        ] {
            let reply = InitReply::to_init(InitLine {
                version,
                subversion,
            });
            assert_eq!((reply.version, reply.subversion, reply.rc), served);
        }
    }
}
