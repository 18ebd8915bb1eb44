//! Bytes to messages.

use super::{
    Answer, Capture, CaseOrder, Declined, Greeting, InputFile, InputRecord, Introduction, Offer,
    Reply, Request, TensorRecord, Timed, Wanted, Witness,
};
use crate::fields::{Fields, MessageError};
use crate::name::{is_device, is_lasting_device, is_name};
use crate::{Dtype, Form};

impl Request {
    /// Reads a driver's message.
    ///
    /// # Errors
    /// On anything but one of the messages, with every field and no other.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut fields = Fields::parse(bytes)?;
        let kind = fields.one_of("type", "hello, case or bye", RequestKind::from_id)?;
        let request = match kind {
            RequestKind::Hello => Self::Hello(greeting(&mut fields)?),
            RequestKind::Case => Self::Case(case(&mut fields)?),
            RequestKind::Bye => Self::Bye,
        };
        fields.finish()?;
        Ok(request)
    }
}

impl Reply {
    /// Reads a program's message.
    ///
    /// # Errors
    /// On anything but one of the messages, with every field and no other.
    pub fn parse(bytes: &[u8]) -> Result<Self, MessageError> {
        let mut fields = Fields::parse(bytes)?;
        let kind = fields.one_of("type", "hello, answer or declined", ReplyKind::from_id)?;
        let reply = match kind {
            ReplyKind::Hello => Self::Hello(introduction(&mut fields)?),
            ReplyKind::Answer => Self::Answer(answer(&mut fields)?),
            ReplyKind::Declined => Self::Declined(Declined {
                index: fields.integer("index")?,
                reason: fields.text("reason")?,
            }),
        };
        fields.finish()?;
        Ok(reply)
    }
}

enum RequestKind {
    Hello,
    Case,
    Bye,
}

impl RequestKind {
    fn from_id(id: &str) -> Option<Self> {
        match id {
            "hello" => Some(Self::Hello),
            "case" => Some(Self::Case),
            "bye" => Some(Self::Bye),
            _ => None,
        }
    }
}

enum ReplyKind {
    Hello,
    Answer,
    Declined,
}

impl ReplyKind {
    fn from_id(id: &str) -> Option<Self> {
        match id {
            "hello" => Some(Self::Hello),
            "answer" => Some(Self::Answer),
            "declined" => Some(Self::Declined),
            _ => None,
        }
    }
}

fn greeting(fields: &mut Fields) -> Result<Greeting, MessageError> {
    let is_absolute = |text: &str| text.starts_with('/');
    Ok(Greeting {
        protocol: fields.text("protocol")?,
        challenge: fields.digest("challenge")?,
        inputs: fields.word("inputs", ABSOLUTE, is_absolute)?,
        outputs: fields.word("outputs", ABSOLUTE, is_absolute)?,
    })
}

fn introduction(fields: &mut Fields) -> Result<Introduction, MessageError> {
    let is_title = |text: &str| (1..=TITLE_CHARS_MAX).contains(&text.chars().count());
    fields.at_most("kernels", KERNELS_MAX)?;
    fields.at_most("devices", OFFERS_MAX)?;
    let kernels = fields.objects("kernels", offer)?;
    let fixtures = kernels.iter().map(|kernel| &kernel.fixture).collect();
    fields.distinct("kernels", fixtures)?;
    Ok(Introduction {
        protocol: fields.text("protocol")?,
        challenge: fields.digest("challenge")?,
        name: fields.word("name", TITLE, is_title)?,
        version: fields.word("version", TITLE, is_title)?,
        kernels,
        devices: fields.words("devices", LASTING, is_lasting_device)?,
        says_capture: fields.boolean("says_capture")?,
        denies: fields.optional_words("denies", NAME, is_name)?,
        times: fields.optional_true("times")?,
        poisons: fields.optional_true("poisons")?,
    })
}

fn offer(fields: &mut Fields) -> Result<Offer, MessageError> {
    fields.at_most("arms", OFFERS_MAX)?;
    fields.at_most("widths", OFFERS_MAX)?;
    let widths = fields.integers("widths")?;
    if widths.contains(&0) {
        return Err(fields.wrong_integer("widths", WIDTHS, 0));
    }
    Ok(Offer {
        fixture: fields.word("fixture", NAME, is_name)?,
        arms: fields.words("arms", NAME, is_name)?,
        widths: fields.distinct("widths", widths)?,
    })
}

fn case(fields: &mut Fields) -> Result<CaseOrder, MessageError> {
    let boundaries = fields.objects("boundaries", wanted)?;
    let names = boundaries.iter().map(|wanted| &wanted.name).collect();
    fields.distinct("boundaries", names)?;
    Ok(CaseOrder {
        index: fields.integer("index")?,
        fixture: fields.word("fixture", NAME, is_name)?,
        layout: fields.optional_word("layout", "a plain name or null", is_name)?,
        device: fields.word("device", DEVICE, is_device)?,
        arm: fields.word("arm", NAME, is_name)?,
        width: fields.integer("width")?,
        repeat: fields.integer("repeat")?,
        parameters: fields.integer_map("parameters")?,
        inputs: fields.object_map("inputs", input_file)?,
        boundaries,
        poison: fields.optional_integer("poison", BYTE, |value| u8::try_from(value).ok())?,
        cycles: fields.optional_integer("cycles", CYCLES, at_least_one)?,
    })
}

fn input_file(fields: &mut Fields) -> Result<InputFile, MessageError> {
    Ok(InputFile {
        file: fields.word("file", NAME, is_name)?,
        dtype: fields.one_of("dtype", DTYPE, Dtype::from_id)?,
        shape: fields.integers("shape")?,
        bytes: fields.integer("bytes")?,
        sha256: fields.digest("sha256")?,
    })
}

fn wanted(fields: &mut Fields) -> Result<Wanted, MessageError> {
    Ok(Wanted {
        name: fields.word("name", NAME, is_name)?,
        storage: fields.word("storage", NAME, is_name)?,
        file: fields.word("file", NAME, is_name)?,
        form: Form {
            dtype: fields.one_of("dtype", DTYPE, Dtype::from_id)?,
            shape: fields.integers("shape")?,
            stride: fields.integers("stride")?,
            storage_offset: fields.integer("storage_offset")?,
            bytes: fields.integer("bytes")?,
        },
    })
}

fn answer(fields: &mut Fields) -> Result<Answer, MessageError> {
    Ok(Answer {
        index: fields.integer("index")?,
        boundaries: fields.objects("boundaries", tensor_record)?,
        inputs: fields.object_map("inputs", input_record)?,
        witnesses: fields.objects("witnesses", witness)?,
        capture: fields.one_of("capture", "unknown, idle or capturing", Capture::from_id)?,
        warnings: fields.texts("warnings")?,
        timed: fields.optional_object("timed", timed)?,
    })
}

fn timed(fields: &mut Fields) -> Result<Timed, MessageError> {
    let cycles = fields.integer("cycles")?;
    Ok(Timed {
        cycles: at_least_one(cycles)
            .ok_or_else(|| fields.wrong_integer("cycles", CYCLES, cycles))?,
        elapsed_ns: fields.integer("elapsed_ns")?,
    })
}

fn at_least_one(value: u64) -> Option<u64> {
    Some(value).filter(|value| *value > 0)
}

fn tensor_record(fields: &mut Fields) -> Result<TensorRecord, MessageError> {
    Ok(TensorRecord {
        name: fields.word("name", NAME, is_name)?,
        dtype: fields.one_of("dtype", DTYPE, Dtype::from_id)?,
        shape: fields.integers("shape")?,
        stride: fields.integers("stride")?,
        storage_offset: fields.integer("storage_offset")?,
        bytes: fields.integer("bytes")?,
        device: fields.word("device", DEVICE, is_device)?,
        start: fields.integer("start")?,
        end: fields.integer("end")?,
        file: fields.word("file", NAME, is_name)?,
        sha256: fields.digest("sha256")?,
    })
}

fn input_record(fields: &mut Fields) -> Result<InputRecord, MessageError> {
    Ok(InputRecord {
        start: fields.integer("start")?,
        end: fields.integer("end")?,
        sha256: fields.digest("sha256")?,
    })
}

fn witness(fields: &mut Fields) -> Result<Witness, MessageError> {
    Ok(Witness {
        path: fields.word("path", NAME, is_name)?,
        counters: fields.integer_map("counters")?,
    })
}

const NAME: &str = "a plain name";
const DEVICE: &str = "a device's name";
const LASTING: &str = "cpu or kind:UUID, no ordinal";
const WIDTHS: &str = "integers of 1 or more";
const BYTE: &str = "an integer of 0 to 255";
const CYCLES: &str = "an integer of 1 or more";
const DTYPE: &str = "u8, i8, i32, f16, bf16 or f32";
const ABSOLUTE: &str = "an absolute path";
const TITLE: &str = "1 to 128 characters";
const TITLE_CHARS_MAX: usize = 128;
/// Devices of a program, and arms and widths of a kernel: every case is asked on each device.
const OFFERS_MAX: usize = 64;
const KERNELS_MAX: usize = 256;
