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

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn render(element: &Element) -> String {
        let Element {
            name,
            attributes,
            text,
            children,
        } = element;
        let blank = if attributes.is_empty() { "" } else { " " };
        let inner: String = children.iter().map(|child| render(child) + "\n").collect();
        format!("<{name}{blank}{attributes}>\n{text}\n{inner}</{name}>")
    }

    fn tree() -> impl Strategy<Value = Element> {
        let leaf = (
            "[a-z_]{1,8}",
            "(|id=\"[0-9:.]{1,8}\")",
            "(|[A-Za-z0-9./%-]{1,12})",
        );
        let leaf = leaf.prop_map(|(name, attributes, text)| Element {
            name,
            attributes,
            text,
            children: Vec::new(),
        });
        leaf.prop_recursive(5, 40, 4, |inner| {
            ("[a-z_]{1,8}", prop::collection::vec(inner, 0..4)).prop_map(|(name, children)| {
                Element {
                    name,
                    children,
                    ..Element::default()
                }
            })
        })
    }

    #[test]
    fn what_is_not_nested_well_is_refused_with_its_place() {
        for (document, reason) in [
            ("", "0 roots"),
            ("text", "0 roots"),
            ("<a></a><b></b>", "2 roots"),
            ("<a><b></a></b>", "</a> ends <b> at byte 6"),
            ("<a>", "<a> has no end"),
            ("<a><b>", "<b> has no end"),
            ("</a>", "ends <> at byte 0"),
            ("<a><b", "a tag is cut off at byte 3"),
        ] {
            let error = Element::parse(document).expect_err("because it is no tree");
            assert!(error.contains(reason), "{document}: {error}");
        }
        let deep = "<a>".repeat(40);
        let error = Element::parse(&deep).expect_err("because it is too deep");
        assert!(error.contains("too deep"), "{error}");
    }

    #[test]
    fn declarations_and_empty_elements_are_read() {
        let head = "<?xml version=\"1.0\" ?>\n<!DOCTYPE a SYSTEM \"a.dtd\">\n";
        let text = &format!("{head}<a><b/><c id=\"1\"/></a>");
        let root = Element::parse(text).expect("because it is XML");
        let names: Vec<&str> = root
            .children
            .iter()
            .map(|child| child.name.as_str())
            .collect();
        assert_eq!(names, ["b", "c"]);
        assert_eq!(
            root.child("c").map(|child| child.attributes.as_str()),
            Some("id=\"1\"")
        );
    }

    proptest! {
        #[test]
        fn what_is_rendered_parses_to_itself(root in tree()) {
            prop_assert_eq!(Element::parse(&render(&root)), Ok(root));
        }

        #[test]
        fn no_prefix_of_a_tree_is_a_tree(root in tree(), cut in any::<prop::sample::Index>()) {
            let text = render(&root);
            let length = cut.index(text.len());
            prop_assert!(Element::parse(&text[..length]).is_err(), "{}", &text[..length]);
        }

        #[test]
        fn no_text_panics(text in "[ -~<>/\n]{0,300}") {
            let _ = Element::parse(&text);
        }
    }
}
