"""The stock engine's own kernels of packed blocks, as a program of the component protocol.

stock_kernels.py FOLDER gemv|gemm|simd: the folder has libggml-base.so and libggml-cpu.so.

Activations come from ggml's reference quantisers; `simd` takes those of the CPU library instead.
Outputs come from the kernels that the engine multiplies packed weights with: one row at a time, or
with `gemm` four rows at a time and the rest one by one, as the engine does.
"""

import ctypes
import hashlib
import json
import os
import struct
import sys

FOLDER, MODE = sys.argv[1], sys.argv[2]
PROTOCOL = "packhouse/component/1"
# Fixture: kernel, activations.
TYPES = {
    "mul-q4_k-ggml-cpu-repack-v1": ("q4_K_8x8_q8_K", "q8_K"),
    "mul-q2_k-ggml-cpu-repack-v1": ("q2_K_8x8_q8_K", "q8_K"),
    "mul-iq4_nl-ggml-cpu-repack-v1": ("iq4_nl_8x8_q8_0", "q8_0"),
    "mul-mxfp4-ggml-cpu-repack-v1": ("mxfp4_8x8_q8_0", "q8_0"),
}
# Elements and bytes of a block of activations.
BLOCKS = {"q8_0": (32, 34), "q8_K": (256, 292)}

# What a library prints must not get into the protocol.
WORDS = os.fdopen(os.dup(1), "wb")
os.dup2(2, 1)


def library(name):
    return ctypes.CDLL(os.path.join(FOLDER, name), mode=ctypes.RTLD_GLOBAL)


BASE, CPU = library("libggml-base.so"), library("libggml-cpu.so")
CPU.ggml_cpu_init()


def function(place, name, arguments):
    found = getattr(place, name)
    found.restype, found.argtypes = None, arguments
    return found


def say(message):
    body = json.dumps(message).encode()
    WORDS.write(struct.pack("<I", len(body)) + body)
    WORDS.flush()


def hear():
    length = struct.unpack("<I", sys.stdin.buffer.read(4))[0]
    return json.loads(sys.stdin.buffer.read(length))


def buffer(content):
    return (ctypes.c_uint8 * len(content)).from_buffer_copy(content)


def place(of, offset=0):
    return ctypes.c_void_p(ctypes.addressof(of) + offset)


def quantise(form, values, count):
    elements, size = BLOCKS[form]
    blocks = (ctypes.c_uint8 * (count // elements * size))()
    where, name = (CPU, "quantize_row_") if MODE == "simd" else (BASE, "quantize_row_")
    name += form if MODE == "simd" else form + "_ref"
    function(where, name, [ctypes.c_void_p, ctypes.c_void_p, ctypes.c_int64])(
        place(values), place(blocks), count
    )
    return blocks


def four_rows(form, rows):
    """Blocks of four rows as the engine's kernels of four rows read them."""
    elements, size = BLOCKS[form]
    scale = 2 if form == "q8_0" else 4
    made = bytearray()
    for at in range(0, len(rows[0]), size):
        blocks = [bytes(row[at : at + size]) for row in rows]
        made += b"".join(block[:scale] for block in blocks)
        codes = [block[scale : scale + elements] for block in blocks]
        for chunk in range(0, elements, 8):
            made += b"".join(code[chunk : chunk + 8] for code in codes)
        if form == "q8_K":
            sums = [struct.unpack("<16h", block[scale + elements :]) for block in blocks]
            # Four sums of each row, then the next four.
            for first in range(0, 16, 4):
                for row in sums:
                    made += struct.pack("<4h", *row[first : first + 4])
    return buffer(bytes(made))


def multiply(case, weights, activations):
    kernel, form = TYPES[case["fixture"]]
    k, n = case["parameters"]["k"], case["parameters"]["n"]
    elements, size = BLOCKS[form]
    row_bytes = k // elements * size
    output = (ctypes.c_float * (case["width"] * n))()
    kinds = [ctypes.c_int, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_void_p]
    kinds += [ctypes.c_int, ctypes.c_int]
    one = function(CPU, "ggml_gemv_" + kernel, kinds)
    four = function(CPU, "ggml_gemm_" + kernel, kinds)
    row, calls = 0, {"one": 0, "four": 0}
    while row < case["width"]:
        target = place(output, 4 * row * n)
        if MODE == "gemm" and row + 4 <= case["width"]:
            rows = [activations[r * row_bytes : (r + 1) * row_bytes] for r in range(row, row + 4)]
            packed = four_rows(form, rows)
            four(k, target, n, place(weights), place(packed), 4, n)
            row, calls["four"] = row + 4, calls["four"] + 1
        else:
            source = place(activations, row * row_bytes)
            one(k, target, n, place(weights), source, 1, n)
            row, calls["one"] = row + 1, calls["one"] + 1
    return output, calls


def interval(tensor):
    start = ctypes.addressof(tensor)
    return {"start": start, "end": start + ctypes.sizeof(tensor)}


def sha256(tensor):
    return hashlib.sha256(bytes(tensor)).hexdigest()


def answer(case, hello):
    read = {}
    for role, entry in case["inputs"].items():
        with open(os.path.join(hello["inputs"], entry["file"]), "rb") as file:
            read[role] = buffer(file.read())
    form = TYPES[case["fixture"]][1]
    activations = quantise(form, read["input"], case["width"] * case["parameters"]["k"])
    output, calls = multiply(case, read["weights"], activations)
    made, records = {"activations": activations, "output": output}, []
    for boundary in case["boundaries"]:
        tensor = made[boundary["name"]]
        with open(os.path.join(hello["outputs"], boundary["file"]), "xb") as file:
            file.write(bytes(tensor))
        record = {key: value for key, value in boundary.items() if key != "storage"}
        record.update(interval(tensor), device=case["device"], sha256=sha256(tensor))
        records.append(record)
    inputs = {role: dict(interval(of), sha256=sha256(of)) for role, of in read.items()}
    say(
        {
            "type": "answer",
            "index": case["index"],
            "boundaries": records,
            "inputs": inputs,
            "witnesses": [{"path": TYPES[case["fixture"]][0].lower(), "counters": calls}],
            "capture": "unknown",
            "warnings": [],
        }
    )


HELLO = hear()
WIDTHS = [1, 2, 4, 6, 8, 16]
KERNELS = [{"fixture": of, "arms": ["plain"], "widths": WIDTHS} for of in TYPES]
say(
    {
        "type": "hello",
        "protocol": PROTOCOL,
        "challenge": HELLO["challenge"],
        "name": "stock ggml",
        "version": MODE,
        "kernels": KERNELS,
        "devices": ["cpu"],
        "says_capture": False,
    }
)
while (CASE := hear())["type"] == "case":
    answer(CASE, HELLO)
