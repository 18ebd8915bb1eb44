//! The tensor types of GGUF, by their ggml id: block sizes and byte sizes.
//!
//! Ids are stable in ggml; removed ids (4, 5, 31-33, 36-38) are named so that they can be refused.
//! Source of the sizes: ggml's `ggml-common.h` at 0.26.0 (block structs).

/// One current ggml tensor type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct GgmlType {
    id: u32,
    name: &'static str,
    block_elements: u64,
    block_bytes: u64,
}

/// Why an id names no type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TypeError {
    /// The id was once a packed type and is reserved.
    #[error("type id {id} was removed from GGUF")]
    Removed {
        /// The id as stored.
        id: u32,
    },
    /// The id was never assigned.
    #[error("type id {id} is unknown")]
    Unknown {
        /// The id as stored.
        id: u32,
    },
}

impl GgmlType {
    /// Finds a type by its ggml id. Errors on removed and unknown ids.
    pub fn from_id(id: u32) -> Result<Self, TypeError> {
        match TYPES.binary_search_by_key(&id, |entry| entry.id) {
            Ok(index) => Ok(TYPES[index]),
            Err(_) if matches!(id, 4 | 5 | 31..=33 | 36..=38) => Err(TypeError::Removed { id }),
            Err(_) => Err(TypeError::Unknown { id }),
        }
    }

    /// Finds a type by its name, e.g. `Q4_0`.
    pub fn from_name(name: &str) -> Option<Self> {
        TYPES.iter().copied().find(|entry| entry.name == name)
    }

    /// All current types, by rising id.
    pub fn all() -> &'static [Self] {
        TYPES
    }

    /// The ggml id.
    pub const fn id(&self) -> u32 {
        self.id
    }

    /// The name, e.g. `Q4_0`.
    pub const fn name(&self) -> &'static str {
        self.name
    }

    /// Elements in one block along ne0.
    pub const fn block_elements(&self) -> u64 {
        self.block_elements
    }

    /// Bytes of one block.
    pub const fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Bytes of a tensor with these dims (ne0 first). `None` when ne0 is no multiple of the block
    /// or a product overflows u64. A zero dim gives 0 bytes.
    pub fn tensor_bytes(&self, dims: &[u64]) -> Option<u64> {
        let (ne0, rest) = dims.split_first()?;
        if ne0 % self.block_elements != 0 {
            return None;
        }
        let row_bytes = (ne0 / self.block_elements).checked_mul(self.block_bytes)?;
        // The element count must fit too, as engines multiply dims before they divide.
        rest.iter()
            .try_fold(*ne0, |product, dim| product.checked_mul(*dim))?;
        rest.iter()
            .try_fold(row_bytes, |product, dim| product.checked_mul(*dim))
    }
}

const fn ty(id: u32, name: &'static str, block_elements: u64, block_bytes: u64) -> GgmlType {
    GgmlType {
        id,
        name,
        block_elements,
        block_bytes,
    }
}

static TYPES: &[GgmlType] = &[
    ty(0, "F32", 1, 4),
    ty(1, "F16", 1, 2),
    ty(2, "Q4_0", 32, 18),
    ty(3, "Q4_1", 32, 20),
    ty(6, "Q5_0", 32, 22),
    ty(7, "Q5_1", 32, 24),
    ty(8, "Q8_0", 32, 34),
    ty(9, "Q8_1", 32, 36),
    ty(10, "Q2_K", 256, 84),
    ty(11, "Q3_K", 256, 110),
    ty(12, "Q4_K", 256, 144),
    ty(13, "Q5_K", 256, 176),
    ty(14, "Q6_K", 256, 210),
    ty(15, "Q8_K", 256, 292),
    ty(16, "IQ2_XXS", 256, 66),
    ty(17, "IQ2_XS", 256, 74),
    ty(18, "IQ3_XXS", 256, 98),
    ty(19, "IQ1_S", 256, 50),
    ty(20, "IQ4_NL", 32, 18),
    ty(21, "IQ3_S", 256, 110),
    ty(22, "IQ2_S", 256, 82),
    ty(23, "IQ4_XS", 256, 136),
    ty(24, "I8", 1, 1),
    ty(25, "I16", 1, 2),
    ty(26, "I32", 1, 4),
    ty(27, "I64", 1, 8),
    ty(28, "F64", 1, 8),
    ty(29, "IQ1_M", 256, 56),
    ty(30, "BF16", 1, 2),
    ty(34, "TQ1_0", 256, 54),
    ty(35, "TQ2_0", 256, 66),
    ty(39, "MXFP4", 32, 17),
    ty(40, "NVFP4", 64, 36),
    ty(41, "Q1_0", 128, 18),
    ty(42, "Q2_0", 64, 18),
];

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_rise_and_removed_ids_are_told_from_unknown_ones() {
        assert!(TYPES.windows(2).all(|pair| pair[0].id < pair[1].id));
        assert_eq!(GgmlType::from_id(31), Err(TypeError::Removed { id: 31 }));
        assert_eq!(GgmlType::from_id(43), Err(TypeError::Unknown { id: 43 }));
        assert_eq!(GgmlType::from_id(2).map(|t| t.name()), Ok("Q4_0"));
    }

    #[test]
    fn byte_sizes_are_exact_or_refused() {
        let q4_0 = GgmlType::from_id(2).expect("because id 2 is in the table");
        assert_eq!(
            q4_0.tensor_bytes(&[576, 49152]),
            Some(576 / 32 * 18 * 49152)
        );
        assert_eq!(q4_0.tensor_bytes(&[33, 8]), None);
        assert_eq!(q4_0.tensor_bytes(&[32, 0, 7]), Some(0));
        assert_eq!(q4_0.tensor_bytes(&[u64::MAX / 32 * 32, 2]), None);
        assert_eq!(q4_0.tensor_bytes(&[]), None);
    }
}
