//! Names of attributes, as all releases and servers write them.
#![allow(missing_docs, reason = "the standard's names, in its own words")]

// Of the job.
pub const JOB_ID: &str = "pmix.jobid";
pub const JOB_SIZE: &str = "pmix.job.size";
pub const UNIV_SIZE: &str = "pmix.univ.size";
pub const MAX_PROCS: &str = "pmix.max.size";
pub const LOCAL_SIZE: &str = "pmix.local.size";
pub const NODE_SIZE: &str = "pmix.node.size";
pub const NUM_NODES: &str = "pmix.num.nodes";
pub const LOCAL_PEERS: &str = "pmix.lpeers";
pub const LOCAL_LEADER: &str = "pmix.lldr";
pub const NODE_LIST: &str = "pmix.nlist";
pub const NODE_MAP: &str = "pmix.nmap";
pub const PROC_MAP: &str = "pmix.pmap";
/// PMI's `PMI_process_mapping`.
pub const ANL_MAP: &str = "pmix.anlmap";
pub const TMPDIR: &str = "pmix.tmpdir";
pub const NAMESPACE_DIR: &str = "pmix.nsdir";
pub const PROC_DATA: &str = "pmix.pdata";
pub const SPAWNED: &str = "pmix.spawned";
pub const PARENT_ID: &str = "pmix.parent";
pub const RM_NAME: &str = "pmix.rm.name";

// Of a process.
pub const RANK: &str = "pmix.rank";
pub const GLOBAL_RANK: &str = "pmix.grank";
pub const APP_RANK: &str = "pmix.apprank";
pub const APPNUM: &str = "pmix.appnum";
pub const LOCAL_RANK: &str = "pmix.lrank";
pub const NODE_RANK: &str = "pmix.nrank";
pub const NODE_ID: &str = "pmix.nodeid";
pub const HOSTNAME: &str = "pmix.hname";
pub const CPUSET: &str = "pmix.cpuset";
pub const LOCALITY: &str = "pmix.locstr";

// How a call is to be done.
pub const COLLECT_DATA: &str = "pmix.collect";
pub const TIMEOUT: &str = "pmix.timeout";
pub const IMMEDIATE: &str = "pmix.immediate";
pub const OPTIONAL: &str = "pmix.optional";
pub const RANGE: &str = "pmix.range";
pub const PERSISTENCE: &str = "pmix.persist";

/// Where what a process has to say may go.
pub const LOG: [&str; 2] = ["pmix.log.stderr", "pmix.log.stdout"];

// Of a server.
pub const SERVER_TMPDIR: &str = "pmix.srvr.tmpdir";
pub const SYSTEM_TMPDIR: &str = "pmix.sys.tmpdir";
pub const SERVER_NAMESPACE: &str = "pmix.srv.nspace";
pub const SERVER_RANK: &str = "pmix.srv.rank";
pub const SERVER_TOOL_SUPPORT: &str = "pmix.srvr.tool";

/// Variable that each server gives its processes, and by which they know that there is one.
pub const ENV_NAMESPACE: &str = "PMIX_NAMESPACE";
/// Variable with the rank of a process.
pub const ENV_RANK: &str = "PMIX_RANK";
