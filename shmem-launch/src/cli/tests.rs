//! Command lines as users write them.

use super::*;
use std::ffi::OsStr;

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
    assert_eq!(c.given_by("A"), Some(("env", "b".to_owned())));
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
fn pmix_has_a_value_only_after_an_equals_sign() {
    for (line, choice) in [
        ("shmrun -n 2 --pmix ./prog --pmix=off", PmixChoice::On),
        ("shmrun --pmix=off ./prog", PmixChoice::Off),
        ("shmrun --pmix=auto -n 2 ./prog", PmixChoice::Auto),
    ] {
        let c = parse(line).unwrap();
        assert_eq!(c.inherited.pmix, Some(choice), "{line}");
        assert_eq!(c.command[0], "./prog");
    }
    assert!(parse("shmrun --pmix=maybe ./prog").is_err());
    let options = parse("shmrun --pmix -l ./prog").unwrap().spawn_options;
    assert_eq!(options, ["--pmix=on", "--label"]);
}

#[test]
fn hosts_are_a_list_or_a_file() {
    let c = parse("shmrun -H a,b:2 --rsh x --remote-shmrun /y ./prog -H c").unwrap();
    assert_eq!(c.inherited.hosts.as_deref(), Some("a,b:2"));
    assert_eq!(c.given("SHMEM_LAUNCHER").as_deref(), Some("x"));
    assert_eq!(c.command, ["./prog", "-H", "c"]);
    let c = parse("shmrun -f f -launcher slurm ./prog").unwrap();
    assert_eq!(c.inherited.hostfile, Some("f".into()));
    assert_eq!(c.given("SHMEM_LAUNCHER").as_deref(), Some("slurm"));
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
    assert!(!c.inherited.label && c.report.is_empty() && c.inherited.env.is_empty());
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
fn variables_are_one_word_or_two() {
    let env = |line: &str| {
        let c = parse(line).unwrap();
        let join = |of: &[OsString]| of.join(OsStr::new(" ")).into_string().unwrap();
        let Inherited { env, genv, .. } = &c.inherited;
        (join(env), join(genv), c.command.len())
    };
    let is = |e: &str, g: &str| (e.to_owned(), g.to_owned(), 1);
    for (line, want) in [
        ("shmrun -env A b p", is("A=b", "")),
        ("shmrun -env A=b p", is("A=b", "")),
        ("shmrun --env A p", is("A", "")),
        ("shmrun -x A -x B=c p", is("A B=c", "")),
        ("shmrun -genv A b -genv C=d p", is("", "A=b C=d")),
        ("shmrun --genv A b p", is("", "A=b")),
        ("shmrun --genv=A=b p", is("", "A=b")),
        ("shmrun -genv A b=c p", is("", "A=b=c")),
    ] {
        assert_eq!(env(line), want, "{line}");
    }
    let c = parse("shmrun -genvlist A,B -genv SHMEM_SPIN 7 p").unwrap();
    let names = ["A", "B"].map(str::to_owned).to_vec();
    assert_eq!(c.inherited.export, Some(Export::Only(names)));
    assert_eq!(c.given_by("SHMEM_SPIN"), Some(("genv", "7".into())));
    assert!(parse("shmrun -genvall -genvnone p").is_err());
}

#[test]
fn a_colon_begins_the_next_program() {
    let c = parse("shmrun -l -n 2 -x A=b ./a 1 : -np 4 -wdir /tmp -env C d ./b : c").unwrap();
    assert!(c.inherited.label);
    let [a, b, c] = &c.programs()[..] else {
        panic!("{c:?}");
    };
    assert_eq!(
        (a.pes, &a.command[..]),
        (Some(2), &["./a".into(), "1".into()][..])
    );
    assert_eq!(a.env, ["A=b"]);
    assert_eq!((b.pes, &b.command[..]), (Some(4), &["./b".into()][..]));
    assert_eq!(
        (b.chdir.as_deref(), &b.env[..]),
        (Some("/tmp".as_ref()), &["C=d".into()][..])
    );
    assert_eq!((c.pes, &c.command[..]), (None, &["c".into()][..]));
    let own = parse("shmrun -n 2 -- ./a : b").unwrap();
    assert_eq!((own.more.len(), own.command.len()), (0, 3));
    for (line, told) in [
        ("shmrun a : -l b", "--label holds for the whole job"),
        ("shmrun a :", "PROGRAM"),
        ("shmrun : a", "PROGRAM"),
        ("shmrun a : --settings", "PROGRAM"),
    ] {
        let e = parse(line).unwrap_err().to_string();
        assert!(e.contains(told), "{line}: {e}");
    }
}

#[test]
fn a_file_may_hold_the_programs() {
    let file = std::env::temp_dir().join(format!("shmrun-configfile-{}", std::process::id()));
    let line = format!("shmrun -l --configfile {}", file.display());
    let of = |text: &str| {
        std::fs::write(&file, text).unwrap();
        parse(&line)
    };
    let c = of("# all\n-n 2 ./a 'x y' \\\n : z # end\n\n-n 3 -env A b ./b\n").unwrap();
    assert!(c.inherited.label);
    assert_eq!((c.pes, &c.command[1]), (Some(2), &"x y".into()));
    assert_eq!(c.command.len(), 4);
    assert_eq!(
        (c.more[0].pes, &c.more[0].env[..]),
        (Some(3), &["A=b".into()][..])
    );
    for (text, told) in [
        ("# nothing", "no program"),
        ("a\n'b", "line 2: a quote"),
        ("--configfile x", "line 1"),
    ] {
        let e = of(text).unwrap_err().to_string();
        assert!(e.contains(told), "{text}: {e}");
    }
    std::fs::write(&file, "a").unwrap();
    assert!(parse(&format!("{line} b")).is_err());
    std::fs::remove_file(&file).unwrap();
    let e = parse(&line).unwrap_err().to_string();
    assert!(e.contains("shmrun-configfile"), "{e}");
}

#[test]
fn what_spawned_jobs_inherit_is_passed_on_as_it_was_typed() {
    let c = parse("shmrun -np 4 -N 2 -l -x A=b -x C --timeout 9 --genvnone prog x").unwrap();
    let want = [
        "--nodes=2",
        "--env=A=b",
        "--env=C",
        "--export=none",
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
        "shmrun --timeout 0 a",
        "shmrun --no-such a",
        "shmrun -n",
        "shmrun --settings a",
    ] {
        assert!(parse(line).is_err(), "{line}");
    }
    assert!(parse("shmrun --settings").unwrap().settings);
    let reports = parse("shmrun --report - --report f.json a").unwrap().report;
    assert_eq!(reports, ["-", "f.json"]);
}

#[test]
fn names_of_other_launchers_are_ours() {
    for (theirs, ours) in [
        ("-genvall", "--export all"),
        ("--genvnone", "--export=none"),
        ("-genvlist=A,B", "--export A,B"),
        ("-print-all-exitcodes --report-bindings", "-v"),
    ] {
        let parsed = |options| parse(&format!("shmrun {options} p")).unwrap();
        assert_eq!(parsed(theirs), parsed(ours), "{theirs}");
    }
    for export in ["ALL", "None"] {
        assert!(parse(&format!("shmrun --export={export} p")).is_ok());
    }
    for wrong in [
        "--export=",
        "--export=A,,B",
        "--export=A=1",
        "--export=all,A",
        "--genvall=x",
    ] {
        assert!(parse(&format!("shmrun {wrong} p")).is_err(), "{wrong}");
    }
    assert!(parse("shmrun -q -v p").unwrap().quiet);
    // Behind the program stands what belongs to it.
    assert_eq!(parse("shmrun p --spawn exec").unwrap().command.len(), 3);
}

#[test]
fn dropped_options_are_refused_with_what_replaces_them() {
    for (option, instead) in [
        ("--allocation none", "SHMEM_ALLOCATION=WHICH"),
        ("--spawn exec", "SHMEM_SPAWN=HOW"),
        ("--tree-degree=2", "SHMEM_TREE_DEGREE=K"),
        ("--report-json f", "--report FILE.json"),
        ("-no-progress", "--quiet"),
    ] {
        let refused = parse(&format!("shmrun {option} p")).unwrap_err();
        assert!(refused.to_string().contains(instead), "{refused}");
    }
}
