//! Prints the directory of GGUF files; the files given in order are the shards of one model.

#![forbid(unsafe_code)]
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_macros,
    reason = "an example is a program: it opens files, reads its arguments and prints"
)]

use packhouse_container::{Container, FileSource, TensorDirectory};
use std::fs::File;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut shards = Vec::new();
    for path in std::env::args_os().skip(1) {
        let file = File::open(&path)?;
        let start = std::time::Instant::now();
        let directory = TensorDirectory::parse(&FileSource::new(&file)?)?;
        let took = start.elapsed();
        let bytes: u64 = directory.tensors().iter().map(|tensor| tensor.bytes).sum();
        println!(
            "{}: version {} alignment {} keys {} tensors {} tensor bytes {bytes} data at {} of {} \
             digest {} parsed in {} us",
            path.display(),
            directory.version(),
            directory.alignment(),
            directory.metadata().entries().len(),
            directory.tensors().len(),
            directory.data_offset(),
            directory.file_bytes(),
            directory.digest(),
            took.as_micros()
        );
        shards.push(directory);
    }
    let container = Container::new(shards)?;
    println!("{} tensors", container.tensors().count());
    Ok(())
}
