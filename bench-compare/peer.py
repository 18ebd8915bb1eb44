#!/usr/bin/env python3
"""The NumPy peer: what a vectorised script does for the same work as `packhouse prepare`.

    peer.py pack COLUMNS ROWS REPEATS      one Q4_0 matrix in memory, nanoseconds per repeat
    peer.py prepare JOB.json               a whole model: hash it, pack each tensor, hash both sides

It packs `q4_0-xe2-dpas-v2` (docs/format/layouts.md) in whole-array operations, one tensor at a
time, as scripts of this kind do, and prints one JSON document of integers. `pack` also prints the
payload's SHA-256, so that its bytes can be compared with ours.
"""

import hashlib
import json
import os
import sys
import time

import numpy as np

BLOCK_BYTES = 18
HASH_BYTES = 16 << 20


def pack(source, columns, rows, target):
    """Packs `rows` x `columns` Q4_0 weights: uint8 arrays of equal length."""
    blocks = columns // 32
    raw = source.reshape(rows, blocks, BLOCK_BYTES)
    codes = raw[:, :, 2:]
    nibbles = np.concatenate((codes & 15, codes >> 4), axis=2) ^ 8
    tiles = nibbles.reshape(rows // 16, 16, blocks, 4, 8).transpose(2, 0, 3, 1, 4)
    pairs = np.ascontiguousarray(tiles).reshape(-1, 2)
    code_bytes = rows * columns // 2
    target[:code_bytes] = pairs[:, 0] | (pairs[:, 1] << 4)
    scales = raw[:, :, :2].transpose(1, 0, 2)
    target[code_bytes:] = np.ascontiguousarray(scales).reshape(-1)


def sample(columns, rows):
    """A matrix whose bytes are those of a 64-bit linear congruential generator."""
    count = rows * columns // 32 * BLOCK_BYTES
    state = np.arange(count, dtype=np.uint64) * np.uint64(6364136223846793005)
    return ((state + np.uint64(1442695040888963407)) >> np.uint64(56)).astype(np.uint8)


def run_pack(columns, rows, repeats):
    source = sample(columns, rows)
    target = np.zeros_like(source)
    durations = []
    for _ in range(repeats):
        start = time.perf_counter_ns()
        pack(source, columns, rows, target)
        durations.append(time.perf_counter_ns() - start)
    digest = hashlib.sha256(target).hexdigest()
    return {"bytes": int(source.size), "pack_ns": durations, "sha256": digest}


def hash_file(path):
    hasher = hashlib.sha256()
    with open(path, "rb", buffering=0) as file:
        while chunk := file.read(HASH_BYTES):
            hasher.update(chunk)
    return hasher.hexdigest()


def run_prepare(job):
    start = time.perf_counter_ns()
    digests = {"model": hash_file(job["model"])} if job["whole"] else {}
    hash_ns = time.perf_counter_ns() - start
    pack_ns = 0
    model = np.memmap(job["model"], dtype=np.uint8, mode="r")
    for index, tensor in enumerate(job["tensors"]):
        source = model[tensor["offset"] : tensor["offset"] + tensor["bytes"]]
        path = os.path.join(job["target"], f"{index}.bin")
        begin = time.perf_counter_ns()
        payload = np.memmap(path, dtype=np.uint8, mode="w+", shape=(tensor["bytes"],))
        pack(source, tensor["columns"], tensor["rows"], payload)
        payload.flush()
        packed = time.perf_counter_ns()
        digests[tensor["name"]] = hash_file(path)
        hashlib.sha256(source).hexdigest()
        hash_ns += time.perf_counter_ns() - packed
        pack_ns += packed - begin
        del payload
    return {
        "total_ns": time.perf_counter_ns() - start,
        "pack_ns": pack_ns,
        "hash_ns": hash_ns,
        "digests": digests,
    }


def main(words):
    match words:
        case ["pack", columns, rows, repeats]:
            result = run_pack(int(columns), int(rows), int(repeats))
        case ["prepare", path]:
            with open(path, encoding="utf-8") as file:
                result = run_prepare(json.load(file))
        case _:
            sys.exit(__doc__)
    result["numpy"] = np.__version__
    print(json.dumps(result))


main(sys.argv[1:])
