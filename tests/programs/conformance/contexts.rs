//! Contexts: what completes with which, what orders what, how many there may be; with connections of their own
//! and without.

use shmem::raw::{Completion, Ctx, CtxOptions, MAX_CONTEXTS};
use shmem::{
    Cmp, ContextBuilder, Error, Team, alloc, atomic_fetch, barrier_all, context, free, g, get,
    my_pe, n_pes, p, pe_quiet, put, quiet, wait_until,
};

use crate::check::{Check, noise};

pub(crate) const CHECKS: &[Check] = &[
    ("contexts_complete_separately", || {
        contexts_complete_separately(context())
    }),
    ("own_contexts_complete_separately", || {
        contexts_complete_separately(context().own_connections())
    }),
    ("quiet_towards_some", quiet_towards_some),
    ("contexts_order_their_own", || {
        contexts_order_their_own(context())
    }),
    ("own_contexts_order_their_own", || {
        contexts_order_their_own(context().own_connections())
    }),
    ("dropping_completes", || dropping_completes(context())),
    ("own_dropping_completes", || {
        dropping_completes(context().own_connections())
    }),
    ("contexts_run_out", contexts_run_out),
    ("a_context_per_thread", || a_context_per_thread(context())),
    ("own_a_context_per_thread", || {
        a_context_per_thread(context().own_connections())
    }),
    ("contexts_do_everything", || {
        contexts_do_everything(context())
    }),
    ("own_contexts_do_everything", || {
        contexts_do_everything(context().own_connections())
    }),
    ("contexts_of_teams", contexts_of_teams),
    ("connections_come_back", connections_come_back),
];

/// Several contexts write to several PEs in turn; what one of them completes is there, whatever the
/// others have under way.
fn contexts_complete_separately(new: ContextBuilder) {
    const CTXS: usize = 5;
    const LONG: usize = 30_000;
    let (me, n) = (my_pe(), n_pes());
    let ctxs: Vec<_> = (0..CTXS).map(|_| new.clone().create().unwrap()).collect();
    let words = alloc::<u64>(CTXS * n).unwrap();
    let bulk = alloc::<u8>(LONG).unwrap();
    let source = vec![7; LONG];
    let mut random = noise(me as u64 + 1);
    let mut last = vec![[0u64; CTXS]; n];
    for round in 1..=60u64 {
        for _ in 0..4 {
            let (c, pe) = (random() as usize % CTXS, random() as usize % n);
            if random().is_multiple_of(4) {
                // SAFETY: the source is left alone until the end.
                unsafe {
                    let (to, from) = (bulk.addr(), source.as_ptr());
                    ctxs[c]
                        .as_raw()
                        .put_bytes(to, from, LONG, pe, Completion::AtQuiet);
                }
            }
            ctxs[c].p(words.elem(c * n + me), round, pe);
            last[pe][c] = round;
        }
        let c = random() as usize % CTXS;
        ctxs[c].quiet();
        for (pe, last) in last.iter().enumerate() {
            // The word of this context alone must be there; it is read on another one.
            assert_eq!(
                g(words.elem(c * n + me), pe),
                last[c],
                "round {round} context {c}"
            );
        }
    }
    drop(ctxs);
    barrier_all();
    free(bulk).unwrap();
    free(words).unwrap();
}

fn quiet_towards_some() {
    let (me, n) = (my_pe(), n_pes());
    let (own, words) = (
        context().serialized().create().unwrap(),
        alloc::<u64>(2 * n).unwrap(),
    );
    for round in 1..=20 {
        for pe in 0..n {
            own.p(words.elem(me), round, pe);
            p(words.elem(n + me), round, pe);
        }
        let some: Vec<usize> = (0..n).filter(|pe| (pe + me) % 2 == 0).collect();
        own.pe_quiet(&some);
        for &pe in &some {
            assert_eq!(g(words.elem(me), pe), round);
        }
        pe_quiet(&some);
        pe_quiet(&[]);
        for &pe in &some {
            assert_eq!(g(words.elem(n + me), pe), round);
        }
    }
    own.quiet();
    barrier_all();
    free(words).unwrap();
}

/// On one context data, fence, flag; on another one traffic that has nothing to do with it.
fn contexts_order_their_own(new: ContextBuilder) {
    const LEN: usize = 500;
    let (me, n) = (my_pe(), n_pes());
    let (right, left) = ((me + 1) % n, (me + n - 1) % n);
    let (ctx, other) = (new.clone().create().unwrap(), new.create().unwrap());
    let data = alloc::<u32>(LEN).unwrap();
    let sums = alloc::<u32>(2).unwrap();
    let noise = alloc::<u64>(1).unwrap();
    let flags = alloc::<u64>(2).unwrap();
    for round in 1..=30u32 {
        other.atomic_add(noise, 1, right);
        ctx.put(data, &[round * 100 + me as u32; LEN], right);
        ctx.atomic_add(sums.elem(1), 3, right);
        ctx.fence();
        ctx.p(flags, round.into(), right);
        wait_until(flags.elem(0), Cmp::Eq, round.into());
        let want = round * 100 + left as u32;
        assert!(data.to_vec().iter().all(|&v| v == want), "round {round}");
        assert_eq!(sums.to_vec(), [0, 3 * round]);
        ctx.p(flags.elem(1), round.into(), left);
        wait_until(flags.elem(1), Cmp::Ge, round.into());
    }
    other.quiet();
    assert_eq!(atomic_fetch(noise, right), 30);
    ctx.quiet();
    barrier_all();
    for array in [noise, flags] {
        free(array).unwrap();
    }
    free(sums).unwrap();
    free(data).unwrap();
}

fn dropping_completes(new: ContextBuilder) {
    const LEN: usize = 20_000;
    let (me, n) = (my_pe(), n_pes());
    let (there, source) = (alloc::<u64>(LEN).unwrap(), alloc::<u64>(LEN).unwrap());
    source.fill(me as u64 + 5);
    let right = (me + 1) % n;
    let ctx = new.private().create().unwrap();
    ctx.put_sym_nbi(there, source, right);
    drop(ctx);
    let mut back = vec![0; LEN];
    get(&mut back, there, right);
    assert_eq!(back, source.to_vec());
    barrier_all();
    free(source).unwrap();
    free(there).unwrap();
}

/// Contexts can be made until there are as many as may be; then the others still work, and when
/// they are gone new ones can be made.
fn contexts_run_out() {
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u64>(n).unwrap();
    for round in 1..=2 {
        let mut all = Vec::new();
        let error = loop {
            match context().create() {
                Ok(ctx) => all.push(ctx),
                Err(e) => break e,
            }
        };
        assert!(matches!(error, Error::TooManyContexts { .. }), "{error}");
        assert!(error.to_string().contains("1024"), "{error}");
        assert_eq!(all.len(), usize::from(MAX_CONTEXTS) - 1);
        for ctx in all.iter().step_by(100) {
            ctx.p(words.elem(me), round, (me + 1) % n);
            ctx.quiet();
        }
        assert_eq!(g(words.elem(me), (me + 1) % n), round);
    }
    barrier_all();
    free(words).unwrap();
}

/// Each thread counts on its own context, and completes only what it has started.
fn a_context_per_thread(new: ContextBuilder) {
    const THREADS: usize = 4;
    const EACH: u64 = 30;
    let (me, n) = (my_pe(), n_pes());
    let counts = alloc::<u64>(THREADS * n).unwrap();
    let shared = context().create().unwrap();
    std::thread::scope(|s| {
        for t in 0..THREADS {
            let (shared, new) = (&shared, new.clone());
            s.spawn(move || {
                let ctx = new.private().create().unwrap();
                let mine = counts.elem(t * n + me);
                for round in 1..=EACH {
                    let pe = (me + t + round as usize) % n;
                    let before = ctx.atomic_fetch(mine, pe);
                    ctx.atomic_inc(mine, pe);
                    ctx.quiet();
                    assert_eq!(shared.atomic_fetch(mine, pe), before + 1);
                }
            });
        }
    });
    barrier_all();
    let total: u64 = counts.to_vec().iter().sum();
    let sum = alloc::<u64>(1).unwrap();
    shmem::atomic_add(sum, total, 0);
    barrier_all();
    assert_eq!(g(sum, 0), THREADS as u64 * EACH * n as u64);
    barrier_all();
    free(sum).unwrap();
    free(counts).unwrap();
}

/// They have connections for themselves as far as the job allows, which differs with the layout; what was given
/// back is had again. Beyond the number contexts share, and work.
fn connections_come_back() {
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u64>(n).unwrap();
    let right = (me + 1) % n;
    let mut most = None;
    for round in 1..=3 {
        let new = || context().private().own_connections().create().unwrap();
        let all: Vec<_> = (0..70).map(|_| new()).collect();
        let own = all.iter().filter(|ctx| ctx.owns_connections()).count();
        assert_eq!(*most.get_or_insert(own), own, "round {round}");
        assert!(own <= 64, "{own}");
        for ctx in all.iter().step_by(9) {
            ctx.atomic_add(words.elem(me), 1, right);
            ctx.quiet();
        }
        assert_eq!(g(words.elem(me), right), round * 8);
        assert!(
            !context()
                .shared_connections()
                .create()
                .unwrap()
                .owns_connections()
        );
    }
    barrier_all();
    free(words).unwrap();
}

/// PEs of a team's context have the numbers that they have in the team, here counted backwards.
fn contexts_of_teams() {
    let (me, n) = (my_pe(), n_pes());
    let words = alloc::<u64>(2 * n).unwrap();
    let last = n as isize - 1;
    let members = n.div_ceil(2) as isize;
    let backwards = Team::world().split_strided(last, -2, members).unwrap();
    if let Some(team) = backwards {
        let ctx = context().team(&team).create().unwrap();
        let others = context()
            .team(Team::shared())
            .serialized()
            .create()
            .unwrap();
        assert_eq!(
            (ctx.n_pes(), others.n_pes()),
            (team.n_pes(), Team::shared().n_pes())
        );
        for rank in 0..ctx.n_pes() {
            let world = n - 1 - 2 * rank;
            assert_eq!(ctx.as_raw().world_pe(rank), Some(world));
            ctx.p(words.elem(me), 10 + rank as u64, rank);
            ctx.atomic_add(words.elem(n + me), 3, rank);
            ctx.pe_quiet(&[rank]);
            assert_eq!(g(words.elem(me), world), 10 + rank as u64);
            assert_eq!(atomic_fetch(words.elem(n + me), world), 3);
        }
        assert_eq!(ctx.as_raw().world_pe(ctx.n_pes()), None);
        // It outlives its team.
        team.destroy();
        ctx.p(words.elem(me), 99, 0);
        ctx.quiet();
        assert_eq!(g(words.elem(me), n - 1), 99);
    }
    barrier_all();
    free(words).unwrap();
}

/// Every kind of operation on a context that is not the default one, and sessions, which promise
/// nothing.
fn contexts_do_everything(new: ContextBuilder) {
    let (me, n) = (my_pe(), n_pes());
    let pe = (me + n / 2) % n;
    let ctx = new.create().unwrap();
    ctx.as_raw().session_start(true, Some(100));
    let cells = alloc::<i64>(4 * n).unwrap();
    let mine = cells.at(4 * me..4 * me + 4);
    ctx.put(mine, &[1, 2, 3, 4], pe);
    ctx.quiet();
    let mut back = [0; 4];
    ctx.get(&mut back, mine, pe);
    assert_eq!(back, [1, 2, 3, 4]);
    ctx.iput(mine, &[10, 0, 30], 2, 2, 2, pe);
    ctx.quiet();
    ctx.iget(&mut back, mine, 1, 2, 2, pe);
    assert_eq!(back, [10, 30, 3, 4]);
    assert_eq!(ctx.atomic_fetch_add(mine.elem(0), 5, pe), 10);
    assert_eq!(ctx.atomic_swap(mine.elem(0), -1, pe), 15);
    assert_eq!(ctx.atomic_compare_swap(mine.elem(0), -1, 8, pe), -1);
    ctx.as_raw().session_stop();
    let (mut a, mut b) = (0, 0);
    ctx.nbi(|ops| {
        ops.atomic_fetch_or(&mut a, mine.elem(0), 3, pe);
        ops.atomic_fetch(&mut b, mine.elem(1), pe);
    });
    assert_eq!((a, b), (8, 2));
    assert_eq!(ctx.g(mine, pe), 11);
    // One that lives on across barriers and other contexts, and ends with the job.
    let members = *shmem::Team::world().members();
    let forgotten = Ctx::create(members, CtxOptions::default()).unwrap();
    std::mem::forget(forgotten);
    quiet();
    put(mine, &[0; 4], pe);
    barrier_all();
    free(cells).unwrap();
}
