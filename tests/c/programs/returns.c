/* returns HOW: leaves main, or exits, without shmem_finalize, in one of the ways below. */
#include <shmem.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

static long arrived, never;
static int n;
static pid_t self;

/* Registered before shmem_init, so it runs after the library's end: all that was started is here. */
static void check(void)
{
    if (getpid() != self)
        return;
    if (arrived != n) {
        fprintf(stderr, "%ld of %d arrived before the end\n", arrived, n);
        _exit(9);
    }
}

static void tell_all(void)
{
    for (int pe = 0; pe < n; pe++)
        shmem_long_atomic_inc(&arrived, pe);
}

int main(int argc, char **argv)
{
    const char *how = argc > 1 ? argv[1] : "";
    self = getpid();
    if (strcmp(how, "status") && strcmp(how, "killed"))
        atexit(check);
    shmem_init();
    int me = shmem_my_pe(), last;
    n = shmem_n_pes();
    last = me == n - 1;
    if (!strcmp(how, "status") || !strcmp(how, "killed")) {
        if (!last) {
            printf("PE %d is done\n", me);
            return 0; /* and waits for the last PE */
        }
        usleep(300000);
        if (!strcmp(how, "status"))
            return 7;
        raise(SIGKILL);
    }
    if (last)
        usleep(100000); /* the others have left main */
    tell_all();
    if (!strcmp(how, "some")) {
        if (me % 2)
            shmem_finalize();
    } else if (!strcmp(how, "nested")) {
        shmem_init();
        shmem_init();
        if (me % 2)
            shmem_finalize();
    } else if (!strcmp(how, "twice")) {
        shmem_finalize();
        shmem_finalize();
    } else if (!strcmp(how, "exit")) {
        exit(0);
    } else if (!strcmp(how, "child")) {
        int status = -1;
        pid_t child = fork();
        if (child == 0)
            exit(0); /* is no PE that ends */
        waitpid(child, &status, 0);
        if (status != 0)
            return 8;
    } else if (!strcmp(how, "again")) {
        shmem_finalize();
        shmem_init();
        if (shmem_my_pe() != me)
            return 6;
        if (shmem_long_g(&never, (me + 1) % n) != 0)
            return 5;
    }
    return 0;
}
