//! Traits Fs, Clock, Map and their real versions
