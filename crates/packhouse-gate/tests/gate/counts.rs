//! Counts of one response that several tell, and how it ended.

use packhouse_base::Blame;
use packhouse_gate::counts::{Counts, Finish, Miscounted, Source, ended};
use packhouse_gate::rate::Tokens;

fn all(count: u64) -> Counts {
    Counts {
        token_ids: Some(count),
        usage: Some(count),
        chunks: Some(count),
        metrics: Some(count),
    }
}

/// A usage that was absent was taken for 0, and a chunk's sum for what the server had counted.
#[test]
fn counts_agree_or_there_is_none() {
    assert_eq!(all(512).agreed(&[]), Ok(Tokens::of(512)));
    assert_eq!(all(0).agreed(&[Source::Usage]), Ok(Tokens::of(0)));
    let said = |counts: Counts, needed: &[Source]| {
        let none = counts.agreed(needed).expect_err("because it is none");
        none.to_string()
    };
    let nobody = Counts::default();
    assert_eq!(said(nobody, &[]), "nobody says how many tokens came");
    let absent = Counts {
        usage: None,
        ..all(7)
    };
    assert_eq!(absent.agreed(&[Source::TokenIds]), Ok(Tokens::of(7)));
    assert_eq!(
        said(absent, &[Source::TokenIds, Source::Usage]),
        "usage don't say how many tokens came"
    );
    // Absent is no 0, and a 0 that is there is no absence.
    let zero = Counts {
        usage: Some(0),
        ..all(7)
    };
    assert_eq!(said(zero, &[]), "token ids say 7 tokens, usage say 0");
    for (counts, other) in [
        (
            Counts {
                token_ids: Some(8),
                ..all(7)
            },
            "token ids say 8 tokens, usage say 7",
        ),
        (
            Counts {
                chunks: Some(6),
                ..all(7)
            },
            "token ids say 7 tokens, chunks say 6",
        ),
        (
            Counts {
                metrics: Some(9),
                ..all(7)
            },
            "token ids say 7 tokens, metrics say 9",
        ),
    ] {
        assert_eq!(said(counts, &[]), other);
    }
    assert_eq!(Miscounted::Uncounted.blame(), Blame::Caller);
}

#[test]
fn a_response_has_one_end_token_at_most_and_its_length_has_a_reason() {
    let of = |ids: &[u32], finish| ended(ids, &[2, 3], finish, 4);
    let (length, stop) = (Some(Finish::Length), Some(Finish::Stop));
    assert_eq!(of(&[7, 7, 7, 7], length), Ok(()));
    assert_eq!(of(&[7, 7, 2], stop), Ok(()));
    assert_eq!(of(&[7, 7, 7, 3], stop), Ok(()));
    // A text that stops it leaves no end token.
    assert_eq!(of(&[7, 7], stop), Ok(()));
    assert_eq!(of(&[], stop), Ok(()));
    let said = |ids: &[u32], finish| of(ids, finish).expect_err("because it is none").to_string();
    assert_eq!(said(&[7, 2, 2], stop), "token 1 of 3 is an end token");
    assert_eq!(said(&[3, 7], stop), "token 0 of 2 is an end token");
    assert_eq!(
        said(&[7; 5], length),
        "5 tokens came, at most 4 were asked for"
    );
    assert_eq!(
        said(&[7; 3], length),
        "it ended by its length with 3 of 4 tokens"
    );
    assert_eq!(
        said(&[7, 7, 7, 2], length),
        "it ended by its length, and by an end token"
    );
    assert_eq!(said(&[7, 2], None), "nobody says why it ended");
    // Where end tokens are ignored there are none.
    assert_eq!(ended(&[2, 2, 2, 2], &[], length, 4), Ok(()));
}
