//! The rules of every call: pointers are looked at before they are used, structs are taken by the
//! size that the caller says, no panic leaves, and each failure is told in words.

use crate::types::{PACKHOUSE_TEXT_BYTES, packhouse_refusal, packhouse_status};
use crate::usage::{Failure, OK, Usage};
use packhouse_base::shown::Shown;
use std::ffi::{CStr, c_char};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Most that a struct may say it has.
const STRUCT_SIZE_MAX: usize = 4096;

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

/// Writes a refusal, cut to what fits. Names of others in it are shown, not obeyed.
///
/// # Safety
/// `refusal` is a `packhouse_refusal` of at least the size that it says, which was judged.
pub(crate) unsafe fn tell(refusal: *mut packhouse_refusal, status: packhouse_status, text: &str) {
    let text = Shown(text).to_string();
    let (chars, text_bytes) = (chars_of(&text), text.len() as u64);
    // SAFETY: the caller's promise; a struct begins with its size.
    let struct_size = unsafe { refusal.cast::<u32>().read_unaligned() };
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

/// Sets the place for a new handle to NULL, before anything can fail; NULL is fine.
///
/// # Safety
/// `place` is NULL or leads to a pointer.
pub(crate) unsafe fn clear<T>(place: *mut *mut T) {
    if !place.is_null() {
        // SAFETY: the caller's promise.
        unsafe { place.write(std::ptr::null_mut()) };
    }
}

/// The caller's `struct_size`, judged. Errors on NULL, on less than the first version and on more
/// than any version will have: a size that nobody set is not followed.
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
        Ok(bytes) if (T::FIRST_SIZE..=STRUCT_SIZE_MAX).contains(&bytes) => Ok(bytes),
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

/// Fills a struct as far as the caller knows it; the rest of a larger one becomes zero, which is
/// what fields that nobody filled are to their reader.
///
/// # Safety
/// The pointer leads to as many bytes as the `struct_size` in `value` says, which was judged.
pub(crate) unsafe fn fill<T: Sized32>(pointer: *mut T, value: T) {
    // SAFETY: the trait's promise: a struct begins with its size.
    let bytes = unsafe { (&raw const value).cast::<u32>().read() };
    let bytes = usize::try_from(bytes).unwrap_or(0);
    let known = bytes.min(size_of::<T>());
    let target = pointer.cast::<u8>();
    // SAFETY: `known` bytes are at both places, and the places differ: one is on this stack. After
    // them are those that `known` is less than what the caller says.
    unsafe {
        std::ptr::copy_nonoverlapping((&raw const value).cast::<u8>(), target, known);
        target.add(known).write_bytes(0, bytes - known);
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A struct that grew by one field.
    #[repr(C)]
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    struct Grown {
        struct_size: u32,
        first: u32,
        later: u64,
    }

    // SAFETY: it is `repr(C)`, begins with `struct_size`, and holds integers only.
    unsafe impl Sized32 for Grown {
        const NAME: &'static str = "grown";
        const FIRST_SIZE: usize = 8;
    }

    fn refusal() -> packhouse_refusal {
        packhouse_refusal {
            struct_size: 16 + PACKHOUSE_TEXT_BYTES as u32,
            status: -1,
            text_bytes: 0,
            text: [1; PACKHOUSE_TEXT_BYTES],
        }
    }

    fn text_of(refusal: &packhouse_refusal) -> &str {
        // SAFETY: the library wrote a final NUL.
        let text = unsafe { CStr::from_ptr(refusal.text.as_ptr()) };
        text.to_str().expect("because it is cut between characters")
    }

    #[test]
    fn a_panic_becomes_a_status_with_its_words() {
        let bodies: [fn() -> Result<(), Failure>; 3] = [
            || panic!("row {} of 3", 4),
            || panic!("a plain text"),
            || std::panic::panic_any(7),
        ];
        for (body, words) in bodies.into_iter().zip(["row 4 of 3", "a plain text", ""]) {
            let mut refusal = refusal();
            // SAFETY: the refusal is this test's own.
            let status = unsafe { guard(&raw mut refusal, body) };
            let bug = Usage::Bug {
                panic: words.to_owned(),
            };
            assert_eq!((status, refusal.status), (99, 99));
            assert_eq!(text_of(&refusal), bug.to_string());
        }
        assert_eq!(shield(5, || panic!("inside")), 5);
        // SAFETY: NULL is allowed.
        let status = unsafe { guard(std::ptr::null_mut(), || panic!("inside")) };
        assert_eq!(status, 99);
    }

    #[test]
    fn a_success_leaves_the_refusal_as_it_was() {
        let mut refusal = refusal();
        // SAFETY: the refusal is this test's own.
        assert_eq!(unsafe { guard(&raw mut refusal, || Ok(())) }, OK);
        assert_eq!((refusal.status, refusal.text[0]), (-1, 1));
    }

    #[test]
    fn a_long_text_is_cut_between_characters_and_its_length_told() {
        let mut refusal = refusal();
        let long = format!("x{}", "\u{e4}".repeat(400));
        let failure = Usage::Bug { panic: long };
        let whole = failure.to_string();
        // SAFETY: the refusal is this test's own.
        unsafe { guard(&raw mut refusal, || Err(failure.into())) };
        assert_eq!(refusal.text_bytes, whole.len() as u64);
        let told = text_of(&refusal);
        assert!(whole.starts_with(told));
        assert!((494..=495).contains(&told.len()), "{}", told.len());
        assert_eq!(chars_of::<4>("abcdef"), chars_of::<4>("abc"));
        assert_eq!(chars_of::<4>(""), [0; 4]);
    }

    /// Callers built against an earlier header, this one and a later one.
    #[test]
    fn structs_are_taken_and_filled_by_the_size_that_the_caller_says() {
        let bytes = |size: u32| {
            let mut bytes = [0u8; 24];
            bytes[..4].copy_from_slice(&size.to_le_bytes());
            bytes[4..8].copy_from_slice(&7u32.to_le_bytes());
            bytes
        };
        let told = |bytes: &[u8; 24]| {
            // SAFETY: so many bytes are there, and the sizes below are no larger.
            unsafe { take(bytes.as_ptr().cast::<Grown>()) }
        };
        let mut small = bytes(8);
        small[8] = 9;
        let taken = told(&small).expect("because it is the first version");
        assert_eq!(
            (taken.first, taken.later),
            (7, 0),
            "what is beyond is not read"
        );
        let mut large = bytes(24);
        large[8] = 9;
        assert_eq!(told(&large).map(|taken| taken.later), Ok(9));
        large[20] = 1;
        let field = Usage::UnknownField {
            name: "grown",
            offset: 20,
        };
        assert_eq!(told(&large), Err(field));
        assert!(matches!(
            told(&bytes(7)),
            Err(Usage::StructSize { actual: 7, .. })
        ));
        let mut target = [0xffu8; 24];
        let value = |struct_size| Grown {
            struct_size,
            first: 1,
            later: 2,
        };
        // SAFETY: the target is longer than each size.
        unsafe { fill(target.as_mut_ptr().cast(), value(8)) };
        assert_eq!((target[4], target[8]), (1, 0xff));
        // SAFETY: as above.
        unsafe { fill(target.as_mut_ptr().cast(), value(24)) };
        assert_eq!((target[8], target[16]), (2, 0));
        let mut target = [0xffu8; 24];
        // SAFETY: as above.
        unsafe { fill(target.as_mut_ptr().cast(), value(20)) };
        assert_eq!(target[15..], [0, 0, 0, 0, 0, 255, 255, 255, 255]);
    }
}
