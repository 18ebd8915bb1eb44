#!/usr/bin/env python3
"""A kernel for `packhouse fixture run`: Q4_0 rows times Q8_1 activations, in plain Python.

    packhouse fixture run mmvq-q4_0-q8_1-v1 --width 1 -- python3 examples/kernel.py

A whole program of the component protocol (docs/format/component.md), to begin your own with: put
your kernel in the place of `multiply`, and what it can run in the place of KERNELS. Nothing may
write to stdout but `say`; what you want to log goes to stderr.
"""

import array
import hashlib
import json
import os
import struct
import sys
from operator import mul

PROTOCOL = "packhouse/component/1"
FIXTURE = "mmvq-q4_0-q8_1-v1"
KERNELS = [{"fixture": FIXTURE, "arms": ["plain"], "widths": [1, 4, 6, 8, 16]}]
BLOCK = 32


def hear():
    """Reads one message."""
    head = sys.stdin.buffer.read(4)
    if len(head) < 4:
        sys.exit("the driver is gone")
    return json.loads(sys.stdin.buffer.read(struct.unpack("<I", head)[0]))


def say(message):
    """Writes one message."""
    body = json.dumps(message).encode()
    sys.stdout.buffer.write(struct.pack("<I", len(body)) + body)
    sys.stdout.buffer.flush()


def q4_0(rows, columns):
    """Blocks of 18 bytes: a half, then 16 bytes of two nibbles; each row's scales and codes."""
    for start in range(0, len(rows), columns // BLOCK * 18):
        scales, codes = [], []
        for at in range(start, start + columns // BLOCK * 18, 18):
            scales.append(struct.unpack_from("<e", rows, at)[0])
            quants = rows[at + 2 : at + 18]
            codes.append([(q & 15) - 8 for q in quants] + [(q >> 4) - 8 for q in quants])
        yield scales, codes


def q8_1(rows, columns):
    """Blocks of 36 bytes: a half, a half that is not needed here, then 32 signed bytes."""
    for start in range(0, len(rows), columns // BLOCK * 36):
        scales, codes = [], []
        for at in range(start, start + columns // BLOCK * 36, 36):
            scales.append(struct.unpack_from("<e", rows, at)[0])
            codes.append(struct.unpack_from("<32b", rows, at + 4))
        yield scales, codes


def multiply(weights, inputs, columns):
    """The contract: binary64 sums over the blocks in their order, each rounded once at the end."""
    weights = list(q4_0(weights, columns))
    output = []
    for x_scales, x_codes in q8_1(inputs, columns):
        for w_scales, w_codes in weights:
            total = 0.0
            for dw, w, dx, x in zip(w_scales, w_codes, x_scales, x_codes):
                total += (dw * dx) * sum(map(mul, w, x))
            output.append(total)
    return struct.pack(f"<{len(output)}f", *output)


def place(data):
    """Puts bytes into memory, and says where: a program on a device would say the device's."""
    held = array.array("B", data)
    start = held.buffer_info()[0]
    return held, start, start + len(held)


def run(case, inputs_folder, outputs_folder):
    """Runs one case and describes what it made."""
    inputs, records = {}, {}
    for role, tensor in case["inputs"].items():
        with open(os.path.join(inputs_folder, tensor["file"]), "rb") as file:
            inputs[role] = place(file.read())
    (boundary,) = case["boundaries"]
    made = multiply(
        inputs["weights"][0].tobytes(), inputs["input"][0].tobytes(), case["parameters"]["k"]
    )
    output, start, end = place(made)
    with open(os.path.join(outputs_folder, boundary["file"]), "xb") as file:
        file.write(output)
    for role, (held, first, last) in inputs.items():
        digest = hashlib.sha256(held).hexdigest()
        records[role] = {"start": first, "end": last, "sha256": digest}
    same = ["name", "dtype", "shape", "stride", "storage_offset", "bytes", "file"]
    record = {field: boundary[field] for field in same}
    record |= {"device": case["device"], "start": start, "end": end}
    record["sha256"] = hashlib.sha256(output).hexdigest()
    rows = case["width"] * case["parameters"]["n"]
    return {
        "type": "answer",
        "index": case["index"],
        "boundaries": [record],
        "inputs": records,
        "witnesses": [{"path": "python-rows", "counters": {"products": rows}}],
        "capture": "unknown",
        "warnings": [],
    }


def main():
    hello = hear()
    if hello["type"] != "hello" or hello["protocol"] != PROTOCOL:
        sys.exit(f"not a driver of {PROTOCOL}")
    say(
        {
            "type": "hello",
            "protocol": PROTOCOL,
            "challenge": hello["challenge"],
            "name": "kernel.py",
            "version": "1",
            "kernels": KERNELS,
            "devices": ["cpu"],
            "says_capture": False,
        }
    )
    while (message := hear())["type"] != "bye":
        if message["fixture"] == FIXTURE:
            say(run(message, hello["inputs"], hello["outputs"]))
        else:
            say({"type": "declined", "index": message["index"], "reason": "not this fixture"})


if __name__ == "__main__":
    main()
