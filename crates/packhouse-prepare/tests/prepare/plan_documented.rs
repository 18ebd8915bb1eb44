//! The format's page says what the code does.

use packhouse_prepare::plan::{builtin, limits};

const PAGE: &str = include_str!("../../../../docs/format/plans.md");

#[test]
fn the_limits_in_the_page_are_those_of_the_code() {
    let source = include_str!("../../src/plan/limits.rs");
    let rows = [
        ("PLAN_BYTES_MAX", limits::PLAN_BYTES_MAX as u64),
        ("RULES_MAX", limits::RULES_MAX as u64),
        ("PATTERN_BYTES_MAX", limits::PATTERN_BYTES_MAX as u64),
        ("PATTERN_MEMORY_MAX", limits::PATTERN_MEMORY_MAX as u64),
        ("PATTERN_WORK_MAX", limits::PATTERN_WORK_MAX),
        ("EXPECT_WORK_MAX", limits::EXPECT_WORK_MAX),
        ("PATTERN_DEPTH_MAX", limits::PATTERN_DEPTH_MAX.into()),
        ("FORMULA_BYTES_MAX", limits::FORMULA_BYTES_MAX as u64),
        ("FORMULA_DEPTH_MAX", limits::FORMULA_DEPTH_MAX as u64),
        ("SLOT_MAX", limits::SLOT_MAX),
        ("SLOTS_MAX", limits::SLOTS_MAX),
        ("EXPECTED_MAX", limits::EXPECTED_MAX),
        ("NAME_BYTES_MAX", limits::NAME_BYTES_MAX as u64),
        ("SUMMARY_BYTES_MAX", limits::SUMMARY_BYTES_MAX as u64),
        ("PROBLEMS_SHOWN_MAX", limits::PROBLEMS_SHOWN_MAX),
    ];
    assert_eq!(
        source.matches("pub const").count(),
        rows.len(),
        "a limit has no row"
    );
    for (name, value) in rows {
        let row = format!("| `{name}` | {value} |");
        assert!(PAGE.contains(&row), "{row}");
    }
}

/// A set key depends on a plan's bytes: other bytes need another version, and their digest here.
#[test]
fn the_built_in_plans_are_frozen() {
    for entry in builtin() {
        let plan = entry.plan();
        let row = PAGE
            .lines()
            .find(|line| line.starts_with(&format!("| `{}` |", entry.name)));
        let row = row.unwrap_or_else(|| panic!("{} has no row", entry.name));
        assert_eq!(plan.version(), 1);
        assert!(
            row.ends_with(&format!("| `{}` |", plan.digest())),
            "{}",
            plan.digest()
        );
    }
}

/// The grammar in the page is the one in the code.
#[test]
fn the_formula_grammar_in_the_page_is_that_of_the_code() {
    let source = include_str!("../../src/plan/slot.rs");
    let rules = source.lines().filter_map(|line| line.strip_prefix("//! "));
    let squeezed = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let page = squeezed(PAGE);
    let rules: Vec<String> = rules
        .filter(|line| line.ends_with(" ;"))
        .map(squeezed)
        .collect();
    assert_eq!(rules.len(), 5);
    for rule in rules {
        assert!(page.contains(&rule), "{rule}");
    }
}
