"""Requests a second of the real server on this machine, client on loopback, one text a request.

    python benchmarks/serve.py [--model FOLDER] [--labels 25000] [--connections 64] [--seconds 15] [--reloads 0] [--requests 0]

Without a model one is trained on a made catalogue of that many labels. With --reloads the model is reloaded so many times while
the client asks, and a label is added after each reload where the model can. --requests goes on until so many were answered.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import socket
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

START = "import sys; from pathlib import Path; from longtail.serve.run import serve; serve(Path(sys.argv[1]), port=int(sys.argv[2]))"
WARM_SECONDS = 2.0


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", type=Path)
    parser.add_argument("--labels", type=int, default=25_000)
    parser.add_argument("--connections", type=int, default=64)
    parser.add_argument("--seconds", type=float, default=15.0)
    parser.add_argument("--requests", type=int, default=0)
    parser.add_argument("--reloads", type=int, default=0)
    parser.add_argument("--texts", type=int, default=1, help="in a request")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as made:
        folder = options.model or trained(Path(made) / "model", options.labels)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        server = subprocess.Popen([sys.executable, "-c", START, str(folder), str(port)])
        try:
            asyncio.run(measure(options, folder, port, server.pid))
        finally:
            server.terminate()
            server.wait(30)


def trained(folder: Path, n_labels: int) -> Path:
    from longtail import XMC
    from longtail.data.synth import Shape, synth

    data = synth(Shape(train=n_labels, test=100, labels=n_labels, labels_per_point=2.0))
    one_network = ["epochs=1", "ensemble=1", "members=[]", "validation=0", "encoder.dim=128"]
    XMC.from_recipe("default", one_network, device="cpu").fit(data).save(folder)
    return folder


@dataclass
class Seen:
    """Answers and problems that a client saw."""

    seconds: list[float] = field(default_factory=list)
    problems: dict[str, int] = field(default_factory=dict)
    stop: bool = False


async def measure(options: argparse.Namespace, folder: Path, port: int, pid: int) -> None:
    await answering(port)
    texts = sample_texts(folder)
    bodies = [
        json.dumps({"text": texts[place]} if options.texts == 1 else {"texts": texts[place : place + options.texts]}).encode()
        for place in range(0, len(texts) - options.texts)
    ]
    await ask_for(port, bodies, options.connections, WARM_SECONDS)
    before = memory(pid)
    changes = asyncio.create_task(reloads(port, options.reloads)) if options.reloads else None
    began = time.perf_counter()
    seen = await ask_for(port, bodies, options.connections, options.seconds, options.requests, changes)
    took = time.perf_counter() - began
    p50, p99 = np.percentile(np.array(seen.seconds) * 1000, [50, 99])
    rate = len(seen.seconds) / took
    print(f"{folder.name}: {options.connections} connections, {took:.0f} s, {options.texts} text(s) a request")
    print(f"{'requests/s':>12}{'texts/s':>12}{'p50 ms':>9}{'p99 ms':>9}{'errors':>8}{'MB before':>11}{'MB after':>10}")
    errors = sum(seen.problems.values())
    print(f"{rate:>12,.0f}{rate * options.texts:>12,.0f}{p50:>9.1f}{p99:>9.1f}{errors:>8}{before:>11,.0f}{memory(pid):>10,.0f}")
    for problem, count in seen.problems.items():
        print(f"{count:>8} x {problem}")
    if changes is not None:
        print(f"{changes.result()[0]} reloads and {changes.result()[1]} added labels meanwhile")


def sample_texts(folder: Path) -> list[str]:
    """Words of label texts, two labels mixed, so that no two requests need be alike."""
    from longtail.core.values import Texts
    from longtail.storage.model_folder import LABELS

    with np.load(folder / LABELS) as arrays:
        labels = Texts(arrays["buffer"], arrays["offsets"])
    chosen = np.random.default_rng(0).integers(0, len(labels), (5000, 2)).tolist()
    return [f"{labels[one]} {labels[other]}"[:120] for one, other in chosen]


async def answering(port: int) -> None:
    for _ in range(600):
        try:
            if (await once(port, b"GET /readyz HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"))[0] == 200:
                return
        except OSError:
            pass
        await asyncio.sleep(0.1)
    raise SystemExit("The server did not come up.")


async def ask_for(
    port: int,
    bodies: list[bytes],
    connections: int,
    seconds: float,
    requests: int = 0,
    changes: asyncio.Task[tuple[int, int]] | None = None,
) -> Seen:
    seen = Seen()
    clients = [asyncio.create_task(client(port, bodies, place, seen)) for place in range(connections)]
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(seen.seconds) < requests or (changes is not None and not changes.done()):
        await asyncio.sleep(0.1)
    seen.stop = True
    await asyncio.gather(*clients)
    return seen


async def client(port: int, bodies: list[bytes], place: int, seen: Seen) -> None:
    """One connection, one request after the other."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    at = place * 77
    while not seen.stop:
        body = bodies[at % len(bodies)]
        at += 1
        began = time.perf_counter()
        head = b"POST /predict HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        writer.write(head + body)
        status, answer = await read(reader)
        if status == 200:
            seen.seconds.append(time.perf_counter() - began)
        else:
            problem = f"{status} {answer[:80]!r}"
            seen.problems[problem] = seen.problems.get(problem, 0) + 1
    writer.close()


async def read(reader: asyncio.StreamReader) -> tuple[int, bytes]:
    head = await reader.readuntil(b"\r\n\r\n")
    length = int(head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0])
    return int(head[9:12]), await reader.readexactly(length)


async def once(port: int, request: bytes) -> tuple[int, bytes]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    writer.write(request)
    try:
        return await read(reader)
    finally:
        writer.close()


async def reloads(port: int, n_reloads: int) -> tuple[int, int]:
    """Reload and add a label in turn; how many of each went well."""
    name = json.loads((await once(port, b"GET /models HTTP/1.1\r\nHost: x\r\n\r\n"))[1])["models"][0]["name"].encode()
    n_reloaded = n_added = 0
    for place in range(n_reloads):
        status, _ = await once(port, b"POST /models/%s/reload HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n" % name)
        n_reloaded += status == 200
        body = json.dumps({"texts": [f"a label that came later {place}"]}).encode()
        head = b"POST /labels HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % len(body)
        n_added += (await once(port, head + body))[0] == 201
    return n_reloaded, n_added


def memory(pid: int) -> float:
    """Megabytes that the server holds."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmRSS:"):
            return int(line.split()[1]) / 1024
    return 0.0


if __name__ == "__main__":
    main()
