//! What a process of the model does: its calls, one after the other.

use shmem_pmi::client::{Client, ClientConfig, Event, RequestId, Ticket};

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
    Reply(Ticket),
    Gather(u64),
}

/// A process.
#[derive(Debug)]
pub(super) struct Process {
    pub(super) client: Client,
    rank: u32,
    calls: std::vec::IntoIter<Call>,
    pub(super) waiting: Waiting,
    /// When the call that waits began, and whether it is a put.
    began: f64,
    puts: bool,
    /// Its last allgather.
    request: Option<RequestId>,
    /// Its last fence that was started, and whether the reply has come.
    fence: Option<Ticket>,
    fenced: bool,
    /// What its get has to give.
    expected: Option<Vec<u8>>,
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
    Reply(Ticket),
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
        client.initialise().expect("a fresh client");
        Self {
            client,
            rank,
            calls: calls.into_iter(),
            waiting: Waiting::Nothing,
            began: 0.0,
            puts: false,
            request: None,
            fence: None,
            fenced: false,
            expected: None,
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
        match call {
            Call::Put => {
                let put = client.put(&key(rank), text(rank).as_bytes());
                Step::Reply(put.expect(POSSIBLE))
            }
            Call::Fence => Step::Reply(client.fence().expect(POSSIBLE)),
            Call::Get(of) => {
                self.expected = Some(value(of, len));
                Step::Reply(client.get(&key(of)).expect(POSSIBLE))
            }
            Call::Ifence => {
                // The wait goes with it, as in `shmem_pmi::process`.
                let request = client.ifence().expect(POSSIBLE).request;
                self.fence = Some(client.wait(request).expect(POSSIBLE));
                self.fenced = false;
                Step::On
            }
            Call::WaitFence if self.fenced => Step::Read,
            Call::WaitFence => Step::Reply(self.fence.expect("a fence that was started")),
            Call::Iallgather => {
                let started = client.iallgather(&value(rank, len)).expect(POSSIBLE);
                self.request = Some(started.request);
                Step::On
            }
            Call::WaitGather => {
                Step::Gather(self.request.expect("an allgather that was started").0)
            }
            Call::Compute(time) => Step::Compute(time),
        }
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
        let mut mine = false;
        while let Some((ticket, event)) = self.client.poll_event() {
            assert!(!matches!(event, Event::Error(_)), "{event:?}");
            if let Event::Got(value) = &event {
                assert_eq!(value, &self.expected.take(), "get of process {}", self.rank);
            }
            mine |= self.waiting == Waiting::Reply(ticket);
            self.fenced |= self.fence == Some(ticket);
        }
        mine
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
