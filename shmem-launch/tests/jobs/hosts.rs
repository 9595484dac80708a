//! Jobs on several hosts, which are this machine behind a remote shell (`examples/rsh.rs`).

use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicU32, Ordering};

use shmem_testkit::processes::kill;
use shmem_testkit::{Job, Outcome, wait_until};

use crate::support::{kill_when, shmrun};

/// A remote shell and its server.
pub(crate) struct Network {
    dir: PathBuf,
    server: Child,
}

impl Network {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let number = NEXT.fetch_add(1, Ordering::Relaxed);
        let dir =
            std::env::temp_dir().join(format!("shmrun-hosts-{}-{number}", std::process::id()));
        std::fs::create_dir(&dir).unwrap();
        let socket = dir.join("socket");
        let server = Command::new(Self::program())
            .args(["--serve".as_ref(), socket.as_os_str()])
            .spawn()
            .unwrap();
        wait_until("the server listens", || socket.exists(), String::new);
        Self { dir, server }
    }

    fn program() -> PathBuf {
        Path::new(env!("CARGO_BIN_EXE_shmrun")).with_file_name("examples/rsh")
    }

    pub(crate) fn rsh(&self) -> String {
        let socket = self.dir.join("socket");
        format!("{} {}", Self::program().display(), socket.display())
    }

    /// From now on nothing gets through to a host or from it, and nobody is told.
    pub(crate) fn cut(&self, host: &str) {
        std::fs::File::create(self.dir.join(format!("cut-{host}"))).unwrap();
    }

    /// `shmrun --hosts HOSTS OPTIONS.. PROGRAM..`
    pub(crate) fn job(&self, hosts: &str, rest: &[&str]) -> Job {
        let mut args = vec!["--hosts", hosts];
        args.extend_from_slice(rest);
        shmrun(&args).env("SHMEM_RSH", self.rsh())
    }

    pub(crate) fn sh(&self, hosts: &str, options: &[&str], script: &str) -> Job {
        self.job(hosts, &[options, &["/bin/sh", "-c", script]].concat())
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(&self.dir);
    }
}

#[test]
fn every_host_has_its_pes_and_they_find_what_they_had_at_home() {
    let net = Network::new();
    let script =
        "echo $PMI_RANK/$PMI_SIZE $SHMEM_LOCAL_RANK $RSH_HOST ${PWD##*/} $SHMEM_MINE $HERE $GIVEN";
    let options = [
        "-n",
        "5",
        "--chdir",
        net.dir.to_str().unwrap(),
        "-x",
        "GIVEN=g",
    ];
    let job = net.sh("a,b,c", &options, script);
    let out = job.env("SHMEM_MINE", "m").env("HERE", "h").run();
    assert_eq!(out.code(), 0, "{out:?}");
    let dir = net.dir.file_name().unwrap().to_str().unwrap();
    let want = [
        ("0/5 0 a"),
        ("1/5 1 a"),
        ("2/5 0 b"),
        ("3/5 1 b"),
        ("4/5 0 c"),
    ];
    let want: Vec<String> = want.iter().map(|w| format!("{w} {dir} m h g")).collect();
    assert_eq!(out.sorted(), want);
    assert_eq!(out.stderr, "");
}

#[test]
fn what_describes_a_host_is_what_that_has() {
    let net = Network::new();
    let script =
        "echo ${HOME:-none} ${LD_LIBRARY_PATH:-none} ${SHMEM_MINE:-none} ${RSH_HOST:-none}";
    for (options, want) in [
        (&[][..], "none /lib m a\n"),
        (&["-genvall"], "/home /lib m none\n"),
        (&["-genvnone"], "none none m none\n"),
        (&["-genvlist", "HOME"], "/home none m none\n"),
        (&["-genvnone", "-genv", "RSH_HOST", "x"], "none none m x\n"),
    ] {
        let job = net.sh("a", options, script);
        let own = [
            ("HOME", "/home"),
            ("LD_LIBRARY_PATH", "/lib"),
            ("SHMEM_MINE", "m"),
        ];
        let out = job.envs(own).run();
        assert_eq!(
            (out.code(), out.stdout.as_str()),
            (0, want),
            "{options:?} {out:?}"
        );
    }
}

#[test]
fn limits_and_file_mask_are_those_of_the_launcher() {
    let net = Network::new();
    let script = "ulimit -Ss; ulimit -Sc; ulimit -Sn; umask";
    let options = ["--hosts", "a,b", "-n", "2", "/bin/sh", "-c", script];
    let limits = "ulimit -Ss 4000; ulimit -Sc 0; ulimit -Sn 500; umask 0027";
    let job = crate::support::shmrun_after(limits, &options);
    let out = job.env("SHMEM_RSH", net.rsh()).run();
    assert_eq!(out.code(), 0, "{out:?}");
    let want = ["0", "0", "0027", "0027", "4000", "4000", "500", "500"];
    assert_eq!(out.sorted(), want, "{out:?}");
}

#[test]
fn the_settings_of_the_launcher_count_everywhere() {
    // Those of the hosts' shells do not: the server sets one that cannot even be parsed.
    let net = Network::new();
    let out = net.sh("a", &[], "echo ${SHMEM_SPIN:-unset}").run();
    assert_eq!((out.code(), out.stdout.as_str()), (0, "unset\n"), "{out:?}");
    let job = net.sh("a", &[], "echo $SHMEM_SPIN").env("SHMEM_SPIN", "7");
    let out = job.run();
    assert_eq!((out.code(), out.stdout.as_str()), (0, "7\n"), "{out:?}");
}

#[test]
fn a_host_file_says_how_many_pes_a_host_takes() {
    let net = Network::new();
    let file = net.dir.join("hosts");
    std::fs::write(
        &file,
        "# ours\nlocalhost slots=1\nb slots=3 # big\nc slots=2\nd\n",
    )
    .unwrap();
    let args = ["--hostfile", file.to_str().unwrap(), "-n", "5"];
    let rsh = net.rsh();
    let args = [&args[..], &["--rsh", &rsh], &["sh", "-c"]].concat();
    let script = "echo $PMI_RANK ${RSH_HOST:-here}";
    let out = shmrun(&[&args[..], &[script]].concat()).run();
    assert_eq!(out.code(), 0, "{out:?}");
    assert_eq!(out.sorted(), ["0 here", "1 b", "2 b", "3 b", "4 c"]);
}

#[test]
fn host_files_of_other_launchers_are_understood() {
    let net = Network::new();
    let file = net.dir.join("hosts");
    let rsh = net.rsh();
    let run = |text: &str| {
        std::fs::write(&file, text).unwrap();
        let file = file.to_str().unwrap();
        let script = "echo $PMI_RANK ${RSH_HOST:-here}";
        shmrun(&["--hostfile", file, "--rsh", &rsh, "sh", "-c", script]).run()
    };
    for text in [
        "localhost:2\nb:1 # Hydra\n",
        "localhost slots=2 # Open MPI\nb slots=1\n",
        "localhost\nlocalhost\nb\n",
        "localhost\nb\nlocalhost\n",
    ] {
        let out = run(text);
        assert_eq!(out.code(), 0, "{out:?}");
        assert_eq!(out.sorted(), ["0 here", "1 here", "2 b"]);
    }
    let out = run("localhost:2\n\nb slots=many\n");
    assert_eq!(out.code(), 2, "{out:?}");
    let want = format!("{}:3: 'many' is no number of slots", file.display());
    assert!(out.stderr.contains(&want), "{out:?}");
}

/// A directory in front of `PATH` with commands of a batch system, which reach hosts through the network.
fn commands(net: &Network, scripts: &[(&str, &str)]) -> String {
    use std::os::unix::fs::PermissionsExt;
    for (name, script) in scripts {
        let path = net.dir.join(name);
        let script = script.replace("RSH", &net.rsh());
        std::fs::write(&path, format!("#!/bin/sh\n{script}\n")).unwrap();
        std::fs::set_permissions(&path, PermissionsExt::from_mode(0o755)).unwrap();
    }
    format!("{}:{}", net.dir.display(), std::env::var("PATH").unwrap())
}

/// As documented: options, then the program and its arguments, without a shell.
const SRUN: &str = r#"test -z "$SLURM_MEM_PER_CPU$SLURM_NTASKS_PER_NODE" || exit 9
for word; do
    case $word in
        --nodelist=*) host=${word#*=} ;;
        --*) ;;
        *) break ;;
    esac
    shift
done
echo "srun: cluster configuration lacks support for cpu binding" >&2
exec RSH "$host" env "PATH=$PATH" "$@""#;

#[test]
fn the_allocation_of_a_batch_system_is_used() {
    let net = Network::new();
    let path = commands(
        &net,
        &[
            ("srun", SRUN),
            (
                "blaunch",
                r#"host=$1; shift; exec RSH "$host" env "PATH=$PATH" "$@""#,
            ),
            (
                "qrsh",
                r#"test "$1 $2" = "-inherit -V" && host=$3 && shift 3 && exec RSH "$host" env "PATH=$PATH" "$@""#,
            ),
            ("ssh", r#"exec RSH "$1" "PATH=$PATH; $2""#),
            (
                "pbs_attach",
                r#"test "$1" = -j && BY=$2 && export BY && shift 2 && exec "$@""#,
            ),
            (
                "flux",
                r#"test "$*" = "resource R" && echo '{"version": 1, "execution": {"R_lite": [
                {"rank": "0", "children": {"core": "0-1"}}, {"rank": "1", "children": {"core": "3"}}],
                "nodelist": ["host[1-2]"]}}'"#,
            ),
        ],
    );
    let (nodes, pe) = (net.dir.join("nodes"), net.dir.join("pe"));
    std::fs::write(&nodes, "host1\nhost1\nhost2\n").unwrap();
    std::fs::write(
        &pe,
        "host1 2 q@host1 UNDEFINED\nhost2 1 q@host2 UNDEFINED\n",
    )
    .unwrap();
    let (nodes, pe) = (nodes.to_str().unwrap(), pe.to_str().unwrap());
    for vars in [
        &[
            ("SLURM_JOB_ID", "12"),
            ("SLURM_JOB_NODELIST", "host[1-2]"),
            ("SLURM_TASKS_PER_NODE", "2,1"),
            ("SLURM_NTASKS", "3"),
            ("SLURM_MEM_PER_CPU", "100"),
            ("SLURM_NTASKS_PER_NODE", "2"),
        ][..],
        &[("LSB_JOBID", "9"), ("LSB_MCPU_HOSTS", "host1 2 host2 1")],
        &[("PBS_JOBID", "7.server"), ("PBS_NODEFILE", nodes)],
        &[("FLUX_URI", "local:///run/flux/local-0")],
        &[("PE_HOSTFILE", pe), ("JOB_ID", "5"), ("NSLOTS", "3")],
    ] {
        let shmrun = |args: &[&str]| {
            let job = shmrun(args).env("PATH", &path);
            job.envs(vars.iter().copied()).run()
        };
        let script = "echo $PMI_RANK $RSH_HOST ${SLURM_MEM_PER_CPU:-}${BY:-}";
        let out = shmrun(&["sh", "-c", script]);
        assert_eq!(
            (out.code(), out.stderr.as_str()),
            (0, ""),
            "{vars:?}: {out:?}"
        );
        let mark = match vars[0].0 {
            "SLURM_JOB_ID" => " 100",
            "PBS_JOBID" => " 7.server",
            _ => "",
        };
        let want = ["0 host1", "1 host1", "2 host2"].map(|line| format!("{line}{mark}"));
        assert_eq!(out.sorted(), want, "{vars:?}");

        let out = shmrun(&["-n", "2", "--dry-run", "true"]);
        let said = [
            "the job runs on 1 of the 2 hosts of",
            "with 3 tasks: host[1-2]",
        ];
        assert!(said.iter().all(|part| out.stderr.contains(part)), "{out:?}");
        assert_eq!(shmrun(&["-n", "4", "true"]).code(), 2);
        assert_eq!(
            shmrun(&["--ppn", "2", "echo", "pe"]).stdout,
            "pe\n".repeat(4)
        );
        // What was named wins.
        let out = shmrun(&["-H", "host2:2", "sh", "-c", "echo $RSH_HOST"]);
        assert_eq!(out.stdout, "host2\nhost2\n", "{out:?}");
        let other = [
            "-H",
            "other",
            "--rsh",
            &net.rsh(),
            "sh",
            "-c",
            "echo $RSH_HOST",
        ];
        assert_eq!(shmrun(&other).stdout, "other\n");
        let alone = [
            "-x",
            "SHMEM_ALLOCATION=none",
            "-n",
            "2",
            "sh",
            "-c",
            "echo $RSH_HOST",
        ];
        assert_eq!(shmrun(&alone).stdout, "\n\n");
        let forked = [
            "--launcher",
            "fork",
            "-N",
            "2",
            "sh",
            "-c",
            "echo $RSH_HOST",
        ];
        assert_eq!(shmrun(&forked).stdout, "\n\n");
    }
}

#[test]
fn this_machine_alone_needs_no_remote_shell() {
    let job = shmrun(&["--hosts", "localhost:3", "echo", "hi"]);
    let out = job.env("SHMEM_RSH", "/no/such/shell").run();
    assert_eq!(
        (out.code(), out.stdout.as_str()),
        (0, "hi\nhi\nhi\n"),
        "{out:?}"
    );
}

#[test]
fn many_hosts_are_a_tree() {
    let net = Network::new();
    let hosts: Vec<String> = (0..13).map(|i| format!("host{i}")).collect();
    let options = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "26", "--report", "-"];
    let out = net
        .sh(&hosts.join(","), &options, "echo pe $RSH_HOST")
        .run();
    assert_eq!(out.code(), 0, "{out:?}");
    for host in &hosts {
        let line = format!("pe {host}");
        assert_eq!(out.stdout.lines().filter(|l| **l == line).count(), 2);
    }
    assert!(out.stdout.contains("depth 3"), "{}", out.stdout);
    assert!(out.stdout.contains("13 launch agents"), "{}", out.stdout);
}

#[test]
fn input_and_much_output_pass() {
    let net = Network::new();
    let input = b"line\n".repeat(100_000);
    let script = "wc -c; seq 1 200000; echo end >&2";
    let job = net.sh("a,b,c", &["-n", "3", "-l"], script);
    let out = job.run_with_input(input.clone());
    assert_eq!(out.code(), 0, "{}", out.stderr);
    assert_eq!(out.stdout.lines().count(), 3 * 200_001);
    assert!(out.stdout.contains(&format!("[0] {}\n", input.len())));
    for rank in 0..3 {
        let want = format!("[{rank}] ");
        let lines = out.stdout.lines().filter_map(|l| l.strip_prefix(&want));
        let numbers: Vec<u32> = lines.skip(1).map(|l| l.parse().unwrap()).collect();
        assert!(numbers.iter().copied().eq(1..=200_000), "of PE {rank}");
        assert!(out.stderr.contains(&format!("[{rank}] end")));
    }
}

#[test]
fn odd_paths_are_quoted() {
    let net = Network::new();
    let dir = net.dir.join("it's $HOME; \"odd\"");
    std::fs::create_dir(&dir).unwrap();
    let (shmrun, program) = (dir.join("shm run"), dir.join("a program"));
    std::fs::copy(env!("CARGO_BIN_EXE_shmrun"), &shmrun).unwrap();
    std::os::unix::fs::symlink("/bin/echo", &program).unwrap();
    let shmrun = shmrun.to_str().unwrap();
    let options = ["--remote-shmrun", shmrun, "--chdir", dir.to_str().unwrap()];
    let program = [program.to_str().unwrap(), "a  b", "$c", "it's"];
    let job = net.job("a,b", &[&options[..], &["-n", "2"], &program].concat());
    let out = job.run();
    assert_eq!(out.code(), 0, "{out:?}");
    assert_eq!(out.stdout, "a  b $c it's\n".repeat(2));
}

/// Lists of hosts, of which one is alone, the first, in the middle of the tree, or a leaf.
fn places_of(host: &str) -> [String; 4] {
    [
        host.to_owned(),
        format!("{host},b,c"),
        format!("localhost,{host},c,d,e"),
        format!("a,b,c,d,{host}"),
    ]
}

/// A host that does not answer in time is given up, wherever it is. On a busy machine other hosts may not answer in
/// time, either.
#[track_caller]
fn is_given_up(net: &Network, host: &str) {
    for hosts in places_of(host) {
        let options = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "5", "sleep", "1000"];
        let out = net
            .job(&hosts, &options)
            .env("SHMEM_RSH_TIMEOUT", "300ms")
            .run();
        assert_eq!(out.code(), 125, "{hosts}: {out:?}");
        let said =
            |host: &str| format!("({host}): no launch agent answered on host {host} within 0.3 s");
        for message in out.messages() {
            let of_one = |host: &str| message.contains(&said(host));
            assert!(hosts.split(',').any(of_one), "{hosts}: {message}");
        }
        assert!(
            hosts.contains(',') || out.stderr.contains(&said(host)),
            "{out:?}"
        );
    }
}

/// What goes wrong with a host that is the first, in the middle of the tree, or a leaf.
#[track_caller]
fn fails(net: &Network, host: &str, said: &[&str]) {
    for hosts in places_of(host) {
        let options = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "5", "sleep", "1000"];
        let out = net.job(&hosts, &options).run();
        assert_eq!(out.code(), 125, "{hosts}: {out:?}");
        let messages = out.messages();
        assert_eq!(messages.len(), 1, "{hosts}: {messages:?}");
        for part in said {
            assert!(
                out.stderr.contains(part),
                "{hosts}: no {part} in {}",
                out.stderr
            );
        }
        assert!(messages[0].contains(&format!("({host})")), "{messages:?}");
    }
}

#[test]
fn a_host_that_cannot_be_reached_is_named_with_the_command() {
    let net = Network::new();
    let said = [
        "cannot start the launch agent on host unreachable",
        "status 255 after 'rsh: connect to host unreachable: No route to host' (3 attempts)",
        "examples/rsh",
        "--agent",
    ];
    fails(&net, "unreachable", &said);
}

#[test]
fn a_host_that_says_nothing_is_given_up() {
    is_given_up(&Network::new(), "silent");
}

#[test]
fn every_host_that_cannot_be_reached_gets_its_line() {
    let net = Network::new();
    let hosts = "localhost,unreachable1,b,unreachable2,c,unreachable3";
    let job = net.job(hosts, &["-n", "6", "sleep", "1000"]);
    let job = job.env("SHMEM_LAUNCHER_RETRIES", "0");
    let out = job.run();
    assert_eq!(out.code(), 125, "{out:?}");
    assert_eq!(out.messages().len(), 3, "{out:?}");
    for host in ["(unreachable1)", "(unreachable2)", "(unreachable3)"] {
        assert!(out.stderr.contains(host), "{out:?}");
    }
    assert_eq!(out.stderr.matches("ending the job").count(), 1);
}

#[test]
fn a_host_that_refuses_for_a_while_is_tried_again() {
    for hosts in ["refusing,b,c", "localhost,b,refusing"] {
        let net = Network::new();
        let out = net.sh(hosts, &["-n", "3"], "echo $RSH_HOST; exit 0").run();
        assert_eq!(out.code(), 0, "{hosts}: {out:?}");
        assert_eq!(out.stdout.matches("refusing").count(), 1);
        assert_eq!(out.stderr, "");
    }
}

#[test]
fn hosts_are_started_one_after_the_other_if_that_is_wanted() {
    let net = Network::new();
    let hosts = ["localhost", "b", "c", "d", "e", "f"].join(",");
    let job = net.sh(&hosts, &["-n", "12"], "echo pe");
    let out = job.env("SHMEM_LAUNCHER_STARTS", "1").run();
    assert_eq!((out.code(), out.stdout.lines().count()), (0, 12), "{out:?}");
}

/// Whose agent forks a shell that goes on in another process may take that for a process that somebody
/// has left; but nothing waits for ever.
#[test]
fn a_remote_shell_that_leaves_another_process_behind_stops_nothing() {
    let net = Network::new();
    for hosts in ["detached,b,c", "localhost,detached,c,d", "a,b,detached"] {
        let options = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "4", "-l"];
        let out = net.sh(hosts, &options, "seq 1 20000; exit 0").run();
        assert!([0, 125].contains(&out.code()), "{hosts}: {}", out.stderr);
    }
    is_given_up(&net, "runaway");
}

#[test]
fn a_host_that_says_something_else_is_quoted() {
    let net = Network::new();
    let said = [
        "'Welcome to chatty, have a lot of fun'",
        "must print nothing",
    ];
    fails(&net, "chatty", &said);
    let said = [
        "is of another version",
        "link protocol 999",
        "--remote-shmrun",
    ];
    fails(&net, "other-version", &said);
}

#[test]
fn what_a_host_lacks_is_named() {
    let net = Network::new();
    let program = net.dir.join("program");
    for hosts in ["lacking,b", "a,lacking", "a,b,c,lacking"] {
        std::os::unix::fs::symlink("/bin/sleep", &program).unwrap();
        let name = program.to_str().unwrap();
        let out = net.job(hosts, &["-n", "4", name, "1000"]).run();
        assert_eq!(out.code(), 127, "{out:?}");
        // Where it is missing for one it soon is for all: they are one machine after all.
        let said = [name, "not found on this host", "the same path on all hosts"];
        for part in said {
            assert!(out.stderr.contains(part), "no {part} in {}", out.stderr);
        }
    }
    let options = ["--remote-shmrun", "/no/such/shmrun", "-n", "2", "true"];
    let out = net.job("a,b", &options).run();
    assert_eq!(out.code(), 125, "{out:?}");
    for part in [
        "/no/such/shmrun",
        "status 127",
        "--remote-shmrun names another",
    ] {
        assert!(out.stderr.contains(part), "no {part} in {}", out.stderr);
    }
}

#[test]
fn nonsense_is_refused_before_anything_starts() {
    let net = Network::new();
    let rsh = net.rsh();
    for (args, code, part) in [
        (&["--hosts", "a:x", "true"][..], 2, "no number of slots"),
        (&["--hosts", "", "true"], 2, "no host"),
        (&["--hosts", "a:2,b:1", "-n", "4", "true"], 2, "3 slots"),
        (
            &["--hosts", "a", "--nodes", "2", "true"],
            2,
            "cannot be used with",
        ),
        (&["--hostfile", "/no/such", "true"], 2, "/no/such"),
        (
            &["--hosts", "a", "--rsh", "/no/such", "true"],
            127,
            "/no/such",
        ),
        (
            &["--hosts", "a", "--rsh", " ", "true"],
            2,
            "expected auto, fork, ssh",
        ),
        (&["--rsh", &rsh, "true"], 2, "--hosts"),
        (
            &["--hosts", "a", "--rsh", &rsh, "no-such-program"],
            127,
            "no-such-program",
        ),
    ] {
        let out = shmrun(args).run();
        assert_eq!(out.code(), code, "{args:?}: {out:?}");
        assert!(out.stderr.contains(part), "{args:?}: {}", out.stderr);
    }
    let job = net
        .job("a,b", &["true"])
        .env("SHMEM_SOFT_NETNS", "/run/netns/n");
    assert_eq!(job.run().code(), 2);
}

#[test]
fn a_dry_run_shows_the_commands() {
    let net = Network::new();
    let out = net.job("a,b", &["-n", "4", "--dry-run", "true"]).run();
    assert_eq!(out.code(), 0);
    for part in [
        "node 1 on host b: PEs 2 to 3",
        "started by node 0",
        "--agent'",
    ] {
        assert!(out.stderr.contains(part), "no {part} in {}", out.stderr);
    }
}

#[test]
fn the_status_of_a_pe_is_that_of_the_job() {
    let net = Network::new();
    let script = "test $PMI_RANK = 3 && exit 7; sleep 1000";
    let out = net.sh("a,b,c", &["-n", "6"], script).run();
    assert_eq!(out.code(), 7, "{out:?}");
    assert!(out.stderr.contains("PE 3 on node 1 (b)"), "{}", out.stderr);
}

/// Kills a process of a job on four hosts, of which two have a host below them.
fn killed(victim: &str, number: usize, count: usize) -> Outcome {
    let net = Network::new();
    let options = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "8", "sleep", "1000"];
    let job = net.job("a,b,c,d", &options);
    let job = job.start();
    job.wait_for("sleep", 8);
    kill(job.wait_for(victim, count)[number], 9);
    job.wait()
}

#[test]
fn a_launcher_that_is_killed_leaves_nothing_on_any_host() {
    let out = killed("shmrun", 0, 1);
    assert_eq!(out.signal(), Some(9), "{out:?}");
}

#[test]
fn the_loss_of_an_agent_ends_the_job_everywhere() {
    for number in 0..4 {
        let out = killed("shmrun-agent", number, 4);
        assert_eq!(out.code(), 125, "{out:?}");
        let said = ["the launch agent on host", "is gone"];
        for part in said {
            assert!(out.messages()[0].contains(part), "{}", out.stderr);
        }
    }
}

#[test]
fn processes_with_a_session_of_their_own_end_with_their_agent() {
    let net = Network::new();
    let script = "setsid sleep 1000 & exec sleep 1000";
    for victim in ["shmrun-agent", "shmrun-warden"] {
        for number in 0..2 {
            let job = net.sh("a,b", &[], script).start();
            job.wait_for("sleep", 4);
            kill(job.wait_for(victim, 2)[number], 9);
            let out = job.wait();
            assert_eq!(out.code(), 125, "{out:?}");
            assert_eq!(out.messages().len(), 1, "{out:?}");
        }
    }
}

#[test]
fn an_agent_that_can_tell_nobody_why_it_cannot_start_has_a_status() {
    let full = std::fs::File::options()
        .write(true)
        .open("/dev/full")
        .unwrap();
    let status = Command::new(env!("CARGO_BIN_EXE_shmrun"))
        .arg("--agent")
        .stdin(std::process::Stdio::null())
        .stdout(std::process::Stdio::null())
        .stderr(full)
        .status()
        .unwrap();
    assert_eq!(status.code(), Some(125));
}

#[test]
fn the_loss_of_a_remote_shell_ends_the_job_everywhere() {
    for number in 0..4 {
        let out = killed("rsh", number, 4);
        assert_eq!(out.code(), 125, "{out:?}");
        let message = out.messages()[0];
        assert!(
            message.contains("SIGKILL") && message.contains("rsh"),
            "{message}"
        );
    }
}

#[test]
fn a_server_that_ends_ends_the_job() {
    let mut net = Network::new();
    let job = net.job("localhost,b,c", &["-n", "3", "sleep", "1000"]);
    let job = job.start();
    job.wait_for("sleep", 3);
    net.server.kill().unwrap();
    net.server.wait().unwrap();
    let out = job.wait();
    assert_eq!(out.code(), 125, "{out:?}");
    assert!(
        out.stderr.contains("closed by remote host"),
        "{}",
        out.stderr
    );
}

#[test]
fn interrupting_does_not_wait_for_hosts_that_do_not_answer() {
    let net = Network::new();
    for hosts in ["silent", "a,silent,c"] {
        let job = net.job(hosts, &["-n", "3", "sleep", "1000"]);
        // Whoever waits for it counts as hung.
        let job = job.env("SHMEM_RSH_TIMEOUT", "1h");
        let job = job.start();
        // The client of a host that does not answer, among those of others.
        wait_until(
            "the remote shells run",
            || job.processes().iter().any(|p| p.name == "rsh"),
            || format!("{:?}", job.processes()),
        );
        job.kill(2);
        let out = job.wait();
        assert_eq!(out.code(), 130, "{out:?}");
    }
}

#[test]
fn deaths_during_the_start_leave_nothing_on_any_host() {
    // At the end there are the launcher, a shell, a warden, an agent and a guard for each host, and the PEs.
    for there_are in [1, 2, 4, 8, 12, 16, 20, 24] {
        for victim in ["shmrun", "shmrun-agent", "rsh"] {
            let net = Network::new();
            let options = ["-x", "SHMEM_TREE_DEGREE=2", "-n", "8", "sleep", "1000"];
            // What ends before its host has answered would be started again, and the job would go on.
            let job = net.job("a,b,c,d", &options);
            let job = job.env("SHMEM_LAUNCHER_RETRIES", "0").start();
            kill_when(&job, there_are, victim);
            let out = job.wait();
            assert!(out.signal() == Some(9) || out.code() == 125, "{out:?}");
        }
    }
}
