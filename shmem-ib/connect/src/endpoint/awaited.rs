//! For what a thread waits in the endpoint, told to who asked for it ([`Endpoint::on_wait`](super::Endpoint::on_wait)) when
//! the wait begins to be serious: when nothing has come while it polled, and it is about to sleep. So it
//! costs nothing where answers come soon.

#![forbid(unsafe_code)]

/// What a wait is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Awaited {
    /// The address of a peer, which has not come.
    Address(u32),
    /// The answer of a peer to a request for a connection.
    Connection(u32),
    /// Word from a peer of its memory.
    Memory(u32),
    /// One operation towards a peer.
    Operation(u32),
    /// Room for one more operation, or the end of an operation of no particular peer.
    Room,
    /// Operations that were started before.
    Quiet {
        /// The peer that is waited for at the moment.
        pe: u32,
        /// How many of those towards it are not complete.
        operations: u64,
        /// How many peers come after it.
        more: u32,
    },
    /// The end of all operations, before the endpoint is closed.
    Close,
    /// The farewell of peers.
    Leave,
}

/// Who is told of waits. The calls come under the endpoint's lock, and must not call the endpoint.
pub trait Watch: Send + Sync {
    /// A thread is about to sleep for the first time in a wait; gives a number for it, if it wants to
    /// hear more.
    fn begins(&self, what: Awaited) -> Option<usize>;
    /// It is about to sleep again.
    fn goes_on(&self, wait: usize, what: Awaited);
    /// It goes on.
    fn ends(&self, wait: usize);
}

/// What became of a connection.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum LinkChange {
    /// Operations may use it.
    Opened {
        /// Nanoseconds from when it was wanted; `None` where it was the peer that wanted it.
        took: Option<u64>,
    },
    /// Its queue pair is no more.
    Closed,
}

/// Told of a connection: to whom, what became of it, and how many queue pairs there are.
pub(super) type TellLink = Box<dyn Fn(u32, LinkChange, u32) + Send + Sync>;

/// A wait that was told of; it ends when this is dropped.
pub(super) struct Told<'a> {
    watch: &'a dyn Watch,
    wait: usize,
}

impl<'a> Told<'a> {
    pub(super) fn begin(watch: &'a dyn Watch, what: Awaited) -> Option<Self> {
        let wait = watch.begins(what)?;
        Some(Self { watch, wait })
    }

    pub(super) fn go_on(&self, what: Awaited) {
        self.watch.goes_on(self.wait, what);
    }
}

impl Drop for Told<'_> {
    fn drop(&mut self) {
        self.watch.ends(self.wait);
    }
}
