//! An HCA as its sleepers see it: a socket with packets, an event, a timer, a clock, and an engine
//! that has at most one deadline.

use std::os::fd::BorrowedFd;
use std::time::Duration;

use loom::sync::{Condvar, Mutex, MutexGuard};
use shmem_ib::verbs::{
    Access, Completion, Counters, Cq, Hca, Mr, PortInfo, QpAttr, QpInit, Qpn, RecvWr, SendWr, Srq,
    SrqInit, SrqNum, VerbsError, Wake, Xrcd,
};

use crate::sleep::{self, Desk, Host, Polls, Ready, Rest, Watch};

/// A sleep of this length or more has no end.
pub(crate) const FOREVER: Duration = Duration::from_secs(1 << 20);

/// The end of the longest sleep through which a thread may miss packets and deadlines.
pub(crate) const NAP_NS: u64 = 1_000_100;

/// What the kernel does.
struct Kernel {
    now: u64,
    packets: u32,
    event: bool,
    /// When the timer fires, and whether it has.
    timer: Option<u64>,
    fired: bool,
    /// Threads that are not asleep and have not ended.
    running: u32,
    /// The sleeps under way.
    sleeps: Vec<Sleep>,
}

#[derive(Clone, Copy, PartialEq)]
struct Sleep {
    watch: Watch,
    end: u64,
}

impl Kernel {
    fn ready(&self, watch: Watch) -> Ready {
        Ready {
            packet: watch.wire && self.packets > 0,
            event: watch.event && self.event,
            timer: watch.wire && self.fired,
        }
    }

    /// Whether this sleep is over, although its thread may not have got the processor yet.
    fn is_over(&self, sleep: Sleep) -> bool {
        let ready = self.ready(sleep.watch);
        self.now >= sleep.end || ready.packet || ready.event || ready.timer
    }
}

/// What the mutex of the HCA protects.
pub(crate) struct State {
    pub(crate) rest: Rest,
    pub(crate) deadline: Option<u64>,
    /// Completions that nobody has taken.
    pub(crate) unpolled: u32,
}

pub(crate) struct Model {
    state: Mutex<State>,
    kernel: Mutex<Kernel>,
    changed: Condvar,
    polls: Polls,
    /// The kernel has timer descriptors.
    timers: bool,
    /// No sleep may go on beyond this.
    limit: u64,
}

pub(crate) struct Guard<'a> {
    model: &'a Model,
    pub(crate) state: MutexGuard<'a, State>,
}

impl Model {
    /// With this number of threads, all of which call [`Model::rests`] at their end. It is a failure if all
    /// threads sleep and none will wake before `limit`.
    pub(crate) fn new(threads: u32, limit: u64) -> Self {
        Self {
            state: Mutex::new(State {
                rest: Rest::default(),
                deadline: None,
                unpolled: 0,
            }),
            kernel: Mutex::new(Kernel {
                now: 0,
                packets: 0,
                event: false,
                timer: None,
                fired: false,
                running: threads,
                sleeps: Vec::new(),
            }),
            changed: Condvar::new(),
            polls: Polls::default(),
            timers: true,
            limit,
        }
    }

    pub(crate) fn without_timers(mut self) -> Self {
        self.timers = false;
        self
    }

    fn kernel(&self) -> MutexGuard<'_, Kernel> {
        self.kernel.lock().unwrap()
    }

    /// A packet comes in; handling it gives a completion.
    pub(crate) fn arrive(&self) {
        self.kernel().packets += 1;
        self.changed.notify_all();
    }

    /// A post that makes the engine want to be called at `deadline`.
    pub(crate) fn post(&self, deadline: u64) {
        let mut guard = Host::lock(self);
        let sooner = guard.state.deadline.map_or(deadline, |d| d.min(deadline));
        guard.state.deadline = Some(sooner);
        let now = Host::now(self);
        sleep::announce(self, &mut guard, now);
    }

    /// An application polls: takes a completion if there is one.
    pub(crate) fn poll(&self) -> bool {
        self.polls.bump();
        let mut guard = Host::lock(self);
        if guard.state.unpolled == 0 {
            guard.pump();
            if guard.state.rest.anybody() {
                let now = Host::now(self);
                sleep::announce(self, &mut guard, now);
            }
        }
        let any = guard.state.unpolled > 0;
        guard.state.unpolled -= u32::from(any);
        any
    }

    /// The calling thread does nothing any more, or waits for other threads.
    pub(crate) fn rests(&self) {
        let mut kernel = self.kernel();
        kernel.running -= 1;
        self.pass_time(&mut kernel);
    }

    /// If nobody runs, lets the clock run to the end of the first sleep.
    fn pass_time(&self, kernel: &mut Kernel) {
        if kernel.running > 0 || kernel.sleeps.iter().any(|s| kernel.is_over(*s)) {
            return;
        }
        let timer = kernel.timer.filter(|_| !kernel.fired);
        let ends = kernel.sleeps.iter().map(|s| s.end);
        let Some(next) = ends.chain(timer).min() else {
            return;
        };
        assert!(
            next <= self.limit,
            "all sleep until {next}, beyond {}: a wake-up was lost",
            self.limit
        );
        kernel.now = kernel.now.max(next);
        kernel.fired |= timer.is_some_and(|at| at <= kernel.now);
        self.changed.notify_all();
    }
}

impl Host for Model {
    type Desk<'a> = Guard<'a>;

    fn now(&self) -> u64 {
        self.kernel().now
    }

    fn lock(&self) -> Guard<'_> {
        Guard {
            model: self,
            state: self.state.lock().unwrap(),
        }
    }

    fn polls(&self) -> &Polls {
        &self.polls
    }

    fn sleep(&self, watch: Watch, time: Duration) -> Ready {
        let mut kernel = self.kernel();
        let end = kernel.now.saturating_add(time.as_nanos() as u64);
        let own = Sleep { watch, end };
        if !kernel.is_over(own) {
            kernel.running -= 1;
            kernel.sleeps.push(own);
            self.pass_time(&mut kernel);
            while !kernel.is_over(own) {
                kernel = self.changed.wait(kernel).unwrap();
            }
            kernel.running += 1;
            let i = kernel.sleeps.iter().position(|s| *s == own).unwrap();
            kernel.sleeps.swap_remove(i);
        }
        kernel.ready(watch)
    }

    fn arm(&self, delay: Duration) -> bool {
        let mut kernel = self.kernel();
        kernel.timer = Some(kernel.now.saturating_add(delay.as_nanos() as u64));
        kernel.fired = false;
        self.timers
    }

    fn take_timer(&self) -> bool {
        let mut kernel = self.kernel();
        if kernel.fired {
            kernel.timer = None;
        }
        std::mem::take(&mut kernel.fired)
    }

    fn raise(&self) {
        self.kernel().event = true;
        self.changed.notify_all();
    }

    fn lower(&self) {
        self.kernel().event = false;
    }
}

impl Desk for Guard<'_> {
    fn rest(&mut self) -> &mut Rest {
        &mut self.state.rest
    }

    fn next_timeout(&mut self) -> Option<u64> {
        self.state.deadline
    }

    fn has_unpolled(&self) -> bool {
        self.state.unpolled > 0
    }

    fn pump(&mut self) -> bool {
        let mut kernel = self.model.kernel();
        let packets = std::mem::take(&mut kernel.packets);
        let due = self.state.deadline.is_some_and(|at| at <= kernel.now);
        if due {
            self.state.deadline = None;
        }
        self.state.unpolled += packets + u32::from(due);
        packets > 0 || due
    }

    fn tidy_at(&self, _: u64) -> Option<u64> {
        None
    }

    fn tidy(&mut self) {}
}

/// Nobody makes or posts anything.
macro_rules! not_modelled {
    ($(fn $name:ident($($ty:ty),*) -> $result:ty;)*) => {
        $(fn $name(&self, $(_: $ty),*) -> $result { unreachable!("not modelled") })*
    };
    ($(unsafe fn $name:ident($($ty:ty),*) -> $result:ty;)*) => {
        $(unsafe fn $name(&self, $(_: $ty),*) -> $result { unreachable!("not modelled") })*
    };
}

/// As endpoints see it.
impl Hca for Model {
    fn poll_cq(&self, _: Cq, out: &mut [Completion]) -> usize {
        let any = self.poll();
        if any {
            out[0] = Completion::EMPTY;
        }
        any.into()
    }

    fn wait(&self, max: Duration) -> Wake {
        sleep::wait(self, None, max)
    }

    /// Nobody counts on the end of the time, which is a safeguard only.
    fn wait_since(&self, wakes: u64, _: Duration) -> Wake {
        sleep::wait(self, Some(wakes), FOREVER)
    }

    fn set_alarm(&self, after: Option<Duration>) {
        sleep::set_alarm(self, after);
    }

    fn wake(&self) {
        sleep::wake(self);
    }

    fn wakes(&self) -> u64 {
        sleep::wakes(self)
    }

    fn inbound(&self) -> u64 {
        0
    }

    fn counters(&self) -> Counters {
        Counters::default()
    }

    not_modelled! {
        fn port() -> PortInfo;
        fn dereg_mr(&Mr) -> Result<(), VerbsError>;
        fn create_cq(u32) -> Result<Cq, VerbsError>;
        fn destroy_cq(Cq) -> Result<(), VerbsError>;
        fn create_srq(&SrqInit) -> Result<Srq, VerbsError>;
        fn srq_num(Srq) -> Result<SrqNum, VerbsError>;
        fn destroy_srq(Srq) -> Result<(), VerbsError>;
        fn open_xrcd(Option<BorrowedFd<'_>>) -> Result<Xrcd, VerbsError>;
        fn close_xrcd(Xrcd) -> Result<(), VerbsError>;
        fn create_qp(&QpInit) -> Result<Qpn, VerbsError>;
        fn modify_qp(Qpn, &QpAttr) -> Result<(), VerbsError>;
        fn destroy_qp(Qpn) -> Result<(), VerbsError>;
    }
    not_modelled! {
        unsafe fn reg_mr(*mut u8, usize, Access) -> Result<Mr, VerbsError>;
        unsafe fn post_srq_recv(Srq, &RecvWr<'_>) -> Result<(), VerbsError>;
        unsafe fn post_send(Qpn, &SendWr<'_>) -> Result<(), VerbsError>;
        unsafe fn post_recv(Qpn, &RecvWr<'_>) -> Result<(), VerbsError>;
    }
}
