//! Jobs of several programs, and what each finds in its environment.

use crate::support::shmrun;

#[test]
fn programs_with_a_colon_between_them_are_one_job() {
    let echo = "echo $PMI_RANK/$PMI_SIZE $0 $A $B ${PWD##*/}";
    let first = [
        "-n", "2", "--nodes", "3", "-genv", "B", "b", "-env", "A", "x",
    ];
    let first = [&first[..], &["/bin/sh", "-c", echo, "one"]].concat();
    let second = ["-np", "3", "-wdir", "/usr/bin", "./sh", "-c", echo, "two"];
    let out = shmrun(
        &[
            &first[..],
            &[":"],
            &second,
            &[":", "-x", "A=y", "true", "-n"],
        ]
        .concat(),
    )
    .env("A", "own")
    .run();
    assert_eq!(out.code(), 0, "{out:?}");
    let here = std::env::current_dir().unwrap();
    let here = here.file_name().unwrap().to_str().unwrap();
    let want = [
        format!("0/6 one x b {here}"),
        format!("1/6 one x b {here}"),
        "2/6 two own b bin".into(),
        "3/6 two own b bin".into(),
        "4/6 two own b bin".into(),
    ];
    assert_eq!(out.sorted(), want);
}

#[test]
fn a_file_of_programs_is_a_job() {
    let dir = std::env::temp_dir().join(format!("shmrun-programs-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let file = dir.join("job");
    let text = "# who does what\n-n 2 sh -c 'echo $PMI_RANK of one'\n\n\
                -n 1 -env A 'b c' sh -c \\\n 'echo $PMI_RANK of two: $A' : # not the end\n";
    std::fs::write(&file, text).unwrap();
    let out = shmrun(&["-l", "--configfile", file.to_str().unwrap()]).run();
    std::fs::remove_dir_all(&dir).unwrap();
    assert_eq!(out.code(), 0, "{out:?}");
    let want = ["[0] 0 of one", "[1] 1 of one", "[2] 2 of two: b c"];
    assert_eq!(out.sorted(), want);
}

#[test]
fn what_cannot_be_is_refused_with_the_program_or_option() {
    for (line, status, said) in [
        ("-n 1 true : -n 0 true", 2, "-n 0 starts nothing"),
        ("-n 1 true : no-such-program", 127, "no-such-program"),
        ("true : -wdir /no/such true", 2, "/no/such"),
        ("true : -x SHMEM_SPIN=1 true", 2, "--genv SHMEM_SPIN=VALUE"),
        (
            "true : --nodes 2 true",
            2,
            "--nodes holds for the whole job",
        ),
        ("true :", 2, "PROGRAM"),
        ("--configfile /no/such/file", 2, "/no/such/file"),
    ] {
        let words: Vec<&str> = line.split_whitespace().collect();
        let out = shmrun(&words).run();
        assert_eq!(out.code(), status, "{line}: {out:?}");
        assert!(out.stderr.contains(said), "{line}: {out:?}");
        assert_eq!(out.stdout, "", "{line}");
    }
}
