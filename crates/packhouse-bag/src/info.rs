//! `bag-info.txt`: whose evidence a bag is, how much of it there is, and what it can't prove.

use crate::faults::FormFault;
use packhouse_base::digest::Digest;
use std::fmt;

/// What `bag-info.txt` says beside the size of the payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BagInfo {
    /// The program that closed the bag: 1 to 128 printable ASCII characters, no blank at an end.
    pub software: String,
    /// Digest of the packet that it is evidence of.
    pub packet: Digest,
}

/// Bytes and files of a payload.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Oxum {
    /// Bytes of all payload files.
    pub bytes: u64,
    /// Number of payload files.
    pub files: u64,
}

impl BagInfo {
    /// Renders the file for a payload of that size.
    pub(crate) fn render(&self, oxum: Oxum) -> Vec<u8> {
        let values = [
            PROFILE,
            &self.software,
            &self.packet.to_string(),
            DESCRIPTION,
            &oxum.to_string(),
        ];
        let lines = LABELS.iter().zip(values);
        let lines = lines.map(|(label, value)| format!("{label}: {value}\n"));
        lines.collect::<String>().into_bytes()
    }

    /// Says whether `render` writes what `parse` reads: the software's name may be refused.
    pub fn is_plain(&self) -> bool {
        is_software(&self.software)
    }

    /// Parses the file. Errors on anything that `render` would not have written.
    pub fn parse(bytes: &[u8]) -> Result<(Self, Oxum), FormFault> {
        let text = std::str::from_utf8(bytes).map_err(|_| FormFault::NotText)?;
        let text = text.strip_suffix('\n').ok_or(FormFault::Unended)?;
        let mut values = [""; LABELS.len()];
        let lines: Vec<&str> = text.split('\n').collect();
        for (index, label) in LABELS.iter().enumerate() {
            let value = lines.get(index).and_then(|line| line.strip_prefix(label));
            let value = value.and_then(|rest| rest.strip_prefix(": "));
            values[index] = value.ok_or_else(|| expected(index, &format!("{label}: ...")))?;
        }
        if lines.len() > LABELS.len() {
            return Err(expected(LABELS.len(), "the end"));
        }
        let [profile, software, packet, description, oxum] = values;
        if profile != PROFILE {
            return Err(expected(0, PROFILE));
        }
        if !is_software(software) {
            return Err(expected(1, "1 to 128 printable characters"));
        }
        let packet = Digest::parse(packet);
        let packet = packet.map_err(|_| expected(2, "64 lower-case hex digits"))?;
        if description != DESCRIPTION {
            return Err(expected(3, "the fixed text"));
        }
        let oxum = Oxum::parse(oxum).ok_or_else(|| expected(4, "<bytes>.<files>"))?;
        let software = software.to_owned();
        Ok((Self { software, packet }, oxum))
    }
}

impl Oxum {
    /// Reads `<bytes>.<files>` in its one spelling.
    fn parse(text: &str) -> Option<Self> {
        let (bytes, files) = text.split_once('.')?;
        let oxum = Self {
            bytes: bytes.parse().ok()?,
            files: files.parse().ok()?,
        };
        (oxum.to_string() == text).then_some(oxum)
    }
}

impl fmt::Display for Oxum {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.bytes, self.files)
    }
}

fn is_software(text: &str) -> bool {
    (1..=SOFTWARE_BYTES_MAX).contains(&text.len())
        && text.bytes().all(|byte| (b' '..=b'~').contains(&byte))
        && text.trim_matches(' ').len() == text.len()
}

fn expected(index: usize, what: &str) -> FormFault {
    FormFault::Line {
        line: index + 1,
        expected: what.to_owned(),
    }
}

/// What a bag can't prove by itself; it stands in each of them.
pub const DESCRIPTION: &str = "Evidence of one packet. By itself it can't prove when its \
preregistration was made, that no other run was held back, or what only the measured programs \
could know.";

const LABELS: [&str; 5] = [
    "BagIt-Profile-Identifier",
    "Bag-Software-Agent",
    "External-Identifier",
    "External-Description",
    "Payload-Oxum",
];
const PROFILE: &str = "urn:packhouse:bag:v1";
const SOFTWARE_BYTES_MAX: usize = 128;
