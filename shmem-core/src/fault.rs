//! How a PE says what went wrong.
//!
//! A mistake is often made by all PEs at once, and then thousands say the same. Under `shmrun` a PE
//! hands its words to the launch agent, and the agents tell the user once, with how often it was said.
//! Elsewhere they go to standard error, in one write.
//!
//! Panics of a job of several PEs are told like that, too. The words are out at once. Where
//! `RUST_BACKTRACE` asks for a backtrace, one PE of the machine at a time makes its own, because that
//! takes as much memory as the program has debug information; and a place of which this node has
//! told one needs no other. So when all PEs fail at one place, the first backtrace is complete before
//! anybody ends, and nobody else makes one. A hook that the program has set before init is called
//! instead on every PE, between the same locks.

use std::backtrace::Backtrace;
use std::fmt::Write as _;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::{ErrorKind, Write as _};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::panic::{self, Location, PanicHookInfo};
use std::process;
use std::sync::Once;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use shmem_node::contract;
use shmem_node::segment::NodeView;
use shmem_node::sys;
use shmem_node::waiting::Place;

use crate::attach::{Attached, attached, process_exits};
use crate::stderr;

/// How long a PE that fails waits for the backtraces of others.
const LONGEST: Duration = Duration::from_secs(10);
/// Shortest time between two looks whether they are done.
const LOOK: Duration = Duration::from_millis(10);

/// Status of a process that ends because of a panic and cannot unwind.
const STATUS: i32 = 1;

/// Says what is wrong with this PE, or with this process if it is none.
#[cold]
pub fn complain(text: &str) {
    match attached() {
        Some(who) => tell(who, text, false),
        None => stderr::write(text),
    }
}

/// Tells the user something about this PE; `adds`: it only adds to what it told before.
fn tell(who: &Attached, text: &str, adds: bool) {
    if !(who.is_own_process() && who.pmi.tell(text, adds)) {
        let (me, node) = (who.me, who.node.node());
        stderr::write(&format!("PE {me} (node {node}): {text}"));
    }
}

/// Whether panics end this process.
static ENDS: AtomicBool = AtomicBool::new(false);

/// Has panics tell their words alone and end the process, as a mistake in a program does whose
/// language cannot unwind. To be called before init.
pub fn end_at_panic() {
    ENDS.store(true, Ordering::Relaxed);
    watch_panics();
}

/// Whether a caller's place in Rust source is one in the program: so it is unless that is in another language.
pub(crate) fn places_are_the_programs() -> bool {
    !ENDS.load(Ordering::Relaxed)
}

/// A caller's place, for reports to others.
pub(crate) fn place_in_program(at: &Location<'_>) -> Place {
    match places_are_the_programs() {
        true => Place::of(at),
        false => Place::NOWHERE,
    }
}

type Hook = Box<dyn Fn(&PanicHookInfo<'_>) + Send + Sync>;

/// From now on panics are told as those of a PE.
pub(crate) fn watch_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let hook = panic::take_hook();
        // What there is when nobody has set one.
        let default = panic::take_hook();
        let is_default = std::ptr::eq(&raw const *hook, &raw const *default);
        panic::set_hook(Box::new(move |info| match attached() {
            _ if ENDS.load(Ordering::Relaxed) => end(info),
            Some(who) if who.node.n_pes() > 1 && who.is_own_process() => {
                panicked(who, info, (!is_default).then_some(&hook));
            }
            _ => hook(info),
        }));
    });
}

/// The end of a process that cannot unwind.
fn end(info: &PanicHookInfo<'_>) -> ! {
    let text = words(info);
    match info.location() {
        Some(at) if wants_backtrace() => complain(&format!("{text} ({at})")),
        _ => complain(text),
    }
    leave()
}

/// For a child of a PE that calls what only the PE itself may call: a collective, a wait, or the network. It ends
/// without running exit handlers, which are the PE's.
#[cold]
pub(crate) fn is_no_pe() -> ! {
    let pid = process::id();
    complain(&format!(
        "process {pid}, which this PE has forked, calls a collective routine, waits, or uses the network; only the PE itself \
         can do that, and the process ends with status {STATUS}"
    ));
    sys::end_at_once(STATUS)
}

static EXITS: AtomicBool = AtomicBool::new(false);

/// Whether the process exits already.
pub(crate) fn exits() -> bool {
    EXITS.load(Ordering::Relaxed)
}

/// The process exits: its exit handler runs.
pub(crate) fn exit_has_begun() {
    EXITS.store(true, Ordering::Relaxed);
}

/// Says what has failed, and ends this process; the launcher ends the job.
#[cold]
pub(crate) fn fail(text: &str) -> ! {
    complain(text);
    leave()
}

fn leave() -> ! {
    if sys::is_library_thread() {
        end_from_library_thread();
    }
    if exits() {
        // There is no second exit: the same thread would abort, and another one wait for the end of the first.
        process_exits(STATUS);
        sys::end_at_once(STATUS);
    }
    process::exit(STATUS)
}

/// Ends the process while the program's threads run: exit handlers and destructors must not run beside them.
fn end_from_library_thread() -> ! {
    // A stream may be in use for ever, by a thread that waits for input.
    let bounded = at_timeout(|| {
        process_exits(STATUS);
        sys::end_at_once(STATUS)
    });
    if bounded {
        let _ = std::io::stdout().flush();
        flush_all();
    }
    process_exits(STATUS);
    sys::end_at_once(STATUS)
}

/// How long what a process does at its end may take before others go on.
const EXIT_TIMEOUT: Duration = Duration::from_secs(1);

/// Writes what the C library's streams hold.
pub(crate) fn flush_all() {
    // SAFETY: null stands for all streams.
    unsafe { libc::fflush(std::ptr::null_mut()) };
}

/// Has `late` run if the process is still there when [`EXIT_TIMEOUT`] has passed. Returns whether it will.
pub(crate) fn at_timeout(late: impl FnOnce() + Send + 'static) -> bool {
    // Libraries of MPI and PMIx run on it. Pages that nobody touches cost nothing.
    const STACK: usize = 2 << 20;
    let wait = move || {
        std::thread::sleep(EXIT_TIMEOUT);
        late();
    };
    sys::spawn_thread(STACK, wait).is_ok()
}

fn panicked(who: &Attached, info: &PanicHookInfo<'_>, hook: Option<&Hook>) {
    if let Some(hook) = hook {
        // Others may make backtraces in theirs.
        let _lock = Lock::take(&who.node, || false);
        let (me, node) = (who.me, who.node.node());
        stderr::write(&format!("PE {me} (node {node}) panics:"));
        return hook(info);
    }
    let thread = std::thread::current();
    let mut text = at(info.location(), thread.name());
    text += words(info);
    let traces = wants_backtrace();
    if !traces {
        text += "\nnote: run with `RUST_BACKTRACE=1` environment variable to display a backtrace";
    }
    tell(who, &text, false);
    if traces {
        let place = hash(info.location());
        let told = || who.node.traces().has(place);
        if let Some(_lock) = Lock::take(&who.node, told) {
            tell(who, &trace(), true);
            who.node.traces().add(place);
        }
    }
}

/// Where a panic is, for its words to follow: `src/sort.rs:14: `.
fn at(place: Option<&Location<'_>>, thread: Option<&str>) -> String {
    let mut text = String::new();
    if let Some(place) = place {
        let _ = write!(text, "{}:{}", place.file(), place.line());
    }
    if thread != Some("main") {
        let comma = if text.is_empty() { "" } else { ", " };
        let _ = write!(text, "{comma}thread '{}'", thread.unwrap_or("<unnamed>"));
    }
    if !text.is_empty() {
        text += ": ";
    }
    text
}

fn words<'a>(info: &'a PanicHookInfo<'_>) -> &'a str {
    let payload = info.payload();
    match payload.downcast_ref::<String>() {
        Some(text) => text,
        None => payload.downcast_ref::<&str>().unwrap_or(&"Box<dyn Any>"),
    }
}

fn hash(what: impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

fn wants_backtrace() -> bool {
    std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value != "0")
}

/// The backtrace of this thread, from where it panicked.
fn trace() -> String {
    let whole = Backtrace::force_capture().to_string();
    let full = std::env::var_os("RUST_BACKTRACE").is_some_and(|value| value == "full");
    let frames = if full { &whole } else { of_program(&whole) };
    format!("stack backtrace:\n{frames}")
}

/// The frames between those that make a panic and those that call `main`, if both can be found.
fn of_program(whole: &str) -> &str {
    let frame = |name: &str, from: usize| {
        let at = from + whole[from..].find(name)?;
        Some(whole[..at].rfind('\n').map_or(0, |end| end + 1))
    };
    let start = frame("rust_begin_unwind", 0).unwrap_or(0);
    let end = frame("__rust_begin_short_backtrace", start).unwrap_or(whole.len());
    &whole[start..end]
}

/// Held by the one PE of the job on this machine that makes a backtrace. The kernel frees it when
/// the process ends.
struct Lock(#[allow(dead_code, reason = "it is held")] Option<UnixDatagram>);

impl Lock {
    /// Waits for the lock. `None` if `done` comes to hold, or others take too long.
    fn take(node: &NodeView, done: impl Fn() -> bool) -> Option<Self> {
        let name = format!("shmem-{}-backtrace", contract::hex(&node.job_id()));
        let (start, turn) = (Instant::now(), node.turns().take());
        while !done() {
            let bound =
                SocketAddr::from_abstract_name(&name).and_then(|at| UnixDatagram::bind_addr(&at));
            match bound {
                Ok(socket) => return (!done()).then_some(Self(Some(socket))),
                Err(e) if e.kind() == ErrorKind::AddrInUse => {}
                // Where there are no such names, nobody is kept waiting.
                Err(_) => return Some(Self(None)),
            }
            let waited = start.elapsed();
            if waited >= LONGEST {
                return None;
            }
            std::thread::sleep(turn.after(LOOK).min(LONGEST - waited));
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_is_told_with_its_place() {
        let place = Location::caller();
        let line = place.line();
        let text = at(Some(place), Some("main"));
        assert!(text.ends_with(&format!("src/fault.rs:{line}: ")), "{text}");
        let text = at(Some(place), None);
        assert!(
            text.ends_with(&format!(":{line}, thread '<unnamed>': ")),
            "{text}"
        );
        assert_eq!(at(None, Some("worker")), "thread 'worker': ");
    }

    #[test]
    fn a_backtrace_begins_at_the_panic_and_ends_at_main() {
        let whole = "   0: hook\n             at hook.rs:1:2\n   1: __rustc::rust_begin_unwind\n   \
                     2: mine\n   3: std::sys::__rust_begin_short_backtrace<f>\n   4: main\n";
        assert_eq!(
            of_program(whole),
            "   1: __rustc::rust_begin_unwind\n   2: mine\n"
        );
        assert_eq!(of_program("   0: f\n"), "   0: f\n");
    }
}
