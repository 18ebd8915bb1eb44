//! What the lab asks this host.
