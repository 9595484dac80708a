//! Threads of all kinds are stopped, or a reason is given, in time.

use super::*;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64};

/// What a test runs with: the others of this process are stopped, too, one test at a time.
static TURN: std::sync::Mutex<()> = std::sync::Mutex::new(());

#[test]
fn other_threads_stand_still_and_go_on() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (count, end) = (
        Arc::new(AtomicU64::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let counting: Vec<_> = (0..3)
        .map(|_| {
            let (count, end) = (Arc::clone(&count), Arc::clone(&end));
            std::thread::spawn(move || {
                while !end.load(Ordering::Relaxed) {
                    count.fetch_add(1, Ordering::Relaxed);
                    // Holds the allocator's lock now and then.
                    drop(std::hint::black_box(vec![0u8; 100]));
                }
            })
        })
        .collect();
    // One in the kernel, which has to leave it.
    let (end_reading, reader) = {
        let (read, write) = std::io::pipe().unwrap();
        let reader = std::thread::spawn(move || {
            let mut byte = [0];
            std::io::Read::read(&mut { read }, &mut byte)
        });
        (write, reader)
    };
    for _ in 0..20 {
        let now = || count.load(Ordering::Relaxed);
        let before = now();
        while now() == before {
            std::thread::yield_now();
        }
        let undisturbed = Undisturbed::begin();
        let stopped = stop_others(&undisturbed)
            .unwrap()
            .expect("there are others");
        let (first, began) = (now(), Instant::now());
        while began.elapsed() < LOOK {}
        let second = now();
        drop(stopped);
        drop(undisturbed);
        assert_eq!(first, second);
    }
    end.store(true, Ordering::Relaxed);
    counting
        .into_iter()
        .for_each(|thread| thread.join().unwrap());
    drop(end_reading);
    assert_eq!(reader.join().unwrap().unwrap(), 0);
}

/// Threads in virtual time. Each look takes a while.
struct Simulated<F> {
    now: Instant,
    sight: F,
    sent: Vec<(i32, libc::pid_t)>,
}

impl<F: Fn(libc::pid_t, Instant) -> Result<Sight, &'static str>> Kernel for Simulated<F> {
    fn now(&self) -> Instant {
        self.now
    }

    fn pause(&mut self) {
        self.now += LOOK;
    }

    fn look(&mut self, id: libc::pid_t) -> Result<Sight, &'static str> {
        self.now += LOOK / 10;
        (self.sight)(id, self.now)
    }

    fn send(&mut self, signal: i32, thread: &Thread) -> Result<bool, &'static str> {
        self.sent.push((signal, thread.id));
        Ok(true)
    }
}

fn listed(n: libc::pid_t) -> Vec<Thread> {
    static OVER: AtomicU32 = AtomicU32::new(0);
    let thread = |id| Thread {
        id,
        state: AtomicU32::new(LISTED),
        over: &OVER,
    };
    (0..n).map(thread).collect()
}

fn states(threads: &[Thread]) -> Vec<u32> {
    let states = threads.iter().map(|t| t.state.load(Ordering::Relaxed));
    states.collect()
}

#[test]
fn threads_that_block_signals_share_the_time_to_wait() {
    let began = Instant::now();
    let threads = listed(66);
    let mut kernel = Simulated {
        now: began,
        // The first opens its mask late.
        sight: |id, now| match id {
            0 if now >= began + Duration::from_secs(1) => Ok(Sight::Takes(60)),
            1 => Ok(Sight::Takes(64)),
            _ => Ok(Sight::BlockedRunning),
        },
        sent: Vec::new(),
    };
    assert_eq!(ask(&threads, began + LIMIT, &mut kernel), Ok(()));
    assert!(kernel.now < began + LIMIT);
    assert_eq!(kernel.sent, [(64, 1), (60, 0)]);
    let states = states(&threads);
    assert_eq!(states[..2], [ASKED; 2]);
    assert!(states[2..].iter().all(|&state| state == LEFT_ALONE));
}

#[test]
fn the_librarys_own_threads_are_left_alone_at_once() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (tell, told) = std::sync::mpsc::channel();
    let (end, ended) = std::sync::mpsc::channel::<()>();
    super::super::spawn_thread(64 << 10, move || {
        tell.send(thread_id()).unwrap();
        let _ = ended.recv();
    })
    .unwrap();
    let id = told.recv().unwrap();
    assert_eq!(look_at(id.cast_signed(), u64::MAX), Ok(Sight::Own));
    assert!(!is_own_thread(thread_id()));
    drop(end);
    while is_own_thread(id) {
        std::thread::sleep(LOOK);
    }
    let began = Instant::now();
    let threads = listed(2);
    let mut kernel = Simulated {
        now: began,
        sight: |id, _| match id {
            0 => Ok(Sight::Own),
            _ => Ok(Sight::Takes(64)),
        },
        sent: Vec::new(),
    };
    assert_eq!(ask(&threads, began + LIMIT, &mut kernel), Ok(()));
    assert!(kernel.now < began + LOOK, "nobody waits");
    assert_eq!(states(&threads), [LEFT_ALONE, ASKED]);
}

#[test]
fn asking_ends_at_the_deadline_and_at_errors() {
    let began = Instant::now();
    let threads = listed(2);
    let mut kernel = Simulated {
        now: began,
        sight: |_, _| Ok(Sight::BlockedRunning),
        sent: Vec::new(),
    };
    let deadline = began + BLOCKED_RUNNING / 2;
    assert_eq!(ask(&threads, deadline, &mut kernel), Err(LATE));
    let mut kernel = Simulated {
        now: began,
        sight: |_, _| Err(UNREADABLE),
        sent: Vec::new(),
    };
    assert_eq!(ask(&threads, deadline, &mut kernel), Err(UNREADABLE));
}

#[test]
fn only_a_missing_file_or_process_means_that_a_thread_has_ended() {
    assert!(has_ended(Errno::NOENT) && has_ended(Errno::SRCH));
    for other in [Errno::MFILE, Errno::NFILE, Errno::ACCESS, Errno::NOMEM] {
        assert!(!has_ended(other), "{other}");
    }
}

#[test]
fn the_status_of_a_thread_tells_which_signals_it_takes() {
    const FREE: u64 = 0xe000_0000_0000_0000;
    let of = |text: String, awaited| sight(&Status::of(text.as_bytes(), STATUS), FREE, || awaited);
    let sight = |state: &str, mask: &str, awaited| {
        of(
            format!("Name:\tx\nState:\t{state}\nSigPnd:\t0\nSigBlk:\t{mask}\n"),
            awaited,
        )
    };
    let (open, all) = ("0000000000000000", "ffffffffffffffff");
    let (running, sleeping) = ("R (running)", "S (sleeping)");
    assert_eq!(sight(running, open, None), Ok(Sight::Takes(64)));
    assert_eq!(
        sight(running, "8000000000000000", None),
        Ok(Sight::Takes(63))
    );
    assert_eq!(sight(running, all, None), Ok(Sight::BlockedRunning));
    assert_eq!(sight(sleeping, all, Some(0)), Ok(Sight::BlockedAsleep));
    assert_eq!(sight(sleeping, open, Some(1 << 63)), Ok(Sight::Takes(63)));
    assert_eq!(
        sight(sleeping, open, Some(u64::MAX)),
        Ok(Sight::BlockedAsleep)
    );
    assert_eq!(sight(sleeping, open, None), Ok(Sight::BlockedRunning));
    assert_eq!(sight("Z (zombie)", all, None), Ok(Sight::Ended));
    let hidden = of(format!("State:\t{running}\n"), None);
    assert_eq!(hidden, Err(UNREADABLE));
}

#[test]
fn the_system_call_of_a_thread_tells_where_its_set_lies() {
    let wait = libc::SYS_rt_sigtimedwait;
    let waits = format!("{wait} 0x7f01 0x0 0x0 0x8 0x0 0x0 0x7ffc 0x7f02\n");
    assert_eq!(waits_in(waits.as_bytes()), Some(Some(0x7f01)));
    assert_eq!(waits_in(b"1000 0x7f01 0x0\n"), Some(None));
    assert_eq!(waits_in(b"-1 0x7f01 0x7f02\n"), Some(None));
    assert_eq!(waits_in(b""), Some(None));
    assert_eq!(waits_in(b"running\n"), None);
}

/// Blocks a signal in a thread of its own, or all, and lets it take signals by `sigwaitinfo` until one comes from
/// `pthread_kill`. Returns the state of that thread while the others were stopped, and how many more it took.
fn state_while_waiting(of: impl Fn(&mut libc::sigset_t)) -> (u32, usize) {
    // SAFETY: a set for which zeros are a value, and a call that changes it.
    let set = unsafe {
        let mut set: libc::sigset_t = std::mem::zeroed();
        of(&mut set);
        set
    };
    let (tell, told) = std::sync::mpsc::channel();
    let thread = std::thread::spawn(move || {
        // SAFETY: plain system calls; the sets and the structure outlive them.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
            tell.send(libc::syscall(libc::SYS_gettid) as libc::pid_t)
                .unwrap();
            let mut others = 0;
            loop {
                let mut info: libc::siginfo_t = std::mem::zeroed();
                match libc::sigwaitinfo(&set, &mut info) {
                    -1 => {}
                    _ if info.si_code != libc::SI_QUEUE => return others,
                    _ => others += 1,
                }
            }
        }
    });
    let id: libc::pid_t = told.recv().unwrap();
    // On kernels that do not show system calls the thread gets there nevertheless, in the end.
    let shown = || std::fs::read_to_string(format!("/proc/self/task/{id}/syscall"));
    let waits = format!("{} ", libc::SYS_rt_sigtimedwait);
    while shown().is_ok_and(|call| !call.starts_with(&waits)) {
        std::thread::sleep(LOOK);
    }
    let undisturbed = Undisturbed::begin();
    let stopped = stop_others(&undisturbed).map(|stopped| {
        let stopped = stopped?;
        let it = stopped.threads.iter().find(|t| t.id == id)?;
        Some(it.state.load(Ordering::Relaxed))
    });
    drop(undisturbed);
    // SAFETY: the thread has not been joined.
    unsafe {
        libc::pthread_kill(
            std::os::unix::thread::JoinHandleExt::as_pthread_t(&thread),
            libc::SIGRTMAX(),
        )
    };
    let others = thread.join().unwrap();
    (stopped.unwrap().expect("the thread is there"), others)
}

#[test]
fn a_thread_that_takes_one_signal_is_stopped_by_another() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    // SAFETY: the set outlives the call.
    let highest = |set: &mut libc::sigset_t| unsafe {
        libc::sigaddset(set, libc::SIGRTMAX());
    };
    assert_eq!(state_while_waiting(highest), (STOPPED, 0));
}

#[test]
fn a_thread_that_takes_all_signals_gets_none() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    // SAFETY: the set outlives the call.
    let all = |set: &mut libc::sigset_t| unsafe {
        libc::sigfillset(set);
    };
    assert_eq!(state_while_waiting(all), (LEFT_ALONE, 0));
}

#[test]
fn a_thread_that_blocks_one_signal_is_stopped_by_another() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (id, end) = (AtomicU32::new(0), AtomicBool::new(false));
    let state = std::thread::scope(|scope| {
        scope.spawn(|| {
            // SAFETY: a set that the calls fill in and read; this thread's mask alone changes.
            unsafe {
                let mut set: libc::sigset_t = std::mem::zeroed();
                libc::sigaddset(&mut set, libc::SIGRTMAX());
                libc::pthread_sigmask(libc::SIG_BLOCK, &set, ptr::null_mut());
                id.store(libc::syscall(libc::SYS_gettid) as u32, Ordering::Release);
            }
            while !end.load(Ordering::Relaxed) {
                std::thread::yield_now();
            }
        });
        while id.load(Ordering::Acquire) == 0 {
            std::thread::yield_now();
        }
        let undisturbed = Undisturbed::begin();
        let state = stop_others(&undisturbed).map(|stopped| {
            let id = id.load(Ordering::Relaxed) as libc::pid_t;
            let stopped = stopped?;
            let it = stopped.threads.iter().find(|t| t.id == id)?;
            Some(it.state.load(Ordering::Relaxed))
        });
        drop(undisturbed);
        end.store(true, Ordering::Relaxed);
        state
    });
    assert_eq!(state.unwrap(), Some(STOPPED));
}

/// What becomes of another thread in a child that may open so many descriptors more.
fn state_with_descriptors(more: libc::rlim_t) -> i32 {
    const FAILED: i32 = 100;
    // SAFETY: the child calls nothing that other threads could have locked but the allocator, which the C
    // library keeps usable.
    match unsafe { libc::fork() } {
        -1 => panic!("{}", io::Error::last_os_error()),
        0 => {
            let thread = std::thread::spawn(|| {
                loop {
                    std::thread::park();
                }
            });
            // SAFETY: plain system calls; the structure outlives them.
            unsafe {
                let free = libc::open(c"/".as_ptr(), libc::O_RDONLY);
                libc::close(free);
                let limit = free as libc::rlim_t + more;
                let limit = libc::rlimit {
                    rlim_cur: limit,
                    rlim_max: limit,
                };
                libc::setrlimit(libc::RLIMIT_NOFILE, &limit);
            }
            let undisturbed = Undisturbed::begin();
            let state = stop_others(&undisturbed).map_or(FAILED, |stopped| {
                stopped.map_or(FAILED + 1, |stopped| {
                    stopped.threads[0].state.load(Ordering::Relaxed) as i32
                })
            });
            std::mem::forget(thread);
            crate::sys::end_at_once(state)
        }
        child => {
            let mut status = 0;
            // SAFETY: `status` outlives the call.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            assert!(libc::WIFEXITED(status), "{status:#x}");
            match libc::WEXITSTATUS(status) {
                FAILED => -1,
                state => state,
            }
        }
    }
}

#[test]
fn no_thread_goes_on_for_want_of_descriptors() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    assert_eq!(state_with_descriptors(0), -1);
    assert_eq!(state_with_descriptors(1), STOPPED as i32);
}

#[test]
fn a_thread_that_blocks_all_signals_is_left_alone() {
    let _turn = TURN.lock().unwrap_or_else(|e| e.into_inner());
    let (blocked, end) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let (its_blocked, its_end) = (Arc::clone(&blocked), Arc::clone(&end));
    let thread = std::thread::spawn(move || {
        let _undisturbed = Undisturbed::begin();
        its_blocked.store(true, Ordering::Release);
        while !its_end.load(Ordering::Relaxed) {
            std::thread::sleep(LOOK);
        }
    });
    while !blocked.load(Ordering::Acquire) {
        std::thread::yield_now();
    }
    let undisturbed = Undisturbed::begin();
    let stopped = stop_others(&undisturbed)
        .unwrap()
        .expect("there are others");
    let left_alone = stopped
        .threads
        .iter()
        .filter(|t| t.state.load(Ordering::Relaxed) == LEFT_ALONE)
        .count();
    drop(stopped);
    drop(undisturbed);
    end.store(true, Ordering::Relaxed);
    thread.join().unwrap();
    assert!(left_alone >= 1);
}
