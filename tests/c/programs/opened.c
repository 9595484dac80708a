/* A program that is not linked with the library, but opens and closes it again and again. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

typedef void (*Routine)(void);
typedef int (*Query)(void);

static void *library;

static void call(const char *name)
{
    ((Routine) dlsym(library, name))();
}

int main(int argc, char **argv)
{
    int rounds = argc > 2 ? atoi(argv[2]) : 0, me = -1;
    for (int round = 0; round < rounds; round++) {
        library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
        if (!library) {
            fprintf(stderr, "%s\n", dlerror());
            return 1;
        }
        call("shmem_init");
        call("shmem_barrier_all");
        me = ((Query) dlsym(library, "shmem_my_pe"))();
        call("shmem_finalize");
        dlclose(library);
    }
    if (me == 0)
        printf("opened %d times\n", rounds);
    return 0;
}
