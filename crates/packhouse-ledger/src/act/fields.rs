//! Fields of a JSON object: typed, taken one by one, and none left over.

use super::forms::is_reviewer;
use packhouse_base::digest::Digest;
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Why an object's fields are not those of its kind.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum FieldFault {
    /// A required field is absent.
    #[error("field `{field}` is missing")]
    Missing {
        /// Its name.
        field: &'static str,
    },
    /// A field that this kind does not have.
    #[error("field {field:?} is not one of this kind")]
    Unknown {
        /// Its name.
        field: String,
    },
    /// A field of another type or form.
    #[error("field `{field}` is {actual}, not {expected}")]
    Type {
        /// Its name.
        field: &'static str,
        /// The form that it must have.
        expected: &'static str,
        /// What is there, cut to 80 characters.
        actual: String,
    },
    /// Fields that do not go together.
    #[error("field `{field}`: {rule}")]
    Value {
        /// The field at fault.
        field: &'static str,
        /// The rule that it breaks.
        rule: &'static str,
    },
}

impl FieldFault {
    /// The reason code of `docs/format/ledger.md`, section 6.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Missing { .. } => "ledger.missing-field",
            Self::Unknown { .. } => "ledger.unknown-field",
            Self::Type { .. } => "ledger.type",
            Self::Value { .. } => "ledger.value",
        }
    }
}

/// A value that a field can have.
pub(crate) trait FieldValue: Sized {
    /// What a value must be, for a message.
    const EXPECTED: &'static str;

    /// Reads it; `None` where it is of another form.
    fn read(value: &Value) -> Option<Self>;

    /// Writes it.
    fn write(&self) -> Value;
}

/// An object whose fields are taken one by one.
pub(crate) struct Fields(Map<String, Value>);

impl Fields {
    /// Starts with all fields.
    pub(crate) fn new(object: Map<String, Value>) -> Self {
        Self(object)
    }

    /// Takes a field that must be there. Errors where it is absent or of another form.
    pub(crate) fn required<T: FieldValue>(&mut self, field: &'static str) -> Result<T, FieldFault> {
        let value = self.0.remove(field).ok_or(FieldFault::Missing { field })?;
        read(field, &value)
    }

    /// Takes a field that may be absent, but is never null. Errors where it is of another form.
    pub(crate) fn optional<T: FieldValue>(
        &mut self,
        field: &'static str,
    ) -> Result<Option<T>, FieldFault> {
        let value = self.0.remove(field);
        value.map(|value| read(field, &value)).transpose()
    }

    /// Takes a field that must be there and may be null. Errors as `required`.
    pub(crate) fn nullable<T: FieldValue>(
        &mut self,
        field: &'static str,
    ) -> Result<Option<T>, FieldFault> {
        match self.0.remove(field) {
            None => Err(FieldFault::Missing { field }),
            Some(Value::Null) => Ok(None),
            Some(value) => read(field, &value).map(Some),
        }
    }

    /// Takes a text that must be there and is not empty. Errors as `required`.
    pub(crate) fn words(&mut self, field: &'static str) -> Result<String, FieldFault> {
        let text: String = self.required(field)?;
        if text.is_empty() {
            return Err(FieldFault::Type {
                field,
                expected: "words",
                actual: "empty".to_owned(),
            });
        }
        Ok(text)
    }

    /// Takes who reviewed. Errors as `required`, and on what could be read as another one's name.
    pub(crate) fn reviewer(&mut self, field: &'static str) -> Result<String, FieldFault> {
        let text: String = self.required(field)?;
        match is_reviewer(&text) {
            true => Ok(text),
            false => Err(FieldFault::Type {
                field,
                expected: REVIEWER,
                actual: format!("{text:?}").chars().take(80).collect(),
            }),
        }
    }

    /// Ends. Errors with the first field that nobody took.
    pub(crate) fn finish(self) -> Result<(), FieldFault> {
        match self.0.into_iter().next() {
            None => Ok(()),
            Some((field, _)) => Err(FieldFault::Unknown { field }),
        }
    }
}

/// An object that is being written.
#[derive(Default)]
pub(crate) struct Written(Map<String, Value>);

impl Written {
    /// Writes a field.
    pub(crate) fn required<T: FieldValue>(&mut self, field: &str, value: &T) {
        self.0.insert(field.to_owned(), value.write());
    }

    /// Writes a field that is absent where there is no value.
    pub(crate) fn optional<T: FieldValue>(&mut self, field: &str, value: &Option<T>) {
        if let Some(value) = value {
            self.required(field, value);
        }
    }

    /// Writes a field that is null where there is no value.
    pub(crate) fn nullable<T: FieldValue>(&mut self, field: &str, value: &Option<T>) {
        let value = value.as_ref().map_or(Value::Null, FieldValue::write);
        self.0.insert(field.to_owned(), value);
    }

    /// Writes a text that is not empty; whoever reads it back judges that.
    pub(crate) fn words(&mut self, field: &str, value: &String) {
        self.required(field, value);
    }

    /// Writes who reviewed; whoever reads it back judges that.
    pub(crate) fn reviewer(&mut self, field: &str, value: &String) {
        self.required(field, value);
    }

    /// The object.
    pub(crate) fn finish(self) -> Value {
        Value::Object(self.0)
    }
}

/// What a reviewer is.
pub const REVIEWER: &str = "a reviewer of up to 64 of a-z 0-9 @ . _ + -, first a letter or digit";

fn read<T: FieldValue>(field: &'static str, value: &Value) -> Result<T, FieldFault> {
    T::read(value).ok_or_else(|| FieldFault::Type {
        field,
        expected: T::EXPECTED,
        actual: value.to_string().chars().take(80).collect(),
    })
}

impl FieldValue for Digest {
    const EXPECTED: &'static str = "64 lower-case hex digits";

    fn read(value: &Value) -> Option<Self> {
        Self::parse(value.as_str()?).ok()
    }

    fn write(&self) -> Value {
        Value::String(self.to_string())
    }
}

impl FieldValue for String {
    const EXPECTED: &'static str = "a text";

    fn read(value: &Value) -> Option<Self> {
        value.as_str().map(str::to_owned)
    }

    fn write(&self) -> Value {
        Value::String(self.clone())
    }
}

impl FieldValue for bool {
    const EXPECTED: &'static str = "true or false";

    fn read(value: &Value) -> Option<Self> {
        value.as_bool()
    }

    fn write(&self) -> Value {
        Value::Bool(*self)
    }
}

impl FieldValue for i64 {
    const EXPECTED: &'static str = "an integer from -2^63 to 2^63-1";

    fn read(value: &Value) -> Option<Self> {
        value.as_i64()
    }

    fn write(&self) -> Value {
        Value::from(*self)
    }
}

impl FieldValue for u64 {
    const EXPECTED: &'static str = "an integer from 0 to 2^63-1";

    fn read(value: &Value) -> Option<Self> {
        value.as_u64().filter(|count| *count <= i64::MAX as u64)
    }

    fn write(&self) -> Value {
        Value::from(*self)
    }
}

impl FieldValue for Vec<u64> {
    const EXPECTED: &'static str = "a list of integers, ascending, no two equal";

    fn read(value: &Value) -> Option<Self> {
        let items: Option<Self> = value.as_array()?.iter().map(u64::read).collect();
        items.filter(|items| items.is_sorted_by(|one, next| one < next))
    }

    fn write(&self) -> Value {
        Value::from(self.clone())
    }
}

impl FieldValue for BTreeMap<String, u64> {
    const EXPECTED: &'static str = "an object of devices and integers";

    fn read(value: &Value) -> Option<Self> {
        let fields = value.as_object()?.iter();
        fields
            .map(|(name, value)| Some((name.clone(), u64::read(value)?)))
            .map(|field| field.filter(|(name, _)| !name.is_empty()))
            .collect()
    }

    fn write(&self) -> Value {
        let fields = self.iter();
        Value::Object(
            fields
                .map(|(name, n)| (name.clone(), Value::from(*n)))
                .collect(),
        )
    }
}
