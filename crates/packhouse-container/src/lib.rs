//! Bytes to tensor directory: GGUF; GGUF writer
