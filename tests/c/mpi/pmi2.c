/* What Slurm's PMI-2 library can do, against whatever server there is; with OURS, what libshmem_pmi2 can. */
#ifdef OURS
#include <shmem_pmi2.h>
#else
#include <slurm/pmi2.h>
#endif
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static void check(int ok, const char *what)
{
    if (!ok) {
        fprintf(stderr, "pmi2: %s\n", what);
        exit(9);
    }
}

int main(int argc, char **argv)
{
    int spawned, size, rank, appnum, found, len;
    char job[64], key[64], value[PMI2_MAX_VALLEN], port[256];

    (void)argc;
    (void)argv;
    check(PMI2_Init(&spawned, &size, &rank, &appnum) == PMI2_SUCCESS, "init");
    check(!spawned, "nobody spawned us");
    check(PMI2_Job_GetId(job, sizeof job) == PMI2_SUCCESS, "job id");
    snprintf(key, sizeof key, "key-%d", rank);
    snprintf(value, sizeof value, "value;of;%d", rank);
    check(PMI2_KVS_Put(key, value) == PMI2_SUCCESS, "put");
    check(PMI2_KVS_Fence() == PMI2_SUCCESS, "fence");
    for (int other = 0; other < size; other++) {
        char want[64];
        snprintf(key, sizeof key, "key-%d", other);
        snprintf(want, sizeof want, "value;of;%d", other);
        check(PMI2_KVS_Get(job, PMI2_ID_NULL, key, value, sizeof value, &len) == PMI2_SUCCESS, "get");
        check(!strcmp(value, want), "value");
    }
    check(PMI2_Info_GetJobAttr("PMI_process_mapping", value, sizeof value, &found) == PMI2_SUCCESS &&
              found && !strncmp(value, "(vector,(", 9), "process mapping");
    check(PMI2_Info_PutNodeAttr("attribute", "of the node") == PMI2_SUCCESS, "put node attribute");
    check(PMI2_Info_GetNodeAttr("attribute", value, sizeof value, &found, 1) == PMI2_SUCCESS &&
              found && !strcmp(value, "of the node"), "get node attribute");
    if (rank == 0)
        check(PMI2_Nameserv_publish("service", NULL, "a-port") == PMI2_SUCCESS, "publish");
    check(PMI2_KVS_Fence() == PMI2_SUCCESS, "fence after publish");
    check(PMI2_Nameserv_lookup("service", NULL, port, sizeof port) == PMI2_SUCCESS &&
              !strcmp(port, "a-port"), "lookup");
    check(PMI2_KVS_Fence() == PMI2_SUCCESS, "fence after lookup");
    if (rank == 0)
        check(PMI2_Nameserv_unpublish("service", NULL) == PMI2_SUCCESS, "unpublish");
    {
        char left[64], right[64], mine[64], want[64];
        int place, count;
        snprintf(mine, sizeof mine, "ring-%d", rank);
        check(PMIX_Ring(mine, &place, &count, left, right, sizeof left) == PMI2_SUCCESS, "ring");
        check(count == size, "size of the ring");
        snprintf(want, sizeof want, "ring-%d", (rank + size - 1) % size);
        check(place != rank || !strcmp(left, want), "left neighbour");
    }
    check(PMI2_Finalize() == PMI2_SUCCESS, "finalize");
    printf("pmi2 rank %d of %d\n", rank, size);
    return 0;
}
