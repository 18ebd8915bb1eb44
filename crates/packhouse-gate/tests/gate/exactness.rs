//! Exactness of rows and runs.

use packhouse_gate::exact::{
    Divergence, Exactness, Row, divergence, first_difference, full_output_then_next, rollover,
};

fn row(index: u64, token_ids: &[u32]) -> Row {
    Row {
        prompt_index: index,
        prompt_id: format!("prompt-{index}"),
        prompt_sha256: format!("{index:064x}"),
        prompt_tokens: 100 + 763 * u64::from(index == 2),
        cached_tokens: Some(0),
        token_ids: token_ids.to_vec(),
        text_sha256: Some(format!("{:064x}", 1_000 + index)),
    }
}

fn teacher() -> Vec<Row> {
    vec![row(0, &[7; 512]), row(1, &[1, 2, 3]), row(2, &[9, 9])]
}

fn said(change: impl FnOnce(&mut Vec<Row>)) -> Vec<String> {
    let mut run = teacher();
    change(&mut run);
    let exactness = Exactness::of(&teacher(), &run);
    assert!(!exactness.is_exact());
    exactness
        .rows
        .iter()
        .flatten()
        .map(ToString::to_string)
        .collect()
}

#[test]
fn the_first_difference_has_index_and_both_ids() {
    let of = |expected: &[u32], actual: &[u32]| {
        first_difference(expected, actual).map(|it| (it.index, it.expected, it.actual))
    };
    assert_eq!(of(&[1, 2, 3], &[1, 2, 3]), None);
    assert_eq!(of(&[], &[]), None);
    assert_eq!(of(&[1, 2, 3], &[1, 5, 4]), Some((1, Some(2), Some(5))));
    assert_eq!(of(&[1, 2, 3], &[1, 2]), Some((2, Some(3), None)));
    assert_eq!(of(&[1], &[1, 2]), Some((1, None, Some(2))));
    assert_eq!(of(&[], &[4]), Some((0, None, Some(4))));
}

#[test]
fn a_run_is_exact_only_when_every_row_is() {
    let exactness = Exactness::of(&teacher(), &teacher());
    assert!(exactness.is_exact());
    assert_eq!(exactness.exact_rows(), 3);
    assert!(!Exactness::of(&[], &[]).is_exact());
    assert_eq!(
        said(|run| run[1].token_ids[2] = 4),
        ["token 2 is 4, expected 3 (3 tokens, expected 3)"]
    );
    assert_eq!(
        said(|run| run[2].token_ids.push(9)),
        ["token 2 is 9, expected the end (3 tokens, expected 2)"]
    );
    assert_eq!(
        said(|run| {
            run[0].token_ids.pop();
        }),
        ["token 511 is the end, expected 7 (511 tokens, expected 512)"]
    );
    assert_eq!(said(|run| run.truncate(2)), ["the run has no such row"]);
    assert_eq!(
        said(|run| run.push(row(3, &[1]))),
        ["the teacher has no such row"]
    );
    assert_eq!(said(|run| run.swap(1, 2)).len(), 2 * 6);
}

#[test]
fn prompt_cache_and_text_count_too() {
    assert_eq!(
        said(|run| run[1].prompt_index = 4),
        ["the prompt's index is 4, expected 1"]
    );
    assert_eq!(
        said(|run| run[1].prompt_id = "other".to_owned()),
        ["the prompt's id is other, expected prompt-1"]
    );
    let digest = said(|run| run[1].prompt_sha256.replace_range(63.., "2"));
    assert!(
        digest[0].starts_with("the prompt's digest is 00"),
        "{digest:?}"
    );
    assert_eq!(
        said(|run| run[2].cached_tokens = Some(64)),
        ["64 prompt tokens came from a cache, expected 0"]
    );
    let text = said(|run| run[2].text_sha256 = Some("ab".to_owned()));
    assert_eq!(
        text,
        [format!("the text has digest ab, expected {:064x}", 1_002)]
    );
    assert_eq!(
        said(|run| run[1].prompt_tokens = 863),
        ["the prompt's token count is 863, expected 100"]
    );
}

/// Absent is not 0: a server that doesn't say what it cached is no evidence that it cached nothing.
#[test]
fn an_absent_count_of_cached_tokens_is_a_fault() {
    assert_eq!(
        said(|run| run[0].cached_tokens = None),
        ["the server doesn't say how many prompt tokens were cached"]
    );
}

/// A row whose text nobody took was exact beside a teacher who has it: absence of evidence passed.
#[test]
fn an_absent_digest_of_the_text_is_a_fault_where_the_teacher_has_one() {
    assert_eq!(
        said(|run| run[2].text_sha256 = None),
        [format!("the text has no digest, expected {:064x}", 1_002)]
    );
    // A teacher of token ids alone asks for none.
    let compact = |mut rows: Vec<Row>| {
        for row in &mut rows {
            row.text_sha256 = None;
        }
        rows
    };
    assert!(Exactness::of(&compact(teacher()), &teacher()).is_exact());
    assert!(Exactness::of(&compact(teacher()), &compact(teacher())).is_exact());
}

/// It was once published as a test of long contexts: no long context follows anything here.
#[test]
fn full_output_then_next_is_about_the_cap_and_not_about_long_contexts() {
    let whole = Exactness::of(&teacher(), &teacher());
    assert!(full_output_then_next(&whole, &teacher(), 512));
    assert!(!full_output_then_next(&whole, &teacher(), 511));
    assert!(!full_output_then_next(&whole, &teacher(), 513));
    let mut run = teacher();
    run[1].token_ids[0] = 8;
    assert!(!full_output_then_next(
        &Exactness::of(&teacher(), &run),
        &run,
        512
    ));
    let mut run = teacher();
    run[2].token_ids[0] = 8;
    assert!(full_output_then_next(
        &Exactness::of(&teacher(), &run),
        &run,
        512
    ));
    let alone = &teacher()[..1];
    assert!(!full_output_then_next(
        &Exactness::of(alone, alone),
        alone,
        512
    ));
}

#[test]
fn rollover_is_exactly_one_long_prompt_that_is_exact() {
    let whole = Exactness::of(&teacher(), &teacher());
    assert!(rollover(&whole, &teacher(), 863));
    assert!(!rollover(&whole, &teacher(), 864));
    let mut run = teacher();
    run[1].prompt_tokens = 863;
    assert!(!rollover(&whole, &run, 863));
    let mut run = teacher();
    run[2].token_ids[1] = 8;
    assert!(!rollover(&Exactness::of(&teacher(), &run), &run, 863));
}

/// What nobody measured is the worse of two classes, and a near tie is exact for nobody.
#[test]
fn a_divergence_is_a_near_tie_only_by_a_margin_that_is_known() {
    let two = first_difference(&[1, 2, 3], &[1, 5, 3]);
    let near = |margin| divergence(two.as_ref(), margin, 0.125);
    assert_eq!(divergence(None, None, 0.125), Divergence::BitEqual);
    for margin in [0.0, 0.125] {
        assert_eq!(near(Some(margin)), Divergence::NearTie { margin });
    }
    for margin in [None, Some(0.126), Some(-0.1), Some(f64::NAN)] {
        assert_eq!(near(margin), Divergence::Structural);
    }
    let shorter = first_difference(&[1, 2], &[1]);
    let shorter = divergence(shorter.as_ref(), Some(0.0), 0.125);
    assert_eq!(shorter, Divergence::Structural);
    let endless = divergence(two.as_ref(), Some(1.0), f64::INFINITY);
    assert_eq!(endless, Divergence::Structural);
}
