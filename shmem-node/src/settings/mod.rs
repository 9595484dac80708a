//! The one table of settings.
//!
//! From it come the parsing of the environment, `shmrun --settings`, `docs/env.md` and the typed
//! [`Settings`] that the rest of the runtime uses. Nobody else reads a `SHMEM_*` variable.

mod choices;
mod hca;
mod soft;
mod value;
mod withheld;

pub use choices::{
    AllocationChoice, Atomics, Batch, Connect, CoreFile, CtxQps, HeapCommit, HeapPages,
    HeapRegister, LauncherChoice, Pmi, PmiCache, STORE_MAX, Spawn, Spin, StaticsSize, StoreKind,
    Transport,
};
pub use hca::{HcaChoice, HcaPort};
pub use soft::{Faults, StreamChoice};
pub use value::ValueError;
pub use withheld::{Withheld, shown};

use std::hash::{DefaultHasher, Hasher};
use std::sync::OnceLock;
use std::time::Duration;

use crate::contract;
use crate::hca_address::{AddressChoice, PortChoice};
use crate::sys;

/// One row of the table, for help and documentation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Setting {
    /// Environment variable.
    pub name: &'static str,
    /// Older name that is still read when `name` is absent.
    pub alias: Option<&'static str>,
    /// Value when neither is set, as a user would write it.
    pub default: &'static str,
    /// What a value looks like.
    pub form: &'static str,
    /// What it does.
    pub help: &'static str,
}

impl Setting {
    /// The value that `lookup` has for this setting, or the default.
    fn value<T>(
        &self,
        parse: fn(&str) -> Result<T, ValueError>,
        lookup: &mut dyn FnMut(&str) -> Option<String>,
    ) -> Result<T, SettingsError> {
        let (name, text) = self.text(lookup);
        parse(&text).map_err(|reason| self.rejects(name, text, reason))
    }

    /// The name that is set, and its text; without any, the default.
    fn text(&self, lookup: &mut dyn FnMut(&str) -> Option<String>) -> (&'static str, String) {
        let mut names = [Some(self.name), self.alias].into_iter().flatten();
        names
            .find_map(|name| Some((name, lookup(name)?)))
            .unwrap_or_else(|| (self.name, self.default.to_owned()))
    }

    fn rejects(&self, name: &'static str, text: String, reason: ValueError) -> SettingsError {
        SettingsError {
            name,
            value: shown(name, text),
            reason,
            form: self.form,
            default: self.default,
        }
    }
}

/// A variable whose value cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{name}={value}: {reason}; expected {form} (default {default})")]
pub struct SettingsError {
    /// The variable.
    pub name: &'static str,
    /// What it was set to.
    pub value: String,
    /// Why that does not do.
    pub reason: ValueError,
    /// What would.
    pub form: &'static str,
    /// The value without it.
    pub default: &'static str,
}

macro_rules! settings {
    ($( $field:ident : $ty:ty = $default:literal, $name:literal $(| $alias:literal)?,
        $form:literal, $parse:path, $help:literal; )*) => {
        /// Every setting, parsed.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $( #[doc = $help] pub $field: $ty, )*
        }

        /// The table, in the order of the documentation.
        pub const TABLE: &[Setting] = &[
            $( Setting {
                name: $name,
                alias: settings!(@alias $($alias)?),
                default: $default,
                form: $form,
                help: $help,
            }, )*
        ];

        impl Settings {
            /// Reads the settings through `lookup`, which gives a variable's value.
            ///
            /// # Errors
            /// The first variable whose value cannot be parsed, or one that does not go with another.
            pub fn parse(
                mut lookup: impl FnMut(&str) -> Option<String>,
            ) -> Result<Self, SettingsError> {
                Self::read(&mut lookup)
            }

            // One function for all callers: it is long, and each closure would be compiled with a copy of it.
            fn read(lookup: &mut dyn FnMut(&str) -> Option<String>) -> Result<Self, SettingsError> {
                let mut rows = TABLE.iter();
                let settings = Self {
                    $( $field: {
                        let row = rows.next().expect("one row a field");
                        row.value($parse, lookup)?
                    }, )*
                };
                settings.check()?;
                Ok(settings)
            }
        }
    };
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
}

settings! {
    symmetric_size: u64 = "256M", "SHMEM_SYMMETRIC_SIZE" | "SMA_SYMMETRIC_SIZE",
        "bytes, with an optional k, m, g or t (powers of 1024)", value::heap_size,
        "Size of each PE's symmetric heap, rounded up to a multiple of 64. Pages are used when touched.";
    statics_size: StaticsSize = "auto", "SHMEM_STATICS_SIZE",
        "auto, or bytes as for SHMEM_SYMMETRIC_SIZE", choices::statics_size,
        "Room for the static data of a C program, which is symmetric memory too. auto takes what the \
         program's file says, and 1g of addresses where another program starts it (a script, env, numactl, perf); \
         say how much where that is too little, or where unused room would take memory (SHMEM_HEAP_COMMIT=reserve, \
         SHMEM_HEAP_REGISTER=whole).";
    heap_commit: HeapCommit = "lazy", "SHMEM_HEAP_COMMIT",
        "lazy or reserve", choices::heap_commit,
        "Whether heaps get memory when touched, or all of it before the program starts.";
    heap_pages: HeapPages = "default", "SHMEM_HEAP_PAGES",
        "default, huge or transparent", choices::heap_pages,
        "Pages of the heaps: the usual ones, huge ones that the administrator has set aside \
         (vm.nr_hugepages) for all heaps of a node, or huge ones where the kernel can make them.";
    heap_register: HeapRegister = "auto", "SHMEM_HEAP_REGISTER",
        "auto, whole, grow or odp", choices::heap_register,
        "When heaps are registered with the network device: all at once in init, in parts as they \
         are allocated (grow), or by on-demand paging of the device (odp, at once); auto grows where \
         a registration takes the memory of untouched pages.";
    core: CoreFile = "own", "SHMEM_CORE",
        "none, own or all", choices::core_file,
        "Which symmetric heaps a core file of a PE holds, if the system writes any (ulimit -c): none, \
         its own, or all of its node, which takes as much memory and disk as all of them have bytes, \
         used or not. Static data is always in it; the memory of shmrun and its launch agents never, \
         nor, under shmrun, the job's key.";
    connect: Connect = "ondemand", "SHMEM_CONNECT",
        "ondemand or static", choices::connect,
        "Connect two PEs when they first talk, or all pairs on different nodes in init.";
    transport: Transport = "rc", "SHMEM_TRANSPORT",
        "rc or xrc", choices::transport,
        "Connect pairs of PEs (RC), or each PE with each node it uses (XRC: fewer queue pairs).";
    connect_timeout: Duration = "60s", "SHMEM_CONNECT_TIMEOUT",
        "a time such as 500ms, 30s or 2m", value::duration,
        "How long a silent peer may take to answer a connection request before the job fails.";
    atomics: Atomics = "auto", "SHMEM_ATOMICS",
        "auto, hca or owner", choices::atomics,
        "Who executes atomics of PEs on other nodes: the HCA, or the PE that owns the word; auto takes the HCA if its atomics are coherent with the processor's. The same for all PEs; owner not over XRC.";
    max_qps: u32 = "0", "SHMEM_MAX_QPS",
        "a number, or 0 for no limit", value::count,
        "Connections to PEs on other nodes that a PE may have at a time; the least recently used ones are closed for others. Without effect over XRC.";
    ctx_qps: CtxQps = "auto", "SHMEM_CTX_QPS",
        "auto, or a number up to 64", choices::ctx_qps,
        "Private and serialized contexts that may have queue pairs of their own at a time, so that their quiet waits for nobody else's operations; those beyond the number share the others' queue pairs. With SHMEM_MAX_QPS each of them has an equal share of that number. auto: only contexts for which a Rust program asks, at most 16, and none where SHMEM_MAX_QPS is set. None over XRC.";
    linger: Duration = "500ms", "SHMEM_LINGER",
        "a time such as 500ms or 2s", value::duration,
        "How long a leaving PE waits for silent peers that have not taken leave.";
    spin: Spin = "auto", "SHMEM_SPIN",
        "auto, or a number of polls", choices::spin,
        "Most polls of a waiting PE before it sleeps; auto: none where PEs outnumber cores. A thread whose core others want polls for a while not at all, and tries again later.";
    spawn: Spawn = "auto", "SHMEM_SPAWN",
        "auto, template or exec", choices::spawn,
        "Fork PEs from a template of the program, or exec it once for each.";
    pmi: Pmi = "auto", "SHMEM_PMI",
        "auto, 1, 2, pmix or mpi", choices::pmi,
        "Version of PMI that a process speaks to the launcher's server; auto: 2 with extensions under \
         shmrun, 2 under Slurm, else 1; PMIx where the launcher offers nothing else. mpi: none, but messages of MPI, \
         which the program must have initialised; auto does that in such programs where a server can have one client \
         only, or where there is none.";
    pmix_library: Option<String> = "auto", "SHMEM_PMIX_LIBRARY",
        "auto, or a path such as /opt/pmix/lib/libpmix.so.2", choices::library,
        "The libpmix that is loaded where PMIx is spoken; auto: the one that the launcher itself has \
         loaded, else what PMIX_PREFIX, OPAL_PREFIX and the like say of an installation, else the dynamic \
         loader's. No other is loaded where the process has one already.";
    mpi_library: Option<String> = "auto", "SHMEM_MPI_LIBRARY",
        "auto, or a path such as /opt/mpich/lib/libmpi.so.12", choices::library,
        "The MPI library that programs load that use it through the crate shmem-mpi; auto: the one that speaks the \
         launcher's language. No other is loaded where the process has one already.";
    unique_id: Option<Withheld> = "none", "SHMEM_UNIQUE_ID",
        "none, or the text of an id", withheld::text,
        "The id of a job without a launcher, the same for all its processes; RANK and WORLD_SIZE say which of how many \
         a process is. Under shmrun without effect; else before all that other launchers offer. A secret. \
         shmem-info --make-id HOST:PORT makes one.";
    unique_id_secret: Option<Withheld> = "none", "SHMEM_UNIQUE_ID_SECRET",
        "none, or at least 16 characters that cannot be guessed", withheld::secret,
        "Instead of an id, where a framework such as torchrun sets MASTER_ADDR, MASTER_PORT, RANK and WORLD_SIZE for all \
         processes: PE 0 listens at MASTER_ADDR, and who has the same secret is let in.";
    unique_id_port: u16 = "0", "SHMEM_UNIQUE_ID_PORT",
        "a TCP port, or 0 for MASTER_PORT + 1", soft::tcp_port,
        "The port at which PE 0 listens with SHMEM_UNIQUE_ID_SECRET: the framework itself has MASTER_PORT.";
    init_timeout: Duration = "5m", "SHMEM_INIT_TIMEOUT",
        "a time such as 500ms, 30s or 5m", value::duration,
        "How long the processes of a job without a launcher wait for each other in init, and under launchers of others \
         the PEs of a node.";
    emulated_node: Option<String> = "none", "SHMEM_EMULATED_NODE",
        "none, or a name", withheld::name,
        "In a job without a launcher: processes of one machine with different names are PEs of different \
         nodes, to try on one machine what several do.";
    pmi_cache: PmiCache = "hcmab", "SHMEM_PMI_CACHE",
        "hcs, hcma, hcmab or hcmab-lru", choices::pmi_cache,
        "Which key-value pairs of PMI a launch agent keeps. hcs: what its PEs put and got, each put \
         being sent to the first agent at once; hcma: the same, with one message for all puts before \
         a fence; hcmab: all pairs, sent to all agents by the fence; hcmab-lru: of those the ones \
         used last. The first agent keeps all pairs.";
    pmi_cache_size: u64 = "16M", "SHMEM_PMI_CACHE_SIZE",
        "bytes, as for SHMEM_SYMMETRIC_SIZE", value::size,
        "Memory for pairs of an agent with SHMEM_PMI_CACHE=hcmab-lru.";
    tree_degree: u32 = "0", "SHMEM_TREE_DEGREE",
        "a number from 2 to 128, or 0 for automatic", choices::tree_degree,
        "Children of a launch agent in the launch tree.";
    pmi_store: StoreKind = "shared", "SHMEM_PMI_STORE",
        "shared, rwlock, 2n or message", choices::store,
        "How the PEs of a node get the keys that PMI's fences have made visible: from shared memory \
         without a lock (shared), with one lock for all (rwlock), with two locks per PE (2n), or from \
         the launch agent. The locks are there to compare with.";
    pmi_store_size: Option<u64> = "auto", "SHMEM_PMI_STORE_SIZE",
        "auto, or bytes as for SHMEM_SYMMETRIC_SIZE, up to 16g", choices::store_size,
        "Room for these keys and values on each node, used as needed; auto is 16m and 64k per PE of the \
         job. What does not fit is got from the launch agent.";
    allocation: AllocationChoice = "auto", "SHMEM_ALLOCATION",
        "auto, none, slurm, pbs, lsf, flux or sge", choices::allocation,
        "Batch system whose allocation shmrun uses when no hosts are named: the one it is in (auto), none, or \
         a certain one.";
    launcher: LauncherChoice = "auto", "SHMEM_LAUNCHER" | "SHMEM_RSH",
        "auto, fork, ssh, slurm, pbs, lsf, flux, sge, or a command and options with blanks between them", choices::launcher,
        "What starts launch agents on other hosts: auto is the batch system where all hosts are of its \
         allocation, else ssh; fork keeps all nodes on this machine. In a command {host} stands for the host \
         and {command} for the words to execute there; without them the host is added, and one \
         command line for the shell there, as ssh and rsh take them. It must not ask for anything, and must last \
         as long as what it starts.";
    launcher_timeout: Duration = "30s", "SHMEM_LAUNCHER_TIMEOUT" | "SHMEM_RSH_TIMEOUT",
        "a time such as 500ms, 30s or 2m", value::duration,
        "How long a host may take to start its launch agent, all attempts together.";
    launcher_starts: u32 = "10", "SHMEM_LAUNCHER_STARTS",
        "a number of at least 1", value::at_least_one,
        "Hosts whose answer a launch agent waits for at a time; further ones are started as these answer. An \
         sshd takes 10 that have not logged in (MaxStartups), which counts where all go through one.";
    launcher_retries: u32 = "2", "SHMEM_LAUNCHER_RETRIES",
        "a number", value::count,
        "How often a host is tried again that refuses or resets a connection before its launch agent has said \
         anything.";
    grace: Duration = "250ms", "SHMEM_GRACE",
        "a time such as 250ms or 2s", value::duration,
        "Time between SIGTERM and SIGKILL when a job is ended early.";
    heartbeat_timeout: Duration = "8s", "SHMEM_HEARTBEAT_TIMEOUT",
        "a time such as 500ms, 8s or 2m; 0s for no limit", value::duration,
        "How long nothing may be heard of a launch agent before its node counts as lost, and of its \
         parent before the agent ends its PEs and itself. To stop an agent with a debugger, set 0s.";
    pass_sigusr1: bool = "no", "SHMEM_PASS_SIGUSR1",
        "yes or no", value::yes_no,
        "Whether shmrun passes SIGUSR1 on to all PEs, as it does with SIGUSR2; else it tells what they wait \
         for.";
    check: Option<bool> = "auto", "SHMEM_CHECK",
        "auto, 1 (or yes), or 0 (or no)", value::yes_no_auto,
        "Whether the PEs of a team compare, before each collective, which one they call, with what sizes, roots, \
         types and operations: where they differ the job ends, and is told who calls what at which place of the \
         program. auto: where the library is a debug build. Not compared are, in C, element types but of reductions and \
         scans, and collectives of active sets but over all PEs. It takes a synchronisation for each collective, which may hide \
         that the program lacks one. The same for all PEs.";
    test_timeout: Option<Duration> = "unset", "SHMEM_TEST_TIMEOUT",
        "a time such as 500ms, 90s or 2m; 0s for no limit", value::duration_or_unset,
        "How long a job of a test (shmem::test) may take, whatever the test itself says of that; rounded up to \
         seconds. To debug one, set 0s.";
    version: bool = "unset", "SHMEM_VERSION" | "SMA_VERSION",
        "set to anything", value::present,
        "PE 0 tells the version of the library when it starts.";
    info: bool = "unset", "SHMEM_INFO" | "SMA_INFO",
        "set to anything", value::present,
        "PE 0 tells these settings and their values when it starts.";
    debug: bool = "unset", "SHMEM_DEBUG" | "SMA_DEBUG",
        "set to anything", value::present,
        "Every PE tells on standard error what it does at start and end.";
    hca: HcaChoice = "auto", "SHMEM_HCA",
        "auto, soft, verbs, or a list of devices with optional ports such as mlx5_0:1,mlx5_1", hca::choice,
        "What PEs of different nodes talk over: the software HCA (soft), the best port of an RDMA \
         device (verbs), such a port where there is one that \
         is no emulation and else the software HCA (auto), or the ports listed, by turns (PE i of node n takes entry i + n). \
         shmem-info shows what there is. The same kind on all nodes.";
    gid_index: Option<u8> = "auto", "SHMEM_GID_INDEX",
        "auto, or a number from 0 to 255", hca::gid_index,
        "Which address (GID) of a port to use; auto takes the first one of InfiniBand, and one of RoCEv2, IPv4 \
         before IPv6, none that is link-local.";
    pkey: Option<u16> = "auto", "SHMEM_PKEY",
        "auto, or a partition key from 1 to 0xffff", hca::pkey,
        "Partition to be in, by its key: a port's table of partitions has to have it, and all PEs need the \
         same. auto takes the table's first entry. A key with the bit 0x8000 asks for a full membership; one \
         without takes a limited one, too, if there is no full one, and limited members do not hear each \
         other. The software HCA is a full member of any.";
    service_level: u8 = "0", "SHMEM_SL",
        "a number from 0 to 15", hca::service_level,
        "Service level of a device's packets: InfiniBand's switches choose virtual lanes by it; on Ethernet \
         with VLANs its lower three bits are the priority. Without effect on the software HCA.";
    traffic_class: u8 = "0", "SHMEM_TRAFFIC_CLASS",
        "a number from 0 to 255", hca::traffic_class,
        "Traffic class of packets that have an IP header or a global routing header: all of RoCE and of the \
         software HCA. Its upper six bits are the DSCP (106: DSCP 26, and 2 below it: may be marked by \
         congested switches).";
    global_route: bool = "auto", "SHMEM_GRH",
        "auto or always", hca::route,
        "Whether InfiniBand packets have a global routing header where a LID would do: always, or only where \
         the port needs one or the peer is in another subnet (auto). On Ethernet all have one.";
    ack_timeout: Duration = "4s", "SHMEM_ACK_TIMEOUT",
        "a time from 8us to 8796s", hca::ack_timeout,
        "How long an acknowledgement may take before packets are sent again; rounded up to 4.096 us times a \
         power of two.";
    retry_count: u8 = "6", "SHMEM_RETRY_COUNT",
        "a number from 0 to 7", hca::retries,
        "How many such times may pass in a row before a connection counts as broken: with 4s and 6, after half \
         a minute.";
    rnr_retry: u8 = "7", "SHMEM_RNR_RETRY",
        "a number from 0 to 7; 7 is without end", hca::retries,
        "How often a message that finds no receive at the peer is sent again before the connection counts as \
         broken. There are such messages only with SHMEM_ATOMICS=owner, or where auto means that.";
    rnr_timeout: Duration = "160us", "SHMEM_RNR_TIMEOUT",
        "a time from 10us to 655.36ms", hca::rnr_timeout,
        "How long peers wait before that; rounded up to one of the 32 times that InfiniBand has.";
    soft_address: AddressChoice = "auto", "SHMEM_SOFT_ADDRESS",
        "auto, an IPv4 or IPv6 address, one followed by +, or a network such as 10.5.0.0/24", soft::address,
        "Addresses of the software HCAs. auto: on one machine, loopback ones of the job's own; on \
         several, the one of each from which packets go to the first. Else one for all PEs, \
         consecutive ones from the first (ADDRESS+), one per node, with a fixed port one per PE, or \
         the one that each machine has in a network.";
    soft_port: PortChoice = "0", "SHMEM_SOFT_PORT",
        "a UDP port, a range such as 20000-20099, or 0 for any", soft::port,
        "Port of the software HCAs. Of a range each PE takes one that is free: what a firewall has to let \
         through. With a single one, such as RoCEv2's 4791, each PE needs an address.";
    soft_mtu: u32 = "auto", "SHMEM_SOFT_MTU",
        "auto, 256, 512, 1024, 2048, 4096 or 61440", soft::mtu,
        "Path MTU of the software HCA in bytes; auto takes the largest whose packets fit the network \
         interface. Two PEs use the lesser one of both. 61440 is no size of RoCE's, and for nodes emulated on \
         one machine.";
    soft_buffer: u64 = "64M", "SHMEM_SOFT_BUFFER",
        "bytes, as for SHMEM_SYMMETRIC_SIZE", value::size,
        "Received packets that the kernel keeps for a software HCA until it looks. The system allows \
         ordinary users net.core.rmem_max at most. Where waiting PEs poll (SHMEM_SPIN), many that send \
         to one at the same time are told to send no more than fits.";
    soft_stream: StreamChoice = "auto", "SHMEM_SOFT_STREAM",
        "auto, never, or bytes as for SHMEM_SYMMETRIC_SIZE", soft::stream,
        "Messages of at least so many bytes go between software HCAs by TCP instead of by datagrams, where the \
         network interface takes packets of a few thousand bytes at most and peers are no devices of other makes; auto: \
         of 64k, and none where SHMEM_SOFT_FAULTS mistreats packets. A PE that sends such messages listens at a port of \
         SHMEM_SOFT_PORT while it awaits its peer's connection; where that does not come, datagrams have to do. The same \
         for all PEs.";
    soft_netns: Option<String> = "none", "SHMEM_SOFT_NETNS",
        "none, or a path such as /run/netns/node", soft::netns,
        "Network namespaces of the nodes: node i enters the one at this path with i appended.";
    soft_interop: bool = "no", "SHMEM_SOFT_INTEROP",
        "yes or no", value::yes_no,
        "Exchange packets with RoCEv2 devices of other makes: one packet per datagram, taken from \
         any UDP port and with any IPv4 identification. Needs SHMEM_SOFT_PORT.";
    soft_faults: Faults = "none", "SHMEM_SOFT_FAULTS",
        "none, or a list such as drop=1%,duplicate=0.5%,reorder=1%,seed=7,silent", soft::faults,
        "For tests: faults that the software HCA's sockets inject into what they send; silent: it does \
         not tell of what peers write, as RDMA devices do not.";
}

impl Settings {
    /// Whether the values go together.
    fn check(&self) -> Result<(), SettingsError> {
        if self.atomics == Atomics::Owner && self.transport == Transport::Xrc {
            let name = "SHMEM_ATOMICS";
            let row = TABLE.iter().find(|row| row.name == name);
            let row = row.expect("it is in the table");
            return Err(SettingsError {
                name,
                value: "owner".to_owned(),
                reason: ValueError::Conflict(
                    "SHMEM_TRANSPORT=xrc, whose messages do not reach every PE",
                ),
                form: row.form,
                default: row.default,
            });
        }
        Ok(())
    }

    /// Reads the process environment.
    ///
    /// # Errors
    /// The first variable whose value cannot be parsed.
    pub fn from_env() -> Result<Self, SettingsError> {
        match REMEMBERED.get() {
            Some((mark, settings)) if *mark == environment_mark() => Ok(settings.clone()),
            _ => Self::read_env(),
        }
    }

    fn read_env() -> Result<Self, SettingsError> {
        Self::parse(|name| std::env::var_os(name).map(|v| v.to_string_lossy().into_owned()))
    }

    /// Reads the environment now, so that [`from_env`](Self::from_env) need not while it stays as it is:
    /// for a template, whose PEs all find the same.
    pub fn remember_env() {
        if let Ok(settings) = Self::read_env() {
            let _ = REMEMBERED.set((environment_mark(), settings));
        }
    }
}

/// What the environment of [`environment_mark`] sets.
static REMEMBERED: OnceLock<(u64, Settings)> = OnceLock::new();

/// How the names of all settings begin.
const PREFIXES: [&[u8]; 2] = [b"SHMEM_", b"SMA_"];

/// A number that differs, for all that can be expected, if any setting of the environment does.
fn environment_mark() -> u64 {
    let mut mark = DefaultHasher::new();
    sys::each_variable(|variable| {
        let is_setting = PREFIXES.iter().any(|p| variable.starts_with(p));
        let name = variable.split(|&b| b == b'=').next().unwrap_or_default();
        if is_setting && !contract::is_place(name) {
            mark.write(variable);
            mark.write_u8(0);
        }
    });
    mark.finish()
}

impl Default for Settings {
    fn default() -> Self {
        Self::parse(|_| None).expect("defaults parse")
    }
}

/// A value in force, and where it comes from, as a user would say it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Given {
    /// The value.
    pub value: String,
    /// Where it comes from.
    pub origin: String,
}

impl Given {
    /// What the environment of this process has.
    pub fn by_environment(name: &str) -> Option<Self> {
        Some(Self {
            value: std::env::var_os(name)?.to_string_lossy().into_owned(),
            origin: "environment".to_owned(),
        })
    }
}

/// The table with the values in force, which `lookup` gives, and where they come from: for `shmrun --settings`,
/// `shmem-info --settings` and `SHMEM_INFO`.
pub fn text(lookup: impl Fn(&str) -> Option<Given>) -> String {
    use std::fmt::Write;
    let mut out = String::new();
    for row in TABLE {
        let by_alias = || {
            let alias = row.alias?;
            let given = lookup(alias)?;
            let origin = format!("{}, as {alias}", given.origin);
            Some(Given { origin, ..given })
        };
        let mut given = lookup(row.name).or_else(by_alias).unwrap_or_else(|| Given {
            value: row.default.to_owned(),
            origin: "default".to_owned(),
        });
        given.value = shown(row.name, given.value);
        let _ = writeln!(
            out,
            "{}={}  ({})\n    {}\n    Value: {}.",
            row.name, given.value, given.origin, row.help, row.form
        );
    }
    out
}

/// The table as Markdown: the body of `docs/env.md`.
pub fn markdown() -> String {
    use std::fmt::Write;
    let mut out = String::from(
        "# Settings\n\nEnvironment variables that `shmrun` and every PE read. \
         `shmrun --settings` prints the values in force.\n\n\
         | variable | default | value | meaning |\n|---|---|---|---|\n",
    );
    for row in TABLE {
        let alias = row
            .alias
            .map(|a| format!(" (or `{a}`)"))
            .unwrap_or_default();
        let _ = writeln!(
            out,
            "| `{}`{alias} | `{}` | {} | {} |",
            row.name, row.default, row.form, row.help
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(name: &'static str, value: &'static str) -> Result<Settings, SettingsError> {
        Settings::parse(|n| (n == name).then(|| value.to_owned()))
    }

    #[test]
    fn what_stands_for_the_environment_sees_every_setting() {
        for row in TABLE {
            for name in [Some(row.name), row.alias].into_iter().flatten() {
                let seen = PREFIXES.iter().any(|p| name.as_bytes().starts_with(p));
                assert!(seen && !contract::is_place(name.as_bytes()), "{name}");
            }
        }
    }

    #[test]
    fn defaults_parse() {
        let s = Settings::default();
        assert_eq!(s.symmetric_size, 256 << 20);
        assert_eq!(s.connect, Connect::OnDemand);
        assert_eq!(s.grace, Duration::from_millis(250));
    }

    #[test]
    fn the_alias_counts_only_without_the_name() {
        assert_eq!(
            with("SMA_SYMMETRIC_SIZE", "1g").unwrap().symmetric_size,
            1 << 30
        );
        let both = Settings::parse(|n| match n {
            "SHMEM_SYMMETRIC_SIZE" => Some("2m".into()),
            "SMA_SYMMETRIC_SIZE" => Some("1g".into()),
            _ => None,
        });
        assert_eq!(both.unwrap().symmetric_size, 2 << 20);
        let text = with("SMA_SYMMETRIC_SIZE", "big").unwrap_err().to_string();
        assert!(text.starts_with("SMA_SYMMETRIC_SIZE=big"), "{text}");
    }

    #[test]
    fn a_bad_value_names_variable_value_and_form() {
        let text = with("SHMEM_CONNECT", "maybe").unwrap_err().to_string();
        for part in ["SHMEM_CONNECT=maybe", "ondemand or static"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn contexts_with_their_own_queue_pairs_are_few() {
        let most = |text: &str| {
            let given = |name: &str| (name == "SHMEM_CTX_QPS").then(|| text.to_owned());
            Settings::parse(given).map(|settings| settings.ctx_qps)
        };
        assert_eq!(most(" Auto"), Ok(CtxQps::Auto));
        assert_eq!(
            (most("0"), most("64")),
            (Ok(CtxQps::Most(0)), Ok(CtxQps::Most(64)))
        );
        assert_eq!(most("65").unwrap_err().reason, ValueError::OutOfRange);
        for bad in ["-1", "", "all"] {
            assert_eq!(most(bad).unwrap_err().reason, ValueError::NotANumber);
        }
    }

    #[test]
    fn values_that_exclude_each_other_are_refused() {
        let both = |atomics: &'static str| {
            Settings::parse(|n| match n {
                "SHMEM_TRANSPORT" => Some("xrc".into()),
                "SHMEM_ATOMICS" => Some(atomics.into()),
                _ => None,
            })
        };
        assert!(both("auto").is_ok() && both("hca").is_ok());
        let text = both("owner").unwrap_err().to_string();
        for part in ["SHMEM_ATOMICS=owner", "SHMEM_TRANSPORT=xrc"] {
            assert!(text.contains(part), "{text}");
        }
    }

    #[test]
    fn names_are_unique() {
        let mut names: Vec<_> = TABLE
            .iter()
            .flat_map(|r| r.alias.into_iter().chain([r.name]))
            .collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(
            names.len(),
            TABLE.len() + TABLE.iter().filter(|r| r.alias.is_some()).count()
        );
    }

    #[test]
    fn the_settings_page_is_current() {
        let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/env.md");
        shmem_testkit::generated::is_current(path, &markdown());
    }

    #[test]
    fn settings_show_their_values() {
        let given = |value: &str| Given {
            value: value.into(),
            origin: "environment".into(),
        };
        let text = text(|n| match n {
            "SHMEM_CONNECT" => Some(given("static")),
            "SMA_INFO" => Some(given("1")),
            _ => None,
        });
        for part in [
            "SHMEM_CONNECT=static  (environment)",
            "SHMEM_INFO=1  (environment, as SMA_INFO)",
        ] {
            assert!(text.contains(part), "{text}");
        }
        assert!(
            text.contains("SHMEM_SYMMETRIC_SIZE=256M  (default)"),
            "{text}"
        );
    }
}
