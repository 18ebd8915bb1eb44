//! `fixture serve`: our own kernels behind the component protocol.

use crate::answer::Answer;
use crate::failure::Failure;
use crate::fixture::sound;
use crate::fixture_words::FixtureServeArgs;
use packhouse_component::message::{Capture, CaseOrder, Offer, Witness};
use packhouse_component::name::CPU;
use packhouse_component::serve::{Card, Component, Ran, serve as serve_driver};
use packhouse_fixture::{Inputs, Kernel, kernels};
use packhouse_sys::real::RealFs;
use std::collections::BTreeMap;
use std::io::{IsTerminal as _, stdin, stdout};

/// Answers on stdin and stdout until the other side says bye.
pub(crate) fn serve(args: &FixtureServeArgs) -> Result<Answer, Failure> {
    if stdin().is_terminal() {
        return Err(Failure::usage("nobody to serve", "stdin is a terminal")
            .cause("this command is started by a driver, which talks to it through pipes")
            .hint("packhouse fixture run -- packhouse fixture serve"));
    }
    let mut component = Scalar::new(&args.ids)?;
    serve_driver(
        &RealFs,
        &mut stdin().lock(),
        &mut stdout().lock(),
        &mut component,
    )
    .map_err(|error| Failure::new("cannot serve", "stdin and stdout").because(&error))?;
    Ok(Answer::done(String::new(), serde_json::Value::Null))
}

/// Our scalar kernels.
struct Scalar {
    offers: Vec<Offer>,
}

impl Scalar {
    fn new(ids: &[String]) -> Result<Self, Failure> {
        let mut offers = Vec::new();
        for family in crate::fixture::select(ids)? {
            if kernel(family.id).is_none() {
                continue;
            }
            let cases = sound(family)?.cases;
            let mut arms: Vec<String> = cases.iter().map(|case| case.arm.clone()).collect();
            let mut widths: Vec<u64> = cases.iter().map(|case| case.width).collect();
            arms.sort();
            arms.dedup();
            widths.sort_unstable();
            widths.dedup();
            offers.push(Offer {
                fixture: family.id.to_owned(),
                arms,
                widths,
            });
        }
        Ok(Self { offers })
    }
}

impl Component for Scalar {
    fn card(&self) -> Card {
        Card {
            name: "packhouse scalar kernels".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            kernels: self.offers.clone(),
            devices: vec![CPU.to_owned()],
            says_capture: false,
            denies: DENIED.map(str::to_owned).to_vec(),
        }
    }

    fn run(
        &mut self,
        order: &CaseOrder,
        inputs: &BTreeMap<String, Vec<u8>>,
    ) -> Result<Ran, String> {
        let offer = self
            .offers
            .iter()
            .any(|offer| offer.fixture == order.fixture);
        let kernel = kernel(&order.fixture).filter(|_| offer);
        let kernel = kernel.ok_or_else(|| format!("no kernel for {}", order.fixture))?;
        let tensors = inputs
            .iter()
            .map(|(role, bytes)| (role.clone(), bytes.as_slice()));
        let outputs = kernel
            .run(&Inputs {
                width: order.width,
                parameters: &order.parameters,
                tensors: &tensors.collect(),
            })
            .map_err(|error| error.to_string())?;
        let counters = [
            ("rows".to_owned(), order.width),
            ("boundaries".to_owned(), outputs.len() as u64),
        ];
        let outputs = outputs
            .into_iter()
            .map(|output| (output.boundary, output.bytes));
        Ok(Ran {
            outputs: outputs.collect(),
            witnesses: vec![Witness {
                path: kernel.id().to_owned(),
                counters: counters.into(),
            }],
            capture: Capture::Unknown,
            warnings: Vec::new(),
        })
    }
}

/// What these kernels have no code for.
const DENIED: [&str; 4] = ["generation", "network", "service", "submission"];

/// The kernel that takes a fixture's weights as they are.
fn kernel(fixture: &str) -> Option<&'static dyn Kernel> {
    let runs_it = |kernel: &&'static dyn Kernel| {
        let is_as_they_are = matches!(kernel.packs(), None | Some("identity-v1"));
        is_as_they_are && kernel.fixtures().contains(&fixture)
    };
    kernels::all().find(runs_it)
}

#[cfg(test)]
mod tests {
    use super::*;
    use packhouse_fixture::families;

    #[test]
    fn every_fixture_has_a_kernel_that_serves_it() {
        for family in families::all() {
            assert!(kernel(family.id).is_some(), "{}", family.id);
        }
    }
}
