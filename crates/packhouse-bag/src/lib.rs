//! Evidence bags (RFC 8493) and their seals.

#![forbid(unsafe_code)]
