//! What documents may name.

use packhouse_lab::name::*;

#[test]
fn devices_have_names_that_last() {
    for good in [
        "cpu",
        "cuda:GPU-5f1e0c2a-0000-1111-2222-333344445555",
        "cuda:MIG-5f1e0c2a-0000-1111-2222-333344445555",
        "xpu:5F1E0C2A-0000-1111-2222-333344445555",
        "vulkan:00000000-0300-0000-0000-000000000000",
    ] {
        assert!(is_device(good), "{good}");
    }
    for ordinal in [
        "0",
        "cuda",
        "cuda0",
        "cuda:0",
        "gpu1",
        "CUDA0",
        "xpu:1",
        "cpu:0",
        "cpu0",
        "cuda:",
        ":",
        "",
        "cuda:GPU-0",
        "cuda:12345678",
        "level-zero:0",
        "cuda:GPU-5f1e0c2a",
        "cuda:GPU-5f1e0c2a-0000-1111-2222-33334444555",
        "cuda:GPU-5f1e0c2a-0000-1111-2222-33334444555g",
        "cuda:GPU-a-5f1e0c2a-0000-1111-2222-333344445555",
        "cuda0:GPU-5f1e0c2a-0000-1111-2222-333344445555",
        " cpu",
        "cpu\n",
    ] {
        assert!(!is_device(ordinal), "{ordinal:?}");
    }
}

#[test]
fn no_word_for_a_program_has_an_absolute_path() {
    for good in [
        "",
        "serve",
        "a/b",
        "${lab}/a",
        "--data=${lab}/x",
        "http://127.0.0.1:80/v1",
        "a=b:c/d",
        "gs://bucket/x",
        "--ratio=1/2",
        "x,y",
        "-",
        "gr\u{fc}n",
    ] {
        assert!(is_portable_word(good), "{good:?}");
    }
    for bad in [
        "/",
        "/a",
        "--data=/x",
        "a:/b",
        "a,/b",
        "a /b",
        "\"/b",
        "'/b",
        "//a",
        ":/x",
        "9://a",
        "S3://b",
        "a\nb",
        "a\u{0}b",
        &"a".repeat(1025),
    ] {
        assert!(!is_portable_word(bad), "{bad:?}");
    }
}

#[test]
fn paths_stay_below_the_lab() {
    for good in ["a", "a/b.c", "a b/c", "..a/b", "a/...", &"a".repeat(1024)] {
        assert!(is_relative_path(good) && is_program(good), "{good:?}");
    }
    for bad in [
        "", "/", "/a", "a/", "a//b", ".", "..", "a/..", "./a", "a/./b", "a\\b", "a\nb",
    ] {
        assert!(!is_relative_path(bad), "{bad:?}");
    }
    assert!(is_program("./a") && !is_program("././a") && !is_program("./"));
}

#[test]
fn ids_are_plain_and_abbreviations_are_no_ids_of_experiments() {
    for good in ["a", "0", "a.b-c_d", &"z".repeat(64), "deadbee", "deadbeefx"] {
        assert!(is_id(good) && is_experiment_id(good), "{good}");
    }
    for bad in ["", "A", ".a", "-a", "a/b", "a b", "\u{e4}", &"a".repeat(65)] {
        assert!(!is_id(bad) && !is_experiment_id(bad), "{bad}");
    }
    for short in ["deadbeef", "12345678", &"a".repeat(64)] {
        assert!(is_abbreviation(short), "{short}");
    }
    assert!(is_id("deadbeef") && !is_experiment_id("deadbeef"));
    assert!(!is_abbreviation("deadbee") && !is_abbreviation("DEADBEEF"));
    for good in ["A", "_a1"] {
        assert!(is_variable(good), "{good}");
    }
    for bad in ["", "1a", "a=b", "a-b", "\u{e4}"] {
        assert!(!is_variable(bad), "{bad}");
    }
}
