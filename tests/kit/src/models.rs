//! Models of protocols between threads and between PEs, under loom: every interleaving up to a number of preemptions,
//! with the memory model of C11. Files of a library that take their fences from here are also tried with weaker ones:
//! a model that does not notice them proves nothing.

use std::cell::Cell;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Once};
use std::thread;

use loom::sync::atomic::Ordering;

thread_local! {
    /// An ordering, and to what it is weakened. Loom runs all threads of a model on the one that calls it.
    static WEAKENED: Cell<Option<(Ordering, Ordering)>> = const { Cell::new(None) };
}

/// What stands for this ordering in a model that is to notice a weaker one.
pub fn ordering(asked: Ordering) -> Ordering {
    match WEAKENED.get() {
        Some((weakened, weaker)) if weakened == asked => weaker,
        _ => asked,
    }
}

/// A fence of this ordering, or the weaker one; none where that is relaxed.
pub fn fence(asked: Ordering) {
    match ordering(asked) {
        Ordering::Relaxed => {}
        order => loom::sync::atomic::fence(order),
    }
}

/// Runs `f` in every interleaving with at most `preemptions` preemptions, or as many as `LOOM_MAX_PREEMPTIONS` says.
/// Tells how many those were.
///
/// # Panics
/// If there was one only: such a model tries nothing.
pub fn model(preemptions: usize, f: impl Fn() + Send + Sync + 'static) {
    let executions = explore(preemptions, f);
    let name = thread::current().name().unwrap_or_default().to_owned();
    // Past the capture of the test's output: it is what a model has to show.
    let line = format!("{executions:>9} executions of {name}\n");
    let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
    assert!(executions > 1, "there is nothing to try");
}

/// The same with one ordering weakened to another, which the model has to notice.
///
/// # Panics
/// If it does not, or if loom gives up.
pub fn noticed(
    preemptions: usize,
    weakened: Ordering,
    weaker: Ordering,
    f: impl Fn() + Send + Sync + 'static,
) {
    quiet_while_weakened();
    WEAKENED.set(Some((weakened, weaker)));
    let found = panic::catch_unwind(AssertUnwindSafe(|| explore(preemptions, f)));
    WEAKENED.set(None);
    let Err(why) = found else {
        panic!("{weaker:?} does as well as {weakened:?}");
    };
    let why = why.downcast_ref::<String>().map_or("", String::as_str);
    assert!(!why.starts_with(GAVE_UP), "{why}");
}

/// Panics that are expected tell nothing. A backtrace takes more stack than loom's threads have, and who overflows one hangs.
fn quiet_while_weakened() {
    static SET: Once = Once::new();
    SET.call_once(|| {
        let usual = panic::take_hook();
        panic::set_hook(Box::new(move |panic| {
            if WEAKENED.get().is_none() {
                usual(panic);
            }
        }));
    });
}

/// How loom begins to say that an execution is too long for it.
const GAVE_UP: &str = "Model exceeded";

fn explore(preemptions: usize, f: impl Fn() + Send + Sync + 'static) -> usize {
    let mut builder = loom::model::Builder::new();
    builder.preemption_bound = builder.preemption_bound.or(Some(preemptions));
    builder.max_branches = 20_000;
    let executions = Arc::new(AtomicUsize::new(0));
    let count = executions.clone();
    builder.check(move || {
        count.fetch_add(1, Ordering::Relaxed);
        f();
    });
    executions.load(Ordering::Relaxed)
}
