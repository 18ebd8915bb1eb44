//! A second, tiny GGUF parser, written apart from the first: over a slice, with `Option`, in u128,
//! with tables of its own. It only says whether a file is accepted, and what its directory is.
//!
//! `compare` is the oracle of the differential tests and of the fuzz target. `Mutant` makes this
//! parser wrong on purpose: a differential that can't tell a mutant from the original proves
//! nothing.

use packhouse_container::gguf::{Draft, TensorDirectory};

/// What the second parser says of a file that it accepts.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Model {
    version: u32,
    alignment: u128,
    data_offset: u128,
    metadata_end: usize,
    tensors: Vec<(String, u32, Vec<u64>, u128, u128)>,
    split: Option<(u16, u16, u32)>,
}

/// A way to be wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mutant {
    AllowsHoles,
    AllowsOverlap,
    AllowsTrailing,
    AllowsPastEnd,
    AllowsNestedArrays,
    AllowsAnyBool,
    AllowsNul,
    AllowsAnyText,
    AllowsEmptyNames,
    AllowsDoubledKeys,
    AllowsDoubledTensors,
    AllowsLongNames,
    AllowsRaggedRows,
    AllowsAnyAlignment,
    AllowsFiveDims,
    AllowsAnySplit,
    WrapsSizes,
    RefusesZeroDims,
    RefusesVersion2,
    ForgetsPadding,
    ConfusesTypeSize,
}

impl Mutant {
    pub(crate) const ALL: [Self; 21] = [
        Self::AllowsHoles,
        Self::AllowsOverlap,
        Self::AllowsTrailing,
        Self::AllowsPastEnd,
        Self::AllowsNestedArrays,
        Self::AllowsAnyBool,
        Self::AllowsNul,
        Self::AllowsAnyText,
        Self::AllowsEmptyNames,
        Self::AllowsDoubledKeys,
        Self::AllowsDoubledTensors,
        Self::AllowsLongNames,
        Self::AllowsRaggedRows,
        Self::AllowsAnyAlignment,
        Self::AllowsFiveDims,
        Self::AllowsAnySplit,
        Self::WrapsSizes,
        Self::RefusesZeroDims,
        Self::RefusesVersion2,
        Self::ForgetsPadding,
        Self::ConfusesTypeSize,
    ];
}

/// Compares the crate's parser with this one on a file: whether both accept it, or how they
/// disagree.
pub(crate) fn compare(file: &[u8], mutant: Option<Mutant>) -> Result<bool, String> {
    let ours = TensorDirectory::parse(&file);
    let theirs = parse(file, mutant);
    match (ours, theirs) {
        (Err(_), None) => Ok(false),
        (Ok(_), None) => Err("only the crate accepts it".into()),
        (Err(error), Some(_)) => Err(format!("only the oracle accepts it: {error}")),
        (Ok(ours), Some(theirs)) => {
            let seen = view(&ours, theirs.metadata_end);
            if seen != theirs {
                return Err(format!("{seen:?} is not {theirs:?}"));
            }
            let draft = Draft {
                metadata: ours.metadata().entries().to_vec(),
                tensors: Vec::new(),
            };
            let written = draft.begin(Vec::new()).and_then(|writer| writer.finish());
            let written = written.expect("because a parsed alignment can be written");
            let same = written.get(16..theirs.metadata_end) == file.get(16..theirs.metadata_end);
            same.then_some(true)
                .ok_or_else(|| "metadata written again has other bytes".into())
        }
    }
}

fn view(directory: &TensorDirectory, metadata_end: usize) -> Model {
    let split = directory.split();
    let tensors = directory.tensors().iter().map(|t| {
        let (offset, bytes) = (u128::from(t.offset), u128::from(t.bytes));
        assert_eq!(
            directory.tensor(&t.name),
            Some(t),
            "a tensor is found by its name"
        );
        (
            t.name.clone(),
            t.ggml_type.id(),
            t.dims.clone(),
            offset,
            bytes,
        )
    });
    Model {
        version: directory.version(),
        alignment: directory.alignment().into(),
        data_offset: directory.data_offset().into(),
        metadata_end,
        tensors: tensors.collect(),
        split: split.map(|s| (s.no, s.count, s.tensors_count)),
    }
}

/// A file, how far it was read, and how to be wrong.
struct Bytes<'a> {
    file: &'a [u8],
    at: usize,
    mutant: Option<Mutant>,
}

/// Parses a file; `None` when it is refused.
pub(crate) fn parse(file: &[u8], mutant: Option<Mutant>) -> Option<Model> {
    let is = |m| mutant == Some(m);
    let mut b = Bytes {
        file,
        at: 0,
        mutant,
    };
    let version = (b.some(4)? == b"GGUF").then(|| b.number(4)).flatten()?;
    let wanted = version == 3 || version == 2 && !is(Mutant::RefusesVersion2);
    let (tensors, keys) = wanted
        .then(|| Some((b.number(8)?, b.number(8)?)))
        .flatten()?;
    if tensors > 1 << 20 || keys > 1 << 16 {
        return None;
    }
    let (mut names, mut alignment, mut split) = (Vec::new(), 32, [None; 3]);
    for _ in 0..keys {
        let key = b.name(65_535)?;
        let (kind, start) = (b.number(4)?, b.at);
        b.skip_value(kind)?;
        let mut value = [0; 16];
        let bytes = &file[start..b.at.min(start + 8)];
        value[..bytes.len()].copy_from_slice(bytes);
        let value = u128::from_le_bytes(value);
        match key {
            b"general.alignment" if kind == 4 => alignment = value,
            b"general.alignment" => return None,
            b"split.no" => split[0] = Some((kind == 2).then_some(value)?),
            b"split.count" => split[1] = Some((kind == 2).then_some(value)?),
            b"split.tensors.count" => split[2] = Some((kind == 5).then_some(value)?),
            _ => {}
        }
        names.push(key);
    }
    if doubled(names) && !is(Mutant::AllowsDoubledKeys) {
        return None;
    }
    if !(0..=20).any(|bit| alignment == 1 << bit) && !(is(Mutant::AllowsAnyAlignment)) {
        return None;
    }
    let alignment = alignment.max(1);
    let metadata_end = b.at;
    let entries: Vec<_> = (0..tensors).map(|_| b.entry()).collect::<Option<_>>()?;
    if doubled(entries.iter().map(|e| e.0.as_bytes()).collect())
        && !is(Mutant::AllowsDoubledTensors)
    {
        return None;
    }
    let tensors = b.place(entries, alignment)?;
    Some(Model {
        version: u32::try_from(version).ok()?,
        alignment,
        data_offset: up(b.at as u128, alignment),
        metadata_end,
        split: split_of(split, tensors.len() as u128, mutant)?,
        tensors,
    })
}

type Entry = (String, u32, Vec<u64>, u128, u128);

impl<'a> Bytes<'a> {
    fn is(&self, mutant: Mutant) -> bool {
        self.mutant == Some(mutant)
    }

    fn some(&mut self, count: u128) -> Option<&'a [u8]> {
        let end = usize::try_from(self.at as u128 + count).ok()?;
        let bytes = self.file.get(self.at..end)?;
        self.at = (end <= 256 << 20).then_some(end)?;
        Some(bytes)
    }

    fn number(&mut self, width: u128) -> Option<u128> {
        let bytes = self.some(width)?.iter().rev();
        Some(bytes.fold(0, |value, byte| value << 8 | u128::from(*byte)))
    }

    fn text(&mut self, limit: u128) -> Option<&'a [u8]> {
        let length = self.number(8)?;
        let bytes = (length <= limit).then(|| self.some(length)).flatten()?;
        let valid = std::str::from_utf8(bytes).is_ok() || self.is(Mutant::AllowsAnyText);
        valid.then_some(bytes)
    }

    fn name(&mut self, limit: u128) -> Option<&'a [u8]> {
        let name = self.text(limit)?;
        let empty = name.is_empty() && !self.is(Mutant::AllowsEmptyNames);
        let nul = name.contains(&0) && !self.is(Mutant::AllowsNul);
        (!empty && !nul).then_some(name)
    }

    fn skip_value(&mut self, kind: u128) -> Option<()> {
        match kind {
            8 => {
                let text = self.text(64 << 20)?;
                (!text.contains(&0) || self.is(Mutant::AllowsNul)).then_some(())
            }
            9 => {
                let (element, count) = (self.number(4)?, self.number(8)?);
                let width = [1, 1, 2, 2, 4, 4, 4, 1, 8, 12, 8, 8, 8];
                let width = width.get(usize::try_from(element).ok()?)?;
                if count > 1 << 26 || count * width > (self.file.len() - self.at) as u128 {
                    return None;
                }
                if element == 9 && !self.is(Mutant::AllowsNestedArrays) {
                    return None;
                }
                (0..count).try_for_each(|_| match element {
                    8 => self.text(64 << 20).map(drop),
                    9 => self.some(12).map(drop),
                    _ => self.skip_value(element),
                })
            }
            7 => {
                let value = self.number(1)?;
                (value < 2 || self.is(Mutant::AllowsAnyBool)).then_some(())
            }
            0 | 1 => self.some(1).map(drop),
            2 | 3 => self.some(2).map(drop),
            4..=6 => self.some(4).map(drop),
            10..=12 => self.some(8).map(drop),
            _ => None,
        }
    }

    /// Name, type, dims, data offset, bytes.
    fn entry(&mut self) -> Option<Entry> {
        let long = self.is(Mutant::AllowsLongNames);
        let name = self.name(if long { 64 } else { 63 })?;
        let count = self.number(4)?;
        if count > 4 && !(count == 5 && self.is(Mutant::AllowsFiveDims)) {
            return None;
        }
        let mut dims = (0..count).map(|_| u64::try_from(self.number(8)?).ok());
        let mut dims = dims.by_ref().collect::<Option<Vec<_>>>()?;
        if dims.is_empty() {
            dims = vec![1];
        }
        let kind = u32::try_from(self.number(4)?).ok()?;
        let (block, block_bytes) = block_of(kind)?;
        let block_bytes = block_bytes + u128::from(self.is(Mutant::ConfusesTypeSize) && kind == 1);
        let offset = self.number(8)?;
        let mut elements = 1u128;
        for dim in &dims {
            elements = elements.checked_mul(u128::from(*dim))?;
            let fits = *dim < 1 << 63 && elements < 1 << 63 || self.is(Mutant::WrapsSizes);
            let zero = *dim == 0 && self.is(Mutant::RefusesZeroDims);
            // Bytes of the leading dims must fit in u64 even when a later dim is 0.
            let bytes = elements / block * block_bytes;
            if !fits || zero || bytes >= 1 << 64 && !self.is(Mutant::WrapsSizes) {
                return None;
            }
        }
        let bytes = elements / block * block_bytes;
        let bytes = if self.is(Mutant::WrapsSizes) {
            bytes & u128::from(u64::MAX)
        } else {
            (bytes < 1 << 63).then_some(bytes)?
        };
        let ragged = u128::from(dims[0]) % block != 0 && !self.is(Mutant::AllowsRaggedRows);
        let name = String::from_utf8_lossy(name).into_owned();
        (!ragged).then_some((name, kind, dims, offset, bytes))
    }

    /// Proves that data offsets follow each other inside the file, and makes them file offsets.
    fn place(&self, mut entries: Vec<Entry>, alignment: u128) -> Option<Vec<Entry>> {
        let start = up(self.at as u128, alignment);
        let mut next = 0;
        let mut end = self.at as u128;
        for (_, _, _, offset, bytes) in &mut entries {
            let hole = *offset > next && !self.is(Mutant::AllowsHoles);
            let overlap = *offset < next && !self.is(Mutant::AllowsOverlap);
            if hole || overlap || *offset % alignment != 0 {
                return None;
            }
            let forgets = self.is(Mutant::ForgetsPadding);
            next = *offset
                + if forgets {
                    *bytes
                } else {
                    up(*bytes, alignment)
                };
            *offset += start;
            end = *offset + *bytes;
            if end > self.file.len() as u128 && !self.is(Mutant::AllowsPastEnd) {
                return None;
            }
        }
        let trailing = self.file.len() as u128 > up(end, alignment);
        (!trailing || self.is(Mutant::AllowsTrailing)).then_some(entries)
    }
}

fn up(value: u128, alignment: u128) -> u128 {
    value.div_ceil(alignment) * alignment
}

fn doubled(mut names: Vec<&[u8]>) -> bool {
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    names.len() != count
}

#[expect(
    clippy::option_option,
    reason = "outside: refused or not; inside: split or not"
)]
fn split_of(
    [no, count, total]: [Option<u128>; 3],
    tensors: u128,
    mutant: Option<Mutant>,
) -> Option<Option<(u16, u16, u32)>> {
    // Values come with the bytes of the file that follow cut off by their types' widths.
    let Some(count) = count.filter(|count| *count > 0) else {
        return Some(None);
    };
    let (no, total) = (no?, total?);
    let valid = no < count && count <= 4096 && total < 1 << 31 && tensors <= total;
    (valid || mutant == Some(Mutant::AllowsAnySplit)).then_some(Some((
        u16::try_from(no).ok()?,
        u16::try_from(count).ok()?,
        u32::try_from(total).ok()?,
    )))
}

/// Elements and bytes of a block, from `ggml_blck_size` and `ggml_type_size` of ggml 0.26.0.
fn block_of(kind: u32) -> Option<(u128, u128)> {
    Some(match kind {
        24 => (1, 1),
        1 | 25 | 30 => (1, 2),
        0 | 26 => (1, 4),
        27 | 28 => (1, 8),
        2 | 20 => (32, 18),
        3 => (32, 20),
        6 => (32, 22),
        7 => (32, 24),
        8 => (32, 34),
        9 => (32, 36),
        39 => (32, 17),
        40 => (64, 36),
        42 => (64, 18),
        41 => (128, 18),
        19 => (256, 50),
        34 => (256, 54),
        29 => (256, 56),
        16 | 35 => (256, 66),
        17 => (256, 74),
        22 => (256, 82),
        10 => (256, 84),
        18 => (256, 98),
        11 | 21 => (256, 110),
        23 => (256, 136),
        12 => (256, 144),
        13 => (256, 176),
        14 => (256, 210),
        15 => (256, 292),
        _ => return None,
    })
}
