//! What an agent makes before PEs can be started: process group, node segment, and the process
//! that will create the PEs.

use std::ffi::{CString, OsString};
use std::io;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

use shmem_node::contract::{self, HEAP_FD, TABLES_FD, XRC_FD};
use shmem_node::hca_address::HcaAddresses;
use shmem_node::segment::{JobFacts, NodeSegment};
use shmem_node::settings::Settings;
use shmem_node::template::NlaSide;
use shmem_node::template::exec;

use super::address;
use super::agent::NULL_FD;
use super::group::Group;
use crate::frame::{Launch, SpawnMode};
use crate::job;
use crate::memory::{self, Machine};
use crate::plan::Layout;
use crate::program;
use crate::sys;

/// Number of the template's socket in the template; beyond what PEs inherit.
const TEMPLATE_FD: i32 = contract::FIRST_FREE_FD;

/// The setting that an agent fills in for its PEs, if it is left to it.
const ENV_SOFT_MTU: &str = "SHMEM_SOFT_MTU";

/// What a node is made of.
#[derive(Debug)]
pub(super) struct Place<'a> {
    pub(super) launch: &'a Launch,
    /// The node of each rank.
    pub(super) node_of: &'a [u32],
    /// Addresses of the node's HCAs.
    pub(super) addresses: HcaAddresses,
    /// Whether the launcher is on another machine, and has not seen what this one has.
    pub(super) far: bool,
}

/// A prepared node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) group: Group,
    pub(super) segment: NodeSegment,
    pub(super) template: Option<NlaSide>,
    pub(super) template_pid: i32,
}

impl Node {
    /// Makes everything but the process group.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn prepare(
        place: &Place<'_>,
        group: io::Result<Group>,
    ) -> Result<Self, String> {
        let launch = place.launch;
        let cwd = OsString::from_vec(launch.cwd.clone());
        sys::change_dir(Path::new(&cwd))
            .map_err(|e| format!("cannot work in the directory {}: {e}", cwd.display()))?;
        let settings = settings(launch)?;
        if place.far {
            check_machine(launch, &settings)?;
        }
        enter_namespace(launch, settings.soft_netns.as_deref())?;
        let group = group.map_err(|e| format!("cannot make the process group of the PEs: {e}"))?;
        let here = launch.layout().ranks(launch.node).len() as u32;
        let segment = NodeSegment::create(&JobFacts {
            job_id: launch.job_id,
            job_key: launch.job_key,
            node_of: place.node_of,
            n_nodes: launch.n_nodes,
            node: launch.node,
            on_machine: launch.machines.as_ref().map_or(launch.n_pes, |_| here),
            heap_size: launch.heap_size,
            statics: launch.statics,
            heap_commit: launch.heap_commit,
            heap_pages: settings.heap_pages,
            hca_addresses: place.addresses,
            spins: launch
                .spins
                .unwrap_or_else(|| job::spins(settings.spin, here)),
            report: launch.report,
        })
        .map_err(|e| e.to_string())?;
        // SAFETY: one thread, as promised by the caller.
        let (template_pid, template) =
            unsafe { start_template(place, &settings, &group, &segment) }
                .map_err(|e| format!("cannot start the process that starts the PEs: {e}"))?;
        Ok(Self {
            group,
            segment,
            template: Some(NlaSide::new(template)),
            template_pid,
        })
    }
}

/// The settings of the job: those of the launcher, whatever this process finds set.
fn settings(launch: &Launch) -> Result<Settings, String> {
    let value = |name: &str| {
        let (_, value) = launch.env.iter().find(|(n, _)| n == name.as_bytes())?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    Settings::parse(value).map_err(|e| e.to_string())
}

/// What the launcher checks for its own machine: is the program there, is there memory?
fn check_machine(launch: &Launch, settings: &Settings) -> Result<(), String> {
    let program = OsString::from_vec(launch.program.clone());
    program::find_at(Path::new(&program)).map_err(|e| {
        format!("{e} on this host; the program must be at the same path on all hosts")
    })?;
    let pes = launch.layout().ranks(launch.node).len() as u32;
    match Machine::read() {
        Some(machine) => memory::check(job::need(pes, 1, settings, launch.statics), machine)
            .map_err(|e| e.to_string()),
        None => Ok(()),
    }
}

/// Enters the node's network namespace, if the nodes have their own.
fn enter_namespace(launch: &Launch, path: Option<&str>) -> Result<(), String> {
    let Some(path) = path else {
        return Ok(());
    };
    let path = format!("{path}{}", launch.node);
    let failed = |e: io::Error| {
        format!(
            "node {} cannot enter the network namespace {path}: {e}",
            launch.node
        )
    };
    let namespace = std::fs::File::open(&path).map_err(failed)?;
    sys::enter_network(namespace.as_fd()).map_err(failed)
}

/// The environment of the PEs but for what differs between them.
fn environment(place: &Place<'_>, settings: &Settings) -> Result<Vec<CString>, String> {
    let launch = place.launch;
    let mut common = contract::common_env(&launch.job_id, launch.n_pes);
    let first = launch.layout().ranks(launch.node).start;
    // Every PE of the node is behind the same interface.
    if settings.soft_mtu == 0
        && launch.n_nodes > 1
        && let Some(mtu) = address::path_mtu(place.addresses.of(launch.node, first))
    {
        common.push((ENV_SOFT_MTU, mtu.to_string()));
    }
    let set = launch
        .env
        .iter()
        .map(|(n, v)| (n.as_slice(), v.as_slice()))
        .chain(common.iter().map(|(n, v)| (n.as_bytes(), v.as_bytes())))
        .collect::<std::collections::BTreeMap<_, _>>();
    let inherited = std::env::vars_os().filter(|(name, _)| {
        // What describes our own place in another job would mislead the PEs.
        let name = name.as_bytes();
        let foreign = place.far && (name.starts_with(b"SHMEM_") || name.starts_with(b"SMA_"));
        !set.contains_key(name)
            && !foreign
            && !name.starts_with(b"PMI_")
            && name != contract::ENV_TEMPLATE_FD.as_bytes()
    });
    let join = |name: &[u8], value: &[u8]| {
        CString::new([name, b"=", value].concat())
            .map_err(|_| format!("variable {} has a NUL byte", String::from_utf8_lossy(name)))
    };
    let mut out = Vec::new();
    for (name, value) in inherited {
        out.push(join(name.as_bytes(), value.as_bytes())?);
    }
    for (name, value) in set {
        out.push(join(name, value)?);
    }
    Ok(out)
}

/// # Safety
/// This process has a single thread.
unsafe fn start_template(
    place: &Place<'_>,
    settings: &Settings,
    group: &Group,
    segment: &NodeSegment,
) -> io::Result<(i32, OwnedFd)> {
    let launch = place.launch;
    let invalid = |what: String| io::Error::new(io::ErrorKind::InvalidInput, what);
    let text = |bytes: &[u8]| {
        CString::new(bytes).map_err(|_| invalid("an argument has a NUL byte".into()))
    };
    let mut env = environment(place, settings).map_err(invalid)?;
    let path = text(&launch.program)?;
    let args = launch
        .argv
        .iter()
        .map(|a| text(a))
        .collect::<io::Result<Vec<_>>>()?;
    let template = launch.spawn == SpawnMode::Template;
    if template {
        env.push(text(
            format!("{}={TEMPLATE_FD}", contract::ENV_TEMPLATE_FD).as_bytes(),
        )?);
    }
    let (ours, theirs) = sys::socketpair(libc::SOCK_SEQPACKET)?;
    sys::set_nonblocking(ours.as_fd())?;
    let null = NULL_FD;
    let placed = [
        (null, 0, false),
        (null, 1, false),
        (2, 2, false),
        (segment.tables_fd().as_raw_fd(), TABLES_FD, false),
        (segment.heap_fd().as_raw_fd(), HEAP_FD, false),
        (segment.xrc_fd().as_raw_fd(), XRC_FD, false),
        // A spawner's PEs must not inherit it; a template needs it after exec.
        (theirs.as_raw_fd(), TEMPLATE_FD, !template),
        (null, contract::PMI_FD, false),
    ];
    let id = group.id();
    let arrange = || {
        let arranged =
            sys::set_group(0, id).and_then(|()| sys::arrange_fds(&placed, TEMPLATE_FD + 1));
        if let Err(e) = arranged {
            eprintln!("shmrun: cannot prepare the process that starts the PEs: {e}");
            return false;
        }
        sys::reset_signals();
        true
    };
    if template {
        let child = || {
            if arrange() {
                let e = sys::exec(&path, &args, &env);
                eprintln!("shmrun: {}: {e}", path.to_string_lossy());
            }
            1
        };
        // SAFETY: one thread, as promised by the caller; the child changes nothing that we own.
        let pid = unsafe { sys::fork_to_exec(child)? };
        let _ = sys::set_group(pid, id);
        return Ok((pid, ours));
    }
    let child = || {
        if !arrange() {
            return 1;
        }
        sys::set_name(c"shmrun-spawner");
        let program = exec::Program { path, args, env };
        // SAFETY: the socket was put there just now and nobody else owns it here.
        let socket = unsafe { sys::own(TEMPLATE_FD) };
        match exec::serve(socket.as_fd(), &program) {
            Ok(()) => 0,
            Err(e) => {
                eprintln!("shmrun: the process that starts the PEs failed: {e}");
                1
            }
        }
    };
    // SAFETY: one thread, as promised by the caller.
    let pid = unsafe { sys::fork(child)? };
    let _ = sys::set_group(pid, id);
    Ok((pid, ours))
}

/// The PMI server of the node.
pub(super) fn pmi_server(
    launch: &Launch,
    layout: &Layout,
    tree: &shmem_pmi::tree::Tree,
    node_of: &[u32],
) -> Result<shmem_pmi::server::NodeServer, String> {
    use shmem_pmi::process_mapping::ProcessMapping;
    use shmem_pmi::server::{Job, NodePlace, NodeServer};
    let job = Job {
        id: contract::hex(&launch.job_id),
        size: layout.n_pes(),
        appnum: 0,
        process_mapping: ProcessMapping::from_nodes(node_of).to_string(),
        attributes: vec![("universeSize".into(), layout.n_pes().to_string())],
        spawner: None,
        extensions: true,
    };
    let place = NodePlace::in_tree(tree, launch.node, node_of);
    NodeServer::new(job, place).map_err(|e| format!("cannot set up PMI: {e}"))
}
