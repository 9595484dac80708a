//! Serves the commands, whichever version of PMI they came in.

use std::borrow::Cow;

use super::{NodeServer, Phase, rc, refusal};
use crate::question::Question;
use crate::server::WaitKind;
use crate::server::operation::Contribution;
use crate::wire::{Command, FullInitReply, Maxes, Reply, Verb};

impl NodeServer {
    /// Serves one command. An error is fatal to the PE's connection.
    pub(super) fn serve(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        command: Command<'_>,
    ) -> Result<(), String> {
        let verb = command.verb();
        let mut ask = |question| self.ask_for(local, thread_id, verb, &question);
        match command {
            Command::Receive { from } => ask(Question::Receive { from }),
            Command::NamePublish { name, port } => {
                let (name, port) = (name.into_owned(), port.into_owned());
                ask(Question::Publish { name, port });
            }
            Command::NameLookup { name } => ask(Question::LookupName {
                name: name.into_owned(),
            }),
            Command::NameUnpublish { name } => ask(Question::Unpublish {
                name: name.into_owned(),
            }),
            Command::Spawn(request) => ask(Question::Spawn(request)),
            Command::FullInit { rank, .. } => self.full_init(local, thread_id, rank),
            Command::PutNodeAttr { key, value } => {
                self.put_node_attribute(local, thread_id, &key, &value);
            }
            Command::NodeAttr { key, wait } => self.node_attribute(local, thread_id, &key, wait),
            Command::KvsGet {
                source,
                key,
                direct: true,
                ..
            } if self.job.extensions => self.get_direct(local, thread_id, source, &key),
            Command::KvsGet { job_id, key, .. }
                if job_id.as_deref().is_none_or(|id| id == self.job.id) =>
            {
                self.kvs_get(self.asking_of(local, thread_id, verb), &key);
            }
            Command::KvsFence { .. } => self.fence(local, thread_id)?,
            Command::Allgather { value } => {
                let request = self.start(local, Contribution::Gather(value.into_owned()))?;
                self.wait_for(local, thread_id, request, WaitKind::Allgather);
            }
            Command::Wait { request } if request < self.sessions[local].started() => {
                self.wait_for(local, thread_id, request, WaitKind::Wait);
            }
            Command::Data {
                operation,
                root,
                value,
                more,
            } => self.join_with_data(local, thread_id, (operation, root), &value, more)?,
            Command::Ring { count, left, right } => {
                let ends = (left.into_owned(), right.into_owned());
                self.join_ring(local, thread_id, count, ends)?;
            }
            Command::Finalize => self.finalize(local, thread_id),
            Command::Abort {
                exit_code, message, ..
            } => self.abort(local, exit_code, &message),
            command @ (Command::GetMaxes
            | Command::GetAppnum
            | Command::GetUniverseSize
            | Command::JobGetId
            | Command::JobAttr { .. }
            | Command::KvsPut { .. }
            | Command::KvsGet { .. }
            | Command::Ifence
            | Command::Iallgather { .. }
            | Command::Wait { .. }
            | Command::Send { .. }
            | Command::JobConnect { .. }
            | Command::JobDisconnect { .. }) => {
                let reply = self.answer_at_once(local, command)?;
                self.reply(local, thread_id, reply);
            }
            // First lines, which are dealt with before.
            Command::Init(_) | Command::InitAck { .. } => {}
        }
        Ok(())
    }

    /// The reply to a command that the server answers at once.
    fn answer_at_once(
        &mut self,
        local: usize,
        command: Command<'_>,
    ) -> Result<Reply<'static>, String> {
        let verb = command.verb();
        Ok(match command {
            Command::GetMaxes => Reply::Maxes(Maxes::OURS),
            Command::GetAppnum => Reply::Appnum(self.job.appnum_of(self.rank(local))),
            Command::GetUniverseSize => {
                let size = self.job_attribute(b"universeSize");
                Reply::UniverseSize(size.and_then(|size| size.parse().ok()).unwrap_or(-1))
            }
            Command::JobGetId => Reply::JobId(self.job.id.clone().into()),
            Command::JobAttr { key } => {
                let value = self.job_attribute(&key).map(str::to_owned);
                Reply::JobAttr(value.map(|text| Cow::Owned(text.into_bytes())))
            }
            Command::KvsPut { key, value, .. } => self
                .put(local, &key, &value)
                .unwrap_or_else(|refusal| refusal),
            // Of another job.
            Command::KvsGet { .. } => Reply::KvsGet(None),
            Command::Ifence => {
                let fence = self.take_puts(local);
                Reply::Ifence(self.start(local, fence)?)
            }
            Command::Iallgather { value } => {
                let value = Contribution::Gather(value.into_owned());
                Reply::Iallgather(self.start(local, value)?)
            }
            Command::Wait { request } => {
                let started = self.sessions[local].started();
                let text = format!("request {request} is none of the {started} started ones");
                refusal(verb, rc::INVALID_ARG, &text)
            }
            Command::Send { to, value } => match self.send_message(local, to, value.into_owned()) {
                Ok(()) => Reply::Sent,
                Err(text) => refusal(verb, rc::INVALID_ARG, &text),
            },
            Command::JobConnect { .. } | Command::JobDisconnect { .. } => {
                let text = "jobs cannot be connected here; publish a name and connect to its port";
                refusal(verb, rc::FAIL, &text)
            }
            // `serve` answers the other commands itself.
            _ => refusal(verb, rc::FAIL, &"it is not served"),
        })
    }

    /// The PE takes part in a scan, as `count` PEs: each of ours is one.
    fn join_ring(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        count: u32,
        (left, right): (Vec<u8>, Vec<u8>),
    ) -> Result<(), String> {
        let contribution = match count {
            1 => Contribution::Ring(left, right),
            _ => Contribution::Unusable(format!(
                "PE {} calls itself {count} PEs of a ring",
                self.rank(local)
            )),
        };
        // The PE waits before it joins: the server gives its part of the result only to a PE that waits.
        self.wait_to_start(local, thread_id, WaitKind::Ring)?;
        self.start(local, contribution)?;
        Ok(())
    }

    /// The PE gets the value of a key from the PE that puts it, fenced or not.
    fn get_direct(&mut self, local: usize, thread_id: Option<&[u8]>, owner: i64, key: &[u8]) {
        if let Ok(owner) = u32::try_from(owner) {
            let key = key.to_vec();
            self.ask_for(
                local,
                thread_id,
                Verb::KvsGet,
                &Question::Fetch { owner, key },
            );
        } else {
            let text = "a direct get needs the rank that puts the key, as `srcid`";
            let refusal = refusal(Verb::KvsGet, rc::INVALID_ARG, &text);
            self.reply(local, thread_id, refusal);
        }
    }

    fn full_init(&mut self, local: usize, thread_id: Option<&[u8]>, claimed: Option<u32>) {
        let rank = self.rank(local);
        if let Some(claimed) = claimed.filter(|&claimed| claimed != rank) {
            let text = format!("this is the connection of PE {rank}, not of PE {claimed}");
            self.reply(
                local,
                thread_id,
                refusal(Verb::FullInit, rc::INVALID_ARG, &text),
            );
            self.give_up(local, format!("it calls itself PE {claimed}"));
            return;
        }
        self.sessions[local].phase = Phase::Running;
        let spawner = self.job.spawner.clone();
        let facts = FullInitReply {
            rank,
            size: self.job.size,
            appnum: self.job.appnum_of(rank),
            debugged: false,
            verbose: false,
            spawner: spawner.map(Cow::Owned),
            restarts: self.sessions[local].life,
            first_request: self.sessions[local].started(),
        };
        self.reply(local, thread_id, Reply::FullInit(facts));
    }
}
