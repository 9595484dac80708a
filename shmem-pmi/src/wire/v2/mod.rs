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
//! # The ring
//!
//! `ring` comes from Slurm. All PEs call it with a value, and each learns its rank in the ring and
//! the values of its neighbours, of which the first and the last are two:
//!
//! ```text
//! C  cmd=ring;ring-count=1;ring-left=v;ring-right=v;
//! S  cmd=ring-response;rc=0;ring-count=<rank>;ring-left=<of rank-1>;ring-right=<of rank+1>;
//! ```
//!
//! Our server adds `ring-size=<number of PEs>`, which other clients ignore.
//!
//! # Processes that are started again
//!
//! If a PE's process died and another was started in its place, `fullinit-response` has two more
//! fields, which other clients ignore: `restarts=K`, how often, and `first-request=N`, the number
//! of the next collective operation of this PE: the former processes joined all before it.
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
//! | `cmd=kvs-get;srcid=R;key=K;direct=TRUE;` | as to `kvs-get`, when PE R has put K |
//! | `cmd=nla;op=OP;root=R;value=<hex>;more=FALSE;` | `rc=0;request=N;value=<hex>;more=FALSE;` when complete |
//! | `cmd=nla-send;to=R;value=<hex>;` | `rc=0;` at once |
//! | `cmd=nla-recv;from=R;` | `rc=0;value=<hex>;` when PE R has sent a message to this one |
//!
//! The last three carry data of any length through the agents ([`crate::wire::data`]); OP is one of `gather`, `broadcast`, `scatter`,
//! `allgather` and `alltoall`. What does not fit a message comes in parts of at most [`DATA_PART`]
//! bytes, one right behind the other, all but the last with `more=TRUE`; only the last part of a
//! request is answered. A `value` that is absent is empty. Where a PE gives a byte string for each
//! PE, or gets one from each, they are packed as [`crate::wire::data::pack`] does.
//!
//! Replies to `kvs-get` may come late and in another order, where the value is at another agent: a
//! client that sends several at once marks them with `thrid`.
//!
//! N counts the collective operations of a PE: `iallgather`, `allgather`, `ifence`, `nla`,
//! `kvs-fence` and `ring`, from 0. All PEs call them in the same order, hence N is the same
//! everywhere and a client knows it before it reads the answer. The gathered values do not come
//! over the socket: the node agent publishes them in memory that the PEs of its node share, before
//! it answers `wait` or `allgather`.

/// Most bytes in one part of what an operation with data carries, before hexadecimal coding.
pub const DATA_PART: usize = 24 << 10;

mod frame;
mod message;

pub use frame::{Decoder, HEADER_LEN, Incoming, MAX_BODY, MAX_LINE};
pub use message::{Request, Response};
