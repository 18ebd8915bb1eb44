//! A child process with bounds: its own process group, no inherited environment, a deadline after
//! which the whole group is killed, and output that is kept up to a limit.
