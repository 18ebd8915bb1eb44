//! The engine's ggml, identified by the probe: its functions, its CPU device and its CPU_REPACK
//! type.
//!
//! Invariants: a `Host` exists only after the probe agreed; all pointers in it live as long as the
//! process, because ggml never unloads a backend that it registered.

use crate::abi::probe::{self, Found, ProbeError};
use crate::abi::v3;
use crate::symbols::{SymbolError, Symbols};
use std::ffi::{CStr, c_char, c_int, c_void};

/// An identified engine.
pub(crate) struct Host {
    functions: Functions,
    found: Found,
    cpu: *mut v3::Device,
    repack: *mut v3::BufferType,
    /// A buffer of the stock type; only its table is used, and its `buft` says CPU_REPACK.
    template: *mut v3::Buffer,
    description: Description,
}

/// Names of the engine at hand, for reports.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Description {
    /// `ggml_version()`.
    pub version: String,
    /// Path of the library that holds the CPU_REPACK packer.
    pub cpu_library: String,
}

/// Why the engine can't be served.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum HostError {
    /// A function is missing or doubled.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// No registered CPU device, or a registry with no API number of ours.
    #[error("backend API {actual}, this build knows API {}", v3::API_VERSION)]
    ApiVersion {
        /// What the CPU registry says.
        actual: i32,
    },
    /// The engine has no CPU device yet.
    #[error("no CPU device is registered")]
    NoCpu,
    /// The CPU library was built without CPU_REPACK.
    #[error("the CPU device has no CPU_REPACK buffer type")]
    NoRepack,
    /// The struct tables differ.
    #[error(transparent)]
    Probe(#[from] ProbeError),
}

macro_rules! functions {
    ($($name:ident: fn($($argument:ty),*) $(-> $result:ty)?;)*) => {
        struct Functions {
            $($name: unsafe extern "C" fn($($argument),*) $(-> $result)?,)*
        }

        impl Functions {
            fn find(symbols: &Symbols) -> Result<Self, SymbolError> {
                Ok(Self {
                    $($name: {
                        let address = symbols.find(stringify!($name))?;
                        // SAFETY: the signature is the one of ggml.h and ggml-backend.h at API 3;
                        // `Host::find` lets no value out before the probe agreed on the layout of
                        // all structs.
                        unsafe {
                            std::mem::transmute::<
                                *mut c_void,
                                unsafe extern "C" fn($($argument),*) $(-> $result)?,
                            >(address)
                        }
                    },)*
                })
            }
        }
    };
}

functions! {
    ggml_backend_buffer_init:
        fn(*mut v3::BufferType, v3::BufferInterface, *mut c_void, usize) -> *mut v3::Buffer;
    ggml_backend_buft_alloc_buffer: fn(*mut v3::BufferType, usize) -> *mut v3::Buffer;
    ggml_backend_buft_alloc_buffer_n:
        fn(*mut v3::BufferType, *mut *mut v3::Tensor, c_int) -> *mut v3::Buffer;
    ggml_backend_buft_name: fn(*mut v3::BufferType) -> *const c_char;
    ggml_backend_tensor_alloc: fn(*mut v3::Buffer, *mut v3::Tensor, *mut c_void) -> c_int;
    ggml_backend_view_init: fn(*mut v3::Tensor) -> c_int;
    ggml_backend_buffer_free: fn(*mut v3::Buffer);
    ggml_backend_dev_count: fn() -> usize;
    ggml_backend_dev_get: fn(usize) -> *mut v3::Device;
    ggml_backend_dev_type: fn(*mut v3::Device) -> c_int;
    ggml_backend_dev_host_buffer_type: fn(*mut v3::Device) -> *mut v3::BufferType;
    ggml_backend_dev_supports_op: fn(*mut v3::Device, *const v3::Tensor) -> bool;
    ggml_backend_dev_backend_reg: fn(*mut v3::Device) -> *mut v3::Reg;
    ggml_backend_reg_get_proc_address: fn(*mut v3::Reg, *const c_char) -> *mut c_void;
    ggml_nbytes: fn(*const v3::Tensor) -> usize;
    ggml_version: fn() -> *const c_char;
}

type GetExtraTypes = unsafe extern "C" fn(*mut v3::Device) -> *mut *mut v3::BufferType;

/// Device type and buffer type in one place of the engine's own order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Candidate {
    /// The device that is asked.
    pub device: *mut v3::Device,
    /// The buffer type it is asked about.
    pub buffer_type: *mut v3::BufferType,
}

// SAFETY: all pointers lead to ggml's registered, immutable, process-long objects; ggml's functions
// used here may be called from any thread.
unsafe impl Send for Host {}
// SAFETY: as for Send.
unsafe impl Sync for Host {}

impl Host {
    /// Finds and identifies the engine in this process. Calls no slot of an unidentified table.
    pub(crate) fn find() -> Result<Self, HostError> {
        let symbols = Symbols::of_this_process();
        let by_type = symbols.find("ggml_backend_dev_by_type")?;
        let reg_of = symbols.find("ggml_backend_dev_backend_reg")?;
        // SAFETY: both functions have had these signatures since API 1, and they read no struct of
        // ours. The first field of a registry is its API number in every API version.
        let (api_version, cpu) = unsafe {
            let by_type: unsafe extern "C" fn(c_int) -> *mut v3::Device =
                std::mem::transmute::<*mut c_void, _>(by_type);
            let reg_of: unsafe extern "C" fn(*mut v3::Device) -> *mut c_int =
                std::mem::transmute::<*mut c_void, _>(reg_of);
            let cpu = by_type(v3::DEVICE_TYPE_CPU);
            if cpu.is_null() {
                return Err(HostError::NoCpu);
            }
            (*reg_of(cpu), cpu)
        };
        if api_version != v3::API_VERSION {
            return Err(HostError::ApiVersion {
                actual: api_version,
            });
        }
        let found = probe::probe(&symbols)?;
        let functions = Functions::find(&symbols)?;
        let repack = functions.repack_type(cpu).ok_or(HostError::NoRepack)?;
        // SAFETY: the probe identified the tables; the type is the engine's own.
        let (template, version) = unsafe {
            let template = (functions.ggml_backend_buft_alloc_buffer)(repack, TEMPLATE_BYTES);
            (template, CStr::from_ptr((functions.ggml_version)()))
        };
        if template.is_null() {
            return Err(HostError::NoRepack);
        }
        // SAFETY: the host just made this buffer.
        let set_tensor = unsafe { (*template).interface.set_tensor };
        let set_tensor = set_tensor.ok_or(HostError::NoRepack)?;
        let description = Description {
            version: version.to_string_lossy().into_owned(),
            cpu_library: Symbols::path_of(set_tensor as *const c_void),
        };
        Ok(Self {
            functions,
            found,
            cpu,
            repack,
            template,
            description,
        })
    }

    /// Names of the engine.
    pub(crate) fn description(&self) -> &Description {
        &self.description
    }

    /// What the probe found.
    pub(crate) fn found(&self) -> &Found {
        &self.found
    }

    /// The stock CPU_REPACK buffer type.
    pub(crate) fn repack_type(&self) -> *mut v3::BufferType {
        self.repack
    }

    /// The places where the engine would put a CPU weight before plain memory, in its own order:
    /// the host buffer type of the first GPU device that has one (unless the engine runs with
    /// `--no-host`), then the CPU's extra types. Source: `make_cpu_buft_list` of b11434.
    pub(crate) fn candidates(&self, no_host: bool) -> Vec<Candidate> {
        let mut candidates = Vec::new();
        let f = &self.functions;
        // SAFETY: the functions take a registered device or an index below the count.
        unsafe {
            let devices = (0..(f.ggml_backend_dev_count)()).map(|i| (f.ggml_backend_dev_get)(i));
            let gpus = devices.filter(|device| {
                v3::DEVICE_TYPES_GPU.contains(&(f.ggml_backend_dev_type)(*device))
            });
            let mut host_types = gpus.map(|device| {
                let buffer_type = (f.ggml_backend_dev_host_buffer_type)(device);
                Candidate {
                    device,
                    buffer_type,
                }
            });
            let first = host_types.find(|candidate| !candidate.buffer_type.is_null());
            candidates.extend(first.filter(|_| !no_host));
        }
        let extras = f.extra_types(self.cpu).into_iter();
        candidates.extend(extras.map(|buffer_type| Candidate {
            device: self.cpu,
            buffer_type,
        }));
        candidates
    }

    /// Asks a device whether it computes an op.
    ///
    /// # Safety `op` must be a whole, valid tensor of the host, of `v3::tensor_bytes` bytes, as
    /// must its sources.
    pub(crate) unsafe fn supports_op(
        &self,
        device: *mut v3::Device,
        op: *const v3::Tensor,
    ) -> bool {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.ggml_backend_dev_supports_op)(device, op) }
    }

    /// Makes a zero-sized buffer of a type, as the engine does to ask about it; never freed.
    pub(crate) fn dummy_buffer(&self, buffer_type: *mut v3::BufferType) -> *mut v3::Buffer {
        // SAFETY: the type is a registered one; size 0 allocates nothing.
        unsafe { (self.functions.ggml_backend_buft_alloc_buffer)(buffer_type, 0) }
    }

    /// Makes a buffer object around our table.
    pub(crate) fn make_buffer(
        &self,
        buffer_type: *mut v3::BufferType,
        interface: v3::BufferInterface,
        context: *mut c_void,
        bytes: usize,
    ) -> *mut v3::Buffer {
        // SAFETY: the interface's functions follow the layout that the probe identified.
        unsafe { (self.functions.ggml_backend_buffer_init)(buffer_type, interface, context, bytes) }
    }

    /// Lets the engine allocate from its own CPU_REPACK type, as it would without us.
    pub(crate) fn stock_buffer(&self, bytes: usize) -> *mut v3::Buffer {
        // SAFETY: the type is the engine's own.
        unsafe { (self.functions.ggml_backend_buft_alloc_buffer)(self.repack, bytes) }
    }

    /// As `stock_buffer`, for a list of tensors.
    ///
    /// # Safety
    /// `tensors` must point at `count` tensors of the host.
    pub(crate) unsafe fn stock_buffer_of(
        &self,
        tensors: *mut *mut v3::Tensor,
        count: c_int,
    ) -> *mut v3::Buffer {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.ggml_backend_buft_alloc_buffer_n)(self.repack, tensors, count) }
    }

    /// Frees a buffer object of the host.
    ///
    /// # Safety
    /// The buffer must be the host's and used by nobody.
    pub(crate) unsafe fn free_buffer(&self, buffer: *mut v3::Buffer) {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.ggml_backend_buffer_free)(buffer) }
    }

    /// Places a tensor at an address of a buffer and initialises it there. Returns the host's
    /// status.
    ///
    /// # Safety The tensor must be the host's and unplaced, the address inside the buffer.
    pub(crate) unsafe fn place(
        &self,
        buffer: *mut v3::Buffer,
        tensor: *mut v3::Tensor,
        address: *mut u8,
    ) -> c_int {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.ggml_backend_tensor_alloc)(buffer, tensor, address.cast()) }
    }

    /// Initialises a view whose parent is placed. Returns the host's status.
    ///
    /// # Safety
    /// The tensor must be the host's, a view, and without a buffer.
    pub(crate) unsafe fn place_view(&self, tensor: *mut v3::Tensor) -> c_int {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.ggml_backend_view_init)(tensor) }
    }

    /// Bytes of a tensor.
    ///
    /// # Safety
    /// The tensor must be the host's.
    pub(crate) unsafe fn tensor_bytes(&self, tensor: *const v3::Tensor) -> usize {
        // SAFETY: passed on to the caller.
        unsafe { (self.functions.ggml_nbytes)(tensor) }
    }

    /// Runs stock's `init_tensor`: it chooses the packing and writes it into `extra`. Returns the
    /// status.
    ///
    /// # Safety The tensor must be a whole one of the host.
    pub(crate) unsafe fn init_tensor(&self, tensor: *mut v3::Tensor) -> c_int {
        // SAFETY: the template is a live stock buffer, its slot was identified by the probe.
        unsafe {
            match (*self.template).interface.init_tensor {
                Some(init_tensor) => init_tensor(self.template, tensor),
                None => v3::STATUS_SUCCESS,
            }
        }
    }

    /// Runs stock's `set_tensor`, the engine's own packer: packs `bytes` bytes at `source` into the
    /// tensor.
    ///
    /// # Safety The tensor must be a whole one with a non-null `extra` of `init_tensor`, `bytes`
    /// its `ggml_nbytes`, readable at `source` and writable at its `data`.
    pub(crate) unsafe fn pack(&self, tensor: *mut v3::Tensor, source: *const u8, bytes: usize) {
        // SAFETY: the slot is there, `find` checked it; the rest is passed on to the caller.
        unsafe {
            if let Some(set_tensor) = (*self.template).interface.set_tensor {
                set_tensor(self.template, tensor, source.cast(), 0, bytes);
            }
        }
    }

    /// Reads `extra`, behind the name whose length the probe measured.
    ///
    /// # Safety
    /// The tensor must be a whole one of the host.
    pub(crate) unsafe fn extra_of(&self, tensor: *const v3::Tensor) -> *mut c_void {
        let offset = v3::extra_offset(self.found.name_bytes);
        // SAFETY: a whole tensor has `extra` there.
        unsafe { *tensor.cast::<u8>().add(offset).cast() }
    }

    /// Reads a tensor's name.
    ///
    /// # Safety
    /// The tensor must be a whole one of the host.
    pub(crate) unsafe fn name_of(&self, tensor: *const v3::Tensor) -> String {
        // SAFETY: a whole tensor has `name_bytes` bytes there, NUL-terminated by the host.
        let bytes = unsafe {
            let start = tensor.cast::<u8>().add(v3::NAME_OFFSET);
            std::slice::from_raw_parts(start, self.found.name_bytes)
        };
        let end = bytes
            .iter()
            .position(|byte| *byte == 0)
            .unwrap_or(bytes.len());
        String::from_utf8_lossy(&bytes[..end]).into_owned()
    }
}

/// `ggml_version()` of this process, for the line that says it is not served; `unknown` without
/// one.
pub(crate) fn version_of_this_process() -> String {
    let Ok(address) = Symbols::of_this_process().find("ggml_version") else {
        return "unknown".to_owned();
    };
    // SAFETY: the function takes nothing and returns a NUL-terminated constant in every ggml that
    // has it.
    let version = unsafe {
        let version: unsafe extern "C" fn() -> *const c_char =
            std::mem::transmute::<*mut c_void, _>(address);
        CStr::from_ptr(version())
    };
    version.to_string_lossy().into_owned()
}

impl Functions {
    fn extra_types(&self, cpu: *mut v3::Device) -> Vec<*mut v3::BufferType> {
        let name = c"ggml_backend_dev_get_extra_bufts";
        // SAFETY: the CPU device is registered; the procedure has this signature since API 1 and
        // returns a NULL-terminated array that lives as long as the process.
        unsafe {
            let reg = (self.ggml_backend_dev_backend_reg)(cpu);
            let address = (self.ggml_backend_reg_get_proc_address)(reg, name.as_ptr());
            if address.is_null() {
                return Vec::new();
            }
            let list: GetExtraTypes = std::mem::transmute::<*mut c_void, GetExtraTypes>(address);
            let mut next = list(cpu);
            let mut types = Vec::new();
            while !next.is_null() && !(*next).is_null() {
                types.push(*next);
                next = next.add(1);
            }
            types
        }
    }

    fn repack_type(&self, cpu: *mut v3::Device) -> Option<*mut v3::BufferType> {
        self.extra_types(cpu).into_iter().find(|buffer_type| {
            // SAFETY: a registered type's name is a NUL-terminated constant.
            let name = unsafe { CStr::from_ptr((self.ggml_backend_buft_name)(*buffer_type)) };
            name == c"CPU_REPACK"
        })
    }
}

const TEMPLATE_BYTES: usize = 64;
