//! The command line: exactly what was typed, nothing looked up or decided.
//!
//! Long options of mpiexec that are written with a single dash (`-np`, `-ppn`, `-wdir`) are
//! rewritten before clap sees them, and only in front of the program: what follows the program
//! belongs to it.
//!
//! Where an option belongs: [`Inherited`] if it holds for the jobs that PEs spawn, too, else [`Cli`].

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

use clap::builder::{PossibleValue, PossibleValuesParser, TypedValueParser};
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser};
use shmem_node::settings::Spawn;

/// `--spawn`: the values of the setting.
fn spawn() -> impl TypedValueParser<Value = Spawn> {
    let help = |how| match how {
        Spawn::Auto => "From a template where the program can be one, else by exec",
        Spawn::Template => "From a template; refused for programs that cannot be one",
        Spawn::Exec => "One exec per PE",
    };
    let words = Spawn::WORDS.map(|(word, how)| PossibleValue::new(word).help(help(how)));
    PossibleValuesParser::new(words).map(|typed| {
        let found = Spawn::WORDS.into_iter().find(|(word, _)| *word == typed);
        found.map_or(Spawn::Auto, |(_, how)| how)
    })
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
    #[arg(short = 'n', visible_alias = "np", long = "pes", value_name = "N", help_heading = WHERE)]
    pub pes: Option<u32>,

    /// Those that hold for spawned jobs, too.
    #[command(flatten)]
    pub inherited: Inherited,

    /// The options among [`Inherited`] that were typed, each as one word.
    #[arg(skip)]
    pub spawn_options: Vec<OsString>,

    /// Who gets standard input: the PE of a rank, all (each of them all of it, as fast as the slowest
    /// takes it), or none, so that shmrun leaves it alone. Other PEs find it empty
    #[arg(long, value_name = "RANK|all|none", default_value = "0", help_heading = PROGRAM)]
    pub stdin: StdinTo,

    /// Working directory of the PEs
    #[arg(long, visible_alias = "wdir", value_name = "DIR", help_heading = PROGRAM)]
    pub chdir: Option<OsString>,

    /// End the job after so many seconds
    #[arg(
        long, value_name = "SECONDS", help_heading = PROGRAM,
        value_parser = clap::value_parser!(u64).range(1..=1_000_000_000)
    )]
    pub timeout: Option<u64>,

    /// Start processes that die again, with the same rank, at most N times in all. For programs that use PMI
    /// and are no OpenSHMEM programs. The new process finds PMI_RESPAWNED set, empty standard input,
    /// and collective operations of PMI where the old one left them; its memory is lost
    #[arg(long, value_name = "N", help_heading = PROGRAM)]
    pub respawn: Option<u32>,

    /// Write times of the start and figures of the PEs to a file; - is standard output
    #[arg(long, value_name = "FILE", help_heading = TELL)]
    pub report: Option<OsString>,

    /// The same as JSON
    #[arg(long, value_name = "FILE", help_heading = TELL)]
    pub report_json: Option<OsString>,

    /// Show where the PEs would run, check memory and limits, and start nothing
    #[arg(long, help_heading = TELL)]
    pub dry_run: bool,

    /// Tell what is being done
    #[arg(short, long, help_heading = TELL)]
    pub verbose: bool,

    /// Show all settings (environment variables) with their values
    #[arg(long, exclusive = true, help_heading = TELL)]
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
        trailing_var_arg = true,
        required_unless_present_any = ["settings", "agent", "spawned"]
    )]
    pub command: Vec<OsString>,
}

/// Headings of the help text.
const WHERE: &str = "Number and place of PEs";
const PROGRAM: &str = "The program and its surroundings";
const TELL: &str = "What shmrun tells";

/// Options that hold for the jobs, too, that PEs of this one spawn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Inherited {
    /// Number of nodes; on one machine they are emulated and share nothing but the network
    #[arg(short = 'N', long, value_name = "K", help_heading = WHERE)]
    pub nodes: Option<u32>,

    /// Most PEs on a node
    #[arg(long, value_name = "P", help_heading = WHERE)]
    pub ppn: Option<u32>,

    /// Hosts to run on, a node on each: names with commas between them, perhaps with :SLOTS, the most
    /// PEs of a host; naming a host again adds to them. Without slots PEs are spread evenly. This
    /// machine, as the first host, needs no remote shell
    #[arg(
        short = 'H', long, value_name = "LIST", help_heading = WHERE,
        visible_alias = "host", conflicts_with_all = ["nodes", "hostfile"]
    )]
    pub hosts: Option<String>,

    /// File that names the hosts, one on each line: HOST, HOST:SLOTS or HOST slots=N. Lines of the same
    /// host add up, each without a number being one slot, so that lists of batch systems can be used
    #[arg(
        long, value_name = "FILE", help_heading = WHERE,
        visible_alias = "machinefile", conflicts_with = "nodes"
    )]
    pub hostfile: Option<OsString>,

    /// Children of an agent in the launch tree, from 2 to 128 [default: SHMEM_TREE_DEGREE]
    #[arg(
        long, value_name = "K", help_heading = WHERE,
        value_parser = clap::value_parser!(u32).range(2..=128)
    )]
    pub tree_degree: Option<u32>,

    /// Remote shell, called as CMD HOST COMMAND-LINE [default: SHMEM_RSH]
    #[arg(long, value_name = "CMD", help_heading = WHERE)]
    pub rsh: Option<String>,

    /// shmrun on other hosts: a path, or a name that is in PATH there [default: the path of this one]
    #[arg(long, value_name = "PATH", help_heading = WHERE)]
    pub remote_shmrun: Option<OsString>,

    /// How PEs are started [default: SHMEM_SPAWN]
    #[arg(long, value_name = "HOW", help_heading = PROGRAM, value_parser = spawn())]
    pub spawn: Option<Spawn>,

    /// Set a variable for the PEs, or pass on that of shmrun
    #[arg(short = 'x', long, value_name = "NAME[=VALUE]", help_heading = PROGRAM)]
    pub env: Vec<OsString>,

    /// Put the rank in brackets in front of every line of output
    #[arg(short = 'l', long, help_heading = TELL)]
    pub label: bool,
}

/// Whether the value of an option is the next argument.
fn takes_next(command: &Command, arg: &[u8]) -> bool {
    let named = |is: &dyn Fn(&clap::Arg) -> bool| {
        let arg = command.get_arguments().find(|a| is(a));
        arg.map(|a| a.get_action().takes_values())
    };
    if let Some(long) = arg.strip_prefix(b"--") {
        let is = |a: &clap::Arg| {
            let names = a.get_long_and_visible_aliases().unwrap_or_default();
            names.iter().any(|name| name.as_bytes() == long)
        };
        return named(&is) == Some(true);
    }
    // The first of several short ones that takes a value takes the rest.
    let shorts = &arg[1..];
    let is_that = |of: u8| named(&|a: &clap::Arg| a.get_short() == Some(of.into()));
    let at = shorts.iter().position(|&of| is_that(of) == Some(true));
    at.is_some_and(|at| at + 1 == shorts.len())
}

/// Rewrites mpiexec's single-dash long options in front of the program: what follows it is its own.
fn normalise(command: &Command, args: impl IntoIterator<Item = OsString>) -> Vec<OsString> {
    let mut args = args.into_iter();
    let mut out: Vec<OsString> = args.next().into_iter().collect();
    while let Some(arg) = args.next() {
        let arg = match arg.as_bytes() {
            b"-np" | b"-ppn" | b"-wdir" | b"-env" | b"-hosts" | b"-host" | b"-hostfile"
            | b"-machinefile" | b"-stdin" | b"-timeout" => {
                [OsStr::new("-"), &arg].into_iter().collect()
            }
            _ => arg,
        };
        let bytes = arg.as_bytes();
        let is_option = bytes.len() > 1 && bytes[0] == b'-' && bytes != b"--";
        let takes_next = is_option && takes_next(command, bytes);
        out.push(arg);
        if !is_option {
            out.extend(args);
            break;
        }
        if takes_next {
            out.extend(args.next());
        }
    }
    out
}

/// The options among [`Inherited`] that were typed, as another launcher takes them.
fn typed_of_inherited(matches: &clap::ArgMatches) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    for arg in Inherited::augment_args(Command::new("")).get_arguments() {
        let typed = matches.value_source(arg.get_id().as_str());
        let (Some(long), Some(clap::parser::ValueSource::CommandLine)) = (arg.get_long(), typed)
        else {
            continue;
        };
        if !arg.get_action().takes_values() {
            out.push(format!("--{long}").into());
            continue;
        }
        for value in matches.get_raw(arg.get_id().as_str()).into_iter().flatten() {
            let mut word = OsString::from(format!("--{long}="));
            word.push(value);
            out.push(word);
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
        let mut command = Self::command();
        let args = normalise(&command, args);
        let matches = command.try_get_matches_from_mut(args)?;
        let cli = Self::from_arg_matches(&matches).map_err(|e| e.format(&mut command))?;
        Ok(Self {
            spawn_options: typed_of_inherited(&matches),
            ..cli
        })
    }

    /// The value that `--env` gives a variable; the last one counts.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        self.inherited.env.iter().rev().find_map(|item| {
            let item = item.to_string_lossy();
            let (given, value) = item.split_once('=')?;
            (given == name).then(|| value.to_owned())
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Cli, clap::Error> {
        Cli::parse_args(line.split_whitespace().map(OsString::from))
    }

    #[test]
    fn the_definition_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn mpiexec_spellings_work() {
        let c = parse("shmrun -np 4 -ppn 2 -wdir /tmp -x A=b -x C -l ./prog -np 9 --help").unwrap();
        assert_eq!(c.given("A"), Some("b".to_owned()));
        assert_eq!((c.given("C"), c.given("b")), (None, None));
        assert_eq!(
            (c.pes, c.inherited.ppn, c.inherited.label),
            (Some(4), Some(2), true)
        );
        assert_eq!(c.chdir, Some("/tmp".into()));
        assert_eq!(c.inherited.env, ["A=b", "C"]);
        assert_eq!(c.command, ["./prog", "-np", "9", "--help"]);
    }

    #[test]
    fn hosts_are_a_list_or_a_file() {
        let c = parse("shmrun -H a,b:2 --rsh x --remote-shmrun /y ./prog -H c").unwrap();
        assert_eq!(c.inherited.hosts.as_deref(), Some("a,b:2"));
        assert_eq!(c.command, ["./prog", "-H", "c"]);
        let c = parse("shmrun -hostfile f ./prog").unwrap();
        assert_eq!(c.inherited.hostfile, Some("f".into()));
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
        assert!(!c.inherited.label && c.report.is_none() && c.inherited.env.is_empty());
        assert_eq!(c.command, ["prog", "-l", "-x", "--", "--report", "-"]);
    }

    #[test]
    fn the_program_begins_where_options_end() {
        for (line, command) in [
            ("shmrun ./prog --help", "./prog --help"),
            ("shmrun -np 2 -x A=b ./prog -n 3", "./prog -n 3"),
            ("shmrun -lx A=b ./prog -np 3", "./prog -np 3"),
            ("shmrun -xA=b --stdin none - -- x", "- -- x"),
            ("shmrun --np=2 -- ./prog -- -x", "./prog -- -x"),
            ("shmrun -l --env A -ppn 1 -host a,b echo --np", "echo --np"),
            ("shmrun --timeout 5 -wdir /tmp prog -wdir", "prog -wdir"),
        ] {
            let c = parse(line).unwrap();
            assert_eq!(c.command.join(OsStr::new(" ")), *command, "{line}");
        }
    }

    #[test]
    fn what_spawned_jobs_inherit_is_passed_on_as_it_was_typed() {
        let c = parse("shmrun -np 4 -N 2 -l -x A=b -x C --timeout 9 --spawn exec prog x").unwrap();
        let want = [
            "--nodes=2",
            "--spawn=exec",
            "--env=A=b",
            "--env=C",
            "--label",
        ];
        assert_eq!(c.spawn_options, want);
        assert!(parse("shmrun prog").unwrap().spawn_options.is_empty());
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
