//! Clients that do not behave: the job ends with a message that names the PE, or nobody minds. No agent
//! crashes, nothing hangs.

use super::*;

use crate::programs::shmrun;

#[test]
fn what_is_no_pmi_ends_the_job_and_the_message_names_the_pe() {
    for what in ["garbage", "garbage-later", "endless"] {
        for version in ["1", "2"] {
            for nodes in [1, 2] {
                let job = client(
                    &format!("-n 3 --nodes {nodes}"),
                    &format!("{version} {what}"),
                );
                let outcome = job.run();
                let (out, err) = (&outcome.stdout, &outcome.stderr);
                let told = outcome.messages();
                assert_eq!(outcome.status.code(), Some(125), "{what}: {out}\n{err}");
                assert_eq!(told.len(), 1, "{what}: {err}");
                assert!(told[0].contains("PE 2 "), "{what}: {err}");
                assert!(!out.contains("came through"), "{what}: {out}");
            }
        }
    }
}

#[test]
fn a_request_that_nobody_knows_is_refused_and_that_is_all() {
    for version in ["1", "2"] {
        let out = client("-n 3 --nodes 2", &format!("{version} unknown")).succeed();
        assert_eq!(out.matches("has all").count(), 3, "{out}");
    }
}

#[test]
fn a_pe_that_leaves_while_others_wait_for_it_ends_the_job() {
    for what in ["half", "vanish", "close"] {
        for version in ["1", "2"] {
            for options in ["", "--nodes 2", "--respawn 1", "--nodes 2 --respawn 1"] {
                let job = client(&format!("-n 3 {options}"), &format!("{version} {what}"));
                let outcome = job.run();
                let (out, err) = (&outcome.stdout, &outcome.stderr);
                assert!(!outcome.status.success(), "{what}: {out}\n{err}");
                let told = outcome.messages();
                assert_eq!(told.len(), 1, "{what}: {err}");
                assert!(told[0].contains("PE 2 "), "{what}: {err}");
            }
        }
    }
}

#[test]
fn programs_that_say_nothing_disturb_nobody() {
    let out = client("-n 4 --nodes 2", "1 silent").succeed();
    assert_eq!(out.matches("says nothing").count(), 4, "{out}");
    shmrun("-n 8 --nodes 4", &["/bin/true"]).succeed();
}

#[test]
fn a_client_that_reads_no_replies_is_not_listened_to() {
    let out = client("-n 4", "1 flood").succeed();
    assert!(out.contains("the flood stopped"), "{out}");
    assert!(out.contains("the flood was answered"), "{out}");
    assert_eq!(out.matches("was served").count(), 3, "{out}");
}
