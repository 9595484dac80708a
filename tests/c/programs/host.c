/* A program that opens a plugin with a copy of the library of its own, and does what the words say. */
#include <dlfcn.h>
#ifdef WITH_LIBRARY
#include <shmem.h>
#else
static void shmem_init(void) {}
static void shmem_barrier_all(void) {}
#endif
#include <stdio.h>
#include <string.h>

int main(int argc, char **argv)
{
    void *opened = NULL;
    for (int i = 2; i < argc; i++) {
        if (!strcmp(argv[i], "init")) {
            shmem_init();
        } else if (!strcmp(argv[i], "barrier")) {
            shmem_barrier_all();
        } else if (!strcmp(argv[i], "close")) {
            dlclose(opened);
        } else {
            opened = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
            int (*plugin)(void) = opened ? (int (*)(void)) dlsym(opened, "plugin") : NULL;
            if (!plugin) {
                fprintf(stderr, "%s\n", dlerror());
                return 1;
            }
            printf("plugin: PE %d\n", plugin());
        }
    }
    printf("done\n");
    return 0;
}
