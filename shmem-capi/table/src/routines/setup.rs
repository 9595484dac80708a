//! Setup, exit and queries, thread levels, memory, teams, contexts, profiling.

use super::{Chapter, Context, Routine};

const NEW: fn(&str, &'static str, &'static str) -> Routine = Routine::new;

pub(super) fn chapters() -> Vec<Chapter> {
    vec![
        Chapter {
            title: "Setup, exit and queries",
            routines: vec![
                NEW("void shmem_init(void)", "setup::init", "init"),
                NEW(
                    "void shmem_finalize(void)",
                    "setup::finalize",
                    "World::finalize",
                ),
                NEW("int shmem_my_pe(void)", "setup::my_pe", "my_pe"),
                NEW("int shmem_n_pes(void)", "setup::n_pes", "n_pes"),
                NEW(
                    "void shmem_query_initialized(int *initialized)",
                    "setup::query_initialized",
                    "initialized",
                ),
                NEW(
                    "int shmem_pe_accessible(int pe)",
                    "setup::pe_accessible",
                    "pe_accessible",
                ),
                NEW(
                    "int shmem_addr_accessible(const void *addr, int pe)",
                    "setup::addr_accessible",
                    "raw::addr_accessible",
                ),
                NEW(
                    "void *shmem_ptr(const void *dest, int pe)",
                    "setup::ptr",
                    "SymSlice::ptr",
                ),
                NEW(
                    "void *shmem_team_ptr(shmem_team_t team, const void *dest, int pe)",
                    "teams::ptr",
                    "Team::ptr",
                ),
                NEW(
                    "void shmem_info_get_version(int *major, int *minor)",
                    "setup::info_get_version",
                    "info_version",
                ),
                NEW(
                    "void shmem_info_get_name(char *name)",
                    "setup::info_get_name",
                    "info_name",
                ),
                NEW(
                    "SHMEM_IMPL_NORETURN void shmem_global_exit(int status)",
                    "setup::global_exit",
                    "global_exit",
                ),
            ],
            tests: &[
                "tests/programs/lives.rs",
                "tests/programs/conformance/life.rs",
                "tests/programs/conformance/memory.rs",
                "tests/c/setup.c",
                "tests/c/programs/again.c",
                "tests/c/programs/exits.c",
            ],
        },
        Chapter {
            title: "Thread levels",
            routines: vec![
                NEW(
                    "int shmem_init_thread(int requested, int *provided)",
                    "setup::init_thread",
                    "init_thread",
                ),
                NEW(
                    "void shmem_query_thread(int *provided)",
                    "setup::query_thread",
                    "thread_level",
                ),
            ],
            tests: &[
                "tests/programs/lives.rs",
                "tests/c/conformance.c",
                "tests/c/programs/threads.c",
            ],
        },
        Chapter {
            title: "Memory",
            routines: vec![
                NEW(
                    "void *shmem_malloc(size_t size)",
                    "memory::malloc",
                    "alloc_uninit",
                ),
                NEW(
                    "void *shmem_calloc(size_t count, size_t size)",
                    "memory::calloc",
                    "alloc",
                ),
                NEW(
                    "void *shmem_align(size_t alignment, size_t size)",
                    "memory::align",
                    "alloc_aligned",
                ),
                NEW(
                    "void *shmem_malloc_with_hints(size_t size, long hints)",
                    "memory::malloc_with_hints",
                    "alloc_with_hints",
                ),
                NEW("void shmem_free(void *ptr)", "memory::free", "free"),
                NEW(
                    "void *shmem_realloc(void *ptr, size_t size)",
                    "memory::realloc",
                    "realloc",
                ),
            ],
            tests: &["tests/programs/conformance/memory.rs", "tests/c/memory.c"],
        },
        Chapter {
            title: "Teams",
            routines: vec![
                NEW(
                    "int shmem_team_my_pe(shmem_team_t team)",
                    "teams::my_pe",
                    "Team::my_pe",
                ),
                NEW(
                    "int shmem_team_n_pes(shmem_team_t team)",
                    "teams::n_pes",
                    "Team::n_pes",
                ),
                NEW(
                    "int shmem_team_get_config(shmem_team_t team, long config_mask, \
                     shmem_team_config_t *config)",
                    "teams::get_config",
                    "Team::config",
                ),
                NEW(
                    "int shmem_team_translate_pe(shmem_team_t src_team, int src_pe, \
                     shmem_team_t dest_team)",
                    "teams::translate_pe",
                    "Team::translate",
                ),
                NEW(
                    "int shmem_team_split_strided(shmem_team_t parent_team, int start, int stride, \
                     int size, const shmem_team_config_t *config, long config_mask, \
                     shmem_team_t *new_team)",
                    "teams::split_strided",
                    "Team::split_strided",
                ),
                NEW(
                    "int shmem_team_split_2d(shmem_team_t parent_team, int xrange, \
                     const shmem_team_config_t *xaxis_config, long xaxis_mask, \
                     shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, \
                     long yaxis_mask, shmem_team_t *yaxis_team)",
                    "teams::split_2d",
                    "Team::split_2d",
                ),
                NEW(
                    "void shmem_team_destroy(shmem_team_t team)",
                    "teams::destroy",
                    "Team::destroy",
                ),
            ],
            tests: &["tests/programs/conformance/teams.rs", "tests/c/teams.c"],
        },
        Chapter {
            title: "Contexts and sessions",
            routines: vec![
                NEW(
                    "int shmem_ctx_create(long options, shmem_ctx_t *ctx)",
                    "contexts::create",
                    "context, ContextBuilder::create",
                ),
                NEW(
                    "int shmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)",
                    "contexts::create_on_team",
                    "ContextBuilder::team",
                ),
                NEW(
                    "int shmem_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team)",
                    "contexts::get_team",
                    "",
                ),
                NEW(
                    "void shmem_ctx_destroy(shmem_ctx_t ctx)",
                    "contexts::destroy",
                    "Context",
                ),
                NEW(
                    "void shmem_ctx_session_start(shmem_ctx_t ctx, long options, \
                     const shmem_ctx_session_config_t *config, long config_mask)",
                    "contexts::session_start",
                    "Context::session_start",
                ),
                NEW(
                    "void shmem_ctx_session_stop(shmem_ctx_t ctx)",
                    "contexts::session_stop",
                    "Context::session_stop",
                ),
            ],
            tests: &[
                "tests/programs/conformance/contexts.rs",
                "tests/c/contexts.c",
            ],
        },
        Chapter {
            title: "Order and completion",
            routines: vec![
                NEW("void shmem_fence(void)", "order::fence", "fence").context(Context::Any),
                NEW("void shmem_quiet(void)", "order::quiet", "quiet").context(Context::Any),
                NEW(
                    "void shmem_pe_quiet(const int *target_pes, size_t npes)",
                    "order::pe_quiet",
                    "pe_quiet",
                )
                .context(Context::Any),
            ],
            tests: &[
                "tests/programs/conformance/order.rs",
                "tests/programs/conformance/contexts.rs",
                "tests/c/ordering.c",
            ],
        },
        Chapter {
            title: "Profiling",
            routines: vec![NEW(
                "void shmem_pcontrol(int level, ...)",
                "setup::pcontrol",
                "",
            )],
            tests: &["tests/c/programs/pshmem.c"],
        },
    ]
}
