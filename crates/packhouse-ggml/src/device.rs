//! The tables that the host sees: one registry, one device of type ACCEL, its stream object.
//!
//! The device exists to be asked for its buffer type. It computes nothing: by the time a graph
//! runs, its buffers carry the stock type, so no op is ever ours.

use crate::abi::v3;
use crate::buffer;
use crate::plugin::Plugin;
use std::ffi::{c_char, c_int, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::ptr;

/// The tables, leaked: the host keeps pointers to them for as long as the process lives.
pub(crate) struct Tables {
    pub(crate) reg: *mut v3::Reg,
    pub(crate) buffer_type: *mut v3::BufferType,
}

// SAFETY: the tables are written once, before they are shared.
unsafe impl Send for Tables {}
// SAFETY: as for Send.
unsafe impl Sync for Tables {}

impl Tables {
    /// Makes the tables.
    pub(crate) fn new() -> Self {
        let reg = Box::into_raw(Box::new(v3::Reg {
            api_version: v3::API_VERSION,
            get_name: Some(reg_name),
            get_device_count: Some(one_device),
            get_device: Some(reg_device),
            get_proc_address: None,
            context: ptr::null_mut(),
        }));
        let device = Box::into_raw(Box::new(device_table(reg)));
        let buffer_type = Box::into_raw(Box::new(v3::BufferType {
            get_name: Some(buffer_type_name),
            alloc_buffer: Some(buffer::alloc_buffer),
            alloc_buffer_n: Some(buffer::alloc_buffer_n),
            get_alignment: Some(buffer::get_alignment),
            get_max_size: None,
            get_alloc_size: None,
            get_alloc_size_n: Some(buffer::get_alloc_size_n),
            is_host: None,
            device,
            context: ptr::null_mut(),
        }));
        // SAFETY: the tables were just made and nobody else has them.
        unsafe {
            (*reg).context = device.cast();
            (*device).context = buffer_type.cast();
        }
        Self { reg, buffer_type }
    }
}

fn device_table(reg: *mut v3::Reg) -> v3::Device {
    v3::Device {
        get_name: Some(device_name),
        get_description: Some(device_description),
        get_memory: Some(device_memory),
        get_type: Some(device_type),
        get_props: Some(device_props),
        init_backend: Some(init_backend),
        get_buffer_type: Some(device_buffer_type),
        get_host_buffer_type: None,
        buffer_from_host_ptr: None,
        supports_op: Some(supports_op),
        supports_buft: Some(supports_buft),
        offload_op: None,
        event_new: None,
        event_free: None,
        event_synchronize: None,
        reg,
        context: ptr::null_mut(),
    }
}

unsafe extern "C" fn reg_name(_reg: *mut v3::Reg) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn one_device(_reg: *mut v3::Reg) -> usize {
    1
}

unsafe extern "C" fn reg_device(reg: *mut v3::Reg, _index: usize) -> *mut v3::Device {
    // SAFETY: the host hands back the registry that `Tables::new` made.
    unsafe { (*reg).context.cast() }
}

unsafe extern "C" fn device_name(_device: *mut v3::Device) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn device_description(_device: *mut v3::Device) -> *const c_char {
    c"stored packs for the CPU".as_ptr()
}

unsafe extern "C" fn device_memory(
    _device: *mut v3::Device,
    free_bytes: *mut usize,
    total_bytes: *mut usize,
) {
    // SAFETY: the host gives two places to write; 0 means "no memory to report".
    unsafe {
        *free_bytes = 0;
        *total_bytes = 0;
    }
}

unsafe extern "C" fn device_type(_device: *mut v3::Device) -> c_int {
    v3::DEVICE_TYPE_ACCEL
}

unsafe extern "C" fn device_props(device: *mut v3::Device, props: *mut v3::Props) {
    // SAFETY: the host gives a place for its properties, whose size the probe measured.
    unsafe {
        props.write(v3::Props {
            name: device_name(device),
            description: device_description(device),
            memory_free: 0,
            memory_total: 0,
            device_type: v3::DEVICE_TYPE_ACCEL,
            device_id: ptr::null(),
            capabilities: [false; 5],
        });
    }
}

unsafe extern "C" fn device_buffer_type(device: *mut v3::Device) -> *mut v3::BufferType {
    // SAFETY: the host hands back the device that `Tables::new` made.
    unsafe { (*device).context.cast() }
}

unsafe extern "C" fn buffer_type_name(_buffer_type: *mut v3::BufferType) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn supports_op(device: *mut v3::Device, op: *const v3::Tensor) -> bool {
    let answer = catch_unwind(AssertUnwindSafe(|| {
        let plugin = Plugin::of_this_process()?;
        // SAFETY: the host hands back our device and gives a whole op with whole sources.
        unsafe {
            let own_type = device_buffer_type(device);
            Some(plugin.selection().takes(&plugin.host, own_type, op))
        }
    }));
    matches!(answer, Ok(Some(true)))
}

unsafe extern "C" fn supports_buft(
    device: *mut v3::Device,
    buffer_type: *mut v3::BufferType,
) -> bool {
    // SAFETY: the host hands back our device.
    unsafe { device_buffer_type(device) == buffer_type }
}

unsafe extern "C" fn init_backend(
    device: *mut v3::Device,
    _parameters: *const c_char,
) -> *mut v3::Backend {
    Box::into_raw(Box::new(v3::Backend {
        guid: &raw const GUID,
        get_name: Some(backend_name),
        free: Some(backend_free),
        set_tensor_async: None,
        get_tensor_async: None,
        set_tensor_2d_async: None,
        get_tensor_2d_async: None,
        cpy_tensor_async: None,
        synchronize: None,
        graph_plan_create: None,
        graph_plan_free: None,
        graph_plan_update: None,
        graph_plan_compute: None,
        graph_compute: Some(graph_compute),
        event_record: None,
        event_wait: None,
        graph_optimize: None,
        device,
        context: ptr::null_mut(),
    }))
}

unsafe extern "C" fn backend_name(_backend: *mut v3::Backend) -> *const c_char {
    NAME.as_ptr()
}

unsafe extern "C" fn backend_free(backend: *mut v3::Backend) {
    // SAFETY: `init_backend` leaked this box and the host frees a backend once.
    drop(unsafe { Box::from_raw(backend) });
}

unsafe extern "C" fn graph_compute(_backend: *mut v3::Backend, _graph: *mut c_void) -> c_int {
    v3::STATUS_FAILED
}

const NAME: &std::ffi::CStr = c"PACKHOUSE";
static GUID: [u8; 16] = *b"packhouse ggml 1";
