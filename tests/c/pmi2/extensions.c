/* The extensions of libshmem_pmi2, and how mistakes end. Keys and values are such that every server carries them.
 * With an argument, a number: the last process calls PMI2_Abort with that flag. */
#include <shmem_pmi2.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WIDTH 32
#define UNDER_WAY 5

static int size, rank;

#define CHECK(condition) \
    do { \
        if (!(condition)) { \
            fprintf(stderr, "rank %d, line %d: %s\n", rank, __LINE__, #condition); \
            exit(9); \
        } \
    } while (0)
#define OK(call) CHECK((call) == PMI2_SUCCESS)

static void *room(size_t width)
{
    void *buffer = malloc(width * (size_t)size);
    CHECK(buffer);
    memset(buffer, 'x', width * (size_t)size);
    return buffer;
}

/* Whether the buffer has `what-R` of each rank R, padded with NULs. */
static int gathered(const char *buffer, size_t width, const char *what)
{
    char want[PMI2_MAX_VALLEN];
    for (int r = 0; r < size; r++) {
        memset(want, 0, sizeof want);
        snprintf(want, sizeof want, "%s-%d", what, r);
        if (memcmp(buffer + (size_t)r * width, want, width))
            return 0;
    }
    return 1;
}

static void gathers(void)
{
    char value[64], what[32], *whole = room(PMI2_MAX_VALLEN), *many[UNDER_WAY];
    PMIX_Request request, requests[UNDER_WAY];
    volatile unsigned work = 0;
    int done = 0;

    snprintf(value, sizeof value, "blocking-%d", rank);
    OK(PMIX_Allgather(value, whole));
    CHECK(gathered(whole, PMI2_MAX_VALLEN, "blocking"));
    many[0] = room(WIDTH);
    OK(PMIX_Allgather_max(value, many[0], WIDTH));
    CHECK(gathered(many[0], WIDTH, "blocking"));
    free(many[0]);

    snprintf(value, sizeof value, "split-%d", rank);
    OK(PMIX_Iallgather(value, whole, &request));
    memset(value, '!', sizeof value);
    while (!done && work < 1000) {
        OK(PMIX_Test(request, &done));
        while (++work % 100)
            ;
    }
    OK(PMIX_Wait(request));
    CHECK(gathered(whole, PMI2_MAX_VALLEN, "split"));
    CHECK(PMIX_Wait(request) == PMI2_ERR_INVALID_ARG);
    CHECK(PMIX_Test(request, &done) == PMI2_ERR_INVALID_ARG);

    /* Several are under way, and waited for the other way round. */
    for (int i = 0; i < UNDER_WAY; i++) {
        many[i] = room(WIDTH);
        snprintf(value, sizeof value, "many%d-%d", i, rank);
        OK(PMIX_Iallgather_max(value, many[i], WIDTH, &requests[i]));
    }
    for (int i = UNDER_WAY; i--;) {
        OK(PMIX_Wait(requests[i]));
        snprintf(what, sizeof what, "many%d", i);
        CHECK(gathered(many[i], WIDTH, what));
        free(many[i]);
    }
    free(whole);
}

static void pairs(const char *job)
{
    char key[64], value[64], want[64];
    PMIX_Request fence;
    int len;

    snprintf(key, sizeof key, "key-%d", rank);
    snprintf(value, sizeof value, "value-of-%d", rank);
    OK(PMI2_KVS_Put(key, value));
    OK(PMIX_KVS_Ifence(&fence));
    OK(PMIX_Wait(fence));
    for (int r = 0; r < size; r++) {
        snprintf(key, sizeof key, "key-%d", r);
        snprintf(want, sizeof want, "value-of-%d", r);
        OK(PMI2_KVS_Get(r % 2 ? job : NULL, r % 3 ? r : PMI2_ID_NULL, key, value, sizeof value, &len));
        CHECK(!strcmp(value, want) && len == (int)strlen(want));
    }
    OK(PMI2_KVS_Get(NULL, 0, "key-0", value, 6, &len));
    CHECK(!strcmp(value, "value") && len == -(int)strlen("value-of-0"));
    CHECK(PMI2_KVS_Get(NULL, PMI2_ID_NULL, "nobody-has", value, sizeof value, &len) == PMI2_FAIL);
}

static void ring(void)
{
    char mine[64], want[64], left[64], right[64];
    int place, count;

    snprintf(mine, sizeof mine, "ring-%d", rank);
    OK(PMIX_Ring(mine, &place, &count, left, right, sizeof left));
    CHECK(count == size && place >= 0 && place < count);
    if (place == rank) {
        snprintf(want, sizeof want, "ring-%d", (rank + size - 1) % size);
        CHECK(!strcmp(left, want));
        snprintf(want, sizeof want, "ring-%d", (rank + 1) % size);
        CHECK(!strcmp(right, want));
    }
    /* Both neighbours of a process that has little room give more. */
    memset(left, '!', sizeof left);
    memset(right, '!', sizeof right);
    if (rank == 0 && size > 1) {
        CHECK(PMIX_Ring("r", &place, &count, left, right, 3) == PMI2_ERR_NOMEM);
        CHECK(!strcmp(left, "lo") && !strcmp(right, "lo"));
    } else {
        OK(PMIX_Ring("long", &place, &count, left, right, sizeof left));
    }
}

static void names(void)
{
    char port[64];

    if (rank == 0)
        OK(PMI2_Nameserv_publish("extensions", NULL, "port-7"));
    OK(PMI2_KVS_Fence());
    OK(PMI2_Nameserv_lookup("extensions", NULL, port, sizeof port));
    CHECK(!strcmp(port, "port-7"));
    CHECK(PMI2_Nameserv_lookup("extensions", NULL, port, 3) == PMI2_ERR_NOMEM && !strcmp(port, "po"));
    OK(PMI2_KVS_Fence());
    if (rank == 0)
        OK(PMI2_Nameserv_unpublish("extensions", NULL));
    OK(PMI2_KVS_Fence());
    CHECK(PMI2_Nameserv_lookup("extensions", NULL, port, sizeof port) == PMI2_FAIL);
}

/* None of these reaches the server. */
static void mistakes(void)
{
    static char text[2 * PMI2_MAX_VALLEN], buffer[64];
    PMIX_Request request;
    int number;

    memset(text, 'a', sizeof text - 1);
    CHECK(PMI2_Init(&number, &number, &number, &number) == PMI2_FAIL);
    CHECK(PMI2_KVS_Put(NULL, "v") == PMI2_ERR_INVALID_ARG);
    CHECK(PMI2_KVS_Put("k", NULL) == PMI2_ERR_INVALID_ARG);
    CHECK(PMI2_KVS_Put("", "v") == PMI2_ERR_INVALID_KEY_LENGTH);
    CHECK(PMI2_KVS_Put(text, "v") == PMI2_ERR_INVALID_KEY_LENGTH);
    CHECK(PMI2_KVS_Put("\xff", "v") == PMI2_ERR_INVALID_KEY);
    CHECK(PMI2_KVS_Put("k", text) == PMI2_ERR_INVALID_VAL_LENGTH);
    CHECK(PMI2_KVS_Put("k", "two\nlines") == PMI2_ERR_INVALID_VAL);
    CHECK(PMI2_KVS_Get(NULL, 0, "k", buffer, 0, &number) == PMI2_ERR_INVALID_LENGTH);
    CHECK(PMI2_KVS_Get(NULL, 0, "k", NULL, 8, &number) == PMI2_ERR_INVALID_ARG);
    CHECK(PMI2_KVS_Get("of others", 0, "k", buffer, 8, &number) == PMI2_ERR_INVALID_ARG);
    CHECK(PMI2_Job_GetId(buffer, -1) == PMI2_ERR_INVALID_LENGTH);
    CHECK(PMIX_Allgather(NULL, buffer) == PMI2_ERR_INVALID_ARG);
    CHECK(PMIX_Allgather("v", NULL) == PMI2_ERR_INVALID_ARG);
    CHECK(PMIX_Allgather(text, buffer) == PMI2_ERR_INVALID_VAL_LENGTH);
    CHECK(PMIX_Allgather_max("four", buffer, 4) == PMI2_ERR_INVALID_VAL_LENGTH);
    CHECK(PMIX_Allgather_max("v", buffer, PMI2_MAX_VALLEN + 1) == PMI2_ERR_INVALID_LENGTH);
    CHECK(PMIX_Iallgather("v", buffer, NULL) == PMI2_ERR_INVALID_ARG);
    CHECK(PMIX_KVS_Ifence(NULL) == PMI2_ERR_INVALID_ARG);
    memset(&request, 0, sizeof request);
    CHECK(PMIX_Wait(request) == PMI2_ERR_INVALID_ARG);
    CHECK(PMIX_Ring("v", &number, NULL, buffer, buffer, 8) == PMI2_ERR_INVALID_ARG);
}

int main(int argc, char **argv)
{
    char job[256], key[64] = "";
    int spawned, appnum, own, here, found, len;

    CHECK(!PMI2_Initialized());
    CHECK(PMI2_KVS_Fence() == PMI2_ERR_INIT);
    CHECK(PMIX_Wait(NULL) == PMI2_ERR_INIT);
    CHECK(PMI2_Init(&spawned, NULL, &rank, &appnum) == PMI2_ERR_INVALID_ARG);
    OK(PMI2_Init(&spawned, &size, &rank, &appnum));
    if (argc > 1) {
        if (rank == size - 1)
            CHECK(PMI2_Abort(atoi(argv[1]), "on purpose") != PMI2_SUCCESS);
        OK(PMI2_KVS_Fence());
        return 0;
    }
    CHECK(PMI2_Initialized() && !spawned && rank >= 0 && rank < size);
    OK(PMI2_Job_GetId(job, sizeof job));
    OK(PMI2_Job_GetRank(&own));
    OK(PMI2_Info_GetSize(&here));
    CHECK(own == rank && here >= 1 && here <= size);
    OK(PMI2_Info_GetJobAttr("no-such-attribute", key, sizeof key, &found));
    CHECK(!found);
    gathers();
    pairs(job);
    ring();
    names();
    mistakes();
    OK(PMI2_Finalize());
    CHECK(!PMI2_Initialized());
    CHECK(PMI2_KVS_Get(NULL, 0, "key-0", key, sizeof key, &len) == PMI2_ERR_INIT);
    printf("rank %d of %d, %d on this node: all is well\n", rank, size, here);
    return 0;
}
