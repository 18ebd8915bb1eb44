//! Which weights the plug-in says yes to, beside devices and types that the engine asks before
//! CPU_REPACK.

use crate::host::{Answer, Host};

fn select(variables: &[(&str, &str)], words: &[&str]) -> Answer {
    let mut host = Host::new(&[]);
    for (name, value) in variables {
        host = host.set(name, value);
    }
    let words = [&["select"], words].concat();
    let answer = host.run(&words);
    assert!(answer.is_ok, "{variables:?}: {answer:#?}");
    assert_eq!(answer.value("served"), "1", "{variables:?}: {answer:#?}");
    answer
}

fn assert_values(answer: &Answer, expected: &[(&str, &str)]) {
    for (name, value) in expected {
        assert_eq!(answer.value(name), *value, "{name}: {answer:#?}");
    }
}

/// The host also compares the op and its sources byte by byte before and after each question.
#[test]
fn takes_what_the_host_would_repack_and_nothing_else() {
    let answer = select(&[], &[]);
    assert_values(
        &answer,
        &[
            ("mul_mat", "1"),
            ("mul_mat_again", "1"),
            ("mul_mat_of_odd_rows", "0"),
            ("mul_mat_by_q8_0", "0"),
            ("mul_mat_elsewhere", "0"),
            ("mul_mat_id", "0"),
            ("get_rows", "0"),
            ("add_second", "0"),
            ("own_type", "1"),
            ("stock_type", "0"),
        ],
    );
}

#[test]
fn ops_that_move_no_byte_are_taken_on_our_type_only() {
    let answer = select(&[("MOCK_OPS_SHIFT", "3")], &[]);
    for op in ["NONE", "VIEW", "RESHAPE", "PERMUTE", "TRANSPOSE"] {
        let (on, itself, elsewhere) = (
            format!("{op}_on_ours"),
            format!("{op}_itself_on_ours"),
            format!("{op}_elsewhere"),
        );
        assert_values(&answer, &[(&on, "1"), (&itself, "1"), (&elsewhere, "0")]);
    }
    assert_values(&answer, &[("view_of_ours", "1"), ("none_nowhere", "0")]);
}

/// A GPU's host buffer type comes before CPU_REPACK in the engine's own order.
#[test]
fn a_gpu_host_buffer_that_takes_the_weight_goes_first() {
    let accepts = [("MOCK_GPU", "accept")];
    assert_values(
        &select(&accepts, &[]),
        &[("mul_mat", "0"), ("get_rows", "0")],
    );
    assert_values(&select(&[("MOCK_GPU", "refuse")], &[]), &[("mul_mat", "1")]);
    let none = [("MOCK_GPU", "accept"), ("MOCK_GPU_TYPE", "none")];
    assert_values(&select(&none, &[]), &[("mul_mat", "1")]);
}

#[test]
fn without_host_buffers_a_gpu_is_not_asked() {
    let accepts = [("MOCK_GPU", "accept")];
    assert_values(&select(&accepts, &["--no-host"]), &[("mul_mat", "1")]);
    let variable = [("MOCK_GPU", "accept"), ("LLAMA_ARG_NO_HOST", "1")];
    assert_values(&select(&variable, &[]), &[("mul_mat", "1")]);
    assert_values(&select(&accepts, &["--no-host", "0"]), &[("mul_mat", "0")]);
}

#[test]
fn an_extra_type_before_the_repacking_one_goes_first() {
    let accepts = [("MOCK_EARLY", "accept")];
    assert_values(&select(&accepts, &[]), &[("mul_mat", "0")]);
    assert_values(
        &select(&[("MOCK_EARLY", "refuse")], &[]),
        &[("mul_mat", "1")],
    );
    assert_values(&select(&accepts, &["--no-host"]), &[("mul_mat", "0")]);
    let both = [("MOCK_EARLY", "refuse"), ("MOCK_GPU", "refuse")];
    assert_values(&select(&both, &[]), &[("mul_mat", "1")]);
}

#[test]
fn the_user_and_the_engines_words_keep_the_plug_in_out() {
    let off = |host: Host, words: &[&str], why: &str| {
        let answer = host.run(&[&["load"], words].concat());
        assert_values(
            &answer,
            &[("served", "0"), ("goes_on", "1"), ("direct", "0")],
        );
        let line = format!("packhouse: off: {why}; the engine runs as without us");
        assert_eq!(answer.lines, [line]);
    };
    let new = || Host::new(&[]);
    off(new().set("PACKHOUSE", "0"), &[], "PACKHOUSE=0");
    let why = "the engine runs without repacking: --no-repack";
    off(new(), &["--no-repack"], why);
    let why = "the engine runs without repacking: LLAMA_ARG_REPACK=off";
    off(new().set("LLAMA_ARG_REPACK", "off"), &[], why);
}
