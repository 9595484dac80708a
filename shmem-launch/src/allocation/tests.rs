//! Variables and files as batch systems have set them.

use std::collections::HashMap;

use proptest::prelude::*;

use super::*;

/// What there is to be found.
#[derive(Default)]
struct Place {
    vars: HashMap<&'static str, String>,
    files: HashMap<&'static str, String>,
    outputs: HashMap<&'static str, String>,
}

impl Surroundings for Place {
    fn var(&self, name: &str) -> Option<String> {
        self.vars.get(name).cloned()
    }

    fn file(&self, path: &str) -> io::Result<String> {
        let text = self.files.get(path).cloned();
        text.ok_or_else(|| io::ErrorKind::NotFound.into())
    }

    fn output(&self, words: &[&str]) -> Result<String, String> {
        let text = self.outputs.get(words.join(" ").as_str()).cloned();
        text.ok_or_else(|| "no such command".into())
    }

    fn command(&self, name: &str) -> Option<String> {
        self.files
            .contains_key(name)
            .then(|| format!("/opt/bin/{name}"))
    }
}

fn place(vars: &[(&'static str, &str)]) -> Place {
    Place {
        vars: vars.iter().map(|&(n, v)| (n, v.to_owned())).collect(),
        ..Place::default()
    }
}

fn found(place: &Place) -> Allocation {
    find(AllocationChoice::Auto, place).unwrap().unwrap()
}

fn refused(place: &Place) -> String {
    find(AllocationChoice::Auto, place).unwrap_err().to_string()
}

fn slots(a: &Allocation) -> Vec<(&str, Option<u32>)> {
    a.hosts.iter().map(|h| (h.name.as_str(), h.slots)).collect()
}

const SLURM: [(&str, &str); 7] = [
    ("SLURM_JOB_ID", "12"),
    ("SLURM_JOB_NODELIST", "n[1-4]"),
    ("SLURM_JOB_NUM_NODES", "4"),
    ("SLURM_NNODES", "4"),
    ("SLURM_JOB_CPUS_PER_NODE", "2(x4)"),
    ("SLURM_TASKS_PER_NODE", "2(x3),1"),
    ("SLURM_NTASKS", "7"),
];

#[test]
fn slurm_jobs_have_nodes_and_tasks() {
    let a = found(&place(&SLURM));
    let want = [
        ("n1", Some(2)),
        ("n2", Some(2)),
        ("n3", Some(2)),
        ("n4", Some(1)),
    ];
    assert_eq!(slots(&a), want);
    assert_eq!(
        (a.tasks, a.name().as_str(), a.own_name),
        (Some(7), "Slurm job 12", None)
    );
    assert!(
        a.source.contains("SLURM_JOB_NODELIST=n[1-4]"),
        "{}",
        a.source
    );
    // A batch script is on a node.
    let mut script = place(&SLURM);
    script.vars.insert("SLURMD_NODENAME", "n1".into());
    script.vars.insert("SLURM_PROCID", "0".into());
    assert_eq!(found(&script).own_name.as_deref(), Some("n1"));
    // salloc without -n.
    let mut bare = place(&SLURM);
    bare.vars.remove("SLURM_NTASKS");
    bare.vars.insert("SLURM_TASKS_PER_NODE", "1(x4)".into());
    assert_eq!(
        (found(&bare).tasks, found(&bare).hosts[3].slots),
        (None, Some(1))
    );
}

#[test]
fn a_slurm_step_is_not_the_job() {
    let mut step = place(&SLURM);
    for (name, value) in [
        ("SLURM_STEP_ID", "0"),
        ("SLURM_STEP_NUM_TASKS", "1"),
        ("SLURM_NTASKS", "1"),
        ("SLURM_TASKS_PER_NODE", "1"),
        ("SLURMD_NODENAME", "n1"),
    ] {
        step.vars.insert(name, value.into());
    }
    let a = found(&step);
    assert_eq!(
        (a.hosts.len(), a.tasks, a.hosts[3].slots),
        (4, None, Some(2))
    );
    step.vars.insert("SLURM_STEP_NUM_TASKS", "16".into());
    let e = refused(&step);
    assert!(
        e.contains("16 times") && e.contains("srun --mpi=pmi2 -n 16 PROGRAM"),
        "{e}"
    );
    let is_told = |step: &Place| {
        let e = find(AllocationChoice::Auto, step).unwrap_err();
        !e.is_told_by_another()
    };
    assert!(is_told(&step));
    step.vars.insert("SLURM_PROCID", "3".into());
    assert!(!is_told(&step));
    step.vars.insert("SLURM_PTY_PORT", "4711".into());
    assert_eq!(found(&step).hosts.len(), 4);
    // It is not asked what a job does that is not to be used.
    step.vars.remove("SLURM_PTY_PORT");
    assert_eq!(find(AllocationChoice::None, &step), Ok(None));
}

#[test]
fn what_slurm_says_wrongly_is_named() {
    for (name, value, part) in [
        (
            "SLURM_JOB_NODELIST",
            "n[1-",
            "SLURM_JOB_NODELIST=n[1-: 'n[1-' lacks a ]",
        ),
        ("SLURM_JOB_NODELIST", "", "SLURM_JOB_NODELIST is not set"),
        (
            "SLURM_NTASKS",
            "many",
            "SLURM_NTASKS=many: this is no number",
        ),
        (
            "SLURM_TASKS_PER_NODE",
            "2(x",
            "SLURM_TASKS_PER_NODE=2(x: '2(x' is no count",
        ),
    ] {
        let mut wrong = place(&SLURM);
        wrong.vars.insert(name, value.into());
        let e = refused(&wrong);
        assert!(
            e.contains(part) && e.contains("SHMEM_ALLOCATION=none"),
            "{e}"
        );
    }
}

#[test]
fn srun_is_told_all_that_variables_could_tell_it_otherwise() {
    let starter = found(&place(&SLURM)).starter(&place(&[]));
    let words = starter.words.join(" ");
    for part in [
        "--overlap",
        "--nodelist={host}",
        "--export=ALL",
        "--unbuffered",
        "--mem=0",
    ] {
        assert!(words.contains(part), "{words}");
    }
    assert!(words.ends_with(" {command}"));
    assert!(
        starter
            .without
            .iter()
            .any(|name| name == "SLURM_MEM_PER_CPU")
    );
    assert!(
        starter
            .without
            .iter()
            .all(|name| name != "SLURM_JOB_ID" && name != "SLURM_CONF")
    );
}

#[test]
fn pbs_lists_a_host_for_every_slot() {
    let mut pbs = place(&[("PBS_JOBID", "7.server"), ("PBS_NODEFILE", "/nodes")]);
    let e = refused(&pbs);
    assert!(e.contains("PBS_NODEFILE=/nodes: "), "{e}");
    pbs.files.insert("/nodes", "a.x\na.x\nb.x\n".into());
    let a = found(&pbs);
    assert_eq!(slots(&a), [("a.x", Some(2)), ("b.x", Some(1))]);
    assert_eq!((a.name().as_str(), a.tasks), ("PBS job 7.server", None));
    assert_eq!(a.starter(&pbs).before, [""; 0]);
    pbs.files.insert("pbs_attach", String::new());
    assert_eq!(
        a.starter(&pbs).before,
        ["/opt/bin/pbs_attach", "-j", "7.server"]
    );
    assert_eq!(a.by_name().get("a").unwrap().name, "a.x");
    assert_eq!(a.by_name().get("a.y"), None);
    pbs.files.insert("/nodes", "a\n-x\n".into());
    let e = refused(&pbs);
    assert!(
        e.contains("the PBS job: /nodes:2: '-x' cannot be the name"),
        "{e}"
    );
}

#[test]
fn lsf_lists_hosts_in_three_ways() {
    let mut lsf = place(&[("LSB_JOBID", "9")]);
    assert!(refused(&lsf).contains("neither LSB_DJOB_HOSTFILE nor LSB_MCPU_HOSTS"));
    let want = [("a", Some(2)), ("b", Some(1))];
    lsf.vars.insert("LSB_HOSTS", "a a b".into());
    assert_eq!(slots(&found(&lsf)), want);
    lsf.vars.insert("LSB_MCPU_HOSTS", "a 2 b 1 ".into());
    assert_eq!(slots(&found(&lsf)), want);
    lsf.vars.insert("LSB_DJOB_HOSTFILE", "/hosts".into());
    lsf.files.insert("/hosts", "a\na\nb\n".into());
    lsf.vars.insert("LSB_DJOB_NUMPROC", "3".into());
    let a = found(&lsf);
    assert_eq!((slots(&a), a.tasks), (want.to_vec(), Some(3)));
    assert!(!a.starts_everywhere());
    lsf.vars.remove("LSB_DJOB_HOSTFILE");
    lsf.vars.insert("LSB_MCPU_HOSTS", "a 2 b".into());
    assert!(refused(&lsf).contains("should alternate"));
    lsf.vars.insert("LSB_MCPU_HOSTS", "a two".into());
    assert!(refused(&lsf).contains("'two' is no number of slots"));
}

#[test]
fn grid_engine_has_slots_in_the_second_column() {
    let mut sge = place(&[("PE_HOSTFILE", "/pe"), ("JOB_ID", "5"), ("NSLOTS", "6")]);
    sge.files
        .insert("/pe", "a 4 all.q@a UNDEFINED\nb 2 all.q@b <NULL>\n".into());
    let a = found(&sge);
    assert_eq!(slots(&a), [("a", Some(4)), ("b", Some(2))]);
    assert_eq!((a.name().as_str(), a.tasks), ("Grid Engine job 5", Some(6)));
}

const R: &str = r#"{"version": 1, "execution": {"R_lite": [{"rank": "0-1,3", "children": {"core": "0-1"}},
    {"rank": "2", "children": {"core": "0,2-4", "gpu": "0"}}], "starttime": 0.0, "expiration": 0.0,
    "nodelist": ["vm,vm[7-8]", "x"]}}"#;

#[test]
fn flux_has_brokers_with_ranks() {
    let mut flux = place(&[
        ("FLUX_URI", "local:///tmp/f/local-0"),
        ("SLURM_JOB_ID", "12"),
    ]);
    assert!(refused(&flux).contains("flux resource R: no such command"));
    flux.outputs.insert("flux resource R", R.into());
    let a = found(&flux);
    let want = [
        ("vm", Some(2)),
        ("vm7", Some(2)),
        ("vm8", Some(4)),
        ("x", Some(2)),
    ];
    assert_eq!(slots(&a), want);
    for (wrong, part) in [
        ("", "EOF"),
        ("{}", "it has no execution"),
        (
            &R.replace("\"rank\": \"2\"", "\"rank\": 2"),
            "rank is no text",
        ),
        (&"[".repeat(1 << 20), "nested more than 64 levels"),
        (&R.replace("vm,vm[7-8]", "vm"), "names 2 hosts for 4 ranks"),
        (&R.replace("0-1,3", "0-x"), "is no range"),
    ] {
        flux.outputs.insert("flux resource R", wrong.into());
        let e = refused(&flux);
        assert!(
            e.contains(part) && e.contains("local:///tmp/f/local-0"),
            "{e}"
        );
    }
    flux.vars.insert("FLUX_JOB_ID", "f3".into());
    assert!(refused(&flux).contains("task of Flux job f3, which has no instance"));
    flux.vars.insert("FLUX_JOB_SIZE", "4".into());
    assert!(refused(&flux).contains("flux run -n 4 PROGRAM"));
}

#[test]
fn a_certain_one_or_none_can_be_asked_for() {
    let none = place(&[("PBS_NODEFILE", "/left/over"), ("LSB_HOSTS", "a")]);
    assert_eq!(find(AllocationChoice::Auto, &none), Ok(None));
    let e = find(AllocationChoice::Of(Batch::Slurm), &none).unwrap_err();
    assert_eq!(
        e.to_string(),
        "this is no Slurm job: SLURM_JOB_ID is not set"
    );
    let slurm = place(&SLURM);
    assert!(
        find(AllocationChoice::Of(Batch::Slurm), &slurm)
            .unwrap()
            .is_some()
    );
    assert!(find(AllocationChoice::Of(Batch::Flux), &slurm).is_err());
    assert_eq!(find(AllocationChoice::None, &slurm), Ok(None));
}

proptest! {
    #[test]
    fn no_value_panics(values in proptest::collection::vec("[a0-9\\[\\](),x -]{0,16}", 6), text in ".*") {
        let mut any = place(&[("SLURM_JOB_ID", "1"), ("LSB_JOBID", "1"), ("PBS_JOBID", "1"), ("PBS_NODEFILE", "/f")]);
        let names = ["SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE", "SLURM_NTASKS", "LSB_MCPU_HOSTS", "LSB_HOSTS", "NSLOTS"];
        any.vars.extend(names.into_iter().zip(values));
        any.files.insert("/f", text.clone());
        any.outputs.insert("flux resource R", text.clone());
        for batch in [Batch::Slurm, Batch::Lsf, Batch::Pbs] {
            let _ = find(AllocationChoice::Of(batch), &any);
        }
        any.vars.insert("FLUX_URI", "u".into());
        any.vars.insert("PE_HOSTFILE", "/f".into());
        for batch in [Batch::Flux, Batch::Sge] {
            let _ = find(AllocationChoice::Of(batch), &any);
        }
    }
}
