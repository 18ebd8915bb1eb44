//! How vendors' libraries and tools are asked. What they say is kept raw; parsers come after.

/// What can be asked.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Question {
    /// All that NVML says of every card and process, as one JSON document (`nvml`).
    Nvml,
    /// `nvidia-smi -q -x`: asked where the library can't be loaded.
    NvidiaSmi,
    /// `xpu-smi discovery -j`: the cards.
    XpuSmiCards,
    /// `xpu-smi discovery -d CARD -j`: one card's details.
    XpuSmiCard {
        /// The card: its PCI address, as ordinals depend on masks.
        pci: String,
    },
    /// `xpu-smi stats -d CARD -j`: one card's counters, memory among them.
    XpuSmiCounters {
        /// The card's PCI address.
        pci: String,
    },
    /// `xpu-smi ps -j`: processes on all cards.
    XpuSmiProcesses,
}

impl Question {
    /// The source's name in reports and documents.
    pub fn source(&self) -> &'static str {
        match self {
            Self::Nvml => "nvml",
            Self::NvidiaSmi => "nvidia-smi -q -x",
            Self::XpuSmiCards => "xpu-smi discovery",
            Self::XpuSmiCard { .. } => "xpu-smi discovery -d",
            Self::XpuSmiCounters { .. } => "xpu-smi stats -d",
            Self::XpuSmiProcesses => "xpu-smi ps",
        }
    }
}

/// What a library or tool printed, as it printed it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RawReport {
    /// Who said it.
    pub source: &'static str,
    /// The version of library or tool, where it told one.
    pub version: Option<String>,
    /// The words. Bytes that are no UTF-8 are replaced.
    pub text: String,
    /// The pid of the process that asked the device. It was a child of ours that nobody had waited
    /// for while it spoke, so no other process had this pid: where it lists itself, that is it.
    pub observer: Option<u32>,
}

/// What came of a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum ToolAnswer {
    /// The host has no such library or tool.
    Absent,
    /// It was there and did not answer.
    Failed {
        /// Why, for people.
        why: String,
        /// What it printed all the same.
        raw: Option<RawReport>,
    },
    /// It answered; whether that can be parsed is not said.
    Said(RawReport),
}

/// Where answers come from: the host, or a record of one.
pub trait Tools {
    /// Asks one question.
    fn ask(&self, question: &Question) -> ToolAnswer;
}

/// No libraries and no tools: what the kernel tells is all there is.
#[derive(Clone, Copy, Debug, Default)]
pub struct NoTools;

impl Tools for NoTools {
    fn ask(&self, _question: &Question) -> ToolAnswer {
        ToolAnswer::Absent
    }
}
