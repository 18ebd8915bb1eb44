//! The limits of a plan. `docs/format/plans.md` has the same table; a test compares both.

/// Bytes of a plan.
pub const PLAN_BYTES_MAX: usize = 65_536;
/// Rules of a plan.
pub const RULES_MAX: usize = 64;
/// Bytes of a name pattern.
pub const PATTERN_BYTES_MAX: usize = 512;
/// Bytes that a compiled name pattern may take.
pub const PATTERN_MEMORY_MAX: usize = 32_768;
/// Steps that all name patterns of a plan may take for one byte of a name: of each its compiled
/// bytes, rounded up to 64, times its groups.
pub const PATTERN_WORK_MAX: u64 = 262_144;
/// Steps that matching all expected names of a plan may take: bytes of a name times the steps of
/// its pattern for one.
pub const EXPECT_WORK_MAX: u64 = 536_870_912;
/// Levels of a name pattern: groups, repetitions, alternatives and what stands one after the other.
pub const PATTERN_DEPTH_MAX: u32 = 16;
/// Bytes of a slot formula.
pub const FORMULA_BYTES_MAX: usize = 256;
/// Depth of parentheses within a slot formula.
pub const FORMULA_DEPTH_MAX: usize = 16;
/// The highest slot.
pub const SLOT_MAX: u64 = 4_294_967_295;
/// Slots that an exact range of slots may have.
pub const SLOTS_MAX: u64 = 65_536;
/// Names that all `expect` templates of a plan may give together.
pub const EXPECTED_MAX: u64 = 4_096;
/// Bytes of a plan's, rule's or capture's name.
pub const NAME_BYTES_MAX: usize = 64;
/// Bytes of a summary.
pub const SUMMARY_BYTES_MAX: usize = 200;
/// Problems of one kind that a failed selection shows; the rest is counted.
pub const PROBLEMS_SHOWN_MAX: u64 = 8;
