//! The host of a job without a launcher, as a pure machine: who comes, who may stay, the PMI server for those
//! who did, and the end of all when one ends.
//!
//! Strangers are connections that have not shown the key. There are so many at most, and each has little time
//! and room; who comes beyond pushes out the one that has been silent longest, so neither scans nor floods
//! keep those out who say at once what they have to say.
//!
//! A process of the job is a *member* from its proof on. The first that comes says how large the job is. When
//! all are there, each is told the nodes of all, and speaks PMI. Until then any contradiction (another size,
//! a rank twice, somebody who goes) ends the job for all, because it cannot come about; later it is
//! the problem of who comes too late.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::time::{Duration, Instant};

use zerocopy::IntoBytes;

use super::auth::Key;
use super::hello::{
    Challenge, Claim, Hello, Kind, Nonce, Opener, Proof, Seals, Session, ending, read_ending,
};
use crate::question::Answer;
use crate::ranks::RankSet;
use crate::server::{Job, NodePlace, NodeServer, Output};

/// A connection, by the driver's number. They grow.
pub(super) type Conn = u64;

/// What the driver has to do.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// Send bytes.
    Send(Conn, Vec<u8>),
    /// Close the connection, when all is sent. Nothing more is heard of it.
    Close(Conn),
    /// Close the connection of a stranger, at once.
    Drop(Conn),
}

/// How much is borne.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// Connections that have not shown the key.
    pub(super) strangers: usize,
    /// How long they may take to.
    pub(super) handshake: Duration,
    /// How long the first process waits for the last.
    pub(super) gathering: Duration,
    /// Most processes of a job.
    pub(super) size: u32,
}

enum Stage {
    /// Nothing of worth has come.
    Hello,
    /// The stranger has said Hello with the key, or has heard somebody who did.
    Proof(Box<(Hello, Challenge)>),
}

struct Stranger {
    since: Instant,
    from: String,
    nonce: Nonce,
    came: Vec<u8>,
    stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum State {
    /// Between init and finalize.
    In,
    /// After finalize; may return.
    Out,
    /// Has taken leave.
    Left,
    /// The connection has ended.
    Gone,
}

struct Member {
    conn: Conn,
    claim: Claim,
    from: String,
    frames: Opener,
    seals: Seals,
    state: State,
    /// How often it has initialised.
    inits: u32,
}

/// The job, as far as it has come.
enum Phase {
    /// Not all members are there. The time is that of the first member.
    Gathers(Option<Instant>),
    /// All members have come.
    Runs(Box<NodeServer>),
    /// With a status, and why.
    Ended(i32, String),
}

/// The host.
pub(super) struct Host {
    key: Key,
    name: String,
    limits: Limits,
    phase: Phase,
    strangers: BTreeMap<Conn, Stranger>,
    /// By rank; empty until the size is known.
    members: Vec<Option<Member>>,
    by_conn: HashMap<Conn, u32>,
    /// Who said how large the job is.
    sized_by: u32,
    actions: VecDeque<Action>,
}

impl Host {
    pub(super) fn new(key: Key, name: String, limits: Limits) -> Self {
        Self {
            key,
            name,
            limits,
            phase: Phase::Gathers(None),
            strangers: BTreeMap::new(),
            members: Vec::new(),
            by_conn: HashMap::new(),
            sized_by: 0,
            actions: VecDeque::new(),
        }
    }

    pub(super) fn poll_action(&mut self) -> Option<Action> {
        self.actions.pop_front()
    }

    /// Processes of the job, once one has come.
    pub(super) fn size(&self) -> Option<usize> {
        (!self.members.is_empty()).then_some(self.members.len())
    }

    /// Whether some process but that of the host itself is between init and finalize.
    pub(super) fn others_are_in(&self) -> bool {
        let others = self.members.iter().flatten().filter(|m| !m.claim.hosts);
        others.into_iter().any(|m| m.state == State::In)
    }

    /// Whether nobody can come or go any more.
    pub(super) fn is_over(&self) -> bool {
        match &self.phase {
            Phase::Gathers(_) => false,
            Phase::Runs(_) => self.by_conn.is_empty(),
            Phase::Ended(..) => true,
        }
    }

    /// When [`Host::tick`] is to be called at the latest.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let silent = self
            .strangers
            .values()
            .map(|s| s.since + self.limits.handshake);
        let first = match &self.phase {
            Phase::Gathers(first) => first.and_then(|at| at.checked_add(self.limits.gathering)),
            _ => None,
        };
        silent.chain(first).min()
    }

    /// Somebody has connected, from an address. The nonce has not been used before.
    pub(super) fn connected(&mut self, conn: Conn, from: String, nonce: Nonce, now: Instant) {
        if self.strangers.len() >= self.limits.strangers {
            // Those who have said Hello are likely to go on.
            let says_nothing = |s: &Stranger| matches!(s.stage, Stage::Hello);
            let silent = self.strangers.iter().find(|(_, s)| says_nothing(s));
            let oldest = silent.or_else(|| self.strangers.iter().next());
            if let Some((&oldest, _)) = oldest {
                self.send_away(oldest);
            }
        }
        self.strangers.insert(
            conn,
            Stranger {
                since: now,
                from,
                nonce,
                came: Vec::new(),
                stage: Stage::Hello,
            },
        );
    }

    /// The connection was closed at the other end, or has failed: how.
    pub(super) fn closed(&mut self, conn: Conn, failed: Option<String>) {
        self.strangers.remove(&conn);
        let Some(rank) = self.by_conn.remove(&conn) else {
            return;
        };
        let Some(member) = &mut self.members[rank as usize] else {
            return;
        };
        let state = std::mem::replace(&mut member.state, State::Gone);
        let who = member.name();
        let what = match failed {
            None => "has ended".to_owned(),
            Some(how) => format!("cannot be reached any more ({how})"),
        };
        match &mut self.phase {
            Phase::Gathers(_) => {
                let why = format!("{who} {what} before all PEs of the job had come");
                self.end(1, why);
            }
            Phase::Runs(server) => {
                server.client_closed(rank as usize);
                if state == State::In {
                    self.end(1, format!("{who} {what} without finalize"));
                } else {
                    self.check_inits();
                    self.serve();
                }
            }
            Phase::Ended(..) => {}
        }
    }

    /// Time has passed.
    pub(super) fn tick(&mut self, now: Instant) {
        let over = |s: &Stranger| now.duration_since(s.since) >= self.limits.handshake;
        let late: Vec<Conn> = self
            .strangers
            .iter()
            .filter(|(_, s)| over(s))
            .map(|(&conn, _)| conn)
            .collect();
        for conn in late {
            self.send_away(conn);
        }
        if let Phase::Gathers(Some(first)) = self.phase
            && now.duration_since(first) >= self.limits.gathering
        {
            let ranks = (0u32..).zip(&self.members);
            let missing: RankSet = ranks
                .filter(|(_, member)| member.is_none())
                .map(|(rank, _)| rank)
                .collect();
            let (n, size) = (missing.len(), self.members.len());
            let (s, have) = if n == 1 { ("", "has") } else { ("s", "have") };
            self.end(
                1,
                format!(
                    "PE{s} {missing} of {size} {have} not come within {:?}: {n} process{} with the job's id \
                     did not call init, or cannot connect to its host (SHMEM_INIT_TIMEOUT sets the time)",
                    self.limits.gathering,
                    if n == 1 { "" } else { "es" },
                ),
            );
        }
    }

    /// Bytes came.
    pub(super) fn bytes(&mut self, conn: Conn, bytes: &[u8], now: Instant) {
        let mut rest = bytes;
        if self.strangers.contains_key(&conn) {
            rest = self.greet(conn, rest, now);
        }
        let Some(&rank) = self.by_conn.get(&conn) else {
            return;
        };
        let mut frames = rest;
        loop {
            let Some(member) = &mut self.members[rank as usize] else {
                return;
            };
            member.frames.push(std::mem::take(&mut frames));
            match member.frames.next() {
                Ok(Some((kind, bytes))) => self.frame(rank, kind, &bytes),
                Ok(None) => break,
                Err(_) => {
                    let why = format!(
                        "the connection of {} carries what that process has not sent",
                        member.name()
                    );
                    self.end(1, why);
                }
            }
            if !self.by_conn.contains_key(&conn) {
                return;
            }
        }
        self.serve();
    }

    /// A handshake goes on. Gives what came behind it.
    fn greet<'b>(&mut self, conn: Conn, bytes: &'b [u8], now: Instant) -> &'b [u8] {
        let mut rest = bytes;
        loop {
            let Some(stranger) = self.strangers.get_mut(&conn) else {
                return rest;
            };
            let wanted = match stranger.stage {
                Stage::Hello => Hello::LEN,
                Stage::Proof(_) => Proof::LEN,
            };
            let (part, later) = rest.split_at(rest.len().min(wanted - stranger.came.len()));
            rest = later;
            stranger.came.extend_from_slice(part);
            if stranger.came.len() < wanted {
                return rest;
            }
            let came = std::mem::take(&mut stranger.came);
            match &stranger.stage {
                Stage::Hello => {
                    let Some(hello) = Hello::read(&self.key, &came) else {
                        self.send_away(conn);
                        return &[];
                    };
                    let challenge = Challenge::new(&self.key, &hello, stranger.nonce);
                    self.actions
                        .push_back(Action::Send(conn, challenge.as_bytes().to_vec()));
                    stranger.stage = Stage::Proof(Box::new((hello, challenge)));
                }
                Stage::Proof(said) => {
                    let (hello, challenge) = &**said;
                    if !Proof::holds(&self.key, hello, challenge, &came) {
                        self.send_away(conn);
                        return &[];
                    }
                    let session = Session::new(&self.key, hello, challenge);
                    let claim = hello.claim();
                    let from = self.strangers.remove(&conn).map(|s| s.from);
                    self.admit(conn, claim, from.unwrap_or_default(), session, now);
                    return rest;
                }
            }
        }
    }

    /// Silently.
    fn send_away(&mut self, conn: Conn) {
        self.strangers.remove(&conn);
        self.actions.push_back(Action::Drop(conn));
    }

    /// Somebody who has the key says who he is.
    fn admit(&mut self, conn: Conn, claim: Claim, from: String, session: Session, now: Instant) {
        let member = Member {
            conn,
            claim,
            from,
            frames: Opener::new(session.up),
            seals: session.down,
            state: State::In,
            inits: 1,
        };
        if let Phase::Ended(status, why) = &self.phase {
            let (status, why) = (*status, why.clone());
            return self.refuse(member, status, &why);
        }
        let Claim { rank, size, .. } = claim;
        if rank >= size || size > self.limits.size {
            let most = self.limits.size;
            let why = format!(
                "a process wants to be PE {rank} of {size}: there are PEs from 0 to less than their number, which is {most} at \
                 most"
            );
            return self.refuse(member, 1, &why);
        }
        let contradiction = match self.members.get(rank as usize) {
            _ if self.members.is_empty() => None,
            _ if self.members.len() != size as usize => Some(format!(
                "{} says that the job has {size} PEs, and PE {} that it has {}",
                member.name(),
                self.sized_by,
                self.members.len(),
            )),
            Some(Some(other)) => Some(format!(
                "two processes want to be PE {rank}: pid {} at {} has come first, then pid {} at {}. An id is for one job, \
                 and each of its processes has a rank of its own",
                other.claim.pid, other.from, claim.pid, member.from,
            )),
            _ => None,
        };
        if let Some(why) = contradiction {
            let gathers = matches!(self.phase, Phase::Gathers(_));
            self.refuse(member, 1, &why);
            if gathers {
                self.end(1, why);
            }
            return;
        }
        if self.members.is_empty() {
            self.members.resize_with(size as usize, || None);
            self.sized_by = rank;
        }
        if let Phase::Gathers(first) = &mut self.phase {
            first.get_or_insert(now);
        }
        self.by_conn.insert(conn, rank);
        self.members[rank as usize] = Some(member);
        if self.members.iter().all(Option::is_some) {
            self.begin();
        }
    }

    /// Begins the job, all of whose members are there.
    fn begin(&mut self) {
        let size = self.members.len() as u32;
        let job = Job {
            id: self.name.clone(),
            size,
            ..Job::default()
        };
        let place = NodePlace {
            ranks: (0..size).collect(),
            has_parent: false,
            children: Vec::new(),
        };
        match NodeServer::new(job, place) {
            Ok(server) => self.phase = Phase::Runs(Box::new(server)),
            Err(why) => return self.end(1, format!("the job cannot be served: {why}")),
        }
        let mut numbers = HashMap::new();
        let mut nodes = Vec::with_capacity(4 * size as usize);
        for member in self.members.iter().flatten() {
            let next = numbers.len() as u32;
            let node: u32 = *numbers.entry(member.claim.machine).or_insert(next);
            nodes.extend_from_slice(&node.to_be_bytes());
        }
        for rank in 0..size {
            self.send(rank, Kind::Nodes, &nodes);
        }
    }

    /// A frame of a member.
    fn frame(&mut self, rank: u32, kind: Kind, bytes: &[u8]) {
        let Some(member) = &mut self.members[rank as usize] else {
            return;
        };
        match (kind, &mut self.phase) {
            (Kind::Pmi, Phase::Runs(server)) => server.handle_client_bytes(rank as usize, bytes),
            (Kind::Leaves, Phase::Runs(_)) if member.state == State::In => {
                member.state = State::Out
            }
            (Kind::Returns, Phase::Runs(_)) if member.state == State::Out => {
                member.state = State::In;
                member.inits += 1;
                self.check_inits();
            }
            (_, Phase::Ended(..)) => {}
            (kind, _) => {
                if kind == Kind::End
                    && let Some((status, why)) = read_ending(bytes)
                {
                    return self.ended_by(rank, status, &why);
                }
                let why = format!("{} says {kind:?} at the wrong time", member.name());
                self.end(1, why);
            }
        }
    }

    /// Ends the job if somebody waits for a PE to return that has gone.
    fn check_inits(&mut self) {
        let members = || self.members.iter().flatten();
        let most = members().max_by_key(|m| m.inits);
        let gone = members()
            .filter(|m| m.state == State::Gone)
            .min_by_key(|m| m.inits);
        if let (Some(most), Some(gone)) = (most, gone)
            && gone.inits < most.inits
        {
            let why = format!(
                "PE {} initialises again, but {} has ended after its finalize: all PEs must initialise \
                 equally often",
                most.claim.rank,
                gone.name(),
            );
            self.end(1, why);
        }
    }

    /// Does what the PMI server wants done.
    fn serve(&mut self) {
        loop {
            let Phase::Runs(server) = &mut self.phase else {
                return;
            };
            let Some(output) = server.poll_output() else {
                return;
            };
            match output {
                Output::ToClient { local, bytes } => self.send(local as u32, Kind::Pmi, &bytes),
                Output::Finalized { local } => {
                    if let Some(member) = &mut self.members[local] {
                        member.state = State::Left;
                    }
                }
                Output::Abort {
                    local,
                    exit_code,
                    message,
                } => {
                    let text = message.replace('_', " ");
                    self.ended_by(local as u32, exit_code, &text);
                }
                Output::ProtocolError { text, .. } => self.end(1, text),
                Output::Ask { asker, ticket, .. } => {
                    let reason =
                        "a job without a launcher can neither start others nor find them".into();
                    server.handle_answer(asker, ticket, Answer::Refused { rc: -1, reason });
                }
                // The closed connection has been seen already.
                Output::Lost { .. } | Output::Publish { .. } => {}
                // There is no tree.
                Output::ToParent(_) | Output::ToChild { .. } => {}
            }
        }
    }

    fn send(&mut self, rank: u32, kind: Kind, bytes: &[u8]) {
        if let Some(member) = &mut self.members[rank as usize]
            && self.by_conn.contains_key(&member.conn)
        {
            let mut out = Vec::new();
            member.seals.seal(kind, bytes, &mut out);
            self.actions.push_back(Action::Send(member.conn, out));
        }
    }

    /// Tells one that has come to no job, or to one that does not want it.
    fn refuse(&mut self, mut member: Member, status: i32, why: &str) {
        let mut out = Vec::new();
        member.seals.seal(Kind::End, &ending(status, why), &mut out);
        self.actions.push_back(Action::Send(member.conn, out));
        self.actions.push_back(Action::Close(member.conn));
    }

    /// A member wants the job to end.
    fn ended_by(&mut self, rank: u32, status: i32, words: &str) {
        let who = self.members[rank as usize].as_ref().map(Member::name);
        let who = who.unwrap_or_default();
        let why = match words {
            "" => format!("{who} has ended it"),
            words => format!("{who} has ended it: {words}"),
        };
        self.end(status, why);
    }

    /// Ends the job for all who are in it.
    fn end(&mut self, status: i32, why: String) {
        if matches!(self.phase, Phase::Ended(..)) {
            return;
        }
        let ending = ending(status, &why);
        self.phase = Phase::Ended(status, why);
        for rank in 0..self.members.len() as u32 {
            self.send(rank, Kind::End, &ending);
            if let Some(member) = &mut self.members[rank as usize]
                && self.by_conn.remove(&member.conn).is_some()
            {
                member.state = State::Gone;
                self.actions.push_back(Action::Close(member.conn));
            }
        }
    }
}

impl Member {
    fn name(&self) -> String {
        let Claim { rank, pid, .. } = self.claim;
        format!("PE {rank} (pid {pid} at {})", self.from)
    }
}
