//! A program of which PE 1 tells what of its memory a core file would hold, and then crashes. The
//! other PEs wait for it.

use shmem_node::contract;
use shmem_node::segment::NodeView;
use shmem_node::sys;

fn main() -> Result<(), shmem::Error> {
    let fds = contract::offered_here().expect("shmrun has started this");
    let fds = fds.expect("of this version");
    let [tables, heap] =
        [fds.tables(), fds.heap()].map(|fd| sys::lent(fd).expect("not taken before init"));
    let node = NodeView::attach(tables, heap).expect("the node segment can be mapped");
    let _world = shmem::init()?;
    let word = shmem::alloc::<u64>(1)?;
    // Over the network, too, whose messages are made with the key.
    shmem::p(word, 1, shmem::n_pes() - 1);
    shmem::barrier_all();
    if shmem::my_pe() == 1 {
        tell(&node);
        std::process::abort();
    }
    shmem::barrier_all();
    Ok(())
}

fn tell(node: &NodeView) {
    // Turned around, so that this is no place where the key is found.
    let turned = node.job_key().iter().map(|byte| format!("{:02x}", !byte));
    println!("key {}", turned.collect::<String>());
    println!("segment {}", node.segment_len());
    let maps = std::fs::read_to_string("/proc/self/smaps").expect("the kernel tells of mappings");
    let (mut name, mut bytes) = ("", 0);
    for line in maps.lines() {
        let mut words = line.split_whitespace();
        match words.next() {
            Some("Size:") => {
                bytes = words.next().and_then(|n| n.parse().ok()).unwrap_or(0u64) << 10
            }
            Some("VmFlags:") => {
                let dumped = !words.any(|flag| flag == "dd");
                println!("mapping {name} {bytes} {dumped}");
            }
            Some(range) if range.contains('-') && !range.ends_with(':') => {
                name = words.find(|word| word.starts_with('/')).unwrap_or("-");
            }
            _ => {}
        }
    }
}
