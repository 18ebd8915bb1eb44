//! The rules of every call: pointers are looked at before they are used, structs are taken by the
//! size that the caller says, no panic leaves, and each failure is told in words.

use crate::types::{PACKHOUSE_TEXT_BYTES, packhouse_refusal, packhouse_status};
use crate::usage::{Failure, OK, Usage};
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// A struct of `packhouse.h` that begins with `struct_size`.
///
/// # Safety
/// The type is `repr(C)`, begins with a `u32` named `struct_size`, and any bytes are a value of it.
pub(crate) unsafe trait Sized32: Copy {
    /// Its name in C.
    const NAME: &'static str;
    /// `sizeof` of its first version.
    const FIRST_SIZE: usize;
}

/// Runs the body of a call and tells its failure.
///
/// # Safety
/// `refusal` is NULL or a `packhouse_refusal` of at least the size that it says.
pub(crate) unsafe fn guard(
    refusal: *mut packhouse_refusal,
    body: impl FnOnce() -> Result<(), Failure>,
) -> packhouse_status {
    // SAFETY: the caller's promise.
    if let Err(usage) = unsafe { size_of_struct(refusal.cast_const()) }
        && !refusal.is_null()
    {
        return usage.number();
    }
    // Nothing that a panic leaves half-done is used after it: locks hold no broken state, and what
    // the body would have handed out was not.
    let outcome = catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        let words = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        let words = words.or_else(|| panic.downcast_ref::<String>().cloned());
        // Dropping a panic's payload runs foreign code, which might panic again.
        std::mem::forget(panic);
        Err(Usage::Bug {
            panic: words.unwrap_or_default(),
        }
        .into())
    });
    let status = outcome.as_ref().map_or_else(Failure::number, |()| OK);
    if let Err(failure) = outcome
        && !refusal.is_null()
    {
        // SAFETY: the caller's promise; the size was judged above.
        unsafe { tell(refusal, status, &failure.to_string()) };
    }
    status
}

/// Runs the body of a call that can't fail but for a panic.
pub(crate) fn shield<T>(fallback: T, body: impl FnOnce() -> T) -> T {
    catch_unwind(AssertUnwindSafe(body)).unwrap_or_else(|panic| {
        std::mem::forget(panic);
        fallback
    })
}

/// Writes a refusal, cut to what fits.
///
/// # Safety
/// `refusal` is a `packhouse_refusal` of at least the size that it says, which was judged.
pub(crate) unsafe fn tell(refusal: *mut packhouse_refusal, status: packhouse_status, text: &str) {
    let (chars, text_bytes) = (chars_of(text), text.len() as u64);
    // SAFETY: the caller's promise.
    let struct_size = unsafe { (*refusal).struct_size };
    let told = packhouse_refusal {
        struct_size,
        status,
        text_bytes,
        text: chars,
    };
    // SAFETY: the caller's promise.
    unsafe { fill(refusal, told) };
}

/// A text as C characters with a final NUL, cut between characters; a NUL within ends it.
pub(crate) fn chars_of<const N: usize>(text: &str) -> [c_char; N] {
    let cut = (0..=text.len().min(N - 1)).rev();
    let end = cut.into_iter().find(|end| text.is_char_boundary(*end));
    let mut chars = [0; N];
    for (char, byte) in chars.iter_mut().zip(text[..end.unwrap_or(0)].bytes()) {
        *char = byte as c_char;
    }
    chars
}

/// The caller's `struct_size`, judged. Errors on NULL and on less than the first version.
///
/// # Safety
/// The pointer is NULL or leads to a `u32`.
unsafe fn size_of_struct<T: Sized32>(pointer: *const T) -> Result<usize, Usage> {
    if pointer.is_null() {
        return Err(Usage::NullPointer { argument: T::NAME });
    }
    // SAFETY: the caller's promise; C callers may have packed it anyhow.
    let actual = unsafe { pointer.cast::<u32>().read_unaligned() };
    match usize::try_from(actual) {
        Ok(bytes) if bytes >= T::FIRST_SIZE => Ok(bytes),
        Ok(_) | Err(_) => Err(Usage::StructSize {
            name: T::NAME,
            expected: size_of::<T>(),
            actual,
        }),
    }
}

/// Takes a struct that the caller filled. Fields that a smaller one lacks are zero; fields beyond
/// what this library knows must be.
///
/// # Safety
/// The pointer is NULL or leads to as many bytes as the `struct_size` there says.
pub(crate) unsafe fn take<T: Sized32>(pointer: *const T) -> Result<T, Usage> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { size_of_struct(pointer) }?;
    let known = bytes.min(size_of::<T>());
    for offset in known..bytes {
        // SAFETY: the caller's promise: so many bytes are there.
        if unsafe { pointer.cast::<u8>().add(offset).read() } != 0 {
            return Err(Usage::UnknownField {
                name: T::NAME,
                offset,
            });
        }
    }
    let mut value = std::mem::MaybeUninit::<T>::zeroed();
    // SAFETY: `known` bytes are at both places, and the places differ: one is on this stack.
    unsafe {
        std::ptr::copy_nonoverlapping(pointer.cast::<u8>(), value.as_mut_ptr().cast(), known);
    }
    // SAFETY: any bytes are a value of the type: the trait's promise.
    Ok(unsafe { value.assume_init() })
}

/// Judges a struct that is to be filled, before anything is done for it.
///
/// # Safety
/// The pointer is NULL or leads to a `u32`.
pub(crate) unsafe fn judge<T: Sized32>(pointer: *mut T) -> Result<u32, Usage> {
    // SAFETY: the caller's promise.
    let bytes = unsafe { size_of_struct(pointer.cast_const()) }?;
    Ok(u32::try_from(bytes).unwrap_or(u32::MAX))
}

/// Fills a struct as far as the caller knows it; the rest of a larger one stays as it is.
///
/// # Safety
/// The pointer leads to as many bytes as the `struct_size` in `value` says, which was judged.
pub(crate) unsafe fn fill<T: Sized32>(pointer: *mut T, value: T) {
    // SAFETY: the trait's promise: a struct begins with its size.
    let bytes = unsafe { (&raw const value).cast::<u32>().read() };
    let known = usize::try_from(bytes).unwrap_or(0).min(size_of::<T>());
    // SAFETY: `known` bytes are at both places, and the places differ: one is on this stack.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), pointer.cast(), known)
    };
}

/// Takes a text.
///
/// # Safety
/// The pointer is NULL or leads to a NUL-terminated text that stays during `'a`.
pub(crate) unsafe fn text<'a>(
    pointer: *const c_char,
    argument: &'static str,
) -> Result<&'a str, Usage> {
    // SAFETY: the caller's promise.
    unsafe { optional_text(pointer, argument) }?.ok_or(Usage::NullPointer { argument })
}

/// Takes a text that may be NULL.
///
/// # Safety
/// As for `text`.
pub(crate) unsafe fn optional_text<'a>(
    pointer: *const c_char,
    argument: &'static str,
) -> Result<Option<&'a str>, Usage> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller's promise.
    let text = unsafe { CStr::from_ptr(pointer) };
    let text = text.to_str().map_err(|error| Usage::Text {
        argument,
        offset: error.valid_up_to(),
    })?;
    Ok(Some(text))
}

/// Takes a place for a result, which must be there.
pub(crate) fn place<T>(pointer: *mut T, argument: &'static str) -> Result<*mut T, Usage> {
    if pointer.is_null() {
        Err(Usage::NullPointer { argument })
    } else {
        Ok(pointer)
    }
}

// SAFETY: it is `repr(C)`, begins with `struct_size`, and holds integers only.
unsafe impl Sized32 for packhouse_refusal {
    const NAME: &'static str = "packhouse_refusal";
    const FIRST_SIZE: usize = 16 + PACKHOUSE_TEXT_BYTES;
}
