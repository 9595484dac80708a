//! Gets as messages: the PMI server of a node in this process, and clients in the readers.

use std::io::{self, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::os::unix::net::UnixStream;

use shmem_node::kvs::{MAX_VALUE, Store};
use shmem_pmi::client::calls::{Get, Initialise};
use shmem_pmi::client::{Client, ClientConfig};
use shmem_pmi::io::Connection;
use shmem_pmi::server::{Job, MapStore, NodePlace, NodeServer, NodeStore, Output};
use shmem_pmi::tree::Tree;

use crate::Outcome;

/// The server and its ends of the readers' sockets.
pub(crate) struct Server {
    server: NodeServer,
    sockets: Vec<UnixStream>,
    epoll: OwnedFd,
}

impl Server {
    /// A server whose key-value space has all `keys`; the second half are the readers' sockets.
    pub(crate) fn new(
        readers: u32,
        keys: &[String],
        value: &[u8],
    ) -> Outcome<(Self, Vec<OwnedFd>)> {
        let job = Job {
            id: "pmi_get".into(),
            size: readers,
            ..Job::default()
        };
        let mut store = MapStore::default();
        for key in keys {
            store.insert(key.as_bytes(), value)?;
        }
        let node_of = vec![0; readers as usize];
        let place = NodePlace::in_tree(&Tree::new(1, 2), 0, &node_of);
        let server = NodeServer::with_store(job, place, Box::new(store))?;
        // SAFETY: plain system call; the descriptor is new.
        let epoll = unsafe {
            let fd = libc::epoll_create1(libc::EPOLL_CLOEXEC);
            check(fd)?;
            OwnedFd::from_raw_fd(fd)
        };
        let (mut sockets, mut theirs) = (Vec::new(), Vec::new());
        for reader in 0..readers {
            let (own, other) = UnixStream::pair()?;
            let mut event = libc::epoll_event {
                events: libc::EPOLLIN as u32,
                u64: u64::from(reader),
            };
            // SAFETY: both descriptors are open, the event is readable.
            check(unsafe {
                let (epoll, own) = (epoll.as_raw_fd(), own.as_raw_fd());
                libc::epoll_ctl(epoll, libc::EPOLL_CTL_ADD, own, &mut event)
            })?;
            sockets.push(own);
            theirs.push(OwnedFd::from(other));
        }
        let made = Self {
            server,
            sockets,
            epoll,
        };
        Ok((made, theirs))
    }

    /// Serves the readers until `done`, which is looked at every millisecond at least.
    pub(crate) fn serve_until(&mut self, done: impl Fn() -> bool) -> Outcome<()> {
        let mut events = [libc::epoll_event { events: 0, u64: 0 }; 64];
        let mut buffer = [0; 4096];
        while !done() {
            // SAFETY: the events are writable and as many as said.
            let n = unsafe { libc::epoll_wait(self.epoll.as_raw_fd(), events.as_mut_ptr(), 64, 1) };
            for event in &events[..n.max(0) as usize] {
                let local = event.u64 as usize;
                match self.sockets[local].read(&mut buffer)? {
                    0 => {
                        self.server.client_closed(local);
                        // SAFETY: both descriptors are open.
                        check(unsafe {
                            let (epoll, own) =
                                (self.epoll.as_raw_fd(), self.sockets[local].as_raw_fd());
                            let none = std::ptr::null_mut();
                            libc::epoll_ctl(epoll, libc::EPOLL_CTL_DEL, own, none)
                        })?;
                    }
                    len => self.server.handle_client_bytes(local, &buffer[..len]),
                }
                while let Some(output) = self.server.poll_output() {
                    if let Output::ToClient { local, bytes } = output {
                        self.sockets[local].write_all(&bytes)?;
                    }
                }
            }
        }
        Ok(())
    }
}

fn check(rc: RawFd) -> io::Result<()> {
    match rc {
        -1 => Err(io::Error::last_os_error()),
        _ => Ok(()),
    }
}

/// A reader's client.
pub(crate) struct Message(Connection);

impl Message {
    /// In the reader: takes its socket and begins.
    pub(crate) fn attach(sockets: &[OwnedFd], reader: u32) -> Outcome<Self> {
        let socket = sockets[reader as usize].try_clone()?;
        let config = ClientConfig {
            rank: reader,
            job_id: None,
            extensions: false,
        };
        let connection = Connection::new(socket, Client::new(config), None)?;
        connection.call(&Initialise)?;
        Ok(Self(connection))
    }
}

impl Store for Message {
    fn get(&self, key: &[u8], value: &mut [u8; MAX_VALUE]) -> Option<usize> {
        let found = self.0.call(&Get(std::str::from_utf8(key).ok()?)).ok()??;
        value.get_mut(..found.len())?.copy_from_slice(&found);
        Some(found.len())
    }
}
