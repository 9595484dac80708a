//! An agent's process begins: forked or executed by a remote shell, it puts its descriptors and signals in
//! order, hears what it is to do, starts its children, and makes its node.

use std::ffi::OsStr;
use std::io;
use std::os::fd::{AsFd, AsRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::time::Duration;

use rustix::net::SocketType;
use shmem_node::contract::{ENV_PMI_JOBID, hex};
use shmem_node::settings::Settings;
use shmem_pmi::tree::Tree;

use super::children::{self, ChildIo};
use super::ending::Ending;
use super::input::Input;
use super::pe_io::Sources;
use super::requests::Starts;
use super::trace::Tracing;
use super::{AgentProcess, MESSAGES, OUTPUTS, PARENT, PeIo, SHELL, SIGNAL, TEMPLATE};
use crate::agent::{Agent, Event, Setup};
use crate::child::ChildSetup;
use crate::driver::cgroup::Cgroup;
use crate::driver::group::Group;
use crate::driver::link::LinkIo;
use crate::driver::node::Node;
use crate::driver::parts::Parts;
use crate::driver::store::SharedStore;
use crate::driver::{address, memory, node, warden};
use crate::exit::Cause;
use crate::frame::{Frame, Launch, OutBuf};
use crate::limits::{self, SpawnQuota};
use crate::report::Moment;
use crate::sys::{self, Epoll, Interest, monotonic_ns};
use shmem_node::hca_address::HcaAddresses;

/// Number of the link to the parent in an agent; in one that a remote shell started, of what it reads
/// and what it writes.
const LINK_FD: RawFd = 3;
const LINK_OUT_FD: RawFd = 4;

/// How long the parent may take to say what is to be done, for which it has everything.
const ORDERS: Duration = Duration::from_secs(300);

const SIGNALS: [i32; 2] = [libc::SIGCHLD, libc::SIGTERM];

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
        // What is too long for a file is an error of the call then.
        libc::SIGXFSZ,
    ] {
        sys::set_ignored(signal, true);
    }
    match set_up(link) {
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
    memory::note();
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
        sys::arrange_fds(&placed)?;
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
    crate::log!("shmrun: a launch agent cannot start: {e}");
    crate::exit::LAUNCHER
}

/// Forks an agent; gives its process id and the link to it. With `own_group` this process is the
/// launcher, without it an agent.
///
/// # Safety
/// This process has a single thread.
pub(in crate::driver) unsafe fn fork_agent(own_group: bool) -> io::Result<(i32, OwnedFd)> {
    let (ours, theirs) = sys::socketpair(SocketType::STREAM)?;
    // An agent has it already.
    let null = own_group.then(sys::dev_null).transpose()?;
    let child = || {
        if own_group {
            // Away from the terminal's foreground: its signals are for shmrun alone.
            let _ = sys::set_group(0, 0);
        }
        let null = null
            .as_ref()
            .map_or(crate::driver::NULL_FD, AsRawFd::as_raw_fd);
        let placed = [
            (null, 0, true),
            (null, 1, true),
            (2, 2, true),
            (theirs.as_raw_fd(), LINK_FD, true),
        ];
        if let Err(e) = sys::arrange_fds(&placed) {
            return cannot_start(&e);
        }
        // It is to see that its link has ended, whoever has stopped it.
        sys::go_on_without_parent();
        // SAFETY: the link was put there just now and nobody else owns it here.
        run(LinkIo::socket(unsafe { sys::own(LINK_FD) }, PARENT))
    };
    // SAFETY: one thread, as promised by the caller.
    let pid = unsafe { sys::fork(child)? };
    Ok((pid, ours))
}

/// A control group for the node, unless this machine is several.
fn cgroup(launch: &Launch) -> Option<Cgroup> {
    let alone = launch.machines.is_some() || launch.n_nodes == 1;
    let name = || format!("shmrun-{}-{}", hex(&launch.job_id), launch.node);
    alone.then(name).and_then(|name| Cgroup::make(&name))
}

/// What all processes of a job have in their environment, and no others.
fn job_mark(launch: &Launch) -> Vec<u8> {
    format!("{ENV_PMI_JOBID}={}", hex(&launch.job_id)).into_bytes()
}

/// Receives what is to be done.
fn receive_launch(parent: &LinkIo) -> io::Result<Launch> {
    let content = parent.read_one_frame(ORDERS)?;
    let Frame::Launch(body) = Frame::decode(&content).map_err(|e| bad(&e))? else {
        return Err(bad(&"the first frame is not a Launch"));
    };
    Launch::decode(body).map_err(|e| bad(&e))
}

fn bad(e: &dyn std::fmt::Display) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, e.to_string())
}

/// Makes this process like the launcher, on whatever host it is.
fn settle(parent: &LinkIo, launch: &Launch) -> io::Result<()> {
    parent.set_nonblocking()?;
    sys::become_subreaper()?;
    if parent.is_remote() {
        // A remote shell may have paths among its options. That the directory is missing is said later.
        let _ = std::env::set_current_dir(Path::new(OsStr::from_bytes(&launch.cwd)));
        // As it is at home.
        sys::set_file_mask(launch.file_mask);
        sys::adopt_limits(launch.soft_limits.clone());
    }
    Ok(())
}

fn set_up(parent: LinkIo) -> io::Result<AgentProcess> {
    let mut launch = receive_launch(&parent)?;
    let launched = monotonic_ns();
    settle(&parent, &launch)?;
    let addresses = address::own(&launch).map(|(addresses, plan)| {
        launch.addresses = plan;
        addresses
    });

    // Children first, while there is nothing that they should not inherit.
    let tree = Tree::new(launch.n_nodes, launch.degree);
    // SAFETY: an agent has a single thread.
    let fork = || unsafe { fork_agent(false) };
    // SAFETY: an agent has a single thread.
    let (started, failure) =
        unsafe { children::start_agents(&launch, tree.children(launch.node), fork)? };
    let (mut children, mut setups, mut unsent) = (Vec::new(), Vec::new(), Vec::new());
    for child in started {
        children.push(child.io);
        setups.push(child.setup);
        unsent.push(child.unsent);
    }

    // The guard next: it is a copy of this process, the cheaper the less there is of it.
    // SAFETY: an agent has a single thread.
    let group = unsafe { Group::start(&job_mark(&launch), cgroup(&launch)) };

    let making = Making {
        launch: &launch,
        tree: &tree,
        children: &children,
        far: parent.is_remote(),
    };
    let (mut agent, node) = making.make(setups, addresses, group)?;
    for (at, unsent) in unsent.into_iter().enumerate() {
        *agent.outgoing(Some(at)) = unsent;
    }
    let mut driver = AgentProcess::new(agent, launch, parent, children)?;
    driver.moment(Moment::Launched, launched);
    match node {
        Ok(node) => driver.take_node(node)?,
        Err(e) => driver.handle(Event::Failed(e)),
    }
    if let Some(what) = failure {
        driver.handle(Event::Failed(what.to_string().into()));
        for at in 0..driver.children.len() {
            if !driver.children[at].link.is_open() {
                driver.handle(Event::ChildClosed(at));
            }
        }
    }
    Ok(driver)
}

/// What an agent knows when its children and its guard have been started, and its node is to be made.
struct Making<'a> {
    launch: &'a Launch,
    tree: &'a Tree,
    children: &'a [ChildIo],
    /// Whether the launcher is on another machine.
    far: bool,
}

impl Making<'_> {
    /// Makes the node, or says why it cannot be made, and the state machine that is to serve or to report that.
    fn make(
        &self,
        setups: Vec<ChildSetup>,
        addresses: Result<HcaAddresses, String>,
        group: io::Result<Group>,
    ) -> io::Result<(Box<Agent>, Result<Node, Cause>)> {
        let launch = self.launch;
        let layout = launch.layout();
        let ranks = layout.ranks(launch.node);
        let node_of = layout.node_of();
        let (settings, refused) = match node::settings(launch) {
            Ok(settings) => (settings, Ok(())),
            Err(e) => (Settings::default(), Err(e)),
        };
        let servers = node::servers(launch, &settings, &layout, self.tree, &node_of);
        let servers = servers.map_err(|e| bad(&e))?;
        let input = launch.input_route(self.tree);
        let n_local = ranks.len() as u32;
        let (quota, enough) = self.raise_limits(n_local, input.here.len() as u32);
        let allowed = refused.and(enough).and(addresses).map_err(Cause::from);
        let mut node = allowed.and_then(|addresses| {
            let parts = Parts {
                launch,
                settings: &settings,
                node_of: &node_of,
                addresses,
                far: self.far,
            };
            // SAFETY: an agent has a single thread.
            unsafe { Node::prepare(&parts, group) }
        });
        let setup = Setup {
            node: launch.node,
            first_rank: ranks.start,
            n_local,
            n_pes: launch.n_pes,
            quota,
            options: launch.options.clone(),
            input,
            pmix: launch.pmix.is_some(),
            children: setups,
            starts: launch.machines.as_ref().map_or(0, |m| m.shell.starts),
        };
        let mut agent = Box::new(Agent::new(setup, servers));
        if let Some(writer) = node.as_mut().ok().and_then(|n| n.segment.kvs_writer()) {
            agent.use_store(Box::new(SharedStore::new(writer)));
        }
        Ok((agent, node))
    }

    /// Raises the limits of this process as far as its node needs it; says whether that is enough, and how many PEs may
    /// be asked for at a time. Programs that are executed get the limits of before.
    fn raise_limits(&self, n_local: u32, inputs: u32) -> (SpawnQuota, Result<(), String>) {
        // A remote shell has its standard error beside the link.
        let open = |c: &ChildIo| u32::from(c.link.is_open()) + u32::from(c.said.is_some());
        let machines = self.launch.machines.as_ref();
        let links = match machines {
            // Some may be started later.
            Some(_) => 2 * self.children.len() as u32,
            None => self.children.iter().map(open).sum(),
        };
        let agents_here = machines.map_or(self.launch.n_nodes, |_| 1);
        let need = limits::descriptors(n_local, links, inputs);
        let have = sys::raise_descriptors(need.max(SpawnQuota::limit_for_full(agents_here)));
        sys::raise_file_size();
        let quota = SpawnQuota::of(have, agents_here, inputs, sys::descriptors_of_programs());
        let enough = limits::LimitError::of_agent(n_local, links, inputs, have);
        (quota, enough.map_err(|e| e.to_string()))
    }
}

impl AgentProcess {
    /// The process of this agent, which waits for its links and signals, and has no node yet.
    fn new(
        agent: Box<Agent>,
        launch: Launch,
        parent: LinkIo,
        children: Vec<ChildIo>,
    ) -> io::Result<Self> {
        let (epoll, sources) = (Epoll::new()?, Sources::new()?);
        let signals = sys::signalfd(&SIGNALS)?;
        parent.watch(&epoll)?;
        epoll.add(&signals, SIGNAL, Interest::Read)?;
        epoll.add(&sources.outputs, OUTPUTS, Interest::Read)?;
        for (at, child) in (0u64..).zip(&children) {
            child.link.watch(&epoll)?;
            if let Some(said) = &child.said {
                sources.outputs.add(said, SHELL | at, Interest::Read)?;
            }
        }
        let n_local = launch.layout().ranks(launch.node).len();
        let tree = Tree::new(launch.n_nodes, launch.degree);
        Ok(Self {
            agent,
            input: Input::new(launch.input_route(&tree).here),
            launch,
            parent,
            children,
            epoll,
            signals,
            node: None,
            pmix: None,
            pes: (0..n_local).map(|_| PeIo::default()).collect(),
            sources,
            starts: Starts::default(),
            ending: Ending::default(),
            moments: [0; crate::report::MOMENTS],
            tracing: Tracing::default(),
        })
    }

    /// The node is there: its PEs may be started, if no PMIx server has to be started before.
    fn take_node(&mut self, node: Node) -> io::Result<()> {
        if let Some(messages) = &node.messages {
            self.epoll.add(messages, MESSAGES, Interest::Read)?;
        }
        if let Some(template) = &node.template {
            self.epoll.add(template.as_fd(), TEMPLATE, Interest::Read)?;
        }
        let ready = node.template.is_some();
        self.node = Some(node);
        if ready {
            self.handle(Event::Prepared);
            self.moment(Moment::Prepared, monotonic_ns());
        } else if let Err(e) = self.start_pmix() {
            self.handle(Event::Failed(e.into()));
        }
        Ok(())
    }
}
