//! Tests of the kernels from inside: wrong kernels, tampered bytes.
