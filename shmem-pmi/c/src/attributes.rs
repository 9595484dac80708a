//! What is known of the node and of the job.

use std::ffi::{c_char, c_int};

use shmem_pmi::process::ProcessError;

use crate::answer::answer;
use crate::arguments::{Out, key, length, value};
use crate::state::{self, Job};
use crate::status::{Code, Fault};

/// What was found, or not.
type Attribute = Result<Option<Vec<u8>>, ProcessError>;

/// Tells the processes of this node something.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_PutNodeAttr(name: *const c_char, value_at: *const c_char) -> c_int {
    answer("PMI2_Info_PutNodeAttr", || {
        let job = state::job()?;
        // SAFETY: by the caller.
        let (name, value) = unsafe { (key("name", name)?, value("value", value_at, usize::MAX)?) };
        Ok(job.process.put_node_attr(name, value)?)
    })
}

/// What a process of this node has told; waits for it if `waitfor` is not 0.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetNodeAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
    waitfor: c_int,
) -> c_int {
    let get = |job: &Job, name: &str| job.process.node_attr(name, waitfor != 0);
    // SAFETY: by the caller.
    answer("PMI2_Info_GetNodeAttr", || unsafe {
        get_text(name, (value, valuelen), found, get)
    })
}

/// Gives a key of the node whose value is whole numbers with commas between them. Does not wait.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetNodeAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> c_int {
    let get = |job: &Job, name: &str| job.process.node_attr(name, false);
    // SAFETY: by the caller.
    answer("PMI2_Info_GetNodeAttrIntArray", || unsafe {
        get_numbers(name, (array, arraylen), outlen, found, get)
    })
}

/// What the server knows of the job.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetJobAttr(
    name: *const c_char,
    value: *mut c_char,
    valuelen: c_int,
    found: *mut c_int,
) -> c_int {
    let get = |job: &Job, name: &str| job.process.job_attr(name);
    // SAFETY: by the caller.
    answer("PMI2_Info_GetJobAttr", || unsafe {
        get_text(name, (value, valuelen), found, get)
    })
}

/// Gives an attribute of the job that is whole numbers with commas between them.
///
/// # Safety
/// See the crate.
#[unsafe(no_mangle)]
unsafe extern "C" fn PMI2_Info_GetJobAttrIntArray(
    name: *const c_char,
    array: *mut c_int,
    arraylen: c_int,
    outlen: *mut c_int,
    found: *mut c_int,
) -> c_int {
    let get = |job: &Job, name: &str| job.process.job_attr(name);
    // SAFETY: by the caller.
    answer("PMI2_Info_GetJobAttrIntArray", || unsafe {
        get_numbers(name, (array, arraylen), outlen, found, get)
    })
}

/// # Safety
/// See the crate.
unsafe fn get_text(
    name: *const c_char,
    (value, valuelen): (*mut c_char, c_int),
    found: *mut c_int,
    get: impl FnOnce(&Job, &str) -> Attribute,
) -> Result<(), Fault> {
    let job = state::job()?;
    // SAFETY: by the caller.
    let (name, out, found) = unsafe {
        (
            key("name", name)?,
            Out::text(("value", value), ("valuelen", valuelen))?,
            Out::one("found", found)?,
        )
    };
    let attribute = get(&job, name)?;
    found.set(attribute.is_some().into());
    match attribute {
        Some(attribute) => out.set_text(name, &attribute),
        None => Ok(()),
    }
}

/// # Safety
/// See the crate.
unsafe fn get_numbers(
    name: *const c_char,
    (array, arraylen): (*mut c_int, c_int),
    outlen: *mut c_int,
    found: *mut c_int,
    get: impl FnOnce(&Job, &str) -> Attribute,
) -> Result<(), Fault> {
    let job = state::job()?;
    let room = length("arraylen", arraylen)?;
    // SAFETY: by the caller.
    let (name, out, outlen, found) = unsafe {
        (
            key("name", name)?,
            Out::new("array", array, room)?,
            Out::one("outlen", outlen)?,
            Out::one("found", found)?,
        )
    };
    let attribute = get(&job, name)?;
    found.set(attribute.is_some().into());
    let Some(attribute) = attribute else {
        outlen.set(0);
        return Ok(());
    };
    let numbers = numbers(&attribute).ok_or_else(|| {
        let text = String::from_utf8_lossy(&attribute);
        Fault::new(
            Code::Fail,
            format_args!("{name} is no list of numbers: {text}"),
        )
    })?;
    outlen.set(numbers.len().min(room) as c_int);
    match out.write(0, &numbers) {
        true => Ok(()),
        false => Err(Fault::new(
            Code::NoMem,
            format_args!(
                "{name} has {} numbers, the array room for {room}",
                numbers.len()
            ),
        )),
    }
}

fn numbers(text: &[u8]) -> Option<Vec<c_int>> {
    let text = std::str::from_utf8(text).ok()?;
    let numbers = text.split(',').map(|number| number.trim().parse().ok());
    numbers.collect()
}

#[cfg(test)]
mod tests {
    use super::numbers;

    #[test]
    fn lists_of_numbers_are_read() {
        assert_eq!(numbers(b"64"), Some(vec![64]));
        assert_eq!(numbers(b"0, 1,-2"), Some(vec![0, 1, -2]));
        for wrong in ["", "1,", "(vector,(0,1,1))"] {
            assert_eq!(numbers(wrong.as_bytes()), None, "{wrong}");
        }
    }
}
