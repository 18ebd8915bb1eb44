//! One hand-made file per class of bad input, each refused with its own error that names the place.
//!
//! The classes are those that other GGUF parsers got wrong (`docs/format/gguf.md` lists them):
//! heap overflows from multiplied counts, allocations by declared counts, recursion, division by
//! the block size of a removed type, ranges outside the file, wrapping padding.

use super::build::{ARRAY, BOOL, Build, F32, I32, Q4_0, STRING, U8, U16, U32, rich};
use packhouse_base::Blame;
use packhouse_base::ggml_type::TypeError;
use packhouse_container::gguf::{Field, GgufError, TensorDirectory, limits};
use packhouse_container::{FileSource, ReadAt};
use std::io;

fn refusal(source: &impl ReadAt) -> GgufError {
    match TensorDirectory::parse(source) {
        Ok(directory) => panic!("accepted: {directory:?}"),
        Err(error) => error,
    }
}

fn of(build: Build) -> GgufError {
    refusal(&build.bytes.as_slice())
}

/// Asserts the variant and values of a refusal, and that it blames the file.
macro_rules! refused {
    ($build:expr, $pattern:pat $(if $guard:expr)?) => {{
        let error = of($build);
        assert!(matches!(&error, $pattern $(if $guard)?), "{error:?}");
        assert_eq!(error.blame(), Blame::Source);
    }};
}

/// A source that has zeros after its bytes, up to a length that no memory holds.
struct Sparse(Vec<u8>, u64);

impl ReadAt for Sparse {
    fn len(&self) -> u64 {
        self.1
    }

    fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
        buffer.fill(0);
        let start = usize::try_from(offset).unwrap_or(usize::MAX);
        if let Some(bytes) = self.0.get(start..) {
            let count = bytes.len().min(buffer.len());
            buffer[..count].copy_from_slice(&bytes[..count]);
        }
        Ok(())
    }
}

// Class 1: the fixed header.

#[test]
fn class_01_wrong_magic() {
    refused!(Build::default().raw(&[b'G'; 64]), GgufError::Magic { found } if found == b"GGGG");
}

#[test]
fn class_01_unsupported_version() {
    for wrong in [0, 1, 4, 0x0001_0003] {
        refused!(
            Build::with_version(wrong, 0, 0),
            GgufError::Version { version } if *version == wrong
        );
    }
}

#[test]
fn class_01_big_endian_is_refused_by_name() {
    for wrong in [2u32, 3] {
        let error = of(Build::with_version(wrong.swap_bytes(), 0, 0));
        assert!(matches!(error, GgufError::BigEndian { .. }), "{error:?}");
        assert!(error.to_string().contains("big-endian"));
    }
}

#[test]
fn class_01_shorter_than_the_header() {
    let header = Build::new(0, 0).bytes;
    for length in 0..header.len() {
        let error = refusal(&&header[..length]);
        let GgufError::Truncated {
            offset,
            needed,
            present,
            ..
        } = error
        else {
            panic!("{error:?}");
        };
        assert_eq!(offset + present, length as u64);
        assert!(needed > present);
    }
}

// Class 2: counts.

#[test]
fn class_02_counts_negative_as_signed_or_larger_than_the_room() {
    for wrong in [u64::MAX, 1 << 63, i64::MAX as u64, 5] {
        // 8 + 60 bytes after the tensor count have room for two entries of 25 bytes, and 60 bytes
        // after the metadata count for four of 14.
        refused!(
            Build::new(wrong, 0).raw(&[0; 60]),
            GgufError::Count { field: Field::TensorCount, offset: 8, count, limit: 2 }
                if *count == wrong
        );
        refused!(
            Build::new(0, wrong).raw(&[0; 60]),
            GgufError::Count { field: Field::MetadataCount, offset: 16, count, limit: 4 }
                if *count == wrong
        );
    }
}

#[test]
fn class_02_counts_above_our_limits_in_a_huge_file() {
    let tensors = limits::TENSORS_MAX + 1;
    let error = refusal(&Sparse(Build::new(tensors, 0).bytes, u64::MAX));
    assert!(matches!(
        error,
        GgufError::Count {
            field: Field::TensorCount,
            limit: limits::TENSORS_MAX,
            ..
        }
    ));
    let keys = limits::METADATA_KEYS_MAX + 1;
    let error = refusal(&Sparse(Build::new(0, keys).bytes, u64::MAX));
    assert!(matches!(
        error,
        GgufError::Count {
            field: Field::MetadataCount,
            limit: limits::METADATA_KEYS_MAX,
            ..
        }
    ));
}

#[test]
fn class_02_array_count_larger_than_the_room() {
    for (element, wrong) in [(U8, 9), (10, 2), (STRING, 2), (U32, 3), (BOOL, u64::MAX)] {
        refused!(
            Build::new(0, 1).array(b"k", element, wrong).raw(&[0; 8]),
            GgufError::Count { field: Field::Value { key }, count, .. }
                if key == "k" && *count == wrong
        );
    }
}

// Class 3: strings and names.

#[test]
fn class_03_string_length_above_the_rest_of_the_file() {
    refused!(
        Build::new(0, 1).key(b"k", STRING).u64(5).raw(b"text"),
        GgufError::Truncated {
            needed: 5,
            present: 4,
            ..
        }
    );
}

#[test]
fn class_03_string_length_above_the_limit() {
    for wrong in [limits::STRING_BYTES_MAX + 1, 1 << 63, u64::MAX] {
        refused!(
            Build::new(0, 1).key(b"k", STRING).u64(wrong).raw(b"text"),
            GgufError::StringTooLong { offset: 37, length, limit: limits::STRING_BYTES_MAX, .. }
                if *length == wrong
        );
        refused!(
            Build::new(0, 1).array(b"k", STRING, 1).u64(wrong),
            GgufError::StringTooLong { .. }
        );
    }
}

fn not_utf8_at(error: &GgufError) -> Option<u64> {
    match error {
        GgufError::NotUtf8 { offset, .. } => Some(*offset),
        _ => None,
    }
}

#[test]
fn class_03_invalid_utf8() {
    for wrong in [
        &b"a\xff"[..],
        b"a\xc0\x80",
        b"a\xed\xa0\x80",
        b"a\xf5\x80\x80\x80",
        b"a\xe2\x82",
    ] {
        let key = of(Build::new(0, 1).key(wrong, U8).raw(&[0; 4]));
        assert_eq!(not_utf8_at(&key), Some(33), "{key:?}");
        let value = of(Build::new(0, 1).key(b"k", STRING).text(wrong));
        assert_eq!(not_utf8_at(&value), Some(46), "{value:?}");
        let name = of(Build::new(1, 0).tensor(wrong, &[1], F32, 0).data(32, 32));
        assert_eq!(not_utf8_at(&name), Some(33), "{name:?}");
        // In an array no character may be put together from two elements.
        let (head, tail) = wrong.split_at(wrong.len() - 1);
        let element = of(Build::new(0, 1)
            .array(b"k", STRING, 2)
            .text(head)
            .text(tail));
        assert!(matches!(element, GgufError::NotUtf8 { .. }), "{element:?}");
    }
}

#[test]
fn class_03_nul_inside() {
    refused!(
        Build::new(0, 1).key(b"k\0x", U8).raw(&[0]),
        GgufError::Nul { offset: 33, .. }
    );
    refused!(
        Build::new(1, 0).tensor(b"t\0", &[1], F32, 0).data(32, 32),
        GgufError::Nul {
            offset: 33,
            field: Field::TensorName { index: 0 }
        }
    );
    refused!(
        Build::new(0, 1).key(b"k", STRING).text(b"..\0"),
        GgufError::Nul { offset: 47, .. }
    );
}

#[test]
fn class_03_empty_key_and_empty_name() {
    refused!(
        Build::new(0, 1).key(b"", U32).u32(0),
        GgufError::Empty { offset: 24, .. }
    );
    refused!(
        Build::new(1, 0).tensor(b"", &[1], F32, 0).data(32, 32),
        GgufError::Empty {
            offset: 24,
            field: Field::TensorName { index: 0 }
        }
    );
}

#[test]
fn class_03_key_longer_than_65535() {
    let key = vec![b'k'; 65_536];
    refused!(
        Build::new(0, 1).key(&key, U8).raw(&[0]),
        GgufError::StringTooLong {
            length: 65_536,
            limit: 65_535,
            ..
        }
    );
    let longest = Build::new(0, 1).key(&key[1..], U8).raw(&[0]).bytes;
    assert!(TensorDirectory::parse(&longest.as_slice()).is_ok());
}

#[test]
fn class_03_tensor_name_of_64_bytes() {
    let name = [b'n'; 64];
    refused!(
        Build::new(1, 0).tensor(&name, &[1], F32, 0).data(32, 32),
        GgufError::StringTooLong {
            length: 64,
            limit: 63,
            ..
        }
    );
    let longest = Build::new(1, 0)
        .tensor(&name[1..], &[1], F32, 0)
        .data(32, 32);
    assert!(TensorDirectory::parse(&longest.bytes.as_slice()).is_ok());
}

#[test]
fn class_03_doubled_key() {
    let file = Build::new(0, 3)
        .key(b"k", U8)
        .raw(&[1])
        .key(b"l", U8)
        .raw(&[1]);
    refused!(
        file.key(b"k", U32).u32(1),
        GgufError::KeyDoubled { key, first: 0, second: 2 } if key == "k"
    );
}

#[test]
fn class_03_doubled_tensor_name() {
    let file = Build::new(2, 0).tensor(b"t", &[8], F32, 0);
    refused!(
        file.tensor(b"t", &[8], F32, 32).data(32, 64),
        GgufError::TensorDoubled { tensor, first: 0, second: 1 } if tensor == "t"
    );
}

/// Two scans of all names, as some parsers do per name, would be four thousand million comparisons.
#[test]
fn class_03_as_many_keys_as_allowed_are_no_work() {
    let count = limits::METADATA_KEYS_MAX;
    let mut file = Build::new(0, count);
    for index in 0..count {
        file = file.key(format!("k{index}").as_bytes(), U8).raw(&[0]);
    }
    let directory = TensorDirectory::parse(&file.bytes.as_slice()).expect("because it is legal");
    assert_eq!(directory.metadata().entries().len() as u64, count);
    assert_eq!(directory.metadata().unsigned("k65535"), Some(0));
}

// Class 4: arrays.

#[test]
fn class_04_array_of_arrays() {
    refused!(
        Build::new(0, 1).array(b"k", ARRAY, 1).u32(U8).u64(1).raw(&[0]),
        GgufError::NestedArray { key, offset: 37 } if key == "k"
    );
}

/// A file that nests deeply must be refused at the first level and not recurse to the last.
#[test]
fn class_04_array_nested_a_hundred_thousand_times() {
    let mut file = Build::new(0, 1).key(b"k", ARRAY);
    for _ in 0..100_000 {
        file = file.u32(ARRAY).u64(1);
    }
    refused!(file, GgufError::NestedArray { offset: 37, .. });
}

#[test]
fn class_04_unknown_value_type_and_element_type() {
    for wrong in [13, 255, u32::MAX] {
        refused!(
            Build::new(0, 1).key(b"k", wrong).u64(0),
            GgufError::ValueType { offset: 33, type_id, .. } if *type_id == wrong
        );
        refused!(
            Build::new(0, 1).array(b"k", wrong, 0),
            GgufError::ValueType { offset: 37, type_id, .. } if *type_id == wrong
        );
    }
}

#[test]
fn class_04_array_count_times_size_overflows() {
    for wrong in [1 << 61, (1 << 61) + 1, 1 << 62, 1 << 63] {
        refused!(
            Build::new(0, 1).array(b"k", 10, wrong).raw(&[0; 16]),
            GgufError::Count { count, limit: 2, .. } if *count == wrong
        );
    }
}

#[test]
fn class_04_array_above_the_limit_in_a_huge_file() {
    let wrong = limits::ARRAY_ELEMENTS_MAX + 1;
    let error = refusal(&Sparse(
        Build::new(0, 1).array(b"k", U8, wrong).bytes,
        u64::MAX,
    ));
    let limit = limits::ARRAY_ELEMENTS_MAX;
    assert!(
        matches!(error, GgufError::Count { limit: l, .. } if l == limit),
        "{error:?}"
    );
}

/// All strings are short of their own limit; together they pass the limit of a directory.
#[test]
fn class_04_work_is_capped_by_the_directory_limit() {
    struct Zeros(Vec<u8>);
    impl ReadAt for Zeros {
        fn len(&self) -> u64 {
            1 << 50
        }
        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<()> {
            if offset == 0 {
                buffer[..self.0.len()].copy_from_slice(&self.0);
            }
            Ok(())
        }
    }
    let file = Build::new(0, 1).array(b"k", 10, limits::ARRAY_ELEMENTS_MAX);
    let error = refusal(&Zeros(file.bytes));
    let limit = limits::DIRECTORY_BYTES_MAX;
    assert!(
        matches!(error, GgufError::DirectoryTooLong { limit: l, .. } if l == limit),
        "{error:?}"
    );
}

#[test]
fn class_04_bool_that_is_neither_0_nor_1() {
    refused!(
        Build::new(0, 1).key(b"k", BOOL).raw(&[2]),
        GgufError::Bool {
            offset: 37,
            value: 2,
            ..
        }
    );
    refused!(
        Build::new(0, 1).array(b"k", BOOL, 3).raw(&[0, 1, 0xff]),
        GgufError::Bool {
            offset: 51,
            value: 0xff,
            ..
        }
    );
}

// Class 5: alignment.

#[test]
fn class_05_alignment_of_the_wrong_type() {
    let file = |kind| Build::new(0, 1).key(b"general.alignment", kind);
    refused!(
        file(10).u64(32),
        GgufError::AlignmentType {
            offset: 24,
            type_id: 10
        }
    );
    refused!(
        file(I32).u32(32),
        GgufError::AlignmentType { type_id: I32, .. }
    );
    refused!(
        file(STRING).text(b"32"),
        GgufError::AlignmentType {
            type_id: STRING,
            ..
        }
    );
    refused!(
        file(ARRAY).u32(U32).u64(1).u32(32),
        GgufError::AlignmentType { type_id: ARRAY, .. }
    );
}

#[test]
fn class_05_alignment_zero_no_power_of_two_or_absurdly_large() {
    for wrong in [0, 3, 24, 33, 1 << 21, 1 << 31, u32::MAX] {
        refused!(
            Build::new(0, 1).alignment(wrong),
            GgufError::Alignment { offset: 24, value, limit: limits::ALIGNMENT_MAX }
                if *value == wrong
        );
    }
}

/// Padding to a multiple of the alignment would wrap to 0 and make a bound check after it void.
#[test]
fn class_05_padding_that_wraps() {
    let bytes = (1u64 << 63) - 1;
    let file = Build::new(3, 1).alignment(1 << 20);
    let file = file.tensor(b"a", &[bytes], 24, 0);
    let file = file.tensor(b"b", &[bytes], 24, 1 << 63);
    refused!(
        file.tensor(b"c", &[1], 24, 0),
        GgufError::DataTooLarge { tensor } if tensor == "b"
    );
}

// Class 6: dimensions.

#[test]
fn class_06_more_than_four_dimensions() {
    for wrong in [5, 8, 1 << 31, u32::MAX] {
        let file = Build::new(1, 0).text(b"t").u32(wrong).raw(&[1; 64]);
        refused!(
            file,
            GgufError::DimensionCount { offset: 33, count, limit: 4, .. } if *count == wrong
        );
    }
}

#[test]
fn class_06_negative_dimension() {
    for wrong in [1 << 63, u64::MAX] {
        refused!(
            Build::new(1, 0).tensor(b"t", &[1, wrong], F32, 0),
            GgufError::Dimension { index: 1, offset: 45, value, .. } if *value == wrong
        );
    }
}

#[test]
fn class_06_elements_or_bytes_overflow() {
    for dims in [
        &[1 << 32, 1 << 32][..],
        &[1 << 62, 2],
        &[(1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1, (1 << 63) - 1],
        // Fits as elements, not as bytes.
        &[1 << 61],
        &[1 << 31, 1 << 30],
        // A product that wraps to a small number: 2^64 + 2^33.
        &[1 << 33, (1 << 31) + 1],
        // A zero at the end does not undo an overflow before it.
        &[1 << 62, 4, 0],
    ] {
        refused!(
            Build::new(1, 0).tensor(b"t", dims, F32, 0),
            GgufError::TensorTooLarge { dims: d, .. } if d == dims
        );
    }
}

#[test]
fn class_06_row_of_no_whole_blocks() {
    for (kind, row, wanted) in [(Q4_0, 31, 32), (Q4_0, 33, 32), (12, 128, 256), (40, 32, 64)] {
        refused!(
            Build::new(1, 0).tensor(b"t", &[row, 32], kind, 0).data(32, 4096),
            GgufError::RowBlocks { row: r, block, .. } if (*r, *block) == (row, wanted)
        );
    }
}

/// The low 32 bits of these dimensions are small and legal.
#[test]
fn class_06_dimension_beyond_32_bits_is_not_narrowed() {
    refused!(
        Build::new(1, 0)
            .tensor(b"t", &[(1 << 32) + 8, 1], F32, 0)
            .data(32, 32),
        GgufError::TensorPastEnd { .. }
    );
}

// Class 7: types.

#[test]
fn class_07_unknown_type() {
    for wrong in [43, 100, 1 << 31, u32::MAX] {
        refused!(
            Build::new(1, 0).tensor(b"t", &[256], wrong, 0).data(32, 1024),
            GgufError::TensorType { offset: 45, source: TypeError::Unknown { id }, .. }
                if *id == wrong
        );
    }
}

/// The tables of engines have a block size of 0 for these: a division by zero.
#[test]
fn class_07_removed_type() {
    for wrong in [4, 5, 31, 32, 33, 36, 37, 38] {
        refused!(
            Build::new(1, 0).tensor(b"t", &[256], wrong, 0).data(32, 1024),
            GgufError::TensorType { source: TypeError::Removed { id }, .. } if *id == wrong
        );
    }
}

// Class 8: where tensors are.

fn two(second_offset: u64) -> Build {
    let file = Build::new(2, 0).tensor(b"a", &[9], F32, 0);
    file.tensor(b"b", &[8], F32, second_offset).data(32, 256)
}

#[test]
fn class_08_misaligned_offset() {
    refused!(
        two(36),
        GgufError::TensorMisaligned { tensor, found: 36, alignment: 32, .. } if tensor == "b"
    );
}

#[test]
fn class_08_overlap_and_disorder() {
    refused!(
        two(0),
        GgufError::TensorOverlap {
            found: 0,
            expected: 64,
            ..
        }
    );
    refused!(
        two(32),
        GgufError::TensorOverlap {
            found: 32,
            expected: 64,
            ..
        }
    );
    let swapped = Build::new(2, 0).tensor(b"b", &[8], F32, 32);
    let swapped = swapped.tensor(b"a", &[8], F32, 0).data(32, 64);
    refused!(swapped, GgufError::TensorHole { tensor, expected: 0, .. } if tensor == "b");
}

#[test]
fn class_08_hole() {
    refused!(
        two(96),
        GgufError::TensorHole {
            found: 96,
            expected: 64,
            offset: 82,
            ..
        }
    );
    let first = Build::new(1, 0).tensor(b"a", &[8], F32, 32).data(32, 64);
    refused!(
        first,
        GgufError::TensorHole {
            found: 32,
            expected: 0,
            ..
        }
    );
}

#[test]
fn class_08_offset_plus_size_overflows() {
    let file = Build::new(3, 0).tensor(b"a", &[(1 << 63) - 32], 24, 0);
    let file = file.tensor(b"b", &[(1 << 63) - 32], 24, (1 << 63) - 32);
    refused!(
        file.tensor(b"c", &[63], 24, u64::MAX - 63),
        GgufError::DataTooLarge { tensor } if tensor == "c"
    );
}

#[test]
fn class_08_beyond_the_end_of_the_file() {
    let file = Build::new(1, 0).tensor(b"a", &[8], F32, 0).data(32, 31);
    refused!(
        file,
        GgufError::TensorPastEnd {
            offset: 64,
            end: 96,
            file_bytes: 95,
            ..
        }
    );
    // The range of an empty tensor must lie in the file too.
    let empty = Build::new(1, 0).tensor(b"a", &[0], F32, 0);
    refused!(
        empty,
        GgufError::TensorPastEnd {
            offset: 64,
            end: 64,
            file_bytes: 57,
            ..
        }
    );
}

#[test]
fn class_08_sum_of_padded_sizes_overflows() {
    let half = 1u64 << 62;
    let mut file = Build::new(5, 0);
    for index in 0..5u64 {
        let name = [b'a' + index as u8];
        file = file.tensor(&name, &[half], 24, index.wrapping_mul(half));
    }
    refused!(file, GgufError::DataTooLarge { tensor } if tensor == "d");
}

#[test]
fn class_08_each_truncation_of_a_good_file_is_refused() {
    let file = rich();
    let directory = TensorDirectory::parse(&file.as_slice()).expect("because it is legal");
    let last = directory.tensors().last().expect("because it has tensors");
    let end = usize::try_from(last.offset + last.bytes).expect("because it is small");
    for length in 0..end {
        refusal(&&file[..length]);
    }
    assert!(TensorDirectory::parse(&&file[..end]).is_ok());
}

// Class 9: what follows the last tensor.

#[test]
fn class_09_trailing_bytes() {
    let file = |bytes| Build::new(1, 0).tensor(b"a", &[7], F32, 0).data(32, bytes);
    refused!(
        file(33),
        GgufError::Trailing {
            offset: 96,
            bytes: 1
        }
    );
    refused!(
        file(4096),
        GgufError::Trailing {
            offset: 96,
            bytes: 4064
        }
    );
    // A second file behind a whole one: a polyglot.
    refused!(
        Build::default()
            .raw(&rich())
            .raw(b"PK\x03\x04")
            .data(64, 64),
        GgufError::Trailing { .. }
    );
    refused!(
        Build::new(0, 0).raw(&[0; 9]),
        GgufError::Trailing {
            offset: 32,
            bytes: 1
        }
    );
}

// Class 10: split keys; whole split models are in `shards.rs`.

#[test]
fn class_10_split_keys_of_the_wrong_type() {
    let file = Build::new(0, 1).key(b"split.count", U32).u32(1);
    refused!(
        file,
        GgufError::SplitType {
            key: "split.count",
            found: U32,
            expected: U16
        }
    );
    let file = Build::new(0, 1).key(b"split.no", I32).u32(1);
    refused!(
        file,
        GgufError::SplitType {
            key: "split.no",
            found: I32,
            ..
        }
    );
    let file = Build::new(0, 1)
        .key(b"split.tensors.count", U16)
        .raw(&[1, 0]);
    refused!(
        file,
        GgufError::SplitType {
            key: "split.tensors.count",
            expected: I32,
            ..
        }
    );
}

#[test]
fn class_10_split_count_that_lies() {
    use super::build::shard;
    for (no, count, total) in [(3, 3, 9), (0, 5000, 9), (0, 3, u32::MAX), (0, 3, 0)] {
        let error = refusal(&shard(no, count, total, &["t"]).as_slice());
        assert!(matches!(error, GgufError::SplitValue { .. }), "{error:?}");
    }
    let alone = Build::new(0, 1).key(b"split.count", U16).raw(&[2, 0]);
    refused!(
        alone,
        GgufError::SplitAbsent {
            key: "split.no",
            count: 2
        }
    );
}

// Class 11: metadata stays text. That paths made from names can't escape: `shard_name`.

#[test]
fn class_11_templates_and_paths_in_metadata_are_only_text() {
    let template = "{{ ''.__class__.__mro__[1].__subclasses__() }}";
    let file = Build::new(0, 2)
        .key(b"tokenizer.chat_template", STRING)
        .text(template.as_bytes())
        .key(b"general.name", STRING)
        .text(b"../../etc/passwd");
    let directory = TensorDirectory::parse(&file.bytes.as_slice()).expect("because it is legal");
    let metadata = directory.metadata();
    assert_eq!(metadata.text("tokenizer.chat_template"), Some(template));
    assert_eq!(metadata.text("general.name"), Some("../../etc/passwd"));
}

// Class 12: sources that are no plain, steady files.

#[test]
fn class_12_a_file_that_shrinks_while_it_is_read() {
    struct Shrunk(u64);
    impl ReadAt for Shrunk {
        fn len(&self) -> u64 {
            self.0
        }
        fn read_at(&self, _: &mut [u8], _: u64) -> io::Result<()> {
            Err(io::ErrorKind::UnexpectedEof.into())
        }
    }
    let error = refusal(&Shrunk(1000));
    assert!(
        matches!(
            error,
            GgufError::Read {
                offset: 0,
                bytes: 1000,
                ..
            }
        ),
        "{error:?}"
    );
    assert_eq!(error.blame(), Blame::Host);
}

#[test]
fn class_12_only_regular_files_are_sources() {
    for path in ["/", "/dev/null"] {
        let file = std::fs::File::open(path).expect("because it is there");
        let kind = FileSource::new(&file).err().map(|error| error.kind());
        assert_eq!(kind, Some(io::ErrorKind::InvalidInput), "{path}");
    }
}
