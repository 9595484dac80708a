//! Looking now and then whether PEs wait for others that are in finalize, once the first one is.
//!
//! Others may compute for long, so the looks become rarer. A job that cannot go on is ended: nothing else would, and
//! it would hold its nodes until its time limit.

use super::Root;
use super::census::Asker;
use crate::census::{Census, text::Job};
use crate::exit;

/// Time to the first look, and the longest from one to the next.
const FIRST_NS: u64 = 5_000_000_000;
const LAST_NS: u64 = 60_000_000_000;

/// When to look.
#[derive(Debug, Default)]
pub(super) struct Watch {
    at: Option<u64>,
    pause: u64,
    /// Whether the user knows of a wait that may not end.
    told: bool,
}

impl Root {
    /// A PE is in finalize.
    pub(super) fn leaving(&mut self, now: u64) {
        if self.watch.pause == 0 {
            self.watch.pause = FIRST_NS;
            self.watch.at = Some(now.saturating_add(FIRST_NS));
        }
    }

    /// When [`look_for_stuck`](Self::look_for_stuck) is due.
    pub(super) fn watch_deadline(&self) -> Option<u64> {
        self.watch
            .at
            .filter(|_| !self.outcome.decided && !self.outcome.finished)
    }

    /// Asks the agents if it is time.
    pub(super) fn look_for_stuck(&mut self, now: u64) {
        if self.watch_deadline().is_some_and(|at| at <= now) {
            self.watch.pause = (2 * self.watch.pause).min(LAST_NS);
            self.watch.at = Some(now.saturating_add(self.watch.pause));
            self.ask_waits(Asker::Watch, now);
        }
    }

    /// The agents have counted.
    pub(super) fn judge(&mut self, census: &Census, job: Job<'_>, now: u64) {
        let Some(stuck) = census.stuck(job).filter(|_| !self.outcome.decided) else {
            return;
        };
        let text = census.text(job);
        if stuck.for_ever {
            let line = format!("{}; ending the job, which cannot go on", stuck.text);
            if self.end_with(exit::HUNG) {
                self.print(&line);
                self.print(&text);
                self.stop(self.grace_ns(), now);
            }
        } else if !std::mem::replace(&mut self.watch.told, true) {
            self.print(&format!(
                "{}; the job may wait for ever (Ctrl-C ends it)\n{text}",
                stuck.text
            ));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Event;
    use super::super::tests::{bytes, options, root, sent, up, write_all};
    use super::*;
    use crate::frame::Frame;

    const SECOND: u64 = 1_000_000_000;

    fn running() -> Root {
        let mut r = root();
        r.setup.options = options();
        up(&mut r, &Frame::Ready, 1);
        up(&mut r, &Frame::Started, 2);
        sent(&mut r);
        r
    }

    fn answer(r: &mut Root, number: u32, census: Census, now: u64) {
        let census = Box::new(census);
        up(r, &Frame::Counted { number, census }, now);
    }

    #[test]
    fn looks_begin_with_the_first_finalize_and_become_rarer() {
        let mut r = running();
        r.handle(Event::Timer, 100 * SECOND);
        assert_eq!((r.next_timeout(), sent(&mut r)), (None, Vec::new()));
        up(&mut r, &Frame::Leaving, 100 * SECOND);
        up(&mut r, &Frame::Leaving, 101 * SECOND);
        let mut looks = Vec::new();
        for number in 1..=6 {
            let at = r.next_timeout().expect("another look");
            r.handle(Event::Timer, at);
            assert!(!sent(&mut r).is_empty());
            looks.push(at / SECOND);
            answer(&mut r, number, crate::census::sample(), at);
            assert_eq!(write_all(&mut r).1, "", "others wait for nobody who left");
        }
        assert_eq!(looks, [105, 115, 135, 175, 235, 295]);
    }

    #[test]
    fn a_job_that_cannot_go_on_is_ended_with_a_message() {
        let mut r = running();
        up(&mut r, &Frame::Leaving, SECOND);
        r.handle(Event::Timer, 6 * SECOND);
        sent(&mut r);
        answer(&mut r, 1, crate::census::stuck_sample(), 6 * SECOND);
        assert_eq!(sent(&mut r), bytes(&[Frame::Stop { grace_ns: 100 }]));
        assert_eq!(r.status(), exit::HUNG);
        let text = write_all(&mut r).1;
        assert!(
            text.contains("but PE 3 is in finalize, or at the end of main; ending the job"),
            "{text}"
        );
        assert!(text.contains("what the 4 PEs of this job"), "{text}");
    }
}
