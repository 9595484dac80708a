//! Commands and replies with the mark of the thread that they are of.

use std::borrow::Cow;

use crate::wire::{Command, Fields, Reply, WireError};

/// A command with the optional mark of the thread that sent it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Request<'a> {
    /// Opaque mark which the reply repeats (`thrid`).
    pub thread_id: Option<Cow<'a, [u8]>>,
    /// What is asked.
    pub command: Command<'a>,
}

impl<'a> Request<'a> {
    /// A request without a thread mark.
    pub fn new(command: Command<'a>) -> Self {
        Self {
            thread_id: None,
            command,
        }
    }

    /// Reads a request from the body of a message.
    ///
    /// # Errors
    ///
    /// As [`Fields::of_body`] and [`Command::from_fields`].
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let fields = Fields::of_body(body)?;
        Ok(Self {
            thread_id: fields.thread_id(),
            command: Command::from_fields(&fields)?,
        })
    }

    /// Appends the message, with its header, to `out`.
    ///
    /// # Errors
    ///
    /// [`WireError::TooLong`] if the body exceeds [`super::MAX_BODY`]; `out` is then unchanged.
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.command.encode_body(self.thread_id.as_deref(), out)
    }
}

/// A reply with the mark of the thread that asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Response<'a> {
    /// Mark of the request (`thrid`), if it had one and the server repeats it.
    pub thread_id: Option<Cow<'a, [u8]>>,
    /// The answer.
    pub reply: Reply<'a>,
}

impl<'a> Response<'a> {
    /// Reads a response from the body of a message.
    ///
    /// # Errors
    ///
    /// The body is malformed, answers an unknown command, or lacks a field.
    pub fn decode(body: &'a [u8]) -> Result<Self, WireError> {
        let fields = Fields::of_body(body)?;
        Ok(Self {
            thread_id: fields.thread_id(),
            reply: Reply::of_body(&fields)?,
        })
    }

    /// Appends the message, with its header, to `out`.
    ///
    /// # Errors
    ///
    /// As for [`Request::encode`].
    pub fn encode(&self, out: &mut Vec<u8>) -> Result<(), WireError> {
        self.reply.encode_body(self.thread_id.as_deref(), out)
    }
}
