//! The self-identifying probe: which struct layout does the host have?
//!
//! ggml's tables have changed without a change of the API number, so the number is not believed.
//! Dummy tables whose every word is a distinct stub are shown to the host's exported accessors; the
//! stub that fires, or the word that comes back, tells where the host thinks each slot is. Only
//! when every answer is the one that the layout predicts does the plug-in go on. The host calls no
//! slot of ours that was not so identified, and no slot of the host is called here at all.

use super::v3;
use crate::symbols::{SymbolError, Symbols};
use std::cell::Cell;
use std::ffi::{CStr, c_char, c_void};

/// Why the host is not one that this build knows.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum ProbeError {
    /// A function of the interface is missing or doubled.
    #[error(transparent)]
    Symbol(#[from] SymbolError),
    /// The host reached for another slot than the layout has there.
    #[error("{function} used word {actual:?} of its table, layout 3 has word {expected}")]
    Slot {
        /// The host's function.
        function: &'static str,
        /// Word index of the layout.
        expected: usize,
        /// Word index seen; `None` when no stub fired.
        actual: Option<usize>,
    },
    /// A tensor field or a size is not where the layout has it.
    #[error("{what} is {actual}, layout 3 has {expected}")]
    Tensor {
        /// Field or size.
        what: &'static str,
        /// What the layout has.
        expected: usize,
        /// What the host answered.
        actual: usize,
    },
}

/// What the probe found out about the host beside that it has the layout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// Bytes of a tensor's name field.
    pub name_bytes: usize,
    /// The host's number of each op that the plug-in tells apart.
    pub ops: Ops,
}

/// The host's op numbers; they shift whenever ops are added, so they are looked up by name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Ops {
    /// NONE, RESHAPE, VIEW, PERMUTE, TRANSPOSE: ops that move no byte.
    pub empty: [i32; 5],
    /// MUL_MAT.
    pub mul_mat: i32,
}

/// Runs the probe on the host's functions. Errors name the first answer that is not layout 3's.
pub(crate) fn probe(symbols: &Symbols) -> Result<Found, ProbeError> {
    // The order keeps a strange host alive: a function that follows a pointer is asked only when
    // the place of that pointer is known.
    let name_bytes = probe_tensor(symbols)?;
    let ops = probe_ops(symbols)?;
    probe_op_field(symbols, &ops)?;
    let (on_tensors, on_tables): (Vec<_>, Vec<_>) =
        PROBES.iter().partition(|entry| entry.follows_a_tensor());
    for entry in on_tables {
        entry.expect(symbols)?;
    }
    probe_placement(symbols)?;
    for entry in on_tensors {
        entry.expect(symbols)?;
    }
    probe_props(symbols)?;
    Ok(Found { name_bytes, ops })
}

fn expect_slot(
    function: &'static str,
    expected: usize,
    actual: Option<usize>,
) -> Result<(), ProbeError> {
    if actual == Some(expected) {
        return Ok(());
    }
    Err(ProbeError::Slot {
        function,
        expected,
        actual,
    })
}

fn expect_value(what: &'static str, expected: usize, actual: usize) -> Result<(), ProbeError> {
    if expected == actual {
        return Ok(());
    }
    Err(ProbeError::Tensor {
        what,
        expected,
        actual,
    })
}

/// One question to the host: call a function on a dummy table, expect one word of it to answer.
struct Probe {
    function: &'static str,
    arguments: [Argument; 7],
    word: usize,
    /// Whether the function hands the word back or calls the stub in it.
    answer: Answer,
}

#[derive(Clone, Copy)]
enum Argument {
    /// A table whose words are all stubs.
    Table,
    /// The same, but with word `buffer_type` of a buffer pointing at another table.
    Buffer,
    /// A tensor in that buffer.
    Tensor,
    /// Memory that the host may write.
    Scratch,
    Number(usize),
}

#[derive(Clone, Copy, PartialEq)]
enum Answer {
    Fires,
    Returns,
    /// As `Returns`, but only the low 32 bits come back.
    ReturnsLow,
}

impl Probe {
    fn follows_a_tensor(&self) -> bool {
        matches!(self.arguments[0], Argument::Tensor)
    }

    fn expect(&self, symbols: &Symbols) -> Result<(), ProbeError> {
        let address = symbols.find(self.function)?;
        expect_slot(self.function, self.word, self.run(address))
    }

    fn run(&self, address: *mut c_void) -> Option<usize> {
        let table: [usize; TABLE_WORDS] = std::array::from_fn(stub_address);
        let other = table;
        let mut buffer = table;
        buffer[BUFFER_TYPE_WORD] = other.as_ptr().expose_provenance();
        let mut tensor = dummy_tensor();
        tensor.head.buffer = (&raw mut buffer).cast();
        let mut scratch = [0u8; PROPS_BYTES_MAX];
        let arguments = self.arguments.map(|argument| match argument {
            Argument::Table => table.as_ptr().expose_provenance(),
            Argument::Buffer => buffer.as_ptr().expose_provenance(),
            Argument::Tensor => (&raw mut tensor).expose_provenance(),
            Argument::Scratch => (&raw mut scratch).expose_provenance(),
            Argument::Number(number) => number,
        });
        FIRED.set(None);
        RETURNED.set(DUMMY_BYTES);
        // SAFETY: every probed function takes at most seven integer or pointer arguments and
        // returns an integer, a pointer or nothing, so the call's shape fits (surplus arguments are
        // ignored by both supported calling conventions). The tables are words of valid code
        // addresses, long enough for every table of ggml, and the functions do nothing but read a
        // word and call or return it.
        let result = unsafe {
            let function: Accessor = std::mem::transmute::<*mut c_void, Accessor>(address);
            let [a, b, c, d, e, f, g] = arguments;
            function(a, b, c, d, e, f, g, 0)
        };
        match self.answer {
            Answer::Fires => FIRED.get(),
            Answer::Returns => table.iter().position(|word| *word == result),
            Answer::ReturnsLow => table
                .iter()
                .position(|word| word & LOW_BITS == result & LOW_BITS),
        }
    }
}

type Accessor =
    unsafe extern "C" fn(usize, usize, usize, usize, usize, usize, usize, usize) -> usize;

/// A tensor with room for the longest name that a host may have.
#[repr(C)]
struct DummyTensor {
    head: v3::Tensor,
    tail: [u8; NAME_BYTES_MAX + 64],
}

thread_local! {
    static FIRED: Cell<Option<usize>> = const { Cell::new(None) };
    static RETURNED: Cell<usize> = const { Cell::new(0) };
}

/// The stub in word `WORD`: records that it was called and returns what the probe wants returned.
extern "C" fn stub<const WORD: usize>() -> usize {
    FIRED.set(Some(WORD));
    RETURNED.get()
}

fn stub_address(word: usize) -> usize {
    macro_rules! stubs {
        ($($number:literal)*) => {
            [$(stub::<$number> as extern "C" fn() -> usize),*]
        };
    }
    let stubs = stubs!(0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 19 20 21 22 23 24 25 26 27);
    (stubs[word] as *const ()).expose_provenance()
}

/// A Q4_0 tensor of 64x16 elements: `ggml_nbytes` of it is `DUMMY_BYTES` only for the layout's
/// fields.
fn dummy_tensor() -> DummyTensor {
    DummyTensor {
        head: v3::Tensor {
            type_id: 2,
            buffer: std::ptr::null_mut(),
            ne: [64, 16, 1, 1],
            nb: [18, 36, 576, 576],
            op: 0,
            op_params: [0; 16],
            flags: 0,
            src: [std::ptr::null_mut(); 10],
            view_src: std::ptr::null_mut(),
            view_offs: 0,
            data: std::ptr::without_provenance_mut(0x1000),
        },
        tail: [0; NAME_BYTES_MAX + 64],
    }
}

fn probe_tensor(symbols: &Symbols) -> Result<usize, ProbeError> {
    let mut tensor = dummy_tensor();
    let address = (&raw mut tensor).expose_provenance();
    let ask =
        |function: &str| -> Result<usize, ProbeError> { Ok(call(symbols, function, address, 0)?) };
    expect_value(
        "ggml_nbytes of a 64x16 Q4_0",
        DUMMY_BYTES,
        ask("ggml_nbytes")?,
    )?;
    expect_value(
        "ggml_nelements of a 64x16 Q4_0",
        1024,
        ask("ggml_nelements")?,
    )?;
    expect_value("ggml_get_data", 0x1000, ask("ggml_get_data")?)?;
    let name_offset = ask("ggml_get_name")?.wrapping_sub(address);
    expect_value(
        "the offset of a tensor's name",
        v3::NAME_OFFSET,
        name_offset,
    )?;
    let long = [b'x'; NAME_BYTES_MAX];
    let mut long = long.to_vec();
    long.push(0);
    call(
        symbols,
        "ggml_set_name",
        address,
        long.as_ptr().expose_provenance(),
    )?;
    let name_bytes = tensor.tail.iter().take_while(|byte| **byte == b'x').count() + 1;
    let whole = call(symbols, "ggml_tensor_overhead", 0, 0)?;
    let expected = v3::OBJECT_BYTES + v3::tensor_bytes(name_bytes);
    expect_value("ggml_tensor_overhead", expected, whole)?;
    Ok(name_bytes)
}

/// `ggml_op_desc` reads the op's number, `ggml_set_output` sets a flag: this finds both fields.
fn probe_op_field(symbols: &Symbols, ops: &Ops) -> Result<(), ProbeError> {
    let mut tensor = dummy_tensor();
    tensor.head.op = ops.mul_mat;
    let address = (&raw mut tensor).expose_provenance();
    let name = call(symbols, "ggml_op_desc", address, 0)?;
    // SAFETY: the host returns a NUL-terminated constant for the op number it reads, which is
    // MUL_MAT's or, where it reads another field, 0.
    let name = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance::<c_char>(name)) };
    let is_mul_mat = usize::from(name == c"MUL_MAT");
    expect_value("whether ggml_op_desc tells MUL_MAT", 1, is_mul_mat)?;
    call(symbols, "ggml_set_output", address, 0)?;
    // SAFETY: the tensor is initialised; a volatile read because the host wrote it behind the
    // compiler's back.
    let flags = unsafe { std::ptr::read_volatile(&raw const tensor.head.flags) };
    let is_set = usize::from(flags != 0);
    expect_value("whether ggml_set_output sets a flag", 1, is_set)
}

/// A write goes to the buffer of a tensor, or of what it views: this finds `buffer` and `view_src`.
///
/// Every word that the two might be is a decoy: as a buffer its slots are stubs one word off, as a
/// tensor its buffer is another decoy, two words off. So wherever the host looks it finds something
/// to call.
fn probe_placement(symbols: &Symbols) -> Result<(), ProbeError> {
    let second: [usize; TABLE_WORDS] =
        std::array::from_fn(|word| stub_address((word + 2) % TABLE_WORDS));
    let mut first = decoy_of(1, &second);
    let mut buffer = decoy_of(0, &second);
    let decoy = first.as_mut_ptr();
    let mut parent = dummy_tensor();
    parent.head.buffer = buffer.as_mut_ptr().cast();
    let parent = (&raw mut parent.head).cast::<v3::Tensor>();
    for (own, viewed) in [(buffer.as_mut_ptr(), std::ptr::null_mut()), (decoy, parent)] {
        let mut tensor = dummy_tensor();
        let (low, high) = halves_of(decoy);
        tensor.head.op = low;
        tensor.head.op_params = std::array::from_fn(|i| if i % 2 == 1 { low } else { high });
        tensor.head.flags = high;
        tensor.head.src = [decoy.cast(); 10];
        tensor.head.view_offs = decoy.expose_provenance();
        tensor.head.buffer = own.cast();
        tensor.head.view_src = viewed;
        let function = "ggml_backend_tensor_set";
        let address = symbols.find(function)?;
        let mut byte = 0u8;
        FIRED.set(None);
        // SAFETY: as in `Probe::run`; the function writes nothing itself, it calls the buffer's
        // stub.
        unsafe {
            let set: Accessor = std::mem::transmute::<*mut c_void, Accessor>(address);
            let tensor = (&raw mut tensor).expose_provenance();
            let source = (&raw mut byte).expose_provenance();
            set(tensor, source, 0, 1, 0, 0, 0, 0);
        }
        expect_slot(function, SET_TENSOR_WORD, FIRED.get())?;
    }
    Ok(())
}

/// A buffer table whose stubs are shifted by `by` words. The words that a buffer calls nothing in
/// lead to another table, for hosts that take it for a tensor.
fn decoy_of(by: usize, other: &[usize; TABLE_WORDS]) -> [usize; DECOY_WORDS] {
    std::array::from_fn(|word| match word {
        TENSOR_BUFFER_WORD | BUFFER_WORDS.. => other.as_ptr().expose_provenance(),
        _ => stub_address(word + by),
    })
}

/// The two halves of a pointer as fields of 32 bits hold them, low half first.
fn halves_of(pointer: *mut usize) -> (i32, i32) {
    let address = pointer.expose_provenance();
    let half = |bits: usize| {
        let half = u32::try_from(bits & LOW_BITS).expect("because it is masked to 32 bits");
        half.cast_signed()
    };
    (half(address), half(address >> 32))
}

/// The host clears the properties before it asks for them, which shows how long they are.
fn probe_props(symbols: &Symbols) -> Result<(), ProbeError> {
    let table: [usize; TABLE_WORDS] = std::array::from_fn(stub_address);
    let mut props = [0xaau8; PROPS_BYTES_MAX];
    let address = (&raw mut props).expose_provenance();
    call(
        symbols,
        "ggml_backend_dev_get_props",
        table.as_ptr().expose_provenance(),
        address,
    )?;
    // SAFETY: `props` is initialised; a volatile read because the host wrote it behind the
    // compiler's back.
    let props = unsafe { std::ptr::read_volatile(&raw const props) };
    let actual = props.iter().take_while(|byte| **byte == 0).count();
    expect_value(
        "the size of device properties",
        size_of::<v3::Props>(),
        actual,
    )
}

fn probe_ops(symbols: &Symbols) -> Result<Ops, ProbeError> {
    let wanted = ["NONE", "RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE", "MUL_MAT"];
    let mut numbers = [None; 6];
    // All six come before OPS_SEARCHED in every ggml so far; asking beyond the last op would read
    // past the host's table, so the search ends as soon as all are found.
    for op in 0..OPS_SEARCHED {
        let name = call(symbols, "ggml_op_name", op, 0)?;
        // SAFETY: the host returns a NUL-terminated constant for every op number that it has.
        let name = unsafe { CStr::from_ptr(std::ptr::with_exposed_provenance::<c_char>(name)) };
        if let Some(index) = wanted
            .iter()
            .position(|wanted| name.to_bytes() == wanted.as_bytes())
        {
            numbers[index] = i32::try_from(op).ok();
        }
        if numbers.iter().all(Option::is_some) {
            break;
        }
    }
    let [
        Some(none),
        Some(reshape),
        Some(view),
        Some(permute),
        Some(transpose),
        Some(mul_mat),
    ] = numbers
    else {
        let (what, actual) = (
            "the number of known op names",
            numbers.iter().flatten().count(),
        );
        return Err(ProbeError::Tensor {
            what,
            expected: wanted.len(),
            actual,
        });
    };
    Ok(Ops {
        empty: [none, reshape, view, permute, transpose],
        mul_mat,
    })
}

fn call(
    symbols: &Symbols,
    function: &str,
    first: usize,
    second: usize,
) -> Result<usize, SymbolError> {
    let address = symbols.find(function)?;
    // SAFETY: as in `Probe::run`.
    unsafe {
        let accessor: Accessor = std::mem::transmute::<*mut c_void, Accessor>(address);
        Ok(accessor(first, second, 0, 0, 0, 0, 0, 0))
    }
}

const TABLE_WORDS: usize = 28;
/// Properties longer than this would overrun what the probe gives the host to write.
const PROPS_BYTES_MAX: usize = 4096;
const BUFFER_TYPE_WORD: usize = 11;
const TENSOR_BUFFER_WORD: usize = 1;
const SET_TENSOR_WORD: usize = 4;
const BUFFER_WORDS: usize = size_of::<v3::Buffer>() / size_of::<usize>();
/// Long enough for a tensor.
const DECOY_WORDS: usize = size_of::<DummyTensor>() / size_of::<usize>();
const DUMMY_BYTES: usize = 576;
const NAME_BYTES_MAX: usize = 1024;
const OPS_SEARCHED: usize = 64;
const LOW_BITS: usize = 0xffff_ffff;

const fn fires(function: &'static str, word: usize, arguments: [Argument; 7]) -> Probe {
    Probe {
        function,
        arguments,
        word,
        answer: Answer::Fires,
    }
}

const fn returns(function: &'static str, word: usize) -> Probe {
    Probe {
        function,
        arguments: [T, N0, N0, N0, N0, N0, N0],
        word,
        answer: Answer::Returns,
    }
}

use Argument::{Buffer as B, Scratch as S, Table as T, Tensor as X};
const N0: Argument = Argument::Number(0);
const N1: Argument = Argument::Number(1);
const N2: Argument = Argument::Number(2);

static PROBES: &[Probe] = &[
    fires("ggml_backend_buft_name", 0, [T, N0, N0, N0, N0, N0, N0]),
    fires(
        "ggml_backend_buft_alloc_buffer",
        1,
        [T, N1, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_buft_alloc_buffer_n",
        2,
        [T, S, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_buft_get_alignment",
        3,
        [T, N0, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_buft_get_max_size",
        4,
        [T, N0, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_buft_get_alloc_size",
        5,
        [T, X, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_buft_get_alloc_size_n",
        6,
        [T, S, N0, N0, N0, N0, N0],
    ),
    fires("ggml_backend_buft_is_host", 7, [T, N0, N0, N0, N0, N0, N0]),
    returns("ggml_backend_buft_get_device", 8),
    // Before all that is asked of a `Buffer`, whose word for the type can't be called.
    returns("ggml_backend_buffer_get_type", BUFFER_TYPE_WORD),
    returns("ggml_backend_buffer_get_size", 13),
    Probe {
        function: "ggml_backend_buffer_get_usage",
        arguments: [T, N0, N0, N0, N0, N0, N0],
        word: 14,
        answer: Answer::ReturnsLow,
    },
    fires(
        "ggml_backend_buffer_get_base",
        1,
        [B, N0, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_buffer_init_tensor",
        2,
        [B, X, N0, N0, N0, N0, N0],
    ),
    fires("ggml_backend_tensor_memset", 3, [X, N0, N0, N1, N0, N0, N0]),
    fires(
        "ggml_backend_tensor_set",
        SET_TENSOR_WORD,
        [X, S, N0, N1, N0, N0, N0],
    ),
    fires("ggml_backend_tensor_get", 5, [X, S, N0, N1, N0, N0, N0]),
    fires("ggml_backend_tensor_set_2d", 6, [X, S, N0, N1, N2, N1, N1]),
    fires("ggml_backend_tensor_get_2d", 7, [X, S, N0, N1, N2, N1, N1]),
    fires(
        "ggml_backend_buffer_copy_tensor",
        8,
        [X, X, N0, N0, N0, N0, N0],
    ),
    fires("ggml_backend_buffer_clear", 9, [B, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_buffer_reset", 10, [B, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_dev_name", 0, [T, N0, N0, N0, N0, N0, N0]),
    fires(
        "ggml_backend_dev_description",
        1,
        [T, N0, N0, N0, N0, N0, N0],
    ),
    fires("ggml_backend_dev_memory", 2, [T, S, S, N0, N0, N0, N0]),
    fires("ggml_backend_dev_type", 3, [T, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_dev_get_props", 4, [T, S, N0, N0, N0, N0, N0]),
    fires("ggml_backend_dev_init", 5, [T, N0, N0, N0, N0, N0, N0]),
    fires(
        "ggml_backend_dev_buffer_type",
        6,
        [T, N0, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_dev_host_buffer_type",
        7,
        [T, N0, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_dev_buffer_from_host_ptr",
        8,
        [T, S, N1, N1, N0, N0, N0],
    ),
    fires(
        "ggml_backend_dev_supports_op",
        9,
        [T, X, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_dev_supports_buft",
        10,
        [T, T, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_dev_offload_op",
        11,
        [T, X, N0, N0, N0, N0, N0],
    ),
    fires("ggml_backend_event_new", 12, [T, N0, N0, N0, N0, N0, N0]),
    returns("ggml_backend_dev_backend_reg", 15),
    returns("ggml_backend_guid", 0),
    fires("ggml_backend_name", 1, [T, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_free", 2, [T, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_synchronize", 8, [T, N0, N0, N0, N0, N0, N0]),
    fires(
        "ggml_backend_graph_plan_create",
        9,
        [T, S, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_graph_plan_free",
        10,
        [T, S, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_graph_plan_compute",
        12,
        [T, S, N0, N0, N0, N0, N0],
    ),
    fires(
        "ggml_backend_graph_compute_async",
        13,
        [T, S, N0, N0, N0, N0, N0],
    ),
    fires("ggml_backend_event_wait", 15, [T, S, N0, N0, N0, N0, N0]),
    returns("ggml_backend_get_device", 17),
    fires("ggml_backend_reg_name", 1, [T, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_reg_dev_count", 2, [T, N0, N0, N0, N0, N0, N0]),
    fires("ggml_backend_reg_dev_get", 3, [T, N0, N0, N0, N0, N0, N0]),
    fires(
        "ggml_backend_reg_get_proc_address",
        4,
        [T, S, N0, N0, N0, N0, N0],
    ),
];
