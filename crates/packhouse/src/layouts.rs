//! `layouts`: which orders of bytes there are, for whom, and what packs them on this host.

use crate::answer::{Answer, Column, table};
use crate::inspect::words;
use packhouse_base::ggml_type::GgmlType;
use packhouse_layout::{Admitted, Layout, Parameter};
use packhouse_pack::Packers;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// One type and set of parameters that a layout takes.
struct Form {
    admitted: Admitted,
    /// The level of the packer here and what it makes of the golden weight; `None` where only an
    /// engine packs it.
    packer: Option<(&'static str, String)>,
}

/// Answers with every layout.
pub(crate) fn layouts() -> Answer {
    let packers = Packers::detect();
    let mut text = String::new();
    let mut documents = Vec::new();
    for layout in Layout::ALL {
        let forms = forms(layout, &packers);
        if !text.is_empty() {
            text.push('\n');
        }
        text += &describe(layout, &forms);
        documents.push(document(layout, &forms));
    }
    let level = packers.level().name();
    text += &format!("\nthe highest level of this CPU is {level}\n");
    Answer::done(text, json!({ "level": level, "layouts": documents }))
}

/// What a layout takes, found by offering it one tensor of each type and each row count that
/// layouts tell apart.
fn forms(layout: Layout, packers: &Packers) -> Vec<Form> {
    let mut forms: BTreeMap<(u32, Vec<(String, u64)>), Form> = BTreeMap::new();
    for ty in GgmlType::all() {
        for rows in ROWS {
            let dims = [ty.block_elements() * 4, rows];
            let Ok(admitted) = layout.admit(*ty, &dims, &BTreeMap::new()) else {
                continue;
            };
            let told = told_parameters(&admitted).cloned().unwrap_or_default();
            forms
                .entry((ty.id(), told.into_iter().collect()))
                .or_insert_with(|| Form {
                    packer: packer(packers, &admitted),
                    admitted,
                });
        }
    }
    forms.into_values().collect()
}

/// The parameters that layouts tell apart; `None` of tiles, whose sizes are what a device wants.
fn told_parameters(admitted: &Admitted) -> Option<&BTreeMap<String, u64>> {
    match admitted.tile_geometry() {
        None => Some(admitted.parameters()),
        Some(_) => None,
    }
}

fn packer(packers: &Packers, admitted: &Admitted) -> Option<(&'static str, String)> {
    let kernel = packers.kernel(admitted).ok()?;
    let fingerprint = packers.fingerprint(admitted).ok()?;
    Some((kernel.level().name(), fingerprint.to_string()))
}

fn describe(layout: Layout, forms: &[Form]) -> String {
    let mut text = format!(
        "{} version {}: {}\n  order    {}\n  inverse  {}\n",
        layout.id(),
        layout.version(),
        layout.summary(),
        layout.order(),
        inverse(layout, forms),
    );
    for parameter in layout.parameters() {
        let Parameter {
            name,
            default,
            min,
            max,
        } = parameter;
        let default = match default {
            Some(default) => format!("default {default}"),
            None => "follows from the tensor".to_owned(),
        };
        text += &format!("  {name}: {min} to {max}, {default}\n");
    }
    let every_type = forms.len() == GgmlType::all().len();
    let mut lines = vec![words([
        "  type",
        "parameters",
        "packed here",
        "fingerprint",
    ])];
    let mut engine_only: BTreeMap<u32, (&str, Vec<String>)> = BTreeMap::new();
    for form in forms {
        let name = form.admitted.ty().name();
        let Some((level, fingerprint)) = &form.packer else {
            let of_type = engine_only.entry(form.admitted.ty().id());
            let (_, parameters_of) = of_type.or_insert((name, Vec::new()));
            parameters_of.push(parameters(&form.admitted));
            continue;
        };
        lines.push(words([
            &format!("  {name}"),
            &parameters(&form.admitted),
            level,
            &fingerprint[..DIGITS_SHOWN],
        ]));
    }
    if every_type {
        text += "  every type, packed here by copying\n";
    } else if lines.len() > 1 {
        text += &table(&[Column::Left; 4], &lines);
    }
    if !engine_only.is_empty() {
        let of_types = engine_only.into_values();
        let of_types = of_types.map(|(name, of_type)| format!("{name} {}", of_type.join(" ")));
        let list: Vec<String> = of_types.map(|text| text.trim_end().to_owned()).collect();
        text += &format!("  by an engine only: {}\n", list.join(", "));
    }
    text
}

/// Whether a payload can be given back: by who packs it, so of no form that only an engine packs.
fn inverse(layout: Layout, forms: &[Form]) -> &'static str {
    if !layout.is_invertible() {
        "no"
    } else if forms.iter().all(|form| form.packer.is_some()) {
        "yes"
    } else {
        "yes, where packed here"
    }
}

fn parameters(admitted: &Admitted) -> String {
    let Some(parameters) = told_parameters(admitted) else {
        return "any".to_owned();
    };
    let parameters = parameters.iter();
    let parameters = parameters.map(|(name, value)| format!("{name}={value}"));
    parameters.collect::<Vec<_>>().join(" ")
}

fn document(layout: Layout, forms: &[Form]) -> Value {
    let parameters = layout.parameters().iter().map(|parameter| {
        json!({
            "name": parameter.name,
            "default": parameter.default,
            "min": parameter.min,
            "max": parameter.max,
        })
    });
    let forms = forms.iter().map(|form| {
        let packer = form.packer.as_ref();
        json!({
            "type": form.admitted.ty().name(),
            "parameters": told_parameters(&form.admitted),
            "packed_by": packer.map(|(level, _)| level),
            "fingerprint": packer.map(|(_, fingerprint)| fingerprint),
        })
    });
    json!({
        "id": layout.id(),
        "version": layout.version(),
        "summary": layout.summary(),
        "order": layout.order(),
        "is_invertible": layout.is_invertible(),
        "parameters": parameters.collect::<Vec<_>>(),
        "forms": forms.collect::<Vec<_>>(),
    })
}

/// Row counts of which the largest dividing unit is 16, 8 and 4.
const ROWS: [u64; 3] = [16, 8, 4];
const DIGITS_SHOWN: usize = 12;
