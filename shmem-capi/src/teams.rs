//! Teams.

use std::ffi::{c_int, c_long, c_void};

use crate::check;
use crate::constants::SHMEM_TEAM_NUM_CONTEXTS;
use crate::handles::Team;
use crate::setup;
use crate::types::TeamConfig;

pub(crate) unsafe fn team_my_pe(name: &str, team: Team) -> c_int {
    check::running(name);
    // SAFETY: by the caller.
    unsafe { team.find() }.map_or(-1, |team| team.my_pe() as c_int)
}

pub(crate) unsafe fn team_n_pes(name: &str, team: Team) -> c_int {
    check::running(name);
    // SAFETY: by the caller.
    unsafe { team.find() }.map_or(-1, |team| team.n_pes() as c_int)
}

pub(crate) unsafe fn team_get_config(
    name: &str,
    team: Team,
    mask: c_long,
    config: *mut TeamConfig,
) -> c_int {
    check::running(name);
    // SAFETY: by the caller.
    let Some(num_contexts) = (unsafe { team.num_contexts() }) else {
        return -1;
    };
    if mask & SHMEM_TEAM_NUM_CONTEXTS != 0 {
        // SAFETY: by the caller.
        unsafe { config.write(TeamConfig { num_contexts }) };
    }
    0
}

pub(crate) unsafe fn team_translate_pe(name: &str, from: Team, pe: c_int, to: Team) -> c_int {
    check::running(name);
    // SAFETY: by the caller.
    let (Some(from), Some(to)) = (unsafe { (from.find(), to.find()) }) else {
        return -1;
    };
    // A negative number becomes one that is too large.
    from.translate(pe as usize, to).map_or(-1, |pe| pe as c_int)
}

pub(crate) unsafe fn team_ptr(
    name: &str,
    team: Team,
    dest: *const c_void,
    pe: c_int,
) -> *mut c_void {
    check::running(name);
    // SAFETY: by the caller.
    unsafe { team.find() }
        .and_then(|team| team.members().world_pe(pe as usize))
        .map_or(std::ptr::null_mut(), |pe| setup::address(dest, pe))
}

/// The number of contexts that a configuration has, if the mask selects it; else 0. `None` if it is no count.
///
/// # Safety
/// `config` is readable if the mask selects something.
unsafe fn configured_contexts(mask: c_long, config: *const TeamConfig) -> Option<c_int> {
    if mask & SHMEM_TEAM_NUM_CONTEXTS == 0 {
        return Some(0);
    }
    // SAFETY: by the caller.
    let TeamConfig { num_contexts } = unsafe { config.read() };
    (num_contexts >= 0).then_some(num_contexts)
}

pub(crate) unsafe fn team_split_strided(
    name: &str,
    parent: Team,
    start: c_int,
    stride: c_int,
    size: c_int,
    config: *const TeamConfig,
    mask: c_long,
    new_team: *mut Team,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let (parent, contexts) = unsafe { (parent.find(), configured_contexts(mask, config)) };
    let (team, status) = match (parent, contexts) {
        (Some(parent), Some(contexts)) => {
            match parent.split_strided(start as isize, stride as isize, size as isize) {
                Ok(Some(team)) => (Team::new(team, contexts), 0),
                Ok(None) => (Team::INVALID, 0),
                Err(_) => (Team::INVALID, -1),
            }
        }
        _ => (Team::INVALID, -1),
    };
    // SAFETY: by the caller.
    unsafe { new_team.write(team) };
    status
}

pub(crate) unsafe fn team_split_2d(
    name: &str,
    parent: Team,
    xrange: c_int,
    x_config: *const TeamConfig,
    x_mask: c_long,
    x_team: *mut Team,
    y_config: *const TeamConfig,
    y_mask: c_long,
    y_team: *mut Team,
) -> c_int {
    check::collective(name);
    // SAFETY: by the caller.
    let (parent, contexts) = unsafe {
        let x = configured_contexts(x_mask, x_config);
        let y = configured_contexts(y_mask, y_config);
        (parent.find(), x.zip(y))
    };
    let made = match (parent, contexts, usize::try_from(xrange)) {
        (Some(parent), Some(contexts), Ok(xrange)) => {
            let rows_and_columns = parent.split_2d(xrange).ok();
            rows_and_columns.map(|teams| (teams, contexts))
        }
        _ => None,
    };
    let (teams, status) = match made {
        Some(((row, column), (x, y))) => ((Team::new(row, x), Team::new(column, y)), 0),
        None => ((Team::INVALID, Team::INVALID), -1),
    };
    // SAFETY: by the caller.
    unsafe {
        x_team.write(teams.0);
        y_team.write(teams.1);
    }
    status
}

pub(crate) unsafe fn team_destroy(name: &str, team: Team) {
    check::collective(name);
    if team == Team::INVALID {
        return;
    }
    match team.take() {
        Some(team) => team.destroy(),
        None => check::refuse(
            name,
            format_args!("the team is a predefined one, or was destroyed before"),
        ),
    }
}
