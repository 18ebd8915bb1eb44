//! What can be wrong with an answer: one reason each.

use packhouse_base::Blame;
use packhouse_base::digest::Digest;

/// One fault of an answer.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Fault {
    /// The answer is to another case.
    #[error("answers case {actual}, asked was case {expected}")]
    Index {
        /// The case that was asked.
        expected: u64,
        /// The case that the answer names.
        actual: u64,
    },
    /// No path says that it ran.
    #[error("no witness of execution")]
    NoWitness,
    /// The program said that it tells the capture state, and does not.
    #[error("capture state unknown, though the program said that it tells it")]
    CaptureNotSaid,
    /// The program said that it can't tell the capture state, and does.
    #[error("capture state told, though the program said that it can't")]
    CaptureNotOffered,
    /// Cycles were asked for, and the answer says no time.
    #[error("timed: absent, though cycles were asked for")]
    NotTimed,
    /// No cycles were asked for, and the answer says a time.
    #[error("timed: there, though no cycles were asked for")]
    TimedUnasked,
    /// Another number of cycles was timed.
    #[error("timed: {actual} cycles, asked were {expected}")]
    Cycles {
        /// In the case.
        expected: u64,
        /// In the answer.
        actual: u64,
    },
    /// The time is longer than the driver waited for the answer.
    #[error("timed: {elapsed_ns} ns, but the answer came after {span_ns} ns")]
    TimedLonger {
        /// In the answer.
        elapsed_ns: u64,
        /// By the driver's clock.
        span_ns: u64,
    },
    /// Fewer bytes were poisoned than the storages have.
    #[error("witness poison: {} bytes, the storages have {expected}", counted(.actual))]
    Poison {
        /// Bytes of all storages of the case.
        expected: u64,
        /// As counted; none where nothing was counted.
        actual: Option<u64>,
    },
    /// A boundary of the case has no record.
    #[error("boundary {boundary}: missing")]
    Missing {
        /// The boundary.
        boundary: String,
    },
    /// A record is of no boundary of the case.
    #[error("boundary {boundary}: not one of the case's")]
    Invented {
        /// What it calls itself.
        boundary: String,
    },
    /// A boundary has more than one record.
    #[error("boundary {boundary}: recorded twice")]
    Twice {
        /// The boundary.
        boundary: String,
    },
    /// Another element type.
    #[error("boundary {boundary}: dtype {actual}, expected {expected}")]
    Dtype {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: &'static str,
        /// In the record.
        actual: &'static str,
    },
    /// Another shape.
    #[error("boundary {boundary}: shape {actual:?}, expected {expected:?}")]
    Shape {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: Vec<u64>,
        /// In the record.
        actual: Vec<u64>,
    },
    /// Another stride.
    #[error("boundary {boundary}: stride {actual:?}, expected {expected:?}")]
    Stride {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: Vec<u64>,
        /// In the record.
        actual: Vec<u64>,
    },
    /// Another offset in its storage.
    #[error("boundary {boundary}: storage offset {actual}, expected {expected}")]
    Offset {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: u64,
        /// In the record.
        actual: u64,
    },
    /// Another size.
    #[error("boundary {boundary}: {actual} bytes, expected {expected}")]
    Bytes {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: u64,
        /// In the record.
        actual: u64,
    },
    /// On another device.
    #[error("boundary {boundary}: on device {actual}, asked was {expected}")]
    Device {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: String,
        /// In the record.
        actual: String,
    },
    /// In another file.
    #[error("boundary {boundary}: in file {actual}, asked was {expected}")]
    FileName {
        /// The boundary.
        boundary: String,
        /// From the case.
        expected: String,
        /// In the record.
        actual: String,
    },
    /// The digest is not that of the file.
    #[error("boundary {boundary}: SHA-256 {claimed} claimed, its file has {actual}")]
    Digest {
        /// The boundary.
        boundary: String,
        /// In the record.
        claimed: Digest,
        /// Computed from the file.
        actual: Digest,
    },
    /// A boundary's file is not there.
    #[error("output {file}: absent")]
    FileAbsent {
        /// The file.
        file: String,
    },
    /// A boundary's file has no bytes.
    #[error("output {file}: 0 bytes")]
    FileEmpty {
        /// The file.
        file: String,
    },
    /// A boundary's file has another length.
    #[error("output {file}: {actual} bytes, expected {expected}")]
    FileLength {
        /// The file.
        file: String,
        /// From the case.
        expected: u64,
        /// Its length.
        actual: u64,
    },
    /// A boundary's file is no regular file of its own.
    #[error("output {file}: {kind}, expected a new file")]
    FileKind {
        /// The file.
        file: String,
        /// What it is.
        kind: &'static str,
    },
    /// There is a file that nobody asked for.
    #[error("output {file}: nobody asked for it")]
    FileExtra {
        /// The file.
        file: String,
    },
    /// A file was there before its case was sent.
    #[error("output {file}: there before its case was asked")]
    FileEarly {
        /// The file.
        file: String,
    },
    /// An input of the case has no record.
    #[error("input {role}: missing")]
    InputMissing {
        /// Its role.
        role: String,
    },
    /// A record is of no input of the case.
    #[error("input {role}: not one of the case's")]
    InputInvented {
        /// The role that it claims.
        role: String,
    },
    /// The program's own copy of an input is another one after the run.
    #[error("input {role}: SHA-256 {actual} after the run, was {expected}")]
    InputDigest {
        /// Its role.
        role: String,
        /// From the case.
        expected: Digest,
        /// In the record.
        actual: Digest,
    },
    /// An input's file is another one after the run, or gone.
    #[error("input {role}: its file {file} was changed")]
    InputChanged {
        /// Its role.
        role: String,
        /// Its file.
        file: String,
    },
    /// There is a file in the inputs' folder that the driver did not put there.
    #[error("inputs' folder: {file}: the driver did not put it there")]
    InputExtra {
        /// The file.
        file: String,
    },
    /// An interval is empty, at address 0, of another length than the tensor, or begins before its
    /// storage could.
    #[error("{tensor}: at {start:#x} to {end:#x}, which is no place for {bytes} bytes")]
    Interval {
        /// `boundary NAME` or `input ROLE`.
        tensor: String,
        /// In the record.
        start: u64,
        /// In the record.
        end: u64,
        /// From the case.
        bytes: u64,
    },
    /// Two boundaries of one storage have different bases.
    #[error("{tensor} and {other}: one storage, but bases {base:#x} and {other_base:#x}")]
    Base {
        /// `boundary NAME`.
        tensor: String,
        /// Its storage's first address, by its offset.
        base: u64,
        /// `boundary NAME`.
        other: String,
        /// That storage's first address, by the other's offset.
        other_base: u64,
    },
    /// Two tensors that are not of one storage share bytes.
    #[error("{tensor} and {other}: share the bytes {start:#x} to {end:#x}")]
    Overlap {
        /// `boundary NAME` or `input ROLE`.
        tensor: String,
        /// As above.
        other: String,
        /// First shared address.
        start: u64,
        /// Address behind the last shared one.
        end: u64,
    },
}

impl Fault {
    /// Says whose side the failure is on.
    pub fn blame(&self) -> Blame {
        Blame::Source
    }
}

/// A count, or that there is none.
fn counted(count: &Option<u64>) -> String {
    count.map_or_else(|| "no".to_owned(), |count| count.to_string())
}
