//! Each reason why a set, a pack or a payload is not used, and which code it has.

use crate::set::code::Code;
use crate::set::contract::ContractMismatch;
use crate::set::sample::Difference;
use packhouse_base::Blame;
use packhouse_base::digest::{Fingerprint, ObjectDigest, PackKey, SetKey};
use packhouse_base::ggml_type::TypeError;
use packhouse_layout::NotInvertible;
use packhouse_pack::NoKernel;
use packhouse_stage::{StageMiss, StageRootError, StagedRefusal};
use packhouse_store::manifest::IndexError;
use packhouse_store::object::ObjectRefusal;
use packhouse_store::pack::PackRefusal;
use packhouse_store::root::OpenError;
use packhouse_store::set::SetMiss;
use packhouse_store::small::SmallRefusal;
use std::path::PathBuf;

/// The tensor of a set that a refusal is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SlotName {
    /// Its slot.
    pub slot: u64,
    /// Its name.
    pub tensor: String,
}

impl std::fmt::Display for SlotName {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "slot {} ({:?})", self.slot, self.tensor)
    }
}

/// Why a set, a pack or a payload is not used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// What was given for a set is no key, no digits of one and no folder of one.
    #[error(
        "not a set: {name:?}, expected 8 to 64 digits of 0-9 and a-f, or a folder \
         <store>/v1/sets/<64 digits>"
    )]
    Name {
        /// The text given.
        name: String,
    },
    /// The store can't be opened.
    #[error("the store can't be opened: {0}")]
    Store(Box<OpenError>),
    /// The store's sets can't be listed.
    #[error("the sets can't be listed: {0}")]
    Sets(SmallRefusal),
    /// No set has these digits; without digits: the store has no set.
    #[error("no set {digits:?} in {}", root.display())]
    NoSet {
        /// The digits given, perhaps none.
        digits: String,
        /// The store's root.
        root: PathBuf,
    },
    /// More than one set has these digits; without digits: the store has several.
    #[error("more than one set begins with {digits:?}: {first}, {second}")]
    ManySets {
        /// The digits given, perhaps none.
        digits: String,
        /// One of them.
        first: SetKey,
        /// Another one.
        second: SetKey,
    },
    /// The set's manifest is absent, damaged or not trusted.
    #[error(transparent)]
    Set(SetMiss),
    /// The set's runtime index can't be read.
    #[error("set {set}: index: {source}")]
    IndexFile {
        /// The set.
        set: SetKey,
        /// Why.
        source: SmallRefusal,
    },
    /// The set's runtime index is not its manifest's.
    #[error("set {set}: {source}")]
    Index {
        /// The set.
        set: SetKey,
        /// What is wrong.
        source: IndexError,
    },
    /// The set fills no such slot.
    #[error("set {set} has no slot {slot}")]
    NoSlot {
        /// The set.
        set: SetKey,
        /// The slot asked for.
        slot: u64,
    },
    /// The set has no tensor of this name.
    #[error("set {set} has no tensor {tensor:?}")]
    NoTensor {
        /// The set.
        set: SetKey,
        /// The name asked for.
        tensor: String,
    },
    /// More than one slot has a pack of the tensor that fits the contract.
    #[error("tensor {tensor:?} fits the contract in slot {first} and in slot {second}")]
    ManySlots {
        /// The name asked for.
        tensor: String,
        /// One slot.
        first: u64,
        /// Another one.
        second: u64,
    },
    /// The entry handed in is of another set.
    #[error("pack {pack} in slot {slot} is no entry of set {set}")]
    OtherEntry {
        /// The set.
        set: SetKey,
        /// The entry's slot.
        slot: u64,
        /// The entry's pack.
        pack: PackKey,
    },
    /// The pack's record is absent, damaged or not trusted.
    #[error("{name}: {source}")]
    Pack {
        /// The tensor.
        name: SlotName,
        /// Why.
        source: Box<PackRefusal>,
    },
    /// The pack's record names another object or length than the manifest.
    #[error(
        "{name}: pack {pack} is object {actual} of {actual_length} bytes, the set says {expected} \
         of {expected_length}"
    )]
    PackDisagrees {
        /// The tensor.
        name: SlotName,
        /// The pack.
        pack: PackKey,
        /// The object in the manifest.
        expected: ObjectDigest,
        /// The length in the manifest.
        expected_length: u64,
        /// The object in the record.
        actual: ObjectDigest,
        /// The length in the record.
        actual_length: u64,
    },
    /// The pack's payload has not the length that its layout gives its tensor.
    #[error("{name}: the payload has {actual} bytes, {layout} makes {expected} of such a tensor")]
    PackLength {
        /// The tensor.
        name: SlotName,
        /// Its layout.
        layout: &'static str,
        /// The length that the layout gives.
        expected: u64,
        /// The length in the record.
        actual: u64,
    },
    /// The pack is not what the contract says.
    #[error("{name}: {mismatch}")]
    Contract {
        /// The tensor.
        name: SlotName,
        /// The first field that differs.
        mismatch: Box<ContractMismatch>,
    },
    /// The payload is absent, damaged, changing or not trusted.
    #[error("{name}: {source}")]
    Object {
        /// The tensor.
        name: SlotName,
        /// Why.
        source: Box<ObjectRefusal>,
    },
    /// Samples are the only proof that was chosen, and none were compared yet.
    #[error("{name}: trust is `sample`, and no sample of it was compared yet")]
    NotSampled {
        /// The tensor.
        name: SlotName,
    },
    /// No address space or memory for the payload.
    #[error("{name}: {bytes} bytes can't be mapped: {error}")]
    Map {
        /// The tensor.
        name: SlotName,
        /// Its payload's length.
        bytes: u64,
        /// The system's words.
        error: String,
    },
    /// This user's private state is not used.
    #[error("{0}; every payload is hashed")]
    State(Box<OpenError>),
    /// The stage's folder is not used.
    #[error("{0}; the store is used")]
    StageRoot(Box<StageRootError>),
    /// The set's stage is not used.
    #[error("{0}; the store is used")]
    Stage(Box<StageMiss>),
    /// A copy in the stage is not used.
    #[error("{name}: {source}; the store is used")]
    Staged {
        /// The tensor.
        name: SlotName,
        /// Why.
        source: Box<StagedRefusal>,
    },
    /// The live weights could not be had.
    #[error("{name}: {bytes} live bytes at {offset} could not be had")]
    LiveWeights {
        /// The tensor.
        name: SlotName,
        /// Offset in the source tensor.
        offset: u64,
        /// How many bytes were asked for.
        bytes: u64,
    },
    /// The payload is not what the packer makes of the live weights.
    #[error("{name}: {difference}")]
    SampleDiffers {
        /// The tensor.
        name: SlotName,
        /// Where, and both values.
        difference: Box<Difference>,
    },
    /// The pack was made by a packer that is not at hand.
    #[error("{name}: packed with fingerprint {actual}, the packers here have {expected}")]
    OtherPacker {
        /// The tensor.
        name: SlotName,
        /// The fingerprint of the packers at hand.
        expected: Fingerprint,
        /// The fingerprint in the record.
        actual: Fingerprint,
    },
    /// The packer that a contract names is not at hand.
    #[error(
        "contract of layout {layout}: fingerprint is {expected}, the packers here have {actual}"
    )]
    ContractPacker {
        /// The layout.
        layout: String,
        /// The fingerprint in the contract.
        expected: Fingerprint,
        /// The fingerprint of the packers at hand.
        actual: Fingerprint,
    },
    /// What was handed in to pack or unpack is not what the contract says.
    #[error("contract of layout {layout}: {mismatch}")]
    Handed {
        /// The layout.
        layout: String,
        /// The field that differs.
        mismatch: Box<ContractMismatch>,
    },
    /// An entry has more of something than can be told.
    #[error("{name} has {actual} {what}, at most {max} can be told")]
    TooMany {
        /// The tensor.
        name: SlotName,
        /// Of what.
        what: &'static str,
        /// How many.
        actual: usize,
        /// How many at most.
        max: usize,
    },
    /// A strict set whose only proof would be samples.
    #[error(
        "a strict set can't be opened with trust `sample`: opening proves every payload, and \
         samples come after it"
    )]
    StrictSample,
    /// Only an engine packs the tensor so.
    #[error("{what}: {source}")]
    NoKernel {
        /// What was to be packed.
        what: String,
        /// Which packer is missing.
        source: NoKernel,
    },
    /// The layout gives no source back.
    #[error(transparent)]
    NotInvertible(#[from] NotInvertible),
    /// No layout of this name and version is known.
    #[error("{what}: no layout {layout} version {version} is known here")]
    LayoutUnknown {
        /// What was to be packed.
        what: String,
        /// The layout.
        layout: String,
        /// Its version.
        version: u64,
    },
    /// No type of this id is known.
    #[error("{what}: {source}")]
    TypeUnknown {
        /// What was to be packed.
        what: String,
        /// What is wrong with the id.
        source: TypeError,
    },
    /// The layout does not take the tensor.
    #[error("{what}: {source}")]
    NotAdmitted {
        /// What was to be packed.
        what: String,
        /// Why.
        source: packhouse_layout::Refusal,
    },
    /// A strict set had a refusal before.
    #[error("the strict set {set} failed: {first}")]
    SetFailed {
        /// The set.
        set: SetKey,
        /// Its first refusal.
        first: Box<Refusal>,
    },
}

impl Refusal {
    /// The stable code.
    pub fn code(&self) -> Code {
        match self {
            Self::Name { .. } => Code::SetName,
            Self::Store(error) => store_code(error),
            Self::Sets(refusal) => small_code(refusal, Code::NoSet),
            Self::NoSet { .. } => Code::NoSet,
            Self::ManySets { .. } => Code::ManySets,
            Self::Set(SetMiss::Absent { .. }) => Code::NoSet,
            Self::Set(SetMiss::Manifest { .. }) => Code::ManifestCorrupt,
            Self::Set(SetMiss::File { source, .. }) => small_code(source, Code::ManifestCorrupt),
            Self::IndexFile { source, .. } => small_code(source, Code::IndexCorrupt),
            Self::Index { .. } => Code::IndexCorrupt,
            Self::NoSlot { .. } => Code::NoSlot,
            Self::NoTensor { .. } => Code::NoTensor,
            Self::ManySlots { .. } => Code::ManySlots,
            Self::OtherEntry { .. } => Code::OtherEntry,
            Self::Pack { source, .. } => pack_code(source),
            Self::PackDisagrees { .. } => Code::PackDisagrees,
            Self::Contract { mismatch, .. } | Self::Handed { mismatch, .. } => {
                contract_code(mismatch)
            }
            Self::TooMany { .. } => Code::TooMany,
            Self::StrictSample => Code::StrictSample,
            Self::Object { source, .. } => object_code(source),
            Self::NotSampled { .. } => Code::NotSampled,
            Self::Map { .. } => Code::NoMemory,
            Self::PackLength { .. } => Code::PackDisagrees,
            Self::State(_) => Code::StateRefused,
            Self::StageRoot(_) | Self::Stage(_) | Self::Staged { .. } => Code::StageRefused,
            Self::LiveWeights { .. } => Code::LiveWeights,
            Self::SampleDiffers { .. } => Code::SampleDiffers,
            Self::OtherPacker { .. } | Self::ContractPacker { .. } => Code::OtherPacker,
            Self::NoKernel { .. } => Code::NoPacker,
            Self::NotInvertible(_) => Code::NotInvertible,
            Self::LayoutUnknown { .. } => Code::LayoutUnknown,
            Self::TypeUnknown { .. } | Self::NotAdmitted { .. } => Code::NotAdmitted,
            Self::SetFailed { .. } => Code::SetFailed,
        }
    }

    /// Whose side the failure is on.
    pub fn blame(&self) -> Blame {
        match self {
            Self::Name { .. }
            | Self::NoSet { .. }
            | Self::ManySets { .. }
            | Self::NoSlot { .. }
            | Self::NoTensor { .. }
            | Self::ManySlots { .. }
            | Self::OtherEntry { .. }
            | Self::Contract { .. }
            | Self::NotSampled { .. }
            | Self::LiveWeights { .. }
            | Self::OtherPacker { .. }
            | Self::ContractPacker { .. }
            | Self::Handed { .. }
            | Self::TooMany { .. }
            | Self::StrictSample
            | Self::LayoutUnknown { .. }
            | Self::TypeUnknown { .. }
            | Self::NotAdmitted { .. } => Blame::Caller,
            Self::Store(error) | Self::State(error) => error.blame(),
            Self::Sets(refusal) => refusal.blame(),
            Self::Set(SetMiss::Absent { .. }) => Blame::Caller,
            Self::Set(SetMiss::Manifest { source, .. }) => source.blame(),
            Self::Set(SetMiss::File { source, .. }) | Self::IndexFile { source, .. } => {
                source.blame()
            }
            Self::Index { source, .. } => source.blame(),
            Self::Pack { source, .. } => source.blame(),
            Self::PackDisagrees { .. } | Self::PackLength { .. } | Self::SampleDiffers { .. } => {
                Blame::Store
            }
            Self::StageRoot(error) => error.blame(),
            Self::Stage(miss) => miss.blame(),
            Self::Staged { source, .. } => source.blame(),
            Self::NoKernel { source, .. } => source.blame(),
            Self::NotInvertible(why) => why.blame(),
            Self::Object { source, .. } => source.blame(),
            Self::Map { .. } => Blame::Host,
            Self::SetFailed { first, .. } => first.blame(),
        }
    }
}

fn store_code(error: &OpenError) -> Code {
    match error {
        OpenError::Missing { .. } => Code::StoreMissing,
        OpenError::Relative { .. }
        | OpenError::Owner { .. }
        | OpenError::Writable { .. }
        | OpenError::NotDirectory { .. }
        | OpenError::TooManyLinks { .. }
        | OpenError::State(_)
        | OpenError::Id { .. } => Code::StoreUntrusted,
        OpenError::Publish(_) | OpenError::Fs(_) => Code::Host,
    }
}

/// A folder of an open store that is absent is a file that is absent: `absent` says of what.
fn folder_code(error: &OpenError, absent: Code, untrusted: Code) -> Code {
    match store_code(error) {
        Code::StoreMissing => absent,
        Code::StoreUntrusted => untrusted,
        other => other,
    }
}

fn small_code(refusal: &SmallRefusal, absent: Code) -> Code {
    match refusal {
        SmallRefusal::Absent { .. } => absent,
        SmallRefusal::Owner { .. } | SmallRefusal::Writable { .. } | SmallRefusal::Kind { .. } => {
            Code::SetUntrusted
        }
        SmallRefusal::Folder(error) => folder_code(error, absent, Code::SetUntrusted),
        SmallRefusal::Fs(error) => match error.blame() {
            Blame::Store => absent,
            Blame::Source | Blame::Host | Blame::Caller | Blame::Bug => Code::Host,
        },
    }
}

fn pack_code(refusal: &PackRefusal) -> Code {
    match refusal {
        PackRefusal::Missing { .. } => Code::PackMissing,
        PackRefusal::Untrusted { .. } => Code::PackUntrusted,
        PackRefusal::TooLong { .. } | PackRefusal::Corrupt { .. } => Code::PackCorrupt,
        PackRefusal::Folder { error, .. } => {
            folder_code(error, Code::PackMissing, Code::PackUntrusted)
        }
        PackRefusal::Fs { .. } => Code::Host,
    }
}

fn object_code(refusal: &ObjectRefusal) -> Code {
    match refusal {
        ObjectRefusal::Missing { .. } => Code::ObjectMissing,
        ObjectRefusal::NotRegular { .. }
        | ObjectRefusal::Owner { .. }
        | ObjectRefusal::Writable { .. } => Code::ObjectUntrusted,
        ObjectRefusal::Length { .. } | ObjectRefusal::Corrupt { .. } => Code::ObjectCorrupt,
        ObjectRefusal::Changed { .. } => Code::ObjectChanged,
        ObjectRefusal::Folder { error, .. } => {
            folder_code(error, Code::ObjectMissing, Code::ObjectUntrusted)
        }
        ObjectRefusal::Buffer { .. } | ObjectRefusal::Fs { .. } => Code::Host,
    }
}

fn contract_code(mismatch: &ContractMismatch) -> Code {
    match mismatch {
        ContractMismatch::Layout { .. } => Code::Layout,
        ContractMismatch::LayoutVersion { .. } => Code::LayoutVersion,
        ContractMismatch::Type { .. } => Code::Type,
        ContractMismatch::Dims { .. } => Code::Dims,
        ContractMismatch::Parameters { .. } => Code::Parameters,
        ContractMismatch::Source { .. } => Code::Source,
        ContractMismatch::Fingerprint { .. } => Code::Fingerprint,
        ContractMismatch::FingerprintNeeded { .. } => Code::FingerprintNeeded,
    }
}
