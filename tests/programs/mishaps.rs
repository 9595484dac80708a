//! A program that goes wrong as its first argument says. The other PEs wait for it in a barrier.

use std::os::fd::{AsFd, AsRawFd};
use std::process::exit;

use shmem::{
    Cmp, Lock, SymSlice, ThreadLevel, World, alloc, alltoall, barrier_all, fcollect, my_pe, raw,
    wait_until,
};
use shmem_node::contract;
use shmem_node::sys;
use shmem_node::to_agent::{MESSAGE_MAX, ToAgent};

/// Long enough for most orders of events to be as meant; none is wrong.
const MOMENT: std::time::Duration = std::time::Duration::from_millis(300);

/// Number of this PE before init.
fn rank() -> usize {
    let rank = std::env::var("PMI_RANK").expect("started by shmrun");
    rank.parse().expect("a number")
}

/// An error that another one caused.
#[derive(Debug)]
struct Caused(std::fmt::Error);

impl std::fmt::Display for Caused {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("PE 0 has had enough")
    }
}

impl std::error::Error for Caused {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        Some(&self.0)
    }
}

/// What PE 0 does while the others wait; or, for the lonely ones, all that happens.
fn main() -> Result<(), shmem::Error> {
    let mishap = std::env::args().nth(1).expect("the name of a mishap");
    match mishap.as_str() {
        "call-before-init" => println!("PE {}", my_pe()),
        "global-exit-before-init" => shmem::global_exit(6),
        // As on a node that has an RDMA device where the others have none: a software HCA that talks to
        // devices does not talk to other software HCAs.
        "two-fabrics" | "two-fabrics-at-exit" => set_on_pe_0("SHMEM_SOFT_INTEROP", "yes"),
        // As with devices of two makes, of which one has atomics that are coherent with processors.
        // PE 1 ends without init, before the others come to theirs or while they wait in it.
        "never-init" if rank() != 1 => std::thread::sleep(MOMENT),
        "never-init" => return Ok(()),
        "never-init-late" if rank() == 1 => {
            std::thread::sleep(MOMENT);
            return Ok(());
        }
        "packet-empty" | "packet-long" | "many-words" if rank() == 1 => says(&mishap),
        "check-not" => set_on_pe_0("SHMEM_CHECK", "0"),
        "check-alone" => set_on_pe_0("SHMEM_CHECK", "1"),
        "two-ways-of-atomics" => set_on_pe_0("SHMEM_ATOMICS", "owner"),
        // SAFETY: the function does not unwind.
        "exit-seen-first" if rank() < 2 => unsafe {
            libc::atexit(end_of_exit);
        },
        "own-hook" => {
            std::panic::set_hook(Box::new(|info| eprintln!("the program's hook: {info}")))
        }
        _ => {}
    }
    // As a program of `run`, where all fail alike, or PE 0 alone while the others wait.
    if let Some(which) = mishap.strip_prefix("run-") {
        let given = shmem::run(|world| match (which, world.my_pe()) {
            ("all-fail", _) | ("error", 0) => Err(Caused(std::fmt::Error).into()),
            _ => {
                barrier_all();
                Ok(world.n_pes())
            }
        });
        assert!(given > 1 && !shmem::initialized());
        return Ok(());
    }
    let world = match mishap.as_str() {
        "lock-twice" => shmem::init_thread(ThreadLevel::Serialized)?,
        _ => shmem::init()?,
    };
    match mishap.as_str() {
        // What is left to finalize is finalized at the exit, and fails there.
        "init-only" | "two-fabrics-at-exit" => return Ok(()),
        "wrong-thread" => wrong_thread(world)?,
        "one-life-less" => {
            let (first, me) = (shmem::node_of(my_pe()) == 0, my_pe());
            world.finalize();
            if first && me != 0 {
                return Ok(());
            }
            drop(shmem::init()?);
        }
        "first-node-less" | "other-nodes-less" => {
            let first = shmem::node_of(my_pe()) == 0;
            world.finalize();
            if first == (mishap == "first-node-less") {
                return Ok(());
            }
            drop(shmem::init()?);
        }
        "call-after-finalize" => {
            let array = alloc::<u64>(1)?;
            world.finalize();
            array.write(0, 1);
        }
        "context-of-a-life-before" => {
            let ctx = shmem::context().create()?;
            world.finalize();
            let _world = shmem::init()?;
            let array = alloc::<u64>(1)?;
            ctx.put(array, &[1], 0);
        }
        // Goes along no tree.
        "check-not" | "check-alone" => drop(world.sum(1)),
        "two-threads-meet" => two_threads_meet(),
        _ => in_company(&mishap, world)?,
    }
    Ok(())
}

/// The child of a PE takes its place in a barrier, or tries to. Then all meet.
fn meet_as_child() -> Result<(), shmem::Error> {
    if my_pe() == 0 {
        let mut status = 0;
        // SAFETY: the child calls the library, as it must not, and ends; the parent waits for it.
        unsafe {
            let child = libc::fork();
            if child == 0 {
                barrier_all();
                libc::_exit(0);
            }
            libc::waitpid(child, &mut status, 0);
        }
        assert!(libc::WIFEXITED(status) && libc::WEXITSTATUS(status) == 1);
    }
    barrier_all();
    Ok(())
}

extern "C" fn exit_handler() {
    eprintln!("an exit handler runs");
}

/// The sockets of this PE's network become something else, which the progress thread finds out: this thread computes. An
/// exit handler must not run beside it; what it has written must not be lost.
fn break_sockets() {
    // SAFETY: the function does not unwind.
    unsafe { libc::atexit(exit_handler) };
    print!("PE 0 was here");
    let null = std::fs::File::open("/dev/null").expect("it is everywhere");
    for fd in 3..256 {
        let (mut domain, mut len) = (0, size_of::<libc::c_int>() as libc::socklen_t);
        let at = (&raw mut domain).cast();
        // SAFETY: the call writes a number of that size, or fails.
        let got = unsafe { libc::getsockopt(fd, libc::SOL_SOCKET, libc::SO_DOMAIN, at, &mut len) };
        if got == 0 && domain != libc::AF_UNIX {
            // SAFETY: the descriptor is the library's, which is to find that.
            unsafe { libc::dup2(null.as_raw_fd(), fd) };
        }
    }
    loop {
        std::thread::park();
    }
}

/// One PE fails, and all others would wait for it for ever.
fn in_company(mishap: &str, world: World) -> Result<(), shmem::Error> {
    let array = alloc::<u64>(4)?;
    if mishap.starts_with("all-global-exit-") {
        shmem::global_exit(number(mishap));
    }
    match mishap {
        "all-panic" => fail_alike(),
        "all-panic-apart" => panic!("PE {} of {} fails", my_pe(), shmem::n_pes()),
        "own-hook" | "all-panic-and-catch" => {
            std::panic::catch_unwind(fail_alike).expect_err("it fails");
            barrier_all();
            return Ok(());
        }
        "forked-child" => return meet_as_child(),
        "operation-panics" => {
            // Whichever PE combines, for the others.
            let add = |_: u64, _: u64| -> u64 { panic!("nobody can add") };
            let _ = std::panic::catch_unwind(|| world.reduce_value(1, add));
            barrier_all();
        }
        "socket-breaks" if my_pe() == 0 => break_sockets(),
        "socket-breaks" => {
            std::thread::sleep(MOMENT);
            shmem::p(array, 1, 0);
        }
        "all-ask-for-no-such-pe" => shmem::p(array, 1, 1 << 20),
        "two-arrays-for-lengths" => {
            let n = shmem::n_pes();
            let works = [alloc::<u64>(3 * n)?, alloc::<u64>(3 * n)?];
            for work in works {
                work.fill(0);
                // Places of parts that nobody has asked for.
                work.at(2 * n..).fill(1 << 40);
            }
            barrier_all();
            world.alltoallv_into(array, &vec![[1]; n], works[my_pe() % 2]);
        }
        // What the root scatters is taken for places of parts that do not exist.
        "two-ways-to-scatter" => {
            let places = vec![[0, 1 << 20, 0usize]; shmem::n_pes()];
            match my_pe() {
                0 => drop(world.scatter(&places, 0)),
                _ => drop(world.scatter_parts::<u8>(&[[]; 0], 0)),
            }
        }
        // As above, of so many that their bytes are no number.
        "two-ways-to-scatter-more" => {
            let places = vec![[0, 1 << 20, 1usize << 61]; shmem::n_pes()];
            match my_pe() {
                0 => drop(world.scatter(&places, 0)),
                _ => drop(world.scatter_parts::<u64>(&[[]; 0], 0)),
            }
        }
        _ => {}
    }
    let mut world = Some(world);
    let alone = shmem::Team::world().split_strided(0, 1, 1)?;
    if my_pe() == 0 {
        match mishap {
            "exit-0" => exit(0),
            "exit-3" => exit(3),
            "exit-seen-first" => exit(7),
            "panic" => panic!("PE 0 loses its nerve"),
            "panic-in-thread" => {
                let thread = std::thread::spawn(|| panic!("a thread loses its nerve"));
                thread.join().expect("the thread is fine");
            }
            _ if mishap.starts_with("global-exit-") => shmem::global_exit(number(mishap)),
            "forget-world" => {
                std::mem::forget(world.take());
                return Ok(());
            }
            // Leaves `main` with an error, and its `World` is dropped on the way.
            "early-error" => Err(shmem::Error::Launch("PE 0 has had enough".into()))?,
            "no-such-pe" => shmem::p(array, 1, 1 << 20),
            "no-such-member" => {
                let alone = alone.expect("PE 0 is in");
                let ctx = shmem::context().team(&alone).create()?;
                ctx.put(array, &[1], 1);
            }
            "no-such-pe-to-complete" => shmem::pe_quiet(&[0, 77]),
            "misaligned-atomic" => {
                let word = raw::symmetric(array.as_ptr().cast(), 8).expect("it is symmetric");
                let op = raw::AtomicOp::Add(1);
                let ctx = raw::Ctx::default_ctx();
                // SAFETY: what is wrong with the address is found.
                unsafe { raw::atomic(ctx, word.at(4), raw::Width::W8, op, 0) };
            }
            "stride-less-than-block" => shmem::ibput(array, &[1, 2], 1, 2, (2, 1), 0),
            "past-the-end" => shmem::put(array, &[1; 5], 0),
            "alltoall-too-long" => alltoall(array, array, usize::MAX / 2 + 1),
            "no-such-root" => shmem::broadcast(array, array, 9),
            "fcollect-too-long" => fcollect(array, array),
            "lock-twice" => {
                // A lock may be tried in vain, and its guard may be dropped by another thread.
                let lock = Lock::at(array.elem(0));
                let held = lock.lock();
                assert!(lock.try_lock().is_none());
                let thread = std::thread::spawn(|| drop(held));
                thread.join().expect("it lets go");
                drop([lock.lock(), lock.lock()]);
            }
            "unlock-free-lock" => {
                let word = raw::symmetric(array.as_ptr().cast(), 8).expect("it is symmetric");
                // SAFETY: a word for a lock.
                unsafe { raw::lock_clear(word) };
            }
            "two-fabrics" | "two-ways-of-atomics" => shmem::p(array, 1, shmem::n_pes() - 1),
            "wait-for-ever" => {
                wait_until(array.elem(0), Cmp::Eq, 1);
            }
            other => panic!("there is no mishap {other}"),
        }
    }
    if mishap == "wait-for-ever" && my_pe() == 1 {
        exit(4);
    }
    if mishap == "exit-seen-first" && my_pe() == 1 {
        while !exit_begins().exists() {
            std::thread::sleep(std::time::Duration::from_millis(1));
        }
        exit(14);
    }
    if mishap == "early-error" {
        wait_until(array.elem(0), Cmp::Eq, 1);
    }
    barrier_all();
    Ok(())
}

/// The file by which PE 1 hears that PE 0 exits, as it would by connections of other libraries that close.
fn exit_begins() -> std::path::PathBuf {
    std::env::var_os("MISHAP_FILE")
        .expect("the path of a file")
        .into()
}

/// Comes behind what the library does at the exit. PE 0 does not come to its end before PE 1 has failed of it.
extern "C" fn end_of_exit() {
    let file = exit_begins();
    if rank() == 1 {
        let _ = std::fs::remove_file(file);
        return;
    }
    let _ = std::fs::write(&file, "");
    while file.exists() {
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    std::thread::sleep(MOMENT);
}

/// What PE 1 says to its agent over the socket that the PEs share, without init.
fn says(mishap: &str) -> ! {
    let fds = contract::offered_here().expect("shmrun has started this");
    let fds = fds.expect("of this version");
    let socket = sys::inherit(fds.agent()).expect("a socket to the agent");
    let say = |said: ToAgent<'_>| said.send(socket.as_fd()).expect("the agent reads");
    let (local, adds) = (1, false);
    let text = "";
    let mut packet = ToAgent::Tell { local, text, adds }.encode();
    match mishap {
        "packet-empty" => packet.clear(),
        "packet-long" => packet.resize(MESSAGE_MAX + 1, b'x'),
        _ => {
            for word in 0..MANY {
                let text = &format!("word {word};");
                say(ToAgent::Tell { local, text, adds });
            }
            say(ToAgent::Abort {
                local,
                status: 6,
                text: "the last word",
            });
            exit(6);
        }
    }
    sys::send_now(socket.as_fd(), &packet).expect("room for a packet");
    loop {
        std::thread::sleep(MOMENT);
    }
}

/// More than a socket holds.
const MANY: usize = 2000;

/// An assertion that holds on no PE.
#[inline(never)]
fn fail_alike() {
    assert_eq!(shmem::n_pes(), 0, "nobody is\nwanted");
}

/// At the end of the name.
fn number(mishap: &str) -> i32 {
    let digits = mishap.rsplit('-').next();
    digits.and_then(|d| d.parse().ok()).expect("a number")
}

/// Only the thread that initialises may call, and PE 0 does otherwise.
fn wrong_thread(world: World) -> Result<(), shmem::Error> {
    world.finalize();
    let _world = shmem::init_thread(shmem::ThreadLevel::Funneled)?;
    assert_eq!(shmem::thread_level(), Some(shmem::ThreadLevel::Funneled));
    if my_pe() == 0 {
        let thread = std::thread::spawn(|| shmem::initialized().then(my_pe));
        thread.join().expect("a call of another thread");
    }
    barrier_all();
    Ok(())
}

/// A setting that differs from that of the other PEs.
fn set_on_pe_0(name: &str, value: &str) {
    if std::env::var("PMI_RANK").as_deref() == Ok("0") {
        // SAFETY: this is the first thing that the process does, and it has no other thread.
        unsafe { std::env::set_var(name, value) };
    }
}

/// A mistake that must be found and not lead to mixed-up data: collectives of two threads at once.
fn two_threads_meet() {
    let array: SymSlice<u64> = alloc(1).expect("room for a word");
    if my_pe() == 0 {
        // PE 1 never comes, so whichever thread is first is still there when the other one enters.
        std::thread::spawn(move || {
            if std::panic::catch_unwind(|| shmem::broadcast(array, array, 0)).is_err() {
                exit(101);
            }
        });
        barrier_all();
    } else {
        wait_until(array.elem(0), Cmp::Eq, 1);
    }
}
