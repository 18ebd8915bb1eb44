//! Finds the host's ggml functions among the objects that are loaded in this process.
//!
//! Hosts load ggml with local or global scope and under several names, so the default lookup is not
//! enough: the loaded objects are walked, opened without loading, and asked. Never links or loads a
//! ggml.

use std::ffi::{CStr, CString, c_int, c_void};

/// The loaded objects that may hold ggml's functions.
pub(crate) struct Symbols {
    objects: Vec<Object>,
}

struct Object {
    path: CString,
    handle: *mut c_void,
}

/// Why a function can't be used.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum SymbolError {
    /// No loaded object has it.
    #[error("no loaded library has {name}")]
    Absent {
        /// Function name.
        name: String,
    },
    /// Two loaded copies of ggml differ on where it is.
    #[error("two loaded libraries have {name}: {first} and {second}")]
    Ambiguous {
        /// Function name.
        name: String,
        /// Path of one object.
        first: String,
        /// Path of the other.
        second: String,
    },
}

impl Symbols {
    /// Opens every loaded object, without loading any.
    pub(crate) fn of_this_process() -> Self {
        let mut paths: Vec<CString> = Vec::new();
        // SAFETY: `collect_path` has the signature that dl_iterate_phdr wants and gets `paths`,
        // which outlives the call, as its argument.
        unsafe { libc::dl_iterate_phdr(Some(collect_path), (&raw mut paths).cast()) };
        let objects = paths.into_iter().filter_map(Object::open).collect();
        Self { objects }
    }

    /// Finds a function. Errors when no object has it, or two objects have different ones.
    pub(crate) fn find(&self, name: &str) -> Result<*mut c_void, SymbolError> {
        let c_name = CString::new(name).expect("because function names hold no NUL");
        let mut found: Option<(*mut c_void, &Object)> = None;
        for object in &self.objects {
            let address = object.symbol(&c_name);
            match found {
                Some((first, owner)) if !address.is_null() && address != first => {
                    return Err(SymbolError::Ambiguous {
                        name: name.to_owned(),
                        first: owner.path.to_string_lossy().into_owned(),
                        second: object.path.to_string_lossy().into_owned(),
                    });
                }
                None if !address.is_null() => found = Some((address, object)),
                Some(_) | None => {}
            }
        }
        found
            .map(|(address, _)| address)
            .ok_or_else(|| SymbolError::Absent {
                name: name.to_owned(),
            })
    }

    /// The path of the object that holds an address, for reports; empty when none does.
    pub(crate) fn path_of(address: *const c_void) -> String {
        let mut info = std::mem::MaybeUninit::<libc::Dl_info>::zeroed();
        // SAFETY: dladdr only writes `info`, and the zeroed value is a valid one for it.
        let (known, info) = unsafe {
            let known = libc::dladdr(address, info.as_mut_ptr());
            (known, info.assume_init())
        };
        if known == 0 || info.dli_fname.is_null() {
            return String::new();
        }
        // SAFETY: dladdr gave a NUL-terminated name that lives as long as its object is loaded.
        unsafe { CStr::from_ptr(info.dli_fname) }
            .to_string_lossy()
            .into_owned()
    }
}

impl Object {
    fn open(path: CString) -> Option<Self> {
        // SAFETY: RTLD_NOLOAD never loads or runs anything; the path is NUL-terminated.
        let handle = unsafe { libc::dlopen(path.as_ptr(), libc::RTLD_NOLOAD | libc::RTLD_LAZY) };
        (!handle.is_null()).then_some(Self { path, handle })
    }

    fn symbol(&self, name: &CStr) -> *mut c_void {
        // SAFETY: the handle is open and the name is NUL-terminated.
        unsafe { libc::dlsym(self.handle, name.as_ptr()) }
    }
}

impl Drop for Object {
    fn drop(&mut self) {
        // SAFETY: the handle came from dlopen in `open` and is closed once; the object stays loaded
        // by whoever loaded it.
        unsafe { libc::dlclose(self.handle) };
    }
}

unsafe extern "C" fn collect_path(
    info: *mut libc::dl_phdr_info,
    _size: libc::size_t,
    argument: *mut c_void,
) -> c_int {
    // SAFETY: dl_iterate_phdr gives a valid entry, whose name is NULL or NUL-terminated, and hands
    // back the argument of `of_this_process`.
    unsafe {
        let name = (*info).dlpi_name;
        if !name.is_null() && *name != 0 {
            (*argument.cast::<Vec<CString>>()).push(CStr::from_ptr(name).to_owned());
        }
    }
    0
}
