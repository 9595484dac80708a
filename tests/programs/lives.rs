//! A program that joins its job again and again: `lives N` does so N times, and checks each time that
//! it finds a new world and that communication works. `lives N static` has symmetric static data that
//! lasts from one life to the next; `lives N empty` does nothing in between; `lives N dropped` drops its
//! `World`s, which leaves it to the next init or to the exit to finalize. `lives N flat` checks, and
//! tells, what the process has after the first lives and after the last: no more descriptors, threads,
//! mappings or memory. After `lives N left` the thread of `main` ends as `pthread_exit` ends it, and not the process.

use std::sync::atomic::{AtomicU64, Ordering};

use shmem::raw;
use shmem::{
    Cmp, Lock, LockGuard, ThreadLevel, alloc, atomic_fetch_add, atomic_inc, barrier_all, fcollect,
    free, g, my_pe, n_pes, p, put, quiet, wait_until,
};

static LASTS: AtomicU64 = AtomicU64::new(0);

/// The launcher leaves room for static data.
#[used]
#[unsafe(link_section = ".note.shmem")]
static NOTE: raw::Note = raw::Note::WITH_STATICS;

fn main() -> Result<(), shmem::Error> {
    let mut args = std::env::args().skip(1);
    let lives: u64 = args.next().and_then(|n| n.parse().ok()).expect("a number");
    let kind = args.next();
    let is = |what| kind.as_deref() == Some(what);
    let [statics, empty, dropped, flat] = ["static", "empty", "dropped", "flat"].map(is);
    let warm = lives / 4;
    let mut early = None;
    assert!(!shmem::initialized());
    let mut held = None;
    for life in 0..lives {
        let world = if statics {
            assert_eq!(raw::init(ThreadLevel::Multiple)?, ThreadLevel::Multiple);
            None
        } else {
            Some(shmem::init()?)
        };
        assert!(shmem::initialized());
        let mut last = [0];
        shmem::nbi(|ops| -> Result<(), shmem::Error> {
            if !empty {
                outlive(held.take())?;
                live(life)?;
                let lock = Lock::new()?;
                if my_pe() == 0 {
                    held = Some(lock.lock());
                }
                let word = alloc::<u64>(1)?;
                word.write(0, life + 7);
                barrier_all();
                ops.get(&mut last, word, (my_pe() + 1) % n_pes());
            }
            if statics {
                count_static(life);
                raw::finalize();
            }
            // Finalize completes what is under way.
            match world {
                Some(world) if dropped => {
                    let inner = shmem::init()?;
                    drop(world);
                    match life % 2 {
                        0 => drop(inner),
                        _ => inner.finalize(),
                    }
                }
                Some(world) => world.finalize(),
                None => {}
            }
            Ok(())
        })?;
        assert!(empty || last == [life + 7]);
        let waits_for_exit = dropped && life % 2 == 0;
        assert_eq!(shmem::initialized(), waits_for_exit);
        assert_eq!(shmem::thread_level().is_some(), waits_for_exit);
        if flat && life + 1 == warm {
            early = Some(Holdings::now());
        }
    }
    if let Some(early) = early {
        let late = Holdings::now();
        println!("{early:?} after {warm} lives, {late:?} after {lives}");
        late.check(&early);
    }
    // Of what there is no more, nothing happens.
    raw::finalize();
    if is("left") {
        // SAFETY: ends this thread alone, which holds nothing.
        unsafe { libc::syscall(libc::SYS_exit, 0) };
    }
    Ok(())
}

/// A lock that was held at the end of a life is no lock any more.
fn outlive(held: Option<LockGuard>) -> Result<(), shmem::Error> {
    const LOOKS_HELD: u64 = 1 << 62;
    let words = alloc::<u64>(3000)?;
    words.fill(LOOKS_HELD);
    barrier_all();
    drop(held);
    barrier_all();
    assert!(words.to_vec().iter().all(|&word| word == LOOKS_HELD));
    free(words)
}

fn live(life: u64) -> Result<(), shmem::Error> {
    let (me, n) = (my_pe(), n_pes());
    let right = (me + 1) % n;
    // The heap is empty: the same addresses every time, and zeros.
    let all = alloc::<u64>(1000 + n)?;
    assert!(all.to_vec().iter().all(|&v| v == 0), "life {life}");
    all.fill(life + 1);
    barrier_all();
    let inbox = alloc::<u64>(4)?;
    put(inbox, &[life, me as u64, 7], right);
    p(inbox.elem(3), life + 1, right);
    wait_until(inbox.elem(3), Cmp::Eq, life + 1);
    quiet();
    barrier_all();
    assert_eq!(inbox.to_vec()[..3], [life, ((me + n - 1) % n) as u64, 7]);
    let sum = alloc::<u64>(1)?;
    for pe in 0..n {
        atomic_inc(sum, pe);
    }
    barrier_all();
    assert_eq!(sum.read(0), n as u64);
    // Nobody adds before all have looked.
    barrier_all();
    assert!(atomic_fetch_add(sum, 5, 0) >= n as u64);
    let mine = alloc::<u64>(1)?;
    mine.write(0, life * 100 + me as u64);
    let theirs = alloc::<u64>(n)?;
    fcollect(theirs, mine);
    let want: Vec<u64> = (0..n as u64).map(|pe| life * 100 + pe).collect();
    assert_eq!(theirs.to_vec(), want);
    assert_eq!(g(mine, right), life * 100 + right as u64);
    // Two that nobody destroys, of which one has its connections for itself, with something under way.
    let far = alloc::<u64>(20_000)?;
    for ctx in [shmem::context().own_connections(), shmem::context()] {
        let ctx = ctx.create()?;
        ctx.p(inbox, life + 3, right);
        ctx.quiet();
        assert_eq!(ctx.g(inbox, right), life + 3);
        ctx.put_sym_nbi(far, far, right);
        std::mem::forget(ctx);
    }
    Ok(())
}

/// Everybody counts on PE 0.
fn count_static(life: u64) {
    let at = raw::symmetric((&raw const LASTS).cast(), 8)
        .unwrap_or_else(|| panic!("{}", raw::why_not_symmetric((&raw const LASTS).cast(), 8)));
    // SAFETY: the address of an aligned `u64`.
    let word = unsafe { shmem::SymSlice::<u64>::from_addr(at, 1) };
    let n = n_pes() as u64;
    atomic_inc(word, 0);
    barrier_all();
    if my_pe() == 0 {
        assert_eq!(LASTS.load(Ordering::SeqCst), (life + 1) * n);
    }
    barrier_all();
}

/// What this process has of what the system gives.
#[derive(Debug)]
struct Holdings {
    descriptors: usize,
    threads: usize,
    mappings: usize,
    /// Of private memory.
    kib: usize,
}

impl Holdings {
    fn now() -> Self {
        let entries = |of| std::fs::read_dir(of).expect("/proc").count();
        let read = |of| std::fs::read_to_string(of).expect("/proc");
        let status = read("/proc/self/status");
        let anonymous = status.lines().find_map(|l| l.strip_prefix("RssAnon:"));
        let kib = anonymous.and_then(|l| l.split_whitespace().next()?.parse().ok());
        Self {
            descriptors: entries("/proc/self/fd"),
            threads: entries("/proc/self/task"),
            mappings: read("/proc/self/maps").lines().count(),
            kib: kib.expect("a number"),
        }
    }

    /// Whether nothing has grown since. The allocator may have taken a little more meanwhile, however
    /// many lives there were.
    fn check(&self, before: &Self) {
        assert!(self.descriptors <= before.descriptors, "descriptors stay");
        // The last life's progress threads, of the PE and of a context, end when they next wake, at the latest in
        // the next init.
        assert!(self.threads <= 3, "threads stay");
        assert!(self.mappings <= before.mappings + 8, "mappings stay");
        assert!(self.kib <= before.kib + 512, "memory stays");
    }
}
