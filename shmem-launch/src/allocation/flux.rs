//! Flux's allocations: all nodes of the instance that this process is in, which `flux alloc` and `flux batch`
//! make for a job.
//!
//! An instance tells its resources by `flux resource R`, in the format of RFC 20: the brokers' ranks with the
//! cores of each, and the hosts of the ranks, of which several may be the same (`flux start -s 4`).

use std::collections::HashMap;

use shmem_node::settings::Batch;
use tinyjson::JsonValue;

use super::{Allocation, AllocationError, Surroundings, hostlist, number, var};
use crate::hosts::Host;

/// Deepest nesting of `R` that is read; the parser calls itself for each level.
const DEEPEST: usize = 64;

/// The instance that this process is in.
pub(super) fn read(around: &impl Surroundings) -> Result<Option<Allocation>, AllocationError> {
    let Some(uri) = var(around, "FLUX_URI") else {
        return Ok(None);
    };
    // A job's tasks find the instance that their job is one of, and which has nodes of others, too.
    if let Some(job) = var(around, "FLUX_JOB_ID") {
        return match number(around, "FLUX_JOB_SIZE")? {
            Some(tasks @ 2..) => Err(AllocationError::Task {
                by: "flux",
                tasks,
                once: "flux alloc or flux batch",
                instead: format!("flux run -n {tasks} PROGRAM"),
                rank: number(around, "FLUX_TASK_RANK")?.unwrap_or(0),
            }),
            _ => Err(AllocationError::Unclear {
                what: format!(
                    "this is a task of Flux job {job}, which has no instance of its own; use flux alloc or \
                     flux batch instead of flux run"
                ),
            }),
        };
    }
    const COMMAND: [&str; 3] = ["flux", "resource", "R"];
    let unclear = |why: String| AllocationError::Unclear {
        what: format!(
            "cannot find out what nodes the Flux instance {uri} has: {}: {why}",
            COMMAND.join(" ")
        ),
    };
    let text = around.output(&COMMAND).map_err(unclear)?;
    let hosts = resources(&text).map_err(unclear)?;
    Ok(Some(Allocation {
        batch: Batch::Flux,
        job: var(around, "FLUX_ENCLOSING_ID").unwrap_or(uri),
        hosts,
        tasks: None,
        source: COMMAND.join(" "),
        own_name: None,
        notes: Vec::new(),
    }))
}

/// The brokers, in the order of their ranks, with a slot for each core.
fn resources(text: &str) -> Result<Vec<Host>, String> {
    if depth(text) > DEEPEST {
        return Err(format!("it is nested more than {DEEPEST} levels deep"));
    }
    let all = text.parse::<JsonValue>().map_err(|e| e.to_string())?;
    let execution = member(&all, "execution")?;
    let mut cores: Vec<(u32, u32)> = Vec::new();
    for of in array(execution, "R_lite")? {
        let children = member(of, "children")?;
        // A rank may have none.
        let count = match member(children, "core").map(|set| words(set, "core")) {
            Err(_) | Ok(Ok("")) => 0,
            Ok(set) => ids(set?)?.len() as u32,
        };
        let ranks = words(member(of, "rank")?, "rank")?;
        cores.extend(ids(ranks)?.into_iter().map(|rank| (rank, count)));
    }
    cores.sort_unstable();
    let names = array(execution, "nodelist")?;
    let names: Result<Vec<_>, _> = names.iter().map(|n| words(n, "nodelist")).collect();
    let names = hostlist::expand(&names?.join(","))?;
    if names.len() != cores.len() {
        return Err(format!(
            "it names {} hosts for {} ranks",
            names.len(),
            cores.len()
        ));
    }
    let brokers = names.into_iter().zip(cores);
    let brokers = brokers.filter(|(_, (_, cores))| *cores > 0);
    Ok(brokers
        .map(|(name, (_, cores))| Host {
            slots: Some(cores),
            ..Host::new(name)
        })
        .collect())
}

/// How deep values are nested at most; brackets in texts count, too, and are closed there.
fn depth(text: &str) -> usize {
    let (mut now, mut most) = (0usize, 0);
    for byte in text.bytes() {
        match byte {
            b'[' | b'{' => now += 1,
            b']' | b'}' => now = now.saturating_sub(1),
            _ => continue,
        }
        most = most.max(now);
    }
    most
}

fn member<'a>(of: &'a JsonValue, name: &str) -> Result<&'a JsonValue, String> {
    let entries = of.get::<HashMap<String, JsonValue>>();
    let found = entries.and_then(|entries| entries.get(name));
    found.ok_or_else(|| format!("it has no {name} where one should be"))
}

fn array<'a>(of: &'a JsonValue, name: &str) -> Result<&'a Vec<JsonValue>, String> {
    let found = member(of, name)?.get();
    found.ok_or_else(|| format!("its {name} is no array"))
}

fn words<'a>(value: &'a JsonValue, name: &str) -> Result<&'a str, String> {
    let found = value.get::<String>();
    found
        .map(String::as_str)
        .ok_or_else(|| format!("its {name} is no text"))
}

/// The numbers of a set such as `0-3,7` (RFC 22).
fn ids(set: &str) -> Result<Vec<u32>, String> {
    let set = set.trim_start_matches('[').trim_end_matches(']');
    let numbers = hostlist::expand(&format!("[{set}]"))?;
    let parse = |n: String| {
        n.parse()
            .map_err(|_| format!("'{set}' is no set of numbers"))
    };
    numbers.into_iter().map(parse).collect()
}
