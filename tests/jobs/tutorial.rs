//! The tutorial: the programs that it shows are those of the examples, and print what it says.

use std::collections::VecDeque;

use crate::programs::{
    STEP1_HELLO, STEP2_PUT, STEP3_VALUES, STEP4_ATOMICS, STEP5_SIGNALS, STEP6_HALO, shmrun,
};

const TEXT: &str = include_str!("../../docs/tutorial.md");

/// The code of the fenced blocks of a kind, in order.
fn blocks(kind: &str) -> VecDeque<String> {
    let fence = format!("```{kind}\n");
    let after = TEXT.split(&fence).skip(1);
    after
        .map(|text| text.split("```").next().unwrap().to_owned())
        .collect()
}

fn sorted(text: &str) -> Vec<&str> {
    let mut lines: Vec<_> = text.lines().collect();
    lines.sort_unstable();
    lines
}

#[test]
fn every_step_is_as_it_is_shown_and_prints_what_is_said() {
    let (mut code, mut output) = (blocks("rust"), blocks("text"));
    macro_rules! steps {
        ($($program:ident $file:literal;)*) => { $(
            let file = include_str!(concat!("../../examples/tutorial/", $file, ".rs"));
            assert_eq!(code.pop_front().as_deref(), Some(file), "{}", $file);
            let shown = output.pop_front().expect($file);
            let (command, printed) = shown.split_once('\n').unwrap();
            let want = concat!(" target/release/examples/", $file);
            let options = command.strip_prefix("$ shmrun ").unwrap().strip_suffix(want).unwrap();
            let out = shmrun(options, &[$program]).succeed();
            assert_eq!(sorted(&out), sorted(printed), "{}", $file);
            // What is asserted holds on other layouts, too.
            shmrun("-n 1", &[$program]).succeed();
            shmrun("-n 5 --nodes 3", &[$program]).succeed();
        )* };
    }
    steps! {
        STEP1_HELLO "step1_hello";
        STEP2_PUT "step2_put";
        STEP3_VALUES "step3_values";
        STEP4_ATOMICS "step4_atomics";
        STEP5_SIGNALS "step5_signals";
        STEP6_HALO "step6_halo";
    }
    assert!(
        code.is_empty() && output.is_empty(),
        "a step that has no program"
    );
}
