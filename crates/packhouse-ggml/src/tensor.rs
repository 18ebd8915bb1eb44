//! Whole tensors of the host's own shape, made by us: copies of its tensors, and tensors for
//! packing.

use crate::abi::v3;
use crate::host::Host;
use packhouse_base::ggml_type::GgmlType;

/// A whole tensor in our memory, of the size that the probe measured.
pub(crate) struct OwnTensor {
    /// Words, so that the tensor is aligned.
    words: Vec<u64>,
}

impl OwnTensor {
    /// Copies a tensor of the host, name, `extra` and all.
    ///
    /// # Safety
    /// The tensor must be a whole one of the host.
    pub(crate) unsafe fn copy_of(host: &Host, tensor: *const v3::Tensor) -> Self {
        let mut own = Self::zeroed(host);
        // SAFETY: both tensors have the measured size.
        unsafe {
            let target = own.words.as_mut_ptr().cast::<u8>();
            std::ptr::copy_nonoverlapping(tensor.cast::<u8>(), target, own.words.len() * 8);
        }
        own
    }

    /// Makes a contiguous tensor of a type and up to four dims, its data unset. `None` when a size
    /// does not fit the host's fields.
    pub(crate) fn new(host: &Host, ty: GgmlType, dims: &[u64]) -> Option<Self> {
        let mut own = Self::zeroed(host);
        let mut ne = [1i64; 4];
        for (target, dim) in ne.iter_mut().zip(dims) {
            *target = i64::try_from(*dim).ok()?;
        }
        let row_bytes = ty.tensor_bytes(&dims[..1])?;
        let mut nb = [
            usize::try_from(ty.block_bytes()).ok()?,
            usize::try_from(row_bytes).ok()?,
            0,
            0,
        ];
        nb[2] = nb[1].checked_mul(usize::try_from(ne[1]).ok()?)?;
        nb[3] = nb[2].checked_mul(usize::try_from(ne[2]).ok()?)?;
        let head = own.head_mut();
        head.type_id = i32::try_from(ty.id()).ok()?;
        head.ne = ne;
        head.nb = nb;
        Some(own)
    }

    /// The fields before the name.
    pub(crate) fn head_mut(&mut self) -> &mut v3::Tensor {
        // SAFETY: the words hold at least a whole tensor, aligned, and every bit pattern is a valid
        // head.
        unsafe { &mut *self.words.as_mut_ptr().cast() }
    }

    /// The tensor as the host takes it.
    pub(crate) fn as_ptr(&mut self) -> *mut v3::Tensor {
        self.words.as_mut_ptr().cast()
    }

    fn zeroed(host: &Host) -> Self {
        let bytes = v3::tensor_bytes(host.found().name_bytes);
        Self {
            words: vec![0; bytes.div_ceil(8)],
        }
    }
}

/// Reads type and dims of a tensor. `None` for a type that this build does not know or a negative
/// dim.
pub(crate) fn shape_of(tensor: &v3::Tensor) -> Option<(GgmlType, Vec<u64>)> {
    let ty = GgmlType::from_id(u32::try_from(tensor.type_id).ok()?).ok()?;
    let dims = tensor.ne.iter().map(|dim| u64::try_from(*dim).ok());
    Some((ty, dims.collect::<Option<Vec<_>>>()?))
}
