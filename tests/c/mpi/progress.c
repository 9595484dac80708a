/* PE 0 and the last one wait for each other, one in MPI and the other in OpenSHMEM. Argument: what PE 0 is blocked in.
 *   mpi      MPI_Recv of a message that is sent after gets, atomics and a put to PE 0, which nobody has talked to before
 *   shmem    shmem_wait_until of a word that is put after MPI has moved a long message to PE 0
 *   sync     the same in shmem_barrier_all
 *   pending  as shmem, and PE 0 has another message, which it receives later
 *   asked    as shmem, and PE 1 asks for a word of PE 0 all the time until the message has been moved
 *   first    a put to the last PE, which initialises OpenSHMEM after MPI has moved the message
 *   again    as sync, in a second life of OpenSHMEM, which the last PE begins after MPI has moved the message
 *   idle     shmem_barrier_all at MPI_THREAD_SERIALIZED, at which it has nothing to do for MPI and sleeps
 */
#define _GNU_SOURCE
#include <mpi.h>
#include <shmem.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

enum { LONG = 4 << 20, AFTER = 300 * 1000 };

static long word = 7, counter;
static const char *where;
static char *message;
static int me, last, probes;

/* As a tool between the program and MPI would: the program itself does not call it. */
int MPI_Iprobe(int source, int tag, MPI_Comm comm, int *flag, MPI_Status *status)
{
    probes++;
    return PMPI_Iprobe(source, tag, comm, flag, status);
}

static int is(const char *what)
{
    return !strcmp(where, what);
}

static void start_receive(MPI_Request *request)
{
    MPI_Irecv(message, LONG, MPI_CHAR, last, 0, MPI_COMM_WORLD, request);
}

/* Returns when PE 0 has begun to take it. */
static void send_long(void)
{
    usleep(AFTER);
    memset(message, 5, LONG);
    MPI_Ssend(message, LONG, MPI_CHAR, 0, 0, MPI_COMM_WORLD);
}

static int received(MPI_Request *request)
{
    MPI_Wait(request, MPI_STATUS_IGNORE);
    return message[LONG - 1] == 5;
}

static int blocked_in_mpi(void)
{
    int token = 0;
    if (me == 0) {
        MPI_Recv(&token, 1, MPI_INT, last, 0, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
        return token == 1 && counter == 1 && word == 8;
    }
    if (me == last) {
        long seen = shmem_long_g(&word, 0);
        token = seen == 7 && shmem_long_atomic_fetch_inc(&counter, 0) == 0;
        shmem_long_p(&word, 8, 0);
        shmem_quiet();
        MPI_Send(&token, 1, MPI_INT, 0, 0, MPI_COMM_WORLD);
    }
    return 1;
}

static int blocked_in_shmem(void)
{
    MPI_Request request;
    int token = 1, right = 1;
    if (is("pending")) {
        if (me == last)
            MPI_Send(&token, 1, MPI_INT, 0, 9, MPI_COMM_WORLD);
        MPI_Barrier(MPI_COMM_WORLD);
    }
    if (me == 0) {
        start_receive(&request);
        if (is("sync"))
            shmem_barrier_all();
        else
            shmem_long_wait_until(&word, SHMEM_CMP_EQ, 8);
        right = received(&request);
        if (is("pending"))
            MPI_Recv(&token, 1, MPI_INT, last, 9, MPI_COMM_WORLD, MPI_STATUS_IGNORE);
    } else if (me == last) {
        send_long();
        if (is("asked"))
            shmem_long_p(&counter, 1, 0);
        else
            shmem_long_p(&word, 8, 0);
    } else if (me == 1 && is("asked")) {
        while (shmem_long_atomic_fetch(&counter, 0) == 0)
            ;
        shmem_long_p(&word, 8, 0);
    }
    if (me != 0 && is("sync"))
        shmem_barrier_all();
    return right;
}

/* With OpenSHMEM not initialised at the last PE before the message has been moved. */
static int blocked_in_start(void)
{
    MPI_Request request;
    int right = 1;
    if (me == 0)
        start_receive(&request);
    if (me == last)
        send_long();
    shmem_init();
    if (me == 0) {
        shmem_long_p(&word, 8, last);
        right = received(&request);
    }
    return right;
}

static int idle(void)
{
    struct rusage before, after;
    getrusage(RUSAGE_SELF, &before);
    if (me == last)
        sleep(1);
    shmem_barrier_all();
    getrusage(RUSAGE_SELF, &after);
    long sleeps = after.ru_nvcsw - before.ru_nvcsw;
    if (sleeps > 100)
        fprintf(stderr, "PE %d: %ld sleeps in a second\n", me, sleeps);
    return sleeps <= 100;
}

int main(int argc, char **argv)
{
    int provided, size, right;
    where = argc > 1 ? argv[1] : "mpi";
    message = calloc(LONG, 1);
    MPI_Init_thread(&argc, &argv, is("idle") ? MPI_THREAD_SERIALIZED : MPI_THREAD_SINGLE, &provided);
    MPI_Comm_rank(MPI_COMM_WORLD, &me);
    MPI_Comm_size(MPI_COMM_WORLD, &size);
    last = size - 1;
    if (is("again")) {
        shmem_init();
        shmem_finalize();
    }
    if (is("first") || is("again")) {
        right = blocked_in_start();
    } else {
        shmem_init();
        shmem_barrier_all();
        if (is("mpi"))
            right = blocked_in_mpi();
        else if (is("idle"))
            right = idle();
        else
            right = blocked_in_shmem();
    }
    shmem_barrier_all();
    if (me == 0)
        printf("nobody waits for ever in %s\n", where);
    if (probes > 0)
        fprintf(stderr, "PE %d: a tool saw %d probes\n", me, probes);
    shmem_finalize();
    MPI_Finalize();
    return !right || probes > 0;
}
