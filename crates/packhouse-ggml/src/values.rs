//! An engine's own reading of values, hosted in this process: what ours is compared with.
//!
//! Never reads a value by itself: every one comes from the engine's reference functions.

use crate::equivalence::{EquivalenceError, load_engine};
use crate::symbols::Symbols;
use packhouse_base::ggml_type::GgmlType;
use std::ffi::{CStr, c_char, c_int, c_void};
use std::path::Path;

/// The reference functions of one engine. One engine per process: its libraries stay.
pub struct LiveValues {
    symbols: Symbols,
    traits_of: TraitsOf,
}

impl LiveValues {
    /// Loads the engine whose libraries lie in a folder. Errors when they can't be loaded or have
    /// no table of types.
    pub fn load(folder: &Path) -> Result<Self, EquivalenceError> {
        load_engine(folder)?;
        let symbols = Symbols::of_this_process();
        let address = symbols.find("ggml_get_type_traits");
        let address = address.map_err(|error| EquivalenceError::engine(folder, error.into()))?;
        // SAFETY: the function has had this signature since it came into ggml.h; what it returns is
        // believed only by `traits`.
        let traits_of = unsafe { std::mem::transmute::<*mut c_void, TraitsOf>(address) };
        Ok(Self { symbols, traits_of })
    }

    /// Tells whether the engine's table of types has a function for this one: whether it reads
    /// weights of it.
    pub fn reads_weights(&self, ty: GgmlType) -> bool {
        self.traits(ty).to_float.is_some()
    }

    /// The values of whole blocks; `None` where the engine has no function for the type.
    pub fn values(&self, ty: GgmlType, source: &[u8]) -> Option<Vec<f32>> {
        let to_float = self.traits(ty).to_float.or_else(|| self.named(ty))?;
        let block_count = source.len() as u64 / ty.block_bytes();
        let value_count = block_count * ty.block_elements();
        let mut values = vec![f32::NAN; usize::try_from(value_count).ok()?];
        // The engine's structs want 4 bytes of alignment.
        let mut aligned = vec![0u64; source.len().div_ceil(8)];
        for (word, bytes) in aligned.iter_mut().zip(source.chunks(8)) {
            let mut all = [0; 8];
            all[..bytes.len()].copy_from_slice(bytes);
            *word = u64::from_ne_bytes(all);
        }
        let count = i64::try_from(value_count).ok()?;
        // SAFETY: the engine has this function for blocks of this type, whose sizes `traits`
        // compared; both buffers are as long as so many whole blocks, and their values, need.
        unsafe { to_float(aligned.as_ptr().cast(), values.as_mut_ptr(), count) };
        Some(values)
    }

    /// The engine's entry for a type.
    ///
    /// # Panics
    /// When it is not of this name and these sizes: then the struct is another, or the engine has
    /// another type under this id.
    fn traits(&self, ty: GgmlType) -> &TypeTraits {
        let id = c_int::try_from(ty.id()).expect("because ids are small");
        // SAFETY: the engine's table is constant and has an entry for every id that `GgmlType`
        // knows; its first four fields are compared before the others are used.
        let (traits, name) = unsafe {
            let traits = &*(self.traits_of)(id);
            (traits, CStr::from_ptr(traits.type_name))
        };
        let actual = (name.to_bytes(), traits.block_elements, traits.block_bytes);
        assert!(
            actual.0.eq_ignore_ascii_case(ty.name().as_bytes())
                && u64::try_from(actual.1) == Ok(ty.block_elements())
                && actual.2 as u64 == ty.block_bytes(),
            "the engine's type {id} is {actual:?}, not {}",
            ty.name()
        );
        traits
    }

    /// The function that bears the type's name, for types that are no weights.
    fn named(&self, ty: GgmlType) -> Option<ToFloat> {
        let name = ty.name().to_lowercase().replace("_k", "_K");
        let address = self.symbols.find(&format!("dequantize_row_{name}")).ok()?;
        // SAFETY: all functions of this name have this signature, but for the type of their blocks.
        Some(unsafe { std::mem::transmute::<*mut c_void, ToFloat>(address) })
    }
}

type ToFloat = unsafe extern "C" fn(*const c_void, *mut f32, i64);
type TraitsOf = unsafe extern "C" fn(c_int) -> *const TypeTraits;

/// `struct ggml_type_traits` of ggml.h at 0.26.0.
#[repr(C)]
struct TypeTraits {
    type_name: *const c_char,
    block_elements: i64,
    block_elements_interleaved: i64,
    block_bytes: usize,
    is_quantised: bool,
    to_float: Option<ToFloat>,
    from_float: Option<unsafe extern "C" fn(*const f32, *mut c_void, i64)>,
}

const _: () = assert!(size_of::<TypeTraits>() == 56);
