//! A PCI address: the place of a card on its bus.
//!
//! Sources write it in several forms: the kernel `0000:03:00.0`, NVML `00000000:03:00.0`, people
//! `03:00.0`. All are one address here, and one form comes out: the kernel's.

use std::fmt;
use std::str::FromStr;
use thiserror::Error;

/// Where a card is plugged in. Ordered as drivers that count in PCI order do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PciAddress {
    /// The domain: 16 bits on most hosts, 32 behind some bridges.
    pub domain: u32,
    /// The bus.
    pub bus: u8,
    /// The slot on the bus, 0 to 31.
    pub slot: u8,
    /// The function of the card, 0 to 7.
    pub function: u8,
}

impl FromStr for PciAddress {
    type Err = PciAddressError;

    /// Parses `0000:03:00.0`, with or without the domain, in hex digits of either case.
    fn from_str(text: &str) -> Result<Self, PciAddressError> {
        let wrong = || PciAddressError {
            text: text.to_owned(),
        };
        let (place, function) = text.rsplit_once('.').ok_or_else(wrong)?;
        let mut parts = place.rsplit(':');
        let slot = parts.next().and_then(|part| hex(part, 2));
        let bus = parts.next().and_then(|part| hex(part, 2));
        let domain = match parts.next() {
            Some(part) => hex(part, 8),
            None => Some(0),
        };
        let address = match (domain, bus, slot, hex(function, 1), parts.next()) {
            (Some(domain), Some(bus), Some(slot), Some(function), None) => Self {
                domain,
                bus: u8::try_from(bus).map_err(|_| wrong())?,
                slot: u8::try_from(slot).map_err(|_| wrong())?,
                function: u8::try_from(function).map_err(|_| wrong())?,
            },
            (_, _, _, _, _) => return Err(wrong()),
        };
        if address.slot > SLOT_MAX || address.function > FUNCTION_MAX {
            return Err(wrong());
        }
        Ok(address)
    }
}

impl fmt::Display for PciAddress {
    fn fmt(&self, target: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            target,
            "{:04x}:{:02x}:{:02x}.{:x}",
            self.domain, self.bus, self.slot, self.function
        )
    }
}

/// Why a text is no PCI address.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("no PCI address such as 0000:03:00.0: {text:?}")]
pub struct PciAddressError {
    /// What was given.
    pub text: String,
}

/// Slots of a bus.
const SLOT_MAX: u8 = 31;
/// Functions of a card.
const FUNCTION_MAX: u8 = 7;

/// Parses 1 to `digits_max` hex digits and nothing else: `from_str_radix` alone takes a sign.
fn hex(text: &str, digits_max: usize) -> Option<u32> {
    let is_hex = !text.is_empty()
        && text.len() <= digits_max
        && text.bytes().all(|byte| byte.is_ascii_hexdigit());
    if !is_hex {
        return None;
    }
    u32::from_str_radix(text, 16).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_form_of_an_address_is_one_address() {
        for form in ["0000:03:1f.7", "00000000:03:1F.7", "03:1f.7", "0:3:1f.7"] {
            let address: PciAddress = form.parse().expect("because it is an address");
            assert_eq!(address.to_string(), "0000:03:1f.7", "{form}");
        }
        let far: PciAddress = "10000:e1:00.0"
            .parse()
            .expect("because VMD has such domains");
        assert_eq!(far.to_string(), "10000:e1:00.0");
    }

    #[test]
    fn what_is_no_address_is_refused_with_its_text() {
        for wrong in [
            "",
            "0",
            "03:00",
            "0000:03:00",
            "0000:03:20.0",
            "0000:03:00.8",
            "+0:03:00.0",
            "0000:103:00.0",
            "1:0000:03:00.0",
            "0000:03:00.0 ",
            "000000000:03:00.0",
        ] {
            let error = wrong.parse::<PciAddress>().expect_err("because it is none");
            assert!(error.to_string().contains(&format!("{wrong:?}")), "{error}");
        }
    }

    #[test]
    fn addresses_sort_as_pci_order() {
        let mut addresses: Vec<PciAddress> = ["0001:00:00.0", "0000:0a:00.0", "0000:03:01.0"]
            .iter()
            .map(|text| text.parse().expect("because it is an address"))
            .collect();
        addresses.sort();
        let words: Vec<String> = addresses.iter().map(PciAddress::to_string).collect();
        assert_eq!(words, ["0000:03:01.0", "0000:0a:00.0", "0001:00:00.0"]);
    }
}
