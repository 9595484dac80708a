//! The thread of a process that hosts a job without a launcher: sockets for the machine in `host`.

use std::collections::BTreeMap;
use std::io::{self, Read, Write as _};
use std::net::{IpAddr, Shutdown, TcpListener, TcpStream, ToSocketAddrs};
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, MutexGuard};
use std::time::{Duration, Instant};

use shmem_node::sys;

use super::auth::Key;
use super::host::{Action, Conn, Host, Limits};
use super::unique_id::{At, Listener, MakeError, UniqueId};

/// Connections that have not shown the key, and how long they may take to.
const STRANGERS: usize = 128;
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Bytes that the thread's stack has.
const STACK: usize = 256 << 10;
/// Most that is taken from a connection, and connections that are accepted, before others have their turns.
const CHUNK: usize = 16 << 10;
const ACCEPTED: usize = 64;
/// Most bytes for a process that does not take them, before it counts as gone.
const UNSENT_MAX: usize = 64 << 20;
/// Descriptors beside those of the members: strangers, and what a program has open.
const OTHER_DESCRIPTORS: u64 = STRANGERS as u64 + 128;
/// How long a process may take to read that the job ends.
const LAST_WORDS: Duration = Duration::from_secs(2);
/// How long a host that cannot accept leaves it.
const PAUSE: Duration = Duration::from_millis(50);
/// After which silence the kernel asks whether a process's machine is still there.
pub(super) const SILENCE: Duration = Duration::from_secs(15);

/// What others of this process have to know of a job that it hosts.
#[derive(Debug, Default)]
struct Status {
    others_are_in: bool,
    over: bool,
}

#[derive(Debug)]
struct Hosted {
    /// A child that it has forked has no thread that hosts.
    pid: u32,
    key: [u8; Key::LEN],
    status: Mutex<Status>,
    changed: Condvar,
}

static HOSTED: Mutex<Vec<Arc<Hosted>>> = Mutex::new(Vec::new());

fn all_hosted() -> MutexGuard<'static, Vec<Arc<Hosted>>> {
    HOSTED.lock().unwrap_or_else(|e| e.into_inner())
}

impl Hosted {
    fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(|e| e.into_inner())
    }
}

fn hosted_here(id: &UniqueId) -> Option<Arc<Hosted>> {
    let pid = std::process::id();
    let is_it = |hosted: &&Arc<Hosted>| hosted.pid == pid && hosted.key == *id.key().bytes();
    all_hosted().iter().find(is_it).cloned()
}

/// Whether this process hosts the job.
pub(super) fn hosts(id: &UniqueId) -> bool {
    hosted_here(id).is_some()
}

/// Waits until the other processes of the job have left it, if this one hosts it, but no longer than `max`: they need
/// it until then.
pub fn let_others_leave(id: &UniqueId, max: Duration) {
    wait(id, max, |status| !status.others_are_in);
}

/// Waits until all have been told of the end of the job, if this process hosts it, but no longer than `max`.
pub fn let_end_be_told(id: &UniqueId, max: Duration) {
    wait(id, max, |_| false);
}

fn wait(id: &UniqueId, max: Duration, until: impl Fn(&Status) -> bool) {
    if let Some(hosted) = hosted_here(id) {
        let pending = |status: &mut Status| !(status.over || until(status));
        drop(
            hosted
                .changed
                .wait_timeout_while(hosted.status(), max, pending),
        );
    }
}

/// Listens at an address, makes an id that says so, and hosts its job.
pub(super) fn make(address: IpAddr, gathering: Duration) -> Result<UniqueId, MakeError> {
    let host = &address.to_string();
    if address.is_unspecified() {
        return Err(MakeError::Listen {
            at: At(host, 0).to_string(),
            source: io::Error::new(
                io::ErrorKind::InvalidInput,
                "others cannot reach that: name one of this machine's addresses",
            ),
        });
    }
    let listener = listen(host, 0)?;
    let port = listener.local_addr().map_err(|source| MakeError::Os {
        what: "ask for the port of a socket",
        source,
    })?;
    let id = UniqueId::random(Listener::Maker, host, port.port())?;
    host_job(&id, listener, gathering)?;
    Ok(id)
}

/// Listens where the id says, and hosts its job: PE 0 does.
pub(super) fn listen_for(id: &UniqueId, gathering: Duration) -> Result<(), MakeError> {
    let (host, port) = id.address();
    host_job(id, listen(host, port)?, gathering)
}

/// A name may stand for an address that others have for this machine (a service, NAT), or be that of
/// the loopback interface here alone. Then all addresses are listened at.
fn listen(host: &str, port: u16) -> Result<TcpListener, MakeError> {
    let failed = |source| MakeError::Listen {
        at: At(host, port).to_string(),
        source,
    };
    let means_loopback =
        host.eq_ignore_ascii_case("localhost") || host.parse::<std::net::IpAddr>().is_ok();
    let all: Vec<_> = match (host, port).to_socket_addrs() {
        Ok(all) => all.collect(),
        Err(e) if means_loopback => return Err(failed(e)),
        // It may be one that others know, and this machine not or not yet.
        Err(_) => Vec::new(),
    };
    let local = all
        .iter()
        .filter(|at| means_loopback || !at.ip().is_loopback());
    let mut last = None;
    for at in local {
        match TcpListener::bind(at) {
            Ok(listener) => return Ok(listener),
            Err(e) => last = Some(e),
        }
    }
    match last {
        Some(e) if e.kind() != io::ErrorKind::AddrNotAvailable => Err(failed(e)),
        Some(e) if means_loopback => Err(failed(e)),
        _ => TcpListener::bind(("::", port))
            .or_else(|_| TcpListener::bind(("0.0.0.0", port)))
            .map_err(failed),
    }
}

fn host_job(id: &UniqueId, listener: TcpListener, gathering: Duration) -> Result<(), MakeError> {
    let os = |what| move |source| MakeError::Os { what, source };
    listener
        .set_nonblocking(true)
        .map_err(os("prepare the socket where the job's processes meet"))?;
    let limits = Limits {
        strangers: STRANGERS,
        handshake: HANDSHAKE,
        gathering,
        size: super::MAX_SIZE,
    };
    let hosted = Arc::new(Hosted {
        pid: std::process::id(),
        key: *id.key().bytes(),
        status: Mutex::default(),
        changed: Condvar::new(),
    });
    let driver = Driver {
        listener,
        host: Host::new(id.key().clone(), id.job_name(), limits),
        wires: BTreeMap::new(),
        next: 0,
        has_room: false,
        hosted: Arc::clone(&hosted),
    };
    all_hosted().push(hosted);
    sys::spawn_thread(STACK, move || driver.run())
        .map_err(os("start the thread that hosts the job"))
}

/// A connection.
struct Wire {
    stream: TcpStream,
    unsent: Vec<u8>,
    /// What comes is not heard any more. The other end closes when it has read all, or is left alone at this
    /// time: who closed with something unread would take back what was sent last.
    closes: Option<Instant>,
    /// What became of sending.
    failed: Option<io::Error>,
}

struct Driver {
    listener: TcpListener,
    host: Host,
    wires: BTreeMap<Conn, Wire>,
    next: Conn,
    /// There are as many descriptors as the job needs.
    has_room: bool,
    hosted: Arc<Hosted>,
}

impl Driver {
    fn run(mut self) {
        let mut pause = None;
        while !(self.host.is_over() && self.wires.is_empty()) {
            let closings = self.wires.values().filter_map(|wire| wire.closes);
            let deadline = self.host.deadline().into_iter().chain(closings).min();
            let left = deadline.map(|at| at.saturating_duration_since(Instant::now()));
            let max = match (left, pause) {
                (Some(left), Some(pause)) => Some(Duration::min(left, pause)),
                (left, pause) => left.or(pause),
            };
            let listens = pause.take().is_none();
            let wires = self
                .wires
                .values()
                .map(|wire| (wire.stream.as_fd(), !wire.unsent.is_empty()));
            let listener = listens.then_some((self.listener.as_fd(), false));
            let Ok(ready) = sys::wait_any(wires.chain(listener), max) else {
                // No memory for that moment, or more descriptors than a process may have.
                std::thread::sleep(PAUSE);
                continue;
            };
            let conns: Vec<Conn> = self.wires.keys().copied().collect();
            for (conn, _) in conns.iter().zip(&ready).filter(|(_, ready)| **ready) {
                self.serve(*conn);
            }
            if listens && ready.last() == Some(&true) && self.accept().is_err() {
                pause = Some(PAUSE);
            }
            let now = Instant::now();
            self.host.tick(now);
            self.act();
            let stays = |wire: &Wire| wire.closes.is_none_or(|at| now < at);
            self.wires.retain(|_, wire| stays(wire));
            self.make_room();
            self.tell();
        }
        self.hosted.status().over = true;
        self.hosted.changed.notify_all();
        all_hosted().retain(|other| !Arc::ptr_eq(other, &self.hosted));
    }

    /// An error: what has come has to wait.
    fn accept(&mut self) -> io::Result<()> {
        for _ in 0..ACCEPTED {
            let (stream, from) = match self.listener.accept() {
                Ok(accepted) => accepted,
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return Ok(()),
                // It has gone again.
                Err(e) if e.kind() == io::ErrorKind::ConnectionAborted => continue,
                Err(e) => return Err(e),
            };
            let mut nonce = [0; 32];
            let prepared = stream
                .set_nonblocking(true)
                .and_then(|()| stream.set_nodelay(true))
                .and_then(|()| sys::keep_alive(stream.as_fd(), SILENCE))
                .and_then(|()| sys::random(&mut nonce));
            if prepared.is_err() {
                continue;
            }
            let conn = self.next;
            self.next += 1;
            let from = from.ip().to_canonical().to_string();
            self.host.connected(conn, from, nonce, Instant::now());
            let wire = Wire {
                stream,
                unsent: Vec::new(),
                closes: None,
                failed: None,
            };
            self.wires.insert(conn, wire);
            // A whole Hello is mostly there by now, and saves a stranger from being pushed out.
            self.serve(conn);
            self.act();
        }
        Ok(())
    }

    /// Sends and receives what is possible now.
    fn serve(&mut self, conn: Conn) {
        let Some(wire) = self.wires.get_mut(&conn) else {
            return;
        };
        wire.flush();
        let mut bytes = [0; CHUNK];
        match (&wire.stream).read(&mut bytes) {
            Ok(0) => {
                let failed = wire.failed.take();
                self.gone(conn, failed);
            }
            Ok(_) if wire.closes.is_some() => {}
            Ok(n) => self.host.bytes(conn, &bytes[..n], Instant::now()),
            Err(e) if may_go_on(&e) => {}
            Err(e) => self.gone(conn, Some(e)),
        }
    }

    fn gone(&mut self, conn: Conn, failed: Option<io::Error>) {
        self.wires.remove(&conn);
        // So it is where a process ends that has not read all.
        let failed = failed.filter(|e| {
            let ended = [io::ErrorKind::ConnectionReset, io::ErrorKind::BrokenPipe];
            !ended.contains(&e.kind())
        });
        self.host.closed(conn, failed.map(|e| e.to_string()));
    }

    fn act(&mut self) {
        while let Some(action) = self.host.poll_action() {
            match action {
                Action::Send(conn, bytes) => {
                    let Some(wire) = self.wires.get_mut(&conn) else {
                        continue;
                    };
                    wire.unsent.extend_from_slice(&bytes);
                    wire.flush();
                    if wire.unsent.len() > UNSENT_MAX {
                        self.gone(conn, Some(io::Error::other("it does not read")));
                    }
                }
                Action::Close(conn) => {
                    if let Some(wire) = self.wires.get_mut(&conn) {
                        wire.closes = Some(Instant::now() + LAST_WORDS);
                        wire.flush();
                    }
                }
                Action::Drop(conn) => drop(self.wires.remove(&conn)),
            }
        }
    }

    /// Gets the descriptors that the job takes, once it is known how large it is.
    fn make_room(&mut self) {
        if let Some(size) = self.host.size().filter(|_| !self.has_room) {
            self.has_room = true;
            let wanted = size as u64 + OTHER_DESCRIPTORS;
            let has = sys::room_for_descriptors(wanted);
            if has < wanted {
                // The job goes on where nobody listens, too.
                let _ = writeln!(
                    io::stderr(),
                    "shmem: this process hosts a job of {size} PEs and may have {has} files open, of which that takes up to \
                     {wanted}: raise ulimit -n, or let another process make the id"
                );
            }
        }
    }

    fn tell(&self) {
        let others_are_in = self.host.others_are_in();
        let mut status = self.hosted.status();
        if status.others_are_in != others_are_in {
            status.others_are_in = others_are_in;
            self.hosted.changed.notify_all();
        }
    }
}

impl Wire {
    /// Sends what is possible now. A connection that fails may still have something to be read, and its end
    /// is seen there.
    fn flush(&mut self) {
        while !self.unsent.is_empty() {
            match sys::send_now(self.stream.as_fd(), &self.unsent) {
                Ok(n) => drop(self.unsent.drain(..n)),
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) if e.kind() == io::ErrorKind::WouldBlock => return,
                Err(e) => {
                    self.unsent.clear();
                    self.failed = Some(e);
                }
            }
        }
        if self.closes.is_some() {
            let _ = self.stream.shutdown(Shutdown::Write);
        }
    }
}

fn may_go_on(e: &io::Error) -> bool {
    matches!(
        e.kind(),
        io::ErrorKind::WouldBlock | io::ErrorKind::Interrupted
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_address_or_localhost_binds_that_address_alone() {
        for host in ["127.0.0.1", "localhost"] {
            let at = listen(host, 0).unwrap().local_addr().unwrap();
            assert!(at.ip().is_loopback(), "{host}: {at}");
        }
        // Of documentation, so no machine has it.
        listen("192.0.2.1", 0).unwrap_err();
        let error = make([0, 0, 0, 0].into(), HANDSHAKE).unwrap_err();
        assert!(matches!(error, MakeError::Listen { .. }), "{error}");
    }
}
