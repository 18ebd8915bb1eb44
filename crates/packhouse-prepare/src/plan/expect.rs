//! The names that templates give, proven against their own rules when a plan is parsed.

use super::error::Fault;
use super::grammar::Faulty;
use super::limits::{EXPECT_WORK_MAX, EXPECTED_MAX};
use super::pattern::Template;
use super::slot::{Capture, Variable};
use super::{Expected, Range, Rule};
use std::collections::BTreeMap;
use std::ops;

/// Fills in the names that each rule expects. Errors when one does not fit its own rule, when two
/// share a slot, or when a slot is not the set's.
pub(super) fn fill(
    rules: &mut [Rule],
    spans: &[ops::Range<usize>],
    slots: Option<Range>,
) -> Faulty<()> {
    let mut room = Room {
        names: EXPECTED_MAX,
        work: EXPECT_WORK_MAX,
    };
    let mut names: BTreeMap<u64, String> = BTreeMap::new();
    let mut rules_of: BTreeMap<String, String> = BTreeMap::new();
    for (rule, span) in rules.iter_mut().zip(spans) {
        let expected = names_of(rule, &mut room).map_err(|fault| (fault, span.clone()))?;
        for Expected { name, slot } in &expected {
            if let Some(rule) = rules_of.insert(name.clone(), rule.id.clone()) {
                let name = name.clone();
                return Err((Fault::ExpectedTwice { name, rule }, span.clone()));
            }
            let Some(slot) = *slot else { continue };
            if let Some(Range { first, last }) = slots.filter(|slots| !slots.has(slot)) {
                let name = name.clone();
                let fault = Fault::ExpectedOutside {
                    name,
                    slot,
                    first,
                    last,
                };
                return Err((fault, span.clone()));
            }
            if let Some(first) = names.insert(slot, name.clone()) {
                let second = name.clone();
                let fault = Fault::ExpectedDoubled {
                    slot,
                    first,
                    second,
                };
                return Err((fault, span.clone()));
            }
        }
        rule.expected = expected;
    }
    Ok(())
}

/// What the templates of a plan may still take.
struct Room {
    names: u64,
    work: u64,
}

fn names_of(rule: &Rule, room: &mut Room) -> Result<Vec<Expected>, Fault> {
    let Some(template) = &rule.template else {
        return Ok(Vec::new());
    };
    let axes = axes(rule, template)?;
    let count = axes.iter().try_fold(1u64, |product, (_, range)| {
        product.checked_mul(range.value_count())
    });
    let count = count.unwrap_or(u64::MAX);
    room.names = room
        .names
        .checked_sub(count)
        .ok_or(Fault::TooManyExpected)?;
    // Names get no longer than the one of the highest numbers.
    let highest: BTreeMap<&Capture, u64> = axes
        .iter()
        .map(|(axis, range)| (*axis, range.last))
        .collect();
    let longest = template.name(&|capture| highest[capture]).len() as u64;
    let work = count.saturating_mul(longest);
    let work = work.saturating_mul(rule.pattern.work());
    room.work = room.work.checked_sub(work).ok_or(Fault::ExpectWork)?;
    let mut values: BTreeMap<&Capture, u64> = axes
        .iter()
        .map(|(axis, range)| (*axis, range.first))
        .collect();
    let mut names = Vec::new();
    loop {
        names.push(expected(rule, template, &values)?);
        // The next combination: the last axis that can go on does, those after it begin again.
        let Some(at) = axes
            .iter()
            .rposition(|(axis, range)| values[axis] < range.last)
        else {
            return Ok(names);
        };
        values.entry(axes[at].0).and_modify(|value| *value += 1);
        values.extend(
            axes[at + 1..]
                .iter()
                .map(|(axis, range)| (*axis, range.first)),
        );
    }
}

fn axes<'r>(rule: &'r Rule, template: &'r Template) -> Result<Vec<(&'r Capture, Range)>, Fault> {
    let captures = template.captures().into_iter();
    captures
        .map(|capture| match rule.ranges.get(capture) {
            Some(range) => Ok((capture, *range)),
            None => Err(Fault::Unbounded {
                capture: capture.clone(),
            }),
        })
        .collect()
}

fn expected(
    rule: &Rule,
    template: &Template,
    values: &BTreeMap<&Capture, u64>,
) -> Result<Expected, Fault> {
    let name = template.name(&|capture| values[capture]);
    let misfit = || Fault::ExpectedMisfit { name: name.clone() };
    let matched = rule.pattern.matched(&name).ok_or_else(misfit)?;
    let captured = rule.captures(&|capture| matched.number(capture));
    let captured = captured.map_err(|_| misfit())?;
    if values
        .iter()
        .any(|(axis, value)| captured.get(*axis) != Some(value))
    {
        return Err(misfit());
    }
    if rule.slot.variables().contains(&&Variable::Index) {
        return Ok(Expected { name, slot: None });
    }
    match rule.slot_of(0, &captured) {
        Ok(slot) => Ok(Expected {
            name,
            slot: Some(slot),
        }),
        Err(source) => Err(Fault::ExpectedSlot { name, source }),
    }
}
