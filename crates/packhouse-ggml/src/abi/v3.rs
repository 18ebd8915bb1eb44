//! ggml's struct tables at backend API 3 (ggml 0.26.0, llama.cpp b11434).
//!
//! Field order is the host's; `probe` proves it on the host at hand before any value of these types
//! is shown to it. Source: `ggml-backend-impl.h`, `ggml-backend.h` and `ggml.h` of that version.

use std::ffi::{c_char, c_int, c_void};

/// The API number this layout belongs to.
pub(crate) const API_VERSION: c_int = 3;

/// A slot that we leave empty or that only the host fills.
pub(crate) type Slot = Option<unsafe extern "C" fn()>;

/// `ggml_backend_buffer_type_i` and the two fields behind it.
#[repr(C)]
pub struct BufferType {
    pub get_name: Option<unsafe extern "C" fn(*mut BufferType) -> *const c_char>,
    pub alloc_buffer: Option<unsafe extern "C" fn(*mut BufferType, usize) -> *mut Buffer>,
    pub alloc_buffer_n:
        Option<unsafe extern "C" fn(*mut BufferType, *mut *mut Tensor, c_int) -> *mut Buffer>,
    pub get_alignment: Option<unsafe extern "C" fn(*mut BufferType) -> usize>,
    pub get_max_size: Slot,
    pub get_alloc_size: Slot,
    pub get_alloc_size_n:
        Option<unsafe extern "C" fn(*mut BufferType, *mut *mut Tensor, c_int) -> usize>,
    pub is_host: Slot,
    pub device: *mut Device,
    pub context: *mut c_void,
}

type InitTensor = unsafe extern "C" fn(*mut Buffer, *mut Tensor) -> c_int;
type SetTensor = unsafe extern "C" fn(*mut Buffer, *mut Tensor, *const c_void, usize, usize);
type GetTensor = unsafe extern "C" fn(*mut Buffer, *const Tensor, *mut c_void, usize, usize);

/// `ggml_backend_buffer_i`, passed by value when a buffer is made.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct BufferInterface {
    pub free_buffer: Option<unsafe extern "C" fn(*mut Buffer)>,
    pub get_base: Option<unsafe extern "C" fn(*mut Buffer) -> *mut c_void>,
    pub init_tensor: Option<InitTensor>,
    pub memset_tensor: Option<unsafe extern "C" fn(*mut Buffer, *mut Tensor, u8, usize, usize)>,
    pub set_tensor: Option<SetTensor>,
    pub get_tensor: Option<GetTensor>,
    pub set_tensor_2d: Slot,
    pub get_tensor_2d: Slot,
    pub cpy_tensor: Slot,
    pub clear: Option<unsafe extern "C" fn(*mut Buffer, u8)>,
    pub reset: Slot,
}

/// `ggml_backend_buffer`.
#[repr(C)]
pub struct Buffer {
    pub interface: BufferInterface,
    pub buffer_type: *mut BufferType,
    pub context: *mut c_void,
    pub size: usize,
    pub usage: c_int,
}

/// `ggml_tensor` up to its name; what follows depends on the name's length, a build option of the
/// host.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Tensor {
    pub type_id: c_int,
    pub buffer: *mut Buffer,
    pub ne: [i64; 4],
    pub nb: [usize; 4],
    pub op: c_int,
    pub op_params: [i32; 16],
    pub flags: i32,
    pub src: [*mut Tensor; 10],
    pub view_src: *mut Tensor,
    pub view_offs: usize,
    pub data: *mut c_void,
}

/// `ggml_backend_device_i` and the two fields behind it.
#[repr(C)]
pub struct Device {
    pub get_name: Option<unsafe extern "C" fn(*mut Device) -> *const c_char>,
    pub get_description: Option<unsafe extern "C" fn(*mut Device) -> *const c_char>,
    pub get_memory: Option<unsafe extern "C" fn(*mut Device, *mut usize, *mut usize)>,
    pub get_type: Option<unsafe extern "C" fn(*mut Device) -> c_int>,
    pub get_props: Option<unsafe extern "C" fn(*mut Device, *mut Props)>,
    pub init_backend: Option<unsafe extern "C" fn(*mut Device, *const c_char) -> *mut Backend>,
    pub get_buffer_type: Option<unsafe extern "C" fn(*mut Device) -> *mut BufferType>,
    pub get_host_buffer_type: Slot,
    pub buffer_from_host_ptr: Slot,
    pub supports_op: Option<unsafe extern "C" fn(*mut Device, *const Tensor) -> bool>,
    pub supports_buft: Option<unsafe extern "C" fn(*mut Device, *mut BufferType) -> bool>,
    pub offload_op: Slot,
    pub event_new: Slot,
    pub event_free: Slot,
    pub event_synchronize: Slot,
    pub reg: *mut Reg,
    pub context: *mut c_void,
}

/// `ggml_backend_dev_props`; all capabilities stay false.
#[repr(C)]
pub struct Props {
    pub name: *const c_char,
    pub description: *const c_char,
    pub memory_free: usize,
    pub memory_total: usize,
    pub device_type: c_int,
    pub device_id: *const c_char,
    pub capabilities: [bool; 5],
}

/// `ggml_backend`: the stream object of a device.
#[repr(C)]
pub struct Backend {
    pub guid: *const [u8; 16],
    pub get_name: Option<unsafe extern "C" fn(*mut Backend) -> *const c_char>,
    pub free: Option<unsafe extern "C" fn(*mut Backend)>,
    pub set_tensor_async: Slot,
    pub get_tensor_async: Slot,
    pub set_tensor_2d_async: Slot,
    pub get_tensor_2d_async: Slot,
    pub cpy_tensor_async: Slot,
    pub synchronize: Slot,
    pub graph_plan_create: Slot,
    pub graph_plan_free: Slot,
    pub graph_plan_update: Slot,
    pub graph_plan_compute: Slot,
    pub graph_compute: Option<unsafe extern "C" fn(*mut Backend, *mut c_void) -> c_int>,
    pub event_record: Slot,
    pub event_wait: Slot,
    pub graph_optimize: Slot,
    pub device: *mut Device,
    pub context: *mut c_void,
}

/// `ggml_backend_reg`.
#[repr(C)]
pub struct Reg {
    pub api_version: c_int,
    pub get_name: Option<unsafe extern "C" fn(*mut Reg) -> *const c_char>,
    pub get_device_count: Option<unsafe extern "C" fn(*mut Reg) -> usize>,
    pub get_device: Option<unsafe extern "C" fn(*mut Reg, usize) -> *mut Device>,
    pub get_proc_address: Slot,
    pub context: *mut c_void,
}

/// `GGML_STATUS_SUCCESS`.
pub(crate) const STATUS_SUCCESS: c_int = 0;
/// `GGML_STATUS_FAILED`.
pub(crate) const STATUS_FAILED: c_int = -1;
/// `GGML_BACKEND_DEVICE_TYPE_ACCEL`.
pub(crate) const DEVICE_TYPE_ACCEL: c_int = 3;
/// `GGML_BACKEND_DEVICE_TYPE_CPU`.
pub(crate) const DEVICE_TYPE_CPU: c_int = 0;
/// `GGML_BACKEND_DEVICE_TYPE_GPU` and `_IGPU`.
pub(crate) const DEVICE_TYPES_GPU: [c_int; 2] = [1, 2];
/// `GGML_OBJECT_SIZE`: what `ggml_tensor_overhead` counts beside the tensor.
pub(crate) const OBJECT_BYTES: usize = 32;

const WORD: usize = size_of::<usize>();
/// Offset of the name, the first field behind `Tensor`.
pub(crate) const NAME_OFFSET: usize = size_of::<Tensor>();

const _: () = assert!(size_of::<BufferType>() == 10 * WORD);
const _: () = assert!(size_of::<BufferInterface>() == 11 * WORD);
const _: () = assert!(size_of::<Buffer>() == 15 * WORD);
const _: () = assert!(size_of::<Device>() == 17 * WORD);
const _: () = assert!(size_of::<Props>() == 7 * WORD);
const _: () = assert!(size_of::<Backend>() == 19 * WORD);
const _: () = assert!(size_of::<Reg>() == 6 * WORD);
const _: () = assert!(NAME_OFFSET == 256);

/// Offset of `extra` for a host whose names are this long.
pub(crate) const fn extra_offset(name_bytes: usize) -> usize {
    (NAME_OFFSET + name_bytes).next_multiple_of(WORD)
}

/// Size of a whole tensor for a host whose names are this long: `extra`, then 8 bytes of padding.
pub(crate) const fn tensor_bytes(name_bytes: usize) -> usize {
    extra_offset(name_bytes) + WORD + 8
}
