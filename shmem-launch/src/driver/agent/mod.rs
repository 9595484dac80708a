//! The process of a node launch agent: one thread, one epoll loop, around [`crate::agent::Agent`].

pub(super) mod children;
mod ending;
mod input;
mod pe_io;
mod respawn;
mod starting;

use std::collections::{HashMap, VecDeque};
use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::net::SocketType;
use shmem_node::pe_block::PeState;
use shmem_node::settings::Settings;
use shmem_node::template::{PeSpec, Reply};
use shmem_pmi::tree::Tree;

use super::address;
use super::group::Group;
use super::link::{self, Got, LinkIo};
use super::node::{self, Node, Place};
use super::park::Parking;
use super::reap::{Burial, bury};
use super::store::SharedStore;
use super::warden;
use crate::agent::{Action, Agent, Event, Reading, Setup};
use crate::exit::{End, ends};
use crate::frame::{Frame, Launch, OutBuf, STDIN_WINDOW, Stream};
use crate::limits::{self, Portion};
use crate::report::{Moment, Reduced};
use crate::sys::{self, Epoll, Interest, Ready, Waited, monotonic_ns};
use children::ChildIo;
use input::Input;
use respawn::Respawning;
use starting::{Refused, Request};

/// Standard input and output of an agent are /dev/null.
pub(super) const NULL_FD: RawFd = 0;

/// Number of the link to the parent in an agent; in one that a remote shell started, of what it reads
/// and what it writes.
const LINK_FD: RawFd = 3;
const LINK_OUT_FD: RawFd = 4;

const SIGNALS: [i32; 2] = [libc::SIGCHLD, libc::SIGTERM];

/// Time between two searches for ended children of unknown number, per PE: bounds their share of
/// the agent's time.
const SEARCH_NS_PER_PE: u64 = 1_000;
const SEARCH_NS_MIN: u64 = 2_000_000;

/// Time that exiting child agents have before they are killed, and all of it at most.
const BURY_PATIENCE: Duration = Duration::from_secs(2);
const BURY_LIMIT: Duration = Duration::from_secs(5);

/// Kinds of descriptors, in the upper half of an epoll token; the lower half is a number.
const PARENT: u64 = 1 << 32;
const CHILD: u64 = 2 << 32;
const SIGNAL: u64 = 3 << 32;
const TEMPLATE: u64 = 4 << 32;
const OUTPUTS: u64 = 5 << 32;
const PMI: u64 = 6 << 32;
const STDIN: u64 = 7 << 32;
const STDOUT: u64 = 8 << 32;
const STDERR: u64 = 9 << 32;
const SHELL: u64 = 10 << 32;
const KIND: u64 = 0xffff_ffff << 32;

#[derive(Debug, Default)]
struct PeIo {
    pid: i32,
    output: [Option<OwnedFd>; 2],
    pmi: Option<OwnedFd>,
    /// Bytes that the PE's PMI socket did not take at once.
    pmi_out: Vec<u8>,
    /// What is waited for at that socket.
    pmi_interest: PmiInterest,
}

/// What an agent waits for at a PE's PMI socket.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum PmiInterest {
    #[default]
    Requests,
    /// Room for replies, too.
    Both,
    /// Room alone: a PE that does not take its replies may not ask for more.
    Room,
}

struct Driver {
    agent: Agent,
    launch: Launch,
    parent: LinkIo,
    children: Vec<ChildIo>,
    first_rank: u32,
    epoll: Epoll,
    outputs: Epoll,
    reading: Reading,
    /// Further descriptors of the outputs that alone are read.
    watched: [Option<(u32, OwnedFd)>; 2],
    /// Where stderr's read ends are while silent, if descriptors are scarce.
    parking: Option<Parking>,
    /// PEs whose read end is not there yet.
    unparked: Vec<u32>,
    /// Requests for the template that wait to be sent, and whether the kernel refuses them for now.
    unsent: VecDeque<Request>,
    refused: Option<Refused>,
    signals: OwnedFd,
    node: Option<Node>,
    pes: Vec<PeIo>,
    /// Local number of the PE with this process id.
    by_pid: HashMap<i32, u32>,
    answered: u32,
    /// Children that ended and whom the template, or a spawner, has not named yet: by process id, the
    /// status. It may have been killed with answers that are not read.
    unnamed: HashMap<i32, i32>,
    /// PEs that have ended and whose pipes are to be read to their end, and how many reads of each that may
    /// take.
    left: Vec<(u32, [u32; 2])>,
    /// PEs that are being started again.
    respawning: Vec<Respawning>,
    /// Since when the job is stopped, and with it whoever starts PEs.
    stopped: Option<u64>,
    /// PEs whose PMI socket has ended and which are not reaped.
    leaving: Vec<u32>,
    next_search: u64,
    search_due: bool,
    input: Input,
    moments: [u64; crate::report::MOMENTS],
    /// Buffers of reads and of nested waits, taken while in use.
    scratch: Vec<u8>,
    ready_outputs: Vec<Ready>,
    /// What is left is being ended.
    burial: Option<Burial>,
    exiting: bool,
}

/// The life of an agent, in the process forked or executed for it. `link` leads to its parent;
/// nothing else but standard streams may be open.
fn run(link: LinkIo) -> u8 {
    sys::set_name(c"shmrun-agent");
    sys::keep_freed_memory();
    sys::leave_no_core_file();
    sys::set_blocked(&SIGNALS);
    for signal in [
        libc::SIGINT,
        libc::SIGHUP,
        libc::SIGQUIT,
        libc::SIGPIPE,
        libc::SIGTTIN,
        libc::SIGTTOU,
        libc::SIGTSTP,
        libc::SIGUSR1,
        libc::SIGUSR2,
    ] {
        sys::set_ignored(signal, true);
    }
    match start(link) {
        Ok(driver) => {
            // The process ends here: what is still open the kernel closes faster than we would.
            let mut driver = std::mem::ManuallyDrop::new(driver);
            driver.work()
        }
        // Without its parent an agent has nobody to tell; with it, the exit status speaks.
        Err(e) => cannot_start(&e),
    }
}

/// The life of an agent that a remote shell has executed: its link is standard input and output.
///
/// # Safety
/// This process has a single thread and nothing open but standard streams that it needs.
pub(crate) unsafe fn run_remote() -> u8 {
    let link = || -> io::Result<LinkIo> {
        // Closed below like everything else.
        let null = sys::dev_null()?.into_raw_fd();
        let placed = [
            (null, 0, true),
            (null, 1, true),
            (2, 2, true),
            (0, LINK_FD, true),
            (1, LINK_OUT_FD, true),
        ];
        sys::arrange_fds(&placed, LINK_OUT_FD + 1)?;
        // SAFETY: the two were put there just now and nobody else owns them.
        let (input, output) = unsafe { (sys::own(LINK_FD), sys::own(LINK_OUT_FD)) };
        let mut greeting = OutBuf::default();
        greeting
            .tail()
            .extend_from_slice(&crate::remote::greeting());
        let link = LinkIo::pipes(input, output, PARENT);
        link.send_all(&mut greeting);
        Ok(link)
    };
    let agent = || match link() {
        Ok(link) => run(link),
        Err(e) => cannot_start(&e),
    };
    // SAFETY: as promised by the caller.
    match unsafe { warden::watch(agent) } {
        Ok(status) => status,
        Err(e) => cannot_start(&e),
    }
}

fn cannot_start(e: &io::Error) -> u8 {
    crate::say!("shmrun: a launch agent cannot start: {e}");
    crate::exit::LAUNCHER
}

/// Forks an agent; gives its process id and the link to it. With `own_group` this process is the
/// launcher, without it an agent.
///
/// # Safety
/// This process has a single thread.
pub(super) unsafe fn fork_agent(own_group: bool) -> io::Result<(i32, OwnedFd)> {
    let (ours, theirs) = sys::socketpair(SocketType::STREAM)?;
    // An agent has it already.
    let null = own_group.then(sys::dev_null).transpose()?;
    let child = || {
        if own_group {
            // Away from the terminal's foreground: its signals are for shmrun alone.
            let _ = sys::set_group(0, 0);
        }
        let null = null.as_ref().map_or(NULL_FD, AsRawFd::as_raw_fd);
        let placed = [
            (null, 0, true),
            (null, 1, true),
            (2, 2, true),
            (theirs.as_raw_fd(), LINK_FD, true),
        ];
        if let Err(e) = sys::arrange_fds(&placed, LINK_FD + 1) {
            return cannot_start(&e);
        }
        // SAFETY: the link was put there just now and nobody else owns it here.
        run(LinkIo::socket(unsafe { sys::own(LINK_FD) }, PARENT))
    };
    // SAFETY: one thread, as promised by the caller.
    let pid = unsafe { sys::fork(child)? };
    Ok((pid, ours))
}

fn start(parent: LinkIo) -> io::Result<Driver> {
    let bad = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    let content = parent.read_one_frame()?;
    let Frame::Launch(body) = Frame::decode(&content).map_err(|e| bad(&e))? else {
        return Err(bad(&"the first frame is not a Launch"));
    };
    let launched = monotonic_ns();
    let mut launch = Launch::decode(body).map_err(|e| bad(&e))?;
    parent.set_nonblocking()?;
    sys::become_subreaper()?;
    let far = parent.is_remote();
    if far {
        // A remote shell may have paths among its options. That the directory is missing is said later.
        let _ = std::env::set_current_dir(Path::new(OsStr::from_bytes(&launch.cwd)));
    }
    let addresses = address::own(&launch).map(|(addresses, plan)| {
        launch.addresses = plan;
        addresses
    });

    // Children first, while there is nothing that they should not inherit.
    let tree = Tree::new(launch.n_nodes, launch.degree);
    // SAFETY: an agent has a single thread.
    let started = unsafe { children::start_all(&launch, tree.children(launch.node))? };
    let (started, failure) = started;
    let (mut children, mut setups, mut unsent) = (Vec::new(), Vec::new(), Vec::new());
    for child in started {
        children.push(child.io);
        setups.push(child.setup);
        unsent.push(child.unsent);
    }

    // The guard next: it is a copy of this process, the cheaper the less there is of it.
    // SAFETY: an agent has a single thread.
    let group = unsafe { Group::start() };

    let layout = launch.layout();
    let ranks = layout.ranks(launch.node);
    let node_of = layout.node_of();
    let (settings, refused) = match node::settings(&launch) {
        Ok(settings) => (settings, Ok(())),
        Err(e) => (Settings::default(), Err(e)),
    };
    let pmi = node::pmi_server(&launch, &settings, &layout, &tree, &node_of);
    let pmi = pmi.map_err(|e| bad(&e))?;
    let n_local = ranks.len() as u32;
    let input = launch.input_route(&tree);
    let node = refused.and(addresses).and_then(|addresses| {
        let place = Place {
            launch: &launch,
            settings: &settings,
            node_of: &node_of,
            addresses,
            far,
        };
        // SAFETY: an agent has a single thread.
        unsafe { Node::prepare(&place, group) }
    });

    // After everything was forked that is not to inherit it. A remote shell has its standard error
    // beside the link.
    let open = |c: &ChildIo| u32::from(c.link.is_open()) + u32::from(c.said.is_some());
    let links = children.iter().map(open).sum();
    let inputs = input.here.end - input.here.start;
    let agents_here = launch.machines.as_ref().map_or(launch.n_nodes, |_| 1);
    let need = limits::descriptors(n_local, links, inputs);
    let have = sys::raise_descriptors(need.max(Portion::limit_for_full(agents_here)));
    let least = limits::descriptors_least(n_local, links, inputs);
    let mut node = node.and_then(|node| {
        let short = limits::LimitError::Descriptors {
            need: least,
            limit: have,
        };
        if have < least {
            Err(short.to_string())
        } else {
            Ok(node)
        }
    });
    let mut agent = Agent::new(
        Setup {
            node: launch.node,
            first_rank: ranks.start,
            n_local,
            n_pes: launch.n_pes,
            portion: Portion::of(have, agents_here, inputs),
            raw_output: launch.raw_output,
            respawn: launch.respawn,
            input: input.clone(),
            children: setups,
        },
        pmi,
    );
    for (at, unsent) in unsent.into_iter().enumerate() {
        *agent.outgoing(Some(at)) = unsent;
    }
    if let Some(writer) = node.as_mut().ok().and_then(|n| n.segment.kvs_writer()) {
        agent.use_store(Box::new(SharedStore::new(writer)));
    }
    let epoll = Epoll::new()?;
    let outputs = Epoll::new()?;
    let signals = sys::signalfd(&SIGNALS)?;
    parent.watch(&epoll)?;
    epoll.add(&signals, SIGNAL, Interest::Read)?;
    epoll.add(&outputs, OUTPUTS, Interest::Read)?;
    for (at, child) in (0u64..).zip(&children) {
        child.link.watch(&epoll)?;
        if let Some(said) = &child.said {
            outputs.add(said, SHELL | at, Interest::Read)?;
        }
    }
    let mut driver = Driver {
        agent,
        launch,
        parent,
        children,
        first_rank: ranks.start,
        epoll,
        outputs,
        reading: Reading::All,
        watched: [None, None],
        parking: (have < need).then(Parking::default),
        unparked: Vec::new(),
        unsent: VecDeque::new(),
        refused: None,
        signals,
        node: None,
        pes: (0..n_local).map(|_| PeIo::default()).collect(),
        by_pid: HashMap::with_capacity(n_local as usize),
        answered: 0,
        unnamed: HashMap::new(),
        left: Vec::new(),
        respawning: Vec::new(),
        stopped: None,
        leaving: Vec::new(),
        next_search: 0,
        search_due: false,
        input: Input::new(input.here),
        moments: [0; crate::report::MOMENTS],
        scratch: vec![0; 64 << 10],
        ready_outputs: Vec::with_capacity(256),
        burial: None,
        exiting: false,
    };
    driver.moment(Moment::Launched, launched);
    match node {
        Ok(node) => {
            if let Some(template) = &node.template {
                driver
                    .epoll
                    .add(template.as_fd(), TEMPLATE, Interest::Read)?;
            }
            driver.node = Some(node);
            driver.tell(Event::Prepared);
            driver.moment(Moment::Prepared, monotonic_ns());
        }
        Err(e) => driver.tell(Event::Failed(e)),
    }
    if let Some(what) = failure {
        driver.tell(Event::Failed(what.to_string()));
        for at in 0..driver.children.len() {
            if !driver.children[at].link.is_open() {
                driver.tell(Event::ChildClosed(at));
            }
        }
    }
    Ok(driver)
}

impl Driver {
    fn moment(&mut self, moment: Moment, now: u64) {
        let at = &mut self.moments[moment as usize];
        if *at == 0 || moment == Moment::Ended || moment == Moment::LastPe {
            *at = now;
        }
    }

    fn tell(&mut self, event: Event<'_>) {
        self.agent.handle(event, monotonic_ns());
    }

    fn work(&mut self) -> u8 {
        let mut ready: Vec<Ready> = Vec::with_capacity(256);
        loop {
            self.act();
            self.flush_up();
            self.flush_down();
            if self.exiting {
                return 0;
            }
            let now = monotonic_ns();
            let search = self.search_due && self.burial.is_none();
            let search = search.then_some(self.next_search);
            let timer = self.agent.next_timeout();
            let going_on = self.stopped.is_none();
            let retry = self.refused.filter(|_| going_on).map(|r| r.again);
            let overdue = self.next_overdue().filter(|_| going_on);
            let burial = self.burial.as_ref().map(Burial::again);
            let until = [timer, search, retry, overdue, burial];
            let until = until.into_iter().flatten().min();
            let timeout = until.map(|at| Duration::from_nanos(at.saturating_sub(now)));
            if let Err(e) = self.epoll.wait(&mut ready, timeout) {
                crate::say!(
                    "shmrun: the launch agent of node {} cannot wait: {e}",
                    self.launch.node
                );
                self.die();
            }
            for &event in &ready {
                self.dispatch(event);
            }
            let now = monotonic_ns();
            if retry.is_some_and(|at| now >= at) {
                self.send_requests(now);
            }
            if overdue.is_some_and(|at| now >= at) {
                self.end_overdue(now);
            }
            if self.burial.is_some() {
                self.go_on_burying(now);
            } else if self.search_due && now >= self.next_search {
                self.search_children(now);
            }
            if timer.is_some_and(|at| now >= at) {
                self.tell(Event::Timer);
            }
        }
    }

    fn dispatch(&mut self, event: Ready) {
        let at = (event.token & !KIND) as u32;
        match event.token & KIND {
            PARENT => self.parent_ready(event),
            CHILD => self.child_ready(at as usize, event),
            SIGNAL => self.signals_ready(),
            TEMPLATE => self.template_ready(),
            OUTPUTS => self.outputs_ready(),
            PMI => self.pmi_ready(at, event),
            STDIN => self.input_ready(at),
            STDOUT => self.watched_ready(at, Stream::Out),
            STDERR => self.watched_ready(at, Stream::Err),
            _ => {}
        }
    }

    fn parent_ready(&mut self, event: Ready) {
        if event.readable() {
            let mut buf = std::mem::take(&mut self.scratch);
            match self.parent.receive(&mut buf) {
                Got::Bytes(n) => self.tell(Event::FromParent(&buf[..n])),
                Got::Nothing => {}
                Got::End => self.tell(Event::ParentClosed),
            }
            self.scratch = buf;
        }
    }

    fn signals_ready(&mut self) {
        while let Some(signal) = sys::next_signal(self.signals.as_fd()) {
            if i32::from(signal) == libc::SIGCHLD {
                self.reap_spawners();
                self.reap_leaving();
                self.search_due = true;
            } else {
                self.tell(Event::Terminated(signal));
            }
        }
    }

    fn act(&mut self) {
        loop {
            self.act_once();
            if !self.read_left() {
                break;
            }
        }
        self.watch_outputs();
    }

    fn act_once(&mut self) {
        while let Some(action) = self.agent.poll_action() {
            match action {
                Action::Spawn { first, count } => self.spawn(first, count),
                Action::FinishTemplate => {
                    if let Some(template) = self.node.as_ref().and_then(|n| n.template.as_ref()) {
                        // A template that is gone needs no telling.
                        let _ = template.finish();
                    }
                }
                Action::Say(text) => crate::say!("shmrun: {text}"),
                Action::Signal(signal) => self.signal(signal),
                Action::ToPe(local, bytes) => self.write_pmi(local, &bytes),
                Action::Publish {
                    request,
                    value_len,
                    offset,
                    values,
                    last,
                } => {
                    if let Some(node) = &self.node {
                        let (gather, request) = (node.segment.view().gather(), request as u32);
                        if offset == 0 {
                            gather.begin(request, value_len);
                        }
                        gather.write(request, offset, &values);
                        if last {
                            gather.finish(request);
                        }
                    }
                }
                Action::CloseOutputOf(local) => self.left.push((local, [pe_io::LAST_READS; 2])),
                Action::Respawn { local, count } => self.respawn(local, count),
                Action::DropChild(at) => self.drop_child(at),
                Action::Stdin(data) => self.add_input(&data),
                Action::StdinEnd => self.end_input(),
                Action::CloseOutput(stream) => self.close_outputs(Some(stream), true),
                Action::DropOutput => self.close_outputs(None, false),
                Action::KillAll => self.kill_all(),
                Action::CleanUp => self.clean_up(),
                Action::Exit => {
                    self.parent.send_all(self.agent.outgoing(None));
                    self.exiting = true;
                }
                Action::Die => self.die(),
            }
        }
    }

    fn signal(&mut self, signal: u8) {
        let now = monotonic_ns();
        match signal.into() {
            libc::SIGTSTP => self.stopped = self.stopped.or(Some(now)),
            // Who is to end is continued for it.
            _ if signal == libc::SIGCONT as u8 || ends(signal) => {
                if let Some(since) = self.stopped.take() {
                    self.postpone(now - since);
                }
            }
            _ => {}
        }
        if let Some(node) = &self.node {
            node.group.signal(signal.into());
            // A stopped process would not get to the signal that is to end it.
            if ends(signal) {
                node.group.signal(libc::SIGCONT);
            }
        }
    }

    /// Whoever starts PEs was stopped for so long.
    fn postpone(&mut self, by: u64) {
        if let Some(refused) = &mut self.refused {
            refused.postpone(by);
        }
        let overdue = self
            .respawning
            .iter_mut()
            .filter_map(|r| r.overdue.as_mut());
        overdue.for_each(|at| *at += by);
    }

    fn flush_up(&mut self) {
        let out = self.agent.outgoing(None);
        if self.parent.flush(out, &self.epoll).is_err() {
            self.tell(Event::ParentClosed);
            self.act();
        }
    }
}
