//! Whether any tensor at all can fit a rule: what its types, dims, layout and parameters leave.

use super::error::Fault;
use super::{DimRule, Rule};
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::Refusal;
use std::collections::BTreeSet;

/// Errors when the rule's layout takes no tensor of the rule's types and dims, with the refusal of
/// the last one offered. Offered are the smallest tensors that the dims allow, of whole blocks and
/// of rows in each of the units that layouts tell apart: what is refused of all these is refused of
/// larger ones.
pub(super) fn refuse_never(rule: &Rule) -> Result<(), Fault> {
    let types = if rule.types.is_empty() {
        GgmlType::all()
    } else {
        &rule.types
    };
    let mut last = None;
    for ty in types {
        for dims in shapes(rule, *ty) {
            match (rule.layout.admit(*ty, &dims, &rule.parameters), &last) {
                (Ok(_), _) => return Ok(()),
                // That a layout lacks one type says less than what is wrong with one that it has.
                (Err(Refusal::Type { .. }), Some(_)) => {}
                (Err(refusal), _) => last = Some(refusal),
            }
        }
    }
    last.map_or(Ok(()), |refusal| Err(Fault::Never(refusal)))
}

/// The least that a dim can be of what a rule takes; `None` when nothing meets it.
pub(super) fn least(dim: DimRule) -> Option<u64> {
    offers(dim, &[1], 1).first().copied()
}

/// Whether a dim can be 1 and nothing else.
pub(super) fn is_one(dim: &DimRule) -> bool {
    offers(*dim, &[1], 2).is_empty()
}

fn shapes(rule: &Rule, ty: GgmlType) -> Vec<Vec<u64>> {
    let any = DimRule::Within {
        min: 1,
        max: u64::MAX,
        multiple: 1,
    };
    let dims = if rule.dims.is_empty() {
        vec![any; 2]
    } else {
        rule.dims.clone()
    };
    let mut shapes = vec![Vec::new()];
    for (at, dim) in dims.iter().enumerate() {
        let is_last = at > 0 && at + 1 == dims.len();
        let units: &[u64] = match at {
            0 => &[1, ty.block_elements()],
            1 => &[1, 4, 8, 16],
            _ => &[1],
        };
        let offered = offers(*dim, units, if is_last { 2 } else { 1 });
        let extended = shapes.iter().flat_map(|shape| {
            let longer = |value: &u64| shape.iter().chain([value]).copied().collect();
            offered.iter().map(longer)
        });
        shapes = extended.collect();
    }
    shapes
}

/// The smallest two values of a dim, from `least` on, that are whole numbers of each unit.
fn offers(dim: DimRule, units: &[u64], least: u64) -> BTreeSet<u64> {
    let (min, max, multiple) = match dim {
        DimRule::Exact(exact) => (exact, exact, 1),
        DimRule::Within { min, max, multiple } => (min, max, multiple),
    };
    let mut offered = BTreeSet::new();
    for unit in units {
        // Units are powers of two, so this is the least common multiple.
        let shared = 1 << multiple.trailing_zeros().min(unit.trailing_zeros());
        let step = multiple.checked_mul(unit / shared);
        let first = step.and_then(|step| min.max(least).checked_next_multiple_of(step));
        let second = first
            .zip(step)
            .and_then(|(first, step)| first.checked_add(step));
        offered.extend(
            first
                .into_iter()
                .chain(second)
                .filter(|value| *value <= max),
        );
    }
    offered
}
