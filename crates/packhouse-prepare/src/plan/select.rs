//! A plan on a container: which tensors go into which slots, and why the others don't.

use super::slot::{Capture, Variable};
use super::unfit::{Misfit, Problem, Reason, SelectionError, Unfit};
use super::{Chooser, DimRule, Otherwise, Plan, Range, Rule};
use packhouse_base::identity::canonical_dims;
use packhouse_container::{Container, Tensor};
use packhouse_layout::Admitted;
use packhouse_layout::stock_x86::{self, Features};
use packhouse_pack::Packers;
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// What a selection asks of the host.
#[derive(Clone, Copy, Debug)]
pub struct SelectContext<'a> {
    /// CPU features that decide what a stock ggml packs.
    pub features: Features,
    /// The packers that will pack; a tensor that none of them packs is not chosen.
    pub packers: &'a Packers,
}

/// What a plan makes of a container: all its invariants hold.
#[derive(Clone, Debug)]
pub struct Selection {
    /// The tensors to pack, by rising slot; no slot is there twice.
    pub chosen: Vec<Chosen>,
    /// The other tensors, in file order.
    pub left: Vec<Left>,
}

/// One tensor to pack.
#[derive(Clone, Debug)]
pub struct Chosen {
    /// Its slot.
    pub slot: u64,
    /// Index of the rule that took it.
    pub rule: usize,
    /// Index of its file in the container.
    pub shard: usize,
    /// Index within that file's directory.
    pub tensor: usize,
    /// Its name.
    pub name: String,
    /// Where its bytes begin in the file; `admitted` says how many.
    pub offset: u64,
    /// The layout applied to it.
    pub admitted: Admitted,
}

/// One tensor that stays as it is.
#[derive(Clone, Debug)]
pub struct Left {
    /// Index of its file in the container.
    pub shard: usize,
    /// Index within that file's directory.
    pub tensor: usize,
    /// Its name.
    pub name: String,
    /// The first rule that names it and what doesn't fit; `None` when no rule names it.
    pub misfit: Option<(usize, Misfit)>,
}

impl Plan {
    /// Selects tensors of a container: each goes to the first rule that names it and that it fits.
    /// Errors when the container is of another architecture, when nothing is selected, or with all
    /// that breaks the plan's invariants.
    pub fn select(
        &self,
        container: &Container,
        context: &SelectContext<'_>,
    ) -> Result<Selection, SelectionError> {
        self.refuse_architecture(container)?;
        let mut taking = Taking::new(self, container, context);
        for (shard, directory) in container.shards().iter().enumerate() {
            for (tensor, found) in directory.tensors().iter().enumerate() {
                taking.offer(Place { shard, tensor }, found);
            }
        }
        taking.finish()
    }

    /// The rules that a container has an exception for.
    fn idle(&self, container: &Container) -> BTreeSet<usize> {
        let makes_way = |rule: &Rule| {
            rule.unless.as_ref().is_some_and(|unless| {
                let mut names = container.tensors().map(|(_, tensor)| &tensor.name);
                names.any(|name| unless.matched(name).is_some())
            })
        };
        let rules = self.rules.iter().enumerate();
        rules
            .filter_map(|(at, rule)| makes_way(rule).then_some(at))
            .collect()
    }

    fn refuse_architecture(&self, container: &Container) -> Result<(), SelectionError> {
        let found = container.metadata().text("general.architecture");
        let fits = |name| self.architectures.iter().any(|wanted| wanted == name);
        if self.architectures.is_empty() || found.is_some_and(fits) {
            return Ok(());
        }
        Err(SelectionError::Architecture {
            plan: self.name.clone(),
            expected: self.architectures.clone(),
            found: found.map(|name| name.chars().take(SHOWN_CHARS).collect()),
        })
    }
}

#[derive(Clone, Copy)]
struct Place {
    shard: usize,
    tensor: usize,
}

/// A selection in the making.
struct Taking<'p, 'c> {
    plan: &'p Plan,
    context: &'p SelectContext<'c>,
    is_tied: bool,
    /// The rules that make way for a tensor of this container: they name nothing.
    idle: BTreeSet<usize>,
    index: u64,
    chosen: Vec<Chosen>,
    left: Vec<Left>,
    problems: Vec<Problem>,
    /// Names of tensors that are there and stand in `problems`.
    accused: BTreeSet<String>,
}

impl<'p, 'c> Taking<'p, 'c> {
    fn new(plan: &'p Plan, container: &Container, context: &'p SelectContext<'c>) -> Self {
        Self {
            plan,
            context,
            is_tied: stock_x86::is_tied(
                container.metadata().text("general.architecture"),
                container.tensor("output.weight").is_some(),
            ),
            idle: plan.idle(container),
            index: 0,
            chosen: Vec::new(),
            left: Vec::new(),
            problems: Vec::new(),
            accused: BTreeSet::new(),
        }
    }

    /// Gives a tensor to the first rule that takes it, or leaves it.
    fn offer(&mut self, place: Place, tensor: &Tensor) {
        let index = self.index;
        self.index += 1;
        let plan = self.plan;
        let mut first_misfit = None;
        for (at, rule) in plan.rules.iter().enumerate() {
            if self.idle.contains(&at) {
                continue;
            }
            let Some(matched) = rule.pattern.matched(&tensor.name) else {
                continue;
            };
            let fitted = rule
                .captures(&|capture| matched.number(capture))
                .and_then(|values| Ok((self.admit(rule, tensor)?, values)));
            match (fitted, rule.otherwise) {
                (Ok((admitted, values)), _) => {
                    return self.take(place, at, tensor, admitted, index, &values);
                }
                (Err(misfit), Otherwise::Leave) => {
                    first_misfit.get_or_insert((at, misfit));
                }
                (Err(misfit), Otherwise::Refuse) => {
                    let slot = rule.captures(&|capture| matched.number(capture));
                    let slot = slot
                        .ok()
                        .and_then(|values| rule.slot_of(index, &values).ok());
                    self.accused.insert(tensor.name.clone());
                    self.problems.push(Problem::Misfit {
                        slot,
                        tensor: tensor.name.clone(),
                        rule: rule.id.clone(),
                        reason: misfit.to_string(),
                    });
                    return;
                }
            }
        }
        self.left.push(Left {
            shard: place.shard,
            tensor: place.tensor,
            name: tensor.name.clone(),
            misfit: first_misfit,
        });
    }

    fn take(
        &mut self,
        place: Place,
        at: usize,
        tensor: &Tensor,
        admitted: Admitted,
        index: u64,
        values: &BTreeMap<Capture, u64>,
    ) {
        let rule = &self.plan.rules[at];
        match rule.slot_of(index, values) {
            Ok(slot) => self.chosen.push(Chosen {
                slot,
                rule: at,
                shard: place.shard,
                tensor: place.tensor,
                name: tensor.name.clone(),
                offset: tensor.offset,
                admitted,
            }),
            Err(error) => {
                self.accused.insert(tensor.name.clone());
                self.problems
                    .push(Problem::slot_error(&tensor.name, rule.slot.text(), &error));
            }
        }
    }

    /// Everything of a rule but its captures.
    fn admit(&self, rule: &Rule, tensor: &Tensor) -> Result<Admitted, Misfit> {
        let dims = canonical_dims(&tensor.dims);
        let ty = tensor.ggml_type;
        if !rule.types.is_empty() && !rule.types.contains(&ty) {
            let names: Vec<&str> = rule.types.iter().map(|ty| ty.name()).collect();
            return Err(Misfit::Type {
                found: ty.name(),
                wanted: names.join(" or "),
            });
        }
        let fits = dims.len() == rule.dims.len()
            && rule
                .dims
                .iter()
                .zip(&dims)
                .all(|(want, dim)| want.has(*dim));
        if !rule.dims.is_empty() && !fits {
            let wanted: Vec<String> = rule.dims.iter().map(DimRule::to_string).collect();
            return Err(Misfit::Dims {
                found: dims,
                wanted: format!("[{}]", wanted.join(", ")),
            });
        }
        if tensor.bytes == 0 {
            return Err(Misfit::Empty);
        }
        match rule.chosen_by {
            None => {}
            Some(Chooser::GgmlCpu) => {
                let features = self.context.features;
                stock_x86::choose(&tensor.name, ty, &tensor.dims, self.is_tied, features)?;
            }
        }
        let admitted = rule.layout.admit(ty, &tensor.dims, &rule.parameters)?;
        self.context.packers.kernel(&admitted)?;
        Ok(admitted)
    }

    fn finish(mut self) -> Result<Selection, SelectionError> {
        if self.chosen.is_empty() && self.problems.is_empty() {
            return Err(self.nothing());
        }
        // Stable, so that of two tensors in one slot the first in file order comes first.
        self.chosen.sort_by_key(|chosen| chosen.slot);
        for pair in self.chosen.windows(2) {
            if pair[0].slot == pair[1].slot {
                self.problems.push(Problem::Doubled {
                    slot: pair[0].slot,
                    first: pair[0].name.clone(),
                    second: pair[1].name.clone(),
                });
            }
        }
        self.missing();
        self.counts();
        if self.problems.is_empty() {
            return Ok(Selection {
                chosen: self.chosen,
                left: self.left,
            });
        }
        Err(Unfit::new(&self.plan.name, self.problems).into())
    }

    fn nothing(self) -> SelectionError {
        let mut reasons: BTreeMap<String, Reason> = BTreeMap::new();
        for left in self.left {
            let text = match left.misfit {
                None => "no rule names it".to_owned(),
                Some((_, misfit)) => misfit.to_string(),
            };
            let reason = reasons.entry(text).or_insert_with_key(|text| Reason {
                text: text.clone(),
                first: left.name,
                tensors: 0,
            });
            reason.tensors += 1;
        }
        let mut reasons: Vec<Reason> = reasons.into_values().collect();
        reasons.sort_by_key(|reason| Reverse(reason.tensors));
        reasons.truncate(REASONS_MAX);
        SelectionError::Nothing {
            plan: self.plan.name.clone(),
            tensors: self.index,
            reasons,
        }
    }

    /// Expected tensors that aren't there, slots of the set that nothing fills, and slots that it
    /// doesn't have.
    fn missing(&mut self) {
        let taken: BTreeSet<(usize, &str)> = self
            .chosen
            .iter()
            .map(|chosen| (chosen.rule, chosen.name.as_str()))
            .collect();
        let mut filled: BTreeSet<u64> = self.chosen.iter().map(|chosen| chosen.slot).collect();
        filled.extend(self.problems.iter().filter_map(|problem| match problem {
            Problem::Misfit { slot, .. } => *slot,
            Problem::Missing { .. }
            | Problem::Doubled { .. }
            | Problem::Outside { .. }
            | Problem::Slot { .. }
            | Problem::Count { .. }
            | Problem::Total { .. } => None,
        }));
        for (at, rule) in self.plan.rules.iter().enumerate() {
            for expected in &rule.expected {
                let name = expected.name.as_str();
                if taken.contains(&(at, name)) || self.accused.contains(name) {
                    continue;
                }
                filled.extend(expected.slot);
                self.problems.push(Problem::Missing {
                    slot: expected.slot,
                    tensor: Some(name.to_owned()),
                });
            }
        }
        let Some(Range { first, last }) = self.plan.invariants.slots else {
            return;
        };
        let missing = (first..=last).filter(|slot| !filled.contains(slot));
        self.problems.extend(missing.map(|slot| Problem::Missing {
            slot: Some(slot),
            tensor: None,
        }));
        let outside = self
            .chosen
            .iter()
            .filter(|chosen| chosen.slot < first || chosen.slot > last);
        self.problems.extend(outside.map(|chosen| Problem::Outside {
            slot: chosen.slot,
            tensor: chosen.name.clone(),
            first,
            last,
        }));
    }

    fn counts(&mut self) {
        for (at, rule) in self.plan.rules.iter().enumerate() {
            let found = self.chosen.iter().filter(|chosen| chosen.rule == at);
            let found = count(found);
            // Fewer than are expected by name were named already.
            let is_told = rule.template.is_some();
            if let Some(expected) = rule.tensor_count()
                && (expected < found || expected > found && !is_told)
            {
                self.problems.push(Problem::Count {
                    rule: rule.id.clone(),
                    expected,
                    found,
                });
            }
        }
        let found = count(self.chosen.iter());
        if let Some(expected) = self.plan.invariants.count
            && expected != found
        {
            self.problems.push(Problem::Total { expected, found });
        }
    }
}

impl Rule {
    /// The numbers of all captures that the rule uses. Errors with the first that is no number or
    /// lies outside its range.
    pub(super) fn captures(
        &self,
        number: &dyn Fn(&Capture) -> Result<u64, String>,
    ) -> Result<BTreeMap<Capture, u64>, Misfit> {
        let variables = self.slot.variables();
        let in_slot = variables.iter().filter_map(|variable| match variable {
            Variable::Index => None,
            Variable::Capture(capture) => Some(capture),
        });
        let used: BTreeSet<&Capture> = self.ranges.keys().chain(in_slot).collect();
        let mut values = BTreeMap::new();
        for capture in used {
            let value = number(capture).map_err(|text| Misfit::Capture {
                capture: capture.clone(),
                text,
            })?;
            if let Some(range) = self.ranges.get(capture)
                && !range.has(value)
            {
                return Err(Misfit::Range {
                    capture: capture.clone(),
                    value,
                    range: *range,
                });
            }
            values.insert(capture.clone(), value);
        }
        Ok(values)
    }

    /// The slot of a tensor with these captures at this place of its container's directory.
    pub(super) fn slot_of(
        &self,
        index: u64,
        values: &BTreeMap<Capture, u64>,
    ) -> Result<u64, super::slot::SlotError> {
        self.slot.slot(&|variable| match variable {
            Variable::Index => index,
            Variable::Capture(capture) => *values
                .get(capture)
                .expect("because `captures` gave every capture of the formula"),
        })
    }
}

fn count<T>(items: impl Iterator<Item = T>) -> u64 {
    items.fold(0, |sum, _| sum + 1)
}

const SHOWN_CHARS: usize = 80;
const REASONS_MAX: usize = 8;
