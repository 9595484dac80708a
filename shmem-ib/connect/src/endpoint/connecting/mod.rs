//! From the first wish for a peer to the queue pair over which operations go, and to its end.
//!
//! What is said when is up to the state machines ([`handshake`](crate::handshake),
//! [`xrc`](crate::xrc)); here is what they need of the world. In the order of events:
//! * `contact.rs`: a thread wants a peer, asks for its address, and waits until its connection is open.
//! * `ud.rs`: the queue pair over which connection messages go.
//! * `messages.rs`: these messages come in and go out.
//! * `act.rs`: the queue pairs are made, linked and opened: one per peer, or one per node.
//! * `domain.rs`: what XRC needs besides.
//! * `room.rs`: a connection makes room for another, when nothing is under way on it any more.

mod act;
mod contact;
pub(crate) mod domain;
mod messages;
mod room;
pub(crate) mod ud;
