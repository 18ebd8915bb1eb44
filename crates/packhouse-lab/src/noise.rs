//! What rehearsals of a packet showed of the noise, and whether its timing gate asks for more.
//!
//! Every rehearsal of a packet counts, one that is not green too: what is rehearsed until it looks
//! quiet was not measured, and a saving that a null program once reached says nothing of a
//! candidate.
//!
//! Specified in `docs/format/lab.md`, section 6, and `docs/format/statistics.md`, section 3.4.

use crate::analysis::Timing;
use crate::prereg::Prereg;
use packhouse_base::digest::Digest;
use packhouse_gate::{Noise, Rational};
use packhouse_ledger::{Act, Ledger};
use std::collections::BTreeMap;

/// A timing gate that asks for no more than two arms that are the same have shown.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "{device}: minimum_median_saving_ns is {asked_ns}, and {} tells a saving from none only from \
     {least_ns} ns on: every rehearsal of a packet counts, and another number is another \
     experiment",
    entry.map_or("this rehearsal".to_owned(), |entry| format!("its rehearsal of entry {entry}"))
)]
pub struct WithinNoise {
    /// The device.
    pub device: String,
    /// What the gate asks for.
    pub asked_ns: u64,
    /// The least that it could ask for.
    pub least_ns: u64,
    /// The entry of the rehearsal that says so; none where it is not entered yet.
    pub entry: Option<u64>,
}

/// What one rehearsal, or none that is entered yet, could tell from none.
struct Least {
    entry: Option<u64>,
    ns: u64,
}

/// The smallest saving on each device that its blocks could have told from none: both arms were the
/// control. What they saved themselves, one way or the other, is none.
pub(crate) fn detectable_ns(timings: &[Timing]) -> Option<BTreeMap<String, u64>> {
    let mut detectable = BTreeMap::new();
    for timing in timings {
        let exact = |numerator: &str, denominator| {
            let above = numerator.parse().ok()?;
            Rational::new(above, i128::from(denominator))
        };
        let savings = timing.savings.iter();
        let savings = savings.map(|saving| exact(&saving.numerator, saving.denominator));
        let noise = Noise::of_savings(&savings.collect::<Option<Vec<Rational>>>()?).ok()?;
        let median = exact(&timing.median.numerator, timing.median.denominator)?;
        let above = u64::try_from(median.size().floor() + 1).ok()?;
        // Of a device's several legs the noisiest counts.
        let least: &mut u64 = detectable.entry(timing.device.clone()).or_default();
        *least = noise.detectable_ns().max(above).max(*least);
    }
    (!detectable.is_empty()).then_some(detectable)
}

/// Whether the timing gate asks for more than the noise of every rehearsal of the packet that the
/// ledger has, and of one that it has not yet.
///
/// # Errors
/// For the device and the rehearsal whose noise is the greatest.
pub fn is_above(
    ledger: &Ledger,
    (packet, prereg): (Digest, &Prereg),
    newest: Option<&BTreeMap<String, u64>>,
) -> Result<(), WithinNoise> {
    let Some(timing) = &prereg.timing else {
        return Ok(());
    };
    let asked_ns = timing.minimum_median_saving_ns;
    let all = of_all(ledger, packet, newest);
    let most = all.into_iter().max_by_key(|(_, least)| least.ns);
    match most.filter(|(_, least)| asked_ns < least.ns) {
        None => Ok(()),
        Some((device, Least { entry, ns })) => Err(WithinNoise {
            device,
            asked_ns,
            least_ns: ns,
            entry,
        }),
    }
}

/// By device, the rehearsal of the greatest noise.
fn of_all(
    ledger: &Ledger,
    packet: Digest,
    newest: Option<&BTreeMap<String, u64>>,
) -> BTreeMap<String, Least> {
    let entered = ledger
        .entries()
        .iter()
        .filter_map(|entry| match &entry.act {
            Act::Rehearsed(act) if act.packet == packet => {
                Some((Some(entry.index), act.detectable_ns.as_ref()?))
            }
            _ => None,
        });
    let newest = newest.map(|by_device| (None, by_device));
    let mut all: BTreeMap<String, Least> = BTreeMap::new();
    for (entry, by_device) in entered.chain(newest) {
        for (device, ns) in by_device {
            let ns = *ns;
            if all.get(device).is_none_or(|least| least.ns < ns) {
                all.insert(device.clone(), Least { entry, ns });
            }
        }
    }
    all
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::analysis::Ratio;

    fn ratio(numerator: i128, denominator: u64) -> Ratio {
        Ratio {
            numerator: numerator.to_string(),
            denominator,
        }
    }

    /// Blocks of one leg that all saved the same, in halves of a nanosecond.
    fn timing(device: &str, saved: i128) -> Timing {
        Timing {
            leg: 1,
            device: device.to_owned(),
            blocks: 6,
            wins: 6,
            savings: vec![ratio(saved, 2); 6],
            median: ratio(saved, 2),
            sign_test_p: "0.03125".to_owned(),
            hodges_lehmann: ratio(saved, 2),
            bootstrap_lower_95: ratio(saved, 2),
        }
    }

    /// Two arms that are the same, one of them always before the other: what they saved can't be
    /// told from none, either way, whatever their signs by chance would say.
    #[test]
    fn what_a_null_program_saved_itself_is_within_the_noise() {
        let by_device = |timings: &[Timing]| detectable_ns(timings).unwrap_or_default();
        for saved in [201, -201] {
            let least = by_device(&[timing("cpu", saved)])["cpu"];
            assert!(least > 100, "{least}");
        }
        assert_eq!(by_device(&[timing("cpu", 0)])["cpu"], 1);
        let several = [timing("cpu", 0), timing("cpu", 201), timing("card", 0)];
        let several = by_device(&several);
        assert!(several["cpu"] > 100 && several["card"] == 1, "{several:?}");
        assert_eq!(detectable_ns(&[]), None);
    }
}
