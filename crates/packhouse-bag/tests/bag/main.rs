//! Tests of evidence bags.
