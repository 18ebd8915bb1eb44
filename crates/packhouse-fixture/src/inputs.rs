//! Reading one case's sizes and bytes: nothing is taken that is not as long as the sizes say.

use crate::{Inputs, KernelError};

impl<'a> Inputs<'a> {
    /// A parameter.
    ///
    /// # Errors
    /// When it is missing.
    pub fn parameter(&self, name: &str) -> Result<u64, KernelError> {
        let found = self.parameters.get(name).copied();
        found.ok_or_else(|| KernelError::Parameter {
            name: name.to_owned(),
        })
    }

    /// A parameter that is a multiple of a unit, and not 0.
    ///
    /// # Errors
    /// When it is missing, or no such number.
    pub fn multiple(&self, name: &str, unit: u64) -> Result<u64, KernelError> {
        let actual = self.parameter(name)?;
        if actual > 0 && actual.is_multiple_of(unit) {
            return Ok(actual);
        }
        Err(KernelError::Size {
            name: name.to_owned(),
            actual,
            expected: match unit {
                1 => "1 or more".to_owned(),
                _ => format!("a positive multiple of {unit}"),
            },
        })
    }

    /// The bytes of a role.
    ///
    /// # Errors
    /// When they are missing, or another number.
    pub fn bytes(&self, role: &str, expected: u64) -> Result<&'a [u8], KernelError> {
        let bytes = self.tensors.get(role).copied();
        let bytes = bytes.ok_or_else(|| KernelError::Missing {
            role: role.to_owned(),
        })?;
        let actual = bytes.len() as u64;
        if actual != expected {
            return Err(KernelError::Length {
                role: role.to_owned(),
                expected,
                actual,
            });
        }
        Ok(bytes)
    }

    /// The binary32 values of a role, so many of them.
    ///
    /// # Errors
    /// When they are missing, or another number.
    pub fn floats(&self, role: &str, count: u64) -> Result<Vec<f32>, KernelError> {
        let bytes = self.bytes(role, count.saturating_mul(4))?;
        let (values, _) = bytes.as_chunks();
        Ok(values
            .iter()
            .map(|value| f32::from_le_bytes(*value))
            .collect())
    }
}
