//! How the client speaks PMI-2, plain and with extensions.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use super::call::Call;
use super::queue::Pending;
use super::{
    ClientConfig, ClientError, Event, Heard, Initialised, Neighbours, Refusal, RequestId, Spawned,
    Ticket,
};
use crate::wire::excerpt;
use crate::wire::v2::{
    Command, Decoder, Incoming, InitLine, InitReply, NLA_PART, Reply, Request, Response,
};

#[derive(Debug, Default)]
pub(super) struct Speaker {
    decoder: Decoder,
    /// Results of which more parts are to come.
    parts: HashMap<Ticket, Vec<u8>>,
}

impl Speaker {
    pub(super) fn incomplete_input(&self) -> usize {
        self.decoder.pending()
    }

    pub(super) fn push(&mut self, bytes: &[u8]) {
        self.decoder.push(bytes);
    }

    pub(super) fn hear(
        &mut self,
        pending: &VecDeque<Pending>,
    ) -> Result<Option<Heard>, ClientError> {
        match self.decoder.next_message()? {
            None => Ok(None),
            Some(Incoming::Line(line)) => init_reply(line).map(Some),
            Some(Incoming::Body(body)) => response(body, pending, &mut self.parts).map(Some),
        }
    }
}

/// The first line of the connection.
pub(super) fn begin(output: &mut Vec<u8>) {
    output.extend_from_slice(InitLine::V2.to_string().as_bytes());
}

/// Appends a request to `output`.
pub(super) fn say(
    config: &ClientConfig,
    call: &Call,
    ticket: Ticket,
    output: &mut Vec<u8>,
) -> Result<(), ClientError> {
    let marked = config.extensions && call.may_be_withheld();
    let mut message = Request {
        thread_id: marked.then(|| Cow::Owned(ticket.0.to_string().into_bytes())),
        command: call.command(config),
    };
    let Call::Nla { value: whole, .. } = call else {
        return Ok(message.encode(output)?);
    };
    let mut rest = &whole[..];
    loop {
        let (part, after) = rest.split_at(rest.len().min(NLA_PART));
        rest = after;
        if let Command::Nla { value, more, .. } = &mut message.command {
            (*value, *more) = (Cow::Borrowed(part), !rest.is_empty());
        }
        message.encode(output)?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn init_reply(line: &[u8]) -> Result<Heard, ClientError> {
    let InitReply {
        version,
        subversion,
        rc,
        ..
    } = InitReply::decode(line)?;
    if rc != 0 || version != InitLine::V2.version {
        return Err(ClientError::Version {
            wanted: "2.0",
            version,
            subversion,
            rc,
        });
    }
    Ok(Heard::Accepted)
}

fn response(
    body: &[u8],
    pending: &VecDeque<Pending>,
    parts: &mut HashMap<Ticket, Vec<u8>>,
) -> Result<Heard, ClientError> {
    let response = Response::decode(body)?;
    let command = response.reply.command();
    let ticket = response
        .thread_id
        .as_deref()
        .and_then(|id| std::str::from_utf8(id).ok()?.parse().ok())
        .map(Ticket);
    // A reply with our mark belongs to the call with that ticket; one without it to the oldest
    // call of its name. Servers which do not repeat marks only ever have one to answer.
    let mut candidates = pending.iter().enumerate();
    let found = candidates.find(|(_, pending)| {
        pending.command == command && ticket.is_none_or(|ticket| ticket == pending.ticket)
    });
    let Some((index, pending)) = found else {
        let command = excerpt(command.as_bytes());
        return Err(ClientError::Unexpected { command });
    };
    let mut reply = response.reply;
    if let Reply::Nla { value, more, .. } = &mut reply {
        let whole = parts.entry(pending.ticket).or_default();
        whole.extend_from_slice(value);
        if *more {
            return Ok(Heard::Nothing);
        }
        *value = Cow::Owned(parts.remove(&pending.ticket).unwrap_or_default());
    }
    let event = outcome(pending, reply)?;
    Ok(Heard::Outcome { index, event })
}

fn outcome(pending: &Pending, reply: Reply<'_>) -> Result<Event, ClientError> {
    let own = |value: Option<Cow<'_, [u8]>>| value.map(Cow::into_owned);
    let counted = |theirs: u64| match pending.request {
        Some(RequestId(ours)) if ours != theirs => Err(ClientError::OutOfStep { theirs, ours }),
        _ => Ok(RequestId(theirs)),
    };
    Ok(match reply {
        Reply::FullInit(facts) => Event::Initialised(Initialised {
            rank: facts.rank,
            size: facts.size,
            appnum: facts.appnum,
            spawner: facts.spawner.map(Cow::into_owned),
            restarts: facts.restarts,
            first_request: RequestId(facts.first_request),
        }),
        Reply::JobId(id) => Event::JobId(id.into_owned()),
        Reply::JobAttr(value) => Event::JobAttr(own(value)),
        Reply::NodeAttrPut => Event::NodeAttrPut,
        Reply::NodeAttr(value) => Event::NodeAttr(own(value)),
        Reply::KvsPut => Event::Put,
        Reply::KvsGet(value) => Event::Got(own(value)),
        Reply::KvsFence => Event::FenceDone,
        Reply::Iallgather(request) | Reply::Ifence(request) => {
            Event::RequestStarted(counted(request)?)
        }
        Reply::Allgather(request) | Reply::Wait(request) => Event::RequestDone(counted(request)?),
        Reply::Nla { request, value, .. } => {
            counted(request)?;
            Event::Received(value.into_owned())
        }
        Reply::NlaSend => Event::Sent,
        Reply::NlaRecv(value) => Event::Received(value.into_owned()),
        Reply::Finalize => Event::Finalized,
        Reply::Refused {
            command,
            rc,
            message,
        } => Event::Error(Refusal {
            command: command.into_owned(),
            rc,
            message: message.into_owned(),
        }),
        Reply::NamePublished => Event::Published,
        Reply::NameFound(port) => Event::LookedUp(port.into_owned()),
        Reply::NameUnpublished => Event::Unpublished,
        Reply::Spawned { job_id, errcodes } => Event::Spawned(Spawned {
            job_id: Some(job_id.into_owned()),
            errcodes,
        }),
        Reply::Ring(ring) => Event::Ring(Neighbours {
            rank: ring.rank,
            size: ring.size,
            left: ring.left.into_owned(),
            right: ring.right.into_owned(),
        }),
        reply @ (Reply::JobConnected | Reply::JobDisconnected) => {
            return Err(ClientError::Unexpected {
                command: reply.command().to_owned(),
            });
        }
    })
}
