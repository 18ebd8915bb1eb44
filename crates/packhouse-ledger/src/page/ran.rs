//! What ran for a packet, or is to run: programs, matrix, host. Of a packet's report alone; the
//! state page, which is kept, never has it.

use super::words::{code, md, plain, short};
use maud::{Markup, html};

/// What its documents and its bag say of a packet's execution.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Ran {
    /// The programs that it froze.
    pub programs: Vec<Program>,
    /// What control and candidate differ in, computed of what was frozen; `None`: it is not here.
    pub differences: Option<Vec<String>>,
    /// Everything else, each with its name.
    pub facts: Vec<(&'static str, String)>,
    /// Where tensors that are not equal are other ones.
    pub unequal: Vec<String>,
}

/// A frozen program.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Program {
    /// `control`, `candidate` or `null`.
    pub role: &'static str,
    /// Its name or path.
    pub name: String,
    /// Digest of its file, 64 hex digits.
    pub sha256: String,
    /// How many files its loader loads.
    pub objects: u64,
    /// Its arguments.
    pub arguments: Vec<String>,
    /// The names of its variables.
    pub variables: Vec<String>,
}

impl Ran {
    /// What control and candidate differ in, in a sentence.
    pub(super) fn contrast(&self) -> Option<String> {
        let differences = self.differences.as_ref()?;
        Some(match differences.len() {
            0 => "nothing: program, arguments and environment are the same".to_owned(),
            1 => differences.join(""),
            count => format!("{count} differences: {}", differences.join("; ")),
        })
    }
}

impl Program {
    fn words(&self) -> String {
        let variables = match self.variables.is_empty() {
            true => "no variables".to_owned(),
            false => format!("variables {}", self.variables.join(", ")),
        };
        let (arguments, objects) = (&self.arguments, self.objects);
        format!("arguments {arguments:?}; {variables}; {objects} files that it loads")
    }
}

/// The block of the report.
pub(super) fn html(ran: &Ran, heading: &str) -> Markup {
    html! {
        h2 { (heading) }
        dl.sheet.evidence {
            @for program in &ran.programs {
                dt { (program.role) }
                dd {
                    (plain(&program.name)) " "
                    code title=(plain(&program.sha256)) { (short(&program.sha256)) }
                    p.soft { (plain(&program.words())) }
                }
            }
            @for (name, text) in &ran.facts { dt { (name) } dd { (plain(text)) } }
        }
        @if !ran.unequal.is_empty() {
            h2 { "Where tensors are other ones" }
            ul.sheet.evidence { @for text in &ran.unequal { li { (plain(text)) } } }
        }
    }
}

/// The same as Markdown.
pub(super) fn markdown(ran: &Ran, heading: &str) -> String {
    let mut text = format!("\n## {heading}\n\n");
    for program in &ran.programs {
        text += &format!(
            "- **{}**: {} {}; {}\n",
            program.role,
            md(&program.name),
            code(&program.sha256),
            md(&program.words())
        );
    }
    for (name, fact) in &ran.facts {
        text += &format!("- **{name}**: {}\n", md(fact));
    }
    if !ran.unequal.is_empty() {
        text += "\n## Where tensors are other ones\n\n";
    }
    for one in &ran.unequal {
        text += &format!("- {}\n", md(one));
    }
    text
}
