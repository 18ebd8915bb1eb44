//! Fixtures that a bag carries: `docs/format/fixture.md`.
//!
//! A fixture can't be made again here. What it says is believed where its digest is the one that
//! the packet froze; a drawn one is the controller's word.

mod verdict;

use crate::bagit;
use crate::documents::forms::is_name;
use crate::json::{Json, Map};
use crate::messages::element_bytes;
use crate::report::Report;
use crate::shape::{Record, file, record, sha256};
use crate::tree::Tree;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// A fixture that was read whole.
#[derive(Clone, Debug)]
pub(crate) struct Fixture {
    /// Its id.
    pub(crate) id: String,
    /// Layout of its weights.
    pub(crate) layout: Json,
    /// Parameters but the seed.
    pub(crate) parameters: Map,
    /// The seed among its parameters.
    pub(crate) seed: Option<Json>,
    /// What is compared.
    pub(crate) boundaries: Vec<Boundary>,
    /// The cases.
    pub(crate) cases: Vec<Case>,
    tensors: BTreeMap<String, Tensor>,
}

/// One tensor with its bytes.
#[derive(Clone, Debug)]
pub(crate) struct Tensor {
    /// Element type.
    pub(crate) dtype: String,
    /// Shape, outermost first.
    pub(crate) shape: Vec<u64>,
    /// Digest of the bytes.
    pub(crate) sha256: String,
    /// The bytes.
    pub(crate) bytes: Arc<[u8]>,
}

/// A boundary whose form follows from the width.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Boundary {
    /// Its name.
    pub(crate) name: String,
    /// Its storage.
    pub(crate) storage: String,
    /// Element type.
    pub(crate) dtype: String,
    shape: Vec<Extent>,
    offset: Vec<Extent>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Extent {
    Fixed(u64),
    Widths(u64),
}

/// One width and arm.
#[derive(Clone, Debug)]
pub(crate) struct Case {
    /// Its width.
    pub(crate) width: u64,
    /// Its arm.
    pub(crate) arm: String,
    /// Role to tensor.
    pub(crate) inputs: BTreeMap<String, String>,
    expected: Vec<Expected>,
    near: Vec<Expected>,
}

#[derive(Clone, Debug)]
struct Expected {
    boundary: String,
    tensor: String,
    tolerance: Tolerance,
}

#[derive(Clone, Debug)]
enum Tolerance {
    BitEqual,
    Ulp(u64),
    Within(String),
}

impl Boundary {
    /// Returns shape, stride, offset in elements and bytes at a width; none where it is too large.
    pub(crate) fn at(&self, width: u64) -> Option<(Vec<u64>, Vec<u64>, u64, u64)> {
        let extents = |list: &[Extent]| -> Option<Vec<u64>> {
            let all = list.iter().map(|extent| match extent {
                Extent::Fixed(n) => Some(*n),
                Extent::Widths(n) => n.checked_mul(width),
            });
            all.collect()
        };
        let product = |list: &[u64]| {
            let mut all = list.iter();
            all.try_fold(1u64, |product, extent| product.checked_mul(*extent))
        };
        let shape = extents(&self.shape)?;
        let mut stride = vec![1; shape.len()];
        for axis in (1..shape.len()).rev() {
            stride[axis - 1] = shape[axis].checked_mul(stride[axis])?;
        }
        let offset = match self.offset.is_empty() {
            true => 0,
            false => product(&extents(&self.offset)?)?,
        };
        let bytes = product(&shape)?.checked_mul(element_bytes(&self.dtype))?;
        Some((shape, stride, offset, bytes))
    }
}

impl Fixture {
    /// Returns the case of a width and arm.
    pub(crate) fn case(&self, width: u64, arm: &str) -> Option<&Case> {
        let mut cases = self.cases.iter();
        cases.find(|case| case.width == width && case.arm == arm)
    }

    /// Returns a tensor by its name.
    pub(crate) fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.get(name)
    }

    /// Returns whether a boundary's bytes are near enough to what a case expects, every row of
    /// them.
    pub(crate) fn is_equal(&self, case: &Case, boundary: &str, is_near: bool, is: &[u8]) -> bool {
        let of = |list: &'_ [Expected]| -> Vec<Expected> {
            let all = list.iter().filter(|expected| expected.boundary == boundary);
            all.cloned().collect()
        };
        let mut choices = of(&case.expected);
        let near = of(&case.near);
        if is_near && !near.is_empty() {
            choices = near;
        }
        choices.iter().any(|expected| {
            let bound = match &expected.tolerance {
                Tolerance::Within(name) => self.tensors.get(name),
                Tolerance::BitEqual | Tolerance::Ulp(_) => None,
            };
            let tensor = self.tensors.get(&expected.tensor);
            tensor.is_some_and(|tensor| match (&expected.tolerance, bound) {
                (Tolerance::BitEqual, _) => *tensor.bytes == *is,
                (Tolerance::Ulp(most), _) => verdict::ulp(&tensor.dtype, &tensor.bytes, is, *most),
                (Tolerance::Within(_), Some(bound)) => {
                    bound.dtype == "f32"
                        && bound.shape == tensor.shape
                        && verdict::within(&tensor.dtype, &tensor.bytes, is, &bound.bytes)
                }
                (Tolerance::Within(_), None) => false,
            })
        })
    }
}

const DECLARATION: &[u8] = b"BagIt-Version: 1.0\nTag-File-Character-Encoding: UTF-8\n";
const FIELDS: [&str; 9] = [
    "schema",
    "id",
    "summary",
    "contract",
    "layout",
    "parameters",
    "tensors",
    "boundaries",
    "cases",
];

/// Reads the fixture in a folder of the payload, and holds every file against the fixture's own
/// lists.
pub(crate) fn read(report: &mut Report, payload: &Tree, folder: &str) -> Option<Fixture> {
    let is_whole = lists(report, payload, folder);
    let path = format!("{folder}/fixture.json");
    let value = record(report, payload, &path)?;
    let mut record = Record::new(report, path);
    let map = record.fields(&value, "", &FIELDS, &[])?;
    record.schema(map, "packhouse/fixture/1")?;
    for name in ["summary", "contract"] {
        record.text(map, name)?;
    }
    let mut parameters = record.object(map, "parameters")?.clone();
    let seed = parameters.remove("seed");
    let fixture = Fixture {
        seed,
        id: record.formed(map, "id", "a name", is_name)?,
        layout: map.get("layout")?.clone(),
        parameters,
        boundaries: boundaries(&mut record, map)?,
        cases: cases(&mut record, map)?,
        tensors: tensors(&mut record, map, payload, folder)?,
    };
    let is_judge = judges(&mut record, &fixture);
    (is_whole && is_judge).then_some(fixture)
}

/// Holds the files of a fixture against its lists.
fn lists(report: &mut Report, payload: &Tree, folder: &str) -> bool {
    let before = report.findings.len();
    let prefix = format!("{folder}/");
    let here = payload.keys().filter_map(|path| path.strip_prefix(&prefix));
    let mut left: BTreeSet<&str> = here.collect();
    let mut refuse = |name: &str, words: String| {
        report.find("fixture.digest", &format!("{folder}/{name}"), words);
    };
    let bytes = |name: &str| file(payload, &format!("{folder}/{name}")).map(|bytes| &**bytes);
    if bytes("bagit.txt") != Some(DECLARATION) {
        refuse("bagit.txt", "not the two lines of BagIt 1.0".to_owned());
    }
    for name in ["tagmanifest-sha256.txt", "manifest-sha256.txt"] {
        left.remove(name);
        let Some(list) = bytes(name).and_then(|bytes| bagit::list(bytes).ok()) else {
            refuse(name, "no list of digests".to_owned());
            continue;
        };
        let is_tags = name.starts_with("tag");
        let tags = ["bagit.txt", "fixture.json", "manifest-sha256.txt"];
        let is_form = match is_tags {
            true => list.keys().map(String::as_str).eq(tags),
            false => list.keys().all(|path| path.starts_with("data/")),
        };
        if !is_form {
            refuse(name, "lists what it should not".to_owned());
        }
        for (path, digest) in &list {
            left.remove(path.as_str());
            if bytes(path).map(sha256).as_ref() != Some(digest) {
                refuse(path, format!("is not {digest}, as {name} has it"));
            }
        }
    }
    for path in left {
        refuse(path, "is in no list".to_owned());
    }
    report.findings.len() == before
}

fn tensors(
    record: &mut Record<'_>,
    map: &Map,
    payload: &Tree,
    folder: &str,
) -> Option<BTreeMap<String, Tensor>> {
    let mut tensors = BTreeMap::new();
    for (name, value) in record.object(map, "tensors")? {
        let own = record.fields(value, name, &["dtype", "shape", "bytes", "sha256"], &[])?;
        let dtype = record.word(own, "dtype", &["u8", "i8", "i32", "f16", "bf16", "f32"])?;
        let shape = record.integers(own, "shape")?;
        let length = record.integer(own, "bytes")?;
        let digest = record.digest(own, "sha256")?;
        let elements = shape.iter().try_fold(1u64, |all, n| all.checked_mul(*n))?;
        let Some(bytes) = file(payload, &format!("{folder}/data/{name}")) else {
            record.find("fixture.digest", format!("the tensor {name} is not there"));
            return None;
        };
        let is_length = elements.checked_mul(element_bytes(&dtype)) == Some(length)
            && bytes.len() as u64 == length
            && length > 0;
        if !is_length || sha256(bytes) != digest {
            record.find("fixture.digest", format!("the tensor {name} is another"));
            return None;
        }
        let tensor = Tensor {
            dtype,
            shape,
            sha256: digest,
            bytes: Arc::clone(bytes),
        };
        tensors.insert(name.clone(), tensor);
    }
    Some(tensors)
}

fn extents(record: &mut Record<'_>, map: &Map, name: &str) -> Option<Vec<Extent>> {
    let mut extents = Vec::new();
    for item in record.list(map, name)? {
        let own = record.fields(item, name, &[], &["fixed", "widths"])?;
        if own.len() != 1 {
            record.find("record.type", format!("`{name}` has an extent of no kind"));
            return None;
        }
        extents.push(match own.contains_key("fixed") {
            true => Extent::Fixed(record.integer(own, "fixed")?),
            false => Extent::Widths(record.integer(own, "widths")?),
        });
    }
    Some(extents)
}

fn boundaries(record: &mut Record<'_>, map: &Map) -> Option<Vec<Boundary>> {
    let mut boundaries: Vec<Boundary> = Vec::new();
    for item in record.list(map, "boundaries")? {
        let fields = ["name", "storage", "dtype", "shape", "offset"];
        let own = record.fields(item, "boundaries", &fields, &[])?;
        let boundary = Boundary {
            name: record.formed(own, "name", "a name", is_name)?,
            storage: record.formed(own, "storage", "a name", is_name)?,
            dtype: record.word(own, "dtype", &["u8", "i8", "i32", "f16", "bf16", "f32"])?,
            shape: extents(record, own, "shape")?,
            offset: extents(record, own, "offset")?,
        };
        if boundaries.iter().any(|other| other.name == boundary.name) {
            record.find("record.type", format!("two boundaries {:?}", boundary.name));
            return None;
        }
        boundaries.push(boundary);
    }
    Some(boundaries)
}

fn cases(record: &mut Record<'_>, map: &Map) -> Option<Vec<Case>> {
    let fields = ["width", "arm", "inputs", "expected", "near", "edge_rows"];
    let mut cases: Vec<Case> = Vec::new();
    for item in record.list(map, "cases")? {
        let own = record.fields(item, "cases", &fields, &[])?;
        let by_role = record.object(own, "inputs")?;
        let mut inputs = BTreeMap::new();
        for role in by_role.keys() {
            inputs.insert(role.clone(), record.some_text(by_role, role)?);
        }
        for edge in record.list(own, "edge_rows")? {
            record.fields(edge, "edge_rows", &["of", "row", "label"], &[])?;
        }
        cases.push(Case {
            width: record.within(own, "width", 1, u64::MAX)?,
            arm: record.formed(own, "arm", "a name", is_name)?,
            inputs,
            expected: expected(record, own, "expected")?,
            near: expected(record, own, "near")?,
        });
    }
    Some(cases)
}

fn expected(record: &mut Record<'_>, map: &Map, name: &str) -> Option<Vec<Expected>> {
    let mut all = Vec::new();
    for item in record.list(map, name)? {
        let fields = ["boundary", "tensor", "tolerance", "why"];
        let own = record.fields(item, name, &fields, &[])?;
        record.text(own, "why")?;
        let value = own.get("tolerance")?;
        let tolerance = record.fields(value, "tolerance", &["kind"], &["max", "tensor"])?;
        let kind = record.word(tolerance, "kind", &["bit-equal", "ulp", "within"])?;
        let tolerance = match kind.as_str() {
            "bit-equal" => {
                record.fields(value, "tolerance", &["kind"], &[])?;
                Tolerance::BitEqual
            }
            "ulp" => {
                record.fields(value, "tolerance", &["kind", "max"], &[])?;
                Tolerance::Ulp(record.integer(tolerance, "max")?)
            }
            _ => {
                record.fields(value, "tolerance", &["kind", "tensor"], &[])?;
                Tolerance::Within(record.some_text(tolerance, "tensor")?)
            }
        };
        all.push(Expected {
            boundary: record.some_text(own, "boundary")?,
            tensor: record.some_text(own, "tensor")?,
            tolerance,
        });
    }
    Some(all)
}

/// Returns whether something can be judged by the fixture at all.
fn judges(record: &mut Record<'_>, fixture: &Fixture) -> bool {
    let mut used = BTreeSet::new();
    let mut is_good = !fixture.cases.is_empty() && !fixture.boundaries.is_empty();
    for case in &fixture.cases {
        used.extend(case.inputs.values());
        for expected in case.expected.iter().chain(&case.near) {
            used.insert(&expected.tensor);
            if let Tolerance::Within(name) = &expected.tolerance {
                used.insert(name);
            }
        }
        let names = case.expected.iter().map(|expected| &expected.boundary);
        let is_in_order = names.eq(fixture.boundaries.iter().map(|boundary| &boundary.name));
        let is_formed = case.expected.iter().chain(&case.near).all(|expected| {
            let mut own = fixture.boundaries.iter();
            let boundary = own.find(|boundary| boundary.name == expected.boundary);
            let form = boundary.and_then(|boundary| boundary.at(case.width));
            let tensor = fixture.tensors.get(&expected.tensor);
            boundary
                .zip(form)
                .zip(tensor)
                .is_some_and(|((boundary, form), tensor)| {
                    tensor.dtype == boundary.dtype && tensor.shape == form.0
                })
        });
        is_good &= is_in_order && is_formed && !case.inputs.is_empty();
    }
    is_good &= used.into_iter().eq(fixture.tensors.keys());
    if !is_good {
        let words = "no case, boundary or input; or tensors that no case has, or of another form";
        record.find("record.type", words);
    }
    is_good
}
