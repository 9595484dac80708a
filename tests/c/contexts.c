/* Contexts: options, teams, many at once, sessions, and what a context's quiet completes. */
#include "check.h"

static long word, from_static[64];

static void options(void)
{
    const long all[] = {0, SHMEM_CTX_PRIVATE, SHMEM_CTX_SERIALIZED, SHMEM_CTX_NOSTORE,
                        SHMEM_CTX_SERIALIZED | SHMEM_CTX_NOSTORE, SHMEM_CTX_PRIVATE | SHMEM_CTX_NOSTORE};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
        shmem_ctx_t ctx = SHMEM_CTX_INVALID;
        shmem_team_t team = SHMEM_TEAM_INVALID;
        CHECK(shmem_ctx_create(all[i], &ctx) == 0 && ctx != SHMEM_CTX_INVALID);
        CHECK(shmem_ctx_get_team(ctx, &team) == 0 && team == SHMEM_TEAM_WORLD);
        word = 0;
        shmem_barrier_all();
        shmem_ctx_long_p(ctx, &word, 100 + me, right);
        shmem_ctx_fence(ctx);
        shmem_ctx_long_atomic_add(ctx, &word, 0, right);
        shmem_ctx_quiet(ctx);
        CHECK(shmem_ctx_long_g(ctx, &word, right) == 100 + me);
        shmem_barrier_all();
        CHECK(word == 100 + left);
        shmem_ctx_destroy(ctx);
    }
    shmem_team_t team = SHMEM_TEAM_INVALID;
    CHECK(shmem_ctx_get_team(SHMEM_CTX_DEFAULT, &team) == 0 && team == SHMEM_TEAM_WORLD);
    CHECK(shmem_ctx_get_team(SHMEM_CTX_INVALID, &team) != 0 && team == SHMEM_TEAM_INVALID);
    shmem_ctx_destroy(SHMEM_CTX_INVALID);
    shmem_ctx_fence(SHMEM_CTX_INVALID);
    shmem_ctx_quiet(SHMEM_CTX_INVALID);
    shmem_barrier_all();
}

/* On a team's context, PEs are those of the team. */
static void of_teams(void)
{
    shmem_team_t reverse, got = SHMEM_TEAM_INVALID;
    shmem_ctx_t ctx = SHMEM_CTX_INVALID;
    CHECK(shmem_team_split_strided(SHMEM_TEAM_WORLD, n - 1, -1, n, NULL, 0, &reverse) == 0);
    CHECK(shmem_team_create_ctx(reverse, 0, &ctx) == 0);
    CHECK(shmem_ctx_get_team(ctx, &got) == 0 && got == reverse);
    word = 0;
    shmem_barrier_all();
    shmem_ctx_long_p(ctx, &word, me + 7, n - 1 - right);
    int to = n - 1 - right;
    shmem_ctx_pe_quiet(ctx, &to, 1);
    CHECK(shmem_ctx_long_atomic_fetch(ctx, &word, to) == me + 7);
    CHECK(shmem_ctx_long_atomic_fetch_add(ctx, &word, 1, to) == me + 7);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    CHECK(word == left + 8);
    shmem_ctx_t other = SHMEM_CTX_DEFAULT;
    CHECK(shmem_team_create_ctx(SHMEM_TEAM_INVALID, 0, &other) != 0 && other == SHMEM_CTX_INVALID);
    shmem_barrier_all();
    shmem_team_destroy(reverse); /* takes the context with it */
    shmem_barrier_all();
}

/* Some dozens at once, each with its own traffic. */
static void many(void)
{
    enum { MOST = 64 };
    shmem_ctx_t ctx[MOST];
    int made = 0;
    while (made < MOST && shmem_ctx_create(0, &ctx[made]) == 0)
        made++;
    CHECK(made >= 8);
    memset(from_static, 0, sizeof from_static);
    shmem_barrier_all();
    for (int i = 0; i < made; i++)
        shmem_ctx_long_p(ctx[i], &from_static[i], me * 100 + i + 1, right);
    for (int i = 0; i < made; i++)
        shmem_ctx_quiet(ctx[i]);
    shmem_barrier_all();
    for (int i = 0; i < made; i++)
        CHECK(from_static[i] == left * 100 + i + 1);
    for (int i = 0; i < made; i++)
        shmem_ctx_destroy(ctx[i]);
    shmem_barrier_all();
}

/* Sessions are hints: everything goes on as without them. */
static void sessions(void)
{
    shmem_ctx_t ctx;
    shmem_ctx_session_config_t config = {.total_ops = 32};
    CHECK(shmem_ctx_create(SHMEM_CTX_PRIVATE, &ctx) == 0);
    memset(from_static, 0, sizeof from_static);
    shmem_barrier_all();
    shmem_ctx_session_start(ctx, SHMEM_CTX_SESSION_BATCH, &config, SHMEM_CTX_SESSION_TOTAL_OPS);
    for (int i = 0; i < 16; i++)
        shmem_ctx_long_p(ctx, &from_static[i], i + me, right);
    shmem_ctx_session_start(ctx, 0, NULL, 0);
    for (int i = 16; i < 32; i++)
        shmem_ctx_long_p(ctx, &from_static[i], i + me, right);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_session_stop(ctx);
    shmem_ctx_quiet(ctx);
    shmem_barrier_all();
    for (int i = 0; i < 32; i++)
        CHECK(from_static[i] == i + left);
    shmem_ctx_session_start(SHMEM_CTX_INVALID, 0, NULL, 0);
    shmem_ctx_session_stop(SHMEM_CTX_INVALID);
    shmem_ctx_session_start(SHMEM_CTX_DEFAULT, SHMEM_CTX_SESSION_BATCH, NULL, 0);
    shmem_long_p(&word, 3, me);
    shmem_ctx_session_stop(SHMEM_CTX_DEFAULT);
    shmem_ctx_destroy(ctx);
    shmem_barrier_all();
}

void contexts(void)
{
    options();
    of_teams();
    many();
    sessions();
}
