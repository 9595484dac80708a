//! Dialogues, and what holds whatever is said when.

use super::*;
use proptest::prelude::*;

const MS: u64 = 1_000_000;

/// What was passed on, in pieces.
#[derive(Default)]
struct Out(Vec<(u32, Vec<u8>)>);

impl Out {
    fn take(&mut self) -> impl FnMut(Said<'_>) + '_ {
        |said| self.0.push((said.source, [said.head, said.tail].concat()))
    }

    fn text(&mut self) -> String {
        let parts = std::mem::take(&mut self.0);
        let text = |(source, data): (u32, Vec<u8>)| {
            format!("{source}:{}|", String::from_utf8(data).unwrap())
        };
        parts.into_iter().map(text).collect()
    }
}

#[test]
fn only_whole_lines_pass_at_once() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.write(1, 0, b"he", 0, out.take());
    assert_eq!(out.text(), "");
    t.write(1, 0, b"llo\nwor", 1, out.take());
    assert_eq!(out.text(), "1:hello\n|");
    t.write(2, 0, b"a\nb\n", 2, out.take());
    t.write(1, 0, b"ld\n", 3, out.take());
    assert_eq!(out.text(), "2:a\nb\n|1:world\n|");
    t.write(1, 0, b"end", 4, out.take());
    t.close(1, 5, out.take());
    assert_eq!(out.text(), "1:end|");
    assert!(t.is_empty() && t.held() == 0 && t.owner().is_none());
}

#[test]
fn a_question_passes_after_a_rest_and_what_follows_at_once() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.write(1, 0, b"name? ", 0, out.take());
    assert_eq!(t.deadline(), Some(REST));
    t.tick(REST, out.take());
    assert_eq!((out.text(), t.owner()), ("1:name? |".to_owned(), Some(1)));
    t.write(1, 0, b".", REST + 1, out.take());
    t.write(1, 0, b"\nmore", REST + 2, out.take());
    assert_eq!(out.text(), "1:.|1:\n|");
    assert_eq!((t.owner(), t.held()), (None, 4));
}

#[test]
fn a_buffer_that_ran_over_is_no_question() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.write(1, 0, &[b'x'; 2 * BLOCK], 0, out.take());
    assert_eq!(t.deadline(), None);
    t.write(1, 0, b"rest? ", 5, out.take());
    assert_eq!(t.deadline(), Some(5 + REST));
    t.tick(5 + REST, out.take());
    assert_eq!(out.0.len(), 1);
}

#[test]
fn others_wait_for_a_line_that_goes_on() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.write(1, 0, &[b'x'; LINE_MAX + 1], 0, out.take());
    assert_eq!(
        (out.0.len(), t.owner()),
        (1, Some(1)),
        "too long to be kept"
    );
    out.0.clear();
    t.write(2, 0, b"two\n", 1, out.take());
    t.relay(3, 0, b"three\n", 2, out.take());
    for i in 1..100 {
        t.write(1, 0, &[b'x'; LINE_MAX], i * SILENCE / 2, out.take());
        t.tick(i * SILENCE / 2, out.take());
    }
    assert!(out.0.iter().all(|(source, _)| *source == 1));
    out.0.clear();
    t.write(1, 0, b"end\n", 50 * SILENCE, out.take());
    assert_eq!(out.text(), "1:end\n|2:two\n|3:three\n|");
}

#[test]
fn silence_and_dribble_end_a_turn_that_others_wait_for() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.relay(1, 0, b"open", 0, out.take());
    assert_eq!(t.deadline(), None, "nobody waits");
    t.write(2, 0, b"two\n", 10 * MS, out.take());
    assert_eq!(t.deadline(), Some(SILENCE));
    t.tick(SILENCE - 1, out.take());
    assert_eq!(out.text(), "1:open|");
    t.tick(SILENCE, out.take());
    assert_eq!(out.text(), "2:two\n|");
    // Dots of progress are no silence, but no line either.
    t.relay(1, 0, b".", SILENCE, out.take());
    t.write(2, 0, b"two\n", SILENCE, out.take());
    let mut now = SILENCE;
    while t.owner() == Some(1) {
        now += 100 * MS;
        t.relay(1, 0, b".", now, out.take());
        t.tick(now, out.take());
    }
    assert_eq!(now, SILENCE + DRIBBLE);
    // Who comes late after long silence gets the turn at once.
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.relay(1, 0, b"open", 0, out.take());
    t.write(2, 0, b"two\n", 9 * SILENCE, out.take());
    assert_eq!(t.deadline(), Some(SILENCE));
    t.tick(9 * SILENCE, out.take());
    assert_eq!(out.text(), "1:open|2:two\n|");
}

#[test]
fn dots_that_are_taken_one_by_one_renew_no_turn() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.relay(1, 0, b".", 0, out.take());
    t.write(2, 0, b"two\n", 0, out.take());
    let (mut now, mut blocked) = (0, 0);
    while t.owner() == Some(1) {
        assert!(now < 2 * DRIBBLE);
        now += 100 * MS;
        t.relay(1, 0, b".", now, out.take());
        t.set_blocked(true, now);
        now += MS;
        blocked += MS;
        t.set_blocked(false, now);
        t.tick(now, out.take());
    }
    assert!(now - blocked >= DRIBBLE, "{now}");
}

#[test]
fn nobody_loses_a_turn_while_nobody_reads() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    t.relay(1, 0, b"open", 0, out.take());
    t.set_blocked(true, 1);
    t.write(2, 0, b"two\n", 2, out.take());
    assert_eq!(t.deadline(), None);
    t.tick(100 * SILENCE, out.take());
    t.set_blocked(false, 100 * SILENCE);
    t.tick(101 * SILENCE - 2, out.take());
    assert_eq!(out.text(), "1:open|");
    t.relay(1, 0, b"ed\n", 101 * SILENCE - 2, out.take());
    assert_eq!(out.text(), "1:ed\n|2:two\n|");
}

#[test]
fn many_questions_do_not_wait_for_one_another_again_and_again() {
    let (mut t, mut out) = (Turns::default(), Out::default());
    for source in 0..1000 {
        t.write(source, 0, b"? ", 0, out.take());
    }
    t.tick(REST, out.take());
    assert_eq!(out.text(), "0:? |");
    t.tick(SILENCE, out.take());
    assert_eq!(out.0.len(), 999);
    assert!(t.is_empty());
}

/// Something that happens: who says what, how long after the last that did.
type Event = (u32, u64, Vec<u8>);

/// Sources 0 to 2 are PEs, 3 and 4 are links.
const SOURCES: u32 = 5;
const PES: u32 = 3;

fn story(most_ms: u64) -> impl Strategy<Value = Vec<Event>> {
    let text = prop_oneof![
        6 => "[ab\n]{0,9}".prop_map(String::into_bytes),
        1 => Just(vec![b'x'; BLOCK]),
        1 => (1usize..200_000).prop_map(|n| vec![b'y'; n]),
    ];
    proptest::collection::vec((0..SOURCES, 0..most_ms * MS, text), 0..60)
}

/// Bytes of PEs that may be held, as an agent has it; more by one write.
const BUDGET: usize = 300_000;
const WRITE: usize = 200_000;

/// What was said and what came out, when it is over.
struct Told {
    turns: Turns,
    said: Vec<Vec<u8>>,
    out: Out,
    now: u64,
}

fn tell(story: &[Event]) -> Result<Told, TestCaseError> {
    let (mut t, mut out) = (Turns::default(), Out::default());
    let mut now = 0;
    let mut said = vec![Vec::new(); SOURCES as usize];
    for (source, later, data) in story {
        let until = now + later;
        while let Some(at) = t.deadline().filter(|&at| at <= until) {
            now = now.max(at);
            t.tick(now, out.take());
        }
        now = until;
        // Beyond the budget nobody is read but the owner.
        if t.held() > BUDGET && t.owner() != Some(*source) {
            prop_assert!(t.owner().is_some(), "or nobody would ever be read again");
            continue;
        }
        said[*source as usize].extend_from_slice(data);
        if *source < PES {
            t.write(*source, 0, data, now, out.take());
            if t.held() > BUDGET {
                t.press(*source, now, out.take());
            }
        } else {
            t.relay(*source, 0, data, now, out.take());
        }
        prop_assert!(t.held() <= BUDGET + WRITE);
    }
    Ok(Told {
        turns: t,
        said,
        out,
        now,
    })
}

impl Told {
    fn pass_time(&mut self, until: u64) {
        while let Some(at) = self.turns.deadline().filter(|&at| at <= until) {
            self.turns.tick(at.max(self.now), self.out.take());
        }
        self.now = until;
    }

    /// What came of each.
    fn came(&self) -> Vec<Vec<u8>> {
        let mut came = vec![Vec::new(); SOURCES as usize];
        for (source, data) in &self.out.0 {
            came[*source as usize].extend_from_slice(data);
        }
        came
    }
}

proptest! {
    #[test]
    fn bytes_stay_and_come_in_time(story in story(700)) {
        let mut told = tell(&story)?;
        told.pass_time(told.now + 2 * REST + SILENCE + DRIBBLE);
        prop_assert!(told.turns.waiting.is_empty());
        // What is left are lines in whose middle a buffer ran over.
        for (&source, held) in &told.turns.held {
            prop_assert_eq!(held.complete, 0);
            let mut of = story.iter().filter(|e| e.0 == source && !e.2.is_empty());
            prop_assert!(of.next_back().unwrap().2.len().is_multiple_of(BLOCK));
        }
        for source in 0..SOURCES {
            told.turns.close(source, told.now, told.out.take());
        }
        let t = &told.turns;
        prop_assert!(t.is_empty() && t.stored() == 0 && t.owner().is_none());
        prop_assert_eq!(told.came(), told.said);
    }

    /// So fast that nobody is silent for too long.
    #[test]
    fn nobody_speaks_into_a_line(story in story(15)) {
        let mut told = tell(&story)?;
        // All end their lines.
        for source in 0..SOURCES {
            told.said[source as usize].push(b'\n');
            if source < PES {
                told.turns.write(source, 0, b"\n", told.now, told.out.take());
            } else {
                told.turns.relay(source, 0, b"\n", told.now, told.out.take());
            }
        }
        prop_assert!(told.turns.is_empty());
        let mut open = None;
        for (source, data) in &told.out.0 {
            prop_assert!(open.is_none_or(|open| open == *source));
            if let Some(&last) = data.last() {
                open = (last != b'\n').then_some(*source);
            }
        }
        prop_assert_eq!(open, None);
        prop_assert_eq!(told.came(), told.said);
    }
}
