//! Reliable connections: the two halves of a queue pair, and what moves between them.
//!
//! * `requester`: what to send, what is acknowledged; its `retransmission`: what is sent again, and when.
//! * `responder`: executes and answers; `target`: whose memory a request may touch.
//! * `part`: packets of a message, and runs of them; `burst`: in which portions packets go.
//! * `pacing`: how much may be in flight, and how long to wait for an acknowledgement; `share`: how much each of
//!   many peers may send.
//! * `stream`: by which streams a queue pair sends and is sent to.
//! * `turns`: which acknowledgements wait for a request that they can leave with.

pub(crate) mod burst;
pub(crate) mod pacing;
pub(crate) mod part;
pub(crate) mod requester;
pub(crate) mod responder;
pub(crate) mod share;
pub(crate) mod stream;
pub(crate) mod target;
pub(crate) mod turns;
