//! Host and guests against each other, with bytes passed by hand, and against strangers.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use proptest::prelude::*;

use super::auth::Key;
use super::guest::{Guest, News};
use super::hello::{Claim, Hello, Kind, Nonce, Seals};
use super::host::{Action, Conn, Host, Limits};

const LIMITS: Limits = Limits {
    strangers: 4,
    handshake: Duration::from_secs(10),
    gathering: Duration::from_secs(60),
    size: 100,
};

fn key() -> Key {
    Key::new([7; 32])
}

fn nonce(of: u64) -> Nonce {
    let mut nonce = [0; 32];
    nonce[..8].copy_from_slice(&of.to_be_bytes());
    nonce
}

fn claim(rank: u32, size: u32) -> Claim {
    Claim {
        rank,
        size,
        pid: 1000 + rank,
        hosts: rank == 0,
        machine: [0; 32],
    }
}

/// A guest, and what it has heard.
struct Player {
    guest: Guest,
    seals: Option<Seals>,
    news: Vec<News>,
    closed: bool,
}

impl Player {
    fn sealed(&mut self, kind: Kind, bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::new();
        self.seals
            .as_mut()
            .expect("admitted")
            .seal(kind, bytes, &mut out);
        out
    }

    fn end(&self) -> Option<(i32, &str)> {
        self.news.iter().find_map(|new| match new {
            News::End { status, why } => Some((*status, &why[..])),
            _ => None,
        })
    }

    fn nodes(&self) -> Option<&[u32]> {
        self.news.iter().find_map(|new| match new {
            News::Nodes(nodes) => Some(&nodes[..]),
            _ => None,
        })
    }
}

struct Table {
    host: Host,
    now: Instant,
    next: Conn,
    players: BTreeMap<Conn, Player>,
    /// What went to those who are no players.
    to_strangers: BTreeMap<Conn, usize>,
    dropped: Vec<Conn>,
}

impl Table {
    fn new() -> Self {
        Self {
            host: Host::new(key(), "job".into(), LIMITS),
            now: Instant::now(),
            next: 0,
            players: BTreeMap::new(),
            to_strangers: BTreeMap::new(),
            dropped: Vec::new(),
        }
    }

    /// Somebody connects and says nothing.
    fn connects(&mut self) -> Conn {
        let conn = self.next;
        self.next += 1;
        self.host
            .connected(conn, format!("10.0.0.{conn}"), nonce(conn), self.now);
        self.act();
        conn
    }

    /// A guest comes.
    fn comes(&mut self, claim: Claim) -> Conn {
        self.comes_with(&key(), claim)
    }

    fn comes_with(&mut self, key: &Key, claim: Claim) -> Conn {
        let conn = self.connects();
        let (guest, hello) = Guest::new(key, &claim, nonce(1 << 32 | conn));
        let player = Player {
            guest,
            seals: None,
            news: Vec::new(),
            closed: false,
        };
        self.players.insert(conn, player);
        self.says(conn, &hello);
        conn
    }

    fn says(&mut self, conn: Conn, bytes: &[u8]) {
        self.host.bytes(conn, bytes, self.now);
        self.act();
    }

    fn goes(&mut self, conn: Conn) {
        self.host.closed(conn, None);
        self.act();
    }

    fn passes(&mut self, time: Duration) {
        self.now += time;
        self.host.tick(self.now);
        self.act();
    }

    fn act(&mut self) {
        while let Some(action) = self.host.poll_action() {
            match action {
                Action::Send(conn, bytes) => {
                    let Some(player) = self.players.get_mut(&conn) else {
                        *self.to_strangers.entry(conn).or_default() += bytes.len();
                        continue;
                    };
                    let news = player.guest.handle(&bytes).expect("the host's own");
                    if let Some(seals) = player.guest.take_seals() {
                        player.seals = Some(seals);
                    }
                    for new in news {
                        if let News::Proof(proof) = &new {
                            self.host.bytes(conn, proof, self.now);
                        }
                        player.news.push(new);
                    }
                }
                Action::Close(conn) => {
                    if let Some(player) = self.players.get_mut(&conn) {
                        player.closed = true;
                    }
                }
                Action::Drop(conn) => self.dropped.push(conn),
            }
        }
    }

    fn pmi(&mut self, conn: Conn, line: &str) -> String {
        let player = self.players.get_mut(&conn).unwrap();
        let before = player.news.len();
        let frame = player.sealed(Kind::Pmi, line.as_bytes());
        self.says(conn, &frame);
        let news = &self.players[&conn].news[before..];
        let mut answer = String::new();
        for new in news {
            if let News::Pmi(bytes) = new {
                answer += std::str::from_utf8(bytes).unwrap();
            }
        }
        answer
    }

    fn frame(&mut self, conn: Conn, kind: Kind) {
        let frame = self.players.get_mut(&conn).unwrap().sealed(kind, &[]);
        self.says(conn, &frame);
    }

    fn end_of(&self, conn: Conn) -> &str {
        self.players[&conn].end().expect("it was told the end").1
    }
}

/// A job of three that has come together.
fn three() -> (Table, [Conn; 3]) {
    let mut table = Table::new();
    let conns = [2, 0, 1].map(|rank| table.comes(claim(rank, 3)));
    let [two, zero, one] = conns;
    for conn in [zero, one, two] {
        assert_eq!(table.players[&conn].nodes(), Some(&[0, 0, 0][..]));
        let init = table.pmi(conn, "cmd=init pmi_version=1 pmi_subversion=1\n");
        assert!(init.contains("rc=0"), "{init}");
    }
    (table, [zero, one, two])
}

#[test]
fn a_job_gathers_speaks_pmi_and_leaves() {
    let (mut table, conns) = three();
    let put = table.pmi(conns[2], "cmd=put kvsname=job key=k value=v\n");
    assert!(put.contains("rc=0"), "{put}");
    for conn in conns {
        let line = "cmd=barrier_in\n";
        let last = table.pmi(conn, line).contains("barrier_out");
        assert_eq!(last, conn == conns[2]);
    }
    let got = table.pmi(conns[0], "cmd=get kvsname=job key=k\n");
    assert!(got.contains("value=v"), "{got}");
    // PE 0 hosts, and waits for the others' finalize.
    assert!(table.host.others_are_in());
    for conn in conns {
        table.frame(conn, Kind::Leaves);
    }
    assert!(!table.host.others_are_in());
    for conn in conns {
        assert!(table.pmi(conn, "cmd=finalize\n").contains("finalize_ack"));
        assert!(!table.host.is_over());
        table.goes(conn);
    }
    assert!(table.host.is_over());
    assert!(conns.iter().all(|conn| table.players[conn].end().is_none()));
}

#[test]
fn nodes_are_numbered_by_machine() {
    let mut table = Table::new();
    let of = |rank, machine| Claim {
        machine: [machine; 32],
        ..claim(rank, 4)
    };
    let conns = [(3, 5), (1, 9), (0, 9), (2, 5)].map(|(rank, m)| table.comes(of(rank, m)));
    for conn in conns {
        assert_eq!(table.players[&conn].nodes(), Some(&[0, 0, 1, 1][..]));
    }
}

#[test]
fn the_death_of_one_is_told_to_all() {
    let (mut table, [zero, one, two]) = three();
    table.goes(one);
    for conn in [zero, two] {
        let (status, why) = table.players[&conn].end().unwrap();
        assert_eq!(status, 1);
        assert!(
            why.contains("PE 1 (pid 1001 at 10.0.0.2) has ended without finalize"),
            "{why}"
        );
        assert!(table.players[&conn].closed);
    }
    assert!(table.host.is_over());
    // Who comes too late is told the same.
    let late = table.comes(claim(1, 3));
    assert!(table.end_of(late).contains("PE 1"));
}

#[test]
fn an_abort_is_passed_on_with_its_status_and_words() {
    let (mut table, [zero, one, _]) = three();
    table.pmi(one, "cmd=abort exitcode=9 message=no_more_disk\n");
    let (status, why) = table.players[&zero].end().unwrap();
    assert_eq!(status, 9);
    assert!(why.starts_with("PE 1 (pid"), "{why}");
    assert!(why.ends_with("has ended it: no more disk"), "{why}");
    // The same by a frame of our own.
    let (mut table, [zero, one, _]) = three();
    let body = super::hello::ending(3, "SHMEM_X is wrong");
    let frame = table
        .players
        .get_mut(&one)
        .unwrap()
        .sealed(Kind::End, &body);
    table.says(one, &frame);
    let (status, why) = table.players[&zero].end().unwrap();
    assert_eq!(status, 3);
    assert!(why.ends_with("has ended it: SHMEM_X is wrong"), "{why}");
}

#[test]
fn contradictions_end_a_job_that_gathers_and_not_one_that_runs() {
    for (second, parts) in [
        (claim(1, 4), ["PE 1", "has 4 PEs, and PE 0 that it has 3"]),
        (
            claim(0, 3),
            ["two processes want to be PE 0", "pid 1000 at 10.0.0.1"],
        ),
    ] {
        let mut table = Table::new();
        let first = table.comes(claim(0, 3));
        let second = table.comes(second);
        for conn in [first, second] {
            for part in parts {
                assert!(table.end_of(conn).contains(part), "{}", table.end_of(conn));
            }
        }
        let (mut table, conns) = three();
        let late = table.comes(claim(1, 3));
        assert!(table.end_of(late).contains("two processes"));
        let larger = table.comes(claim(3, 4));
        assert!(table.end_of(larger).contains("has 4 PEs"));
        assert!(conns.iter().all(|conn| table.players[conn].end().is_none()));
    }
    for odd in [claim(3, 3), claim(0, 0), claim(5, 101)] {
        let mut table = Table::new();
        let conn = table.comes(odd);
        assert!(table.end_of(conn).contains("a process wants to be PE"));
        assert_eq!(table.host.size(), None);
    }
}

#[test]
fn who_is_missing_is_told_when_the_time_is_over() {
    let mut table = Table::new();
    // Nobody has come: nothing is waited for.
    table.passes(LIMITS.gathering * 2);
    assert_eq!(table.host.deadline(), None);
    let conns = [1, 4].map(|rank| table.comes(claim(rank, 6)));
    table.passes(LIMITS.gathering - Duration::from_secs(1));
    assert!(table.players[&conns[0]].end().is_none());
    table.passes(Duration::from_secs(1));
    for conn in conns {
        let why = table.end_of(conn);
        assert!(
            why.starts_with("PEs 0,2-3,5 of 6 have not come within 60s: 4 processes"),
            "{why}"
        );
    }
}

#[test]
fn who_goes_while_the_job_gathers_ends_it() {
    let mut table = Table::new();
    let conns = [1, 2].map(|rank| table.comes(claim(rank, 6)));
    table.goes(conns[0]);
    assert!(
        table
            .end_of(conns[1])
            .contains("PE 1 (pid 1001 at 10.0.0.0) has ended before")
    );
}

#[test]
fn who_does_not_return_is_waited_for_by_nobody() {
    for goes_first in [true, false] {
        let (mut table, [zero, one, two]) = three();
        for conn in [zero, one, two] {
            table.frame(conn, Kind::Leaves);
        }
        if goes_first {
            table.goes(one);
            assert!(table.players[&zero].end().is_none());
            table.frame(zero, Kind::Returns);
        } else {
            table.frame(zero, Kind::Returns);
            assert!(table.players[&zero].end().is_none());
            table.goes(one);
        }
        let why = table.end_of(zero);
        assert!(why.contains("PE 0 initialises again, but PE 1"), "{why}");
        // Those that are out are told, too, and need not mind.
        assert!(table.players[&two].closed);
    }
}

#[test]
fn strangers_hear_nothing_and_do_not_stay() {
    let mut table = Table::new();
    let silent = table.connects();
    let garbage = table.connects();
    // The table has room for this many bytes of a stranger.
    assert_eq!(Hello::LEN, 120);
    table.says(garbage, &[b'x'; Hello::LEN + 100]);
    let other = table.comes_with(&Key::new([8; 32]), claim(0, 2));
    assert_eq!(table.dropped, [garbage, other]);
    assert!(table.players[&other].news.is_empty() && table.to_strangers.is_empty());
    // What comes behind is nobody's.
    table.says(garbage, b"GET / HTTP/1.1\r\n\r\n");
    table.passes(LIMITS.handshake);
    assert_eq!(table.dropped, [garbage, other, silent]);
    assert!(table.to_strangers.is_empty());
    // Nor do they stand in anybody's way.
    for _ in 0..100 {
        let conn = table.connects();
        table.says(conn, b"half a");
    }
    let conns = [0, 1].map(|rank| table.comes(claim(rank, 2)));
    assert!(table.players[&conns[1]].nodes().is_some());
    assert!(table.dropped.len() >= 100 + 3 - LIMITS.strangers);
}

#[test]
fn a_hello_that_is_repeated_gives_no_place() {
    let mut table = Table::new();
    let (_, hello) = Guest::new(&key(), &claim(0, 2), nonce(99));
    let replays = [table.connects(), table.connects()];
    for conn in replays {
        table.says(conn, &hello);
        assert!(table.to_strangers.contains_key(&conn));
        // The proof of another connection.
        table.says(conn, &[1; 32]);
    }
    assert_eq!(table.dropped, replays);
    assert_eq!(table.host.size(), None);
}

#[test]
fn a_frame_that_is_repeated_or_changed_ends_the_job() {
    for change in [false, true] {
        let (mut table, [zero, one, _]) = three();
        let player = table.players.get_mut(&one).unwrap();
        let mut frame = player.sealed(Kind::Pmi, b"cmd=get_appnum\n");
        if change {
            frame[9] ^= 1;
        } else {
            table.says(one, &frame);
        }
        table.says(one, &frame);
        assert!(
            table.end_of(zero).contains("PE 1"),
            "{}",
            table.end_of(zero)
        );
    }
}

#[test]
fn long_bytes_travel_in_frames_of_bounded_length() {
    let mut table = Table::new();
    let conn = table.comes(claim(0, 1));
    let long = vec![b'x'; 3 * super::hello::FRAME_MAX + 5];
    let frames = table
        .players
        .get_mut(&conn)
        .unwrap()
        .sealed(Kind::Pmi, &long);
    assert!(frames.len() > long.len() + 3 * 16);
    // Byte by byte it is the same; to the server it is no PMI, which ends the job and nothing else.
    for part in frames.chunks(1000) {
        table.says(conn, part);
    }
    assert!(table.host.is_over());
}

proptest! {
    /// Whatever strangers say between the steps of a job, it comes together.
    #[test]
    fn garbage_changes_nothing(
        said in prop::collection::vec((0usize..6, prop::collection::vec(any::<u8>(), 0..400), 0usize..200), 0..60),
    ) {
        let mut table = Table::new();
        let (_, hello) = Guest::new(&Key::new([3; 32]), &claim(1, 3), nonce(7));
        let mut conns = Vec::new();
        let mut open: Vec<Conn> = Vec::new();
        for (step, (what, bytes, begin)) in said.iter().enumerate() {
            if step % 20 == 10 {
                conns.push(table.comes(claim(conns.len() as u32, 3)));
            }
            match (what, open.last().copied()) {
                (0, _) | (_, None) => open.push(table.connects()),
                // A Hello of another key, with something in front.
                (1, Some(conn)) => table.says(conn, &[&bytes[..*begin.min(&bytes.len())], &hello].concat()),
                (2, Some(conn)) => {
                    table.goes(conn);
                    open.pop();
                }
                (3, _) => table.passes(Duration::from_secs(1)),
                (_, Some(conn)) => table.says(conn, bytes),
            }
        }
        while conns.len() < 3 {
            conns.push(table.comes(claim(conns.len() as u32, 3)));
        }
        for conn in &conns {
            prop_assert_eq!(table.players[conn].nodes(), Some(&[0, 0, 0][..]));
            prop_assert!(table.players[conn].end().is_none());
        }
        prop_assert!(table.to_strangers.is_empty());
    }

    /// A guest believes nobody who does not have the key.
    #[test]
    fn a_guest_is_not_taken_in(bytes in prop::collection::vec(any::<u8>(), 0..600)) {
        let (mut guest, _) = Guest::new(&key(), &claim(0, 1), nonce(1));
        let heard = guest.handle(&bytes);
        prop_assert!(heard.as_ref().is_err() || heard.as_ref().is_ok_and(Vec::is_empty));
        prop_assert!(guest.take_seals().is_none());
    }

    /// Nor does a host, whatever a member sends.
    #[test]
    fn members_may_send_anything(bytes in prop::collection::vec(any::<u8>(), 1..600), pmi in any::<bool>()) {
        let (mut table, [zero, one, _]) = three();
        if pmi {
            let frame = table.players.get_mut(&one).unwrap().sealed(Kind::Pmi, &bytes);
            table.says(one, &frame);
        } else {
            table.says(one, &bytes);
        }
        let _ = table.players[&zero].end();
    }
}
