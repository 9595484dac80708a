//! An agent's process begins: forked or executed by a remote shell, it puts its descriptors and signals in
//! order, hears what it is to do, starts its children, and makes its node.

use std::ffi::OsStr;
use std::os::fd::IntoRawFd;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use rustix::net::SocketType;
use shmem_node::contract::{ENV_PMI_JOBID, hex};
use shmem_node::settings::Settings;
use shmem_pmi::tree::Tree;

use super::*;
use crate::agent::Setup;
use crate::driver::cgroup::Cgroup;
use crate::driver::node;
use crate::driver::parts::Parts;
use crate::driver::store::SharedStore;
use crate::driver::{address, memory, warden};
use crate::exit::Cause;
use crate::limits::{self, Portion};

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
    crate::say!("shmrun: a launch agent cannot start: {e}");
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

fn start(parent: LinkIo) -> io::Result<AgentProcess> {
    let bad = |e: &dyn std::fmt::Display| io::Error::new(io::ErrorKind::InvalidData, e.to_string());
    let content = parent.read_one_frame(ORDERS)?;
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
        // As it is at home.
        sys::set_file_mask(launch.file_mask);
        sys::adopt_limits(launch.soft_limits.clone());
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
    let group = unsafe { Group::start(&job_mark(&launch), cgroup(&launch)) };

    let layout = launch.layout();
    let ranks = layout.ranks(launch.node);
    let node_of = layout.node_of();
    let (settings, refused) = match node::settings(&launch) {
        Ok(settings) => (settings, Ok(())),
        Err(e) => (Settings::default(), Err(e)),
    };
    let servers = node::servers(&launch, &settings, &layout, &tree, &node_of);
    let servers = servers.map_err(|e| bad(&e))?;
    let n_local = ranks.len() as u32;
    let input = launch.input_route(&tree);
    // Programs that are executed get the limit of before. A remote shell has its standard error beside the link.
    let open = |c: &ChildIo| u32::from(c.link.is_open()) + u32::from(c.said.is_some());
    let links = match &launch.machines {
        // Some may be started later.
        Some(_) => 2 * children.len() as u32,
        None => children.iter().map(open).sum(),
    };
    let inputs = input.here.end - input.here.start;
    let agents_here = launch.machines.as_ref().map_or(launch.n_nodes, |_| 1);
    let need = limits::descriptors(n_local, links, inputs);
    let have = sys::raise_descriptors(need.max(Portion::limit_for_full(agents_here)));
    let enough = limits::LimitError::of_agent(n_local, links, inputs, have);
    let enough = enough.map_err(|e| e.to_string());
    sys::raise_file_size();
    let allowed = refused.and(enough).and(addresses).map_err(Cause::from);
    let mut node = allowed.and_then(|addresses| {
        let parts = Parts {
            launch: &launch,
            settings: &settings,
            node_of: &node_of,
            addresses,
            far,
        };
        // SAFETY: an agent has a single thread.
        unsafe { Node::prepare(&parts, group) }
    });
    let mut agent = Agent::new(
        Setup {
            node: launch.node,
            first_rank: ranks.start,
            n_local,
            n_pes: launch.n_pes,
            portion: Portion::of(have, agents_here, inputs, sys::descriptors_of_programs()),
            options: launch.options.clone(),
            input: input.clone(),
            pmix: launch.pmix.is_some(),
            children: setups,
            starts: launch.machines.as_ref().map_or(0, |m| m.shell.starts),
        },
        servers,
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
    if let Some(words) = node.as_ref().ok().and_then(|n| n.words.as_ref()) {
        epoll.add(words, WORDS, Interest::Read)?;
    }
    for (at, child) in (0u64..).zip(&children) {
        child.link.watch(&epoll)?;
        if let Some(said) = &child.said {
            outputs.add(said, SHELL | at, Interest::Read)?;
        }
    }
    let mut driver = AgentProcess {
        agent,
        launch,
        parent,
        children,
        first_rank: ranks.start,
        epoll,
        outputs,
        reading: Reading::All,
        hearing: true,
        watched: [None, None],
        unsent: VecDeque::new(),
        refused: None,
        signals,
        node: None,
        pmix: None,
        pes: (0..n_local).map(|_| PeIo::default()).collect(),
        by_pid: HashMap::with_capacity(n_local as usize),
        answered: 0,
        unnamed: HashMap::new(),
        lost: Lost::default(),
        left: Vec::new(),
        respawning: Vec::new(),
        leaving: Vec::new(),
        next_search: 0,
        search_due: false,
        killing: false,
        input: Input::new(input.here),
        moments: [0; crate::report::MOMENTS],
        scratch: vec![0; 64 << 10],
        ready_outputs: Vec::with_capacity(256),
        tracing: Default::default(),
        reaping: None,
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
            let ready = node.template.is_some();
            driver.node = Some(node);
            if ready {
                driver.tell(Event::Prepared);
                driver.moment(Moment::Prepared, monotonic_ns());
            } else if let Err(e) = driver.start_pmix() {
                driver.tell(Event::Failed(e.into()));
            }
        }
        Err(e) => driver.tell(Event::Failed(e)),
    }
    if let Some(what) = failure {
        driver.tell(Event::Failed(what.to_string().into()));
        for at in 0..driver.children.len() {
            if !driver.children[at].link.is_open() {
                driver.tell(Event::ChildClosed(at));
            }
        }
    }
    Ok(driver)
}
