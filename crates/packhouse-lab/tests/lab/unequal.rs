//! Where a tensor is another one: a candidate with one wrong bit was told as "1 of 4 rows are not
//! near enough", and who mends it wants the place.

use crate::maker::{RECIPES, Script, evidence, timed};
use packhouse_base::digest::Digest;
use packhouse_component::message::Answer;
use packhouse_lab::analysis::Analysis;
use packhouse_lab::unequal::unequal;
use packhouse_lab::verify::Evidence;
use std::collections::BTreeMap;

type Outputs = BTreeMap<String, Vec<u8>>;

fn stored(evidence: &Evidence) -> Analysis {
    let bytes = evidence.files.get("analysis-1/analysis.json");
    Analysis::parse(bytes.expect("because it is there")).expect("because it is one")
}

/// Other bytes of the last boundary, whose elements are binary32, told by every digest.
fn spoil(answer: &mut Answer, outputs: &mut Outputs, at: &[(usize, u8)]) {
    let record = answer.boundaries.last_mut().expect("because there is one");
    let bytes = outputs.get_mut(&record.file).expect("because it was made");
    for (place, bits) in at {
        bytes[*place] ^= bits;
    }
    record.sha256 = Digest::of(bytes);
}

#[test]
fn one_wrong_bit_is_told_by_its_row_and_column_with_both_values_and_their_distance() {
    let script = Script {
        answer: |ask, answer, outputs| {
            if ask.repeat == 1 {
                // Column 2 by the last bit, column 1 by one of the exponent: the first is told.
                spoil(answer, outputs, &[(8, 1), (7, 0x40)]);
            }
        },
        ..timed()
    };
    let evidence = evidence(&script);
    let (bag, analysis) = (evidence.files.below("bag"), stored(&evidence));
    let found = unequal(&bag, &analysis, &RECIPES, 100);
    let failed = analysis.rows.iter().filter(|row| !row.equal).count();
    assert_eq!(found.len(), failed);
    let one = &found[0];
    assert_eq!((one.row.repeat, one.row.equal), (1, false));
    assert_eq!((one.at_row, one.at.column), (0, 1), "{one}");
    assert_eq!((one.elements.0, one.rows.0), (2, 1), "{one}");
    assert_eq!(one.at.expected ^ one.at.actual, 0x4000_0000);
    assert!(one.elements.1 > 2 && one.at.ulps.is_some_and(|ulps| ulps > 1_000));
    let said = one.to_string();
    for words in [
        "repeat 1)",
        "row 0",
        "column 1",
        "expected ",
        "ULP apart; 2 of ",
    ] {
        assert!(said.contains(words), "{said}");
    }
    assert_eq!(unequal(&bag, &analysis, &RECIPES, 1), found[..1]);
}

#[test]
fn the_nearest_value_is_one_ulp_apart_and_bytes_that_are_not_the_rows_tell_nothing() {
    let script = Script {
        answer: |ask, answer, outputs| {
            if ask.repeat == 1 {
                spoil(answer, outputs, &[(0, 1)]);
            }
        },
        ..timed()
    };
    let evidence = evidence(&script);
    let (mut bag, analysis) = (evidence.files.below("bag"), stored(&evidence));
    let found = unequal(&bag, &analysis, &RECIPES, 1);
    assert_eq!(
        (found[0].at.column, found[0].at.ulps),
        (0, Some(1)),
        "{}",
        found[0]
    );
    for row in analysis.rows.iter().filter(|row| !row.equal) {
        let path = format!("data/outputs/{}", row.sha256);
        let mut bytes = bag.get(&path).expect("because it is there").to_vec();
        bytes[0] ^= 2;
        bag.insert(path, bytes);
    }
    assert_eq!(unequal(&bag, &analysis, &RECIPES, 1), []);
}
