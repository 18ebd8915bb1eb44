//! Typed metadata: scalars, strings and arrays of them, in file order.
//!
//! Nothing here interprets a value: a chat template is text, a path is text.

/// The type of a metadata value or of an array's elements.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueType {
    /// Unsigned, 8 bits.
    U8,
    /// Signed, 8 bits.
    I8,
    /// Unsigned, 16 bits.
    U16,
    /// Signed, 16 bits.
    I16,
    /// Unsigned, 32 bits.
    U32,
    /// Signed, 32 bits.
    I32,
    /// IEEE single.
    F32,
    /// One byte, 0 or 1.
    Bool,
    /// UTF-8 text.
    String,
    /// An array of one of the other types.
    Array,
    /// Unsigned, 64 bits.
    U64,
    /// Signed, 64 bits.
    I64,
    /// IEEE double.
    F64,
}

/// One metadata value.
#[derive(Clone, Debug, PartialEq)]
pub enum Value {
    /// Unsigned, 8 bits.
    U8(u8),
    /// Signed, 8 bits.
    I8(i8),
    /// Unsigned, 16 bits.
    U16(u16),
    /// Signed, 16 bits.
    I16(i16),
    /// Unsigned, 32 bits.
    U32(u32),
    /// Signed, 32 bits.
    I32(i32),
    /// IEEE single.
    F32(f32),
    /// True or false.
    Bool(bool),
    /// Text.
    String(String),
    /// An array.
    Array(Array),
    /// Unsigned, 64 bits.
    U64(u64),
    /// Signed, 64 bits.
    I64(i64),
    /// IEEE double.
    F64(f64),
}

/// An array of scalars or strings. There are no arrays of arrays.
#[derive(Clone, Debug, PartialEq)]
pub enum Array {
    /// Unsigned, 8 bits.
    U8(Vec<u8>),
    /// Signed, 8 bits.
    I8(Vec<i8>),
    /// Unsigned, 16 bits.
    U16(Vec<u16>),
    /// Signed, 16 bits.
    I16(Vec<i16>),
    /// Unsigned, 32 bits.
    U32(Vec<u32>),
    /// Signed, 32 bits.
    I32(Vec<i32>),
    /// IEEE single.
    F32(Vec<f32>),
    /// True or false.
    Bool(Vec<bool>),
    /// Text.
    String(StringArray),
    /// Unsigned, 64 bits.
    U64(Vec<u64>),
    /// Signed, 64 bits.
    I64(Vec<i64>),
    /// IEEE double.
    F64(Vec<f64>),
}

/// Strings kept in one piece of memory, as a vocabulary has hundreds of thousands.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct StringArray {
    text: String,
    ends: Vec<u32>,
}

/// One key and its value.
#[derive(Clone, Debug, PartialEq)]
pub struct Entry {
    /// The key: UTF-8 without NUL, 1 to 65 535 bytes.
    pub key: String,
    /// The value.
    pub value: Value,
}

/// All metadata of a file, in file order, each key once.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Metadata {
    entries: Vec<Entry>,
    by_key: Vec<u32>,
}

impl ValueType {
    /// Finds a type by its GGUF id.
    pub const fn from_id(id: u32) -> Option<Self> {
        Some(match id {
            0 => Self::U8,
            1 => Self::I8,
            2 => Self::U16,
            3 => Self::I16,
            4 => Self::U32,
            5 => Self::I32,
            6 => Self::F32,
            7 => Self::Bool,
            8 => Self::String,
            9 => Self::Array,
            10 => Self::U64,
            11 => Self::I64,
            12 => Self::F64,
            _ => return None,
        })
    }

    /// The GGUF id.
    pub const fn id(self) -> u32 {
        match self {
            Self::U8 => 0,
            Self::I8 => 1,
            Self::U16 => 2,
            Self::I16 => 3,
            Self::U32 => 4,
            Self::I32 => 5,
            Self::F32 => 6,
            Self::Bool => 7,
            Self::String => 8,
            Self::Array => 9,
            Self::U64 => 10,
            Self::I64 => 11,
            Self::F64 => 12,
        }
    }

    /// The fewest bytes that a value of this type takes in a file.
    pub const fn bytes_min(self) -> u64 {
        match self {
            Self::U8 | Self::I8 | Self::Bool => 1,
            Self::U16 | Self::I16 => 2,
            Self::U32 | Self::I32 | Self::F32 => 4,
            Self::U64 | Self::I64 | Self::F64 | Self::String => 8,
            Self::Array => 12,
        }
    }
}

impl Value {
    /// The type of this value.
    pub const fn value_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::Array(_) => ValueType::Array,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The text of a string value, `None` for other types.
    pub fn as_text(&self) -> Option<&str> {
        if let Self::String(text) = self {
            Some(text)
        } else {
            None
        }
    }

    /// The number of an integer value that is not negative, of any width; `None` for the rest.
    pub fn as_unsigned(&self) -> Option<u64> {
        match self {
            Self::U8(value) => Some(u64::from(*value)),
            Self::U16(value) => Some(u64::from(*value)),
            Self::U32(value) => Some(u64::from(*value)),
            Self::U64(value) => Some(*value),
            Self::I8(value) => u64::try_from(*value).ok(),
            Self::I16(value) => u64::try_from(*value).ok(),
            Self::I32(value) => u64::try_from(*value).ok(),
            Self::I64(value) => u64::try_from(*value).ok(),
            Self::F32(_) | Self::F64(_) | Self::Bool(_) | Self::String(_) | Self::Array(_) => None,
        }
    }
}

impl Array {
    /// The type of the elements.
    pub const fn element_type(&self) -> ValueType {
        match self {
            Self::U8(_) => ValueType::U8,
            Self::I8(_) => ValueType::I8,
            Self::U16(_) => ValueType::U16,
            Self::I16(_) => ValueType::I16,
            Self::U32(_) => ValueType::U32,
            Self::I32(_) => ValueType::I32,
            Self::F32(_) => ValueType::F32,
            Self::Bool(_) => ValueType::Bool,
            Self::String(_) => ValueType::String,
            Self::U64(_) => ValueType::U64,
            Self::I64(_) => ValueType::I64,
            Self::F64(_) => ValueType::F64,
        }
    }

    /// The number of elements.
    pub const fn len(&self) -> usize {
        match self {
            Self::U8(values) => values.len(),
            Self::I8(values) => values.len(),
            Self::U16(values) => values.len(),
            Self::I16(values) => values.len(),
            Self::U32(values) => values.len(),
            Self::I32(values) => values.len(),
            Self::F32(values) => values.len(),
            Self::Bool(values) => values.len(),
            Self::String(values) => values.len(),
            Self::U64(values) => values.len(),
            Self::I64(values) => values.len(),
            Self::F64(values) => values.len(),
        }
    }

    /// Whether there are no elements.
    pub const fn is_empty(&self) -> bool {
        self.len() == 0
    }
}

impl StringArray {
    /// Adds a string; `false`, with nothing added, when all text would pass 4 GiB.
    pub fn push(&mut self, text: &str) -> bool {
        let end = self.text.len().checked_add(text.len());
        let Some(end) = end.and_then(|end| u32::try_from(end).ok()) else {
            return false;
        };
        self.text.push_str(text);
        self.ends.push(end);
        true
    }

    /// The number of strings.
    pub const fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are no strings.
    pub const fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    /// The string at `index`.
    pub fn at(&self, index: usize) -> Option<&str> {
        let end = widen(*self.ends.get(index)?);
        let start = match index.checked_sub(1) {
            Some(before) => widen(*self.ends.get(before)?),
            None => 0,
        };
        self.text.get(start..end)
    }

    /// The strings in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        let mut start = 0;
        self.ends.iter().map(move |end| {
            let end = widen(*end);
            let piece = &self.text[start..end];
            start = end;
            piece
        })
    }
}

impl<'a> FromIterator<&'a str> for StringArray {
    /// Collects strings. Panics when all text passes 4 GiB, which no file within our limits has.
    fn from_iter<I: IntoIterator<Item = &'a str>>(strings: I) -> Self {
        let mut array = Self::default();
        for text in strings {
            assert!(array.push(text), "strings of one array pass 4 GiB");
        }
        array
    }
}

impl Metadata {
    /// Indexes entries by key. Errors with a doubled key and its first two positions.
    pub(crate) fn index(mut entries: Vec<Entry>) -> Result<Self, (String, usize, usize)> {
        match index_by(&entries, |entry| &entry.key) {
            Ok(by_key) => Ok(Self { entries, by_key }),
            Err((first, second)) => Err((entries.swap_remove(second).key, first, second)),
        }
    }

    /// All entries in file order.
    pub fn entries(&self) -> &[Entry] {
        &self.entries
    }

    /// The value of a key.
    pub fn value(&self, key: &str) -> Option<&Value> {
        find_by(&self.entries, &self.by_key, |entry| &entry.key, key).map(|entry| &entry.value)
    }

    /// The text of a key; `None` when absent or no string.
    pub fn text(&self, key: &str) -> Option<&str> {
        self.value(key).and_then(Value::as_text)
    }

    /// The number of a key; `None` when absent, negative or no integer.
    pub fn unsigned(&self, key: &str) -> Option<u64> {
        self.value(key).and_then(Value::as_unsigned)
    }
}

/// Sorts positions by name. Errors with two positions, in file order, that have the same name.
pub(crate) fn index_by<T>(
    items: &[T],
    name: impl Fn(&T) -> &str,
) -> Result<Vec<u32>, (usize, usize)> {
    let count = u32::try_from(items.len()).expect("because the limits keep counts below 2^32");
    let mut order: Vec<u32> = (0..count).collect();
    order.sort_unstable_by(|a, b| {
        let (a, b) = (widen(*a), widen(*b));
        name(&items[a]).cmp(name(&items[b])).then(a.cmp(&b))
    });
    let doubled = order
        .windows(2)
        .map(|pair| (widen(pair[0]), widen(pair[1])))
        .find(|(a, b)| name(&items[*a]) == name(&items[*b]));
    doubled.map_or(Ok(order), Err)
}

/// Finds an item by name in positions that `index_by` sorted.
pub(crate) fn find_by<'a, T>(
    items: &'a [T],
    order: &[u32],
    name: impl Fn(&T) -> &str,
    wanted: &str,
) -> Option<&'a T> {
    let position = order
        .binary_search_by(|index| name(&items[widen(*index)]).cmp(wanted))
        .ok()?;
    Some(&items[widen(order[position])])
}

fn widen(index: u32) -> usize {
    usize::try_from(index).expect("because supported targets have a usize of at least 32 bits")
}
