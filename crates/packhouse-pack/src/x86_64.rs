//! Kernels of x86-64, by ISA level.
