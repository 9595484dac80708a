//! What a PE asks of its node agent, except `spawn`.

use super::line::{Fields, LineWriter};
use super::{InitLine, InitReply};
use crate::wire::WireError;

/// The commands of PMI-1.1 that are one line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Command<'a> {
    /// `init`: the version that the client speaks.
    Init(InitLine),
    /// `initack`: before `init` in the port model; asks for rank and size.
    InitAck {
        /// Number by which the launcher knows the process (`PMI_ID`).
        id: u32,
    },
    /// `get_maxes`: the lengths of names, keys and values.
    GetMaxes,
    /// `get_appnum`: the number of the program among those of the job.
    GetAppnum,
    /// `get_universe_size`: how many processes could run.
    GetUniverseSize,
    /// `get_my_kvsname`: the name of the job's key-value space.
    GetMyKvsName,
    /// `put`: visible to all PEs after the next barrier.
    Put {
        /// The key-value space.
        kvsname: &'a [u8],
        /// The key.
        key: &'a [u8],
        /// The value.
        value: &'a [u8],
    },
    /// `get`: a value of the key-value space, or an attribute of the job.
    Get {
        /// The key-value space.
        kvsname: &'a [u8],
        /// The key.
        key: &'a [u8],
    },
    /// `barrier_in`: collective; answered when all have called it.
    Barrier {
        /// With PMI-1.2 of whom it is, `WORLD`, `NODE` or ranks with commas, and a tag behind a colon.
        group: Option<&'a [u8]>,
    },
    /// `publish_name`.
    Publish {
        /// The service.
        service: &'a [u8],
        /// Where it is to be found.
        port: &'a [u8],
    },
    /// `lookup_name`.
    Lookup {
        /// The service.
        service: &'a [u8],
    },
    /// `unpublish_name`.
    Unpublish {
        /// The service.
        service: &'a [u8],
    },
    /// `finalize`.
    Finalize,
    /// `abort`: has no reply.
    Abort {
        /// Exit status asked for, if the client sent one.
        exit_code: Option<i32>,
        /// Text for the user; may be empty, and have blanks when it was read.
        message: &'a [u8],
    },
}

impl<'a> Command<'a> {
    /// The value of `cmd`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Init(_) => "init",
            Self::InitAck { .. } => "initack",
            Self::GetMaxes => "get_maxes",
            Self::GetAppnum => "get_appnum",
            Self::GetUniverseSize => "get_universe_size",
            Self::GetMyKvsName => "get_my_kvsname",
            Self::Put { .. } => "put",
            Self::Get { .. } => "get",
            Self::Barrier { .. } => "barrier_in",
            Self::Publish { .. } => "publish_name",
            Self::Lookup { .. } => "lookup_name",
            Self::Unpublish { .. } => "unpublish_name",
            Self::Finalize => "finalize",
            Self::Abort { .. } => "abort",
        }
    }

    /// Reads a command from the words of its line.
    ///
    /// # Errors
    ///
    /// The command is unknown, or a field is absent, empty or has an impossible value. The next
    /// line can be read.
    pub fn from_fields(fields: &Fields<'a>) -> Result<Self, WireError> {
        Ok(match fields.command() {
            b"init" => {
                let version = |name| fields.need_number(name, "a version number");
                Self::Init(InitLine {
                    version: version("pmi_version")?,
                    subversion: version("pmi_subversion")?,
                })
            }
            b"initack" => Self::InitAck {
                id: fields.need_number("pmiid", "the number of a process")?,
            },
            b"get_maxes" => Self::GetMaxes,
            b"get_appnum" => Self::GetAppnum,
            b"get_universe_size" => Self::GetUniverseSize,
            b"get_my_kvsname" => Self::GetMyKvsName,
            b"put" => Self::Put {
                kvsname: fields.need("kvsname")?,
                key: fields.need("key")?,
                value: fields.need_whole("value")?,
            },
            b"get" => Self::Get {
                kvsname: fields.need("kvsname")?,
                key: fields.need_whole("key")?,
            },
            b"barrier_in" => Self::Barrier {
                group: fields.get("group"),
            },
            b"publish_name" => Self::Publish {
                service: fields.need_whole("service")?,
                port: fields.need_whole("port")?,
            },
            b"lookup_name" => Self::Lookup {
                service: fields.need_whole("service")?,
            },
            b"unpublish_name" => Self::Unpublish {
                service: fields.need_whole("service")?,
            },
            b"finalize" => Self::Finalize,
            b"abort" => Self::Abort {
                exit_code: fields.number("exitcode", "an exit status")?,
                message: fields
                    .rest("message")
                    .or_else(|| fields.rest("msg"))
                    .unwrap_or_default(),
            },
            _ => {
                return Err(WireError::UnknownCommand {
                    name: fields.command_text(),
                });
            }
        })
    }

    /// Reads a command from a line (without newline).
    ///
    /// # Errors
    ///
    /// As [`Fields::decode`] and [`Command::from_fields`].
    pub fn decode(line: &'a [u8]) -> Result<Self, WireError> {
        Self::from_fields(&Fields::decode(line)?)
    }

    /// Appends the line to `out`.
    ///
    /// # Errors
    ///
    /// A name, key or value is empty or not one word, or the line is longer than
    /// [`super::MAX_SENT_LINE`]; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        let mut w = LineWriter::new(out, self.name());
        match *self {
            Self::Init(InitLine {
                version,
                subversion,
            }) => {
                w.number("pmi_version", version);
                w.number("pmi_subversion", subversion);
            }
            Self::InitAck { id } => w.number("pmiid", id),
            Self::Put {
                kvsname,
                key,
                value,
            } => {
                w.word("kvsname", kvsname);
                w.word("key", key);
                w.word("value", value);
            }
            Self::Get { kvsname, key } => {
                w.word("kvsname", kvsname);
                w.word("key", key);
            }
            Self::Publish { service, port } => {
                w.word("service", service);
                w.word("port", port);
            }
            Self::Lookup { service } | Self::Unpublish { service } => w.word("service", service),
            Self::Abort { exit_code, message } => {
                if let Some(code) = exit_code {
                    w.number("exitcode", code);
                }
                if !message.is_empty() {
                    w.message("message", &String::from_utf8_lossy(message));
                }
            }
            Self::Barrier { group } => {
                if let Some(group) = group {
                    w.word("group", group);
                }
            }
            Self::GetMaxes
            | Self::GetAppnum
            | Self::GetUniverseSize
            | Self::GetMyKvsName
            | Self::Finalize => {}
        }
        w.finish()
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// Commands that can be sent; their texts are leaked, for what is short in a test.
    fn command() -> impl Strategy<Value = Command<'static>> {
        let word = || "[a-zA-Z0-9=;,:$#(){}./_-]{1,30}".prop_map(|s| &*s.into_bytes().leak());
        let key = || "[a-z0-9_-]{1,20}".prop_map(|s| &*s.into_bytes().leak());
        prop_oneof![
            any::<[u32; 2]>().prop_map(|[version, subversion]| Command::Init(InitLine {
                version,
                subversion
            })),
            any::<u32>().prop_map(|id| Command::InitAck { id }),
            prop::sample::select(vec![
                Command::GetMaxes,
                Command::GetAppnum,
                Command::GetUniverseSize,
                Command::GetMyKvsName,
                Command::Barrier { group: None },
                Command::Barrier {
                    group: Some(b"0,3:7")
                },
                Command::Finalize,
            ]),
            (word(), key(), word()).prop_map(|(kvsname, key, value)| Command::Put {
                kvsname,
                key,
                value
            }),
            (word(), key()).prop_map(|(kvsname, key)| Command::Get { kvsname, key }),
            (word(), word()).prop_map(|(service, port)| Command::Publish { service, port }),
            word().prop_map(|service| Command::Lookup { service }),
            word().prop_map(|service| Command::Unpublish { service }),
            (any::<Option<i32>>(), prop_oneof![word(), Just(&b""[..])])
                .prop_map(|(exit_code, message)| Command::Abort { exit_code, message }),
        ]
    }

    proptest! {
        #[test]
        fn commands_round_trip(command in command()) {
            let mut out = Vec::new();
            command.encode(&mut out).unwrap();
            prop_assert_eq!(out.pop(), Some(b'\n'));
            prop_assert_eq!(Command::decode(&out), Ok(command));
        }

        #[test]
        fn damage_never_panics(command in command(), at: usize, to: u8, cut: usize) {
            let mut out = Vec::new();
            command.encode(&mut out).unwrap();
            let at = at % out.len();
            out[at] = to;
            let _ = Command::decode(&out);
            let _ = Command::decode(&out[..cut % out.len()]);
        }

        #[test]
        fn whatever_is_sent_is_read_back(kvsname: Vec<u8>, value: Vec<u8>) {
            let command = Command::Put { kvsname: &kvsname, key: b"k", value: &value };
            let mut out = Vec::new();
            if command.encode(&mut out).is_ok() {
                prop_assert_eq!(out.iter().filter(|&&b| b == b'\n').count(), 1);
                prop_assert_eq!(Command::decode(&out[..out.len() - 1]), Ok(command));
            } else {
                prop_assert!(out.is_empty());
            }
        }
    }

    #[test]
    fn what_cannot_be_sent_is_named() {
        let error = |key: &[u8], value: &[u8]| {
            let mut out = b"before".to_vec();
            let put = Command::Put {
                kvsname: b"k",
                key,
                value,
            };
            let error = put.encode(&mut out).unwrap_err();
            assert_eq!(out, b"before");
            error.to_string()
        };
        assert!(error(b"k", b"two words").contains("cannot carry value `two words`"));
        assert!(error(b"k", b"").contains("value is empty"));
        for bad in [&b"\n"[..], b"a\\b", b"\0"] {
            assert!(error(bad, b"v").contains("cannot carry key"), "{bad:?}");
        }
        assert!(error(b"k", &[b'v'; 1000]).contains("limit of 1023"));
    }

    #[test]
    fn impossible_fields_are_named() {
        let error = |line: &str| Command::decode(line.as_bytes()).unwrap_err().to_string();
        assert!(error("cmd=put kvsname=k key=a").contains("lacks the field `value`"));
        assert!(error("cmd=put kvsname=k key=a value=").contains("not empty"));
        assert!(error("cmd=put kvsname=k key=a value=b c").contains("without blanks"));
        assert!(error("cmd=initack pmiid=-1").contains("`pmiid`"));
        assert!(error("cmd=nosuch").contains("`nosuch`"));
        let abort = Command::decode(b"cmd=abort exitcode=7 message=out of luck").unwrap();
        let (exit_code, message) = (Some(7), &b"out of luck"[..]);
        assert_eq!(abort, Command::Abort { exit_code, message });
    }

    #[test]
    fn versions_that_are_served() {
        let answer = |version, subversion| {
            let asked = InitLine {
                version,
                subversion,
            };
            let reply = InitReply::to_init(asked);
            (reply.version, reply.subversion, reply.rc)
        };
        assert_eq!(answer(1, 0), (1, 1, 0));
        assert_eq!(answer(1, 1), (1, 1, 0));
        assert_eq!(answer(1, 2), (1, 1, 0));
        assert_eq!(answer(2, 0), (2, 0, 0));
        assert_eq!(answer(2, 1), (2, 0, -1));
        assert_eq!(answer(3, 0), (2, 0, -1));
        assert_eq!(answer(1, 3), (1, 1, -1));
        assert_eq!(answer(0, 9), (1, 1, -1));
    }
}
