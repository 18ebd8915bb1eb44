//! Where tensors lie: each where it can, those of one storage on one base, all others apart. By
//! intervals, because a partial overlap and a view into the middle have bases of their own.

use super::Fault;
use crate::message::{CaseOrder, InputRecord, TensorRecord};
use std::collections::BTreeMap;

/// A tensor's interval.
struct Span<'a> {
    tensor: String,
    /// None of an input: it shares with nobody.
    storage: Option<&'a str>,
    base: u64,
    start: u64,
    end: u64,
}

/// Finds every tensor that lies where it can't. Those are not compared with others.
pub(super) fn compare(
    order: &CaseOrder,
    records: &BTreeMap<&str, &TensorRecord>,
    inputs: &BTreeMap<String, InputRecord>,
    faults: &mut Vec<Fault>,
) {
    let mut spans = Vec::new();
    for wanted in &order.boundaries {
        let Some(record) = records.get(wanted.name.as_str()) else {
            continue;
        };
        let before = wanted.form.storage_offset * wanted.form.dtype.bytes();
        let span = Span {
            tensor: format!("boundary {}", wanted.name),
            storage: Some(&wanted.storage),
            base: record.start.saturating_sub(before),
            start: record.start,
            end: record.end,
        };
        enter(span, wanted.form.bytes, &mut spans, faults);
    }
    for (role, input) in &order.inputs {
        let Some(record) = inputs.get(role) else {
            continue;
        };
        let span = Span {
            tensor: format!("input {role}"),
            storage: None,
            base: record.start,
            start: record.start,
            end: record.end,
        };
        enter(span, input.bytes, &mut spans, faults);
    }
    for (index, one) in spans.iter().enumerate() {
        for other in &spans[index + 1..] {
            faults.extend(together(one, other));
        }
    }
}

/// Takes a span in, if it has the length of its tensor and a base above address 0.
fn enter<'a>(span: Span<'a>, bytes: u64, spans: &mut Vec<Span<'a>>, faults: &mut Vec<Fault>) {
    if span.base > 0 && span.start.checked_add(bytes) == Some(span.end) {
        spans.push(span);
    } else {
        faults.push(Fault::Interval {
            tensor: span.tensor,
            start: span.start,
            end: span.end,
            bytes,
        });
    }
}

/// What is wrong with two tensors' places.
fn together(one: &Span<'_>, other: &Span<'_>) -> Option<Fault> {
    if one.storage.is_some() && one.storage == other.storage {
        return (one.base != other.base).then(|| Fault::Base {
            tensor: one.tensor.clone(),
            base: one.base,
            other: other.tensor.clone(),
            other_base: other.base,
        });
    }
    let (start, end) = (one.start.max(other.start), one.end.min(other.end));
    (start < end).then(|| Fault::Overlap {
        tensor: one.tensor.clone(),
        other: other.tensor.clone(),
        start,
        end,
    })
}
