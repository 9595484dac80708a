//! Other processes of the user that ask what the job does: see [`crate::ps`].
//!
//! Nobody waits for them. Who sends nothing, or takes nothing, has its place until others want it.

use std::io::{self, Read, Write};
use std::os::fd::AsFd;
use std::os::unix::net::{UnixListener, UnixStream};

use shmem_node::sys::peer_user;

use super::LauncherProcess;
use crate::ps::{self, Question, Running, WORD_MAX};
use crate::sys::{Epoll, Interest, monotonic_ns};

/// Tokens of those who ask, from here on.
pub(super) const CLIENTS: u64 = 1 << 60;

/// Most who ask at a time; who comes then takes the place of the one that has been there longest.
const MOST: usize = 16;

struct Client {
    number: u64,
    stream: UnixStream,
    word: Vec<u8>,
    /// What it has still to be told; nothing more is read from it then.
    answer: Vec<u8>,
}

/// The socket, and who is connected to it.
pub(super) struct StatusSocket {
    listener: Option<UnixListener>,
    clients: Vec<Client>,
    last: u64,
    program: String,
    began: u64,
}

impl StatusSocket {
    /// Listens, if the system lets it: a job runs as well without.
    pub(super) fn listen(epoll: &Epoll, program: String) -> Self {
        let listen = || -> io::Result<UnixListener> {
            let listener = UnixListener::bind_addr(&ps::own_address()?)?;
            listener.set_nonblocking(true)?;
            epoll.add(&listener, CLIENTS, Interest::Read)?;
            Ok(listener)
        };
        Self {
            listener: listen().ok(),
            clients: Vec::new(),
            last: 0,
            program,
            began: monotonic_ns(),
        }
    }
}

impl LauncherProcess {
    pub(super) fn asked_ready(&mut self, token: u64) {
        match token {
            CLIENTS => self.accept(),
            _ => self.client_ready(token - CLIENTS),
        }
    }

    fn accept(&mut self) {
        let asked = &mut self.asked;
        let Some(listener) = &asked.listener else {
            return;
        };
        let stream = match listener.accept() {
            Ok((stream, _)) => stream,
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            // No descriptor is free, most likely: who waits would be seen again at once, for ever.
            Err(_) => {
                match asked.clients.is_empty() {
                    true => asked.listener = None,
                    false => drop(asked.clients.remove(0)),
                }
                return;
            }
        };
        let allowed = peer_user(stream.as_fd()).is_ok_and(ps::may_ask);
        if !allowed || stream.set_nonblocking(true).is_err() {
            return;
        }
        if asked.clients.len() >= MOST {
            asked.clients.remove(0);
        }
        asked.last += 1;
        let number = asked.last;
        if self
            .epoll
            .add(&stream, CLIENTS + number, Interest::Read)
            .is_ok()
        {
            asked.clients.push(Client {
                number,
                stream,
                word: Vec::new(),
                answer: Vec::new(),
            });
        }
    }

    fn client_ready(&mut self, number: u64) {
        let Some(at) = self.asked.clients.iter().position(|c| c.number == number) else {
            return;
        };
        let client = &mut self.asked.clients[at];
        if !client.answer.is_empty() {
            return self.write_answer(at);
        }
        let mut part = [0; WORD_MAX];
        match client.stream.read(&mut part) {
            Ok(n @ 1..) => client.word.extend_from_slice(&part[..n]),
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
            Ok(0) | Err(_) => return drop(self.asked.clients.remove(at)),
        }
        match Question::parse(&client.word) {
            Ok(None) => {}
            Err(()) => drop(self.asked.clients.remove(at)),
            Ok(Some(Question::Job)) => {
                let line = self.describe().encode();
                self.answer(number, line);
            }
            Ok(Some(question)) => {
                let stacks = question == Question::Stacks;
                self.root.asked_by(number, stacks, monotonic_ns());
            }
        }
    }

    fn describe(&self) -> Running {
        let (n_pes, n_nodes, state) = self.root.describe();
        Running {
            n_pes,
            n_nodes,
            age_ns: monotonic_ns().saturating_sub(self.asked.began),
            state: state.into(),
            program: self.asked.program.clone(),
        }
    }

    /// Tells a client something, and ends the connection.
    pub(super) fn answer(&mut self, number: u64, mut text: String) {
        if !text.ends_with('\n') {
            text.push('\n');
        }
        if let Some(at) = self.asked.clients.iter().position(|c| c.number == number) {
            self.asked.clients[at].answer = text.into_bytes();
            self.write_answer(at);
        }
    }

    fn write_answer(&mut self, at: usize) {
        let client = &mut self.asked.clients[at];
        while !client.answer.is_empty() {
            match client.stream.write(&client.answer) {
                Ok(n @ 1..) => drop(client.answer.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => {
                    let token = CLIENTS + client.number;
                    if self
                        .epoll
                        .change(&client.stream, token, Interest::Write)
                        .is_ok()
                    {
                        return;
                    }
                    break;
                }
                Ok(_) | Err(_) => break,
            }
        }
        self.asked.clients.remove(at);
    }
}
