//! What a crossover must show: declared before it is run, and held against the controls' noise.

use super::{ControlNoise, Gate};
use packhouse_base::Blame;

/// A bound that a figure must be above, or at least at.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Bound {
    /// Equal is not enough.
    Above(f64),
    /// Equal is enough.
    AtLeast(f64),
}

impl Bound {
    /// Whether a figure meets it; no number meets none.
    pub fn is_met_by(self, figure: f64) -> bool {
        match self {
            Self::Above(bound) => figure > bound,
            Self::AtLeast(bound) => figure >= bound,
        }
    }

    /// The number itself.
    pub fn value(self) -> f64 {
        match self {
            Self::Above(bound) | Self::AtLeast(bound) => bound,
        }
    }
}

/// How alike the draft's work must be.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum SameWork {
    /// There is no draft in either.
    NoDraft,
    /// Every counter, and every position.
    Identical,
    /// The acceptance rates differ by this much at most, either way.
    AcceptanceWithin(f64),
}

/// What a crossover must show. Every number is declared before it is run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Thresholds {
    /// The candidate's headline against the control's times this ratio.
    pub headline_ratio: Bound,
    /// Rows that the candidate must win.
    pub row_wins: u64,
    /// The median of the rows' percents.
    pub median_percent: Bound,
    /// Milliseconds that a cycle must save.
    pub cycle_saving_ms: Bound,
    /// How alike the draft's work must be.
    pub work: SameWork,
    /// How far each control may be from the record, as a share of it; none where that is not asked.
    pub control_health: Option<f64>,
    /// The record, tokens per second.
    pub record: f64,
    /// Each start of the candidate must be above the record times this.
    pub floor_ratio: f64,
}

/// Thresholds that can be, and that ask for no less than the controls differ by: nothing else
/// judges a crossover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Detectable(Thresholds);

/// Why thresholds can't be used.
#[derive(Clone, Copy, Debug, PartialEq, thiserror::Error)]
pub enum Undetectable {
    /// A threshold is below what the controls differ by.
    #[error("the {gate} gate asks for {asked} {unit}, controls differ by {noise} {unit}")]
    BelowNoise {
        /// Which gate.
        gate: Gate,
        /// What it asks for.
        asked: f64,
        /// What the controls differ by.
        noise: f64,
        /// The unit of both.
        unit: &'static str,
    },
    /// A threshold, or what it is held against, can't be.
    #[error("the {gate} gate: {field} is {value}, expected {expected}")]
    NoThreshold {
        /// Which gate.
        gate: Gate,
        /// Which number.
        field: &'static str,
        /// Its value.
        value: f64,
        /// What it can be.
        expected: &'static str,
    },
}

impl Undetectable {
    /// Whose side it is on: whoever declared the thresholds.
    pub fn blame(&self) -> Blame {
        match self {
            Self::BelowNoise { .. } | Self::NoThreshold { .. } => Blame::Caller,
        }
    }
}

impl Thresholds {
    /// Refuses numbers that no threshold can be, and gates of effect that are below the noise of
    /// the controls: they would pass or fail by chance.
    pub fn detectable(&self, noise: &ControlNoise) -> Result<Detectable, Undetectable> {
        for (gate, field, value) in self.numbers(noise) {
            if !value.is_finite() {
                return Err(Undetectable::NoThreshold {
                    gate,
                    field,
                    value,
                    expected: "a number",
                });
            }
        }
        for (gate, field, value) in self.sizes() {
            if value <= 0.0 {
                return Err(Undetectable::NoThreshold {
                    gate,
                    field,
                    value,
                    expected: "a number above 0",
                });
            }
        }
        for (gate, asked, noise, unit) in self.effects(noise) {
            if asked < noise {
                return Err(Undetectable::BelowNoise {
                    gate,
                    asked,
                    noise,
                    unit,
                });
            }
        }
        Ok(Detectable(*self))
    }

    /// Every number of these and of the noise.
    fn numbers(&self, noise: &ControlNoise) -> Vec<(Gate, &'static str, f64)> {
        let mut numbers = vec![
            (Gate::Headline, "the noise", noise.percent),
            (Gate::CycleSaving, "the noise", noise.cycle_ms),
            (
                Gate::MedianPercent,
                "median_percent",
                self.median_percent.value(),
            ),
            (
                Gate::CycleSaving,
                "cycle_saving_ms",
                self.cycle_saving_ms.value(),
            ),
        ];
        numbers.extend(self.sizes());
        if let SameWork::AcceptanceWithin(most) = self.work {
            numbers.push((Gate::Work, "the acceptance's share", most));
        }
        numbers
    }

    /// Those that are above 0.
    fn sizes(&self) -> Vec<(Gate, &'static str, f64)> {
        let mut sizes = vec![
            (
                Gate::Headline,
                "headline_ratio",
                self.headline_ratio.value(),
            ),
            (Gate::Floor, "record", self.record),
            (Gate::Floor, "floor_ratio", self.floor_ratio),
        ];
        let health = self.control_health;
        sizes.extend(health.map(|share| (Gate::ControlHealth, "control_health", share)));
        sizes
    }

    /// What gates of effect ask for, and the controls' difference in it.
    fn effects(&self, noise: &ControlNoise) -> [(Gate, f64, f64, &'static str); 3] {
        let headline = 100.0 * (self.headline_ratio.value() - 1.0);
        let (median, saving) = (self.median_percent.value(), self.cycle_saving_ms.value());
        [
            (Gate::Headline, headline, noise.percent, "%"),
            (Gate::MedianPercent, median, noise.percent, "%"),
            (Gate::CycleSaving, saving, noise.cycle_ms, "ms"),
        ]
    }
}

impl Detectable {
    /// The numbers.
    pub fn thresholds(&self) -> &Thresholds {
        &self.0
    }
}
