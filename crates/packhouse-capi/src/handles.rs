//! What the opaque pointers of `packhouse.h` lead to: counted values, so that a set may be released
//! while payloads of it are mapped, and by any thread.

use crate::types::packhouse_parameter;
use packhouse_image::{Images, Serve};
use packhouse_layout::int8_tile::TileGeometry;
use packhouse_loader::set::{Entry, Mapping, SetReader};
use packhouse_pack::Packers;
use std::ffi::c_char;
use std::sync::{Arc, Mutex, OnceLock};

/// An open set, and the texts of it that C was shown.
pub struct packhouse_set {
    pub(crate) reader: SetReader,
    pub(crate) plan: Text,
    texts: Vec<OnceLock<Texts>>,
}

/// A mapped payload.
pub struct packhouse_mapping {
    pub(crate) mapping: Arc<Mapping>,
}

/// Images of head tiles, as they were opened.
pub struct packhouse_images {
    pub(crate) images: Images,
    /// Of all serves, since the fingerprint is taken once per packers.
    pub(crate) packers: Arc<Packers>,
}

/// One head being served.
pub struct packhouse_serve {
    pub(crate) serve: Mutex<Serve>,
    pub(crate) images: Images,
    pub(crate) geometry: TileGeometry,
    pub(crate) width: usize,
}

/// A text with a final NUL.
pub(crate) struct Text(Box<[u8]>);

/// The texts of one entry.
pub(crate) struct Texts {
    pub(crate) tensor: Text,
    pub(crate) layout: Text,
    parameters: Box<[packhouse_parameter]>,
    /// What the names in `parameters` lead to.
    _names: Box<[Text]>,
}

// SAFETY: the pointers in `parameters` lead to `_names`, which is never changed and lives as long.
unsafe impl Send for Texts {}
// SAFETY: as for Send.
unsafe impl Sync for Texts {}

/// C may use a handle, and give back its last count, on any thread.
const fn on_any_thread<T: Send + Sync>() {}
const _: () = on_any_thread::<packhouse_set>();
const _: () = on_any_thread::<packhouse_mapping>();
const _: () = on_any_thread::<packhouse_images>();
const _: () = on_any_thread::<packhouse_serve>();

impl packhouse_set {
    pub(crate) fn new(reader: SetReader) -> Self {
        let texts = reader.manifest().entries().iter();
        Self {
            texts: texts.map(|_| OnceLock::new()).collect(),
            plan: Text::new(reader.manifest().plan()),
            reader,
        }
    }

    /// The texts of an entry, made at its first use and kept while the set is.
    pub(crate) fn texts(&self, entry: &Entry) -> &Texts {
        self.texts[entry.index()].get_or_init(|| Texts::new(entry))
    }
}

impl Text {
    fn new(text: &str) -> Self {
        Self(text.bytes().chain([0]).collect())
    }

    pub(crate) fn as_ptr(&self) -> *const c_char {
        self.0.as_ptr().cast()
    }

    /// The length without the NUL.
    pub(crate) fn len(&self) -> u64 {
        self.0.len() as u64 - 1
    }
}

impl Texts {
    fn new(entry: &Entry) -> Self {
        let identity = &entry.record().identity;
        let names: Box<[Text]> = identity.parameters.keys().map(|n| Text::new(n)).collect();
        let values = identity.parameters.values();
        Self {
            tensor: Text::new(entry.tensor()),
            layout: Text::new(&identity.layout),
            parameters: names
                .iter()
                .zip(values)
                .map(|(name, value)| packhouse_parameter {
                    name: name.as_ptr(),
                    value: *value,
                })
                .collect(),
            _names: names,
        }
    }

    pub(crate) fn parameters(&self) -> &[packhouse_parameter] {
        &self.parameters
    }
}

/// Hands a counted value out; the caller owns one count.
pub(crate) fn give<T>(value: Arc<T>) -> *mut T {
    Arc::into_raw(value).cast_mut()
}

/// Borrows what a handle leads to.
///
/// # Safety
/// The pointer is NULL or came from `give` and the caller owns a count of it during `'a`.
pub(crate) unsafe fn borrow<'a, T>(pointer: *const T) -> Option<&'a T> {
    // SAFETY: the caller's promise.
    unsafe { pointer.as_ref() }
}

/// Takes one more count. NULL is fine.
///
/// # Safety
/// As for `borrow`.
pub(crate) unsafe fn retain<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise: the pointer came from `Arc::into_raw` and is counted.
        unsafe { Arc::increment_strong_count(pointer.cast_const()) };
    }
}

/// Gives one count back; the last one drops the value. NULL is fine.
///
/// # Safety
/// As for `borrow`, and the caller gives that count up.
pub(crate) unsafe fn release<T>(pointer: *mut T) {
    if !pointer.is_null() {
        // SAFETY: the caller's promise: the pointer came from `Arc::into_raw` and is counted.
        unsafe { Arc::decrement_strong_count(pointer.cast_const()) };
    }
}
