//! Makes mistakes of all kinds, one after the other, and looks where each is told to be: in this file, at the line of
//! the call. All PEs make the same ones.

use std::panic::{catch_unwind, set_hook};
use std::sync::Mutex;

use shmem::raw::SymAddr;
use shmem::{
    Cmp, Lock, SignalOp, Sum, SymSlice, Team, alloc, alloc_aligned, alltoall, alltoalls,
    atomic_fetch_add, atomic_set, barrier_all, broadcast, collect, fcollect, fence, free, g, get,
    get_vec, ibget, ibput, iget, iput, my_pe, n_pes, nbi, node_of, p, pe_quiet, put, put_signal,
    quiet, realloc, reduce, signal_fetch, sum_exscan, sync_all, test, test_all, wait_until,
    wait_until_any,
};

/// Where the last panic was, and its words.
static TOLD: Mutex<Option<(String, u32, String)>> = Mutex::new(None);

/// Mistakes so far.
static MADE: Mutex<u32> = Mutex::new(0);

/// Lines that a call may take in this file.
const LINES: u32 = 6;

fn made(words: &str, line: u32, call: impl FnOnce()) {
    *TOLD.lock().expect("no panic") = None;
    let quiet = catch_unwind(std::panic::AssertUnwindSafe(call)).is_ok();
    let told = TOLD.lock().expect("no panic").take();
    let wrong = match told {
        _ if quiet => "nothing is wrong".to_owned(),
        None => "nothing is told".to_owned(),
        Some((_, _, text)) if !text.contains(words) => format!("told is {text:?}"),
        Some((file, at, _)) if file == file!() && (line..line + LINES).contains(&at) => {
            *MADE.lock().expect("no panic") += 1;
            return;
        }
        Some((file, at, text)) => format!("{text:?} is told at {file}:{at}"),
    };
    // A panic would be told to the hook.
    eprintln!("line {line}: {words:?}: {wrong}");
    std::process::exit(1);
}

/// A call that is told with these words.
macro_rules! wrong {
    ($words:expr, $($call:tt)*) => {
        made($words, line!(), || { let _ = { $($call)* }; })
    };
}

fn main() -> Result<(), shmem::Error> {
    set_hook(Box::new(|info| {
        let at = info.location().expect("panics have places");
        let payload = info.payload();
        let text = payload.downcast_ref::<&str>().map(|&text| text.to_owned());
        let text = text.or_else(|| payload.downcast_ref::<String>().cloned());
        let told = (at.file().to_owned(), at.line(), text.unwrap_or_default());
        *TOLD.lock().expect("no panic") = Some(told);
    }));
    outside();
    let world = shmem::init()?;
    let array = alloc::<u64>(4)?;
    inside(array);
    one_sided(array);
    collectives(array);
    let team = Team::world().split_strided(0, 1, n_pes() as isize)?;
    let team = team.expect("all are in");
    let ctx = shmem::context().create()?;
    world.finalize();
    outside();
    let ended = "ended with the finalize";
    shmem::run(|world| {
        wrong!(ended, team.sync());
        wrong!(ended, ctx.quiet());
        wrong!(ended, ctx.put(array, &[1], 0));
        wrong!("PE 99 does not exist", world.world_pe(99));
        wrong!("PE 99 does not exist", p(array, 1, 99));
        barrier_all();
        if my_pe() == 0 {
            let made = MADE.lock().expect("no panic");
            println!("{made} mistakes were told at their lines");
        }
        Ok(())
    });
    Ok(())
}

/// Before init, and after finalize.
fn outside() {
    let none = "shmem::init() has not been called";
    // SAFETY: nothing is accessed outside of init and finalize.
    let array = unsafe { SymSlice::<u64>::from_addr(SymAddr::new(1 << 22), 4) };
    wrong!(none, my_pe());
    wrong!(none, n_pes());
    wrong!(none, node_of(0));
    wrong!(none, alloc::<u64>(1));
    wrong!(none, alloc_aligned::<u64>(1, 64));
    wrong!(none, shmem::alloc_uninit::<u64>(1));
    wrong!(none, realloc(array, 1));
    wrong!(none, free(array));
    wrong!(none, Lock::new());
    wrong!(none, Lock::at(array.elem(0)).lock());
    wrong!(none, Lock::at(array.elem(0)).try_lock());
    wrong!(none, array.read(0));
    wrong!(none, array.write(0, 1));
    wrong!(none, array.value(0).read());
    wrong!(none, array.value(0).write(1));
    wrong!(none, array.value(0).get(0));
    wrong!(none, array.value(0).put(1, 0));
    wrong!(none, array.value(0).test(Cmp::Eq, 1));
    wrong!(none, array.value(0).wait_until(Cmp::Eq, 1));
    wrong!(none, array.grid(2, 2).read(0, 0));
    wrong!(none, array.grid(2, 2).write(0, 0, 1));
    wrong!(none, array.grid(2, 2).put(&[0; 4], 0));
    wrong!(none, array.grid(2, 2).get_vec(0));
    wrong!(none, shmem::start().get(array, 0).wait());
    wrong!(none, shmem::start().put(array, vec![1], 0).wait());
    wrong!(none, shmem::nbi_local(|puts| puts.put(array, &[1], 0)));
    wrong!(
        none,
        shmem::nbi_local(|puts| puts.iput(array, &[1], 1, 1, 1, 0))
    );
    wrong!(
        none,
        shmem::iput_signal(array, &[1], 1, 1, 1, array.elem(0), 1, SignalOp::Add, 0)
    );
    wrong!(none, array.read_to(&mut [0]));
    wrong!(none, array.write_from(&[0]));
    wrong!(none, array.to_vec());
    wrong!(none, array.fill(1));
    wrong!(none, array.iter());
    wrong!(none, array.as_ptr());
    wrong!(none, array.ptr(0));
    // SAFETY: as above.
    wrong!(none, unsafe { array.as_slice() }.len());
    wrong!(none, put(array, &[1], 0));
    wrong!(none, get(&mut [0], array, 0));
    wrong!(none, get_vec(array, 0));
    wrong!(none, p(array, 1, 0));
    wrong!(none, g(array, 0));
    wrong!(none, iput(array, &[1], 1, 1, 1, 0));
    wrong!(none, iget(&mut [1], array, 1, 1, 1, 0));
    wrong!(none, ibput(array, &[1], 1, 1, (1, 1), 0));
    wrong!(none, ibget(&mut [1], array, 1, 1, (1, 1), 0));
    wrong!(
        none,
        put_signal(array, &[1], array.elem(0), 1, SignalOp::Set, 0)
    );
    wrong!(none, nbi(|ops| ops.put(array, &[1], 0)));
    wrong!(none, atomic_set(array.elem(0), 1, 0));
    wrong!(none, atomic_fetch_add(array.elem(0), 1, 0));
    wrong!(none, shmem::atomic_compare_exchange(array.elem(0), 1, 0, 0));
    wrong!(none, quiet());
    wrong!(none, pe_quiet(&[0]));
    wrong!(none, fence());
    wrong!(none, wait_until(array.elem(0), Cmp::Eq, 0));
    wrong!(none, wait_until_any(array, None, Cmp::Eq, 0));
    wrong!(none, test(array.elem(0), Cmp::Eq, 0));
    wrong!(none, test_all(array, None, Cmp::Eq, 0));
    wrong!(none, signal_fetch(array.elem(0)));
    wrong!(none, shmem::context().create());
    wrong!(none, Team::world());
    wrong!(none, Team::shared());
    wrong!(none, barrier_all());
    wrong!(none, sync_all());
    wrong!(none, broadcast(array, array, 0));
    wrong!(none, reduce(array, array, Sum));
    wrong!(none, sum_exscan(array, array));
    wrong!(none, collect(array, array));
    wrong!(none, fcollect(array, array.elem(0)));
    wrong!(none, alltoall(array, array, 1));
}

/// Parts of arrays, and what is asked of PEs and teams.
fn inside(array: SymSlice<u64>) {
    wrong!("element 4 of a symmetric array of 4", array.read(4));
    wrong!("element 7 of a symmetric array of 4", array.write(7, 1));
    wrong!("element 4 of a symmetric array of 4", array.elem(4));
    wrong!("elements 2..5 of a symmetric array of 4", array.at(2..5));
    wrong!("elements 0..5 of a symmetric array of 4", array.split_at(5));
    wrong!("chunks of 0 elements", drop(array.chunks(0)));
    let said = "read of 5 elements from a symmetric array of 4";
    wrong!(said, array.read_to(&mut [0; 5]));
    let said = "write of 5 elements into a symmetric array of 4";
    wrong!(said, array.write_from(&[0; 5]));
    wrong!("PE 77 does not exist", node_of(77));
    wrong!("PE 77 does not exist", Team::world().world_pe(77));
    wrong!("alignment 3 is no power of two", alloc_aligned::<u8>(1, 3));
    wrong!("the array has 0", Lock::at(array.at(..0)));
    let words = "a mask of 1 for 4 words";
    wrong!(words, test_all(array, Some(&[false]), Cmp::Eq, 1));
    wrong!(words, wait_until_any(array, Some(&[true]), Cmp::Eq, 1));
    let words = "2 values for 4 words";
    wrong!(words, shmem::test_any(array, None, Cmp::Eq, &[1, 2]));
    wrong!("the array has 0", wait_until(array.at(..0), Cmp::Eq, 0));
}

fn one_sided(array: SymSlice<u64>) {
    let ctx = shmem::context().create().expect("there are few");
    let long = [1; 5];
    let into = "put of 5 elements into a symmetric array of 4";
    wrong!(into, put(array, &long, 0));
    wrong!(into, ctx.put(array, &long, 0));
    wrong!(into, nbi(|ops| ops.put(array, &long, 0)));
    wrong!(into, ctx.nbi(|ops| ops.put(array, &long, 0)));
    wrong!(
        into,
        put_signal(array, &long, array.elem(0), 1, SignalOp::Add, 0)
    );
    let from = "get of 5 elements from a symmetric array of 4";
    wrong!(from, get(&mut [0; 5], array, 0));
    let mut five = [0; 5];
    wrong!(from, nbi(|ops| ops.get(&mut five, array, 0)));
    let nobody = "PE 99 does not exist";
    wrong!(nobody, put(array, &[1], 99));
    wrong!(nobody, get(&mut [0], array, 99));
    wrong!(nobody, get_vec(array, 99));
    wrong!(nobody, p(array, 1, 99));
    wrong!(nobody, g(array, 99));
    wrong!(nobody, iput(array, &[1], 1, 1, 1, 99));
    wrong!(nobody, ibget(&mut [1], array, 1, 1, (1, 1), 99));
    wrong!(
        nobody,
        put_signal(array, &[1], array.elem(0), 1, SignalOp::Set, 99)
    );
    wrong!(nobody, shmem::signal_add(array.elem(0), 1, 99));
    wrong!(nobody, atomic_set(array.elem(0), 1, 99));
    wrong!(nobody, atomic_fetch_add(array.elem(0), 1, 99));
    wrong!(nobody, ctx.atomic_inc(array.elem(0), 99));
    wrong!(nobody, nbi(|ops| ops.put(array, &[1], 99)));
    let mut old = 0;
    wrong!(
        nobody,
        nbi(|ops| ops.atomic_fetch_inc(&mut old, array.elem(0), 99))
    );
    wrong!(nobody, pe_quiet(&[0, 99]));
    wrong!("element 0 of", p(array.at(..0), 1, 0));
    wrong!("the array has 0", atomic_set(array.at(..0), 1, 0));
    wrong!(
        "one element is wanted here, and the array has 4",
        atomic_set(array, 1, 0)
    );
    wrong!(
        "the array has 4",
        put_signal(array, &[1], array, 1, SignalOp::Set, 0)
    );
    wrong!("the array has 4", wait_until(array, Cmp::Eq, 1));
    wrong!("the stride of dest is 0", iput(array, &[1], 0, 1, 1, 0));
    wrong!(
        "do not fit into source",
        iget(&mut [1; 9], array, 1, 2, 9, 0)
    );
    wrong!("less than a block", ibput(array, &[1; 2], 1, 2, (2, 1), 0));
}

fn collectives(array: SymSlice<u64>) {
    let (world, two) = (Team::world(), array.at(..2));
    wrong!("dest has 4 elements, source 2", broadcast(array, two, 0));
    wrong!("there is no PE 9", broadcast(array, array, 9));
    wrong!("there is no PE 9", world.broadcast(array, array, 9));
    wrong!("dest has 2 elements, source 4", reduce(two, array, Sum));
    wrong!("dest has 2 elements, source 4", sum_exscan(two, array));
    wrong!("fcollect: dest has 2", fcollect(two, array));
    wrong!("collect: dest has 2", collect(two, array));
    wrong!("alltoall: blocks of 9", alltoall(array, array, 9));
    wrong!(
        "the stride of source is 0",
        alltoalls(array, array, 1, 0, 1)
    );
    wrong!("elements, 9 apart", world.alltoalls(array, array, 9, 1, 2));
}
