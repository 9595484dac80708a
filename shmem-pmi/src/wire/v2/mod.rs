//! PMI-2: framing, requests and responses as MPICH's and Slurm's libraries speak them.
//!
//! # On the wire
//!
//! A connection opens with one line in the style of PMI-1 and its answer:
//!
//! ```text
//! C  cmd=init pmi_version=2 pmi_subversion=0\n
//! S  cmd=response_to_init pmi_version=2 pmi_subversion=0 rc=0\n
//! ```
//!
//! From then on each message is six ASCII bytes, the decimal length of the body padded with blanks
//! on either side, and the body: `key=value;` pairs of which the first is `cmd`.
//!
//! ```text
//! C  52    cmd=fullinit;pmijobid=25.0;pmirank=0;threaded=FALSE;
//! S  114   cmd=fullinit-response;rc=0;pmi-version=2;pmi-subversion=0;rank=0;size=1;...
//! ```
//!
//! A reply to `cmd=X` is `cmd=X-response`, with `rc=0` (which may be absent) or another `rc` and
//! `errmsg`. A client with several threads puts `thrid=T` right after `cmd`; the reply repeats it.
//! A `;` inside a value is doubled, as the older C libraries do; new MPICH neither doubles nor
//! un-doubles it, so [`crate::client::Client`] does not send one at all. Bytes after the last pair
//! are ignored when they hold no `=`: one release of MPICH pads its messages.
//!
//! # Extension commands
//!
//! Offered only by a server whose launcher sets [`crate::wire::EXTENSIONS_ENV`]:
//!
//! | request | reply |
//! |---|---|
//! | `cmd=iallgather;value=<hex>;` | `rc=0;request=N;` at once |
//! | `cmd=allgather;value=<hex>;` | `rc=0;request=N;` when the operation is complete |
//! | `cmd=ifence;` | `rc=0;request=N;` at once |
//! | `cmd=wait;request=N;` | `rc=0;request=N;` when operation N is complete |
//!
//! N counts the collective operations of a PE: `iallgather`, `allgather`, `ifence` and
//! `kvs-fence`, from 0. All PEs call them in the same order, hence N is the same everywhere and a
//! client knows it before it reads the answer. The gathered values do not come over the socket:
//! the node agent publishes them in memory that the PEs of its node share, before it answers
//! `wait` or `allgather`.

mod fields;
mod frame;
mod request;
mod response;

pub use fields::Fields;
pub use frame::{Decoder, HEADER_LEN, Incoming, InitLine, InitReply, MAX_BODY, MAX_LINE};
pub use request::{Command, Request};
pub use response::{FullInitReply, Reply, Response};
