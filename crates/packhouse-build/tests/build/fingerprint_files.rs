//! The files of a fingerprint: which of them were touched since, which the user named, and which
//! one a name finds.

use crate::fingerprint_world::{Bench, facts};
use std::fs;
use std::path::PathBuf;

#[test]
fn a_library_that_was_swapped_and_put_back_was_touched() {
    let bench = Bench::new();
    bench.build("b");
    bench.library("other", "libplug.so", 7);
    let before = bench.of("b");
    let again = bench.of("b");
    assert_eq!(again.touched_since(&before), Vec::<PathBuf>::new());
    let real = fs::canonicalize(bench.path("b/bin/libplug.so")).unwrap();
    let aside = bench.path("aside.so");
    fs::rename(&real, &aside).unwrap();
    fs::copy(bench.path("other/bin/libplug.so"), &real).unwrap();
    fs::rename(&aside, &real).unwrap();
    let after = bench.of("b");
    assert_eq!(facts(&before, &after), Vec::<String>::new());
    assert_eq!(after.touched_since(&before), [real.clone()]);
    assert_eq!(before.touched_since(&after), [real]);
}
