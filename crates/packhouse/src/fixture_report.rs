//! How verdicts on kernels are told: a line per boundary, a line per failing row, and all rows in
//! the document.

use crate::answer::{Answer, Column, table};
use crate::failure::Exit;
use packhouse_base::shown::Shown;
use packhouse_component::Dtype;
use packhouse_component::name::CPU;
use packhouse_fixture::{BoundaryVerdict, Case, Fixture, Promise, RowVerdict, Tolerance, Worst};
use serde_json::{Value, json};
use std::fmt::Write as _;

/// One kernel on one case.
#[derive(Debug)]
pub(crate) struct Trial {
    /// The fixture.
    pub(crate) fixture: String,
    /// The kernel's id, or what another program calls itself.
    pub(crate) kernel: String,
    /// Rows of activations.
    pub(crate) width: u64,
    /// The case's arm.
    pub(crate) arm: String,
    /// What another program was asked beside that; none of our own kernels.
    pub(crate) asked: Option<Asked>,
    /// What was judged, or every reason why nothing was.
    pub(crate) outcome: Result<Vec<Judged>, Vec<String>>,
}

/// What a program was asked beside fixture, width and arm.
#[derive(Debug)]
pub(crate) struct Asked {
    /// Where it ran.
    pub(crate) device: String,
    /// Which repeat, from 0.
    pub(crate) repeat: u64,
    /// Whether the inputs were drawn for this session.
    pub(crate) is_drawn: bool,
    /// What the program says and nobody else can know; null where its answer has a fault.
    pub(crate) attested: Value,
}

/// One boundary with what is needed to print it.
#[derive(Debug)]
pub(crate) struct Judged {
    verdict: BoundaryVerdict,
    dtype: Dtype,
    promise: Promise,
}

impl Judged {
    /// Verdicts of a case, in the order of its boundaries.
    pub(crate) fn all(
        fixture: &Fixture,
        case: &Case,
        promise: Promise,
        verdicts: Vec<BoundaryVerdict>,
    ) -> Vec<Self> {
        let judged = verdicts.into_iter().map(|verdict| {
            let has_near = case
                .near
                .iter()
                .any(|near| near.boundary == verdict.boundary);
            let tensor = fixture.tensors.get(&verdict.tensor);
            Self {
                dtype: tensor.map_or(Dtype::U8, |tensor| tensor.dtype),
                promise: if has_near { promise } else { Promise::Exact },
                verdict,
            }
        });
        judged.collect()
    }
}

impl Trial {
    /// Whether every row of every boundary passed.
    pub(crate) fn passed(&self) -> bool {
        let passed = |judged: &Judged| judged.verdict.passed();
        let outcome = self.outcome.as_ref();
        outcome.is_ok_and(|judged| !judged.is_empty() && judged.iter().all(passed))
    }

    /// The case in words: its width, and what sets it apart from others of that width.
    pub(crate) fn case(&self) -> String {
        let mut case = self.width.to_string();
        if self.arm != Case::PLAIN {
            let _ = write!(case, " {}", self.arm);
        }
        if let Some(asked) = &self.asked {
            if asked.is_drawn {
                case += " drawn";
            }
            if asked.repeat > 0 {
                let _ = write!(case, " repeat {}", asked.repeat);
            }
            if asked.device != CPU {
                let _ = write!(case, " on {}", asked.device);
            }
        }
        case
    }
}

/// The answer to a run: a table, what failed, and one line that sums up.
pub(crate) fn answer(trials: &[Trial]) -> Answer {
    let mut text = told(trials);
    let failed = trials.iter().filter(|trial| !trial.passed()).count();
    let is_near = is_near(trials);
    let is_passed = failed == 0 && !trials.is_empty();
    let cases = if trials.len() == 1 { "case" } else { "cases" };
    let _ = match (failed, trials.len()) {
        (_, 0) => writeln!(text, "failed: nothing was run"),
        (0, count) if is_near => writeln!(text, "passed: {count} {cases}, near, not bit-equal"),
        (0, count) => writeln!(text, "passed: {count} {cases}"),
        (_, count) => writeln!(text, "failed: {failed} of {count} {cases}"),
    };
    Answer {
        text,
        json: json!({
            "passed": is_passed,
            "cases": trials.len(),
            "failed_cases": failed,
            "near": is_near,
            "trials": trials.iter().map(document).collect::<Vec<_>>(),
        }),
        exit: if is_passed {
            Exit::Done
        } else {
            Exit::Negative
        },
    }
}

/// A table of all boundaries, and a line for each failing row or fault.
pub(crate) fn told(trials: &[Trial]) -> String {
    let faults = trials.iter().map(faults);
    summary(trials) + &faults.collect::<String>()
}

/// Whether a boundary was only judged to be near.
pub(crate) fn is_near(trials: &[Trial]) -> bool {
    let is_near = |judged: &Judged| judged.promise == Promise::Near;
    let judged = trials
        .iter()
        .filter_map(|trial| trial.outcome.as_ref().ok());
    judged.flatten().any(is_near)
}

/// A line per fixture, kernel, boundary and bound, over all cases.
fn summary(trials: &[Trial]) -> String {
    let mut lines: Vec<Line> = Vec::new();
    let mut add = |line: Line| {
        let same = lines.iter_mut().find(|known| known.words == line.words);
        match same {
            None => lines.push(line),
            Some(known) => {
                known.cases += line.cases;
                known.rows += line.rows;
                known.failed += line.failed;
            }
        }
    };
    for trial in trials {
        let words = |boundary: &str, bound: String| {
            [
                trial.fixture.as_str(),
                trial.kernel.as_str(),
                boundary,
                bound.as_str(),
            ]
            .map(str::to_owned)
        };
        let Ok(judged) = &trial.outcome else {
            add(Line {
                words: words("-", "not judged".to_owned()),
                cases: 1,
                rows: 0,
                failed: 0,
            });
            continue;
        };
        for judged in judged {
            let verdict = &judged.verdict;
            add(Line {
                words: words(&verdict.boundary, bound(&verdict.tolerance)),
                cases: 1,
                rows: verdict.rows.len(),
                failed: verdict.rows.iter().filter(|row| !row.passed).count(),
            });
        }
    }
    let words = [
        "fixture", "kernel", "boundary", "cases", "rows", "failed", "bound",
    ];
    let mut rows = vec![words.map(str::to_owned).to_vec()];
    rows.extend(lines.into_iter().map(|line| {
        let [fixture, kernel, boundary, bound] = line.words;
        let [cases, rows, failed] = [line.cases, line.rows, line.failed].map(|n| n.to_string());
        vec![fixture, kernel, boundary, cases, rows, failed, bound]
    }));
    table(&COLUMNS, &rows)
}

/// A line of the summary: fixture, kernel, boundary and bound, and what was counted of them.
struct Line {
    words: [String; 4],
    cases: usize,
    rows: usize,
    failed: usize,
}

fn bound(tolerance: &Tolerance) -> String {
    match tolerance {
        Tolerance::BitEqual => "every bit".to_owned(),
        Tolerance::Ulp { max } => format!("{max} ULP"),
        Tolerance::Within { .. } => "each element within its bound".to_owned(),
    }
}

/// A line for each failing row, those of a boundary cut to a screen.
fn faults(trial: &Trial) -> String {
    let place = format!(
        "{} {} at width {}",
        trial.fixture,
        trial.kernel,
        trial.case()
    );
    let judged = match &trial.outcome {
        Err(faults) => {
            let line = |why| format!("{}\n", Shown(&format!("failed: {place}: {why}")));
            return faults.iter().map(line).collect();
        }
        Ok(judged) => judged,
    };
    let mut text = String::new();
    for judged in judged {
        let failing = judged.verdict.rows.iter().filter(|row| !row.passed);
        let failing: Vec<&RowVerdict> = failing.collect();
        for row in failing.iter().take(ROWS_SHOWN) {
            let row = fault(judged, row);
            let line = format!("failed: {place}, {}", row);
            let _ = writeln!(text, "{}", Shown(&line));
        }
        if failing.len() > ROWS_SHOWN {
            let more = failing.len() - ROWS_SHOWN;
            let boundary = &judged.verdict.boundary;
            let _ = writeln!(text, "failed: {place}, {boundary}: {more} more rows");
        }
    }
    text
}

fn fault(judged: &Judged, row: &RowVerdict) -> String {
    let label = |label: &Option<String>| {
        let label = label.as_ref().map(|label| format!(" ({label})"));
        label.unwrap_or_default()
    };
    let mut text = format!(
        "{} row {}{}: {} of {} elements differ",
        judged.verdict.boundary,
        row.row,
        label(&row.label),
        row.different,
        row.elements,
    );
    if let Some(worst) = &row.worst {
        let [expected, actual] = [worst.expected, worst.actual].map(|b| hex(judged.dtype, b));
        let special = label(&worst.label);
        let column = worst.column;
        let _ = write!(
            text,
            "; column {column}{special} is {actual}, expected {expected}"
        );
        if let Some(ulps) = worst.ulps {
            let _ = write!(text, ", {ulps} ULP apart");
        }
        if let Some(bound) = worst.bound {
            let bound = f32::from_bits(bound);
            let _ = write!(text, "; at most {bound:e} away is near");
        }
    }
    text
}

fn hex(dtype: Dtype, bits: u32) -> String {
    let digits = usize::try_from(2 * dtype.bytes()).expect("because it is 8 at most");
    format!("0x{bits:0digits$x}")
}

/// A trial as a document.
pub(crate) fn document(trial: &Trial) -> Value {
    let mut document = json!({
        "fixture": trial.fixture,
        "kernel": trial.kernel,
        "width": trial.width,
        "arm": trial.arm,
        "passed": trial.passed(),
    });
    if let Some(asked) = &trial.asked {
        document["device"] = json!(asked.device);
        document["repeat"] = json!(asked.repeat);
        document["drawn"] = json!(asked.is_drawn);
        document["attested"] = asked.attested.clone();
    }
    match &trial.outcome {
        Err(faults) => document["not_judged"] = json!(faults),
        Ok(judged) => {
            let boundaries: Vec<Value> = judged.iter().map(boundary).collect();
            document["boundaries"] = json!(boundaries);
        }
    }
    document
}

fn boundary(judged: &Judged) -> Value {
    let verdict = &judged.verdict;
    let rows = verdict.rows.iter().map(|row| {
        json!({
            "row": row.row,
            "label": row.label,
            "passed": row.passed,
            "elements": row.elements,
            "different": row.different,
            "worst": row.worst.as_ref().map(|worst| worst_of(judged.dtype, worst)),
        })
    });
    json!({
        "boundary": verdict.boundary,
        "expected": verdict.tensor,
        "promise": match judged.promise { Promise::Exact => "exact", Promise::Near => "near" },
        "tolerance": bound(&verdict.tolerance),
        "passed": verdict.passed(),
        "rows": rows.collect::<Vec<_>>(),
    })
}

fn worst_of(dtype: Dtype, worst: &Worst) -> Value {
    json!({
        "column": worst.column,
        "label": worst.label,
        "expected": hex(dtype, worst.expected),
        "actual": hex(dtype, worst.actual),
        "ulps": worst.ulps,
    })
}

const COLUMNS: [Column; 7] = [
    Column::Left,
    Column::Left,
    Column::Left,
    Column::Right,
    Column::Right,
    Column::Right,
    Column::Left,
];
const ROWS_SHOWN: usize = 16;

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_fixture::{Output, families, judge_case, kernels, run_case};

    /// A kernel that is our own, but for one bit of one element of some rows.
    fn trial(rows: &[usize], promise: Promise) -> Trial {
        let family = families::find("mmvq-q4_0-q8_1-v1").expect("because it is in the table");
        let fixture = (family.generate)();
        let case = fixture.cases.last().expect("because it has five");
        let kernel = kernels::of_fixture(family.id).expect("because it has five");
        let mut outputs = run_case(&fixture, case, kernel).expect("because the sizes fit");
        for row in rows {
            outputs[0].bytes[4 * (256 * row + 7)] ^= 1;
        }
        judged(&fixture, case, promise, &outputs)
    }

    fn judged(fixture: &Fixture, case: &Case, promise: Promise, outputs: &[Output]) -> Trial {
        let outcome = judge_case(fixture, case, promise, outputs);
        let outcome = outcome.map(|verdicts| Judged::all(fixture, case, promise, verdicts));
        Trial {
            fixture: fixture.id.clone(),
            kernel: "k".to_owned(),
            width: case.width,
            arm: case.arm.clone(),
            asked: None,
            outcome: outcome.map_err(|error| vec![error.to_string()]),
        }
    }

    fn lines(answer: &Answer) -> Vec<&str> {
        answer.text.lines().collect()
    }

    #[test]
    fn a_failing_row_is_named_with_its_worst_element() {
        let said = answer(&[trial(&[], Promise::Exact), trial(&[3], Promise::Exact)]);
        assert_eq!(said.exit, Exit::Negative);
        let lines = lines(&said);
        assert_eq!(
            lines[1],
            "mmvq-q4_0-q8_1-v1  k       output        2    32       1  every bit"
        );
        let begins = "failed: mmvq-q4_0-q8_1-v1 k at width 16, output row 3: 1 of 256 elements \
                      differ; column 7 is 0x";
        assert!(lines[2].starts_with(begins), "{}", lines[2]);
        assert!(lines[2].ends_with(", 1 ULP apart"), "{}", lines[2]);
        assert_eq!(lines[3], "failed: 1 of 2 cases");
        let trial = &said.json["trials"][1];
        assert_eq!(trial["passed"], json!(false));
        let rows = trial["boundaries"][0]["rows"]
            .as_array()
            .expect("because it is a list");
        let failed = rows.iter().filter(|row| row["passed"] == json!(false));
        assert_eq!((rows.len(), failed.count()), (16, 1));
        assert_eq!(rows[3]["worst"]["ulps"], json!(1));
    }

    #[test]
    fn near_is_said_not_to_be_equal() {
        let said = answer(&[trial(&[3], Promise::Near)]);
        assert_eq!(said.exit, Exit::Done);
        assert_eq!(lines(&said)[2], "passed: 1 case, near, not bit-equal");
        assert_eq!(said.json["near"], json!(true));
        let said = answer(&[trial(&[], Promise::Exact)]);
        assert_eq!(lines(&said)[2], "passed: 1 case");
        assert_eq!(said.json["near"], json!(false));
    }

    #[test]
    fn more_rows_than_a_screen_are_counted() {
        let all: Vec<usize> = (0..16).collect();
        let said = answer(&[trial(&all, Promise::Exact)]);
        assert_eq!(lines(&said).len(), 2 + 16 + 1);
        let family = families::find("contextkv-bf16-v1").expect("because it is in the table");
        let fixture = (family.generate)();
        let case = fixture.cases.last().expect("because it has some");
        let kernel = kernels::of_fixture(family.id).expect("because it has one");
        let mut outputs = run_case(&fixture, case, kernel).expect("because the sizes fit");
        outputs[0].bytes.iter_mut().for_each(|byte| *byte ^= 1);
        let said = answer(&[judged(&fixture, case, Promise::Exact, &outputs)]);
        let more = format!("failed: {} k at width 68", fixture.id);
        let more = lines(&said)
            .into_iter()
            .filter(|line| line.starts_with(&more) && line.ends_with(" more rows"));
        assert_eq!(more.count(), 1, "{}", said.text);
    }

    #[test]
    fn what_was_not_judged_and_nothing_at_all_are_failures() {
        let said = answer(&[]);
        assert_eq!(said.exit, Exit::Negative);
        assert_eq!(lines(&said)[1], "failed: nothing was run");
        let family = families::find("mmvq-q4_0-q8_1-v1").expect("because it is in the table");
        let fixture = (family.generate)();
        let said = answer(&[judged(&fixture, &fixture.cases[0], Promise::Exact, &[])]);
        assert_eq!(said.exit, Exit::Negative);
        assert!(
            said.text.contains(": there is nothing of output\n"),
            "{}",
            said.text
        );
        assert!(said.text.contains("not judged"), "{}", said.text);
        let mut none = trial(&[], Promise::Exact);
        none.outcome = Ok(Vec::new());
        assert_eq!(answer(&[none]).exit, Exit::Negative);
    }
}
