//! What was observed on a host when a page was drawn: never part of a page that is kept.

/// Observations of one moment.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Live {
    /// When the page was drawn, nanoseconds since 1970.
    pub at_ns: i64,
    /// What was observed.
    pub observations: Vec<Observation>,
}

/// One thing that was observed, or could not be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Observation {
    /// What it is about.
    pub topic: Topic,
    /// The thing: a process, an address, a device, a folder.
    pub subject: String,
    /// What was seen of it.
    pub seen: String,
    /// How: the file that was read or the tool that was asked.
    pub how: String,
    /// When, nanoseconds since 1970.
    pub at_ns: i64,
    /// Whether it could be observed at all.
    pub known: bool,
}

/// What observations are about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic {
    /// Processes of the lab's programs.
    Processes,
    /// Ports that they listen on.
    Ports,
    /// Devices of this host.
    Devices,
    /// The lab's repository.
    Git,
}

impl Topic {
    /// All of them, in the page's order.
    pub const ALL: [Self; 4] = [Self::Processes, Self::Ports, Self::Devices, Self::Git];

    /// Its heading.
    pub(super) fn heading(self) -> &'static str {
        match self {
            Self::Processes => "Processes of the lab's programs",
            Self::Ports => "Ports that they listen on",
            Self::Devices => "Devices",
            Self::Git => "Repository",
        }
    }
}
