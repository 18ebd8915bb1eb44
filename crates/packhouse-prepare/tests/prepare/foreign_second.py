# A second implementation of the xe2-m6-v2 directory, after docs/format/xe2-m6-v2.md alone: verifies
# an exported folder against its model. Arguments: folder, model. Prints the count of its tensors.
import hashlib
import json
import os
import sys


def canon(value):
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


def sha256(data):
    return hashlib.sha256(data).hexdigest()


def read(*path):
    with open(os.path.join(*path), "rb") as file:
        return file.read()


def pretty(value):
    return (json.dumps(value, indent=2, sort_keys=True) + "\n").encode()


def slot(name):
    _, layer, family, _ = name.split(".")
    first = {"ffn_gate": 0, "ffn_up": 1, "ffn_down": 122}[family]
    return int(layer) + 122 if first == 122 else 2 * int(layer) + first


def verify_order(payload, source, columns, rows):
    blocks, tiles = columns // 32, rows // 16
    for row in range(rows):
        for column in range(columns):
            block, inner = divmod(column, 32)
            at = (((block * tiles + row // 16) * 4 + inner // 8) * 16 + row % 16) * 8 + inner % 8
            stored = payload[at // 2] >> 4 * (at % 2) & 15
            begin = (row * blocks + block) * 18
            nibble = source[begin + 2 + inner % 16] >> 4 * (inner // 16) & 15
            assert stored == nibble ^ 8, (row, column)
            if inner == 0:
                scale = columns * rows // 2 + 2 * (block * rows + row)
                assert payload[scale:scale + 2] == source[begin:begin + 2], (row, block)


folder, model = sys.argv[1], read(sys.argv[2])
raw = read(folder, "manifest.json")
manifest = json.loads(raw)
assert pretty(manifest) == raw
assert canon(manifest["identity"]) == manifest["key"] == os.path.basename(folder)
assert sha256(model) == manifest["source_model"]["sha256"]
assert manifest["identity"]["tensor_keys"] == [t["key"] for t in manifest["tensors"]]
payloads, stats, rows = [], [], []
for tensor in manifest["tensors"]:
    key, identity = tensor["key"], tensor["identity"]
    assert canon(identity) == key
    assert read(folder, "tensors", key + ".json") == pretty(tensor)
    path = os.path.join(folder, "tensors", key + ".bin")
    payload, stat = read(path), os.stat(path)
    assert stat.st_nlink == 1
    columns, count = identity["tensor_shape"]
    size = columns // 32 * 18 * count
    assert len(payload) == size == tensor["payload"]["size_bytes"]
    assert sha256(payload) == tensor["payload"]["sha256"]
    assert tensor["payload"]["path"] == "tensors/" + key + ".bin"
    begin = tensor["source_tensor"]["gguf_offset"]
    source = model[begin:begin + size]
    assert sha256(source) == tensor["source_tensor"]["sha256"]
    verify_order(payload, source, columns, count)
    payloads.append({"key": key, **tensor["payload"]})
    stats.append({"key": key, "size_bytes": stat.st_size, "mtime_ns": stat.st_mtime_ns,
                  "device": stat.st_dev, "inode": stat.st_ino})
    rows.append(["tensor", slot(identity["tensor_name"]), identity["tensor_name"], columns, count,
                 "GGML_TYPE_Q4_0", 2, size, tensor["payload"]["sha256"], tensor["payload"]["path"]])
head = [["qwen27-xe2-m6-runtime-index-v1"], ["set_key", manifest["key"]],
        ["model_sha256", manifest["identity"]["target_model_sha256"]],
        ["architecture", "bmg-g31"], ["layout", "q4_0-xe2-dpas-v2", 2],
        ["tensor_count", len(rows)], ["payload_table_sha256", canon(payloads)]]
assert [row[1] for row in rows] == sorted(row[1] for row in rows)
lines = ["\t".join(map(str, fields)) + "\n" for fields in head + rows]
index = read(folder, "runtime-index.tsv")
assert "".join(lines).encode() == index
assert manifest["runtime_index"]["sha256"] == sha256(index)
assert manifest["runtime_index"]["size_bytes"] == len(index)
receipt = json.loads(read(folder, "deep-validation.json"))
assert receipt["set_key"] == manifest["key"]
assert receipt["manifest_sha256"] == sha256(raw)
assert receipt["manifest_size_bytes"] == len(raw)
assert receipt["payload_table_sha256"] == canon(payloads)
assert receipt["payload_stat_table_sha256"] == canon(stats)
assert receipt["validated_bytes"] == manifest["payload_size_bytes"] == sum(
    payload["size_bytes"] for payload in payloads)
print(len(rows))
