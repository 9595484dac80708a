//! The rows of the table, by groups, and what is made of them.

use std::time::Duration;

use super::choices::{
    self, AllocationChoice, Atomics, Connect, CoreFile, CtxQps, HeapCommit, HeapPages,
    HeapRegister, LauncherChoice, Pmi, PmiCache, Spawn, Spin, StaticsSize, StoreKind, Transport,
};
use super::hca::{self, HcaChoice};
use super::soft::{self, Faults, StreamChoice};
use super::withheld::{self, Withheld};
use super::{Group, Setting, SettingsError, value};
use crate::hca_address::{AddressChoice, PortChoice};

macro_rules! settings {
    ($( $group:ident { $( $field:ident : $ty:ty = $default:literal, $name:literal $(| $alias:literal)?,
        $form:literal, $parse:path, $help:literal; )* } )*) => {
        /// Every setting, parsed.
        #[derive(Debug, Clone, PartialEq)]
        pub struct Settings {
            $($( #[doc = $help] pub $field: $ty, )*)*
        }

        /// The table, in the order of the documentation.
        pub const TABLE: &[Setting] = &[
            $($( Setting {
                group: Group::$group,
                name: $name,
                alias: settings!(@alias $($alias)?),
                default: $default,
                form: $form,
                help: $help,
            }, )*)*
        ];

        impl Settings {
            // One function for all callers: it is long, and each closure would be compiled with a copy of it.
            pub(super) fn read(lookup: &mut dyn FnMut(&str) -> Option<String>) -> Result<Self, SettingsError> {
                let mut rows = TABLE.iter();
                Ok(Self {
                    $($( $field: {
                        let row = rows.next().expect("one row a field");
                        row.value($parse, lookup)?
                    }, )*)*
                })
            }
        }
    };
    (@alias) => { None };
    (@alias $alias:literal) => { Some($alias) };
}

settings! {
    Usual {
        symmetric_size: u64 = "256M", "SHMEM_SYMMETRIC_SIZE" | "SMA_SYMMETRIC_SIZE",
            "bytes, with an optional k, m, g or t (powers of 1024)", value::heap_size,
            "Size of each PE's symmetric heap, rounded up to a multiple of 64. Pages are used when touched. \
             shmrun --heap sets it, too.";
        statics_size: StaticsSize = "auto", "SHMEM_STATICS_SIZE",
            "auto, or bytes as for SHMEM_SYMMETRIC_SIZE", choices::statics_size,
            "Room for the static data of a C program, which is symmetric memory too. auto takes what the \
             program's file says, and 1g of addresses where another program starts it (a script, env, numactl, perf); \
             say how much where that is too little, or where unused room would take memory (SHMEM_HEAP_COMMIT=reserve, \
             SHMEM_HEAP_REGISTER=whole).";
        hca: HcaChoice = "auto", "SHMEM_HCA",
            "auto, soft, verbs, or a list of devices with optional ports such as mlx5_0:1,mlx5_1", hca::choice,
            "What PEs of different nodes talk over: the software HCA (soft), the best port of an RDMA \
             device (verbs), such a port where there is one that \
             is no emulation and else the software HCA (auto), or the ports listed, by turns (PE i of node n takes entry i + n). \
             shmem-info shows what there is. The same kind on all nodes.";
        connect: Connect = "ondemand", "SHMEM_CONNECT",
            "ondemand or static", choices::connect,
            "Connect two PEs when they first talk, or all pairs on different nodes in init.";
        spin: Spin = "auto", "SHMEM_SPIN",
            "auto, or a number of polls", choices::spin,
            "Most polls of a waiting PE before it sleeps; auto: none where PEs outnumber cores. A thread whose core others want polls for a while not at all, and tries again later.";
    }
    Network {
        transport: Transport = "rc", "SHMEM_TRANSPORT",
            "rc or xrc", choices::transport,
            "Connect pairs of PEs (RC), or each PE with each node it uses (XRC: fewer queue pairs).";
        atomics: Atomics = "auto", "SHMEM_ATOMICS",
            "auto, hca or owner", choices::atomics,
            "Who executes atomics of PEs on other nodes: the HCA, or the PE that owns the word; auto takes the HCA if its atomics are coherent with the processor's. The same for all PEs; owner not over XRC.";
        max_qps: u32 = "0", "SHMEM_MAX_QPS",
            "a number, or 0 for no limit", value::count,
            "Connections to PEs on other nodes that a PE may have at a time; the least recently used ones are closed for others. Without effect over XRC.";
        ctx_qps: CtxQps = "auto", "SHMEM_CTX_QPS",
            "auto, or a number up to 64", choices::ctx_qps,
            "Private and serialized contexts that may have queue pairs of their own at a time, so that their quiet waits for nobody else's operations; those beyond the number share the others' queue pairs. With SHMEM_MAX_QPS each of them has an equal share of that number. auto: only contexts for which a Rust program asks, at most 16, and none where SHMEM_MAX_QPS is set. None over XRC.";
        connect_timeout: Duration = "60s", "SHMEM_CONNECT_TIMEOUT",
            "a time such as 500ms, 30s or 2m", value::duration,
            "How long a silent peer may take to answer a connection request before the job fails.";
        heap_register: HeapRegister = "auto", "SHMEM_HEAP_REGISTER",
            "auto, whole, grow or odp", choices::heap_register,
            "When heaps are registered with the network device: all at once in init, in parts as they \
             are allocated (grow), or by on-demand paging of the device (odp, at once); auto grows where \
             a registration takes the memory of untouched pages.";
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
        soft_interop: bool = "no", "SHMEM_SOFT_INTEROP",
            "yes or no", value::yes_no,
            "Exchange packets with RoCEv2 devices of other makes: one packet per datagram, taken from \
             any UDP port and with any IPv4 identification. Needs SHMEM_SOFT_PORT.";
    }
    Site {
        spawn: Spawn = "auto", "SHMEM_SPAWN",
            "auto, template or exec", choices::spawn,
            "template: fork PEs from one process of the program; refused if the program cannot be one, or a fork would \
             lose threads or timers. exec: execute the program once for each PE. auto: template where that loses \
             nothing, else exec.";
        tree_degree: u32 = "0", "SHMEM_TREE_DEGREE",
            "a number from 2 to 128, or 0 for automatic", choices::tree_degree,
            "Children of a launch agent in the launch tree.";
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
        heartbeat_timeout: Duration = "8s", "SHMEM_HEARTBEAT_TIMEOUT",
            "a time such as 500ms, 8s or 2m; 0s for no limit", value::duration,
            "How long nothing may be heard of a launch agent before its node counts as lost, and of its \
             parent before the agent ends its PEs and itself. To stop an agent with a debugger, set 0s.";
        grace: Duration = "250ms", "SHMEM_GRACE",
            "a time such as 250ms or 2s", value::duration,
            "Time between SIGTERM and SIGKILL when a job is ended early.";
        init_timeout: Duration = "5m", "SHMEM_INIT_TIMEOUT",
            "a time such as 500ms, 30s or 5m", value::duration,
            "How long the processes of a job without a launcher wait for each other in init, and under launchers of others \
             the PEs of a node.";
        heap_pages: HeapPages = "default", "SHMEM_HEAP_PAGES",
            "default, huge or transparent", choices::heap_pages,
            "Pages of the heaps: the usual ones, huge ones that the administrator has set aside \
             (vm.nr_hugepages) for all heaps of a node, or huge ones where the kernel can make them.";
        heap_commit: HeapCommit = "lazy", "SHMEM_HEAP_COMMIT",
            "lazy or reserve", choices::heap_commit,
            "Whether heaps get memory when touched, or all of it before the program starts.";
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
    }
    Diagnosis {
        check: Option<bool> = "auto", "SHMEM_CHECK",
            "auto, 1 (or yes), or 0 (or no)", value::yes_no_auto,
            "Whether the PEs of a team compare, before each collective, which one they call, with what sizes, roots, \
             types and operations: where they differ the job ends, and is told who calls what at which place of the \
             program. auto: where the library is a debug build. Not compared are, in C, element types but of reductions and \
             scans, and collectives of active sets but over all PEs. It takes a synchronisation for each collective, which may hide \
             that the program lacks one. The same for all PEs.";
        core: CoreFile = "own", "SHMEM_CORE",
            "none, own or all", choices::core_file,
            "Which symmetric heaps a core file of a PE holds, if the system writes any (ulimit -c): none, \
             its own, or all of its node, which takes as much memory and disk as all of them have bytes, \
             used or not. Static data is always in it; the memory of shmrun and its launch agents never, \
             nor, under shmrun, the job's key.";
        pass_sigusr1: bool = "no", "SHMEM_PASS_SIGUSR1",
            "yes or no", value::yes_no,
            "Whether shmrun passes SIGUSR1 on to all PEs, as it does with SIGUSR2; else it tells what they wait \
             for.";
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
    }
    Tests {
        emulated_node: Option<String> = "none", "SHMEM_EMULATED_NODE",
            "none, or a name", withheld::name,
            "In a job without a launcher: processes of one machine with different names are PEs of different \
             nodes, to try on one machine what several do.";
        launcher_retries: u32 = "2", "SHMEM_LAUNCHER_RETRIES",
            "a number", value::count,
            "How often a host is tried again that refuses or resets a connection before its launch agent has said \
             anything.";
        pmi_cache: PmiCache = "hcmab", "SHMEM_PMI_CACHE",
            "hcs, hcma, hcmab or hcmab-lru", choices::pmi_cache,
            "Which key-value pairs of PMI a launch agent keeps. hcs: what its PEs put and got, each put \
             being sent to the first agent at once; hcma: the same, with one message for all puts before \
             a fence; hcmab: all pairs, sent to all agents by the fence; hcmab-lru: of those the ones \
             used last. The first agent keeps all pairs.";
        pmi_cache_size: u64 = "16M", "SHMEM_PMI_CACHE_SIZE",
            "bytes, as for SHMEM_SYMMETRIC_SIZE", value::size,
            "Memory for pairs of an agent with SHMEM_PMI_CACHE=hcmab-lru.";
        pmi_store: StoreKind = "shared", "SHMEM_PMI_STORE",
            "shared, rwlock, 2n or message", choices::store,
            "How the PEs of a node get the keys that PMI's fences have made visible: from shared memory \
             without a lock (shared), with one lock for all (rwlock), with two locks per PE (2n), or from \
             the launch agent. The locks are there to compare with.";
        pmi_store_size: Option<u64> = "auto", "SHMEM_PMI_STORE_SIZE",
            "auto, or bytes as for SHMEM_SYMMETRIC_SIZE, up to 16g", choices::store_size,
            "Room for these keys and values on each node, used as needed; auto is 16m and 64k per PE of the \
             job. What does not fit is got from the launch agent.";
        soft_netns: Option<String> = "none", "SHMEM_SOFT_NETNS",
            "none, or a path such as /run/netns/node", soft::netns,
            "Network namespaces of the nodes: node i enters the one at this path with i appended.";
        soft_faults: Faults = "none", "SHMEM_SOFT_FAULTS",
            "none, or a list such as drop=1%,duplicate=0.5%,reorder=1%,seed=7,silent", soft::faults,
            "For tests: faults that the software HCA's sockets inject into what they send; silent: it does \
             not tell of what peers write, as RDMA devices do not.";
    }
}
