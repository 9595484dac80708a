//! How the client speaks PMI-2, plain and with extensions.

use std::borrow::Cow;
use std::collections::{HashMap, VecDeque};

use super::queue::Pending;
use super::{ClientConfig, ClientError, Heard, Refusal, RequestId};
use crate::wire::v2::{DATA_PART, Decoder, Incoming, Request, Response};
use crate::wire::{Command, InitLine, InitReply, Reply, WireError, excerpt};

#[derive(Debug, Default)]
pub(super) struct Speaker {
    decoder: Decoder,
    /// Results of which more parts are to come, by the mark of their request.
    parts: HashMap<u64, Vec<u8>>,
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
    ) -> Result<Option<Heard<'_>>, ClientError> {
        match self.decoder.next_message()? {
            None => Ok(None),
            Some(Incoming::Line(line)) => init_reply(line).map(Some),
            Some(Incoming::Body(body)) => response(body, pending, &mut self.parts).map(Some),
        }
    }
}

/// The first line of the connection.
pub(super) fn begin(output: &mut Vec<u8>) {
    InitLine::V2.encode(output);
}

/// Appends a request to `output`, and to it what of the PE itself the command has to say.
pub(super) fn say<'a>(
    config: &'a ClientConfig,
    mut command: Command<'a>,
    mark: u64,
    output: &mut Vec<u8>,
) -> Result<(), ClientError> {
    let marked = config.extensions && command.may_be_withheld();
    let thread_id = marked.then(|| Cow::Owned(mark.to_string().into_bytes()));
    let own_job = || config.job_id.as_deref().map(Cow::Borrowed);
    let whole = match &mut command {
        Command::FullInit { job_id, rank, .. } => {
            (*job_id, *rank) = (own_job(), Some(config.rank));
            None
        }
        Command::KvsGet { job_id, .. } => {
            *job_id = own_job();
            None
        }
        Command::Data { value, .. } => Some(std::mem::take(value)),
        _ => None,
    };
    let mut message = Request { thread_id, command };
    let Some(whole) = &whole else {
        return Ok(message.encode(output)?);
    };
    let mut rest = &whole[..];
    loop {
        let (part, after) = rest.split_at(rest.len().min(DATA_PART));
        rest = after;
        if let Command::Data { value, more, .. } = &mut message.command {
            (*value, *more) = (Cow::Borrowed(part), !rest.is_empty());
        }
        message.encode(output)?;
        if rest.is_empty() {
            return Ok(());
        }
    }
}

fn init_reply(line: &[u8]) -> Result<Heard<'_>, ClientError> {
    let Ok(Reply::Init(InitReply {
        version,
        subversion,
        rc,
        ..
    })) = Reply::decode_line(line)
    else {
        let line = excerpt(line);
        return Err(WireError::NotInit { line }.into());
    };
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

fn response<'m>(
    body: &'m [u8],
    pending: &VecDeque<Pending>,
    parts: &mut HashMap<u64, Vec<u8>>,
) -> Result<Heard<'m>, ClientError> {
    let Response {
        thread_id,
        mut reply,
    } = Response::decode(body)?;
    let mark: Option<u64> = thread_id
        .as_deref()
        .and_then(|id| std::str::from_utf8(id).ok()?.parse().ok());
    // A reply with our mark belongs to the call with that mark; one without it to the oldest
    // call of its name. Servers which do not repeat marks only ever have one to answer.
    let mut candidates = pending.iter().enumerate();
    let found = candidates.find(|(_, pending)| {
        Some(pending.verb) == reply.verb() && mark.is_none_or(|mark| mark == pending.mark)
    });
    let Some((index, pending)) = found else {
        let command = excerpt(reply.command().as_bytes());
        return Err(ClientError::Unexpected { command });
    };
    if let Reply::Data { value, more, .. } = &mut reply {
        let whole = parts.entry(pending.mark).or_default();
        whole.extend_from_slice(value);
        if *more {
            return Ok(Heard::Nothing);
        }
        *value = Cow::Owned(parts.remove(&pending.mark).unwrap_or_default());
    }
    if let (Some(RequestId(ours)), Some(theirs)) = (pending.request, reply.request())
        && ours != theirs
    {
        return Err(ClientError::OutOfStep { theirs, ours });
    }
    Ok(Heard::Outcome(
        index,
        match reply {
            Reply::Refused {
                command,
                rc,
                message,
            } => Err(Refusal {
                command: command.into_owned(),
                rc,
                message: message.into_owned(),
            }),
            reply => Ok(reply),
        },
    ))
}
