/* A library to be preloaded: before main it does what EARLY says, and at the end of the process it looks whether that
   is still there. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <spawn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

static const char *what;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER;
static int asked, answered, descriptor, clock_is;
static timer_t timer;
static struct itimerval later = {{1000, 0}, {1000, 0}};
static long page[512];

static void *answer(void *unused) {
    (void)unused;
    pthread_mutex_lock(&lock);
    while (!asked)
        pthread_cond_wait(&changed, &lock);
    answered = 1;
    pthread_cond_broadcast(&changed);
    pthread_mutex_unlock(&lock);
    return NULL;
}

static int is(const char *name) { return what != NULL && strcmp(what, name) == 0; }

static volatile int reaped;

static void *reap(void *unused) {
    for (;;)
        if (waitpid(-1, NULL, 0) > 0)
            reaped = 1;
        else
            usleep(1000);
    return unused;
}

/* The template does not go on, and so does not end, before the thread above has taken the status of PE 0. */
int posix_spawn(pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions,
                const posix_spawnattr_t *attributes, char *const argv[], char *const env[]) {
    int (*real)(pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
                char *const[]) = dlsym(RTLD_NEXT, "posix_spawn");
    int error = real(pid, path, actions, attributes, argv, env);
    while (error == 0 && is("reap") && !reaped)
        usleep(1000);
    return error;
}

__attribute__((constructor)) static void early(void) {
    pthread_t thread;
    const char *rank = getenv("PMI_RANK");
    struct sigevent none = {.sigev_notify = SIGEV_NONE};
    struct itimerspec spec = {{1000, 0}, {1000, 0}};
    what = getenv("EARLY");
    clock_is = is("virtual") ? ITIMER_VIRTUAL : is("real") ? ITIMER_REAL : ITIMER_PROF;
    if (is("thread"))
        pthread_create(&thread, NULL, answer, NULL);
    else if (is("profile") || is("virtual") || is("real"))
        setitimer(clock_is, &later, NULL);
    else if (is("timer")) {
        if (timer_create(CLOCK_MONOTONIC, &none, &timer) == 0)
            timer_settime(timer, 0, &spec, NULL);
    } else if (is("ignore"))
        signal(SIGCHLD, SIG_IGN);
    else if (is("file"))
        descriptor = open("/dev/null", O_RDONLY);
    else if (is("lock"))
        mlock(page, sizeof page);
    else if (is("unpreload"))
        /* Tools do that, so that what the program starts is left alone. */
        pthread_create(&thread, NULL, answer, NULL), unsetenv("LD_PRELOAD");
    else if (is("reap")) {
        /* PE 0 ends at once, the others never by themselves. */
        if (rank != NULL && strcmp(rank, "0") == 0)
            _exit(0);
        if (rank != NULL)
            pause();
        pthread_create(&thread, NULL, reap, NULL);
    }
}

__attribute__((destructor)) static void late(void) {
    int well = 0;
    if (what == NULL)
        return;
    if (is("thread") || is("unpreload")) {
        struct timespec limit;
        clock_gettime(CLOCK_REALTIME, &limit);
        limit.tv_sec += 10;
        pthread_mutex_lock(&lock);
        asked = 1;
        pthread_cond_broadcast(&changed);
        /* A thread that is not there takes no time to find: nobody else holds the lock. */
        while (!answered && pthread_cond_timedwait(&changed, &lock, &limit) == 0)
            ;
        well = answered;
        pthread_mutex_unlock(&lock);
    } else if (is("profile") || is("virtual") || is("real")) {
        struct itimerval now;
        getitimer(clock_is, &now);
        well = now.it_value.tv_sec != 0;
    } else if (is("timer")) {
        struct itimerspec now;
        well = timer_gettime(timer, &now) == 0 && now.it_value.tv_sec != 0;
    } else if (is("ignore")) {
        struct sigaction action;
        sigaction(SIGCHLD, NULL, &action);
        well = action.sa_handler == SIG_IGN;
    } else if (is("file"))
        well = fcntl(descriptor, F_GETFD) >= 0;
    else if (is("lock")) {
        char line[256];
        FILE *status = fopen("/proc/self/status", "r");
        while (status != NULL && fgets(line, sizeof line, status) != NULL)
            if (strncmp(line, "VmLck:", 6) == 0)
                well = atol(line + 6) > 0;
    } else
        well = 1;
    fprintf(stderr, "%s: %s in PE %s\n", what, well ? "there" : "lost", getenv("PMI_RANK"));
}
