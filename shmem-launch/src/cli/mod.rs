//! The command line: exactly what was typed, nothing looked up or decided.
//!
//! `words` rewrites the spellings of mpiexec before clap sees them, and finds the programs of a job that has
//! several.
//!
//! Where an option belongs: [`Inherited`] if it holds for the jobs that PEs spawn, too, else [`Cli`]. What may
//! differ between the programs of a job stands in `OF_A_PROGRAM`, too.

mod words;

use std::ffi::OsString;

use clap::error::ErrorKind;
use clap::parser::ValueSource;
use clap::{Args, Command, CommandFactory, FromArgMatches, Parser, ValueHint};

use crate::binding::{BindTo, Level};

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

/// `--export`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Export {
    /// The whole environment.
    All,
    /// Nothing of it.
    None,
    /// These variables.
    Only(Vec<String>),
}

impl std::str::FromStr for Export {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        // Slurm has these in capital letters.
        let is = |name: &str, word: &str| name.eq_ignore_ascii_case(word);
        let names: Vec<_> = text.split(',').collect();
        match names[..] {
            [all] if is(all, "all") => return Ok(Self::All),
            [none] if is(none, "none") => return Ok(Self::None),
            _ => {}
        }
        let wrong = |name: &&&str| {
            name.is_empty() || name.contains('=') || is(name, "all") || is(name, "none")
        };
        match names.iter().find(wrong) {
            Some(name) => Err(format!(
                "'{name}' is no name of a variable to pass on; -x NAME=VALUE sets one"
            )),
            None => Ok(Self::Only(names.into_iter().map(str::to_owned).collect())),
        }
    }
}

/// `--pmix`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, clap::ValueEnum)]
pub enum PmixChoice {
    /// Where the program is linked with Open MPI or libpmix, and not with shmem
    #[default]
    Auto,
    /// Whatever the program is, as far as can be seen
    On,
    /// Never: all programs get PMI
    Off,
}

/// Start an OpenSHMEM program.
///
/// N processing elements (PEs) of PROGRAM are started through a tree of launch agents, one per
/// node; several programs, with a lone : between them, get consecutive ranks. The output of all PEs appears line by line, standard input goes to PE 0 (--stdin), and when a
/// PE fails the whole job is ended. `shmrun --settings` lists the environment variables.
#[derive(Debug, Clone, PartialEq, Eq, Parser)]
#[command(
    name = "shmrun",
    version,
    max_term_width = 100,
    override_usage = "shmrun [OPTIONS] PROGRAM [ARGS]... [: [OPTIONS] PROGRAM [ARGS]...]...",
    after_help = "Exit status: 0 if every PE exited with 0; else that of the first PE that failed (128 + \
                  signal if it was killed); 123 output or input lost (full disk), 124 time limit, 125 \
                  launcher failure, 126 program not executable, 127 program not found, 130 Ctrl-C, 141 \
                  nobody reads the output, 143 SIGTERM.\n\n\
                  Signals: Ctrl-C ends the job, a second one kills it; Ctrl-Z stops all PEs, fg or bg \
                  continues them; SIGUSR1 tells what the PEs wait for (SHMEM_PASS_SIGUSR1); SIGUSR2 is passed on \
                  to all PEs once they run; what is \
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

    /// What runs beside the first program.
    #[arg(skip)]
    pub more: Vec<Segment>,

    /// Take the programs from a file, a line for each with options, program and arguments; -n, --chdir and
    /// --env are those of a line. A # begins a comment, a backslash at its end continues a line
    #[arg(long, value_name = "FILE", help_heading = PROGRAM, value_hint = ValueHint::FilePath)]
    pub configfile: Option<OsString>,

    /// Who gets standard input: the PE of a rank, all (each of them all of it, as fast as the slowest
    /// takes it), or none, so that shmrun leaves it alone. Other PEs find it empty
    #[arg(long, value_name = "RANK|all|none", default_value = "0", help_heading = PROGRAM)]
    pub stdin: StdinTo,

    /// Working directory of the PEs
    #[arg(
        long, visible_alias = "wdir", value_name = "DIR", help_heading = PROGRAM,
        value_hint = ValueHint::DirPath
    )]
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

    /// Go on without PEs that fail, and without nodes that are lost, as long as nobody waits for them: for
    /// programs whose PEs do not need each other. Each is told at once and all in the end, and the
    /// first decides the exit status. The job ends nevertheless if a PE fails between shmem_init and
    /// shmem_finalize, or is missing in an operation of PMI, because the others would wait for ever
    #[arg(long, conflicts_with = "respawn", help_heading = PROGRAM)]
    pub keep_going: bool,

    /// Write times of the start, ends and figures of the PEs to a file; - is standard output. If its name ends in
    /// .json (-.json is standard output), it is JSON with the end, CPU time and memory of each PE; if in .html, a page with pictures:
    /// which PEs talked with each other, in what the time went, what was waited for. May be given several times
    #[arg(long, value_name = "FILE", help_heading = TELL, value_hint = ValueHint::FilePath)]
    pub report: Vec<OsString>,

    /// Write a timeline of the calls of all PEs to a file, to be opened at ui.perfetto.dev; - is standard
    /// output
    #[arg(long, value_name = "FILE", help_heading = TELL, value_hint = ValueHint::FilePath)]
    pub trace: Option<OsString>,

    /// How many of its calls each PE has room to record for --trace and pages, at 40 bytes each: those that follow
    /// are counted. Without it as many as fit into 256 MiB for all PEs, 256 to 1048576
    #[arg(long, value_name = "N", help_heading = TELL, value_parser = clap::value_parser!(u32).range(1..=1 << 22))]
    pub trace_calls: Option<u32>,

    /// Write the output of each PE to files of its own on this machine, DIR/rank.0007.out and .err, instead of
    /// mixing it. Those that an earlier job left there are removed
    #[arg(
        short = 'o', long, value_name = "DIR", help_heading = TELL, conflicts_with = "label",
        visible_alias = "output-filename", value_hint = ValueHint::DirPath
    )]
    pub output: Option<OsString>,

    /// Print neither hints nor, on a terminal, how far a start has come that takes longer than a second
    #[arg(short, long, help_heading = TELL)]
    pub quiet: bool,

    /// Show where the PEs would run, check memory and limits, and start nothing
    #[arg(long, help_heading = TELL)]
    pub dry_run: bool,

    /// Show all settings (environment variables) with their values and where these come from
    #[arg(long, conflicts_with = "command", help_heading = TELL)]
    pub settings: bool,

    /// List this user's jobs on this machine; or, with the number that a job has in that list, tell what its
    /// PEs wait for, as SIGUSR1 to its shmrun does
    #[arg(
        long, value_name = "JOB", num_args = 0..=1, conflicts_with = "command", help_heading = TELL,
    )]
    pub ps: Option<Option<String>>,

    /// Be the launch agent of this host: shmrun calls itself so through the remote shell
    #[arg(long, exclusive = true, hide = true)]
    pub agent: bool,

    /// Be the PMIx server of a node: an agent calls shmrun so
    #[arg(long, exclusive = true, hide = true)]
    pub pmix_server: bool,

    /// Be the launcher of a job that a PE has spawned: shmrun calls itself so
    #[arg(long, hide = true, conflicts_with = "command")]
    pub spawned: bool,

    /// Program and its arguments. A lone : begins the next program with its -n (1), --chdir and --env; other
    /// options belong in front of the first. Behind -- it is an argument as any other
    #[arg(
        value_names = ["PROGRAM", "ARGS"],
        trailing_var_arg = true,
        value_hint = ValueHint::CommandWithArguments,
        required_unless_present_any = ["settings", "agent", "pmix_server", "spawned", "ps"]
    )]
    pub command: Vec<OsString>,
}

/// A program of a job that has several, without the first.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Segment {
    /// As in [`Cli`].
    pub pes: Option<u32>,
    /// As in [`Cli`].
    pub chdir: Option<OsString>,
    /// As in [`Inherited`].
    pub env: Vec<OsString>,
    /// As in [`Cli`].
    pub command: Vec<OsString>,
}

/// What a program of a job has of its own: the options of [`Segment`].
const OF_A_PROGRAM: [&str; 4] = ["pes", "chdir", "env", "command"];

/// The setting that `--heap` stands for.
pub(crate) const HEAP_SIZE: &str = "SHMEM_SYMMETRIC_SIZE";

/// Headings of the help text.
const WHERE: &str = "Number and place of PEs";
const PROGRAM: &str = "The program and its surroundings";
const TELL: &str = "What shmrun tells";

/// Options that hold for the jobs, too, that PEs of this one spawn.
#[derive(Debug, Clone, Default, PartialEq, Eq, Args)]
pub struct Inherited {
    /// Number of nodes: of the allocation's hosts the first K, or, on one machine, emulated nodes that share
    /// nothing but the network
    #[arg(short = 'N', long, value_name = "K", help_heading = WHERE)]
    pub nodes: Option<u32>,

    /// Most PEs on a node
    #[arg(long, value_name = "P", help_heading = WHERE)]
    pub ppn: Option<u32>,

    /// Hosts to run on, a node on each: names with commas between them, perhaps with :SLOTS, the most
    /// PEs of a host; naming a host again adds to them. Without slots PEs are spread evenly. This
    /// machine, as the first host, needs no remote shell [default: those of the batch system's allocation]
    #[arg(
        short = 'H', long, value_name = "LIST", help_heading = WHERE,
        visible_alias = "host", conflicts_with_all = ["nodes", "hostfile"]
    )]
    pub hosts: Option<String>,

    /// File that names the hosts, one on each line: HOST, HOST:SLOTS or HOST slots=N, perhaps with
    /// max_slots=N or user=NAME. Lines of the same host add up, each without a number being one slot, so that
    /// lists of batch systems can be used
    #[arg(
        short = 'f', long, value_name = "FILE", help_heading = WHERE,
        visible_alias = "machinefile", conflicts_with = "nodes", value_hint = ValueHint::FilePath
    )]
    pub hostfile: Option<OsString>,

    /// Bind each PE to processors: none, or a hwthread, core, l3cache, numa (node) or socket, or so many of
    /// them. PEs on emulated nodes share the machine
    #[arg(
        long, value_name = "OBJECT[:N]", default_value = "none", help_heading = WHERE
    )]
    pub bind_to: BindTo,

    /// Deal PEs out over these by turns instead of over what they are bound to; core: fill one socket after
    /// the other
    #[arg(long, value_name = "OBJECT", help_heading = WHERE, requires = "bind_to")]
    pub map_by: Option<Level>,

    /// What starts agents on other hosts: auto, fork (all nodes are on this machine), slurm, pbs, lsf, flux,
    /// sge, or a command such as 'ssh -x', in which {host} and {command} may stand [default: SHMEM_LAUNCHER]
    #[arg(long, value_name = "HOW", help_heading = WHERE, visible_alias = "rsh")]
    pub launcher: Option<String>,

    /// shmrun on other hosts: a path, or a name that is in PATH there [default: the path of this one]
    #[arg(long, value_name = "PATH", help_heading = WHERE)]
    pub remote_shmrun: Option<OsString>,

    /// Serve the PEs by PMIx, as Open MPI's programs need it, instead of PMI. That a script or an interpreter
    /// will run such programs cannot be seen: then --pmix [default: auto]
    #[arg(
        long, value_name = "HOW", help_heading = PROGRAM, value_enum,
        num_args = 0..=1, require_equals = true, default_missing_value = "on"
    )]
    pub pmix: Option<PmixChoice>,

    /// Bytes of the symmetric heap of each PE, such as 1g [default: SHMEM_SYMMETRIC_SIZE]
    #[arg(long, value_name = "SIZE", help_heading = PROGRAM)]
    pub heap: Option<String>,

    /// Set a variable for the PEs of a program, or pass on that of shmrun; -env takes NAME VALUE, too
    #[arg(short = 'x', long, value_name = "NAME[=VALUE]", help_heading = PROGRAM)]
    pub env: Vec<OsString>,

    /// The same for all programs; NAME VALUE as two words, too
    #[arg(long, value_name = "NAME[=VALUE]", help_heading = PROGRAM)]
    pub genv: Vec<OsString>,

    /// What PEs find of the environment of shmrun, beside the settings and what options set: all (on other hosts
    /// nothing of theirs), none, or the variables of a list [default: on this machine all, on other hosts what
    /// describes no host or session]. mpiexec's -genvall, -genvnone and -genvlist are the same
    #[arg(long, value_name = "all|none|NAME,...", help_heading = PROGRAM)]
    pub export: Option<Export>,

    /// Print what is started and where, to what each PE is bound, and with what status each PE ended;
    /// --report-bindings and --print-all-exitcodes are the same
    #[arg(short, long, help_heading = TELL, overrides_with = "verbose")]
    pub verbose: bool,

    /// Where it is told what PEs wait for (SIGUSR1, --timeout, --ps), add the stacks of one PE of each group, if a
    /// node has eu-stack, gdb or gstack. The tool stops the PE for a moment
    #[arg(long, help_heading = TELL)]
    pub backtrace: bool,

    /// Put the rank in brackets in front of every line of output
    #[arg(
        short = 'l', long, help_heading = TELL,
        visible_alias = "prepend-rank"
    )]
    pub label: bool,
}

/// The options among [`Inherited`] that were typed, as another launcher takes them.
fn typed_of_inherited(matches: &clap::ArgMatches) -> Vec<OsString> {
    let mut out: Vec<OsString> = Vec::new();
    for arg in Inherited::augment_args(Command::new("")).get_arguments() {
        let typed = matches.value_source(arg.get_id().as_str());
        let (Some(long), Some(ValueSource::CommandLine)) = (arg.get_long(), typed) else {
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
        let programs = words::by_program(&command, args)
            .map_err(|what| command.error(ErrorKind::InvalidValue, what))?;
        let mut programs = programs.into_iter();
        let parse = |command: &mut Command, words: Option<Vec<OsString>>| {
            let matches = command.try_get_matches_from_mut(words.unwrap_or_default())?;
            let cli = Self::from_arg_matches(&matches).map_err(|e| e.format(command))?;
            Ok::<_, clap::Error>((cli, matches))
        };
        let (mut cli, matches) = parse(&mut command, programs.next())?;
        cli.spawn_options = typed_of_inherited(&matches);
        for words in programs {
            let (of_it, matches) = parse(&mut command, Some(words))?;
            let others = matches.ids().map(clap::Id::as_str).find(|id| {
                let typed = matches.value_source(id) == Some(ValueSource::CommandLine);
                let is_option = command.get_arguments().any(|a| a.get_id() == id);
                typed && is_option && !OF_A_PROGRAM.contains(id)
            });
            if let Some(option) = others {
                let option = option.replace('_', "-");
                let what = format!(
                    "--{option} holds for the whole job: it belongs in front of the first program"
                );
                return Err(command.error(ErrorKind::ArgumentConflict, what));
            }
            cli.more.push(Segment {
                pes: of_it.pes,
                chdir: of_it.chdir,
                env: of_it.inherited.env,
                command: of_it.command,
            });
        }
        Ok(cli)
    }

    /// All programs.
    pub(crate) fn programs(&self) -> Vec<Segment> {
        let first = Segment {
            pes: self.pes,
            chdir: self.chdir.clone(),
            env: self.inherited.env.clone(),
            command: self.command.clone(),
        };
        std::iter::once(first).chain(self.more.clone()).collect()
    }

    /// Names of the variables that PEs may find: those of the environment, and those that were typed.
    pub(crate) fn variables(&self) -> Vec<String> {
        let programs = self.programs();
        let typed = programs.iter().flat_map(|program| &program.env);
        let typed = typed.chain(&self.inherited.genv).map(|item| {
            let item = item.to_string_lossy();
            item.split('=').next().unwrap_or_default().to_owned()
        });
        let own = std::env::vars_os().map(|(name, _)| name.to_string_lossy().into_owned());
        own.chain(typed).collect()
    }

    /// The value that an option of its own gives a setting, or else `--env` or `--genv` a variable, with the option;
    /// the last one counts.
    pub(crate) fn given_by(&self, name: &str) -> Option<(&'static str, String)> {
        let Inherited {
            genv,
            env,
            launcher,
            heap,
            ..
        } = &self.inherited;
        let by_option = match name {
            "SHMEM_LAUNCHER" => launcher.as_ref().map(|typed| ("launcher", typed)),
            HEAP_SIZE => heap.as_ref().map(|typed| ("heap", typed)),
            _ => None,
        };
        if let Some((option, typed)) = by_option {
            return Some((option, typed.clone()));
        }
        let genv = genv.iter().map(|item| ("genv", item));
        let env = env.iter().map(|item| ("env", item));
        genv.chain(env).rev().find_map(|(option, item)| {
            let item = item.to_string_lossy();
            let (given, value) = item.split_once('=')?;
            (given == name).then(|| (option, value.to_owned()))
        })
    }

    /// That value alone.
    pub(crate) fn given(&self, name: &str) -> Option<String> {
        self.given_by(name).map(|(_, value)| value)
    }
}

#[cfg(test)]
mod tests;
