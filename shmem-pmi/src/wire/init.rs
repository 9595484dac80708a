//! The first line of a connection and its answer, the same in all versions of PMI: they decide which
//! version the rest is.

use std::fmt;

use super::{WireError, excerpt};

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

    /// Reads the line (without newline).
    ///
    /// # Errors
    ///
    /// [`WireError::NotInit`] if it is not `cmd=init pmi_version=N pmi_subversion=N`.
    pub fn decode(line: &[u8]) -> Result<Self, WireError> {
        let fields = LineFields::decode(line, "init")?;
        Ok(Self {
            version: fields.version,
            subversion: fields.subversion,
        })
    }
}

impl fmt::Display for InitLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "cmd=init pmi_version={} pmi_subversion={}",
            self.version, self.subversion
        )
    }
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
    /// With PMI-1, how often the PE's process has been started again; above 0, the server also tells the
    /// next field. With PMI-2 the reply to `fullinit` tells it.
    pub restarts: u32,
    /// Number of the PE's next collective operation.
    pub first_request: u64,
}

impl InitReply {
    /// Reads the line (without newline).
    ///
    /// # Errors
    ///
    /// [`WireError::NotInit`] if it is not a `response_to_init`.
    pub fn decode(line: &[u8]) -> Result<Self, WireError> {
        let fields = LineFields::decode(line, "response_to_init")?;
        Ok(Self {
            version: fields.version,
            subversion: fields.subversion,
            rc: fields.rc,
            restarts: fields.restarts,
            first_request: fields.first_request,
        })
    }
}

impl fmt::Display for InitReply {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "cmd=response_to_init pmi_version={} pmi_subversion={} rc={}",
            self.version, self.subversion, self.rc
        )?;
        if self.restarts > 0 {
            let (restarts, first) = (self.restarts, self.first_request);
            write!(f, " restarts={restarts} first-request={first}")?;
        }
        writeln!(f)
    }
}

struct LineFields {
    version: u32,
    subversion: u32,
    rc: i32,
    restarts: u32,
    first_request: u64,
}

impl LineFields {
    fn decode(line: &[u8], command: &str) -> Result<Self, WireError> {
        let not_init = || WireError::NotInit {
            line: excerpt(line),
        };
        let text = std::str::from_utf8(line).map_err(|_| not_init())?;
        let (mut cmd, mut version, mut subversion, mut rc) = (None, None, None, None);
        let (mut restarts, mut first_request) = (0, 0);
        for word in text.split_ascii_whitespace() {
            match word.split_once('=').ok_or_else(not_init)? {
                ("cmd", value) => cmd = Some(value),
                ("pmi_version", value) => version = value.parse().ok(),
                ("pmi_subversion", value) => subversion = value.parse().ok(),
                ("rc", value) => rc = Some(value.parse().map_err(|_| not_init())?),
                ("restarts", value) => restarts = value.parse().map_err(|_| not_init())?,
                ("first-request", value) => {
                    first_request = value.parse().map_err(|_| not_init())?;
                }
                _ => {}
            }
        }
        if cmd != Some(command) {
            return Err(not_init());
        }
        let rc = rc.unwrap_or(0);
        // Flux refuses without saying what it would serve.
        let number = |told: Option<u32>| match rc {
            0 => told.ok_or_else(not_init),
            _ => Ok(told.unwrap_or(0)),
        };
        Ok(Self {
            version: number(version)?,
            subversion: number(subversion)?,
            rc,
            restarts,
            first_request,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn init_lines() {
        assert_eq!(
            InitLine::V2.to_string(),
            "cmd=init pmi_version=2 pmi_subversion=0\n"
        );
        assert_eq!(
            InitLine::decode(b"cmd=init  pmi_subversion=1 pmi_version=1 extra=7"),
            Ok(InitLine {
                version: 1,
                subversion: 1
            })
        );
        for bad in [
            "cmd=init pmi_version=2",
            "cmd=fini pmi_version=2 pmi_subversion=0",
            "",
            "x",
        ] {
            assert!(InitLine::decode(bad.as_bytes()).is_err(), "{bad}");
        }
        let again = |reply: InitReply| InitReply::decode(reply.to_string().trim_end().as_bytes());
        let refused = InitReply {
            version: 2,
            subversion: 0,
            rc: -1,
            restarts: 0,
            first_request: 0,
        };
        assert_eq!(again(refused), Ok(refused));
        let nothing = InitReply {
            version: 0,
            ..refused
        };
        assert_eq!(
            InitReply::decode(b"cmd=response_to_init rc=-1"),
            Ok(nothing)
        );
        assert!(InitReply::decode(b"cmd=response_to_init rc=0").is_err());
        let restarted = InitReply {
            version: 1,
            subversion: 1,
            rc: 0,
            restarts: 2,
            first_request: 7,
        };
        assert_eq!(again(restarted), Ok(restarted));
    }
}
