//! The plans that come with Packhouse. Their bytes are frozen per version: a set key depends on
//! them.

use super::Plan;
use packhouse_layout::ggml_cpu_plan;

/// A plan that comes with Packhouse.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BuiltinPlan {
    /// Its name, as in its bytes.
    pub name: &'static str,
    /// Its TOML.
    pub bytes: &'static [u8],
}

/// The built-in plans, the most specific first.
pub fn builtin() -> &'static [BuiltinPlan] {
    &BUILTIN
}

/// Finds a built-in plan by name.
pub fn find(name: &str) -> Option<&'static BuiltinPlan> {
    BUILTIN.iter().find(|plan| plan.name == name)
}

/// Whether a text may name a plan: no path, no hidden file, no option.
pub fn is_name(text: &str) -> bool {
    super::grammar::is_name(text)
}

impl BuiltinPlan {
    /// The parsed plan.
    pub fn plan(&self) -> Plan {
        Plan::parse(self.bytes, ORIGIN).expect("because a test parses every built-in plan")
    }
}

/// The origin of built-in plans.
pub const ORIGIN: &str = "built-in";

static BUILTIN: [BuiltinPlan; 5] = [
    BuiltinPlan {
        name: "qwen27-xe2-m6",
        bytes: include_bytes!("../../plans/qwen27-xe2-m6.toml"),
    },
    BuiltinPlan {
        name: "xe2-q4_0",
        bytes: include_bytes!("../../plans/xe2-q4_0.toml"),
    },
    BuiltinPlan {
        name: ggml_cpu_plan::NAME,
        bytes: ggml_cpu_plan::BYTES,
    },
    BuiltinPlan {
        name: "npu-head",
        bytes: include_bytes!("../../plans/npu-head.toml"),
    },
    BuiltinPlan {
        name: "identity",
        bytes: include_bytes!("../../plans/identity.toml"),
    },
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_built_in_plan_is_read_and_has_its_own_name() {
        for entry in builtin() {
            let plan = Plan::parse(entry.bytes, ORIGIN);
            let plan = plan.unwrap_or_else(|error| panic!("{}: {error}", entry.name));
            assert_eq!(plan.name(), entry.name);
            assert_eq!(find(plan.name()), Some(entry));
        }
        assert_eq!(find("npu-heads"), None);
    }
}
