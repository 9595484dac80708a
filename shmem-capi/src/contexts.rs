//! Contexts and sessions.

use std::ffi::{c_int, c_long};

use shmem::raw::{self, CtxOptions};

use crate::check;
use crate::constants::{
    SHMEM_CTX_NOSTORE, SHMEM_CTX_PRIVATE, SHMEM_CTX_SERIALIZED, SHMEM_CTX_SESSION_BATCH,
    SHMEM_CTX_SESSION_TOTAL_OPS,
};
use crate::handles::{Ctx, Team};
use crate::types::SessionConfig;

pub(crate) unsafe fn ctx_create(name: &str, options: c_long, ctx: *mut Ctx) -> c_int {
    // SAFETY: by the caller.
    unsafe { team_create_ctx(name, Team::WORLD, options, ctx) }
}

pub(crate) unsafe fn team_create_ctx(
    name: &str,
    team: Team,
    options: c_long,
    ctx: *mut Ctx,
) -> c_int {
    check::running(name);
    let options = CtxOptions {
        private: options & SHMEM_CTX_PRIVATE != 0,
        serialized: options & SHMEM_CTX_SERIALIZED != 0,
        nostore: options & SHMEM_CTX_NOSTORE != 0,
        connections: raw::Connections::AsSet,
    };
    // SAFETY: by the caller.
    let made = unsafe { team.find() }
        .and_then(|engine| raw::Ctx::create(*engine.members(), options).ok())
        .map(|made| Ctx::new(made, team));
    // SAFETY: by the caller.
    unsafe { ctx.write(made.unwrap_or(Ctx::INVALID)) };
    if made.is_some() { 0 } else { -1 }
}

pub(crate) unsafe fn ctx_get_team(name: &str, ctx: Ctx, team: *mut Team) -> c_int {
    check::running(name);
    // SAFETY: by the caller.
    let found = unsafe { ctx.team() };
    // SAFETY: by the caller.
    unsafe { team.write(found.unwrap_or(Team::INVALID)) };
    if found.is_some() { 0 } else { -1 }
}

pub(crate) unsafe fn ctx_destroy(name: &str, ctx: Ctx) {
    check::running(name);
    if ctx == Ctx::DEFAULT {
        check::refuse(
            name,
            format_args!("SHMEM_CTX_DEFAULT exists until shmem_finalize"),
        );
    }
    ctx.destroy();
}

pub(crate) unsafe fn ctx_session_start(
    name: &str,
    ctx: Ctx,
    options: c_long,
    config: *const SessionConfig,
    mask: c_long,
) {
    check::running(name);
    // SAFETY: by the caller.
    let Some(ctx) = (unsafe { ctx.find() }) else {
        return;
    };
    let total = (mask & SHMEM_CTX_SESSION_TOTAL_OPS != 0)
        // SAFETY: by the caller: the mask says that there is one.
        .then(|| unsafe { (*config).total_ops });
    ctx.session_start(options & SHMEM_CTX_SESSION_BATCH != 0, total);
}

pub(crate) unsafe fn ctx_session_stop(name: &str, ctx: Ctx) {
    check::running(name);
    // SAFETY: by the caller.
    if let Some(ctx) = unsafe { ctx.find() } {
        ctx.session_stop();
    }
}
