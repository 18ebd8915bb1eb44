//! What a refusal is to a program: stable numbers with names and meanings.
//!
//! A number is never given another meaning, and one that is no longer used is not used again. The
//! C interface, its header and its documentation are rendered from this table.

macro_rules! codes {
    ($($code:ident = $number:literal, $name:literal, $meaning:literal;)*) => {
        /// What a refusal is to a program: a number that never changes its meaning.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
        #[repr(i32)]
        pub enum Code {
            $(#[doc = $meaning] $code = $number,)*
        }

        impl Code {
            /// All codes, rising.
            pub const ALL: &[Self] = &[$(Self::$code),*];

            /// The number.
            pub const fn number(self) -> i32 {
                self as i32
            }

            /// The name in programs, as in `SET_NAME`.
            pub const fn name(self) -> &'static str {
                match self {
                    $(Self::$code => $name,)*
                }
            }

            /// What it means, in one sentence.
            pub const fn meaning(self) -> &'static str {
                match self {
                    $(Self::$code => $meaning,)*
                }
            }
        }
    };
}

codes! {
    SetName = 100, "SET_NAME",
        "What was given for a set is no key, no digits of one and no folder of one.";
    StoreMissing = 101, "STORE_MISSING",
        "There is no store at the place given.";
    StoreUntrusted = 102, "STORE_UNTRUSTED",
        "The store's place is no absolute path, is no store, or can be changed by others.";
    NoSet = 103, "NO_SET",
        "There is no such set.";
    ManySets = 104, "MANY_SETS",
        "More than one set fits.";
    ManifestCorrupt = 105, "MANIFEST_CORRUPT",
        "The set's manifest is damaged, or not the one of its key.";
    IndexCorrupt = 106, "INDEX_CORRUPT",
        "The set's runtime index is absent, damaged, or not its manifest's.";
    SetUntrusted = 107, "SET_UNTRUSTED",
        "The set's files belong to others or can be changed by others.";
    StageRefused = 108, "STAGE_REFUSED",
        "The stage or a copy in it is not used; the store is instead.";
    StateRefused = 109, "STATE_REFUSED",
        "The private state is not used, so that every payload is hashed.";
    StrictSample = 110, "STRICT_SAMPLE",
        "Opening a strict set proves every payload, which samples alone can't.";
    NoSlot = 120, "NO_SLOT",
        "The set fills no such slot.";
    NoTensor = 121, "NO_TENSOR",
        "The set has no tensor of this name.";
    ManySlots = 122, "MANY_SLOTS",
        "More than one slot has a pack of the tensor that fits the contract.";
    OtherEntry = 123, "OTHER_ENTRY",
        "The entry is not of this set.";
    PackMissing = 124, "PACK_MISSING",
        "The pack's record is absent.";
    PackCorrupt = 125, "PACK_CORRUPT",
        "The pack's record is damaged.";
    PackUntrusted = 126, "PACK_UNTRUSTED",
        "The pack's record belongs to others or can be changed by others.";
    PackDisagrees = 127, "PACK_DISAGREES",
        "The pack's record names another payload than the set.";
    TooMany = 128, "TOO_MANY",
        "The pack has more dims than an entry can tell.";
    Layout = 130, "LAYOUT",
        "The pack has another layout than the contract.";
    LayoutVersion = 131, "LAYOUT_VERSION",
        "The pack has another version of the layout than the contract.";
    Type = 132, "TYPE",
        "The pack is of another type than the contract.";
    Dims = 133, "DIMS",
        "The pack is of another shape than the contract.";
    Parameters = 134, "PARAMETERS",
        "The layout parameters are others than the contract's.";
    Source = 135, "SOURCE",
        "The weights are others than the contract's.";
    Fingerprint = 136, "FINGERPRINT",
        "The pack was made by another packer than the contract's.";
    FingerprintNeeded = 137, "FINGERPRINT_NEEDED",
        "The layout's order depends on its packer, and the contract has no fingerprint.";
    ObjectMissing = 140, "OBJECT_MISSING",
        "The payload is absent.";
    ObjectCorrupt = 141, "OBJECT_CORRUPT",
        "The payload is damaged.";
    ObjectUntrusted = 142, "OBJECT_UNTRUSTED",
        "The payload belongs to others or can be changed by others.";
    ObjectChanged = 143, "OBJECT_CHANGED",
        "The payload changed while it was hashed.";
    NotSampled = 144, "NOT_SAMPLED",
        "Samples are the only proof that was chosen, and none were compared yet.";
    NoMemory = 145, "NO_MEMORY",
        "There is no address space or memory for the payload.";
    LiveWeights = 150, "LIVE_WEIGHTS",
        "The live weights to compare with could not be had.";
    SampleDiffers = 151, "SAMPLE_DIFFERS",
        "The payload is not what the packer makes of the live weights.";
    OtherPacker = 152, "OTHER_PACKER",
        "The packer of the pack or contract is not at hand: no samples, and no packing.";
    LayoutUnknown = 160, "LAYOUT_UNKNOWN",
        "There is no packer for a layout of this name and version.";
    NotAdmitted = 161, "NOT_ADMITTED",
        "The layout does not take this type, shape or these parameters.";
    NoPacker = 162, "NO_PACKER",
        "The layout is known, but only an engine packs this type in it.";
    NotInvertible = 163, "NOT_INVERTIBLE",
        "The layout rounds what it packs, so that no payload gives its source back.";
    SetFailed = 170, "SET_FAILED",
        "A strict set had a refusal before.";
    Host = 180, "HOST",
        "The operating system said no.";
}
