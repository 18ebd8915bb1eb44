//! What is known of a program before a case is asked of it, and what is told of one that is gone.

use super::error::cut;
use crate::prereg::{GateRule, Leg, Treatment};
use crate::schedule::LegPlan;
use crate::sessions::{Broken, LOG_BYTES_MAX};
use packhouse_base::shown::Shown;
use packhouse_component::message::Introduction;

/// Whether a program offers all that it will be asked for, and its hello contradicts none of the
/// gates that it is judged by; rejections are asked for anyway.
pub(super) fn is_able(
    plan: &LegPlan,
    (treatment, gates): (Treatment, &[GateRule]),
    hello: &Introduction,
) -> Result<(), String> {
    if !hello.devices.contains(&plan.device) {
        return Err(format!("the program has no device {}", plan.device));
    }
    if plan.kind == Leg::Timing && !hello.times {
        return Err("the program does not say that it times cycles".to_owned());
    }
    let asks = plan.asks_of(treatment);
    for ask in asks.filter(|ask| ask.rejection.is_none()) {
        let offer = hello
            .kernels
            .iter()
            .find(|offer| offer.fixture == ask.fixture);
        let Some(offer) = offer else {
            return Err(format!("the program does not offer {}", ask.fixture));
        };
        if !offer.arms.contains(&ask.arm) || !offer.widths.contains(&ask.width) {
            return Err(format!(
                "the program does not offer {} in arm {} at width {}",
                ask.fixture, ask.arm, ask.width
            ));
        }
    }
    let contradicted = gates.iter().find_map(|gate| contradicts(gate, hello));
    contradicted.map_or(Ok(()), Err)
}

/// Why a gate can't pass, whatever the program answers, where its hello says so.
fn contradicts(gate: &GateRule, hello: &Introduction) -> Option<String> {
    let why = match gate {
        GateRule::Poisoned => (!hello.poisons).then(|| "that it poisons".to_owned()),
        GateRule::CaptureIdle => {
            (!hello.says_capture).then(|| "that it knows when it is captured".to_owned())
        }
        GateRule::Denial { denies } => {
            let missing = denies.iter().find(|name| !hello.denies.contains(name));
            missing.map(|name| format!("that it denies {name}"))
        }
        GateRule::FreshInputs
        | GateRule::StablePointers
        | GateRule::NoWarnings
        | GateRule::Witness { .. } => None,
    };
    why.map(|why| format!("gate {}: the program does not say {why}", gate.word()))
}

/// Why a session broke off, with the last lines of what its program wrote to stderr: as one line,
/// escaped, and cut from the front. Of a log that is cut at its end it says so.
pub(super) fn last_words(broken: &Broken) -> String {
    let log = broken.gone.as_ref().map_or(&[][..], |gone| &gone.log);
    let what = match log.len() < LOG_BYTES_MAX {
        true => "its stderr",
        false => "the first MiB of its stderr",
    };
    let log = String::from_utf8_lossy(log);
    let lines = log.lines().map(str::trim_end);
    let lines: Vec<&str> = lines.filter(|line| !line.trim().is_empty()).collect();
    let last = lines[lines.len().saturating_sub(LINES_MAX)..].join(" / ");
    let mut start = last.len().saturating_sub(WORDS_BYTES_MAX);
    while !last.is_char_boundary(start) {
        start += 1;
    }
    let mut reason = broken.reason.clone();
    if !last.is_empty() {
        // What the program wrote never takes the place of what is known of it.
        cut(&mut reason, REASON_BYTES_BEFORE);
        let dots = if start > 0 { "... " } else { "" };
        reason += &format!("; {what} ends: {dots}{}", Shown(&last[start..]));
    }
    reason
}

/// How many lines of a log are told, and how many bytes of them.
const LINES_MAX: usize = 3;
const WORDS_BYTES_MAX: usize = 300;
/// A reason that a log is told after.
const REASON_BYTES_BEFORE: usize = 600;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sessions::Gone;

    #[test]
    fn the_end_of_what_was_kept_of_a_long_log_is_not_told_as_its_end() {
        let told = |bytes: usize| {
            let mut log = vec![b'x'; bytes - 5];
            log.extend(b"\nlast");
            let gone = Some(Gone {
                log,
                ..Gone::default()
            });
            let reason = "it ended".to_owned();
            last_words(&Broken { reason, gone })
        };
        let (whole, cut) = (told(LOG_BYTES_MAX - 1), told(LOG_BYTES_MAX));
        assert!(
            whole.starts_with("it ended; its stderr ends: ... xx"),
            "{whole}"
        );
        assert!(
            cut.starts_with("it ended; the first MiB of its stderr ends: ... xx"),
            "{cut}"
        );
        assert!(
            whole.ends_with("x / last") && cut.ends_with("x / last"),
            "{cut}"
        );
    }
}
