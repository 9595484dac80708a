//! The command line: exactly what was typed, nothing looked up or decided.
//!
//! Long options of mpiexec that are written with a single dash (`-np`, `-ppn`, `-wdir`) are
//! rewritten before clap sees them, and only in front of the program: what follows the program
//! belongs to it.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::{Parser, ValueEnum};

/// `--spawn`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum SpawnChoice {
    /// From a template where the program can be one, else by exec.
    Auto,
    /// From a template; refused for programs that cannot be one.
    Template,
    /// One exec per PE.
    Exec,
}

/// `--stdin`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StdinTo {
    /// The PE of this rank.
    Rank(u32),
    /// Every PE, each of them all of it.
    All,
    /// No PE.
    None,
}

impl std::str::FromStr for StdinTo {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "all" => Ok(Self::All),
            "none" => Ok(Self::None),
            rank => rank
                .parse()
                .map(Self::Rank)
                .map_err(|_| "expected the rank of a PE, all, or none".to_owned()),
        }
    }
}

/// Start an OpenSHMEM program.
///
/// N processing elements (PEs) of PROGRAM are started through a tree of launch agents, one per
/// node. The output of all PEs appears line by line, standard input goes to PE 0 (--stdin), and when a
/// PE fails the whole job is ended. `shmrun --settings` lists the environment variables.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "shmrun",
    version,
    max_term_width = 100,
    override_usage = "shmrun [OPTIONS] PROGRAM [ARGS]...",
    after_help = "Exit status: 0 if every PE exited with 0; else that of the first PE that failed (128 + \
                  signal if it was killed); 123 output or input lost (full disk), 124 time limit, 125 \
                  launcher failure, 126 program not executable, 127 program not found, 130 Ctrl-C, 141 \
                  nobody reads the output, 143 SIGTERM.\n\n\
                  Signals: Ctrl-C ends the job, a second one kills it; Ctrl-Z stops all PEs, fg or bg \
                  continues them; SIGUSR1 and SIGUSR2 are passed on to all PEs once they run; what is \
                  ignored at the start (nohup) stays ignored, by the PEs, too."
)]
pub struct Cli {
    /// Number of PEs
    #[arg(short = 'n', visible_alias = "np", long = "pes", value_name = "N")]
    pub pes: Option<u32>,

    /// Number of nodes; on one machine they are emulated and share nothing but the network
    #[arg(short = 'N', long, value_name = "K")]
    pub nodes: Option<u32>,

    /// Most PEs on a node
    #[arg(long, value_name = "P")]
    pub ppn: Option<u32>,

    /// Hosts to run on, a node on each: names with commas between them, perhaps with :SLOTS, the most
    /// PEs of a host; naming a host again adds to them. Without slots PEs are spread evenly. This
    /// machine, as the first host, needs no remote shell
    #[arg(short = 'H', long, value_name = "LIST", conflicts_with_all = ["nodes", "hostfile"])]
    pub hosts: Option<String>,

    /// File that names the hosts, one on each line: HOST, HOST:SLOTS or HOST slots=N. Lines of the same
    /// host add up, each without a number being one slot, so that lists of batch systems can be used
    #[arg(
        long,
        visible_alias = "machinefile",
        value_name = "FILE",
        conflicts_with = "nodes"
    )]
    pub hostfile: Option<OsString>,

    /// Remote shell, called as CMD HOST COMMAND-LINE [default: SHMEM_RSH]
    #[arg(long, value_name = "CMD")]
    pub rsh: Option<String>,

    /// shmrun on other hosts: a path, or a name that is in PATH there [default: the path of this one]
    #[arg(long, value_name = "PATH")]
    pub remote_shmrun: Option<OsString>,

    /// How PEs are started [default: SHMEM_SPAWN]
    #[arg(long, value_enum, value_name = "HOW")]
    pub spawn: Option<SpawnChoice>,

    /// Put the rank in brackets in front of every line of output
    #[arg(short = 'l', long)]
    pub label: bool,

    /// Who gets standard input: the PE of a rank, all (each of them all of it, as fast as the slowest
    /// takes it), or none, so that shmrun leaves it alone. Other PEs find it empty
    #[arg(long, value_name = "RANK|all|none", default_value = "0")]
    pub stdin: StdinTo,

    /// Children of an agent in the launch tree, from 2 to 128 [default: SHMEM_TREE_DEGREE]
    #[arg(long, value_name = "K", value_parser = clap::value_parser!(u32).range(2..=128))]
    pub tree_degree: Option<u32>,

    /// Set a variable for the PEs, or pass on that of shmrun
    #[arg(short = 'x', long, value_name = "NAME[=VALUE]")]
    pub env: Vec<OsString>,

    /// Working directory of the PEs
    #[arg(long, visible_alias = "wdir", value_name = "DIR")]
    pub chdir: Option<OsString>,

    /// End the job after so many seconds
    #[arg(long, value_name = "SECONDS", value_parser = clap::value_parser!(u64).range(1..=1_000_000_000))]
    pub timeout: Option<u64>,

    /// Start processes that die again, with the same rank, at most N times in all. For programs that use PMI
    /// and are no OpenSHMEM programs. The new process finds PMI_RESPAWNED set, empty standard input,
    /// and collective operations of PMI where the old one left them; its memory is lost
    #[arg(long, value_name = "N")]
    pub respawn: Option<u32>,

    /// Write times of the start and figures of the PEs to a file; - is standard output
    #[arg(long, value_name = "FILE")]
    pub report: Option<OsString>,

    /// The same as JSON
    #[arg(long, value_name = "FILE")]
    pub report_json: Option<OsString>,

    /// Show where the PEs would run, check memory and limits, and start nothing
    #[arg(long)]
    pub dry_run: bool,

    /// Tell what is being done
    #[arg(short, long)]
    pub verbose: bool,

    /// Show all settings (environment variables) with their values
    #[arg(long, exclusive = true)]
    pub settings: bool,

    /// Be the launch agent of this host: shmrun calls itself so through the remote shell
    #[arg(long, exclusive = true, hide = true)]
    pub agent: bool,

    /// Be the launcher of a job that a PE has spawned: shmrun calls itself so
    #[arg(long, hide = true, conflicts_with = "command")]
    pub spawned: bool,

    /// Program and its arguments
    #[arg(
        value_names = ["PROGRAM", "ARGS"],
        required_unless_present_any = ["settings", "agent", "spawned"]
    )]
    pub command: Vec<OsString>,
}

/// Options that take a value in the next argument: needed to find the program.
const WITH_VALUE: &[&str] = &[
    "-n",
    "-N",
    "-H",
    "-x",
    "--pes",
    "--np",
    "--nodes",
    "--ppn",
    "--hosts",
    "--hostfile",
    "--machinefile",
    "--rsh",
    "--remote-shmrun",
    "--spawn",
    "--stdin",
    "--tree-degree",
    "--env",
    "--chdir",
    "--wdir",
    "--timeout",
    "--respawn",
    "--report",
    "--report-json",
];

/// Rewrites mpiexec's single-dash long options and puts `--` in front of the program.
fn normalise(args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    while let Some(arg) = args.next() {
        let arg = match arg.as_bytes() {
            b"-np" => "-n".into(),
            b"-ppn" => "--ppn".into(),
            b"-wdir" => "--chdir".into(),
            b"-env" => "--env".into(),
            b"-hosts" | b"-host" | b"--host" => "--hosts".into(),
            b"-hostfile" => "--hostfile".into(),
            b"-machinefile" => "--machinefile".into(),
            b"-stdin" => "--stdin".into(),
            b"-timeout" => "--timeout".into(),
            _ => arg,
        };
        let is_option = arg.len() > 1 && arg.as_bytes()[0] == b'-' && arg != OsStr::new("--");
        if !is_option {
            let program = if arg == OsStr::new("--") {
                None
            } else {
                Some(arg)
            };
            out.push("--".into());
            out.extend(program);
            out.extend(args);
            break;
        }
        let takes_value = arg.to_str().is_some_and(|a| WITH_VALUE.contains(&a));
        out.push(arg);
        if takes_value {
            out.extend(args.next());
        }
    }
    out
}

impl Cli {
    /// Parses a command line, `args[0]` being the name of this program.
    ///
    /// # Errors
    /// clap's: what is wrong, or a request for help or the version.
    pub fn parse_args(args: impl IntoIterator<Item = OsString>) -> Result<Self, clap::Error> {
        Self::try_parse_from(normalise(args))
    }

    /// The value that `--env` gives a variable; the last one counts.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        self.env.iter().rev().find_map(|item| {
            let item = item.to_string_lossy();
            let (given, value) = item.split_once('=')?;
            (given == name).then(|| value.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::CommandFactory;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::parse_args(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
        // `normalise` must know every option that takes a value.
        for arg in Cli::command()
            .get_arguments()
            .filter(|a| !a.is_positional())
        {
            if arg.get_action().takes_values() {
                if let Some(long) = arg.get_long() {
                    assert!(
                        WITH_VALUE.contains(&format!("--{long}").as_str()),
                        "--{long}"
                    );
                }
                if let Some(short) = arg.get_short() {
                    assert!(
                        WITH_VALUE.contains(&format!("-{short}").as_str()),
                        "-{short}"
                    );
                }
            }
        }
    }

    #[test]
    fn mpiexec_spellings_work() {
        let c = parse("shmrun -np 4 -ppn 2 -wdir /tmp -x A=b -x C -l ./prog -np 9 --help").unwrap();
        assert_eq!(c.given("A"), Some("b".to_owned()));
        assert_eq!((c.given("C"), c.given("b")), (None, None));
        assert_eq!((c.pes, c.ppn, c.label), (Some(4), Some(2), true));
        assert_eq!(c.chdir, Some("/tmp".into()));
        assert_eq!(c.env, ["A=b", "C"]);
        assert_eq!(c.command, ["./prog", "-np", "9", "--help"]);
    }

    #[test]
    fn hosts_are_a_list_or_a_file() {
        let c = parse("shmrun -H a,b:2 --rsh x --remote-shmrun /y ./prog -H c").unwrap();
        assert_eq!(c.hosts.as_deref(), Some("a,b:2"));
        assert_eq!(c.command, ["./prog", "-H", "c"]);
        let c = parse("shmrun -hostfile f ./prog").unwrap();
        assert_eq!(c.hostfile, Some("f".into()));
        assert!(parse("shmrun --agent").unwrap().agent);
        for line in [
            "shmrun --hosts a --nodes 2 p",
            "shmrun --hosts a --hostfile f p",
            "shmrun --agent p",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn other_spellings_work() {
        for line in [
            "shmrun -n 4 a",
            "shmrun -n4 a",
            "shmrun --np 4 a",
            "shmrun --pes=4 a",
            "shmrun --np=4 a",
        ] {
            let c = parse(line).unwrap();
            assert_eq!((c.pes, c.command), (Some(4), vec!["a".into()]), "{line}");
        }
        assert_eq!(parse("shmrun -- -odd x").unwrap().command, ["-odd", "x"]);
    }

    #[test]
    fn options_of_the_program_are_its_own() {
        let c = parse("shmrun -n 2 prog -l -x -- --report -").unwrap();
        assert!(!c.label && c.report.is_none() && c.env.is_empty());
        assert_eq!(c.command, ["prog", "-l", "-x", "--", "--report", "-"]);
    }

    #[test]
    fn nonsense_is_refused() {
        for line in [
            "shmrun",
            "shmrun -n x a",
            "shmrun -n -1 a",
            "shmrun --tree-degree 1 a",
            "shmrun --timeout 0 a",
            "shmrun --no-such a",
            "shmrun -n",
            "shmrun --settings a",
        ] {
            assert!(parse(line).is_err(), "{line}");
        }
        assert!(parse("shmrun --settings").unwrap().settings);
        assert_eq!(
            parse("shmrun --report - --report-json f a").unwrap().report,
            Some("-".into())
        );
    }
}
