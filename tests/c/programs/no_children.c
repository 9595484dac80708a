/* To be preloaded: files in /proc that list the children of a thread do not exist, as in kernels without CONFIG_PROC_CHILDREN,
 * and there are no control groups, by which processes could be ended instead. A file that HIDDEN names is made when one is hidden. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <sys/types.h>
#include <unistd.h>

typedef int opens(const char *path, int flags, ...);

static int hidden(const char *path)
{
    const char *last = strrchr(path, '/');
    int listed = last && (strcmp(last, "/children") == 0 || strcmp(last, "/cgroup") == 0);
    return listed && strncmp(path, "/proc/", 6) == 0;
}

static int forward(const char *name, const char *path, int flags, mode_t mode)
{
    if (hidden(path)) {
        const char *mark = getenv("HIDDEN");
        if (mark)
            close(creat(mark, 0600));
        errno = ENOENT;
        return -1;
    }
    opens *real = (opens *) dlsym(RTLD_NEXT, name);
    return real(path, flags, mode);
}

#define OPEN(name)                                          \
    int name(const char *path, int flags, ...)              \
    {                                                       \
        va_list list;                                       \
        va_start(list, flags);                              \
        mode_t mode = va_arg(list, mode_t);                 \
        va_end(list);                                       \
        return forward(#name, path, flags, mode);           \
    }

OPEN(open)
OPEN(open64)
