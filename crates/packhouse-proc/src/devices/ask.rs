//! From an answer to a report: the raw words are kept, then a parser has its say.

use crate::devices::SourceReport;
use crate::devices::device::Observation;
use crate::devices::tools::{Question, RawReport, ToolAnswer};

/// Parses an answer and notes what came of it. `None` where there is nothing parsed.
pub(crate) fn parsed<T>(
    question: &Question,
    answer: ToolAnswer,
    reports: &mut Vec<SourceReport>,
    parse: impl FnOnce(&str) -> Result<Vec<T>, String>,
) -> Option<Vec<T>> {
    let (raw, result) = match answer {
        ToolAnswer::Absent => {
            reports.push(SourceReport {
                source: question.source(),
                raw: None,
                outcome: Observation::Absent,
            });
            return None;
        }
        ToolAnswer::Failed { why, raw } => (raw, Err(why)),
        ToolAnswer::Said(raw) => {
            let result = parse(&raw.text);
            (Some(raw), result)
        }
    };
    let (outcome, value) = match result {
        Ok(list) => (Observation::Known(list.len()), Some(list)),
        Err(why) => (Observation::Unknown { why }, None),
    };
    reports.push(SourceReport {
        source: question.source(),
        raw,
        outcome,
    });
    value
}

/// A report of one of the kernel's own files.
pub(crate) fn kernel_report(source: &'static str, text: String) -> SourceReport {
    SourceReport {
        source,
        raw: Some(RawReport {
            source,
            version: None,
            text,
            observer: None,
        }),
        outcome: Observation::Known(1),
    }
}
