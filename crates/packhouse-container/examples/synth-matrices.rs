//! Writes a GGUF file of named tensors with seeded random bytes, for trying plans at full size:
//! `synth-matrices OUT.gguf ARCHITECTURE SEED < LIST`, with a line `NAME TYPE NE0 NE1` per tensor.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a program: it opens files, reads its arguments and prints"
)]

use packhouse_base::ggml_type::GgmlType;
use packhouse_container::Value;
use packhouse_container::gguf::{Draft, DraftTensor, Entry};
use std::error::Error;
use std::fs::File;
use std::io::{BufWriter, Read as _};

fn main() -> Result<(), Box<dyn Error>> {
    const USAGE: &str = "synth-matrices OUT.gguf ARCHITECTURE SEED < LIST";
    let mut words = std::env::args().skip(1);
    let target = words.next().ok_or(USAGE)?;
    let architecture = words.next().ok_or(USAGE)?;
    let mut state: u64 = words.next().ok_or(USAGE)?.parse()?;
    let mut list = String::new();
    std::io::stdin().read_to_string(&mut list)?;
    let draft = Draft {
        metadata: vec![Entry {
            key: "general.architecture".to_owned(),
            value: Value::String(architecture),
        }],
        tensors: list.lines().map(tensor).collect::<Result<_, _>>()?,
    };
    let mut left = draft.file_bytes()?;
    println!("{left} bytes");
    let sizes: Vec<u64> = draft
        .tensors
        .iter()
        .filter_map(|tensor| tensor.ggml_type.tensor_bytes(&tensor.dims))
        .collect();
    let mut writer = draft.begin(BufWriter::new(File::create_new(target)?))?;
    let mut piece = vec![0; PIECE_BYTES];
    for size in sizes {
        left = size;
        while left > 0 {
            let count = usize::try_from(left)
                .unwrap_or(PIECE_BYTES)
                .min(PIECE_BYTES);
            for word in piece[..count].chunks_mut(8) {
                // xorshift64 (Marsaglia, 2003).
                state ^= state << 13;
                state ^= state >> 7;
                state ^= state << 17;
                word.copy_from_slice(&state.to_le_bytes()[..word.len()]);
            }
            writer.put(&piece[..count])?;
            left -= u64::try_from(count)?;
        }
    }
    writer.finish()?;
    Ok(())
}

fn tensor(line: &str) -> Result<DraftTensor, Box<dyn Error>> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let [name, ty, columns, rows] = words[..] else {
        return Err(format!("not NAME TYPE NE0 NE1: {line:?}").into());
    };
    Ok(DraftTensor {
        name: name.to_owned(),
        ggml_type: GgmlType::from_name(ty).ok_or_else(|| format!("unknown type: {ty}"))?,
        dims: vec![columns.parse()?, rows.parse()?],
    })
}

const PIECE_BYTES: usize = 1 << 20;
