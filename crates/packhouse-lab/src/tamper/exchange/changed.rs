//! What another value at a place of a line is known by.

/// Codes of which a judge must find one; none where nothing but the bag's digest tells.
type Codes = &'static [&'static str];

/// Objects that may have any name, and fields that need not be there.
pub(super) const FREE: &[&str] = &[
    "message.parameters",
    "message.inputs",
    "message.witnesses[].counters",
    "message.denies",
    "message.times",
    "message.poisons",
    "message.poison",
    "message.cycles",
    "message.timed",
    "seen.outputs",
    "seen.inputs",
];

/// What another value at a place of a kind of line is found by.
pub(super) fn changed_of(kind: &str) -> fn(&str) -> Codes {
    match kind {
        "hello of the controller" => of_greeting,
        "hello of the component" => of_introduction,
        "case" | "timed case" => of_case,
        "answer" | "timed answer" => of_answer,
        "declined" => of_declined,
        "seen" => of_seen,
        "end" => of_end,
        _ => of_line,
    }
}

fn of_greeting(place: &str) -> Codes {
    match place {
        "message.challenge" => &["case.challenge"],
        "message.inputs" | "message.outputs" => &["record.type", "leg.message"],
        place => of_line(place),
    }
}

fn of_introduction(place: &str) -> Codes {
    match place {
        "message.challenge" => &["case.challenge"],
        "message.says_capture" => &["answer.capture-not-said", "answer.capture-not-offered"],
        "message.times" | "message.poisons" => &["leg.message"],
        "message.denies" => &["leg.message"],
        "message.name" | "message.version" | "message.devices" | "message.kernels" => &[],
        place if place.starts_with("message.kernels") => &[],
        place => of_line(place),
    }
}

fn of_case(place: &str) -> Codes {
    match place {
        "message.index" => &["case.index"],
        "message.layout" => &["case.layout"],
        "message.device" => &["case.device"],
        "message.poison" => &["case.poison"],
        "message.cycles" => &["case.cycles"],
        "message.fixture" | "message.arm" | "message.width" => &["rows.extra"],
        // Where a run broke off the next repeat is planned and was not asked: its inputs tell.
        "message.repeat" => &["rows.extra", "rows.doubled", "rows.order", "case.inputs"],
        place if place.starts_with("message.parameters") => &["case.parameters"],
        place if place.starts_with("message.inputs") => &["case.inputs"],
        place if place.starts_with("message.boundaries") => &["case.boundaries"],
        place => of_line(place),
    }
}

fn of_answer(place: &str) -> Codes {
    match place {
        "message.index" => &["answer.index"],
        "message.boundaries[].name" => &["answer.invented"],
        "message.boundaries[].dtype" => &["answer.dtype"],
        "message.boundaries[].shape" => &["answer.shape"],
        "message.boundaries[].stride" => &["answer.stride"],
        "message.boundaries[].storage_offset" => &["answer.offset"],
        "message.boundaries[].bytes" => &["answer.bytes"],
        "message.boundaries[].device" => &["answer.device"],
        "message.boundaries[].file" => &["answer.file-name"],
        "message.boundaries[].sha256" => &["answer.digest"],
        "message.boundaries[].start" | "message.boundaries[].end" => &["answer.interval"],
        "message.capture" => &["capture", "answer.capture-not-offered"],
        "message.warnings" => &["warning"],
        "message.timed.cycles" => &["answer.cycles"],
        place if place.starts_with("message.inputs") => {
            if place.ends_with(".sha256") {
                &["answer.input-digest"]
            } else {
                &["answer.interval"]
            }
        }
        place if place.starts_with("message.witnesses") => &[],
        "message.timed.elapsed_ns" => &[],
        place => of_line(place),
    }
}

fn of_declined(place: &str) -> Codes {
    match place {
        "message.index" => &["answer.index"],
        "message.reason" => &["rejection", "analysis.bag"],
        place => of_line(place),
    }
}

fn of_seen(place: &str) -> Codes {
    match place {
        "seen.index" => &["leg.order"],
        "seen.inputs_extra" => &["answer.input-extra"],
        place if place.starts_with("seen.outputs") => {
            if place.ends_with(".bytes") {
                &["output.digest"]
            } else {
                &["output.missing", "answer.file-absent", "answer.file-extra"]
            }
        }
        place if place.starts_with("seen.inputs") => &["answer.input-changed"],
        place => of_line(place),
    }
}

fn of_end(place: &str) -> Codes {
    match place {
        "end" => &["leg.end"],
        place => of_line(place),
    }
}

fn of_line(place: &str) -> Codes {
    match place {
        "treatment" => &["leg.order", "leg.program", "leg.end"],
        "from" => &[
            "record.type",
            "record.missing-field",
            "record.unknown-field",
            "leg.message",
        ],
        "message.type" | "message.protocol" => &["leg.message"],
        _ => &[],
    }
}
