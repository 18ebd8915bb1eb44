//! Binary16 and bfloat16 bits, to and from binary32 and binary64, rounded once to nearest even.
