//! The sys traits with faults: lost, torn and reordered writes, full disk
