//! Figures of analyses in the form in which people read them. Integers in, rounded only here.

use super::values::{Evidence, Rehearsals, Saving, Timing};

impl Saving {
    /// In nanoseconds, to be drawn; never to be judged.
    pub(super) fn drawn_ns(self) -> f64 {
        #[expect(
            clippy::cast_precision_loss,
            reason = "a bar's height needs no more than 53 bits"
        )]
        let (above, below) = (self.numerator as f64, self.denominator.max(1) as f64);
        above / below
    }

    /// Which of two is larger, as drawn.
    pub(super) fn compared(self, other: Self) -> std::cmp::Ordering {
        self.drawn_ns().total_cmp(&other.drawn_ns())
    }

    /// To three figures after the point of its unit, cut towards zero.
    pub(super) fn text(self) -> String {
        let below = i128::from(self.denominator.max(1));
        let sign = if self.numerator < 0 { "-" } else { "" };
        let above = self.numerator.unsigned_abs();
        let below = below.unsigned_abs();
        let whole = above / below;
        let (scale, unit) = match whole {
            0..10_000 => (1_u128, "ns"),
            10_000..10_000_000 => (1_000, "us"),
            10_000_000..10_000_000_000 => (1_000_000, "ms"),
            _ => (1_000_000_000, "s"),
        };
        let below = below.saturating_mul(scale);
        let thousandths = (above % below).saturating_mul(1_000) / below;
        format!("{sign}{}.{thousandths:03} {unit}", above / below)
    }
}

/// Whole nanoseconds in the unit that suits them.
pub(super) fn saving_text(ns: u64) -> String {
    let saving = Saving {
        numerator: i128::from(ns),
        denominator: 1,
    };
    saving.text()
}

impl Rehearsals {
    /// All rehearsals in one line.
    pub(super) fn summary(&self) -> String {
        let mut text = format!("{} of {} rehearsals green", self.green_count, self.count);
        if self.tampers > 0 {
            text += &format!(", {} tamper cases rejected", self.tampers);
        }
        for (device, ns) in &self.detectable_ns {
            text += &format!(
                "; on {device} a saving of {} could be told",
                saving_text(*ns)
            );
            let red = self.red_ns.iter().filter(|(name, _)| name == device);
            let red: Vec<String> = red.map(|(_, ns)| saving_text(*ns)).collect();
            if !red.is_empty() {
                text += &format!(" (those not green: {})", red.join(", "));
            }
        }
        text
    }
}

impl Evidence {
    /// How many gates passed, failed and were not judged.
    pub(super) fn gate_counts(&self) -> (usize, usize, usize) {
        let count = |passed| {
            self.gates
                .iter()
                .filter(|gate| gate.passed == passed)
                .count()
        };
        (count(Some(true)), count(Some(false)), count(None))
    }

    /// The gates that made the verdict a fail.
    pub(super) fn failed(&self) -> String {
        let failed = self
            .gates
            .iter()
            .filter(|gate| gate.decides && gate.passed == Some(false));
        let names: Vec<&str> = failed.map(|gate| gate.gate.as_str()).collect();
        names.join(", ")
    }

    /// The analysis in one line.
    pub(super) fn summary(&self) -> String {
        let (passed, failed, unjudged) = self.gate_counts();
        let mut text = format!("{passed} of {} gates passed", self.gates.len());
        if failed > 0 {
            text += &format!(", {failed} failed");
        }
        if unjudged > 0 {
            text += &format!(", {unjudged} not judged");
        }
        let equal = self.rows.iter().filter(|row| row.equal).count();
        text += &format!("; {equal} of {} rows as promised", self.rows.len());
        for timing in &self.timing {
            text += &format!("; {}", timing.summary());
        }
        text
    }
}

impl Timing {
    /// One device's timing in one line.
    pub(super) fn summary(&self) -> String {
        format!(
            "{}: median saving {} a cycle, {} of {} blocks won",
            self.device,
            self.median.text(),
            self.wins,
            self.savings.len()
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn savings_keep_sign_and_unit() {
        for (numerator, denominator, said) in [
            (0, 1, "0.000 ns"),
            (1, 3, "0.333 ns"),
            (-1, 3, "-0.333 ns"),
            (9_999_999, 1_000, "9999.999 ns"),
            (10_000, 1, "10.000 us"),
            (-120_856, 1, "-120.856 us"),
            (25_000_001, 2, "12.500 ms"),
            (90_000_000_000, 4, "22.500 s"),
        ] {
            let saving = Saving {
                numerator,
                denominator,
            };
            assert_eq!(saving.text(), said, "{numerator}/{denominator}");
        }
        let widest = Saving {
            numerator: i128::MIN,
            denominator: 1,
        };
        assert!(widest.text().ends_with(" s"), "{}", widest.text());
    }
}
