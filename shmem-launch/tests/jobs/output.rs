//! Output in files, and what a terminal shows of a start that takes long.

use std::collections::BTreeMap;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use crate::hosts::Network;
use crate::signals::Terminal;
use crate::support::{sh, shmrun, shmrun_after};

struct Dir(PathBuf);

impl Dir {
    fn new(name: &str) -> Self {
        let name = format!("shmrun-{name}-{}", std::process::id());
        let dir = std::env::temp_dir().join(name);
        fs::create_dir_all(&dir).unwrap();
        Self(dir)
    }

    fn path(&self) -> &str {
        self.0.to_str().unwrap()
    }

    fn files(&self) -> BTreeMap<String, String> {
        let file = |entry: fs::DirEntry| {
            let text = fs::read_to_string(entry.path()).unwrap();
            (entry.file_name().into_string().unwrap(), text)
        };
        let all = fs::read_dir(&self.0).unwrap();
        all.map(|entry| file(entry.unwrap())).collect()
    }
}

impl Drop for Dir {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

#[test]
fn every_pe_has_its_files() {
    let dir = Dir::new("files");
    fs::write(dir.0.join("rank.3.out"), "of an earlier job").unwrap();
    fs::write(dir.0.join("other"), "kept").unwrap();
    let script = "[ $PMI_RANK = 3 ] && exit; echo out $PMI_RANK; printf 'no end' >&2";
    for place in ["", "deep/er"] {
        let at = dir.0.join(place);
        let options = ["-n", "12", "--nodes", "3", "--output", at.to_str().unwrap()];
        let out = sh(&options, script).run();
        assert_eq!(
            (out.code(), out.stdout.as_str(), out.stderr.as_str()),
            (0, "", "")
        );
        let dir = Dir(at);
        let mut files = match place {
            "" => {
                let files = dir.files();
                std::mem::forget(dir);
                files
            }
            _ => dir.files(),
        };
        let other = files.remove("other");
        assert_eq!(other.as_deref(), place.is_empty().then_some("kept"));
        let mut want = BTreeMap::new();
        for rank in (0..12).filter(|&rank| rank != 3) {
            want.insert(format!("rank.{rank:02}.out"), format!("out {rank}\n"));
            want.insert(format!("rank.{rank:02}.err"), "no end".to_owned());
        }
        assert_eq!(files, want);
    }
}

#[test]
fn much_output_goes_to_files_of_shmruns_machine() {
    let (dir, net) = (Dir::new("much"), Network::new());
    let script = "i=0; while [ $i -lt 3000 ]; do echo line $i of $PMI_RANK; i=$((i+1)); done";
    let options = ["-n", "4", "--output", dir.path()];
    let out = net.sh("a,b", &options, script).run();
    assert_eq!((out.code(), out.stdout.as_str()), (0, ""), "{out:?}");
    for rank in 0..4 {
        let want: String = (0..3000).map(|i| format!("line {i} of {rank}\n")).collect();
        let text = fs::read_to_string(dir.0.join(format!("rank.{rank}.out"))).unwrap();
        assert!(text == want, "{rank}: {} bytes", text.len());
    }
}

#[test]
fn files_that_cannot_be_written_are_told() {
    let dir = Dir::new("full");
    // One of them may not get longer.
    let script = "[ $PMI_RANK = 0 ] && exec sleep 1000; exec yes";
    let options = ["-n", "2", "--output", dir.path(), "/bin/sh", "-c", script];
    let out = shmrun_after("ulimit -Sf 100", &options).run();
    assert_eq!(out.code(), 123, "{out:?}");
    let said = format!(
        "cannot write to the file {}/rank.1.out: File too large",
        dir.path()
    );
    assert!(out.messages()[0].contains(&said), "{out:?}");
    let file = dir.0.join("file");
    fs::write(&file, "").unwrap();
    let out = shmrun(&["--output", file.to_str().unwrap(), "true"]).run();
    assert_eq!(out.code(), 125, "{out:?}");
    assert!(out.stderr.contains("--output"), "{out:?}");
}

/// A remote shell that takes longer than a start may take unseen: it begins when `go` is there.
fn slow(dir: &Path, net: &Network) -> String {
    let (path, go) = (dir.join("slow"), dir.join("go"));
    let (go, rsh) = (go.display(), net.rsh());
    let text = format!("#!/bin/sh\nuntil [ -e {go} ]; do sleep 0.05; done\nexec {rsh} \"$@\"\n");
    fs::write(&path, text).unwrap();
    fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    path.to_str().unwrap().to_owned()
}

#[test]
fn a_terminal_shows_a_start_that_takes_long() {
    let (dir, net) = (Dir::new("progress"), Network::new());
    let shell = slow(&dir.0, &net);
    for (option, shown) in [("-n2", true), ("--quiet", false)] {
        let (mut terminal, theirs) = Terminal::open();
        let stream = || std::process::Stdio::from(theirs.try_clone().unwrap());
        let job = net.sh("a,b", &[option], "echo done; echo done >&2");
        let job = job
            .env("SHMEM_RSH", &shell)
            .stdout(stream())
            .stderr(stream());
        let job = job.start();
        let line = "shmrun: starting: 0 of 2 nodes are prepared, 0 of 2 PEs run";
        let mut seen = String::new();
        match shown {
            true => seen += &terminal.wait_for(line),
            // What must not be shown would be by now.
            false => std::thread::sleep(std::time::Duration::from_millis(1500)),
        }
        fs::write(dir.0.join("go"), "").unwrap();
        let out = job.wait();
        fs::remove_file(dir.0.join("go")).unwrap();
        assert_eq!(out.code(), 0, "{out:?}");
        for _ in 0..4 {
            seen += &terminal.wait_for("done\r\n");
        }
        assert_eq!(seen.contains(line), shown, "{seen:?}");
        // Whatever came after the last erasure is output of PEs.
        let (_, output) = seen.rsplit_once("\r\x1b[K").unwrap_or(("", &seen));
        assert_eq!(output, "done\r\n".repeat(4), "{seen:?}");
    }
    // Who is no terminal is shown nothing.
    let job = net.sh("a,b", &[], "true").env("SHMEM_RSH", &shell);
    let job = job.start();
    std::thread::sleep(std::time::Duration::from_millis(1500));
    fs::write(dir.0.join("go"), "").unwrap();
    let out = job.wait();
    assert_eq!((out.code(), out.stderr.as_str()), (0, ""));
}
