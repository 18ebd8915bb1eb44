//! How the entries of a stage root are called.

use packhouse_base::digest::SetKey;

/// A published stage: `<set key>.<generation>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct StageName {
    pub(crate) set: SetKey,
    /// From 1; a newer stage of the same set has a higher one.
    pub(crate) generation: u64,
}

impl StageName {
    /// Reads a folder's name; `None` for any other spelling.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        let (set, generation) = name.split_once('.')?;
        let parsed = Self {
            set: SetKey::parse(set).ok()?,
            generation: generation.parse().ok()?,
        };
        (parsed.generation > 0 && parsed.to_string() == name).then_some(parsed)
    }
}

impl std::fmt::Display for StageName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}.{}", self.set, self.generation)
    }
}

/// The folder of a stage that is being made or removed; the same digits name its reservation.
pub(crate) const TEMP_PREFIX: &str = ".tmp-";
/// The reservation of a stager; locked while it lives.
pub(crate) const ROOM_PREFIX: &str = ".room-";
/// The file whose bytes are locked.
pub(crate) const LOCK_FILE: &str = "locks";

pub(crate) const MANIFEST_NAME: &str = packhouse_store::set::MANIFEST_NAME;
pub(crate) const INDEX_NAME: &str = packhouse_store::set::INDEX_NAME;
pub(crate) const RECEIPTS_NAME: &str = "receipts.json";
/// What receipts are called once their bytes were hashed and found wrong.
pub(crate) const CONDEMNED_NAME: &str = "condemned.json";
pub(crate) const OBJECTS_NAME: &str = "objects";

/// The folder of copies of whole models.
pub(crate) const MODELS_NAME: &str = "models";
/// In it, the folder of records of where they came from.
pub(crate) const SOURCES_NAME: &str = "sources";
/// In a copy's folder, the folder of its files.
pub(crate) const FILES_NAME: &str = "files";

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_base::digest::Digest;

    #[test]
    fn a_stage_has_one_name() {
        let set = SetKey(Digest::of(b"set"));
        let name = StageName {
            set,
            generation: 12,
        };
        assert_eq!(StageName::parse(&name.to_string()), Some(name));
        for wrong in [
            format!("{set}"),
            format!("{set}."),
            format!("{set}.0"),
            format!("{set}.01"),
            format!("{set}.+1"),
            format!("{set}.1.2"),
            format!("{}.1", set.to_string().to_uppercase()),
            ".tmp-0".to_owned(),
        ] {
            assert_eq!(StageName::parse(&wrong), None, "{wrong}");
        }
    }
}
