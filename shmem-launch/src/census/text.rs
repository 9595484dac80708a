//! A census in words, for the user who asks what a job waits for.
//!
//! A line for each group, those who wait first, and in the end whom all the waiting comes down to: PEs
//! that others wait for, directly or not, and that wait for nobody themselves.

use std::fmt::Write as _;

use shmem_node::waiting::{Collective, Form, LockWait, Remote, TeamKind};

use super::{
    Census, Compared, Doing, Group, Life, Members, Place, Places, Process, RankSet, Span, What,
};

/// Lines that are shown; of more it is said how many PEs they are about.
const LINES: usize = 48;

/// Members of a team up to which they are named.
const MOST_MEMBERS: u32 = 1 << 20;

/// What the launcher knows of a job.
#[derive(Debug, Clone, Copy)]
pub struct Job<'a> {
    /// PEs of it.
    pub n_pes: u32,
    /// Nodes of it.
    pub n_nodes: u32,
    /// Names of the nodes' hosts, if they have their own.
    pub hosts: &'a [String],
    /// Nanoseconds since its start.
    pub age: u64,
}

/// A group with those for whom it waits.
struct Line<'a> {
    group: &'a Group,
    missing: RankSet,
    /// PEs that have begun as many collectives, and so are not missing.
    not_missing: [RankSet; Elsewhere::ALL.len()],
}

/// Where a PE is that others find in no collective with them, though it has begun as many: an index of
/// [`Line::not_missing`].
#[derive(Clone, Copy)]
enum Elsewhere {
    /// It has left the collective, which is finalize.
    Left,
    /// Its process has ended.
    Ended,
    /// It has begun further collectives.
    GoneOn,
    /// It called a different collective, as programs that are not checked may (`SHMEM_CHECK=0`).
    Differs,
    /// It does something that does not show whether it has left.
    Begun,
}

impl Elsewhere {
    /// All of them, in the order in which lines name them.
    const ALL: [Self; 5] = [
        Self::Left,
        Self::Ended,
        Self::GoneOn,
        Self::Differs,
        Self::Begun,
    ];

    fn text(self, one: bool) -> &'static str {
        match (self, one) {
            (Self::Left, true) => "has left it",
            (Self::Left, false) => "have left it",
            (Self::Ended, true) => "has ended",
            (Self::Ended, false) => "have ended",
            (Self::GoneOn, true) => "has gone on",
            (Self::GoneOn, false) => "have gone on",
            (Self::Differs, _) => "called a different collective",
            (Self::Begun, true) => "has begun it, too",
            (Self::Begun, false) => "have begun it, too",
        }
    }
}

/// Where a group is that has begun at least `number` collectives of the world team, the last one perhaps not `call`.
fn elsewhere(group: &Group, call: Collective, number: u32) -> Elsewhere {
    // The collective that it called last, and where it is if the group that waits called the same.
    let (last, place) = match &group.doing {
        Doing::Runs {
            life: Life::Ended, ..
        } => return Elsewhere::Ended,
        _ if group.begun.least > u64::from(number) => return Elsewhere::GoneOn,
        Doing::Runs {
            life: Life::Finalized,
            ..
        } => (Collective::Finalize, Elsewhere::Left),
        Doing::Waits {
            what:
                What::Collective {
                    call: other,
                    kind: TeamKind::World,
                    ..
                },
            ..
        } => (*other, Elsewhere::Begun),
        _ => return Elsewhere::Begun,
    };
    match last == call {
        true => place,
        false => Elsewhere::Differs,
    }
}

impl Census {
    /// What the PEs do, in lines.
    pub fn text(&self, job: Job<'_>) -> String {
        let mut text = format!(
            "what the {} {} of this job on {} {} {} for, {} after its start:\n",
            job.n_pes,
            plural(job.n_pes.into(), "PE"),
            job.n_nodes,
            plural(job.n_nodes.into(), "node"),
            if job.n_pes == 1 { "waits" } else { "wait" },
            time(job.age)
        );
        let mut lines: Vec<Line<'_>> = self.groups.iter().map(|g| self.line(g, job)).collect();
        let waits = |line: &Line<'_>| matches!(line.group.doing, Doing::Waits { .. });
        lines.sort_by_key(|line| {
            let at = (!waits(line), u64::MAX - line.group.ranks.len());
            (at, line.group.ranks.first())
        });
        let mut left = RankSet::default();
        for (at, line) in lines.iter().enumerate() {
            if at < LINES {
                let _ = writeln!(text, "  {}", line.text(job));
            } else {
                left.add(&line.group.ranks);
            }
        }
        if !left.is_empty() {
            let _ = writeln!(text, "  {} do something else", left.named("PE"));
        }
        let silent = RankSet::range(0..job.n_nodes).without(&self.nodes);
        let unknown = RankSet::range(0..job.n_pes).without(&self.ranks());
        if !unknown.is_empty() {
            let _ = writeln!(
                text,
                "  {}: no word came from the launch {} of {}{}",
                unknown.named("PE"),
                plural(silent.len(), "agent"),
                silent.named("node"),
                hosts(&silent, job.hosts)
            );
        }
        if self.coarse > 0 {
            text += "  (PEs differ in more than can be told; some of that was left out)\n";
        }
        if let Some(end) = conclusion(&lines, &unknown) {
            let _ = writeln!(text, "  {end}");
        }
        text.truncate(text.trim_end().len());
        text
    }

    /// The processes of the PEs, a line for each node. Empty if [`text`](Self::text) has them all.
    pub fn processes(&self, job: Job<'_>) -> String {
        let mut text = String::new();
        if self.groups.iter().all(|group| group.ranks.len() == 1) {
            return text;
        }
        let mut pes = self.processes.clone();
        pes.sort_by_key(|pe| (pe.node, pe.rank));
        for on_node in pes.chunk_by(|a, b| a.node == b.node) {
            let node = on_node[0].node;
            let host = RankSet::range(node..node.saturating_add(1));
            let _ = write!(text, "\n  pids on node {node}{}", hosts(&host, job.hosts));
            for (at, pe) in on_node.iter().enumerate() {
                let before = if at == 0 { ':' } else { ',' };
                let _ = write!(text, "{before} {} (PE {})", pe.pid, pe.rank);
            }
        }
        text
    }

    /// The line of one group, without the PEs that are missing.
    pub(super) fn line_of(&self, group: &Group, job: Job<'_>) -> String {
        let (missing, not_missing) = Default::default();
        let line = Line {
            group,
            missing,
            not_missing,
        };
        line.text(job)
    }

    fn line<'a>(&self, group: &'a Group, job: Job<'_>) -> Line<'a> {
        let mut missing = group.for_whom.without(&group.ranks);
        let mut not_missing = <[RankSet; Elsewhere::ALL.len()]>::default();
        if let Doing::Waits { what, .. } = &group.doing {
            // Those that do the same in another state of their process are there, too.
            let mut there = RankSet::default();
            for other in &self.groups {
                if matches!(&other.doing, Doing::Waits { what: w, .. } if w == what) {
                    there.add(&other.ranks);
                }
            }
            if let What::Collective {
                call,
                members,
                number,
                kind,
            } = what
            {
                missing.add(&all(members, job.n_pes).without(&there));
                if let (TeamKind::World, Some(number)) = (kind, number) {
                    for other in &self.groups {
                        if other.begun.least >= u64::from(*number) {
                            let set = &mut not_missing[elsewhere(other, *call, *number) as usize];
                            set.add(&other.ranks.common(&missing));
                        }
                    }
                    for set in &not_missing {
                        missing = missing.without(set);
                    }
                }
            }
            if let What::Lock {
                why: LockWait::Turn,
                ..
            } = what
            {
                // Who stands before another in the queue waits itself, unless it holds the lock.
                missing = missing.without(&there);
            }
        }
        Line {
            group,
            missing,
            not_missing,
        }
    }
}

/// The members of a team, as far as they are known.
pub(super) fn all(members: &Members, n_pes: u32) -> RankSet {
    match members {
        Members::Strided {
            first,
            stride,
            size,
        } => match (stride, first.checked_add(*size)) {
            (1, Some(end)) => RankSet::range(*first..end.min(n_pes)),
            _ => {
                let stride = (*stride).max(1);
                let ranks = (0..*size).map_while(|i| stride.checked_mul(i)?.checked_add(*first));
                ranks.take_while(|&rank| rank < n_pes).collect()
            }
        },
        Members::Listed(ranks) => ranks.clone(),
        Members::Several => RankSet::default(),
    }
}

impl Line<'_> {
    fn text(&self, job: Job<'_>) -> String {
        let group = self.group;
        let one = group.ranks.len() == 1;
        let mut text = group.ranks.named("PE");
        if one {
            let host = RankSet::range(group.example.node..group.example.node.saturating_add(1));
            let _ = write!(text, " (node {}", group.example.node);
            text += &hosts(&host, job.hosts);
            if group.example.pid > 0 {
                let _ = write!(text, ", pid {}", group.example.pid);
            }
            text.push(')');
        }
        text.push(' ');
        match &group.doing {
            Doing::Waits {
                what,
                within,
                process,
            } => {
                text += &self.waits(what, one);
                let called = match what {
                    What::Collective { .. } => " at ",
                    _ => ", called at ",
                };
                text += &places(&group.places, called);
                if let Some(within) = within {
                    let _ = write!(text, ", and in there {}", self.for_what(within));
                }
                if let Some(age) = group.age {
                    let _ = write!(text, ", for {}", span(age));
                }
                if let Some(process) = process {
                    let _ = write!(text, "; {}", state(process, "thread", one));
                }
            }
            Doing::Runs {
                life,
                process,
                begun,
            } => {
                text += lives(*life, one);
                if let Some(process) = process {
                    let of = match life {
                        Life::NotStarted | Life::BeforeInit | Life::Finalized => "main thread",
                        _ => "thread",
                    };
                    let _ = write!(text, ": {}", state(process, of, one));
                }
                if let (Some(cpu), false) = (group.cpu, *life == Life::Ended) {
                    let _ = write!(text, ", {} of CPU time", span(cpu));
                }
                if *life == Life::Running {
                    match group.age {
                        Some(age) => {
                            let _ = write!(text, "; last waited {} ago", span(age));
                        }
                        None if one => text += "; has not waited for anybody yet",
                        None => text += "; have not waited for anybody yet",
                    }
                    if let Some(begun) = begun {
                        let has = if one { "has" } else { "have" };
                        let _ = write!(text, "; {has} begun {} of the world team", times(*begun));
                    }
                }
            }
        }
        if !self.missing.is_empty() {
            let _ = write!(text, "; {}", self.whom());
        }
        for place in Elsewhere::ALL {
            let ranks = &self.not_missing[place as usize];
            if !ranks.is_empty() {
                let does = place.text(ranks.len() == 1);
                let _ = write!(text, "; {} {does}", ranks.named("PE"));
            }
        }
        text
    }

    /// For whom the group waits.
    fn whom(&self) -> String {
        let whom = self.missing.named("PE");
        match &self.group.doing {
            Doing::Waits {
                what:
                    What::Lock {
                        why: LockWait::Turn,
                        ..
                    },
                ..
            } => format!("held by {whom}"),
            Doing::Waits {
                what: What::Remote { .. },
                ..
            } => format!("waited for: {whom}"),
            _ => format!("missing: {whom}"),
        }
    }

    fn waits(&self, what: &What, one: bool) -> String {
        let verb = if one { "waits" } else { "wait" };
        format!("{verb} {}", self.for_what(what))
    }

    /// Continues "waits".
    fn for_what(&self, what: &What) -> String {
        match what {
            What::Init => "in init for the other PEs of the node".into(),
            What::InitAgain => "in init for PEs of the node to leave their last finalize".into(),
            What::Collective {
                call,
                kind,
                members,
                number,
            } => collective(*call, *kind, members, *number),
            What::Memory {
                form,
                place,
                count,
                compared,
            } => memory(*form, *place, *count, compared.as_ref()),
            What::Lock { why, place } => {
                let lock = format!("the lock at {}", shown(*place));
                match why {
                    LockWait::Turn => format!("for {lock}"),
                    LockWait::Thread => {
                        format!("for {lock}, which a thread of the same PE holds or waits for")
                    }
                    LockWait::Next => {
                        format!("at {lock} for the next PE of its queue to say who it is")
                    }
                }
            }
            What::Remote { what, pe } => {
                let of = pe.map_or_else(|| "other nodes' PEs".into(), |pe| format!("PE {pe}"));
                match what {
                    Remote::Address => {
                        format!("for the address of {of}: not every PE of the job has called init")
                    }
                    Remote::Connection => {
                        format!("for the answer of {of} to a request for a connection")
                    }
                    Remote::Memory => {
                        format!("for {of} to say where the memory is that it allocated")
                    }
                    Remote::Operation => format!("for an operation towards {of} to end"),
                    Remote::Quiet => match self.group.operations {
                        0 => format!("in quiet for operations towards {of}"),
                        n => format!("in quiet for {n} {} towards {of}", plural(n, "operation")),
                    },
                    Remote::Leave => "in finalize for the farewell of other nodes' PEs".into(),
                }
            }
        }
    }
}

fn collective(call: Collective, kind: TeamKind, members: &Members, number: Option<u32>) -> String {
    let mut text = match (call, kind) {
        (Collective::Finalize, _) => return "in finalize, or at the end of main".into(),
        (Collective::Barrier | Collective::Sync, TeamKind::World) => {
            format!("in {}_all", call.text())
        }
        _ => format!("in {}", call.phrase()),
    };
    let _ = write!(text, " of {}", kind.text());
    if kind != TeamKind::World {
        let members = match members {
            Members::Several => None,
            Members::Listed(ranks) => Some(ranks.clone()),
            Members::Strided { size, .. } => {
                (*size <= MOST_MEMBERS).then(|| all(members, u32::MAX))
            }
        };
        if let Some(members) = members {
            let _ = write!(text, " of {}", members.named("PE"));
        }
    }
    if let Some(number) = number {
        let _ = write!(text, " (its no. {number})");
    }
    text
}

fn memory(form: Form, place: Place, count: u64, compared: Option<&Compared>) -> String {
    let words = match (form, count) {
        (Form::Until, _) | (_, 1) => "the word".to_owned(),
        (Form::All, n) => format!("{n} words, the first that is missing"),
        (Form::Any | Form::Some, n) => format!("one of {n} words, the first"),
    };
    let mut text = format!("in {} for {words} at {}", form.text(), shown(place));
    if let Some(Compared {
        number,
        cmp,
        value,
        now,
    }) = compared
    {
        let _ = write!(text, " to be {} {}", cmp.text(), number.show(*value));
        if let Some(now) = now {
            let _ = write!(text, "; it is {}", number.show(*now));
        }
    }
    text
}

fn shown(place: Place) -> String {
    match place {
        Place::Heap(at) => format!("heap + {at:#x}"),
        Place::Static(at) => format!("static data + {at:#x}"),
        Place::Elsewhere => "an address that is not symmetric".into(),
        Place::Several => "different places".into(),
    }
}

/// Where the program called what its PEs wait in.
fn places(places: &Places, called: &str) -> String {
    let mut text = places.some.join(", ");
    if !text.is_empty() {
        text.insert_str(0, called);
        if places.more {
            text += " and elsewhere";
        }
    }
    text
}

fn lives(life: Life, one: bool) -> &'static str {
    match (life, one) {
        (Life::NotStarted, true) => "is not started yet",
        (Life::NotStarted, false) => "are not started yet",
        (Life::BeforeInit, true) => "has not called init (or is no OpenSHMEM program)",
        (Life::BeforeInit, false) => "have not called init (or are no OpenSHMEM program)",
        (Life::Starting, true) => "is in init",
        (Life::Starting, false) => "are in init",
        (Life::Running, true) => "computes (is in no call that waits)",
        (Life::Running, false) => "compute (are in no call that waits)",
        (Life::Finalizing, true) => "is in finalize",
        (Life::Finalizing, false) => "are in finalize",
        (Life::Finalized, true) => "has left finalize and runs on",
        (Life::Finalized, false) => "have left finalize and run on",
        (Life::Ended, true) => "has ended",
        (Life::Ended, false) => "have ended",
    }
}

/// The state of a thread, or of its process if a signal or debugger stopped that.
fn state(process: &Process, thread: &str, one: bool) -> String {
    let word = match process.state {
        b'R' => "running",
        b'S' => "sleeping in the kernel",
        b'D' => "blocked in the kernel (state D)",
        b'T' => "STOPPED by a signal (state T); kill -CONT continues it",
        b't' => "stopped by a debugger (state t)",
        b'Z' | b'X' => "dead, not reaped yet",
        _ => "in an unknown state",
    };
    let stopped = process.state.eq_ignore_ascii_case(&b't');
    let subject = match (stopped, one) {
        (true, true) => "its process is".into(),
        (true, false) => "their processes are".into(),
        (false, true) => format!("its {thread} is"),
        (false, false) => format!("their {thread}s are"),
    };
    let place = match process.place.as_str() {
        "" | "0" => String::new(),
        place => format!(" in {place}"),
    };
    format!("{subject} {word}{place}")
}

fn stopped(one: bool) -> &'static str {
    if one { "is stopped" } else { "are stopped" }
}

/// Whom everything comes down to.
fn conclusion(lines: &[Line<'_>], unknown: &RankSet) -> Option<String> {
    let mut waited = RankSet::default();
    let mut waiting = RankSet::default();
    for line in lines {
        waited.add(&line.missing);
        if !line.missing.is_empty() {
            waiting.add(&line.group.ranks);
        }
    }
    if waited.is_empty() {
        return None;
    }
    let ends = waited.without(&waiting);
    if ends.is_empty() {
        let circle = waited.common(&waiting);
        return Some(format!(
            "{} wait for each other: a circle, which nothing will end",
            circle.named("PE")
        ));
    }
    let mut does: Vec<String> = Vec::new();
    for line in lines {
        let here = ends.common(&line.group.ranks);
        if !here.is_empty() && does.len() < 4 {
            let one = here.len() == 1;
            let what = match &line.group.doing {
                Doing::Waits { what, .. } => line.waits(what, one),
                Doing::Runs {
                    process: Some(process),
                    ..
                } if process.state.eq_ignore_ascii_case(&b't') => stopped(one).to_owned(),
                Doing::Runs { life, .. } => lives(*life, one).to_owned(),
            };
            does.push(format!("{}, which {what}", here.named("PE")));
        }
    }
    let silent = ends.common(unknown);
    if !silent.is_empty() {
        does.push(format!("{}, of which nothing is known", silent.named("PE")));
    }
    let all = waiting.without(&ends);
    let verb = if all.len() == 1 { "waits" } else { "wait" };
    Some(format!(
        "It comes down to {}: {} {verb} for {}.",
        does.join("; "),
        all.named("PE"),
        if ends.len() == 1 { "it" } else { "them" }
    ))
}

fn hosts(nodes: &RankSet, hosts: &[String]) -> String {
    let names: Vec<&str> = nodes
        .iter()
        .take(8)
        .filter_map(|node| hosts.get(node as usize).map(String::as_str))
        .filter(|name| !name.is_empty())
        .collect();
    match names.is_empty() {
        true => String::new(),
        false => format!(", {}", names.join(" ")),
    }
}

fn times(n: u32) -> String {
    match n {
        0 => "no collective".into(),
        n => format!("{n} {}", plural(n.into(), "collective")),
    }
}

fn plural(n: u64, word: &str) -> String {
    match n {
        1 => word.into(),
        _ => format!("{word}s"),
    }
}

/// A time, with three digits.
pub fn time(ns: u64) -> String {
    let seconds = ns as f64 / 1e9;
    match ns {
        0..1_000_000_000 => format!("{:.0} ms", ns as f64 / 1e6),
        1_000_000_000..100_000_000_000 => format!("{seconds:.1} s"),
        100_000_000_000..6_000_000_000_000 => format!("{:.0} s", seconds),
        _ => format!("{:.1} h", seconds / 3600.0),
    }
}

fn span(span: Span) -> String {
    let (least, most) = (time(span.least), time(span.most));
    match least == most {
        true => most,
        false => format!("{least} to {most}"),
    }
}
