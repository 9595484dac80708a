//! Serves the commands, whichever version of PMI they came in.

use std::borrow::Cow;

use super::service::check_pair;
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
        match command {
            Command::GetMaxes => self.reply(local, thread_id, Reply::Maxes(Maxes::OURS)),
            Command::GetAppnum => {
                let appnum = self.job.appnum_of(self.rank(local));
                self.reply(local, thread_id, Reply::Appnum(appnum));
            }
            Command::GetUniverseSize => {
                let size = self.job_attribute(b"universeSize");
                let size = size.and_then(|size| size.parse().ok()).unwrap_or(-1);
                self.reply(local, thread_id, Reply::UniverseSize(size));
            }
            Command::FullInit { rank, .. } => self.full_init(local, thread_id, rank),
            Command::JobGetId => {
                let id = self.job.id.clone();
                self.reply(local, thread_id, Reply::JobId(id.into()));
            }
            Command::JobAttr { key } => {
                let value = self
                    .job_attribute(&key)
                    .map(|text| text.to_owned().into_bytes());
                self.reply(local, thread_id, Reply::JobAttr(value.map(Cow::Owned)));
            }
            Command::PutNodeAttr { key, value } => match check_pair(verb, &key, &value) {
                Ok(()) => self.put_node_attribute(local, thread_id, &key, &value),
                Err(refusal) => self.reply(local, thread_id, refusal),
            },
            Command::NodeAttr { key, wait } => match check_pair(verb, &key, b"") {
                Ok(()) => self.node_attribute(local, thread_id, &key, wait),
                Err(refusal) => self.reply(local, thread_id, refusal),
            },
            Command::KvsPut { key, value, .. } => {
                let reply = self
                    .put(local, &key, &value)
                    .unwrap_or_else(|refusal| refusal);
                self.reply(local, thread_id, reply);
            }
            Command::KvsGet {
                source,
                key,
                direct: true,
                ..
            } if self.job.extensions => match u32::try_from(source) {
                Ok(owner) => {
                    let key = key.into_owned();
                    self.ask_for(local, thread_id, verb, &Question::Fetch { owner, key });
                }
                Err(_) => {
                    let text = "a direct get needs the rank that puts the key, as `srcid`";
                    self.reply(local, thread_id, refusal(verb, rc::INVALID_ARG, &text));
                }
            },
            Command::KvsGet { job_id, key, .. } => {
                if job_id.is_none_or(|id| id == self.job.id) {
                    let asking = self.asking_of(local, thread_id, verb);
                    self.kvs_get(asking, &key);
                } else {
                    self.reply(local, thread_id, Reply::KvsGet(None));
                }
            }
            Command::KvsFence { .. } => self.fence(local, thread_id)?,
            Command::Ifence => {
                let fence = self.take_puts(local);
                let request = self.start(local, fence)?;
                self.reply(local, thread_id, Reply::Ifence(request));
            }
            Command::Iallgather { value } => {
                let request = self.start(local, Contribution::Gather(value.into_owned()))?;
                self.reply(local, thread_id, Reply::Iallgather(request));
            }
            Command::Allgather { value } => {
                let request = self.start(local, Contribution::Gather(value.into_owned()))?;
                self.wait_for(local, thread_id, request, WaitKind::Allgather);
            }
            Command::Wait { request } => {
                let started = self.sessions[local].started;
                if request < started {
                    self.wait_for(local, thread_id, request, WaitKind::Wait);
                } else {
                    let text = format!("request {request} is none of the {started} started ones");
                    self.reply(local, thread_id, refusal(verb, rc::INVALID_ARG, &text));
                }
            }
            Command::Data {
                operation,
                root,
                value,
                more,
            } => self.join_with_data(local, thread_id, (operation, root), &value, more)?,
            Command::Send { to, value } => {
                let sent = self.send_message(local, to, value.into_owned());
                let refused = |text| refusal(verb, rc::INVALID_ARG, &text);
                let reply = sent.map_or_else(refused, |()| Reply::Sent);
                self.reply(local, thread_id, reply);
            }
            Command::Receive { from } => {
                self.ask_for(local, thread_id, verb, &Question::Receive { from });
            }
            Command::Ring { count, left, right } => {
                let contribution = match count {
                    1 => Contribution::Ring(left.into_owned(), right.into_owned()),
                    _ => Contribution::Unusable(format!(
                        "PE {} calls itself {count} PEs of a ring",
                        self.rank(local)
                    )),
                };
                // It waits before it joins: only who waits is given its part of the result.
                self.wait_to_start(local, thread_id, WaitKind::Ring)?;
                self.start(local, contribution)?;
            }
            Command::NamePublish { name, port } => {
                let (name, port) = (name.into_owned(), port.into_owned());
                let question = Question::Publish { name, port };
                self.ask_for_name(local, thread_id, verb, &question);
            }
            Command::NameLookup { name } => {
                let question = Question::LookupName {
                    name: name.into_owned(),
                };
                self.ask_for_name(local, thread_id, verb, &question);
            }
            Command::NameUnpublish { name } => {
                let question = Question::Unpublish {
                    name: name.into_owned(),
                };
                self.ask_for_name(local, thread_id, verb, &question);
            }
            Command::Spawn(request) => {
                self.ask_for(local, thread_id, verb, &Question::Spawn(request));
            }
            Command::JobConnect { .. } | Command::JobDisconnect { .. } => {
                let text = "jobs cannot be connected here; publish a name and connect to its port";
                self.reply(local, thread_id, refusal(verb, rc::FAIL, &text));
            }
            Command::Finalize => self.finalize(local, thread_id),
            Command::Abort {
                exit_code, message, ..
            } => self.abort(local, exit_code, &message),
            // First lines, which are dealt with before.
            Command::Init(_) | Command::InitAck { .. } => {}
        }
        Ok(())
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
            first_request: self.sessions[local].started,
        };
        self.reply(local, thread_id, Reply::FullInit(facts));
    }
}
