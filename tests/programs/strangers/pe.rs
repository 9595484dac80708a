//! A PE that checks what it reads.

use std::fs;
use std::process::Command;
use std::thread::sleep;

use shmem_node::contract;
use shmem_node::segment::NodeView;
use shmem_node::sys;

use crate::{PAUSE, ended, say, watch_input};

/// Long enough for a stream.
const LONG: usize = 128 << 10;

/// The job's key, with all bits turned around, so that no other place than the job's own holds the key itself.
fn turned_key() -> String {
    let fds = contract::offered_here().expect("shmrun has started this");
    let fds = fds.expect("of this version");
    let [tables, heap] =
        [fds.tables(), fds.heap()].map(|fd| sys::lent(fd).expect("not taken before init"));
    let node = NodeView::attach(tables, heap).expect("the node segment can be mapped");
    let turned = node.job_key().iter().map(|byte| format!("{:02x}", !byte));
    turned.collect()
}

/// What the descriptors of this process lead to, but for standard input, output and error, the socket for PMI, which is left to
/// any library that speaks PMI, and the folder that is read here.
pub(crate) fn descriptors() -> Vec<String> {
    let pmi = std::env::var("PMI_FD").expect("the number of a descriptor");
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc/self/fd").expect("/proc") {
        let path = entry.expect("a descriptor").path();
        let number = path.file_name().and_then(|name| name.to_str());
        let known = number.is_some_and(|n| ["0", "1", "2", &pmi].contains(&n));
        let link = fs::read_link(&path).expect("a link");
        if !known && !link.starts_with("/proc") {
            found.push(format!("{number:?} {}", link.display()));
        }
    }
    found
}

pub(crate) fn pe() -> Result<(), shmem::Error> {
    let key = turned_key();
    let world = shmem::init()?;
    let (me, n) = (world.my_pe(), world.n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let words = shmem::alloc::<u64>(3)?;
    let [inbox, counter, stop] = [0, 1, 2].map(|i| words.elem(i));
    let bulk = shmem::alloc::<u8>(LONG)?;
    if me == 0 {
        let program = std::env::current_exe().expect("a path");
        let child = Command::new(program).arg("child").status();
        assert!(child.expect("a child").success());
        watch_input();
        say(&format!("key {key}"));
    }
    for round in 0u64.. {
        let value = |pe: usize| round * 1000 + pe as u64;
        let byte = |pe: usize| (round as u8).wrapping_mul(7).wrapping_add(pe as u8);
        let long = round % 16 == 0;
        shmem::p(inbox, value(me), right);
        assert_eq!(shmem::atomic_fetch_add(counter, 1, right), round);
        if long {
            shmem::put(bulk, &vec![byte(me); LONG], right);
        }
        if me == 0 && ended() {
            (0..n).for_each(|pe| shmem::p(stop, 1, pe));
        }
        world.barrier();
        assert_eq!(shmem::g(inbox, me), value(left));
        assert_eq!(shmem::g(inbox, right), value(me));
        if long {
            let mut got = vec![0; LONG];
            shmem::get(&mut got, bulk, me);
            assert!(got.iter().all(|b| *b == byte(left)), "PE {me}, {round}");
        }
        let over = shmem::g(stop, me) == 1;
        world.barrier();
        if over {
            break;
        }
        if me == 0 && round == 20 {
            say("running");
        }
        sleep(PAUSE);
    }
    say("ok");
    Ok(())
}
