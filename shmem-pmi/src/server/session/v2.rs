//! A PE that speaks PMI-2.

use std::borrow::Cow;

use super::service::check_pair;
use super::{NodeServer, Phase, rc, refusal};
use crate::question::Question;
use crate::server::WaitKind;
use crate::server::operation::Contribution;
use crate::wire::WireError;
use crate::wire::v2::{Command, Fields, FullInitReply, Reply};

impl NodeServer {
    /// Serves one message. An error is fatal to the PE's connection.
    pub(super) fn body(&mut self, local: usize, body: &[u8]) -> Result<(), String> {
        let fields = Fields::decode(body).map_err(|error| error.to_string())?;
        let name = || fields.command_text();
        match (self.sessions[local].phase, fields.command()) {
            (Phase::AwaitFullInit, b"fullinit" | b"abort") => {}
            (Phase::AwaitFullInit, _) => {
                return Err(format!("it sent `{}` before `fullinit`", name()));
            }
            (Phase::Finalized, _) => {
                return Err(format!("it sent `{}` after `finalize`", name()));
            }
            (_, b"fullinit") => return Err("it sent `fullinit` twice".to_owned()),
            _ => {}
        }
        let thread_id = fields.thread_id();
        let thread_id = thread_id.as_deref();
        let command = match Command::from_fields(&fields) {
            Ok(command) if command.is_extension() && !self.job.extensions => {
                Err(WireError::UnknownCommand { name: name() })
            }
            other => other,
        };
        let command = match command {
            Ok(command) => command,
            Err(error) => {
                let joins = match fields.command() {
                    b"iallgather" | b"allgather" | b"nla" => self.job.extensions,
                    name => name == b"ring",
                };
                if joins {
                    // The PE did join, so the operation is counted, and fails for all.
                    let reason = format!("PE {}: {error}", self.rank(local));
                    self.start(local, Contribution::Unusable(reason))?;
                }
                self.reply(local, thread_id, refusal(&name(), rc::INVALID_ARG, &error));
                return Ok(());
            }
        };
        self.serve(local, thread_id, command)
    }

    fn serve(
        &mut self,
        local: usize,
        thread_id: Option<&[u8]>,
        command: Command<'_>,
    ) -> Result<(), String> {
        let name = command.name();
        match command {
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
            Command::PutNodeAttr { key, value } => match check_pair(name, &key, &value) {
                Ok(()) => self.put_node_attribute(local, thread_id, &key, &value),
                Err(refusal) => self.reply(local, thread_id, refusal),
            },
            Command::NodeAttr { key, wait } => match check_pair(name, &key, b"") {
                Ok(()) => self.node_attribute(local, thread_id, &key, wait),
                Err(refusal) => self.reply(local, thread_id, refusal),
            },
            Command::KvsPut { key, value } => {
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
                    self.ask_for(local, thread_id, name, &Question::Fetch { owner, key });
                }
                Err(_) => {
                    let text = "a direct get needs the rank that puts the key, as `srcid`";
                    self.reply(local, thread_id, refusal(name, rc::INVALID_ARG, &text));
                }
            },
            Command::KvsGet { job_id, key, .. } => {
                if job_id.is_none_or(|id| id == self.job.id) {
                    let asking = self.asking_of(local, thread_id, name);
                    self.kvs_get(asking, &key);
                } else {
                    self.reply(local, thread_id, Reply::KvsGet(None));
                }
            }
            Command::KvsFence => self.fence(local, thread_id)?,
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
                    self.reply(local, thread_id, refusal(name, rc::INVALID_ARG, &text));
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
                let refused = |text| refusal(name, rc::INVALID_ARG, &text);
                let reply = sent.map_or_else(refused, |()| Reply::Sent);
                self.reply(local, thread_id, reply);
            }
            Command::Receive { from } => {
                self.ask_for(local, thread_id, name, &Question::Receive { from });
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
            Command::NamePublish { name: of, port } => {
                let (of, port) = (of.into_owned(), port.into_owned());
                let question = Question::Publish { name: of, port };
                self.ask_for_name(local, thread_id, name, &question);
            }
            Command::NameLookup { name: of } => {
                let question = Question::LookupName {
                    name: of.into_owned(),
                };
                self.ask_for_name(local, thread_id, name, &question);
            }
            Command::NameUnpublish { name: of } => {
                let question = Question::Unpublish {
                    name: of.into_owned(),
                };
                self.ask_for_name(local, thread_id, name, &question);
            }
            Command::Spawn(request) => {
                self.ask_for(local, thread_id, name, &Question::Spawn(request));
            }
            Command::JobConnect { .. } | Command::JobDisconnect { .. } => {
                let text = "jobs cannot be connected here; publish a name and connect to its port";
                self.reply(local, thread_id, refusal(name, rc::FAIL, &text));
            }
            Command::Finalize => self.finalize(local, thread_id),
            Command::Abort {
                exit_code, message, ..
            } => self.abort(local, exit_code, &message),
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
                refusal("fullinit", rc::INVALID_ARG, &text),
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
