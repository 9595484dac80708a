//! What all versions of PMI ask of the server: attributes, puts, collective operations, and what others
//! have to answer.

use std::borrow::Cow;

use super::{MAX_AHEAD_BYTES, MAX_GATHERED, MAX_PENDING_PUTS, Puts, rc, refusal};
use crate::process_mapping;
use crate::question::{Answer, MAX_LEN, Question};
use crate::server::collective::MAX_AHEAD;
use crate::server::operation::Contribution;
use crate::server::relay::Asking;
use crate::server::{NodeServer, WaitKind, Waiter};
use crate::wire::{MAX_ALLGATHER_VALUE, MAX_KEY, MAX_VALUE, Reply, Verb};

/// Most processes for which a reply to `spawn` has a code each.
const MAX_ERRCODES: u32 = 16 * 1024;

/// Most replies to a PE that may be withheld because of its own requests, collective operations
/// aside: each takes memory here.
const MAX_WITHHELD: u32 = 4096;

/// Most attributes that one PE may add to those of its node.
const MAX_ATTRIBUTES: u32 = 16 * 1024;

impl NodeServer {
    /// The PE joins a fence and waits for its end.
    pub(super) fn fence(&mut self, local: usize, thread_id: Option<&[u8]>) -> Result<(), String> {
        let fence = self.take_puts(local);
        let request = self.start(local, fence)?;
        self.wait_for(local, thread_id, request, WaitKind::Fence);
        Ok(())
    }

    /// Passes a question of the PE on, unless it is larger than agents take. The names of services, and
    /// where they are to be found, are bounded like values.
    pub(super) fn ask_for(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        verb: Verb,
        question: &Question,
    ) {
        let bounded = |text: &[u8]| !text.is_empty() && text.len() <= MAX_VALUE;
        let fits = match question {
            Question::Publish { name, port } => bounded(name) && bounded(port),
            Question::LookupName { name } | Question::Unpublish { name } => bounded(name),
            _ => true,
        };
        if !fits {
            let text = format!("names and ports have 1 to {MAX_VALUE} bytes");
            return self.reply(local, thread_id, refusal(verb, rc::INVALID_ARG, &text));
        }
        let len = question.encode().len();
        if len > MAX_LEN {
            let text = format!("a request of {len} bytes; {MAX_LEN} are possible");
            return self.reply(local, thread_id, refusal(verb, rc::FAIL, &text));
        }
        let mut asking = self.asking_of(local, thread_id, verb);
        if let Question::Spawn(request) = question {
            let procs = request.commands.iter().map(|command| command.procs);
            asking.procs = procs.fold(0, u32::saturating_add);
        }
        self.ask(asking, question);
    }

    pub(in crate::server) fn asking_of(
        &self,
        local: usize,
        thread_id: Option<&[u8]>,
        verb: Verb,
    ) -> Asking {
        Asking {
            local,
            thread_id: thread_id.map(Box::from),
            verb,
            life: self.sessions[local].life,
            procs: 0,
        }
    }

    pub(super) fn job_attribute(&self, key: &[u8]) -> Option<&str> {
        if key == process_mapping::KEY.as_bytes() {
            return Some(&self.job.process_mapping);
        }
        let mut all = self.job.attributes.iter();
        all.find_map(|(name, value)| (name.as_bytes() == key).then_some(value.as_str()))
    }

    pub(super) fn put_node_attribute(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        key: &[u8],
        value: &[u8],
    ) {
        if let Err(refusal) = check_pair(Verb::PutNodeAttr, key, value) {
            return self.reply(local, thread_id, refusal);
        }
        let is_new = self.attributes.get(key).is_none();
        if is_new && self.sessions[local].attributes == MAX_ATTRIBUTES {
            let text = format!("more than {MAX_ATTRIBUTES} attributes put by one PE");
            let refusal = refusal(Verb::PutNodeAttr, rc::FAIL, &text);
            return self.reply(local, thread_id, refusal);
        }
        self.sessions[local].attributes += u32::from(is_new);
        self.reply(local, thread_id, Reply::NodeAttrPut);
        for waiter in self.attributes.put(key, value) {
            let session = &mut self.sessions[waiter.local];
            session.withheld = session.withheld.saturating_sub(1);
            let reply = Reply::NodeAttr(Some(Cow::Borrowed(value)));
            self.reply(waiter.local, waiter.thread_id.as_deref(), reply);
        }
    }

    pub(super) fn node_attribute(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        key: &[u8],
        wait: bool,
    ) {
        if let Err(refusal) = check_pair(Verb::NodeAttr, key, b"") {
            return self.reply(local, thread_id, refusal);
        }
        let value = self.attributes.get(key).map(<[u8]>::to_vec);
        if value.is_some() || !wait {
            let reply = Reply::NodeAttr(value.map(Cow::Owned));
            self.reply(local, thread_id, reply);
        } else if self.may_withhold(local, thread_id, Verb::NodeAttr) {
            let waiter = self.waiter(local, thread_id, WaitKind::Attribute);
            self.attributes.await_put(key, waiter);
        }
    }

    pub(super) fn put(
        &mut self,
        local: usize,
        key: &[u8],
        value: &[u8],
    ) -> Result<Reply<'static>, Reply<'static>> {
        check_pair(Verb::KvsPut, key, value)?;
        if !self.sessions[local].puts.add(key, value) {
            let text = format!("more than {MAX_PENDING_PUTS} bytes put without a fence");
            return Err(refusal(Verb::KvsPut, rc::FAIL, &text));
        }
        self.put_pair(local, key, value);
        Ok(Reply::KvsPut)
    }

    pub(super) fn take_puts(&mut self, local: usize) -> Contribution {
        let Puts { pairs, count } = std::mem::take(&mut self.sessions[local].puts);
        let (pairs, count) = self.fence_pairs(local, pairs, count);
        Contribution::Fence(pairs, count)
    }

    /// The answer to a question of a PE of this node.
    pub(in crate::server) fn answered(&mut self, asking: Asking, answer: Answer) {
        let Asking {
            local,
            thread_id,
            verb,
            life,
            procs,
        } = asking;
        if life != self.sessions[local].life {
            return;
        }
        let reply = match (answer, verb) {
            (Answer::Value { value, .. }, Verb::KvsGet) => Reply::KvsGet(value.map(Cow::Owned)),
            (Answer::Bytes(value), Verb::KvsGet) => Reply::KvsGet(Some(Cow::Owned(value))),
            (Answer::Bytes(message), Verb::Receive) => Reply::Received(Cow::Owned(message)),
            (Answer::Done, Verb::NamePublish) => Reply::NamePublished,
            (Answer::Done, Verb::NameUnpublish) => Reply::NameUnpublished,
            (Answer::Port(port), Verb::NameLookup) => Reply::NameFound(Cow::Owned(port)),
            (Answer::Spawned { job_id }, Verb::Spawn) => Reply::Spawned {
                job_id: Some(Cow::Owned(job_id)),
                // More would fit no message.
                errcodes: vec![
                    0;
                    if procs <= MAX_ERRCODES {
                        procs as usize
                    } else {
                        0
                    }
                ],
            },
            (Answer::Refused { rc, reason }, _) => {
                refusal(verb, if rc == 0 { rc::FAIL } else { rc }, &reason)
            }
            (other, _) => refusal(verb, rc::FAIL, &format!("no answer to it: {other:?}")),
        };
        self.reply(local, thread_id.as_deref(), reply);
    }

    /// The PE joins its next operation; returns the number of it.
    pub(in crate::server) fn start(
        &mut self,
        local: usize,
        contribution: Contribution,
    ) -> Result<u64, String> {
        let request = self.next_request(local)?;
        let completed = self.operations.completed();
        let gathered = self.operations.gathered_by(&contribution);
        // One operation may be as large as it may be, however large.
        if request > completed && gathered.saturating_mul(request + 1 - completed) > MAX_GATHERED {
            return Err(format!(
                "it started so many allgathers which others have not joined that their results could take more than \
                 {MAX_GATHERED} bytes"
            ));
        }
        let started = &mut self.sessions[local].started;
        if !started.begin_next(completed, contribution.len()) {
            return Err(format!(
                "it brought more than {MAX_AHEAD_BYTES} bytes to operations that others have not joined"
            ));
        }
        self.join(local, request, contribution);
        Ok(request)
    }

    /// The PEs of this node from the one at position `first` on bring a value of `len` bytes each to an allgather.
    pub(in crate::server) fn join_for(
        &mut self,
        first: usize,
        len: usize,
        values: &[u8],
    ) -> Result<(), String> {
        let count = values.len().checked_div(len).unwrap_or(0);
        let exist = first
            .checked_add(count)
            .is_some_and(|end| end <= self.sessions.len());
        let whole = count > 0 && values.len() == len * count;
        if !exist || !whole || len > MAX_ALLGATHER_VALUE {
            return Err(format!(
                "{} bytes were brought, {len} of each PE from local PE {first} on",
                values.len()
            ));
        }
        for (at, value) in values.chunks_exact(len).enumerate() {
            self.start(first + at, Contribution::Gather(value.to_vec()))?;
        }
        Ok(())
    }

    /// The number of the operation that the PE would join next.
    fn next_request(&self, local: usize) -> Result<u64, String> {
        let request = self.sessions[local].started();
        match request - self.operations.completed() < MAX_AHEAD {
            true => Ok(request),
            false => Err(format!(
                "it started {MAX_AHEAD} collective operations which others have not joined"
            )),
        }
    }

    /// The PE waits for the operation that it is about to join.
    pub(in crate::server) fn wait_to_start(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        kind: WaitKind,
    ) -> Result<(), String> {
        let request = self.next_request(local)?;
        let waiter = self.waiter(local, thread_id, kind);
        self.operations.add_waiter(request, waiter);
        Ok(())
    }

    pub(super) fn wait_for(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        request: u64,
        kind: WaitKind,
    ) {
        // `answer` counts it back.
        if kind == WaitKind::Wait && !self.may_withhold(local, thread_id, Verb::Wait) {
            return;
        }
        let waiter = self.waiter(local, thread_id, kind);
        if request < self.operations.completed() {
            self.answer(waiter, request);
        } else {
            self.operations.add_waiter(request, waiter);
        }
    }

    /// Counts one more reply that will be withheld, unless the PE has too many: then it is told.
    pub(in crate::server) fn may_withhold(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        verb: Verb,
    ) -> bool {
        let session = &mut self.sessions[local];
        if session.withheld < MAX_WITHHELD {
            session.withheld += 1;
            return true;
        }
        let text = format!("more than {MAX_WITHHELD} requests without a reply");
        self.reply(local, thread_id, refusal(verb, rc::FAIL, &text));
        false
    }

    /// One of these replies is there.
    pub(in crate::server) fn no_longer_withheld(&mut self, local: usize, life: u32) {
        let session = &mut self.sessions[local];
        if session.life == life {
            session.withheld = session.withheld.saturating_sub(1);
        }
    }

    fn waiter(&self, local: usize, thread_id: Option<&[u8]>, kind: WaitKind) -> Waiter {
        Waiter {
            local,
            thread_id: thread_id.map(Box::from),
            kind,
            life: self.sessions[local].life,
        }
    }
}

/// Whether key and value fit the limits; if not, the refusal.
fn check_pair(verb: Verb, key: &[u8], value: &[u8]) -> Result<(), Reply<'static>> {
    if key.is_empty() || key.len() > MAX_KEY {
        let text = format!("key of {} bytes; 1 to {MAX_KEY} are possible", key.len());
        return Err(refusal(verb, rc::INVALID_KEY_LENGTH, &text));
    }
    if value.len() > MAX_VALUE {
        let text = format!("value of {} bytes; {MAX_VALUE} are possible", value.len());
        return Err(refusal(verb, rc::INVALID_VAL_LENGTH, &text));
    }
    Ok(())
}
