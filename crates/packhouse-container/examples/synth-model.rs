//! Writes a seeded synthetic model with the tokenizer of a real one:
//! `synth-model TEMPLATE.gguf OUT.gguf --gib 3.5 --type Q4_0 --seed 1`

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a program: it opens files, reads its arguments and prints"
)]

use packhouse_container::synth::{self, Spec, WeightType};
use packhouse_container::{FileSource, TensorDirectory};
use std::error::Error;
use std::fs::File;
use std::time::Instant;

struct Arguments {
    template: String,
    target: String,
    bytes: u64,
    weights: WeightType,
    seed: u64,
}

fn main() -> Result<(), Box<dyn Error>> {
    let arguments = parse_arguments(std::env::args().skip(1))?;
    let template = File::open(&arguments.template)?;
    let template = TensorDirectory::parse(&FileSource::new(&template)?)?;
    let spec = Spec::for_bytes(arguments.bytes, template.metadata(), arguments.weights)?;
    let mut target = File::create_new(&arguments.target)?;
    let start = Instant::now();
    synth::write(&spec, template.metadata(), arguments.seed, &mut target)?;
    let seconds = start.elapsed().as_secs_f64();
    let written = File::open(&arguments.target)?;
    let directory = TensorDirectory::parse(&FileSource::new(&written)?)?;
    let bytes = directory.file_bytes();
    println!("{spec:?}");
    println!(
        "{bytes} bytes in {seconds:.2} s, directory {}",
        directory.digest()
    );
    Ok(())
}

fn parse_arguments(mut words: impl Iterator<Item = String>) -> Result<Arguments, Box<dyn Error>> {
    const USAGE: &str = "synth-model TEMPLATE.gguf OUT.gguf --gib N --type NAME --seed N";
    let mut arguments = Arguments {
        template: words.next().ok_or(USAGE)?,
        target: words.next().ok_or(USAGE)?,
        bytes: 100_000_000,
        weights: WeightType::Q4_0,
        seed: 1,
    };
    while let Some(flag) = words.next() {
        let value = words.next().ok_or(USAGE)?;
        match flag.as_str() {
            "--gib" => arguments.bytes = (value.parse::<f64>()? * f64::from(1 << 30)) as u64,
            "--type" => arguments.weights = WeightType::from_name(&value).ok_or("unknown type")?,
            "--seed" => arguments.seed = value.parse()?,
            _ => return Err(USAGE.into()),
        }
    }
    Ok(arguments)
}
