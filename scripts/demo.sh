#!/usr/bin/env bash
# Shows the main job on a real model: builds Packhouse, fetches the pinned stock engine and
# SmolLM2, starts llama-server once as it is and twice with packs, asks each the same question,
# and prints a table. Exit 0: the second start with packs mapped everything and all three answers
# are equal. Installs nothing outside target/; the store is a temporary one.
# Needs: cargo, a C/C++ compiler, python3 with venv.
set -euo pipefail
cd "$(dirname "$0")/.."
say() { printf 'demo: %s\n' "$*" >&2; }

say "building packhouse and its plug-in into ${CARGO_TARGET_DIR:-target}/release"
cargo build --release --locked --quiet -p packhouse -p packhouse-ggml
bash scripts/engine.sh

work=$(mktemp -d "$PWD/target/demo.XXXXXX")
trap 'rm -rf "$work"' EXIT
say "asking three servers; their store lies in $work and is removed at the end"
PACKHOUSE_STORE=$work/store XDG_STATE_HOME=$work/state XDG_CACHE_HOME=$work/cache \
  "${PACKHOUSE_ENGINES:-target/engines}/venv/bin/python" - "$work" \
  "${CARGO_TARGET_DIR:-target}/release/packhouse" \
  "${PACKHOUSE_ENGINES:-target/engines}/b11434/bin/llama-server" \
  "${PACKHOUSE_MODELS:-target/models}/SmolLM2-135M-Instruct.Q4_0.gguf" <<'PYTHON'
import http.client, json, os, pathlib, socket, subprocess, sys, time

work, packhouse, server, model = map(pathlib.Path, sys.argv[1:])
QUESTION = "What is a packhouse? Answer in one sentence."
PATIENCE_S = 120


def free_port():
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return sock.getsockname()[1]


def fail(what, log):
    sys.stderr.write(log.read_text(errors="replace"))
    sys.exit(f"error: {what}: {log}")


def wait(what, process, log, condition):
    start = time.monotonic()
    while not condition():
        if process.poll() is not None or time.monotonic() - start > PATIENCE_S:
            fail(what, log)
        time.sleep(0.001)
    return time.monotonic()


def healthy(port):
    try:
        connection = http.client.HTTPConnection("127.0.0.1", port, timeout=5)
        connection.request("GET", "/health")
        return connection.getresponse().status == 200
    except OSError:
        return False


def ask(port):
    """The seconds to the first token, the token ids and the text."""
    body = {
        "prompt": f"<|im_start|>user\n{QUESTION}<|im_end|>\n<|im_start|>assistant\n",
        "n_predict": 48, "temperature": 0, "stream": True, "return_tokens": True,
    }
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE_S)
    start = time.monotonic()
    headers = {"Content-Type": "application/json"}
    connection.request("POST", "/completion", json.dumps(body), headers)
    first, tokens, text = None, [], ""
    for line in connection.getresponse():
        if line.startswith(b"data: "):
            event = json.loads(line[6:])
            if event.get("tokens"):
                first = first or time.monotonic() - start
                tokens += event["tokens"]
            text += event["content"]
    return first, tokens, text


def private_mib(pid):
    for line in open(f"/proc/{pid}/smaps_rollup"):
        if line.startswith("Private_Dirty:"):
            return int(line.split()[1]) / 1024
    raise ValueError("no Private_Dirty in smaps_rollup")


def fill_ended(reports):
    loads = [json.loads(path.read_text()) for path in reports.glob("*.json")]
    return bool(loads) and all(
        load.get("fill", {}).get("state", "running") != "running" for load in loads)


def serve(name, with_packs):
    port, log, reports = free_port(), work / f"{name}.log", work / name
    reports.mkdir()
    command = [server, "-m", model, "--host", "127.0.0.1", "--port", str(port)]
    command += ["-c", "512", "-np", "1"]
    if with_packs:
        command = [packhouse, "run", "--report", reports, "--", *command]
    with log.open("wb") as output:
        start = time.monotonic()
        process = subprocess.Popen(
            command, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT)
    try:
        ready = wait("the server never got ready", process, log, lambda: healthy(port)) - start
        first, tokens, text = ask(port)
        if with_packs:
            wait("the fill never ended", process, log, lambda: fill_ended(reports))
        time.sleep(1)
        row = {"name": name, "ready": ready, "first": first, "tokens": tokens, "text": text,
               "private": private_mib(process.pid)}
    finally:
        process.terminate()
        process.wait()
    lines = [line for line in log.read_text(errors="replace").splitlines()
             if line.startswith("packhouse: ")]
    loads = [json.loads(path.read_text()) for path in sorted(reports.glob("*.json"))]
    if with_packs and not loads:
        fail("the plug-in reported no load", log)
    row["lines"] = lines
    row["mapped"] = sum(load["tally"]["mapped"]["tensors"] for load in loads)
    row["packed"] = sum(load["tally"]["packed"]["tensors"] for load in loads)
    row["refused"] = sum(r["tensors"] for load in loads for r in load["tally"]["refused"].values())
    return row


rows = [serve("stock", False), serve("first", True), serve("second", True)]
names = {"stock": "stock", "first": "packs, 1st start", "second": "packs, 2nd start"}
print(f"\nmodel     {model.name}\nquestion  {QUESTION}\nanswer    {rows[0]['text'].strip()}\n")
head = ["start", "ready", "first token", "tokens", "private", "mapped", "packed", "refused"]
table = [head] + [[
    names[row["name"]], f"{row['ready']:.2f} s", f"{row['first'] * 1000:.0f} ms",
    "-" if row is rows[0] else "equal" if row["tokens"] == rows[0]["tokens"] else "DIFFERENT",
    f"{row['private']:.0f} MiB", *(str(row[count]) for count in ("mapped", "packed", "refused")),
] for row in rows]
widths = [max(len(line[column]) for line in table) for column in range(len(head))]
for line in table:
    print("  ".join(cell.ljust(width) if column == 0 else cell.rjust(width)
                    for column, (cell, width) in enumerate(zip(line, widths))))
print()
for row in rows:
    for line in row["lines"]:
        print(f"{row['name']}: {line}")
last = rows[-1]
equal = all(row["tokens"] == rows[0]["tokens"] for row in rows)
sys.exit(0 if equal and last["mapped"] and not last["packed"] and not last["refused"] else 1)
PYTHON
