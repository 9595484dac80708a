//! What the PEs wait for, asked by a user (SIGUSR1, `shmrun --ps`) or by the launcher itself before it ends
//! a job that has hung: the agents count, and who asked gets the words. Several may ask at a time; they
//! get the same answer. Where stacks are wanted, too, one PE of each group is looked at after that.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use super::Root;
use super::event::{Action, Event};
use crate::census::text::Job;
use crate::census::{Census, Example};
use crate::frame::Frame;

/// How long the agents may take to count.
const BUDGET_MS: u32 = 4000;
/// How long the launcher waits for them.
const ANSWER_NS: u64 = 5_000_000_000;

/// Most PEs whose stacks are looked at.
const MOST_STACKS: usize = 12;
/// How long a tool may take for one, and how long the launcher waits for all.
const STACK_MS: u32 = 15_000;
const STACKS_NS: u64 = 18_000_000_000;

/// Who asks.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    /// The user, on standard error.
    User,
    /// The launcher, which ends the job when this is told.
    End,
    /// The launcher, which looks whether the job can go on.
    Watch,
    /// Another process of the user, by its number at the driver.
    Client(u64),
}

/// A question under way.
#[derive(Debug, Default)]
pub(super) struct Query {
    /// Its number.
    number: u32,
    askers: Vec<Asker>,
    /// Whether one of them wants stacks.
    stacks: bool,
    deadline: Option<u64>,
    /// The words, while stacks are awaited.
    text: String,
    /// Whose stacks are awaited, and those that have come.
    awaited: Vec<Example>,
    came: BTreeMap<u32, String>,
}

impl Root {
    /// Somebody wants to know what the PEs wait for.
    pub(super) fn ask_waits(&mut self, asker: Asker, now: u64) {
        let asked = &mut self.asked;
        asked.askers.push(asker);
        asked.stacks |= self.setup.options.backtrace && asker != Asker::Watch;
        if asked.deadline.is_some() {
            return;
        }
        if self.results.moments.ready == 0 || self.agent.exited || self.outcome.finished {
            let text = match self.results.moments.ready {
                0 => "no PE runs yet: launch agents are being started",
                _ => "no PE runs any more",
            };
            return self.answer_askers(text, now);
        }
        asked.number = asked.number.wrapping_add(1);
        asked.deadline = Some(now.saturating_add(ANSWER_NS));
        self.agent.out.send(&Frame::Count {
            number: asked.number,
            budget_ms: BUDGET_MS,
        });
    }

    /// Tells what the PEs wait for, and ends the job then. The cause is known and was told.
    pub(super) fn stop_with_waits(&mut self, now: u64) {
        self.ask_waits(Asker::End, now);
    }

    /// Somebody wants the job to end, and not to wait for words before that.
    pub(super) fn hurry(&mut self, now: u64) {
        if self.asked.askers.contains(&Asker::End) {
            self.asked.deadline = Some(now);
        }
    }

    /// The agents have counted.
    pub(super) fn counted(&mut self, number: u32, census: &Census, now: u64) {
        let asked = &mut self.asked;
        if asked.deadline.is_none() || asked.number != number || !asked.text.is_empty() {
            return;
        }
        let hosts = self.setup.hosts.clone();
        let job = Job {
            n_pes: self.setup.n_pes,
            n_nodes: self.setup.n_nodes,
            hosts: &hosts,
            age: now.saturating_sub(self.setup.began),
        };
        if asked.askers.contains(&Asker::Watch) {
            self.judge(census, job, now);
        }
        let asked = &mut self.asked;
        let mut text = census.text(job);
        // Where the job ends at once, nobody attaches to its processes.
        if !asked.askers.contains(&Asker::End) {
            text += &census.processes(job);
        }
        let pes = match asked.stacks {
            true => census.examples(MOST_STACKS),
            false => Vec::new(),
        };
        if pes.is_empty() {
            return self.answer_askers(&text, now);
        }
        asked.text = text;
        asked.awaited.clone_from(&pes);
        asked.deadline = Some(now.saturating_add(STACKS_NS));
        self.agent.out.send(&Frame::Trace {
            number,
            pes,
            budget_ms: STACK_MS,
        });
    }

    /// The stacks of a PE have come, or the word that there are none.
    pub(super) fn traced(&mut self, number: u32, rank: u32, text: String, now: u64) {
        let asked = &mut self.asked;
        if asked.number != number || !asked.awaited.iter().any(|pe| pe.rank == rank) {
            return;
        }
        asked.came.insert(rank, text);
        if asked.came.len() == asked.awaited.len() {
            self.answer_with_stacks(now);
        }
    }

    fn answer_with_stacks(&mut self, now: u64) {
        let asked = &mut self.asked;
        let mut text = std::mem::take(&mut asked.text);
        text += "\nstacks of one PE of each group:";
        let came = std::mem::take(&mut asked.came);
        for pe in std::mem::take(&mut asked.awaited) {
            let _ = write!(
                text,
                "\n  PE {} (node {}, pid {}):",
                pe.rank, pe.node, pe.pid
            );
            match came.get(&pe.rank) {
                Some(stack) => {
                    for line in stack.lines() {
                        // It came from a tool that looked at a program's memory.
                        let line: String = line.chars().filter(|c| !c.is_control()).collect();
                        let _ = write!(text, "\n    {line}");
                    }
                }
                None => text += " no answer in time",
            }
        }
        self.answer_askers(&text, now);
    }

    /// When [`look_for_answer`](Self::look_for_answer) is due.
    pub(super) fn answer_deadline(&self) -> Option<u64> {
        self.asked.deadline
    }

    /// No answer comes any more.
    pub(super) fn look_for_answer(&mut self, now: u64) {
        let asked = &self.asked;
        if asked.askers.is_empty() {
            return;
        }
        let over = self.outcome.finished || self.agent.exited;
        let late = asked.deadline.is_some_and(|at| at <= now);
        if (over || late) && !asked.text.is_empty() {
            self.answer_with_stacks(now);
        } else if over {
            self.answer_askers("no PE runs any more", now);
        } else if late {
            let text = format!(
                "what PEs wait for is not known: the launch agents have not answered within {} s",
                ANSWER_NS / 1_000_000_000
            );
            self.answer_askers(&text, now);
        }
    }

    fn answer_askers(&mut self, text: &str, now: u64) {
        let asked = std::mem::take(&mut self.asked);
        self.asked.number = asked.number;
        let to_user = |a: &Asker| matches!(a, Asker::User | Asker::End);
        if asked.askers.iter().any(to_user) {
            self.print(text);
        }
        for asker in &asked.askers {
            if let Asker::Client(client) = *asker {
                let text = text.to_owned();
                self.jobs.actions.push_back(Action::Answer { client, text });
            }
        }
        // Somebody may have lost patience.
        if asked.askers.contains(&Asker::End) && self.times.give_up_at.is_none() {
            self.stop(self.grace_ns(), now);
        }
    }

    /// How many PEs and nodes the job has, and how far it is.
    pub fn describe(&self) -> (u32, u32, &'static str) {
        let state = match self.results.moments {
            _ if self.outcome.decided || self.agent.exited => "ending",
            m if m.started > 0 => "running",
            _ => "starting",
        };
        (self.setup.n_pes, self.setup.n_nodes, state)
    }

    /// For the driver: another process of the user asks, whom it knows by this number.
    pub fn asked_by(&mut self, client: u64, stacks: bool, now: u64) {
        self.asked.stacks |= stacks;
        self.ask_waits(Asker::Client(client), now);
        self.handle(Event::Timer, now);
    }
}

#[cfg(test)]
mod tests {
    use super::super::tests::{bytes, options, root, sent, up, write_all};
    use super::*;
    use crate::census::sample;
    use crate::exit;
    use crate::frame::JobOptions;

    const USR1: u8 = 10;

    fn answer(number: u32) -> Frame<'static> {
        Frame::Counted {
            number,
            census: Box::new(sample()),
        }
    }

    fn question(number: u32) -> Vec<u8> {
        bytes(&[Frame::Count {
            number,
            budget_ms: BUDGET_MS,
        }])
    }

    fn running(options: JobOptions) -> Root {
        let mut r = root();
        r.setup.options = options;
        r.times.deadline = r.setup.options.timeout_s.map(|s| s * 1_000_000_000);
        up(&mut r, &Frame::Ready, 1);
        up(&mut r, &Frame::Started, 2);
        sent(&mut r);
        r
    }

    #[test]
    fn all_who_ask_get_the_one_answer() {
        let mut r = running(options());
        r.handle(Event::Signal(USR1), 5);
        r.asked_by(7, false, 6);
        r.handle(Event::Signal(USR1), 7);
        assert_eq!(sent(&mut r), question(1));
        // One that nobody has asked for says nothing.
        up(&mut r, &answer(9), 8);
        assert_eq!(write_all(&mut r).1, "");
        up(&mut r, &answer(1), 9);
        let text = write_all(&mut r).1;
        assert!(
            text.starts_with("shmrun: what the 4 PEs of this job"),
            "{text}"
        );
        let Some(Action::Answer { client: 7, text }) = r.poll_action() else {
            panic!("no answer");
        };
        assert!(text.starts_with("what the 4 PEs of this job"), "{text}");
        assert_eq!((r.poll_action(), r.next_timeout()), (None, None));
        r.handle(Event::Signal(USR1), 10);
        assert_eq!(sent(&mut r), question(2));
    }

    #[test]
    fn the_signal_is_for_programs_that_want_it() {
        let mut r = running(JobOptions {
            pass_usr1: true,
            ..options()
        });
        r.handle(Event::Signal(USR1), 5);
        assert_eq!(sent(&mut r), bytes(&[Frame::Signal(USR1)]));
    }

    #[test]
    fn before_and_after_its_pes_a_job_says_so() {
        let mut r = root();
        r.handle(Event::Signal(USR1), 1);
        assert!(write_all(&mut r).1.contains("no PE runs yet"));
        up(&mut r, &Frame::Ready, 2);
        sent(&mut r);
        r.handle(Event::Signal(USR1), 3);
        up(&mut r, &Frame::Exited, 4);
        assert!(write_all(&mut r).1.contains("no PE runs any more"));
    }

    #[test]
    fn who_asks_is_answered_although_the_agent_fails() {
        let mut r = running(options());
        r.asked_by(7, false, 5);
        // The length of a frame that nobody sends.
        r.handle(Event::FromAgent(&[0xff; 8]), 6);
        let Some(Action::Answer { client: 7, text }) = r.poll_action() else {
            panic!("no answer");
        };
        assert_eq!(text, "no PE runs any more");
    }

    #[test]
    fn the_time_limit_waits_for_the_words_and_for_nothing_else() {
        let limited = || {
            running(JobOptions {
                timeout_s: Some(1),
                ..options()
            })
        };
        const LIMIT: u64 = 1_000_000_000;
        let stop = || bytes(&[Frame::Stop { grace_ns: 100 }]);
        // They come.
        let mut r = limited();
        r.handle(Event::Timer, LIMIT);
        assert_eq!((r.status(), sent(&mut r)), (exit::TIMEOUT, question(1)));
        up(&mut r, &answer(1), LIMIT + 1);
        assert_eq!(sent(&mut r), stop());
        // They do not.
        let mut r = limited();
        r.handle(Event::Timer, LIMIT);
        sent(&mut r);
        r.handle(Event::Timer, LIMIT + ANSWER_NS);
        assert_eq!(sent(&mut r), stop());
        assert!(write_all(&mut r).1.contains("have not answered within 5 s"));
        // Somebody does not want to wait for them.
        let mut r = limited();
        r.handle(Event::Timer, LIMIT);
        sent(&mut r);
        r.handle(Event::Signal(15), LIMIT + 1);
        assert_eq!((r.status(), sent(&mut r)), (exit::TIMEOUT, stop()));
    }

    #[test]
    fn stacks_come_behind_the_words() {
        let mut r = running(JobOptions {
            backtrace: true,
            ..options()
        });
        r.handle(Event::Signal(USR1), 5);
        sent(&mut r);
        up(&mut r, &answer(1), 6);
        let pes = sample().examples(MOST_STACKS);
        assert!(pes.len() > 1);
        let wanted = Frame::Trace {
            number: 1,
            pes: pes.clone(),
            budget_ms: STACK_MS,
        };
        assert_eq!(sent(&mut r), bytes(&[wanted]));
        let stack = Frame::Traced {
            number: 1,
            rank: pes[0].rank,
            text: "#0 f\x1b\n#1 main".into(),
        };
        up(&mut r, &stack, 7);
        assert_eq!(write_all(&mut r).1, "");
        r.handle(Event::Timer, 6 + STACKS_NS);
        let text = write_all(&mut r).1;
        assert!(text.contains(":\n    #0 f\n    #1 main\n"), "{text}");
        assert!(text.contains("no answer in time"), "{text}");
    }
}
