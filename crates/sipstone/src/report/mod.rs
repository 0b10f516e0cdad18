//! What is written: JSON with a schema, CSV, one self-contained HTML page, and a summary for the terminal.
//!
//! All four are written from one [`model::Report`], which [`assemble`] makes of raw counts.

pub mod assemble;
pub mod csv;
pub mod history;
pub mod host;
pub mod html;
pub mod json;
mod ladders;
pub mod model;
pub mod redact;
#[cfg(test)]
pub(crate) mod sample;
mod tables;
pub mod text;
mod words;
