/* PEs of two programs in one job, or of two builds of one: with OTHER the variables lie elsewhere.
   Arguments: what to do, the first PE of this program, how many it has, and a PE of the other program. */
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifdef OTHER
/* Volatile, so that the compiler keeps what nobody writes. */
static volatile long guard[64];
static volatile char padding[100000];
#endif
static long mine, source, sum, word;
static uint64_t signal_;
static long guards[4];
static long psync[SHMEM_REDUCE_SYNC_SIZE];
static long pwrk[SHMEM_REDUCE_MIN_WRKDATA_SIZE];

static int wrong(const char *what)
{
    printf("wrong: %s on PE %d\n", what, shmem_my_pe());
    return 1;
}

/* What PEs of one program do among themselves. */
static int among_own(int first, int n)
{
    int me = shmem_my_pe(), right = first + (me - first + 1) % n, left = first + (me - first + n - 1) % n;
    int bad = 0;
    if (!shmem_addr_accessible(&mine, right))
        bad |= wrong("own variable is not accessible");
    shmem_long_p(&mine, me + 1, right);
    shmem_long_atomic_add(&word, me + 1, right);
    shmem_barrier_all();
    if (mine != left + 1 || word != left + 1)
        bad |= wrong("put or atomic among own");
    if (shmem_long_g(&mine, right) != me + 1)
        bad |= wrong("get among own");
    shmem_team_t team;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, 0, 1, first ? first : n, NULL, 0, &team);
    shmem_team_t rest;
    shmem_team_split_strided(SHMEM_TEAM_WORLD, first ? first : n, 1, shmem_n_pes() - (first ? first : n), NULL, 0, &rest);
    if (team == SHMEM_TEAM_INVALID)
        team = rest;
    long want = 0;
    for (int pe = first; pe < first + n; pe++)
        want += pe;
    for (int again = 0; again < 2; again++) {
        source = me;
        shmem_long_sum_reduce(team, &sum, &source, 1);
        if (sum != want)
            bad |= wrong("reduction among own");
        shmem_team_sync(team);
    }
    shmem_long_sum_to_all(&sum, &source, 1, first, 0, n, pwrk, psync);
    if (sum != want)
        bad |= wrong("reduction of an active set");
    shmem_barrier_all();
    return bad;
}

int main(int argc, char **argv)
{
    shmem_init();
    const char *what = argc > 1 ? argv[1] : "";
    int first = atoi(argv[2]), n = atoi(argv[3]), other = atoi(argv[4]), me = shmem_my_pe(), bad = 0;
    long *heap = shmem_calloc(8, sizeof *heap);
    uint64_t *heap_signal = shmem_calloc(1, sizeof *heap_signal);
    int right = strcmp(what, "right") == 0;
    if (right) {
        bad = among_own(first, n);
        if (shmem_addr_accessible(&mine, other) || shmem_ptr(&mine, other))
            bad |= wrong("the other program's variable is accessible");
        if (!shmem_addr_accessible(heap, other))
            bad |= wrong("the heap is not accessible");
    }
    if (me == 0) {
        long two[2] = {1, 2};
        uint64_t fetched;
        if (strcmp(what, "put") == 0)
            shmem_long_put(guards, two, 2, other);
        else if (strcmp(what, "p") == 0)
            shmem_long_p(&mine, -1, other);
        else if (strcmp(what, "nbi") == 0)
            shmem_long_put_nbi(guards, two, 2, other);
        else if (strcmp(what, "get") == 0)
            shmem_long_get(two, guards, 2, other);
        else if (strcmp(what, "iput") == 0)
            shmem_long_iput(guards, two, 2, 1, 2, other);
        else if (strcmp(what, "iget") == 0)
            shmem_long_iget(two, guards, 1, 2, 2, other);
        else if (strcmp(what, "add") == 0)
            shmem_long_atomic_add(&word, 1, other);
        else if (strcmp(what, "fetch") == 0)
            shmem_long_atomic_fetch(&word, other);
        else if (strcmp(what, "fetch_nbi") == 0)
            shmem_uint64_atomic_fetch_nbi(&fetched, &signal_, other);
        else if (strcmp(what, "signal") == 0)
            shmem_long_put_signal(heap, two, 2, &signal_, 1, SHMEM_SIGNAL_SET, other);
        else if (strcmp(what, "signalled") == 0)
            shmem_long_put_signal(guards, two, 2, heap_signal, 1, SHMEM_SIGNAL_SET, other);
        else if (right)
            shmem_long_put(heap, two, 2, other);
    }
    if (strcmp(what, "reduce") == 0)
        shmem_long_sum_reduce(SHMEM_TEAM_WORLD, &sum, &source, 1);
    shmem_barrier_all();
#ifdef OTHER
    for (int i = 0; i < 64; i++)
        if (guard[i] != 0)
            bad |= wrong("a variable was overwritten");
    if (padding[me] != 0)
        bad |= wrong("the padding was overwritten");
#endif
    /* PE 0 put it to the first PE of the other program. */
    if (right && first > 0 && me == first && heap[1] != 2)
        bad |= wrong("a put to the heap");
    if (me == 0)
        puts("done");
    shmem_finalize();
    return bad;
}
