//! `include/packhouse.h` is what the library's source says, and C and C++ see it as Rust does.

use crate::render::{declared, header, names};
use packhouse::*;
use std::collections::BTreeSet;
use std::fmt::Write as _;
use std::mem::offset_of;
use std::path::PathBuf;

fn crate_folder() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Compares a file with what it must be; in the mode of `cargo xtask docs` it is written.
fn compare(path: &std::path::Path, expected: &str) {
    if std::env::var_os("PACKHOUSE_BLESS").is_some() {
        std::fs::write(path, expected).expect("because the repository is writable");
    }
    let actual = std::fs::read_to_string(path).unwrap_or_default();
    assert!(
        actual == expected,
        "{} is not current: run `cargo xtask docs`",
        path.display()
    );
}

#[test]
fn the_header_is_what_the_source_declares() {
    compare(&crate_folder().join("include/packhouse.h"), &header());
}

/// The list of statuses in `docs/design/capi.md`, between its two marks.
#[test]
fn the_documented_statuses_are_the_librarys() {
    let path = crate_folder().join("../../docs/design/capi.md");
    let text = std::fs::read_to_string(&path).expect("because it is in the repository");
    let (before, rest) = text
        .split_once(STATUSES_BEGIN)
        .expect("because the mark is there");
    let (_, after) = rest
        .split_once(STATUSES_END)
        .expect("because the mark is there");
    let mut table = String::from("\n| number | name | meaning |\n|---|---|---|\n");
    for status in statuses() {
        let (name, meaning) = (status.name.to_string_lossy(), status.meaning);
        writeln!(table, "| {} | `{name}` | {meaning} |", status.number).expect("because it grows");
    }
    compare(
        &path,
        &format!("{before}{STATUSES_BEGIN}{table}{STATUSES_END}{after}"),
    );
}

const STATUSES_BEGIN: &str = "<!-- statuses, written by cargo xtask docs -->";
const STATUSES_END: &str = "<!-- end of statuses -->";

/// The other direction: whatever identifier of ours the header has is one of the source's.
#[test]
fn the_header_declares_nothing_else() {
    let header = header();
    let code = header
        .split("*/")
        .skip(1)
        .filter_map(|part| part.split("/*").next());
    let mut found = BTreeSet::new();
    for part in code {
        let words = part.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
        let ours = words.filter(|w| w.starts_with("packhouse_") || w.starts_with("PACKHOUSE_"));
        found.extend(
            ours.filter(|word| *word != "PACKHOUSE_H")
                .map(str::to_owned),
        );
    }
    let known = names(&declared());
    assert_eq!(found, known);
    // Comments name nothing that is not there; a name cut short stands for all that begin so.
    let words = header.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_'));
    let ours = words.filter(|w| w.starts_with("packhouse_") || w.starts_with("PACKHOUSE_"));
    let unknown: Vec<_> = ours
        .filter(|word| !known.contains(*word))
        // The guard, and a text that `packhouse_status_name` gives.
        .filter(|word| !["PACKHOUSE_H", "PACKHOUSE_UNKNOWN_STATUS"].contains(word))
        .filter(|word| !word.ends_with('_') || !known.iter().any(|name| name.starts_with(word)))
        .collect();
    assert!(unknown.is_empty(), "{unknown:?}");
    assert!(
        known.len() > 100 && declared().calls.len() > 20,
        "{}",
        known.len()
    );
}

macro_rules! layouts {
    ($($name:ident { $($field:ident),* })*) => {{
        let mut text = String::new();
        $(
            // Fails to compile when a field is left out.
            let _ = |value: $name| { let $name { $($field: _),* } = value; };
            let fields: &[(&str, usize)] = &[
                $((stringify!($field), offset_of!($name, $field))),*
            ];
            assertions(&mut text, stringify!($name), size_of::<$name>(), fields);
        )*
        text
    }};
}

fn assertions(text: &mut String, name: &str, bytes: usize, fields: &[(&str, usize)]) {
    writeln!(text, "ASSERT(sizeof({name}) == {bytes}, \"{name}\");").expect("because text grows");
    for (field, offset) in fields {
        let line = format!("ASSERT(offsetof({name}, {field}) == {offset}, \"{name}.{field}\");");
        writeln!(text, "{line}").expect("because text grows");
    }
}

fn structs_of_sets() -> String {
    layouts! {
        packhouse_open_options {
            struct_size, trust, flags, reserved, store, state, stage, set, trusted_uids,
            trusted_uid_count
        }
        packhouse_parameter { name, value }
        packhouse_contract {
            struct_size, type_id, layout, layout_version, dims, dim_count, reserved, parameters,
            parameter_count, source_sha256, fingerprint
        }
        packhouse_entry {
            struct_size, type_id, index, slot, tensor, tensor_bytes, layout, layout_version,
            parameters, parameter_count, dims, dim_count, reserved, payload_bytes, row_count,
            row_bytes, unit_rows, pack_key, object, source_sha256, fingerprint
        }
        packhouse_summary { struct_size, is_staged, entry_count, plan, key }
        packhouse_view { struct_size, held, proof, reserved, payload, payload_bytes, object }
        packhouse_count { tensors, bytes }
        packhouse_counters {
            struct_size, refused_count, mapped, copied, deep, receipt, reverified, sample, sampled,
            sampled_groups
        }
        packhouse_refused { struct_size, status, count }
        packhouse_refusal { struct_size, status, text_bytes, text }
        packhouse_sample_options { struct_size, reserved, group_count, seed }
        packhouse_sample_report {
            struct_size, reserved, compared_groups, group_count, source_bytes, payload_bytes
        }
        packhouse_layout_summary { struct_size, is_invertible, version, parameter_count, id }
        packhouse_layout_parameter { struct_size, has_default, default_value, min, max, name }
    }
}

fn structs_of_tiles() -> String {
    layouts! {
        packhouse_images_options {
            struct_size, mode, check, flags, root, max_bytes, min_free_bytes, max_age_ns, seed,
            thread_count, reserved
        }
        packhouse_tensor { data, bytes }
        packhouse_head {
            struct_size, is_tied, vocabulary, width, dtype, digest, digest_ns
        }
        packhouse_tile_geometry { struct_size, order, kd, nd, kpad, t }
        packhouse_tile_sizes {
            struct_size, reserved, code_bytes, scale_bytes, image_bytes, tile_count
        }
        packhouse_tile { struct_size, flags, index, k, codes, code_bytes, scales, scale_count }
        packhouse_tile_report {
            struct_size, outcome, refused, unwritten, written_bytes, scale_sum, elapsed_ns,
            failed_column, column_error, note_count, refused_text, unwritten_text, notes_text
        }
        packhouse_image_counters {
            struct_size, reserved, seed, tiles_hit, tiles_packed, tiles_written, tiles_unwritten,
            tiles_refused, columns_gathered, columns_sampled, bytes_read, bytes_written,
            files_removed, bytes_removed, owner_problems, digest_ns, read_ns, sample_ns, pack_ns,
            write_ns, fingerprint_ns
        }
        packhouse_tile_reason { struct_size, status, tiles }
        packhouse_line { struct_size, reserved, text_bytes, text }
    }
}

/// Sizes, offsets and numbers, as compilers of C and C++ have them.
#[test]
fn c_and_cpp_lay_everything_out_as_rust_does() {
    let mut text = String::from(
        "#include <packhouse.h>\n#include <stddef.h>\n#ifdef __cplusplus\n#define ASSERT \
         static_assert\n#else\n#define ASSERT _Static_assert\n#endif\n",
    );
    let structs = [structs_of_sets(), structs_of_tiles()].concat();
    let declared = declared();
    for item in &declared.structs {
        let wanted = format!("sizeof({})", item.name);
        assert!(structs.contains(&wanted), "{} is not looked at", item.name);
    }
    text.push_str(&structs);
    for (name, value, _) in &declared.constants {
        writeln!(text, "ASSERT({name} == {value}, \"{name}\");").expect("because text grows");
    }
    for status in statuses() {
        let (name, number) = (status.name.to_string_lossy(), status.number);
        writeln!(text, "ASSERT({name} == {number}, \"{name}\");").expect("because text grows");
    }
    text.push_str("int main(void) { return 0; }\n");
    let folder = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).expect("because it is ours");
    for (compiler, standard, name) in [("gcc", "c11", "a.c"), ("g++", "c++17", "a.cpp")] {
        let source = folder.path().join(name);
        std::fs::write(&source, &text).expect("because the folder is ours");
        let output = std::process::Command::new(compiler)
            .args(["-Wall", "-Wextra", "-Werror", "-pedantic", "-fsyntax-only"])
            .arg(format!("-std={standard}"))
            .arg(format!("-I{}", crate_folder().join("include").display()))
            .arg(&source)
            .output()
            .expect("because a compiler is there");
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{compiler}: {said}");
    }
}

#[test]
fn each_status_has_a_number_and_a_name_of_its_own() {
    let numbers: Vec<i32> = statuses().map(|status| status.number).collect();
    let mut sorted = numbers.clone();
    sorted.sort_unstable();
    sorted.dedup();
    assert_eq!(sorted.len(), numbers.len(), "{numbers:?}");
    for code in packhouse_loader::set::Code::ALL {
        let status = statuses().find(|status| status.number == code.number());
        let status = status.expect("because every code is a status");
        assert_eq!(
            status.name.to_str().expect("because names are ASCII"),
            format!("PACKHOUSE_{}", code.name())
        );
        // SAFETY: the text is static.
        let told = unsafe { std::ffi::CStr::from_ptr(packhouse_status_name(code.number())) };
        assert_eq!(told, status.name);
    }
    for code in ImageCode::ALL {
        let status = statuses().find(|status| status.number == code.number());
        assert_eq!(status.map(|status| status.name), Some(code.name()));
        // SAFETY: the text is static.
        let told = unsafe { std::ffi::CStr::from_ptr(packhouse_status_name(code.number())) };
        assert_eq!(told, code.name());
    }
    // SAFETY: the text is static.
    let unknown = unsafe { std::ffi::CStr::from_ptr(packhouse_status_name(-1)) };
    assert_eq!(unknown, c"PACKHOUSE_UNKNOWN_STATUS");
}
