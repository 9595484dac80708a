//! What an agent makes before PEs can be started: process group, node segment, and the process
//! that will create the PEs.

use std::ffi::OsString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStringExt;
use std::path::Path;

use rustix::net::SocketType;

use shmem_node::contract;
use shmem_node::cpus::Bindings;
use shmem_node::kvs::StorePlan;
use shmem_node::segment::{JobFacts, NodeSegment};
use shmem_node::settings::{PmiCache, Settings};
use shmem_node::template::NlaSide;
use shmem_node::template::exec::Recipe;
use shmem_pmi::tree::Tree;

use super::group::Group;
use super::parts::Parts;
use super::template::{CANNOT_START, PeStarter};
use crate::agent::Servers;
use crate::binding::{self, Topology};
use crate::exit::Cause;
use crate::frame::{Launch, Stream};
use crate::job;
use crate::limits::Demand;
use crate::plan::Layout;
use crate::program;
use crate::sys;

/// A prepared node.
#[derive(Debug)]
pub(super) struct Node {
    pub(super) group: Group,
    pub(super) segment: NodeSegment,
    pub(super) template: Option<NlaSide>,
    /// Where the PEs' messages arrive, and their end of it while there are PEs to be started.
    pub(super) messages: Option<OwnedFd>,
    pub(super) their_messages: Option<OwnedFd>,
    pub(super) template_pid: i32,
    /// What is to start the PEs, before it does.
    pub(super) starter: Option<PeStarter>,
    /// What it takes to start PEs again, where that may be asked for.
    pub(super) recipe: Option<Recipe>,
}

impl Node {
    /// Makes everything but the process group.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn prepare(
        parts: &Parts<'_>,
        group: io::Result<Group>,
    ) -> Result<Self, Cause> {
        let Parts {
            launch, settings, ..
        } = *parts;
        let cwd = OsString::from_vec(launch.cwd.clone());
        if parts.far && !Path::new(&cwd).is_absolute() {
            let text =
                "the working directory of shmrun has been removed; --chdir names another one";
            return Err(text.to_owned().into());
        }
        std::env::set_current_dir(Path::new(&cwd))
            .map_err(|e| format!("cannot work in the directory {}: {e}", cwd.display()))?;
        if parts.far {
            check_machine(launch, settings)?;
        }
        enter_namespace(launch, settings.soft_netns.as_deref())?;
        let group = group.map_err(|e| format!("cannot make the process group of the PEs: {e}"))?;
        let here = launch.layout().ranks(launch.node).len() as u32;
        let segment = NodeSegment::create(&JobFacts {
            job_id: launch.job_id,
            job_key: launch.job_key,
            node_of: parts.node_of,
            n_nodes: launch.n_nodes,
            node: launch.node,
            on_machine: launch.machines.as_ref().map_or(launch.n_pes, |_| here),
            heap_size: settings.symmetric_size,
            statics: launch.statics,
            heap_commit: settings.heap_commit,
            heap_pages: settings.heap_pages,
            store: StorePlan::new(settings, parts.node_of.len()),
            hca_addresses: parts.addresses,
            spins: launch.spins.unwrap_or_else(|| settings.spin.polls(here)),
            report: launch.options.report,
            calls: launch.options.calls,
        })
        .map_err(|e| e.to_string())?;
        let failed = |e| format!("{CANNOT_START}: {e}");
        let starter = PeStarter::of(parts, settings, bindings(launch)?).map_err(failed)?;
        let (messages, theirs) = sys::socketpair(SocketType::SEQPACKET).map_err(failed)?;
        let mut node = Self {
            group,
            segment,
            template: None,
            messages: Some(messages),
            their_messages: Some(theirs),
            template_pid: 0,
            starter: Some(starter),
            recipe: None,
        };
        if launch.pmix.is_none() {
            // SAFETY: one thread, as promised by the caller.
            unsafe { node.start(launch)? };
        }
        Ok(node)
    }

    /// Starts what starts the PEs. With a PMIx server that is when it serves, since PEs inherit what it says.
    ///
    /// # Safety
    /// This process has a single thread.
    pub(super) unsafe fn start(&mut self, launch: &Launch) -> Result<(), Cause> {
        let Some(starter) = self.starter.take() else {
            return Ok(());
        };
        let theirs = self.their_messages.take();
        let messages = theirs.as_ref().map(AsFd::as_fd);
        // SAFETY: as promised by the caller.
        let (pid, socket) =
            unsafe { starter.run(&self.group, &self.segment, messages, launch.ignored)? };
        self.template = Some(NlaSide::new(socket));
        self.template_pid = pid;
        self.recipe = starter
            .into_recipe()
            .filter(|_| launch.options.respawns > 0);
        self.their_messages = theirs.filter(|_| self.recipe.is_some());
        Ok(())
    }
}

/// What the PEs of the node are bound to, told if that was asked for.
fn bindings(launch: &Launch) -> Result<Bindings, String> {
    let binding = &launch.options.binding;
    if !binding.binds() {
        return Ok(Bindings::default());
    }
    let machine = Topology::of_this_machine();
    let (pes, numbers) = launch.on_machine();
    let plan = binding.plan(&machine, numbers, pes);
    let plan = plan.map_err(|e| e.to_string())?;
    if binding.report {
        let ranks = launch.layout().ranks(launch.node);
        let bound = (0u32..).zip(ranks);
        let line = |(local, rank)| {
            let cpus = plan.of(local)?;
            Some(format!(
                "shmrun: {}\n",
                binding::describe(rank, cpus, &machine)
            ))
        };
        let text: String = bound.filter_map(line).collect();
        // Who cannot be told is not.
        let _ = super::put(Stream::Err, &text);
    }
    Ok(plan)
}

/// The settings of the job: those of the launcher, whatever this process finds set.
pub(super) fn settings(launch: &Launch) -> Result<Settings, String> {
    let value = |name: &str| {
        let (_, value) = launch.env.iter().find(|(n, _)| n == name.as_bytes())?;
        Some(String::from_utf8_lossy(value).into_owned())
    };
    Settings::parse(value).map_err(|e| e.to_string())
}

/// What the launcher checks for its own machine: is the program there, is there memory?
fn check_machine(launch: &Launch, settings: &Settings) -> Result<(), Cause> {
    for command in &launch.commands {
        let program = OsString::from_vec(command.program.clone());
        program::find_at(Path::new(&program)).map_err(|e| Cause::Program {
            what: format!("{e} on this host; the program must be at the same path on all hosts"),
            status: e.status(),
        })?;
    }
    let heap = job::Files::of(&launch.commands).heap_need(settings);
    let here = Layout::of(launch.layout().ranks(launch.node).len() as u32, 1);
    let demand = Demand {
        several: launch.n_nodes > 1,
        pmix: launch.pmix.is_some(),
        shells: Tree::new(launch.n_nodes, launch.degree)
            .children(launch.node)
            .len() as u32,
        ..job::demand(&here, launch.degree, launch.input)
    };
    job::check_machine(&demand, settings, launch.statics, heap).map_err(|e| e.to_string().into())
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

/// The servers of the node.
pub(super) fn servers(
    launch: &Launch,
    settings: &Settings,
    layout: &Layout,
    tree: &Tree,
    node_of: &[u32],
) -> Result<Servers, String> {
    use shmem_pmi::process_mapping::ProcessMapping;
    use shmem_pmi::server::{CachePolicy, Job, NodePlace};
    let spawner = launch.spawner.as_ref();
    let job = Job {
        id: contract::hex(&launch.job_id),
        size: layout.n_pes(),
        programs: launch.commands.iter().map(|c| c.procs).collect(),
        process_mapping: ProcessMapping::from_nodes(node_of).to_string(),
        attributes: vec![("universeSize".into(), layout.n_pes().to_string())],
        spawner: spawner.map(|s| s.job_id.clone()),
        preputs: spawner.map_or_else(Vec::new, |s| s.preputs.clone()),
        extensions: true,
        cache: match settings.pmi_cache {
            PmiCache::Hcs => CachePolicy::Hcs,
            PmiCache::Hcma => CachePolicy::Hcma,
            PmiCache::Hcmab => CachePolicy::Hcmab,
            PmiCache::HcmabLru => CachePolicy::HcmabLru {
                bytes: settings.pmi_cache_size as usize,
            },
        },
        respawn: launch.options.respawns > 0,
        ..Job::default()
    };
    let place = NodePlace::in_tree(tree, launch.node, node_of);
    Servers::new(job, place).map_err(|e| format!("cannot set up PMI: {e}"))
}
