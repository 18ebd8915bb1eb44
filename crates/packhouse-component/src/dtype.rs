//! Element types of tensors that cross the protocol.

/// One element type. `U8` is also what opaque packed bytes are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Dtype {
    /// Unsigned byte.
    U8,
    /// Signed byte.
    I8,
    /// Signed 32-bit integer.
    I32,
    /// IEEE binary16.
    F16,
    /// The upper half of a binary32.
    Bf16,
    /// IEEE binary32.
    F32,
}

impl Dtype {
    /// Every type.
    pub const ALL: [Self; 6] = [
        Self::U8,
        Self::I8,
        Self::I32,
        Self::F16,
        Self::Bf16,
        Self::F32,
    ];

    /// Its name in messages and manifests.
    pub const fn id(self) -> &'static str {
        match self {
            Self::U8 => "u8",
            Self::I8 => "i8",
            Self::I32 => "i32",
            Self::F16 => "f16",
            Self::Bf16 => "bf16",
            Self::F32 => "f32",
        }
    }

    /// Finds a type by its name.
    pub fn from_id(id: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|dtype| dtype.id() == id)
    }

    /// Bytes of one element.
    pub const fn bytes(self) -> u64 {
        match self {
            Self::U8 | Self::I8 => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::I32 | Self::F32 => 4,
        }
    }
}
