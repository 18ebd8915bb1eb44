//! Renders `packhouse.h` from this crate's source: comments, constants, structs and calls as Rust
//! declares them, and the statuses as the library has them.

use std::collections::BTreeSet;
use std::fmt::Write as _;

/// What the source declares, in its order.
#[derive(Debug, Default)]
pub(crate) struct Declared {
    pub(crate) opaque: Vec<(String, String)>,
    pub(crate) constants: Vec<(String, String, String)>,
    pub(crate) structs: Vec<Struct>,
    pub(crate) callbacks: Vec<Call>,
    pub(crate) calls: Vec<Call>,
}

/// A struct of the header.
#[derive(Debug)]
pub(crate) struct Struct {
    pub(crate) name: String,
    pub(crate) docs: String,
    /// Name, type and comment.
    pub(crate) fields: Vec<(String, String, String)>,
}

/// A function of the header, or the type of one.
#[derive(Debug)]
pub(crate) struct Call {
    pub(crate) name: String,
    pub(crate) docs: String,
    /// Name and type.
    pub(crate) parameters: Vec<(String, String)>,
    pub(crate) result: Option<String>,
}

/// The crate's files that declare what the header has.
const SOURCES: [&str; 7] = [
    include_str!("../../src/types.rs"),
    include_str!("../../src/image_types.rs"),
    include_str!("../../src/version.rs"),
    include_str!("../../src/handles.rs"),
    include_str!("../../src/set.rs"),
    include_str!("../../src/layouts.rs"),
    include_str!("../../src/images.rs"),
];

/// Reads the source.
pub(crate) fn declared() -> Declared {
    let mut declared = Declared::default();
    for source in SOURCES {
        let mut lines = source.lines();
        let mut docs = String::new();
        while let Some(line) = lines.next() {
            if let Some(text) = line.strip_prefix("///") {
                docs.push_str(text.trim());
                docs.push('\n');
            } else if line.starts_with("#[") {
                // Attributes stand between a comment and its item.
            } else {
                declare(&mut declared, line, &mut lines, std::mem::take(&mut docs));
            }
        }
    }
    declared
}

fn declare(declared: &mut Declared, line: &str, lines: &mut std::str::Lines<'_>, docs: String) {
    if let Some(rest) = line.strip_prefix("pub struct packhouse_") {
        let name = format!("packhouse_{}", rest.trim_end_matches(" {"));
        let fields = fields(lines);
        if fields.iter().any(|(_, ty, _)| is_rust_only(ty)) {
            declared.opaque.push((name, docs));
        } else {
            declared.structs.push(Struct { name, docs, fields });
        }
    } else if let Some(rest) = line.strip_prefix("pub const PACKHOUSE_") {
        let (name, value) = rest
            .split_once(": ")
            .expect("because a constant has a type");
        let (_, value) = value
            .split_once(" = ")
            .expect("because a constant has a value");
        let (name, value) = (format!("PACKHOUSE_{name}"), value.trim_end_matches(';'));
        declared.constants.push((name, value.to_owned(), docs));
    } else if line.starts_with("pub type packhouse_") && line.contains("Option<") {
        let mut text = line.to_owned();
        while !text.ends_with(';') {
            text.push_str(lines.next().expect("because a type ends").trim());
        }
        let (name, rest) = text["pub type ".len()..]
            .split_once(" = Option<")
            .expect("because a callback may be NULL");
        let rest = rest.trim_end_matches([';', ',', '>']);
        declared.callbacks.push(call(name, rest, docs));
    } else if line.starts_with("pub ") && line.contains("extern \"C\" fn packhouse_") {
        let mut text = line.to_owned();
        while !text.ends_with('{') {
            text.push_str(lines.next().expect("because a call has a body").trim());
        }
        let text = text.trim_end_matches(" {").trim_end_matches('{');
        let (_, rest) = text.split_once(" fn ").expect("because it is a function");
        let (name, _) = rest.split_once('(').expect("because it has parameters");
        declared.calls.push(call(name, rest, docs));
    }
}

/// Whether a field's type is none of C's, so that its struct is a handle.
fn is_rust_only(ty: &str) -> bool {
    ty.contains("Arc<") || ty.contains("Mutex<") || ["SetReader", "Images"].contains(&ty)
}

fn fields(lines: &mut std::str::Lines<'_>) -> Vec<(String, String, String)> {
    let (mut fields, mut docs) = (Vec::new(), String::new());
    for line in lines.map(str::trim).take_while(|line| *line != "}") {
        if let Some(text) = line.strip_prefix("///") {
            docs.push_str(text.trim());
            docs.push('\n');
        } else {
            let line = line
                .trim_start_matches("pub(crate) ")
                .trim_start_matches("pub ");
            let (name, ty) = line.split_once(": ").expect("because a field has a type");
            let ty = ty.trim_end_matches(',').to_owned();
            fields.push((name.to_owned(), ty, std::mem::take(&mut docs)));
        }
    }
    fields
}

fn call(name: &str, text: &str, docs: String) -> Call {
    let (_, rest) = text.split_once('(').expect("because it has parameters");
    let (parameters, result) = rest.rsplit_once(')').expect("because parameters end");
    let parameters = parameters.split(',').map(str::trim);
    Call {
        name: name.to_owned(),
        docs,
        parameters: parameters
            .filter(|parameter| !parameter.is_empty())
            .map(|parameter| {
                let (name, ty) = parameter.split_once(": ").expect("because it has a type");
                (name.to_owned(), ty.to_owned())
            })
            .collect(),
        result: result.trim().strip_prefix("-> ").map(str::to_owned),
    }
}

/// A name declared with a Rust type, in C.
pub(crate) fn in_c(name: &str, ty: &str) -> String {
    let plain = |ty: &str| match ty {
        "u8" => "uint8_t".to_owned(),
        "i8" => "int8_t".to_owned(),
        "f32" => "float".to_owned(),
        "f64" => "double".to_owned(),
        "u32" => "uint32_t".to_owned(),
        "u64" => "uint64_t".to_owned(),
        "i32" => "int32_t".to_owned(),
        "c_char" => "char".to_owned(),
        "c_void" => "void".to_owned(),
        named if named.starts_with("packhouse_") => named.to_owned(),
        other => panic!("no C type for {other}"),
    };
    if let Some(array) = ty.strip_prefix('[') {
        let (element, count) = array
            .trim_end_matches(']')
            .split_once("; ")
            .expect("an array");
        return format!("{} {name}[{count}]", plain(element));
    }
    if let Some(target) = ty.strip_prefix("*mut *mut ") {
        return format!("{} **{name}", plain(target));
    }
    if let Some(target) = ty.strip_prefix("*const ") {
        return format!("const {} *{name}", plain(target));
    }
    if let Some(target) = ty.strip_prefix("*mut ") {
        return format!("{} *{name}", plain(target));
    }
    format!("{} {name}", plain(ty))
}

/// The whole header.
pub(crate) fn header() -> String {
    let declared = declared();
    let mut text = String::from(HEAD);
    text.push_str("\n#ifndef PACKHOUSE_H\n#define PACKHOUSE_H\n\n#include <stdint.h>\n\n");
    text.push_str("#ifdef __cplusplus\nextern \"C\" {\n#endif\n\n");
    for (name, value, docs) in &declared.constants {
        text.push_str(&comment(docs, ""));
        let suffix = if name.ends_with("_BYTES") || name.ends_with("_MAX") {
            ""
        } else {
            "u"
        };
        writeln!(text, "#define {name} {value}{suffix}").expect("because text grows");
    }
    text.push('\n');
    let words = "A status: PACKHOUSE_OK or one of the numbers below, which never change meaning.";
    text.push_str(&comment(words, ""));
    text.push_str("typedef int32_t packhouse_status;\n\nenum {\n");
    for status in packhouse::statuses() {
        text.push_str(&comment(status.meaning, "    "));
        let name = status.name.to_str().expect("because names are ASCII");
        writeln!(text, "    {name} = {},", status.number).expect("because text grows");
    }
    text.push_str("};\n\n");
    for (name, docs) in &declared.opaque {
        text.push_str(&comment(docs, ""));
        writeln!(text, "typedef struct {name} {name};\n").expect("because text grows");
    }
    for item in &declared.structs {
        text.push_str(&comment(&item.docs, ""));
        writeln!(text, "typedef struct {} {{", item.name).expect("because text grows");
        for (name, ty, docs) in &item.fields {
            text.push_str(&comment(docs, "    "));
            writeln!(text, "    {};", in_c(name, ty)).expect("because text grows");
        }
        writeln!(text, "}} {};\n", item.name).expect("because text grows");
    }
    for call in &declared.callbacks {
        text.push_str(&comment(&call.docs, ""));
        let name = format!("(*{})", call.name);
        let signature = signature(call, &name);
        writeln!(text, "typedef {signature};\n").expect("because text grows");
    }
    for call in &declared.calls {
        text.push_str(&comment(&call.docs, ""));
        writeln!(text, "{};\n", signature(call, &call.name)).expect("because text grows");
    }
    text.push_str("#ifdef __cplusplus\n}\n#endif\n\n#endif\n");
    text
}

fn signature(call: &Call, name: &str) -> String {
    let head = match call.result.as_deref() {
        None => format!("void {name}("),
        Some(ty) => format!("{}(", in_c(name, ty)),
    };
    let parameters: Vec<String> = call.parameters.iter().map(|(n, ty)| in_c(n, ty)).collect();
    match parameters.as_slice() {
        [] => format!("{head}void)"),
        few if head.len() + few.join(", ").len() < 90 => format!("{head}{})", few.join(", ")),
        many => format!("{head}\n    {})", many.join(",\n    ")),
    }
}

/// A comment, without what only Rust's readers need, wrapped.
fn comment(docs: &str, indent: &str) -> String {
    let kept = docs.split("# Safety").next().unwrap_or_default();
    let words = kept.replace('`', "");
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut lines = vec![String::new()];
    for word in words {
        let last = lines.last_mut().expect("because one is always there");
        if indent.len() + 6 + last.len() + word.len() >= 98 && !last.is_empty() {
            lines.push(word.to_owned());
        } else {
            last.push_str(if last.is_empty() { "" } else { " " });
            last.push_str(word);
        }
    }
    format!("{indent}/* {} */\n", lines.join(&format!("\n{indent}   ")))
}

/// Every name that the header may have.
pub(crate) fn names(declared: &Declared) -> BTreeSet<String> {
    let constants = declared.constants.iter().map(|(name, _, _)| name.clone());
    let statuses = packhouse::statuses();
    let statuses = statuses.map(|status| status.name.to_string_lossy().into_owned());
    let structs = declared.structs.iter().map(|item| item.name.clone());
    let opaque = declared.opaque.iter().map(|(name, _)| name.clone());
    let calls = declared.calls.iter().chain(&declared.callbacks);
    constants
        .chain(statuses)
        .chain(structs)
        .chain(opaque)
        .chain(calls.map(|call| call.name.clone()))
        .chain(["packhouse_status".to_owned()])
        .collect()
}

const HEAD: &str = "\
/* packhouse.h: the C interface of Packhouse.

   A model's weights, packed once in the order that some kernels read, are kept in a store under
   the SHA-256 of their bytes. A set is the packs of one model under one plan. This library opens a
   set, finds a tensor's pack under the contract that a kernel has, proves its bytes and maps them;
   and it says why not, so that an engine can pack by itself.

   Calls. Every call that can fail returns a status, PACKHOUSE_OK or not, and writes its reason to
   *refusal, which may be NULL; a call that succeeds leaves *refusal as it was, so look at what was
   returned, not at refusal.status. Structs begin with struct_size, which the caller sets to sizeof
   before every call, at most 4096; the rest of a struct that the library fills need not be set. A
   library older than this header takes larger structs than it knows: the bytes that it does not
   know must be zero in a struct that the caller fills, and are set to zero in one that the library
   fills. A call that fails changes nothing but *refusal, if it does not say otherwise, and sets the
   place for a new handle to NULL, whatever else is wrong with the call. A defect in the library
   becomes PACKHOUSE_BUG, after its words were written to standard error.

   Ownership. Sets, mappings, images and serves are counted: whoever gets one from
   packhouse_set_open, packhouse_set_map, packhouse_images_open or packhouse_serve_begin owns a
   count and gives it back by the matching release. A mapping stays valid after its set is released,
   and a serve after its images are. Texts in structs belong to the set, and payload bytes to the
   mapping, that they were told of. All other memory is the caller's, and no call keeps it.

   Threads. There is no global state. Any number of threads may use one set, mapping or images at
   once, as long as each use ends before the last count is given back. A serve is for one call at a
   time: a second one, of another thread or of a callback, gets PACKHOUSE_SERVE_BUSY at once. So
   several threads on one head either begin a serve each, of the same images, each of which counts
   by itself and has a line of its own; or they share one, and fill its tiles one after the other.

   Bytes. Mapped payloads are read-only pages of the store's own file, shared by all processes that
   map it. Nothing of Packhouse ever changes or cuts such a file; if somebody else cuts one while it
   is mapped, reading past its new end is SIGBUS.

   Images of head tiles. An engine that multiplies with an int8 head packs its tiles at each start.
   packhouse_images_open opens the folder that keeps them, packhouse_head_digest and
   packhouse_serve_begin say which weights are held, and packhouse_serve_tile fills one tile: from
   its image when that proves to be the tile, else by packing the columns that the engine's callback
   gives, and writes the image for the next start. Images cost time at worst: a file that is absent,
   damaged, of other weights or not writable is told in the report and never fails a tile, and the
   bytes in the engine's buffers are the same with images and without.
   - What a hit proves. Every byte that was copied was hashed, and the hash is the header's, so
     damage is found wherever it is. The header names the layout, sizes, tile, head digest and
     packer's fingerprint that were asked for. And sampled columns, both ends among them, were
     packed again from the weights held now and were equal bit for bit.
   - What it does not prove. Columns that no sample looked at are as whoever wrote the file made
     them: somebody with this user's rights could write an image that passes. The seed moves the
     samples from start to start, and PACKHOUSE_CHECK_FULL compares every column.
   - What must not change. From packhouse_head_digest until the last packhouse_serve_tile that
     leans on its digest, the tensors that it was taken of, and what the callback gives, stay the
     same: the digest is taken at its word, and a change would be written into images.
   - What the digest must cover. All that decides what the callback gives: the matrix, scales that
     lie apart from it, a merged adapter and its factor, and the code that makes floats of them. So
     the last tensor is a name of that code, another one as soon as any value is another: the 13
     bytes ggml-values/1 for ggml's own values, bit for bit; an engine's own name else. Without it a
     start with a repaired reader would hit images of the old one, and only samples could tell.
   - Device buffers. Codes and scales are written and never read: they may be a device's memory,
     slow to read and open to others. An image's bytes are hashed in private memory and copied from
     there. A tile whose image will be written is packed in private memory, hashed and written from
     there, and copied; the serve keeps that memory, a tile's codes and scales, until its release.
     Without it the tile is packed straight into the buffers, and no image is written. The buffers
     hold the tile when the call returned PACKHOUSE_OK. When it refused the request they are
     untouched; after PACKHOUSE_TILE_COLUMN they are of no value.
   - Overlap. A serve may go from thread to thread, and tiles need nothing but the head: load them
     on a thread of their own while the rest of the model comes up, and join before the first use.

   Written from the library's source (cargo xtask docs); a test compares both. */
";
