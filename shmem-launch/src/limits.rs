//! Limits of the kernel that a large job meets: processes and descriptors.
//!
//! Descriptors are an agent's own matter. Before it starts its node it raises the soft limit, and the hard limit where it
//! may, to what its PEs need. It forks child agents before that, and programs are executed with the limits of before. Processes and
//! threads are counted as the kernel counts them: for the whole machine, for the control group, and for a user. A job that
//! would run into a limit is refused, with the command that raises it.

use crate::exit::LAUNCHER;
use crate::sys;

/// PEs in one request to a template, and requests that may be unanswered: one being served, one to
/// follow.
const MOST_PES: u32 = shmem_node::template::message::MAX_BATCH as u32;
const MOST_REQUESTS: u32 = 2;

/// Descriptors that go to the template for a PE: two streams and a PMI socket. If only one PE has an
/// input, too, the room that is left free is for that.
const SENT_PER_PE: u32 = 3;

/// Descriptors of an agent beside those of PEs and children: its own link, epoll, signals, segment,
/// template, standard streams, and those on their way to the template.
const OWN_DESCRIPTORS: u64 = 32 + (SENT_PER_PE * MOST_REQUESTS * MOST_PES) as u64;

/// Descriptors of a process that starts PEs, beside those of PEs: standard streams, those that PEs inherit, and some that
/// libraries of a program may have open.
const OF_STARTER: u64 = 3 + 6 + 8;

/// How many PEs an agent asks its template for at a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SpawnQuota {
    /// PEs in one request.
    pub pes: u32,
    /// Requests that may be unanswered.
    pub requests: u32,
}

impl SpawnQuota {
    /// As much as is of use.
    pub const FULL: Self = Self {
        pes: MOST_PES,
        requests: MOST_REQUESTS,
    };

    /// The quota of each of `agents` agents on a machine, where a process may have `limit`
    /// descriptors open, for a node of which `inputs` PEs get standard input. Programs, among them the process that
    /// starts PEs, may have `of_programs` open: it takes those of a request at once.
    ///
    /// Descriptors that were sent over a Unix socket and not yet received are counted for the user,
    /// and the kernel sends no more when those of all processes are more than the sender may have
    /// open. Half of that is for others: together the agents take no more, unless one PE at a time
    /// for each is too much already. What the kernel refuses then is sent later.
    pub fn of(limit: u64, agents: u32, inputs: u32, of_programs: u64) -> Self {
        let share = limit / 2 / u64::from(agents.max(1));
        let sent = SENT_PER_PE + u32::from(inputs > 1);
        let pes = |requests| share / u64::from(sent * requests);
        let requests = if pes(MOST_REQUESTS) > 0 {
            MOST_REQUESTS
        } else {
            1
        };
        let taken = of_programs.saturating_sub(OF_STARTER) / u64::from(sent);
        Self {
            pes: pes(requests).min(taken).clamp(1, MOST_PES.into()) as u32,
            requests,
        }
    }

    /// The limit of descriptors at which each of so many agents has a full quota.
    pub fn limit_for_full(agents: u32) -> u64 {
        2 * u64::from(SENT_PER_PE * MOST_REQUESTS * MOST_PES) * u64::from(agents)
    }
}

/// Tasks that are kept for other programs of the machine, without which nobody could log in.
const SPARE: u64 = 64;

/// Descriptors that an agent needs: its own, those of its `children` and of the `inputs` PEs that get standard
/// input, the PEs' ends of these on their way, and two output pipes and a PMI socket for each PE.
pub fn descriptors(n_local: u32, children: u32, inputs: u32) -> u64 {
    let sent = match inputs {
        0 | 1 => 0,
        _ => MOST_REQUESTS * MOST_PES,
    };
    OWN_DESCRIPTORS
        + 3 * u64::from(n_local)
        + [children, inputs, sent].map(u64::from).iter().sum::<u64>()
}

/// A limit that the job would run into.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum LimitError {
    /// Too few processes or threads.
    #[error(
        "the job needs {need} processes and threads beside the {used} that exist{}, but {name} is {limit}; {advice}",
        kept(*spare)
    )]
    Tasks {
        /// What the job needs.
        need: u64,
        /// What exists.
        used: u64,
        /// What is kept for other programs.
        spare: u64,
        /// The limit's name.
        name: &'static str,
        /// Its value.
        limit: u64,
        /// What to do.
        advice: String,
    },
    /// Too few descriptors.
    #[error(
        "the launch agent of a node with {pes} PEs needs {need} descriptors, but the limit (ulimit -Hn) is \
         {limit}; raise it{}", fewer(*most)
    )]
    Descriptors {
        /// PEs of the fullest node.
        pes: u32,
        /// What its agent needs.
        need: u64,
        /// What it may have.
        limit: u64,
        /// PEs of a node for which that is enough.
        most: u32,
    },
}

/// What others are to have.
fn kept(spare: u64) -> String {
    match spare {
        0 => String::new(),
        spare => format!(" and {spare} that are kept for other programs"),
    }
}

/// What else helps.
fn fewer(most: u32) -> String {
    match most {
        0 => String::new(),
        most => format!(", or have at most {most} PEs on a node (--ppn {most}, or more --nodes)"),
    }
}

impl LimitError {
    /// For an agent of so many PEs that may have no more than `limit` descriptors, if that is too few.
    ///
    /// # Errors
    /// That it is.
    pub fn of_agent(pes: u32, children: u32, inputs: u32, limit: u64) -> Result<(), Self> {
        let need = descriptors(pes, children, inputs);
        if need <= limit {
            return Ok(());
        }
        // Either one has input, or all of them.
        let fits = |n: &u32| {
            let inputs = if inputs > 1 { *n } else { inputs };
            descriptors(*n, children, inputs) <= limit
        };
        let (mut most, mut step) = (0, pes.next_power_of_two());
        while step > 0 {
            most += Some(step).filter(|step| fits(&(most + step))).unwrap_or(0);
            step /= 2;
        }
        Err(Self::Descriptors {
            pes,
            need,
            limit,
            most,
        })
    }

    /// The exit status of `shmrun`.
    pub fn status(&self) -> u8 {
        LAUNCHER
    }
}

/// What the machine allows; `None` where it sets no limit or does not tell.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowed {
    /// Tasks (processes and threads) that exist.
    pub tasks: u64,
    /// kernel.pid_max.
    pub pid_max: Option<u64>,
    /// kernel.threads-max.
    pub threads_max: Option<u64>,
    /// Limit of the control group, and tasks in it.
    pub group: Option<(u64, u64)>,
    /// RLIMIT_NPROC, if it binds this user, and the tasks that the user has, at most.
    pub nproc: Option<(u64, u64)>,
    /// Most descriptors that a process of this user can get.
    pub descriptors: Option<u64>,
}

/// What a job starts on a machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Demand {
    /// PEs.
    pub pes: u32,
    /// Nodes.
    pub nodes: u32,
    /// PEs of the fullest node.
    pub max_per_node: u32,
    /// Child agents of a node at most.
    pub children: u32,
    /// PEs of a node that get standard input at most.
    pub inputs: u32,
    /// Whether the job has other nodes, here or elsewhere.
    pub several: bool,
    /// Whether nodes have a PMIx server.
    pub pmix: bool,
    /// Remote shells to other hosts.
    pub shells: u32,
    /// Threads of the launcher that are to run on this machine.
    pub launcher: u32,
}

/// Threads of a launcher, whose input may go to nobody: two that write output, and one that reads input.
pub fn launcher_threads(reads: bool) -> u32 {
    2 + u32::from(reads)
}

/// Threads of a node's PMIx server: two of its own, libpmix's, and the one that sees to its end.
const SERVER_THREADS: u64 = 4;

impl Demand {
    /// Tasks that do not exist yet: a PE has a progress thread if the job has several nodes, and libpmix's where
    /// that is served; a node has an agent, a guard and a template.
    pub fn tasks(&self) -> u64 {
        let per_pe = 1 + u64::from(self.several) + u64::from(self.pmix);
        let per_node = 3 + if self.pmix { SERVER_THREADS } else { 0 };
        let beside = u64::from(self.launcher) + u64::from(self.shells);
        u64::from(self.pes) * per_pe + per_node * u64::from(self.nodes) + beside
    }
}

/// Compares the job with the limits.
///
/// # Errors
/// The first limit that is too low.
pub fn check(demand: &Demand, allowed: &Allowed) -> Result<(), LimitError> {
    let need = demand.tasks();
    let test = |name, limit: Option<u64>, used: u64, spare: u64, advice: &dyn Fn(u64) -> String| {
        let all = used.saturating_add(need);
        match limit {
            Some(limit) if all.saturating_add(spare) > limit => Err(LimitError::Tasks {
                need,
                used,
                spare,
                name,
                limit,
                // Programs start processes, too.
                advice: advice(all.saturating_add(SPARE).next_power_of_two()),
            }),
            _ => Ok(()),
        }
    };
    let (exist, pid_max, threads_max) = (allowed.tasks, allowed.pid_max, allowed.threads_max);
    test("kernel.pid_max", pid_max, exist, SPARE, &|n| {
        format!("raise it with: sysctl -w kernel.pid_max={n}")
    })?;
    test("kernel.threads-max", threads_max, exist, SPARE, &|n| {
        format!("raise it with: sysctl -w kernel.threads-max={n}")
    })?;
    // What follows is for this job's user alone, and may be all for this job.
    if let Some((limit, used)) = allowed.group {
        test("the control group's pids.max", Some(limit), used, 0, &|n| {
            format!("raise it to {n} or more")
        })?;
    }
    if let Some((limit, used)) = allowed.nproc {
        let name = "this user's process limit (ulimit -u)";
        test(name, Some(limit), used, 0, &|n| {
            format!("raise it with: ulimit -u {n}")
        })?;
    }
    let Demand {
        max_per_node,
        children,
        inputs,
        ..
    } = *demand;
    let limit = allowed.descriptors.unwrap_or(u64::MAX);
    LimitError::of_agent(max_per_node, children, inputs, limit)
}

/// What this machine allows this user, who wants `need` more tasks, and whose limit of processes is
/// raised as far as that goes.
pub fn read(need: u64) -> Allowed {
    let number =
        |path: &str| -> Option<u64> { std::fs::read_to_string(path).ok()?.trim().parse().ok() };
    let tasks = std::fs::read_to_string("/proc/loadavg")
        .ok()
        .and_then(|t| parse_loadavg(&t))
        .unwrap_or(0);
    // Counting them takes a look at every process, so it is done only where it matters.
    let own = |limit: u64| match tasks + need > limit {
        true => tasks_of(sys::user()),
        false => tasks,
    };
    let mut group: Option<(u64, u64)> = None;
    let groups = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    for line in groups.lines() {
        let Some((_, rest)) = line.split_once(':') else {
            continue;
        };
        let Some((kinds, path)) = rest.split_once(':') else {
            continue;
        };
        let root = match kinds {
            "" => "/sys/fs/cgroup",
            k if k.split(',').any(|k| k == "pids") => "/sys/fs/cgroup/pids",
            _ => continue,
        };
        for dir in std::path::Path::new(path.trim_start_matches('/')).ancestors() {
            let at = |file: &str| format!("{root}/{}/{file}", dir.display());
            if let (Some(max), Some(now)) = (number(&at("pids.max")), number(&at("pids.current")))
                && group.is_none_or(|(m, n)| max.saturating_sub(now) < m.saturating_sub(n))
            {
                group = Some((max, now));
            }
        }
    }
    Allowed {
        tasks,
        pid_max: number("/proc/sys/kernel/pid_max"),
        threads_max: number("/proc/sys/kernel/threads-max"),
        group,
        nproc: sys::processes_allowed().map(|limit| (limit, own(limit))),
        descriptors: sys::descriptors_allowed(),
    }
}

/// Tasks of a user, by the real id, as the kernel counts them for RLIMIT_NPROC. Those that cannot be
/// seen (of other containers) are left out: better a late error than a refusal for nothing.
fn tasks_of(user: u32) -> u64 {
    let Ok(all) = std::fs::read_dir("/proc") else {
        return 0;
    };
    let status = |entry: std::fs::DirEntry| {
        let name = entry.file_name();
        let is_process = name.as_encoded_bytes().iter().all(u8::is_ascii_digit);
        is_process.then(|| std::fs::read_to_string(entry.path().join("status")).ok())?
    };
    all.flatten()
        .filter_map(status)
        .filter_map(|text| parse_status(&text))
        .filter(|&(of, _)| of == user)
        .map(|(_, threads)| threads)
        .sum()
}

/// The real user and the threads of a process.
fn parse_status(text: &str) -> Option<(u32, u64)> {
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name))?;
        line.split_whitespace().next()
    };
    let user = number("Uid:")?.parse().ok()?;
    Some((user, number("Threads:")?.parse().ok()?))
}

/// Tasks on the machine: the part after the slash of the fourth field.
fn parse_loadavg(text: &str) -> Option<u64> {
    text.split_whitespace()
        .nth(3)?
        .split_once('/')?
        .1
        .parse()
        .ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn demand(pes: u32, nodes: u32, max_per_node: u32, children: u32) -> Demand {
        Demand {
            pes,
            nodes,
            max_per_node,
            children,
            inputs: 1,
            several: nodes > 1,
            pmix: false,
            shells: 0,
            launcher: 0,
        }
    }

    #[test]
    fn a_job_gets_all_that_its_user_may_have() {
        let job = demand(4, 2, 2, 2);
        let with = Demand {
            launcher: launcher_threads(true),
            shells: 2,
            ..job
        };
        assert_eq!((job.tasks(), with.tasks()), (14, 14 + 3 + 2));
        let group = |limit| Allowed {
            group: Some((limit, 1)),
            ..Allowed::default()
        };
        let nproc = |limit| Allowed {
            nproc: Some((limit, 1)),
            ..Allowed::default()
        };
        for allowed in [group(15), nproc(15)] {
            assert_eq!(check(&job, &allowed), Ok(()));
        }
        for allowed in [group(14), nproc(14)] {
            let said = check(&job, &allowed).unwrap_err().to_string();
            assert!(
                said.starts_with(
                    "the job needs 14 processes and threads beside the 1 that exist, but"
                ),
                "{said}"
            );
        }
        // Other users of the machine are to have something left.
        let machine = Allowed {
            tasks: 1,
            threads_max: Some(14 + 1 + SPARE - 1),
            ..Allowed::default()
        };
        let said = check(&job, &machine).unwrap_err().to_string();
        assert!(
            said.contains("the 1 that exist and 64 that are kept for other programs, but"),
            "{said}"
        );
    }

    #[test]
    fn a_pmix_server_has_threads_and_gives_each_pe_one() {
        let plain = demand(8, 2, 4, 1);
        let served = Demand {
            pmix: true,
            ..plain
        };
        assert_eq!(plain.tasks(), 2 * 8 + 3 * 2);
        assert_eq!(served.tasks(), 3 * 8 + (3 + SERVER_THREADS) * 2);
    }

    #[test]
    fn small_limits_are_named_with_a_remedy() {
        let job = demand(8192, 512, 16, 8);
        let mut allowed = Allowed {
            tasks: 100,
            ..Allowed::default()
        };
        assert_eq!(check(&job, &allowed), Ok(()));
        // The first that is too small is named.
        let mut says = |change: &dyn Fn(&mut Allowed), part: &str| {
            change(&mut allowed);
            let text = check(&job, &allowed).unwrap_err().to_string();
            assert!(text.contains(part), "{text}");
        };
        says(&|a| a.nproc = Some((4096, 10)), "ulimit -u 32768");
        says(&|a| a.group = Some((500, 20)), "pids.max is 500");
        says(&|a| a.threads_max = Some(500), "threads-max");
        says(
            &|a| a.pid_max = Some(10_000),
            "sysctl -w kernel.pid_max=32768",
        );
        says(&|_| (), "17920 processes");
    }

    #[test]
    fn a_users_limit_is_compared_with_the_users_tasks() {
        // Others have many.
        let a = Allowed {
            tasks: 100_000,
            nproc: Some((2000, 500)),
            ..Allowed::default()
        };
        assert_eq!(check(&demand(1000, 1, 1000, 2), &a), Ok(()));
        let mine = Allowed {
            nproc: Some((2000, 1000)),
            ..a
        };
        let t = check(&demand(1000, 1, 1000, 2), &mine)
            .unwrap_err()
            .to_string();
        assert!(t.contains("beside the 1000 that exist"), "{t}");
    }

    #[test]
    fn tasks_are_counted_by_real_user() {
        let text = "Name:\tx\nUid:\t7\t0\t0\t0\nGid:\t1\nThreads:\t3\n";
        assert_eq!(parse_status(text), Some((7, 3)));
        assert_eq!(parse_status("Name:\tx\n"), None);
        assert!(tasks_of(sys::user()) >= 1);
        assert_eq!(tasks_of(u32::MAX - 7), 0);
    }

    #[test]
    fn agents_share_what_may_be_on_its_way() {
        let sent = |p: SpawnQuota| u64::from(p.pes * p.requests * SENT_PER_PE);
        for limit in [256, 1024, 4096, 20_000, 1 << 20] {
            for agents in [1, 2, 8, 64, 512, 5000] {
                let p = SpawnQuota::of(limit, agents, 1, 1 << 20);
                let all = sent(p) * u64::from(agents);
                assert!(all <= limit / 2 || sent(p) == 3, "{limit} {agents} {p:?}");
            }
        }
        assert_eq!(SpawnQuota::of(1024, 1, 1, 1 << 20), SpawnQuota::FULL);
        for (agents, requests) in [(64, 2), (512, 1)] {
            let one = SpawnQuota { pes: 1, requests };
            assert_eq!(SpawnQuota::of(1024, agents, 1, 1 << 20), one);
        }
        // Who takes them may have few.
        for (of_programs, pes) in [(1024, 32), (64, 15), (20, 1), (5, 1)] {
            assert_eq!(SpawnQuota::of(1024, 1, 1, of_programs).pes, pes);
        }
        // With input for all of them, too.
        assert_eq!(SpawnQuota::of(1024, 8, 2, 1 << 20).pes, 8);
        assert_eq!(SpawnQuota::of(1024, 8, 1, 1 << 20).pes, 10);
        for agents in [1, 64, 512] {
            let limit = SpawnQuota::limit_for_full(agents);
            assert_eq!(SpawnQuota::of(limit, agents, 1, 1 << 20), SpawnQuota::FULL);
            assert_ne!(
                SpawnQuota::of(limit - 6 * u64::from(agents), agents, 1, 1 << 20),
                SpawnQuota::FULL
            );
        }
    }

    #[test]
    fn descriptors_are_counted_for_the_fullest_node() {
        let a = Allowed {
            descriptors: Some(1024),
            ..Allowed::default()
        };
        assert_eq!(check(&demand(8192, 512, 16, 8), &a), Ok(()));
        let t = check(&demand(8192, 1, 8192, 2), &a)
            .unwrap_err()
            .to_string();
        assert!(t.contains("24803 descriptors") && t.contains("1024"), "{t}");
        // What is said to help does, and no more than that.
        for (pes, inputs) in [(8192, 1), (300, 300), (5000, 5000)] {
            let Err(LimitError::Descriptors { most, .. }) =
                LimitError::of_agent(pes, 2, inputs, 700)
            else {
                panic!("{pes} PEs on 700 descriptors");
            };
            let fits = |n: u32| LimitError::of_agent(n, 2, if inputs > 1 { n } else { 1 }, 700);
            assert!(
                most > 0 && fits(most).is_ok() && fits(most + 1).is_err(),
                "{most}"
            );
        }
        // With input for all of them, too.
        let few = demand(300, 1, 300, 2);
        let all = Demand { inputs: 300, ..few };
        let a = Allowed {
            descriptors: Some(1200),
            ..a
        };
        assert_eq!(check(&few, &a), Ok(()));
        let need = descriptors(300, 2, 1) + 299 + 64;
        let limit = 1200;
        let told = check(&all, &a).unwrap_err();
        let LimitError::Descriptors {
            need: n, limit: l, ..
        } = told
        else {
            panic!("{told}");
        };
        assert_eq!((n, l), (need, limit));
    }

    #[test]
    fn this_machine_tells() {
        assert_eq!(parse_loadavg("0.1 0.2 0.3 2/345 678"), Some(345));
        assert_eq!(parse_loadavg("x"), None);
        let a = read(1);
        assert!(a.tasks > 0 && a.pid_max.is_some());
    }
}
