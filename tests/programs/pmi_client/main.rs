//! A program that speaks PMI without any library. Its first argument says which version (`1`, `2`, or
//! `12`: odd ranks speak 1 and even ones 2), its second what it does.

mod trouble;
mod wire;

use std::process::exit;
use std::time::Duration;

use wire::{Pmi, Program, V1, V2, rank, size, var};

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let (version, what) = (args[0].as_str(), args[1].as_str());
    if trouble::happened(version, what) {
        return;
    }
    if what == "threads" {
        return threads(V2::init());
    }
    if what == "nodes" {
        return nodes(V2::init());
    }
    let first = match version {
        "12" => rank() % 2 == 1,
        version => version == "1",
    };
    let mut pmi: Box<dyn Pmi> = match first {
        true => Box::new(V1::init()),
        false => Box::new(V2::init()),
    };
    let pmi = pmi.as_mut();
    // What a parent has said before its children fail, is said.
    if std::env::var_os("PMI_SPAWNED").is_some() && matches!(what, "exit" | "abort") {
        while pmi.lookup("said").is_none() {
            std::thread::sleep(Duration::from_millis(5));
        }
    }
    match what {
        "exchange" => exchange(pmi),
        "unknown" => {
            pmi.nonsense();
            exchange(pmi);
        }
        "names" => names(pmi),
        "spawn" => spawn(pmi, version),
        "child" => child(pmi, version),
        "grandchild" => grandchild(pmi),
        "spawn-two" => spawn_two(pmi, version),
        "one-of-two" => one_of_two(pmi, &args[2]),
        "spawn-nothing" => spawn_nothing(pmi),
        "spawn-to-fail" => spawn_to_fail(pmi, version, &args[2]),
        "exit" => {
            pmi.fence();
            exit(args[2].parse().expect("a status"));
        }
        "abort" if rank() == size() - 1 => pmi.abort(args[2].parse().expect("a status"), "enough"),
        "abort" => pmi.fence(),
        "sleep" => std::thread::sleep(Duration::from_secs(1000)),
        "respawn" => respawn(pmi),
        other => panic!("{other}?"),
    }
    pmi.finalize();
}

fn me() -> String {
    let path = std::env::current_exe().expect("a path");
    path.to_str().expect("text").to_owned()
}

/// Everybody puts, everybody gets everything.
fn exchange(pmi: &mut dyn Pmi) {
    let (rank, size) = (rank(), size());
    assert_eq!(var("PMI_ID"), var("PMI_RANK"));
    let (local, locals): (usize, usize) = (
        var("MPI_LOCALRANKID").parse().expect("a number"),
        var("MPI_LOCALNRANKS").parse().expect("a number"),
    );
    assert!(local < locals && locals <= size);
    for round in 0..3 {
        let key = |rank| format!("round-{round}-of-{rank}");
        pmi.put(&key(rank), &format!("value={}", 100 * rank + round));
        assert_eq!(pmi.get("nobody-puts-this"), None);
        pmi.fence();
        for other in 0..size {
            let value = pmi.get(&key(other));
            assert_eq!(value, Some(format!("value={}", 100 * other + round)));
        }
    }
    let mapping = pmi.get("PMI_process_mapping");
    // PMI-2 has another command for it.
    assert!(mapping.is_none_or(|m| m.starts_with("(vector,(")));
    pmi.fence();
    println!("rank {rank} of {size} has all");
}

/// The first publishes, the last, perhaps on another node, looks up.
fn names(pmi: &mut dyn Pmi) {
    let (first, last) = (rank() == 0, rank() == size() - 1);
    if first {
        assert!(pmi.publish("service", "port-of-service"));
        assert!(!pmi.publish("service", "another-port"));
    }
    pmi.fence();
    if last {
        assert_eq!(pmi.lookup("service").as_deref(), Some("port-of-service"));
        assert_eq!(pmi.lookup("no-such-service"), None);
        assert!(pmi.unpublish("service"));
        assert!(!pmi.unpublish("service"));
    }
    pmi.fence();
    if first {
        assert_eq!(pmi.lookup("service"), None);
    }
    println!("names of rank {}", rank());
}

/// A name that another job publishes.
fn await_name(pmi: &mut dyn Pmi, name: &str) -> String {
    loop {
        if let Some(port) = pmi.lookup(name) {
            return port;
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Spawns three children, and talks with them through names.
fn spawn(pmi: &mut dyn Pmi, version: &str) {
    if rank() == 0 {
        let me = me();
        let program = Program {
            name: &me,
            args: vec![version, "child", "two words"],
            procs: 3,
            info: vec![("wdir", "/"), ("no_such_key", "x")],
        };
        let preputs = [("PARENT", "a-port-of-the-parent"), ("SECOND", "2")];
        pmi.spawn(&[program], &preputs).expect("a job");
        assert_eq!(await_name(pmi, "child"), "child-of-3");
        assert!(pmi.publish("parent", "heard"));
        assert_eq!(await_name(pmi, "grandchild"), "deep");
        println!("parent is content");
    }
    pmi.fence();
}

fn child(pmi: &mut dyn Pmi, version: &str) {
    assert_eq!(var("PMI_SPAWNED"), "1");
    assert_eq!(std::env::args().nth(3).as_deref(), Some("two words"));
    assert_eq!(
        std::env::current_dir().expect("a directory").to_str(),
        Some("/")
    );
    assert_eq!(pmi.get("PARENT").as_deref(), Some("a-port-of-the-parent"));
    assert_eq!(pmi.get("SECOND").as_deref(), Some("2"));
    exchange(pmi);
    if rank() == 1 {
        assert!(pmi.publish("child", &format!("child-of-{}", size())));
        assert_eq!(await_name(pmi, "parent"), "heard");
        let me = me();
        let program = Program {
            name: &me,
            args: vec![version, "grandchild"],
            procs: 1,
            info: vec![],
        };
        pmi.spawn(&[program], &[]).expect("a grandchild");
    }
    pmi.fence();
}

fn grandchild(pmi: &mut dyn Pmi) {
    assert!(pmi.publish("grandchild", "deep"));
    // A job's names go with it, so it waits until this one was taken.
    std::thread::sleep(Duration::from_millis(500));
    println!("grandchild");
}

/// Two programs in one spawned job.
fn spawn_two(pmi: &mut dyn Pmi, version: &str) {
    let me = me();
    let program = |which, procs| Program {
        name: &me,
        args: vec![version, "one-of-two", which],
        procs,
        info: vec![],
    };
    pmi.spawn(&[program("0", 2), program("1", 3)], &[("K", "V")])
        .expect("a job");
}

fn one_of_two(pmi: &mut dyn Pmi, which: &str) {
    assert_eq!(size(), 5);
    assert_eq!(which == "0", rank() < 2);
    assert_eq!(pmi.appnum().to_string(), which);
    assert_eq!(pmi.get("K").as_deref(), Some("V"));
    exchange(pmi);
}

/// Jobs that cannot be: the parent hears of it and goes on.
fn spawn_nothing(pmi: &mut dyn Pmi) {
    for (name, info) in [
        ("/no/such/program", vec![]),
        ("no-such-program", vec![]),
        ("/etc/passwd", vec![]),
        ("/bin/true", vec![("wdir", "/no/such/directory")]),
    ] {
        let program = Program {
            name,
            args: vec![],
            procs: 1,
            info,
        };
        let refused = pmi.spawn(&[program], &[]).expect_err(name);
        println!("{name}: {refused}");
    }
    pmi.fence();
}

/// A job that ends as `how` says, while its parent waits.
fn spawn_to_fail(pmi: &mut dyn Pmi, version: &str, how: &str) {
    let me = me();
    let (what, code) = how.split_once(':').unwrap_or((how, "0"));
    let program = Program {
        name: &me,
        args: vec![version, what, code],
        procs: 2,
        info: vec![],
    };
    if rank() == 0 {
        pmi.spawn(&[program], &[]).expect("a job");
        println!("spawned");
        assert!(pmi.publish("said", "all"));
    }
    std::thread::sleep(Duration::from_secs(1000));
}

/// Rank 1 dies twice between operations; whoever takes its place goes on.
fn respawn(pmi: &mut dyn Pmi) {
    let life: usize = match std::env::var("PMI_RESPAWNED") {
        Ok(count) => count.parse().expect("a number"),
        Err(_) => 0,
    };
    // Each life of rank 1 joins one of the three operations.
    let rounds = match rank() == 1 && life < 2 {
        true => life..life + 1,
        false if rank() == 1 => 2..3,
        false => 0..3,
    };
    for round in rounds {
        pmi.put(&format!("{round}-of-{}", rank()), &format!("life-{life}"));
        pmi.fence();
    }
    if rank() == 1 && life < 2 {
        std::process::abort();
    }
    for round in 0..3 {
        let value = pmi.get(&format!("{round}-of-1"));
        assert_eq!(value, Some(format!("life-{round}")));
        assert_eq!(pmi.get(&format!("{round}-of-0")).as_deref(), Some("life-0"));
    }
    println!("rank {} in life {life}", rank());
}

/// Node attributes: known on this node and nowhere else, and waited for.
fn nodes(mut pmi: V2) {
    let (local, locals) = (var("MPI_LOCALRANKID"), var("MPI_LOCALNRANKS"));
    let (local, locals): (u32, u32) = (local.parse().unwrap(), locals.parse().unwrap());
    let first = rank() - local as usize;
    let reply = pmi.ask("cmd=info-getnodeattr;key=nobody-puts-this;wait=FALSE;");
    assert_eq!(reply["found"], "FALSE");
    if local == locals - 1 {
        std::thread::sleep(Duration::from_millis(50));
        let reply = pmi.ask(&format!(
            "cmd=info-putnodeattr;key=first;value=rank-{first};"
        ));
        assert_eq!(reply["rc"], "0");
    }
    let reply = pmi.ask("cmd=info-getnodeattr;key=first;wait=TRUE;");
    assert_eq!(reply["value"], format!("rank-{first}"));
    let reply = pmi.ask("cmd=info-getjobattr;key=PMI_process_mapping;");
    println!("rank {} {}", rank(), reply["value"]);
    pmi.finalize();
}

/// Several threads of one process: a reply that is withheld holds nobody else up.
fn threads(mut pmi: V2) {
    let own = format!("own-{}", rank());
    pmi.send(&format!(
        "cmd=info-getnodeattr;thrid=a;key={own};wait=TRUE;"
    ));
    pmi.send("cmd=kvs-put;thrid=b;key=k;value=v;");
    let reply = pmi.read();
    assert_eq!(
        (&reply["cmd"][..], &reply["thrid"][..]),
        ("kvs-put-response", "b")
    );
    pmi.send("cmd=kvs-fence;thrid=c;");
    let fenced = pmi.read();
    assert_eq!(fenced["thrid"], "c");
    pmi.send("cmd=name-lookup;thrid=d;name=nobody;infokeycount=0;");
    let reply = pmi.read();
    assert_eq!((&reply["thrid"][..], reply["rc"] == "0"), ("d", false));
    pmi.send(&format!("cmd=info-putnodeattr;thrid=e;key={own};value=w;"));
    let mut replies = [pmi.read(), pmi.read()];
    replies.sort_by_key(|r| r["thrid"].clone());
    assert_eq!(
        (&replies[0]["thrid"][..], &replies[0]["value"][..]),
        ("a", "w")
    );
    assert_eq!(replies[1]["thrid"], "e");
    println!("threads of rank {}", rank());
    pmi.finalize();
}
