//! What stands out, in words, each with its number; and what to do about it where something can be said.
//!
//! Nothing is said of what is small: thresholds are here. Texts name settings and options as they are, which a test
//! compares with the table of settings.

use shmem_node::recording::Routine;
use shmem_node::stats::{Stat, Unit};

use super::hot::Others;
use super::network::figure;
use super::routines::{self, Row};
use super::start::Start;
use super::stragglers::Stragglers;
use super::waits::waker;
use super::{Facts, Head};
use crate::report::value;

/// A share that stands out: of the PEs' time, or of the job's.
const MUCH: f64 = 0.2;
/// A share of the PEs' time that is worth a line where one PE has it all cost.
const SOME: f64 = 0.02;
/// A share of all operations or bytes that makes a PE one with which everybody talks, and how many PEs there have to be.
const HOT: f64 = 0.4;
const CROWD: usize = 8;
/// A share of packets that are sent again, and how many they have to be: PEs that outnumber cores answer late now and then.
const LOSSY: f64 = 0.001;
const LOST: u64 = 20;
/// A start that is shorter is not worth a word, in nanoseconds.
const SHORT: u64 = 500_000_000;
/// Bytes of an operation whose time is that of its way, not of its data.
const SMALL: u64 = 4096;

fn ns(value_of: u64) -> String {
    value(Unit::Ns, value_of as f64)
}

fn bytes(value_of: u64) -> String {
    value(Unit::Bytes, value_of as f64)
}

fn share(part: u64, whole: u64) -> f64 {
    if whole == 0 {
        return 0.0;
    }
    part as f64 / whole as f64
}

fn percent(share: f64) -> String {
    let percent = share * 100.0;
    match percent < 9.95 {
        true => format!("{percent:.1} %"),
        false => format!("{percent:.0} %"),
    }
}

pub(super) fn advice(
    facts: &Facts<'_>,
    head: &Head,
    start: &Start,
    others: &Others,
    rows: &[Row],
    stragglers: &Stragglers,
) -> Vec<String> {
    let mut out = Vec::new();
    out.extend(unfinished(facts));
    out.extend(straggling(head, stragglers));
    out.extend(waiting(facts, head));
    out.extend(blocking(head, rows));
    out.extend(hot(head, others));
    out.extend(starting(head, start));
    out.extend(lossy(facts));
    out.extend(evicted(facts));
    out.extend(lost(facts, head));
    out
}

/// PEs that did not come to their end.
fn unfinished(facts: &Facts<'_>) -> Option<String> {
    let at = |stat| move |of: &&shmem_node::recording::Recording| of.stats.get(stat) != 0;
    let begun = facts.job.recordings.iter().filter(at(Stat::InitDoneAt));
    let not = begun
        .filter(|of| !at(Stat::FinalizeDoneAt)(of))
        .map(|of| of.rank);
    let first = not.clone().next()?;
    Some(match not.count() {
        1 => format!("PE {first} came out of init but not through finalize."),
        n => format!(
            "{n} PEs came out of init but not through finalize, PE {first} the first of them."
        ),
    })
}

/// Who comes last to collectives.
fn straggling(head: &Head, of: &Stragglers) -> Option<String> {
    if share(of.cost, head.lived) < SOME {
        return None;
    }
    let worst = of.worst.first()?;
    let whole = format!(
        "PEs waited {} ({} of their time) in collectives for the last one to arrive",
        ns(of.cost),
        percent(share(of.cost, head.lived))
    );
    if share(worst.cost, of.cost) < 0.5 {
        return Some(format!(
            "{whole}. That was a different one each time ({} PEs in {} collectives): the work is uneven, or its \
             speed.",
            of.different, of.uneven
        ));
    }
    Some(format!(
        "{whole}. PE {} was that in {} of {}, which cost the others {}, most in {}.",
        worst.pe,
        worst.last,
        of.uneven,
        ns(worst.cost),
        worst.routine
    ))
}

/// Waits for words.
fn waiting(facts: &Facts<'_>, head: &Head) -> Option<String> {
    let (pe, by, known) = waker(facts)?;
    let of_time = share(known, head.lived);
    if of_time < MUCH || share(by, known) < 0.5 || facts.job.recordings.len() < 3 {
        return None;
    }
    Some(format!(
        "{} of the PEs' time went by in waits that others ended, and operations of PE {pe} ended {} of it ({}): \
         the others wait for what it does before.",
        percent(of_time),
        percent(share(by, known)),
        ns(by)
    ))
}

/// Operations for each of which a PE waits.
fn blocking(head: &Head, rows: &[Row]) -> Vec<String> {
    let forms = [
        (
            Routine::Put,
            "put_nbi, with one quiet for many, does not wait for each",
        ),
        (
            Routine::Get,
            "get_nbi, with one quiet for many, has several under way",
        ),
        (
            Routine::AtomicFetching,
            "what does not need the old value, or not at once, need not wait for it (atomics that do not fetch, \
             and the nbi forms)",
        ),
    ];
    let said = forms.iter().filter_map(|&(routine, instead)| {
        let row = routines::find(rows, routine)?;
        let each = row.bytes / row.calls.max(1);
        if share(row.ns, head.lived) < MUCH || each > SMALL || row.calls < 1000 {
            return None;
        }
        Some(format!(
            "{} of the PEs' time went by in {} calls of {}, of {} and {} each: {instead}.",
            percent(share(row.ns, head.lived)),
            row.calls,
            row.name,
            bytes(each),
            ns(row.ns / row.calls)
        ))
    });
    said.collect()
}

/// A PE with which all others talk.
fn hot(head: &Head, others: &Others) -> Option<String> {
    if (head.recorded as usize) < CROWD {
        return None;
    }
    let of = others.hottest.first()?;
    let operations = share(of.operations, others.operations);
    let bytes_of = share(of.bytes, others.bytes);
    let crowded = of.by as usize >= CROWD / 2 && share(others.operations, head.operations) >= SOME;
    if operations.max(bytes_of) < HOT || !crowded {
        return None;
    }
    Some(format!(
        "{} of the operations of PEs on others' memory, and {} of the bytes, were on PE {}'s ({} operations by {} PEs, \
         {}): one PE's memory and link serve them all.",
        percent(operations),
        percent(bytes_of),
        of.pe,
        of.operations,
        of.by,
        bytes(of.bytes)
    ))
}

/// The start.
fn starting(head: &Head, start: &Start) -> Option<String> {
    let took = head.start_up?;
    if took < SHORT || share(took, head.wall) < MUCH {
        return None;
    }
    let of = start.steps.iter().max_by_key(|step| step.max);
    let most = of.map_or_else(String::new, |step| {
        format!(
            " The longest step of a PE was \"{}\", {} on PE {}.",
            step.name,
            ns(step.max),
            step.slowest
        )
    });
    Some(format!(
        "The start took {} of {} ({}).{most}",
        ns(took),
        ns(head.wall),
        percent(share(took, head.wall))
    ))
}

/// A network that loses packets.
fn lossy(facts: &Facts<'_>) -> Option<String> {
    let recordings = facts.job.recordings;
    let again = figure(recordings, Stat::Retransmissions)?;
    let sent = figure(recordings, Stat::PacketsSent).map_or(0, |sent| sent.sum);
    let lossy = share(again.sum, sent);
    (lossy >= LOSSY && again.sum >= LOST).then(|| {
        format!(
            "{} of the packets were retransmitted ({} of {sent}), most by PE {}: the network loses them, or a \
             receiver has no room (SHMEM_SOFT_BUFFER).",
            percent(lossy),
            again.sum,
            again.max_pe
        )
    })
}

/// Connections that are closed to be opened again.
fn evicted(facts: &Facts<'_>) -> Option<String> {
    let recordings = facts.job.recordings;
    let evictions = figure(recordings, Stat::Evictions)?;
    let anew = figure(recordings, Stat::Reconnects)?;
    let node: std::collections::HashMap<u32, u32> =
        recordings.iter().map(|of| (of.rank, of.node)).collect();
    let peers = recordings.iter().map(|of| {
        let far = of
            .traffic
            .iter()
            .filter(|t| node.get(&t.pe) != Some(&of.node));
        (far.count(), of.rank)
    });
    let (most, pe) = peers.max_by_key(|&(peers, pe)| (peers, u32::MAX - pe))?;
    Some(format!(
        "{} connections were closed to make room and {} opened anew, most by PE {}: raise SHMEM_MAX_QPS if there is \
         memory for more. PE {pe} has to do with {most} PEs of other nodes, the most of all.",
        evictions.sum, anew.sum, evictions.max_pe
    ))
}

/// Calls for which there was no room.
fn lost(facts: &Facts<'_>, head: &Head) -> Option<String> {
    let full = facts.job.recordings.iter().filter(|of| of.lost > 0);
    let all = full
        .clone()
        .map(|of| (of.events.len() as u64).saturating_add(of.lost));
    let (most, pes) = (all.max()?, full.count());
    let pes = match pes {
        1 => "1 PE".into(),
        n => format!("{n} PEs"),
    };
    let room = match most <= 1 << 24 {
        true => format!("--trace-calls {most} has room for all"),
        false => format!("no room of --trace-calls holds all, since PEs made up to {most}"),
    };
    Some(format!(
        "The times of {} calls of {pes} were not recorded: waits, collectives and connections over time are told of \
         the beginning of the job only, all else of the whole. {room}.",
        head.lost
    ))
}
