//! Lanes: what is held fixed while experiments follow each other. Another promise is another lane.

use crate::document::{DocumentError, Fields};
use crate::name::is_id;

/// A lane's document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lane {
    /// Its id, which its file is named after.
    pub id: String,
    /// What it is about, in a line.
    pub title: String,
    /// The model.
    pub model: String,
    /// The form of its weights.
    pub quantisation: String,
    /// The engine or program that runs it.
    pub runtime: String,
    /// The machine that it runs on.
    pub hardware: String,
    /// What is promised of its numbers.
    pub promise: String,
    /// What results are compared with, or `none`.
    pub teacher: String,
    /// The key of its record in the ledger.
    pub record_key: String,
}

/// The schema of a lane's document.
pub const LANE_SCHEMA: &str = "packhouse/lane/1";

impl Lane {
    /// Parses a document.
    ///
    /// # Errors
    /// On what is no TOML, and on any field that is absent, unknown, empty or of another type.
    pub fn parse(bytes: &[u8]) -> Result<Self, DocumentError> {
        let mut fields = Fields::parse(bytes, LANE_SCHEMA, &FIELDS)?;
        let lane = Self {
            id: fields.word("id", ID, is_id)?,
            title: fields.text("title")?,
            model: fields.text("model")?,
            quantisation: fields.text("quantisation")?,
            runtime: fields.text("runtime")?,
            hardware: fields.text("hardware")?,
            promise: fields.text("promise")?,
            teacher: fields.text("teacher")?,
            record_key: fields.text("record_key")?,
        };
        fields.finish()?;
        Ok(lane)
    }
}

/// What an id can be, for messages.
pub(crate) const ID: &str = "an id of up to 64 of a-z, 0-9, dot, dash and underscore";

/// The fields of a lane's document.
const FIELDS: [&str; 10] = [
    "schema",
    "id",
    "title",
    "model",
    "quantisation",
    "runtime",
    "hardware",
    "promise",
    "teacher",
    "record_key",
];
