//! Tests of these fixtures, and of their kernels through them.
