//! What a caller asks, whichever version of PMI carries it.

use std::borrow::Cow;

use super::ClientConfig;
use crate::nla::Operation;
use crate::question::SpawnRequest;
use crate::wire::v2::Command;

/// A request in the client's own terms. It may be held back, so it owns its texts.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Call {
    Introduce,
    JobId,
    JobAttr {
        key: Vec<u8>,
    },
    PutNodeAttr {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    NodeAttr {
        key: Vec<u8>,
        wait: bool,
    },
    Put {
        key: Vec<u8>,
        value: Vec<u8>,
    },
    Get {
        key: Vec<u8>,
    },
    GetFrom {
        owner: u32,
        key: Vec<u8>,
    },
    Fence,
    Ifence,
    Iallgather {
        value: Vec<u8>,
    },
    Allgather {
        value: Vec<u8>,
    },
    Wait {
        request: u64,
    },
    Nla {
        operation: Operation,
        root: u32,
        value: Vec<u8>,
    },
    NlaSend {
        to: u32,
        value: Vec<u8>,
    },
    NlaRecv {
        from: u32,
    },
    Publish {
        name: Vec<u8>,
        port: Vec<u8>,
    },
    Lookup {
        name: Vec<u8>,
    },
    Unpublish {
        name: Vec<u8>,
    },
    Spawn(SpawnRequest),
    Ring {
        value: Vec<u8>,
    },
    Finalize,
}

/// Names one kind of call in replies and errors: PMI-2's name of the command.
pub(super) type Name = &'static str;

impl Call {
    pub(super) fn name(&self) -> Name {
        match self {
            Self::Introduce => "fullinit",
            Self::JobId => "job-getid",
            Self::JobAttr { .. } => "info-getjobattr",
            Self::PutNodeAttr { .. } => "info-putnodeattr",
            Self::NodeAttr { .. } => "info-getnodeattr",
            Self::Put { .. } => "kvs-put",
            Self::Get { .. } | Self::GetFrom { .. } => "kvs-get",
            Self::Fence => "kvs-fence",
            Self::Ifence => "ifence",
            Self::Iallgather { .. } => "iallgather",
            Self::Allgather { .. } => "allgather",
            Self::Wait { .. } => "wait",
            Self::Nla { .. } => "nla",
            Self::NlaSend { .. } => "nla-send",
            Self::NlaRecv { .. } => "nla-recv",
            Self::Publish { .. } => "name-publish",
            Self::Lookup { .. } => "name-lookup",
            Self::Unpublish { .. } => "name-unpublish",
            Self::Spawn(_) => "spawn",
            Self::Ring { .. } => "ring",
            Self::Finalize => "finalize",
        }
    }

    /// Whether all PEs call it in the same order.
    pub(super) fn is_collective(&self) -> bool {
        matches!(
            self,
            Self::Fence
                | Self::Ifence
                | Self::Iallgather { .. }
                | Self::Allgather { .. }
                | Self::Ring { .. }
                | Self::Nla { .. }
        )
    }

    /// Whether the server may answer later requests first.
    pub(super) fn may_be_withheld(&self) -> bool {
        matches!(
            self,
            Self::Fence
                | Self::Allgather { .. }
                | Self::Wait { .. }
                | Self::Publish { .. }
                | Self::Lookup { .. }
                | Self::Unpublish { .. }
                | Self::Spawn(_)
                | Self::Ring { .. }
                | Self::Get { .. }
                | Self::GetFrom { .. }
                | Self::Nla { .. }
                | Self::NlaRecv { .. }
                | Self::NodeAttr { wait: true, .. }
        )
    }

    /// The command of PMI-2.
    pub(super) fn command<'c>(&'c self, config: &'c ClientConfig) -> Command<'c> {
        let job_id = || config.job_id.as_deref().map(Cow::Borrowed);
        let text = |text: &'c Vec<u8>| Cow::Borrowed(&text[..]);
        match self {
            Self::Introduce => Command::FullInit {
                job_id: job_id(),
                rank: Some(config.rank),
                threaded: config.extensions,
            },
            Self::JobId => Command::JobGetId,
            Self::JobAttr { key } => Command::JobAttr { key: text(key) },
            Self::PutNodeAttr { key, value } => Command::PutNodeAttr {
                key: text(key),
                value: text(value),
            },
            Self::NodeAttr { key, wait } => Command::NodeAttr {
                key: text(key),
                wait: *wait,
            },
            Self::Put { key, value } => Command::KvsPut {
                key: text(key),
                value: text(value),
            },
            Self::Get { key } => Command::KvsGet {
                job_id: job_id(),
                source: -1,
                key: text(key),
                direct: false,
            },
            Self::GetFrom { owner, key } => Command::KvsGet {
                job_id: job_id(),
                source: i64::from(*owner),
                key: text(key),
                direct: true,
            },
            Self::Fence => Command::KvsFence,
            Self::Ifence => Command::Ifence,
            Self::Iallgather { value } => Command::Iallgather { value: text(value) },
            Self::Allgather { value } => Command::Allgather { value: text(value) },
            Self::Wait { request } => Command::Wait { request: *request },
            Self::Publish { name, port } => Command::NamePublish {
                name: text(name),
                port: text(port),
            },
            Self::Lookup { name } => Command::NameLookup { name: text(name) },
            Self::Unpublish { name } => Command::NameUnpublish { name: text(name) },
            Self::Spawn(request) => Command::Spawn(request.clone()),
            Self::Ring { value } => Command::Ring {
                count: 1,
                left: text(value),
                right: text(value),
            },
            Self::Nla {
                operation,
                root,
                value,
            } => Command::Nla {
                operation: *operation,
                root: *root,
                value: text(value),
                more: false,
            },
            Self::NlaSend { to, value } => Command::NlaSend {
                to: *to,
                value: text(value),
            },
            Self::NlaRecv { from } => Command::NlaRecv { from: *from },
            Self::Finalize => Command::Finalize,
        }
    }
}
