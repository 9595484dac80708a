//! PMI-1.1: lines of text, as MPICH's and many other libraries speak it.
//!
//! # On the wire
//!
//! A request or reply is one line of `key=value` words of which the first is `cmd`; blanks separate
//! them, a newline ends them:
//!
//! ```text
//! C  cmd=init pmi_version=1 pmi_subversion=1
//! S  cmd=response_to_init pmi_version=1 pmi_subversion=1 rc=0
//! C  cmd=get kvsname=kvs_42_0 key=ep-1
//! S  cmd=get_result rc=0 msg=success value=addr1
//! ```
//!
//! There is no quoting: a value ends at the next blank. Some clients take a backslash for a quote
//! and drop it, so nothing that has one is sent, except in values that another PE put. A client has
//! one request under way, which is answered before the next; a barrier is answered when all PEs
//! have called it. An absent `rc` means 0.
//!
//! `spawn` alone has several lines: a block for each program, from `mcmd=spawn` to `endcmd`, in
//! which a value ends at the end of its line; see [`SpawnBlock`].
//!
//! In the *port model* a process gets no connected socket but an address and a number of its own.
//! It connects, sends `cmd=initack pmiid=N` before the init line, and learns its rank and the size
//! of the job from the lines `cmd=set` of the answer.
//!
//! If a PE's process died and another was started in its place, the reply to `init` of our server has
//! two more words, which other clients ignore: `restarts=K`, how often, and `first-request=N`, the
//! number of the next collective operation of this PE: the former processes joined all before it.
//!
//! # Limits
//!
//! Clients in use read replies of less than 1024 bytes and servers in use take requests of at most
//! 1024 bytes, so no longer line is sent ([`MAX_SENT_LINE`]). What comes from others may be
//! longer ([`MAX_LINE`], [`MAX_BLOCK`]).

mod decoder;
mod spawn;

pub use decoder::{Decoder, Incoming};
pub use spawn::{SpawnBlock, encode_spawn};

/// Longest line that is sent, in bytes with its newline: C clients have buffers of 1024 bytes, of
/// which the last holds a NUL.
pub const MAX_SENT_LINE: usize = 1023;

/// Longest line that is read, in bytes with its newline.
pub const MAX_LINE: usize = 64 * 1024;

/// Longest block of a spawn request that is read or sent, in bytes.
pub const MAX_BLOCK: usize = 64 * 1024;

/// Most programs of one spawn request.
pub const MAX_BLOCKS: usize = 1024;
