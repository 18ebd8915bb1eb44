//! ggml out-of-tree backend that maps stored packs into an unmodified engine
