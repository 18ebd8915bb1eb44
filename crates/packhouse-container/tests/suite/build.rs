//! Files made byte by byte, by hand and not by the crate's writer, so that they can be wrong.

/// Bytes of a GGUF file under construction.
#[derive(Clone, Default)]
pub(crate) struct Build {
    pub(crate) bytes: Vec<u8>,
}

pub(crate) const U8: u32 = 0;
pub(crate) const U16: u32 = 2;
pub(crate) const U32: u32 = 4;
pub(crate) const I32: u32 = 5;
pub(crate) const BOOL: u32 = 7;
pub(crate) const STRING: u32 = 8;
pub(crate) const ARRAY: u32 = 9;

pub(crate) const F32: u32 = 0;
pub(crate) const Q4_0: u32 = 2;

impl Build {
    /// A version 3 header.
    pub(crate) fn new(tensors: u64, keys: u64) -> Self {
        Self::with_version(3, tensors, keys)
    }

    pub(crate) fn with_version(version: u32, tensors: u64, keys: u64) -> Self {
        let build = Self::default().raw(b"GGUF").u32(version);
        build.u64(tensors).u64(keys)
    }

    pub(crate) fn raw(mut self, bytes: &[u8]) -> Self {
        self.bytes.extend(bytes);
        self
    }

    pub(crate) fn u32(self, value: u32) -> Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn u64(self, value: u64) -> Self {
        self.raw(&value.to_le_bytes())
    }

    pub(crate) fn text(self, text: &[u8]) -> Self {
        self.u64(text.len() as u64).raw(text)
    }

    /// A key and its value type; the value follows.
    pub(crate) fn key(self, key: &[u8], value_type: u32) -> Self {
        self.text(key).u32(value_type)
    }

    /// A key whose value is an array; the elements follow.
    pub(crate) fn array(self, key: &[u8], element_type: u32, count: u64) -> Self {
        self.key(key, ARRAY).u32(element_type).u64(count)
    }

    pub(crate) fn alignment(self, value: u32) -> Self {
        self.key(b"general.alignment", U32).u32(value)
    }

    pub(crate) fn tensor(self, name: &[u8], dims: &[u64], type_id: u32, offset: u64) -> Self {
        let build = self.text(name).u32(dims.len() as u32);
        let build = dims.iter().fold(build, |build, dim| build.u64(*dim));
        build.u32(type_id).u64(offset)
    }

    /// Zero bytes up to a multiple of `alignment`, then `bytes` more.
    pub(crate) fn data(mut self, alignment: usize, bytes: usize) -> Self {
        let start = self.bytes.len().next_multiple_of(alignment);
        self.bytes.resize(start + bytes, 0);
        self
    }
}

/// A file with most of what the format has: every value type, arrays, four tensors with padding.
pub(crate) fn rich() -> Vec<u8> {
    let mut build = Build::new(5, 16)
        .key(b"general.architecture", STRING)
        .text(b"llama")
        .alignment(64)
        .key(b"a.u8", U8)
        .raw(&[7])
        .key(b"a.i8", 1)
        .raw(&[0x80])
        .key(b"a.u16", U16)
        .raw(&[1, 2])
        .key(b"a.i16", 3)
        .raw(&[1, 0x82])
        .key(b"a.i32", I32)
        .u32(9)
        .key(b"a.f32", 6)
        .u32(0x7fc0_0001)
        .key(b"a.bool", BOOL)
        .raw(&[1])
        .key(b"a.u64", 10)
        .u64(1 << 40)
        .key(b"a.i64", 11)
        .u64(u64::MAX)
        .key(b"a.f64", 12)
        .u64(0x3ff0_0000_0000_0000)
        .array(b"tokens", STRING, 4)
        .text(b"a")
        .text(b"")
        .text("\u{e9}\0".as_bytes())
        .text(b"<unk>")
        .array(b"scores", 6, 2)
        .u64(1)
        .array(b"flags", BOOL, 3)
        .raw(&[0, 1, 1])
        .array(b"none", 12, 0);
    build = build
        .tensor(b"token_embd.weight", &[32, 3], Q4_0, 0)
        .tensor(b"norm", &[5], F32, 64)
        .tensor(b"scalar", &[], F32, 128)
        .tensor(b"empty", &[64, 0, 2, 1], Q4_0, 192)
        .tensor(b"last", &[2, 1, 3], 1, 192);
    build.data(64, 192 + 12).data(64, 0).bytes
}

/// One shard of a split model.
pub(crate) fn shard(no: u16, count: u16, total: u32, tensors: &[&str]) -> Vec<u8> {
    let mut build = Build::new(tensors.len() as u64, 3)
        .key(b"split.no", U16)
        .raw(&no.to_le_bytes())
        .key(b"split.tensors.count", I32)
        .u32(total)
        .key(b"split.count", U16)
        .raw(&count.to_le_bytes());
    for (index, name) in tensors.iter().enumerate() {
        build = build.tensor(name.as_bytes(), &[8], F32, index as u64 * 32);
    }
    build.data(32, tensors.len() * 32).bytes
}
