//! `inspect`: what is in a container, and what a stock CPU build packs of it.

use crate::answer::{Answer, Column, table};
use crate::failure::{Failure, quoted};
use crate::files::open_regular;
use packhouse_base::shown::Shown;
use packhouse_base::units;
use packhouse_container::gguf::Tensor;
use packhouse_container::{Container, FileSource, TensorDirectory, shard_name};
use packhouse_layout::stock_x86::{self, Features, Left};
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// One tensor and why it is left in file order, if it is.
struct Row<'a> {
    tensor: &'a Tensor,
    shard: usize,
    left: Option<Left>,
}

/// Counts of one group of tensors.
#[derive(Clone, Copy, Default)]
pub(crate) struct Sum {
    pub(crate) tensors: u64,
    pub(crate) bytes: u64,
}

/// Answers with the types of a container, or with its tensors one by one.
pub(crate) fn inspect(model: &Path, by_tensor: bool) -> Result<Answer, Failure> {
    let container = open(model)?;
    let architecture = container.metadata().text("general.architecture");
    let is_tied = stock_x86::is_tied(architecture, container.tensor("output.weight").is_some());
    let features = Features::detect();
    let rows: Vec<Row<'_>> = container
        .tensors()
        .map(|(shard, tensor)| {
            let (name, ty, dims) = (&tensor.name, tensor.ggml_type, &tensor.dims);
            let left = stock_x86::choose(name, ty, dims, is_tied, features).err();
            Row {
                tensor,
                shard,
                left,
            }
        })
        .collect();
    let mut text = header(model, &container);
    text += &if by_tensor {
        tensor_table(&rows)
    } else {
        type_table(&rows)
    };
    let packed = sum(rows.iter().filter(|row| row.left.is_none()));
    let all = sum(rows.iter());
    text += &format!(
        "\na stock CPU build here packs {} of {} tensors ({} of {}) at every start\n",
        packed.tensors,
        all.tensors,
        units::bytes(packed.bytes),
        units::bytes(all.bytes),
    );
    let json = document(model, &container, &rows, packed, all);
    Ok(Answer::done(text, json))
}

/// Opens a container with all its shards. Errors name the file and what in it is wrong.
pub(crate) fn open(model: &Path) -> Result<Container, Failure> {
    let mut shards = vec![directory(model)?];
    if shards[0].split().is_some_and(|split| split.count > 1) {
        let paths = shard_name::sibling_paths(model).map_err(|error| {
            Failure::new("cannot find the other shards of", model.display())
                .because(&error)
                .hint(format!(
                    "ls {}",
                    quoted(model.parent().unwrap_or(Path::new(".")))
                ))
        })?;
        shards = paths
            .iter()
            .map(|path| directory(path))
            .collect::<Result<_, _>>()?;
    }
    Container::new(shards).map_err(|error| {
        Failure::new("not the shards of one model", model.display())
            .because(&error)
            .hint(format!("sha256sum {}", quoted(model)))
    })
}

/// A model file that can't be opened or read.
pub(crate) fn unreadable(path: &Path, error: &std::io::Error) -> Failure {
    Failure::new("cannot open the model", path.display())
        .because(error)
        .hint(format!("ls -l {}", quoted(path)))
}

fn directory(path: &Path) -> Result<TensorDirectory, Failure> {
    let file = open_regular(path).map_err(|error| unreadable(path, &error))?;
    let source = FileSource::new(&file).map_err(|error| unreadable(path, &error))?;
    TensorDirectory::parse(&source).map_err(|error| {
        Failure::new("not a GGUF file that can be read", path.display())
            .because(&error)
            .hint(format!("sha256sum {}", quoted(path)))
    })
}

/// The first lines of every answer: the file and what it holds.
pub(crate) fn header(model: &Path, container: &Container) -> String {
    let architecture = container.metadata().value("general.architecture");
    let bytes: u64 = container
        .shards()
        .iter()
        .map(TensorDirectory::file_bytes)
        .sum();
    let shard_count = container.shards().len();
    let shards = if shard_count > 1 {
        format!(" in {shard_count} shards")
    } else {
        String::new()
    };
    format!(
        "{}: GGUF version {}, {}, {} tensors, {}{shards}\n\n",
        Shown(&model.display().to_string()),
        container.shards()[0].version(),
        Shown(
            architecture
                .and_then(|value| value.as_text())
                .unwrap_or("no architecture named")
        ),
        container.tensors().count(),
        units::bytes(bytes),
    )
}

fn type_table(rows: &[Row<'_>]) -> String {
    let mut groups: BTreeMap<(u32, String), (&str, Sum)> = BTreeMap::new();
    for row in rows {
        let ty = row.tensor.ggml_type;
        let verdict = row
            .left
            .as_ref()
            .map_or("packed".to_owned(), Left::to_string);
        let (_, sum) = groups
            .entry((ty.id(), verdict))
            .or_insert((ty.name(), Sum::default()));
        sum.add(row.tensor);
    }
    let columns = [Column::Left, Column::Right, Column::Right, Column::Left];
    let mut lines = vec![words(["type", "tensors", "bytes", "on a stock CPU build"])];
    lines.extend(groups.iter().map(|((_, verdict), (name, sum))| {
        words([
            *name,
            &sum.tensors.to_string(),
            &units::bytes(sum.bytes),
            verdict,
        ])
    }));
    table(&columns, &lines)
}

fn tensor_table(rows: &[Row<'_>]) -> String {
    let columns = [
        Column::Left,
        Column::Left,
        Column::Left,
        Column::Right,
        Column::Left,
    ];
    let mut lines = vec![words([
        "tensor",
        "type",
        "dims",
        "bytes",
        "on a stock CPU build",
    ])];
    lines.extend(rows.iter().map(|row| {
        let dims: Vec<String> = row.tensor.dims.iter().map(u64::to_string).collect();
        words([
            row.tensor.name.as_str(),
            row.tensor.ggml_type.name(),
            &dims.join("x"),
            &units::bytes(row.tensor.bytes),
            &row.left
                .as_ref()
                .map_or("packed".to_owned(), Left::to_string),
        ])
    }));
    table(&columns, &lines)
}

fn document(model: &Path, container: &Container, rows: &[Row<'_>], packed: Sum, all: Sum) -> Value {
    let tensors: Vec<Value> = rows
        .iter()
        .map(|row| {
            json!({
                "name": row.tensor.name,
                "type": row.tensor.ggml_type.name(),
                "dims": row.tensor.dims,
                "bytes": row.tensor.bytes,
                "offset": row.tensor.offset,
                "shard": row.shard,
                "packed": row.left.is_none(),
                "left_because": row.left.as_ref().map(Left::to_string),
            })
        })
        .collect();
    let shards = shard_documents(container);
    json!({
        "model": PathBuf::from(model).display().to_string(),
        "architecture": container.metadata().value("general.architecture")
            .and_then(|value| value.as_text()),
        "shards": shards,
        "tensor_count": all.tensors,
        "tensor_bytes": all.bytes,
        "packed_count": packed.tensors,
        "packed_bytes": packed.bytes,
        "tensors": tensors,
    })
}

/// The files of a container, for `--json`.
pub(crate) fn shard_documents(container: &Container) -> Vec<Value> {
    let shards = container.shards().iter();
    shards
        .map(|shard| {
            json!({
                "version": shard.version(),
                "bytes": shard.file_bytes(),
                "alignment": shard.alignment(),
                "directory_digest": shard.digest().to_string(),
            })
        })
        .collect()
}

impl Sum {
    /// Counts one more tensor.
    pub(crate) fn add(&mut self, tensor: &Tensor) {
        self.tensors += 1;
        self.bytes += tensor.bytes;
    }
}

fn sum<'a>(rows: impl Iterator<Item = &'a Row<'a>>) -> Sum {
    let mut sum = Sum::default();
    rows.for_each(|row| sum.add(row.tensor));
    sum
}

/// The cells of one row of a table.
pub(crate) fn words<const N: usize>(cells: [&str; N]) -> Vec<String> {
    cells.map(str::to_owned).to_vec()
}
