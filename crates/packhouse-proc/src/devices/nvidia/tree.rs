//! Reads the plain XML that `nvidia-smi -q -x` prints: elements and text, no entities but the five.
//!
//! Invariant: a text that is cut off or not nested well is an error, never a smaller tree.

/// An element.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Element {
    pub(crate) name: String,
    /// Its attributes as written.
    pub(crate) attributes: String,
    pub(crate) text: String,
    pub(crate) children: Vec<Element>,
}

impl Element {
    /// Parses a document. Errors say at which byte.
    pub(crate) fn parse(document: &str) -> Result<Self, String> {
        let mut open = vec![Self::default()];
        let mut rest = document;
        while let Some(start) = rest.find('<') {
            let (text, tail) = rest.split_at(start);
            let wrong = |what: &str| {
                let offset = document.len() - tail.len();
                format!("not the XML that was expected: {what} at byte {offset}")
            };
            let end = tail.find('>').ok_or_else(|| wrong("a tag is cut off"))?;
            let (tag, tail) = tail.split_at(end);
            let tag = tag.trim_start_matches('<');
            rest = tail.trim_start_matches('>');
            open.last_mut()
                .ok_or_else(|| wrong("a tag outside"))?
                .text
                .push_str(text.trim());
            if tag.starts_with('?') || tag.starts_with('!') {
                continue;
            }
            if let Some(name) = tag.strip_prefix('/') {
                let closed = open.pop().ok_or_else(|| wrong("an end without a start"))?;
                if closed.name != name.trim() {
                    return Err(wrong(&format!("</{name}> ends <{}>", closed.name)));
                }
                open.last_mut()
                    .ok_or_else(|| wrong("an end without a start"))?
                    .children
                    .push(closed);
                continue;
            }
            let is_empty = tag.ends_with('/');
            let tag = tag.trim_end_matches('/').trim();
            let (name, attributes) = tag.split_once(char::is_whitespace).unwrap_or((tag, ""));
            let element = Self {
                name: name.to_owned(),
                attributes: attributes.trim().to_owned(),
                ..Self::default()
            };
            if is_empty {
                open.last_mut()
                    .ok_or_else(|| wrong("a tag outside"))?
                    .children
                    .push(element);
            } else if open.len() < DEPTH_MAX {
                open.push(element);
            } else {
                return Err(wrong("nested too deep"));
            }
        }
        match (open.pop(), open.is_empty()) {
            (Some(mut root), true) if root.children.len() == 1 => Ok(root.children.remove(0)),
            (Some(root), true) => Err(format!(
                "not the XML that was expected: {} roots",
                root.children.len()
            )),
            (Some(element), false) => Err(format!(
                "not the XML that was expected: <{}> has no end",
                element.name
            )),
            (None, _) => Err("not the XML that was expected: it has no root".to_owned()),
        }
    }

    /// The first child of a name.
    pub(crate) fn child(&self, name: &str) -> Option<&Self> {
        self.children.iter().find(|child| child.name == name)
    }

    /// The text of the first child of a name.
    pub(crate) fn text_of(&self, name: &str) -> Option<&str> {
        self.child(name).map(|child| child.text.as_str())
    }
}

/// Elements within elements; the tool's own are at most 7 deep.
const DEPTH_MAX: usize = 32;
