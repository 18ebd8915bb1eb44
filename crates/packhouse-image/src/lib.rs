//! Images of packed lm-head tiles: one self-describing file per tile, for engines that quantise
//! and tile the head on the host at every start.
//!
//! A file is used only if its header, its sizes, its length and the hash of its bytes hold **and**
//! a few columns, packed again from the weights held now by the packer that would serve, agree bit
//! for bit. The hash covers every byte (damage, truncation); the sample covers provenance (other
//! weights, another packer). Anything else is packed as ever, and the file is replaced.
//!
//! Never: prints, reads the environment, or fails a serve because of a file. Specified in
//! `docs/format/head-image.md`.

#![forbid(unsafe_code)]
