//! A program that a template can fork, without the OpenSHMEM library: what the tests of the launcher
//! start when they look at template start and at PEs that misbehave.
//!
//! `probe WORD..` does what the words say, in order.

use std::io::Write;
use std::os::unix::net::UnixStream;
use std::time::Duration;

use shmem_node::contract;
use shmem_node::pe_block::PeState;
use shmem_node::segment::NodeView;
use shmem_node::sys;
use shmem_node::template::marker::Note;

#[used]
#[unsafe(link_section = ".note.shmem")]
static NOTE: Note = Note::CURRENT;

#[used]
#[unsafe(link_section = ".init_array")]
static CONSTRUCTOR: extern "C" fn() = {
    extern "C" fn run() {
        shmem_node::template::constructor(|| {});
    }
    run
};

fn variable(name: &str) -> u32 {
    std::env::var(name)
        .ok()
        .and_then(|v| v.parse().ok())
        .unwrap_or_else(|| panic!("{name} is not set"))
}

fn main() {
    let fds = contract::offered_here().expect("shmrun has started this");
    let fds = fds.expect("of this version");
    let [tables, heap] =
        [fds.tables(), fds.heap()].map(|fd| sys::lent(fd).expect("an open descriptor"));
    let view = NodeView::attach(tables, heap).expect("the node segment can be mapped");
    let (rank, local) = (variable("PMI_RANK"), variable("SHMEM_LOCAL_RANK"));
    assert_eq!(view.ranks()[local as usize], rank);
    let block = view.pe_block(local as usize);
    let mut args = std::env::args().skip(1);
    while let Some(word) = args.next() {
        match word.as_str() {
            "init" => block.set_state(PeState::Running),
            "finalize" => block.set_state(PeState::Finalized),
            "place" => println!("PE {rank} of {} on node {}", view.n_pes(), view.node()),
            "pid" => println!(
                "{} child of {}",
                std::process::id(),
                std::os::unix::process::parent_id()
            ),
            "echo" => std::io::copy(&mut std::io::stdin(), &mut std::io::stdout())
                .map(drop)
                .unwrap(),
            "sleep" => std::thread::sleep(Duration::from_secs(1000)),
            "garbage" => {
                // SAFETY: shmrun leaves this descriptor open and nobody else here owns it.
                let mut pmi =
                    unsafe { <UnixStream as std::os::fd::FromRawFd>::from_raw_fd(fds.pmi()) };
                pmi.write_all(b"this is no PMI\n").unwrap();
                std::mem::forget(pmi);
            }
            "signals" => {
                let status = std::fs::read_to_string("/proc/self/status").unwrap();
                let line = status.lines().find(|l| l.starts_with("SigIgn"));
                println!("{}", line.unwrap());
            }
            "processors" => {
                let status = std::fs::read_to_string("/proc/self/status").unwrap();
                let name = "Cpus_allowed_list:";
                let list = status.lines().find_map(|l| l.strip_prefix(name));
                let kept = std::env::vars().any(|(name, _)| name == "SHMEM_BINDINGS");
                println!("{rank} {} {kept}", list.unwrap().trim());
            }
            "descriptors" => {
                let open: Vec<_> = std::fs::read_dir("/proc/self/fd")
                    .unwrap()
                    .filter_map(|e| e.ok()?.file_name().into_string().ok())
                    .collect();
                println!("{} descriptors", open.len());
            }
            // What follows is for one PE only.
            "only" => {
                let which: u32 = args.next().and_then(|a| a.parse().ok()).expect("a rank");
                if which != rank {
                    args.next();
                }
            }
            "leave" => return,
            other => panic!("probe does not know {other}"),
        }
    }
}
