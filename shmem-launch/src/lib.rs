//! `shmrun`: starts OpenSHMEM jobs through a tree of node launch agents.
//!
//! # The tree
//! `shmrun` starts one *node launch agent* (NLA, "agent"), that of node 0. Every agent starts its
//! children in a k-ary tree, so all of them are up after a logarithmic number of steps; then each
//! starts the PEs of its node, serves their PMI requests, passes their output up, and watches over
//! them. A node's agent knows only its parent and its children; nobody listens on a port.
//!
//! `--hosts a,b,c` puts a node on each host: an agent starts those of its children by a remote shell,
//! whose standard input and output are the link ([`remote`]). A first host that is this machine needs
//! no remote shell: its agent is forked.
//!
//! `--nodes K` on one machine emulates K nodes: each has its own agent, its own node segment and its
//! own software-HCA address (127.x.y.z), and they share nothing but links and the network. Agents
//! are started by fork without exec, which is safe because whoever forks has a single thread, and
//! everything that an agent must know comes in its first frame, so that an agent started in
//! another way (a remote shell) needs nothing else.
//!
//! # Map
//! | module | what | pure |
//! |---|---|---|
//! | [`cli`] | what was typed | yes |
//! | [`plan`] | ranks to nodes | yes |
//! | [`hosts`] | names of machines | yes |
//! | [`allocation`] | hosts that a batch system has given to the job | yes |
//! | [`remote`] | how agents on other hosts are called, and their greeting | yes |
//! | [`program`] | finding the program | |
//! | [`needed`] | the libraries that it will load | |
//! | [`binding`] | PEs to processors; reads /sys | half |
//! | [`memory`], [`limits`] | will it fit? decisions are pure, readers beside them | half |
//! | [`frame`] | the link protocol | yes |
//! | [`stdio`] | lines and labels | yes |
//! | [`exit`] | causes, messages, exit status | yes |
//! | [`census`] | what PEs wait for | yes |
//! | [`report`] | reduction and rendering of `--report` | yes |
//! | [`seeing`] | pictures of what PEs recorded: timeline and page | yes |
//! | `child` | an agent as its parent knows it | yes |
//! | [`agent`] | the agent as a state machine | yes |
//! | [`root`] | the launcher as a state machine; spawned jobs | yes |
//! | `given_file` | reading files that users name | |
//! | `misspelt` | variables that are named nearly like a setting | yes |
//! | [`names`] | names of services that PEs publish | yes |
//! | `job` | from what was typed to a checked job | half |
//! | `ps` | asking the launchers of running jobs | |
//! | `driver` | processes, epoll, threads around the two machines | |
//! | `sys` | system calls: the unsafe code; drivers add only promises of a single thread | |
//!
//! # Invariants
//! * Every process that descends from a job dies with it, whoever is killed and however: see
//!   `driver` and its `group`.
//! * Exactly one cause of an early end is told, the first; see [`exit`].
//! * No memory grows with unread output: see [`agent`] and its credit.
//! * No event costs work proportional to the number of PEs, and nobody inherits or closes
//!   descriptors by the thousand.

pub mod agent;
pub mod allocation;
pub mod binding;
pub mod census;
mod child;
pub mod cli;
pub mod exit;
pub mod frame;
mod given_file;
pub mod hosts;
pub mod limits;
pub mod memory;
mod misspelt;
pub mod names;
pub mod needed;
pub mod plan;
pub mod program;
mod ps;
mod pulse;
pub mod remote;
pub mod repeats;
pub mod report;
pub mod root;
pub mod seeing;
pub mod stdio;

/// Writes a line to standard error. Who cannot be told is not.
macro_rules! log {
    ($($text:tt)*) => {
        shmem_node::text::say(format_args!($($text)*))
    };
}
pub(crate) use log;

mod driver;
mod job;
mod sys;

use std::ffi::OsString;

use shmem_node::settings::Given;

use cli::Cli;
use frame::Stream;

/// Runs `shmrun` with this command line (`args[0]` is its own name) and gives the exit status.
///
/// # Safety
/// The process has a single thread: agents are forked from it.
pub unsafe fn main(args: impl IntoIterator<Item = OsString>) -> u8 {
    let start = shmem_node::sys::monotonic_ns();
    // A file that may not grow (ulimit -f) is an error of the call then, which is reported.
    sys::set_ignored(libc::SIGXFSZ, true);
    if let Err(limit) = sys::raise_stack() {
        let limit = shmem_node::machine::Size(limit);
        let what = format!(
            "the limit of stacks (ulimit -Hs) is {limit}, which is too little for shmrun; raise it"
        );
        return complain(&what, exit::LAUNCHER);
    }
    let cli = match Cli::parse_args(args) {
        Ok(cli) => cli,
        Err(e) => {
            if e.use_stderr() {
                let _ = driver::put(Stream::Err, e.render().to_string());
                return exit::USAGE;
            }
            use std::io::IsTerminal;
            let text = e.render();
            return show(&match std::io::stdout().is_terminal() {
                true => text.ansi().to_string(),
                false => text.to_string(),
            });
        }
    };
    // SAFETY: one thread, as promised by the caller, and nothing was opened.
    if let Some(status) = unsafe { without_job(&cli) } {
        return status;
    }
    if !cli.quiet && !cli.spawned {
        for note in misspelt::notes(cli.variables().iter().map(String::as_str)) {
            complain(&note, 0);
        }
    }
    let setting = |name: &str| {
        let typed = |(option, value)| Given {
            value,
            origin: format!("--{option}"),
        };
        cli.given_by(name)
            .map(typed)
            .or_else(|| Given::by_environment(name))
    };
    let value = |name: &str| setting(name).map(|given| given.value);
    let settings = match shmem_node::settings::Settings::parse(value) {
        Ok(settings) => settings,
        Err(e) => return complain(&e, exit::USAGE),
    };
    if cli.settings {
        return show(&shmem_node::settings::text(setting));
    }
    let outer = match cli.spawned.then(driver::Outer::find).transpose() {
        Ok(outer) => outer,
        Err(e) => {
            let what = format!("--spawned is for shmrun itself, when a PE spawns a job: {e}");
            return complain(&what, exit::USAGE);
        }
    };
    // Who asks early (SIGUSR1) gets an answer when there is one, and does not end what is being prepared.
    sys::set_blocked(&[libc::SIGUSR1, libc::SIGUSR2]);
    let job = match &outer {
        None => job::prepare(&cli, &settings, start),
        Some(outer) => job::prepare_spawned(&cli, &settings, start, &outer.job),
    };
    let job = match (job, &outer) {
        (Ok(job), _) => job,
        (Err(e), None) if e.is_told_by_another() => return e.status(),
        (Err(e), None) => return complain(&e, e.status()),
        (Err(e), Some(outer)) => {
            outer.refuse(&e);
            return 0;
        }
    };
    if !cli.quiet
        && let Some(notice) = shmem_node::pages::without_effect(settings.heap_pages)
    {
        complain(&notice, 0);
    }
    // SAFETY: one thread, as promised by the caller.
    unsafe { run(&cli, job, outer) }
}

/// Runs a checked job, and writes what was asked for of it.
///
/// # Safety
/// The process has a single thread.
unsafe fn run(cli: &Cli, job: job::Job, outer: Option<driver::Outer>) -> u8 {
    if outer.is_none() && !cli.quiet {
        for note in &job.notes {
            complain(note, 0);
        }
    }
    if (cli.inherited.verbose && outer.is_none()) || cli.dry_run {
        let shown = driver::put(Stream::Err, job::describe(&job, !cli.dry_run));
        if cli.dry_run {
            return shown.map_or_else(|lost| lost.status, |()| 0);
        }
    }
    // SAFETY: one thread, as promised by the caller.
    let outcome = match unsafe { driver::run(job, outer) } {
        Ok(outcome) => outcome,
        Err(e) => {
            return complain(&format!("cannot run the job: {e}"), exit::LAUNCHER);
        }
    };
    let reports = driver::write_reports(&outcome, cli);
    match (reports, outcome.facts.status) {
        (Err(lost), 0) => print_lost(&lost),
        (Err(lost), status) => {
            print_lost(&lost);
            status
        }
        (Ok(()), status) => status,
    }
}

/// Does what else this program is called for, if it is not to start a job.
///
/// # Safety
/// The process has a single thread and nothing open but standard streams that it needs.
unsafe fn without_job(cli: &Cli) -> Option<u8> {
    use std::io::IsTerminal;
    if cli.agent {
        if std::io::stdin().is_terminal() {
            let what = "--agent is for shmrun itself, which calls it through a remote shell";
            return Some(complain(&what, exit::USAGE));
        }
        // SAFETY: as promised by the caller.
        return Some(unsafe { driver::run_remote() });
    }
    if cli.pmix_server {
        // SAFETY: whoever executes it so has put the socket there; else there is none.
        return Some(unsafe { driver::serve_pmix() });
    }
    let asked = cli.ps.as_ref()?;
    Some(match ps::run(asked.as_deref(), cli.inherited.backtrace) {
        Ok(text) => show(&text),
        Err((what, status)) => complain(&what, status),
    })
}

/// Shows what was asked for instead of running a job.
fn show(text: &str) -> u8 {
    match driver::put(Stream::Out, text) {
        Ok(()) => 0,
        Err(lost) => print_lost(&lost),
    }
}

/// A reader that has gone knows that it has.
fn print_lost(lost: &driver::Lost) -> u8 {
    match &lost.message {
        Some(what) => complain(what, lost.status),
        None => lost.status,
    }
}

fn complain(what: &dyn std::fmt::Display, status: u8) -> u8 {
    // The status tells it where the message cannot.
    let _ = driver::put(Stream::Err, format!("shmrun: {what}\n"));
    status
}
