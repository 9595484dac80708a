//! Programs that cannot be executed: what users read, and the status.

use std::path::{Path, PathBuf};
use std::process::Command;

use crate::support::shmrun;
use crate::template;

#[test]
fn programs_that_cannot_be_started() {
    let refused = |program: &str| {
        let out = shmrun(&["-n", "2", program]).run();
        assert_eq!(out.messages().len(), 1, "{}", out.stderr);
        (out.code(), out.stderr)
    };
    assert_eq!(refused("no-such-program").0, 127);
    assert_eq!(refused("/no/such/program").0, 127);
    assert_eq!(refused("/tmp").0, 126);
    let (code, text) = refused("/etc/passwd");
    assert!(code == 126 && text.contains("chmod +x"), "{text}");
}

/// An executable file with this content, at an empty directory's path.
fn executable(dir: &Path, name: &str, content: &[u8]) -> String {
    let (path, plain) = (dir.join(name), dir.join(format!("{name}.plain")));
    std::fs::write(&plain, content).unwrap();
    // By another process: the kernel executes no file that a process may write to, such as a child that another thread forks now.
    let copied = Command::new("install")
        .args(["-m", "755"])
        .args([&plain, &path])
        .status();
    assert!(copied.unwrap().success());
    path.to_str().expect("an ordinary path").to_owned()
}

/// Where the bytes of its loader's name lie in an ELF program.
fn loader_of(program: &[u8]) -> std::ops::Range<usize> {
    let headers = shmem_node::elf::program_headers(program);
    let interp = headers
        .iter()
        .find(|h| h.kind == shmem_node::elf::PT_INTERP);
    let interp = interp.expect("a dynamic program");
    interp.offset as usize..(interp.offset + interp.file_len) as usize
}

#[test]
fn programs_that_the_kernel_does_not_execute() {
    let dir = directory("not-executed");
    let own = std::fs::read(template::program()).unwrap();
    let mut foreign = own.clone();
    foreign[18..20].copy_from_slice(&(0x1234u16).to_le_bytes());
    let mut no_loader = own.clone();
    no_loader[loader_of(&own)][1..4].copy_from_slice(b"xyz");
    let headers = shmem_node::elf::program_headers(&own);
    let loaded = headers
        .iter()
        .filter(|h| h.kind == shmem_node::elf::PT_LOAD);
    let loaded = loaded
        .map(|h| (h.offset + h.file_len) as usize)
        .max()
        .unwrap();
    let sh = std::fs::read("/bin/sh").unwrap();
    let mut plain_no_loader = sh.clone();
    plain_no_loader[loader_of(&sh)][1..4].copy_from_slice(b"xyz");
    let cases: [(&str, &[u8], i32, &str); 8] = [
        ("garbage", b"\x7fELF garbage", 126, "Exec format error"),
        ("empty", b"", 126, "is an empty file"),
        (
            "interpreter",
            b"#!/no/such -x\n",
            127,
            "its interpreter /no/such does not exist",
        ),
        ("crlf", b"#!/bin/sh\r\necho hi\r\n", 127, "carriage return"),
        ("foreign", &foreign, 126, "for another machine"),
        ("loader", &no_loader, 127, "its loader /xyz"),
        ("plain-loader", &plain_no_loader, 127, "its loader /xyz"),
        ("cut", &own[..loaded / 2], 126, "is not complete"),
    ];
    for (name, content, status, said) in cases {
        let path = executable(&dir, name, content);
        for options in [&["-n", "3"][..], &["-n", "4", "--nodes", "2"]] {
            let out = shmrun(&[options, &[&path]].concat()).run();
            let err = &out.stderr;
            assert_eq!(out.code(), status, "{name}: {err}");
            assert_eq!(out.messages().len(), 1, "{name}: {err}");
            assert!(err.contains(&path) && err.contains(said), "{name}: {err}");
            assert!(!err.contains("SHMEM_SPAWN"), "{name}: {err}");
        }
    }
    let path = executable(&dir, "busy", &own);
    let writer = std::fs::File::options().append(true).open(&path).unwrap();
    for options in [&["-n", "2"][..], &["-n", "2", "-x", "SHMEM_SPAWN=exec"]] {
        let out = shmrun(&[options, &[&path]].concat()).run();
        assert_eq!(out.code(), 126, "{}", out.stderr);
        assert!(out.stderr.contains("open for writing"), "{}", out.stderr);
    }
    drop(writer);
    let out = shmrun(&["-n", "2", ""]).run();
    assert_eq!(out.code(), 127, "{}", out.stderr);
    assert!(out.stderr.contains("is empty"), "{}", out.stderr);
    std::fs::remove_dir_all(&dir).unwrap();
}

/// As execvp(3) and shells do it.
#[test]
fn a_script_without_a_first_line_is_run_by_the_shell() {
    let dir = directory("bare script");
    let path = executable(&dir, "bare", b"echo \"$0 $1 $2\"\n");
    let out = shmrun(&["-n", "2", &path, "a b", "c"]).run();
    assert_eq!(out.code(), 0, "{}", out.stderr);
    assert_eq!(out.stdout, format!("{path} a b c\n").repeat(2));
    std::fs::remove_dir_all(&dir).unwrap();
}

/// A new directory for a test's files.
fn directory(name: &str) -> PathBuf {
    let dir = std::env::temp_dir().join(format!("shmrun {name} {}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    dir
}
