//! Jobs that begin and end several times in one process, and static data as symmetric memory.

use shmem_testkit::Job;

use crate::layouts::{self, Layout};
use crate::programs::{LIVES, STATICS, shmrun};

fn lives(options: &str, args: &[&str]) -> Job {
    shmrun(options, &[&[LIVES], args].concat())
}

fn all(layout: &Layout) {
    for args in [&["5"][..], &["3", "static"], &["5", "dropped"]] {
        layout.job(&[&[LIVES], args].concat()).succeed();
    }
    let out = layout.job(&[STATICS]).succeed();
    assert!(out.contains("static data checked on"), "{out}");
}

#[test]
fn on_all_layouts() {
    (0..layouts::PARTS).for_each(|part| layouts::each("lives", part, all));
}

/// Descriptors, threads, mappings and memory of lives that are over do not stay. `SHMEM_TEST_LIVES` is how
/// many lives there are. A page that stays of each of 200 is more than the program allows.
#[test]
fn what_a_process_has_does_not_grow_with_its_lives() {
    let lives_of = std::env::var("SHMEM_TEST_LIVES").unwrap_or_else(|_| "200".into());
    for options in ["-n 4 --nodes 2", "-n 3"] {
        let told = lives(options, &[&lives_of, "flat"]).succeed();
        println!("{options}\n{told}");
    }
}

#[test]
#[ignore = "nightly: two more jobs of 200 lives"]
fn what_a_process_has_does_not_grow_with_xrc_or_atomics_by_owners() {
    for (name, value) in [("SHMEM_TRANSPORT", "xrc"), ("SHMEM_ATOMICS", "owner")] {
        lives("-n 4 --nodes 2", &["200", "flat"])
            .env(name, value)
            .succeed();
    }
}

/// The process ends with its last thread, and no thread of the library stays.
#[test]
fn a_process_whose_main_thread_has_ended_ends() {
    for options in ["-n 2", "-n 2 --nodes 2"] {
        lives(options, &["2", "left"]).succeed();
    }
    let own = lives("-n 2 --nodes 2", &["2", "left"]).env("SHMEM_CTX_QPS", "1");
    own.succeed();
}

/// On one node more than 256, because a counter of one byte would wrap; on several nodes
/// `thousands_of_lives_are_like_the_first` has more.
#[test]
fn many_lives_are_like_the_first() {
    lives("-n 2 --nodes 2", &["60"]).succeed();
    lives("-n 3", &["300"]).succeed();
    lives("-n 3", &["300", "empty"]).succeed();
    lives("-n 4 --nodes 2", &["60", "empty"]).succeed();
}

#[test]
#[ignore = "nightly: thousands of lives"]
fn thousands_of_lives_are_like_the_first() {
    lives("-n 2 --nodes 2", &["400"]).succeed();
    lives("-n 3", &["2000"]).succeed();
    lives("-n 3", &["2000", "empty"]).succeed();
    lives("-n 4 --nodes 2", &["200", "empty"]).succeed();
}

#[test]
fn without_a_launcher_it_is_the_same() {
    for program in [&[LIVES, "3", "static"][..], &[STATICS]] {
        Job::new(program[0], "", &program[1..]).succeed();
    }
}

/// Why a static variable of the program is not symmetric, if it is not.
fn why(program: &[&str], env: &[(&str, &str)]) -> String {
    let job = shmrun("-n 2", &[program, &["why"]].concat());
    job.envs(env.iter().copied()).succeed()
}

#[test]
fn programs_behind_others_have_room_or_say_how_much_they_need() {
    assert!(why(&[STATICS], &[]).contains("PE 1: symmetric"));
    let small = [("SHMEM_STATICS_SIZE", "64k")];
    let text = why(&[STATICS], &small);
    assert!(text.contains("there is room for 64.0 KiB"), "{text}");
    // A script is no ELF file; `env` is one, with other data.
    let script = ["/bin/sh", "-c", "exec \"$0\" \"$@\"", STATICS];
    let reserve = ("SHMEM_HEAP_COMMIT", "reserve");
    for wrapper in [&["/usr/bin/env", STATICS][..], &script] {
        assert!(why(wrapper, &[]).contains("PE 1: symmetric"));
        // Where room takes memory it is as much as the file of the first program says.
        let text = why(wrapper, &[reserve]);
        let advice = "set SHMEM_STATICS_SIZE=";
        assert!(text.contains("of another program"), "{text}");
        let (_, size) = text.split_once(advice).expect(advice);
        let size: String = size
            .chars()
            .take_while(char::is_ascii_alphanumeric)
            .collect();
        let text = why(wrapper, &[reserve, ("SHMEM_STATICS_SIZE", &size)]);
        assert!(text.contains("PE 0: symmetric"), "{text}");
    }
    let none = [("SHMEM_STATICS_SIZE", "0")];
    let text = why(&[STATICS], &none);
    assert!(text.contains("left no room"), "{text}");
}
