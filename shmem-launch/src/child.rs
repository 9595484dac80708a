//! An agent as whoever started it knows it: the launcher knows that of node 0, an agent those of its
//! children. Pure, as both of them are.
//!
//! A child says what comes from there, frame by frame, and whether its subtree is lost: the link has
//! ended without `Done`, the host has not answered, nothing was heard of it for too long, or what came
//! cannot be understood.

use std::ops::Range;

use crate::exit::{Cause, End, Fault, Loss};
use crate::frame::{Frame, FrameReader, OutBuf, each_frame};
use crate::pulse::{Pulse, Rhythm};
use crate::remote::Contact;
use crate::report::Reduced;

/// How long the death of an agent may take to follow the end of its link.
const AGENT_DEATH_NS: u64 = 300_000_000;

/// What is known of a child at first.
#[derive(Debug, Clone, Default)]
pub struct ChildSetup {
    /// Its node.
    pub node: u32,
    /// The PEs of its subtree.
    pub ranks: Range<u32>,
    /// Its process: the agent, or the remote shell that leads to it.
    pub pid: u32,
    /// How it was called, if it is on another host.
    pub contact: Option<Contact>,
}

/// A child that does not do its work.
#[derive(Debug)]
pub(crate) struct Failure {
    /// What to tell.
    pub(crate) fault: Fault,
    /// Whether its process may still be there, and is to be ended.
    pub(crate) drop: bool,
}

#[derive(Debug, Default)]
pub(crate) struct Child {
    setup: ChildSetup,
    reader: FrameReader,
    pub(crate) out: OutBuf,
    pub(crate) ready: bool,
    pub(crate) started: bool,
    pub(crate) exited: bool,
    /// It has got `Stop`.
    pub(crate) stopping: bool,
    /// None of its PEs will join an operation any more.
    pub(crate) disconnected: bool,
    pub(crate) done: bool,
    /// When its link ended, or since when nothing is expected from there.
    closed_at: Option<u64>,
    end: Option<End>,
    lost: bool,
    pulse: Pulse,
}

impl Child {
    pub(crate) fn new(setup: ChildSetup) -> Self {
        Self {
            setup,
            ..Self::default()
        }
    }

    pub(crate) fn node(&self) -> u32 {
        self.setup.node
    }

    /// Its link has ended.
    pub(crate) fn closed(&mut self, now: u64) {
        self.closed_at.get_or_insert(now);
    }

    /// Its process has ended.
    pub(crate) fn reaped(&mut self, end: End) {
        self.end = Some(end);
    }

    /// Whether it is to be started.
    pub(crate) fn is_due(&mut self, now: u64) -> bool {
        let contact = self.setup.contact.as_mut().filter(|_| !self.lost);
        contact.is_some_and(|contact| contact.is_due(now))
    }

    /// It is being started.
    pub(crate) fn begin(&mut self, now: u64) {
        if let Some(contact) = &mut self.setup.contact {
            contact.begin(now);
        }
    }

    /// Its process was started.
    pub(crate) fn begun(&mut self, pid: u32) {
        self.setup.pid = pid;
    }

    /// Whether it is still to be started.
    pub(crate) fn is_waiting(&self) -> bool {
        let contact = self.setup.contact.as_ref();
        !self.lost && contact.is_some_and(Contact::is_waiting)
    }

    /// Whether it was started and has not answered.
    pub(crate) fn is_asked(&self) -> bool {
        let contact = self.setup.contact.as_ref();
        !self.lost && contact.is_some_and(Contact::is_asked)
    }

    /// Its remote shell says something. Gives what is to be passed on.
    pub(crate) fn shell_text(&mut self, text: &[u8]) -> Vec<u8> {
        match &mut self.setup.contact {
            Some(contact) => contact.shell_text(text),
            None => text.to_vec(),
        }
    }

    /// What its remote shell said before it answered or was lost, and what is to be passed on of it.
    pub(crate) fn take_said(&mut self) -> Vec<u8> {
        match &mut self.setup.contact {
            Some(contact) if contact.greeted() || (self.lost && !contact.is_told()) => {
                contact.take_said()
            }
            _ => Vec::new(),
        }
    }

    /// Nothing more can be said to it. The link of a remote shell that has ended may be open still, if
    /// it has left it to another process.
    pub(crate) fn is_closed(&self) -> bool {
        let ended = self.end.is_some() && self.setup.contact.is_none();
        self.closed_at.is_some() || ended || self.is_waiting()
    }

    /// Whether it is lost with its subtree, which was told, or nothing is expected of it any more.
    pub(crate) fn is_lost(&self) -> bool {
        self.lost
    }

    /// Whether it was there when it heard of the end of the job: if it is lost later, PEs did not fail of that.
    pub(crate) fn outlived_stop(&self) -> bool {
        self.stopping || self.exited
    }

    /// Whether it has begun to work: one that was forked has, another says so first.
    pub(crate) fn answered(&self) -> bool {
        self.setup.contact.as_ref().is_none_or(Contact::greeted)
    }

    /// When [`Self::look`] is due.
    pub(crate) fn deadline(&self) -> Option<u64> {
        if self.lost || self.done {
            return None;
        }
        match (self.closed_at, self.end) {
            (Some(at), None) => Some(at.saturating_add(AGENT_DEATH_NS)),
            (Some(_), Some(_)) => None,
            (None, _) => self.setup.contact.as_ref().and_then(Contact::deadline),
        }
    }

    /// All that is expected of it may come so much later.
    pub(crate) fn postpone(&mut self, by: u64) {
        if let Some(at) = &mut self.closed_at {
            *at = at.saturating_add(by);
        }
        if let Some(contact) = &mut self.setup.contact {
            contact.postpone(by);
        }
    }

    /// Says once that it was lost, or does not answer. The link may still hold frames after the process
    /// has ended, so the link's end decides; how the process ended is waited for a moment.
    pub(crate) fn look(&mut self, now: u64) -> Option<Failure> {
        if self.lost || self.done {
            return None;
        }
        let contact = self.setup.contact.as_ref();
        let Some(closed_at) = self.closed_at else {
            let what = contact.and_then(|c| c.overdue(now))?;
            return Some(self.cannot_start(what, now));
        };
        if self.end.is_none() && now < closed_at.saturating_add(AGENT_DEATH_NS) {
            return None;
        }
        let end = self.end;
        let again = |c: &mut Contact| c.try_again(end, now);
        if self.setup.contact.as_mut().is_some_and(again) {
            (self.closed_at, self.end) = (None, None);
            self.reader = FrameReader::default();
            self.out.clear();
            return None;
        }
        let contact = self.setup.contact.as_ref();
        let cause = match contact {
            Some(contact) if contact.greeted() => Cause::Node {
                what: contact.lost(self.end),
            },
            Some(contact) => Cause::Unreachable {
                what: contact.lost(self.end),
            },
            None => Cause::Agent { end: self.end },
        };
        self.lost = true;
        Some(Failure {
            fault: self.fault(cause),
            drop: false,
        })
    }

    /// Looks whether it is at work, and tells it that this end is. Says so when it was silent for too long.
    pub(crate) fn look_for_life(&mut self, rhythm: &Rhythm, now: u64) -> Option<Failure> {
        if self.lost || self.done || self.is_closed() || !self.answered() {
            return None;
        }
        self.pulse.beat(&mut self.out);
        let ms = self.pulse.look(rhythm, now)?;
        let Range { start, end } = self.setup.ranks;
        self.give_up(now);
        Some(Failure {
            fault: self.fault(Cause::Silent {
                ms,
                first: start,
                last: end.saturating_sub(1),
            }),
            drop: true,
        })
    }

    /// All PEs of its subtree are lost with it.
    pub(crate) fn loss(&self, fault: Fault) -> Loss {
        Loss {
            fault,
            first: self.setup.ranks.start,
            last: self.setup.ranks.end.saturating_sub(1),
        }
    }

    fn fault(&self, cause: Cause) -> Fault {
        Fault {
            node: self.setup.node,
            pid: self.setup.pid,
            cause,
        }
    }

    /// It cannot be started.
    pub(crate) fn cannot_start(&mut self, what: String, now: u64) -> Failure {
        self.give_up(now);
        Failure {
            fault: self.fault(Cause::Unreachable { what }),
            drop: true,
        }
    }

    /// It does not do what an agent does.
    pub(crate) fn fail(&mut self, what: String, now: u64) -> Failure {
        self.give_up(now);
        Failure {
            fault: self.fault(Cause::Node { what }),
            drop: true,
        }
    }

    /// It sent what no agent of this version sends.
    pub(crate) fn fail_to_understand(&mut self, e: &dyn std::fmt::Display, now: u64) -> Failure {
        self.fail(
            format!("its agent sent what cannot be understood: {e}"),
            now,
        )
    }

    /// Nothing more is expected of it, and nothing has to be told.
    pub(crate) fn give_up(&mut self, now: u64) {
        self.closed(now);
        self.lost = true;
        self.out.clear();
    }

    /// It is done: nothing is left of its subtree, whose report this is.
    pub(crate) fn done(&mut self, report: &mut Reduced, now: u64) {
        self.done = true;
        report.shift(self.late_by(report.sent, now));
    }

    /// What brings its moments to the clock of this end, modulo 2^64, if it has sent something at `sent` by its
    /// own: 0 on the same machine; else they are late by the time that it took.
    pub(crate) fn late_by(&self, sent: u64, now: u64) -> u64 {
        match self.setup.contact {
            Some(_) => now.wrapping_sub(sent),
            None => 0,
        }
    }
}

/// Gives `each` what came from a child of a machine: frames, after the greeting if there has to be one.
pub(crate) fn receive<M>(
    machine: &mut M,
    child: impl Fn(&mut M) -> &mut Child,
    mut bytes: &[u8],
    now: u64,
    each: impl FnMut(&mut M, Frame<'_>),
) -> Result<(), Failure> {
    let own = child(machine);
    if own.closed_at.is_some() {
        return Ok(());
    }
    if let Some(contact) = &mut own.setup.contact
        && !contact.greeted()
        && let Err(what) = contact.take_greeting(&mut bytes)
    {
        return Err(own.fail(what, now));
    }
    own.pulse.received(now);
    let understood = each_frame(machine, |m| Some(&mut child(m).reader), bytes, each);
    understood.map_err(|e| child(machine).fail_to_understand(&e, now))
}
