//! Setup, exit and queries, thread levels, memory, teams, contexts, profiling.

use super::line::{Chapter, Contexts, Routine};

pub(super) fn chapters() -> Vec<Chapter> {
    vec![
        setup_exit_and_queries(),
        thread_levels(),
        jobs_without_a_launcher(),
        memory(),
        teams(),
        contexts_and_sessions(),
        order_and_completion(),
        profiling(),
    ]
}

fn setup_exit_and_queries() -> Chapter {
    let setup = |proto| Routine::new("setup", proto);
    let teams = |proto| Routine::new("teams", proto);
    Chapter {
        title: "Setup, exit and queries",
        routines: vec![
            setup("void shmem_init(void)"),
            setup("void shmem_finalize(void)").rust(["World::finalize"]),
            setup("int shmem_my_pe(void)"),
            setup("int shmem_n_pes(void)"),
            setup("void shmem_query_initialized(int *initialized)").rust(["initialized"]),
            setup("int shmem_pe_accessible(int pe)"),
            setup("int shmem_addr_accessible(const void *addr, int pe)")
                .rust(["raw::addr_accessible"]),
            setup("void *shmem_ptr(const void *dest, int pe)").rust(["SymSlice::ptr"]),
            teams("void *shmem_team_ptr(shmem_team_t team, const void *dest, int pe)")
                .rust(["Team::ptr::<T>"]),
            setup("void shmem_info_get_version(int *major, int *minor)").rust(["info_version"]),
            setup("void shmem_info_get_name(char *name)").rust(["info_name"]),
            setup("SHMEM_IMPL_NORETURN void shmem_global_exit(int status)"),
        ],
        tests: &[
            "tests/programs/lives.rs",
            "tests/programs/conformance/life.rs",
            "tests/programs/conformance/memory.rs",
            "tests/c/setup.c",
            "tests/c/programs/again.c",
            "tests/c/programs/exits.c",
        ],
    }
}

fn thread_levels() -> Chapter {
    let setup = |proto| Routine::new("setup", proto);
    Chapter {
        title: "Thread levels",
        routines: vec![
            setup("int shmem_init_thread(int requested, int *provided)"),
            setup("void shmem_query_thread(int *provided)").rust(["thread_level"]),
        ],
        tests: &[
            "tests/programs/lives.rs",
            "tests/c/conformance.c",
            "tests/c/programs/threads.c",
        ],
    }
}

fn jobs_without_a_launcher() -> Chapter {
    let setup = |proto| Routine::new("setup", proto);
    Chapter {
        title: "Jobs without a launcher",
        routines: vec![
            setup("int shmemx_get_uniqueid(shmemx_uniqueid_t *id)").rust(["UniqueId::new"]),
            setup(
                "int shmemx_init_from_uniqueid(const shmemx_uniqueid_t *id, int my_pe, int n_pes, \
                 int requested, int *provided)",
            )
            .rust(["init_from", "init_thread_from"]),
        ],
        tests: &["tests/jobs/by_id.rs", "tests/c/programs/by_id.c"],
    }
}

fn memory() -> Chapter {
    let memory = |proto| Routine::new("memory", proto);
    Chapter {
        title: "Memory",
        routines: vec![
            memory("void *shmem_malloc(size_t size)").rust(["alloc_uninit"]),
            memory("void *shmem_calloc(size_t count, size_t size)").rust(["alloc"]),
            memory("void *shmem_align(size_t alignment, size_t size)").rust(["alloc_aligned"]),
            memory("void *shmem_malloc_with_hints(size_t size, long hints)").rust(["alloc_uninit"]),
            memory("void shmem_free(void *ptr)"),
            memory("void *shmem_realloc(void *ptr, size_t size)"),
        ],
        tests: &["tests/programs/conformance/memory.rs", "tests/c/memory.c"],
    }
}

fn teams() -> Chapter {
    let teams = |proto| Routine::new("teams", proto);
    Chapter {
        title: "Teams",
        routines: vec![
            teams("int shmem_team_my_pe(shmem_team_t team)"),
            teams("int shmem_team_n_pes(shmem_team_t team)"),
            teams(
                "int shmem_team_get_config(shmem_team_t team, long config_mask, \
                 shmem_team_config_t *config)",
            )
            .rust([]),
            teams(
                "int shmem_team_translate_pe(shmem_team_t src_team, int src_pe, \
                 shmem_team_t dest_team)",
            )
            .rust(["Team::translate"]),
            teams(
                "int shmem_team_split_strided(shmem_team_t parent_team, int start, int stride, \
                 int size, const shmem_team_config_t *config, long config_mask, \
                 shmem_team_t *new_team)",
            ),
            teams(
                "int shmem_team_split_2d(shmem_team_t parent_team, int xrange, \
                 const shmem_team_config_t *xaxis_config, long xaxis_mask, \
                 shmem_team_t *xaxis_team, const shmem_team_config_t *yaxis_config, \
                 long yaxis_mask, shmem_team_t *yaxis_team)",
            ),
            teams("void shmem_team_destroy(shmem_team_t team)"),
        ],
        tests: &["tests/programs/conformance/teams.rs", "tests/c/teams.c"],
    }
}

fn contexts_and_sessions() -> Chapter {
    let contexts = |proto| Routine::new("contexts", proto);
    Chapter {
        title: "Contexts and sessions",
        routines: vec![
            contexts("int shmem_ctx_create(long options, shmem_ctx_t *ctx)")
                .rust(["context", "ContextBuilder::create"]),
            contexts(
                "int shmem_team_create_ctx(shmem_team_t team, long options, shmem_ctx_t *ctx)",
            )
            .rust(["ContextBuilder::team"]),
            contexts("int shmem_ctx_get_team(shmem_ctx_t ctx, shmem_team_t *team)")
                .rust(["Context::members"]),
            contexts("void shmem_ctx_destroy(shmem_ctx_t ctx)").rust(["Context"]),
            contexts(
                "void shmem_ctx_session_start(shmem_ctx_t ctx, long options, \
                 const shmem_ctx_session_config_t *config, long config_mask)",
            )
            .rust(["raw::Ctx"]),
            contexts("void shmem_ctx_session_stop(shmem_ctx_t ctx)").rust(["raw::Ctx"]),
        ],
        tests: &[
            "tests/programs/conformance/contexts.rs",
            "tests/c/contexts.c",
        ],
    }
}

fn order_and_completion() -> Chapter {
    let order = |proto| Routine::new("order", proto).contexts(Contexts::Any);
    Chapter {
        title: "Order and completion",
        routines: vec![
            order("void shmem_fence(void)"),
            order("void shmem_quiet(void)"),
            order("void shmem_pe_quiet(const int *target_pes, size_t npes)"),
        ],
        tests: &[
            "tests/programs/conformance/order.rs",
            "tests/programs/conformance/contexts.rs",
            "tests/c/ordering.c",
        ],
    }
}

fn profiling() -> Chapter {
    let setup = |proto| Routine::new("setup", proto);
    Chapter {
        title: "Profiling",
        routines: vec![setup("void shmem_pcontrol(int level, ...)").rust(["pcontrol"])],
        tests: &["tests/c/programs/pshmem.c"],
    }
}
