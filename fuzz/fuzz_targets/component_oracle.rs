//! The component protocol, judged a second time: frames by a reader of the whole stream, JSON by
//! another parser, messages by what they are when they are written again.
//!
//! An input's first byte says what the rest is:
//! - `F`, a stream of frames; the byte behind it is the length of the pieces that it comes in;
//! - `J`, JSON;
//! - `Q` and `R`, a message of a driver and of a program.

use crate::component_json;
use packhouse_component::frame::{FRAME_BYTES_MAX, Frames, encode};
use packhouse_component::json;
use packhouse_component::message::{Reply, Request};
use serde_json::Value;

/// A judge that is wrong on purpose.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum Mutant {
    /// Takes the last of equal keys.
    KeyTwice,
}

type Verdict = Result<(), String>;

/// Gives an input to the readers. Errors, in words, when two of them disagree.
pub fn compare(input: &[u8], mutant: Option<Mutant>) -> Verdict {
    match input.split_first() {
        Some((b'F', rest)) => frames(rest),
        Some((b'J', rest)) => values(rest, mutant).map(|_| ()),
        Some((b'Q', rest)) => {
            let read = Request::parse(rest).ok().map(|request| request.render());
            messages(rest, read, mutant, |again| {
                Request::parse(again).map(|request| request.render()).ok()
            })
        }
        Some((b'R', rest)) => {
            let read = Reply::parse(rest).ok().map(|reply| reply.render());
            messages(rest, read, mutant, |again| {
                Reply::parse(again).map(|reply| reply.render()).ok()
            })
        }
        Some(_) | None => Ok(()),
    }
}

/// Frames out of pieces of one length, beside those out of the whole.
fn frames(input: &[u8]) -> Verdict {
    let Some((piece, stream)) = input.split_first() else {
        return Ok(());
    };
    let mut frames = Frames::default();
    let (mut found, mut is_refused) = (Vec::new(), false);
    'pieces: for piece in stream.chunks(usize::from(*piece).max(1)) {
        frames.push(piece);
        loop {
            match frames.next_message() {
                Ok(Some(message)) => found.push(message),
                Ok(None) => break,
                Err(_) => {
                    is_refused = true;
                    break 'pieces;
                }
            }
        }
    }
    let (mut expected, mut rest, mut is_bad) = (Vec::new(), stream, false);
    while let [a, b, c, d, body @ ..] = rest {
        let length = u32::from_le_bytes([*a, *b, *c, *d]) as usize;
        is_bad = length == 0 || length > FRAME_BYTES_MAX;
        match body.split_at_checked(length) {
            Some((message, next)) if !is_bad => {
                expected.push(message.to_vec());
                rest = next;
            }
            Some(_) | None => break,
        }
    }
    if found != expected || is_refused != is_bad {
        return Err(format!(
            "{} frames, expected {}",
            found.len(),
            expected.len()
        ));
    }
    let again: Vec<u8> = found
        .iter()
        .filter_map(|message| encode(message).ok())
        .flatten()
        .collect();
    if !stream.starts_with(&again) {
        return Err("frames that are written otherwise".into());
    }
    Ok(())
}

/// A value by our reader, if the other reads the same or both refuse.
fn values(bytes: &[u8], mutant: Option<Mutant>) -> Result<Option<Value>, String> {
    let ours = json::parse(bytes);
    let other = component_json::parse(bytes, mutant == Some(Mutant::KeyTwice));
    match (ours, other) {
        (Ok(ours), Ok(other)) if ours == other => Ok(Some(ours)),
        (Err(_), Err(_)) => Ok(None),
        (Ok(_), Ok(_)) => Err("another value".into()),
        (Ok(_), Err(why)) => Err(format!("taken, and the other refuses it: {why}")),
        (Err(error), Ok(_)) => Err(format!("refused, and the other takes it: {error}")),
    }
}

/// A message that is read has every field of its JSON and no other, and is written in one way.
fn messages(
    bytes: &[u8],
    written: Option<Vec<u8>>,
    mutant: Option<Mutant>,
    again: impl Fn(&[u8]) -> Option<Vec<u8>>,
) -> Verdict {
    let value = values(bytes, mutant)?;
    let Some(written) = written else {
        return Ok(());
    };
    if value != serde_json::from_slice(&written).ok() {
        return Err("a message that says something else when it is written".into());
    }
    if again(&written).as_ref() != Some(&written) {
        return Err("a message that is not read back".into());
    }
    Ok(())
}
