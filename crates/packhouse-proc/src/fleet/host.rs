//! What a fleet file asks of this host and the host has not.
