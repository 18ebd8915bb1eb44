//! What programs are asked and say.

use super::*;

/// One session's lines, as they are made.
struct Talk<'a> {
    lines: &'a mut Vec<u8>,
    outputs: &'a mut BTreeMap<String, Vec<u8>>,
    at_ns: u64,
    index: BTreeMap<&'static str, u64>,
}

impl Talk<'_> {
    fn say(&mut self, who: &str, from: &str, field: &str, value: Value) {
        self.at_ns += 1000;
        let mut event = json!({"at_ns": self.at_ns, "treatment": who, "from": from});
        event[field] = value;
        self.lines.extend(line(&event));
    }

    fn greet(&mut self, who: &'static str, leg: u64) {
        let mut nonce = NONCE.to_vec();
        nonce.extend(leg.to_le_bytes());
        let challenge = sha256(&nonce);
        self.say(
            who,
            "controller",
            "message",
            json!({"type": "hello", "challenge": challenge,
            "protocol": "packhouse/component/1", "inputs": "inputs", "outputs": "outputs"}),
        );
        self.say(
            who,
            "component",
            "message",
            json!({"type": "hello", "challenge": challenge,
            "protocol": "packhouse/component/1", "name": "n", "version": "1",
            "kernels": [{"fixture": FIXTURE, "arms": ["plain"], "widths": [1, 2]}],
            "devices": ["cpu"], "says_capture": true, "poisons": true, "times": true,
            "denies": ["generation", "network"]}),
        );
        self.index.insert(who, 0);
    }

    fn case(&mut self, who: &'static str, width: u64, repeat: u64, timed: Option<u64>) {
        let index = self.index[who];
        self.index.insert(who, index + 1);
        let seed = if repeat == 0 { 7 } else { repeat };
        let given = width.min(if width == 3 { 1 } else { 2 });
        let [input, first, second] = tensors(seed, given);
        let file = format!("{}.bin", sha256(&input));
        let form = |name: &str, offset: u64| {
            json!({"name": name, "file": format!("case-{index}-{name}.bin"), "dtype": "f32",
                "shape": [width, 2], "stride": [2, 1], "storage_offset": offset,
                "bytes": 8 * width})
        };
        let mut forms = [form("first", 0), form("second", 2 * width)];
        let mut case = json!({"type": "case", "index": index, "fixture": FIXTURE, "layout": null,
            "device": "cpu", "arm": "plain", "width": width, "repeat": repeat,
            "parameters": {"k": 2}, "poison": if index.is_multiple_of(2) { 165 } else { 90 },
            "inputs": {"x": {"file": file, "dtype": "f32", "shape": [given, 2],
                "bytes": input.len(), "sha256": sha256(&input)}}});
        case["boundaries"] = forms
            .iter()
            .cloned()
            .map(|mut form| {
                form["storage"] = json!("both");
                form
            })
            .collect();
        if timed.is_some() {
            case["cycles"] = json!(4);
        }
        self.say(who, "controller", "message", case);
        let inputs = json!({file: sha256(&input)});
        if width == 3 {
            let reason = "no such width";
            let declined = json!({"type": "declined", "index": index, "reason": reason});
            self.say(who, "component", "message", declined);
            return self.look(who, index, json!({}), inputs);
        }
        let mut outputs = json!({});
        for (place, (form, bytes)) in forms.iter_mut().zip([first, second]).enumerate() {
            let start = 4096 * width + 8 * width * place as u64;
            form["start"] = json!(start);
            form["end"] = json!(start + 8 * width);
            form["device"] = json!("cpu");
            form["sha256"] = json!(sha256(&bytes));
            outputs[form["file"].as_str().expect("because it is text")] =
                json!({"bytes": bytes.len(), "sha256": sha256(&bytes)});
            self.outputs.insert(sha256(&bytes), bytes);
        }
        let mut answer = json!({"type": "answer", "index": index, "boundaries": forms,
            "inputs": {"x": {"start": 64, "end": 64 + input.len(), "sha256": sha256(&input)}},
            "witnesses": [{"path": "kernel", "counters": {"rows": width}},
                {"path": "poison", "counters": {"bytes": 16 * width}}],
            "capture": "idle", "warnings": []});
        if let Some(elapsed) = timed {
            answer["timed"] = json!({"cycles": 4, "elapsed_ns": elapsed});
        }
        // Longer by the controller's clock too, by what it says.
        self.at_ns += timed.unwrap_or(0);
        self.say(who, "component", "message", answer);
        self.look(who, index, outputs, inputs);
    }

    fn look(&mut self, who: &str, index: u64, outputs: Value, inputs: Value) {
        let seen = json!({"index": index, "outputs": outputs, "inputs": inputs,
            "inputs_extra": []});
        self.say(who, "controller", "seen", seen);
    }

    fn leave(&mut self, who: &str) {
        self.say(who, "controller", "message", json!({"type": "bye"}));
        self.say(who, "controller", "end", json!("bye"));
    }
}

/// Elapsed nanoseconds of the blocks in turns, three of each: A1 B1 B2 A2. Savings are 320 / 8 and
/// 160 / 8 ns a cycle.
const BLOCKS: [[u64; 4]; 2] = [[900, 740, 740, 900], [880, 800, 800, 880]];

pub(super) fn exchanges(outputs: &mut BTreeMap<String, Vec<u8>>) -> Vec<Vec<u8>> {
    let mut legs = Vec::new();
    for (leg, treatments) in [
        (0, &["control"][..]),
        (1, &["candidate"]),
        (2, &["control", "candidate"]),
    ] {
        let mut lines = Vec::new();
        let mut talk = Talk {
            lines: &mut lines,
            outputs,
            at_ns: 0,
            index: BTreeMap::new(),
        };
        for who in treatments {
            talk.greet(who, leg);
        }
        if leg < 2 {
            let who = treatments[0];
            for width in [1, 2] {
                for repeat in [0, 1] {
                    talk.case(who, width, repeat, None);
                }
            }
            if who == "candidate" {
                talk.case(who, 3, 0, None);
            }
        } else {
            for part in 0..8 {
                if part == 0 || part == 7 {
                    talk.case("control", 2, 0, None);
                    talk.case("candidate", 2, 0, None);
                    continue;
                }
                let block = part - 1;
                let order = ["control", "candidate", "candidate", "control"];
                for (who, elapsed) in order.into_iter().zip(BLOCKS[block as usize % 2]) {
                    talk.case(who, 2, 1_000_000 + block, Some(elapsed));
                }
            }
        }
        for who in treatments {
            talk.leave(who);
        }
        legs.push(lines);
    }
    legs
}
