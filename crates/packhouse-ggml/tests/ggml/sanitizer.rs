//! Whether these tests run instrumented, as `scripts/asan.sh` says they do, and whether it works.

use crate::host::{Host, plugin};

/// Set by `scripts/asan.sh`.
fn is_instrumented() -> bool {
    std::env::var_os("PACKHOUSE_TEST_ASAN").is_some()
}

fn assert_reported(command: &str, report: &str, place: &str) {
    let answer = Host::new(&[]).run(&[command]);
    assert!(!answer.is_ok, "{command} went unnoticed: {answer:#?}");
    assert!(answer.stderr.contains(report), "{answer:#?}");
    assert!(answer.stderr.contains(place), "{answer:#?}");
}

/// The plain run tests the plug-in as it is; the instrumented one must see what it is there to see,
/// in the host and in the plug-in.
#[test]
fn the_sanitizer_looks_where_it_is_said_to_look() {
    let bytes = std::fs::read(plugin()).expect("because it was built");
    let wanted = b"__asan_report_load";
    let is_there = bytes.windows(wanted.len()).any(|part| part == wanted);
    assert_eq!(is_there, is_instrumented(), "{}", plugin().display());
    if is_instrumented() {
        let report = "AddressSanitizer: heap-use-after-free";
        assert_reported("use-after-free", report, " in use_after_free ");
        assert_reported("select-freed", report, "packhouse_ggml");
        let report = "LeakSanitizer: detected memory leaks";
        assert_reported("leak", report, "leak of 100 byte(s)");
    }
}
