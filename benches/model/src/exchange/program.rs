//! What a process of the model does: its calls, one after the other.

use shmem_pmi::client::calls::{Fence, Get, Iallgather, Ifence, Initialise, Put, Wait};
use shmem_pmi::client::{Client, ClientConfig, RequestId, Ticket};

/// A call.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Call {
    /// Puts its value under its key; waits for the reply.
    Put,
    /// Fence.
    Fence,
    /// Gets the value of a process and checks it.
    Get(u32),
    /// Starts a fence; waits for nothing.
    Ifence,
    /// Reads the reply to the fence that was started, when it has come.
    WaitFence,
    /// Starts an allgather of its value; waits for nothing.
    Iallgather,
    /// Waits until the result is in the memory of the node.
    WaitGather,
    /// Computes for so many nanoseconds.
    Compute(f64),
}

/// The key of a process.
pub fn key(rank: u32) -> String {
    format!("ep-{rank:07}")
}

/// The value of a process.
pub fn value(rank: u32, len: usize) -> Vec<u8> {
    format!("{rank:08x}").bytes().cycle().take(len).collect()
}

/// What a process waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Waiting {
    Nothing,
    Reply,
    Gather(u64),
}

/// The reply that it waits for.
#[derive(Debug)]
enum Reply {
    Done(Ticket<()>),
    /// That of a get, which has to give this.
    Value(Ticket<Option<Vec<u8>>>, Vec<u8>),
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) client: Client,
    rank: u32,
    calls: std::vec::IntoIter<Call>,
    pub(super) waiting: Waiting,
    reply: Option<Reply>,
    /// When the call that waits began, and whether it is a put.
    began: f64,
    puts: bool,
    /// Its last allgather.
    request: Option<RequestId>,
    /// The end of its last fence that was started.
    fence: Option<Ticket<()>>,
    pub(super) visible: f64,
    pub(super) end: Option<f64>,
}

/// What a call leads to.
pub(super) enum Step {
    /// The process goes on at once.
    On,
    /// It reads what has come.
    Read,
    /// It waits for a reply.
    Reply,
    /// It waits for the result of an allgather.
    Gather(u64),
    /// It computes.
    Compute(f64),
    /// It has no more calls.
    Done,
}

impl Process {
    pub(super) fn new(rank: u32, calls: Vec<Call>) -> Self {
        let mut client = Client::new(ClientConfig {
            rank,
            job_id: None,
            extensions: true,
        });
        client.call(&Initialise).expect("a fresh client");
        Self {
            client,
            rank,
            calls: calls.into_iter(),
            waiting: Waiting::Nothing,
            reply: None,
            began: 0.0,
            puts: false,
            request: None,
            fence: None,
            visible: 0.0,
            end: None,
        }
    }

    /// Makes the next call; its bytes are the client's output then.
    pub(super) fn step(&mut self, len: usize) -> Step {
        const POSSIBLE: &str = "a call that is possible";
        let Some(call) = self.calls.next() else {
            return Step::Done;
        };
        self.puts = call == Call::Put;
        let (rank, client) = (self.rank, &mut self.client);
        let text = |rank| String::from_utf8(value(rank, len)).expect("hexadecimal digits");
        let reply = match call {
            Call::Put => {
                let put = client.call(&Put(&key(rank), text(rank).as_bytes()));
                Reply::Done(put.expect(POSSIBLE))
            }
            Call::Fence => Reply::Done(client.call(&Fence).expect(POSSIBLE)),
            Call::Get(of) => {
                let got = client.call(&Get(&key(of))).expect(POSSIBLE);
                Reply::Value(got, value(of, len))
            }
            Call::Ifence => {
                // The wait goes with it, as in `shmem_pmi::process`.
                let request = client.next_request();
                client.call(&Ifence).expect(POSSIBLE);
                self.fence = Some(client.call(&Wait(request)).expect(POSSIBLE));
                return Step::On;
            }
            Call::WaitFence => {
                let fence = self.fence.take().expect("a fence that was started");
                if let Some(outcome) = fence.take() {
                    outcome.expect("a fence that succeeds");
                    return Step::Read;
                }
                Reply::Done(fence)
            }
            Call::Iallgather => {
                self.request = Some(client.next_request());
                client.call(&Iallgather(&value(rank, len))).expect(POSSIBLE);
                return Step::On;
            }
            Call::WaitGather => {
                return Step::Gather(self.request.expect("an allgather that was started").0);
            }
            Call::Compute(time) => return Step::Compute(time),
        };
        self.reply = Some(reply);
        Step::Reply
    }

    /// It waits, in a call that began then.
    pub(super) fn wait(&mut self, waiting: Waiting, began: f64) {
        self.waiting = waiting;
        self.began = began;
    }

    /// Bytes have come; says whether the reply that it waits for is among them.
    pub(super) fn receive(&mut self, bytes: &[u8]) -> bool {
        self.client
            .handle_bytes(bytes)
            .expect("replies that make sense");
        let come = self.reply.take_if(|reply| match reply {
            Reply::Done(ticket) => ticket.has_come(),
            Reply::Value(ticket, _) => ticket.has_come(),
        });
        match &come {
            None => {}
            Some(Reply::Done(ticket)) => assert_eq!(ticket.take(), Some(Ok(()))),
            Some(Reply::Value(ticket, value)) => {
                let got = ticket.take().and_then(Result::ok).flatten();
                assert_eq!(got.as_ref(), Some(value), "get of process {}", self.rank);
            }
        }
        come.is_some()
    }

    /// What it waited for is there.
    pub(super) fn go_on(&mut self, now: f64) {
        if self.waiting != Waiting::Nothing {
            if !self.puts {
                self.visible += now - self.began;
            }
            self.waiting = Waiting::Nothing;
        }
    }

    /// All that it would send if nothing had to be waited for, for one that stands in for it.
    pub(super) fn all_at_once(mut self, len: usize) -> Vec<u8> {
        while !matches!(self.step(len), Step::Done) {}
        self.client.take_output()
    }
}
