"""A step of a transformer on a GPU: texts end to end beside the padded layers of the Hugging Face library, in one run.

    python benchmarks/encode.py [--texts 1024 3500] [--longest 32]

Forward and backward of MiniLM's shape (6 layers of 384 numbers, 12 heads) in bfloat16, texts of 4 to `--longest` tokens. `limit` is what
the products alone would take at the GPU's best measured rate for a large product of bfloat16 matrices, as a share of what a step takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable

import torch
from torch import Tensor

from longtail.encode import transformer
from longtail.encode.batch import TokenBatch
from longtail.encode.transformer import Transformer, TransformerEncoder

VOCABULARY, STEPS = 30_000, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, nargs="+", default=[1024, 3500])
    parser.add_argument("--longest", type=int, default=32)
    options = parser.parse_args()
    if not torch.cuda.is_available():
        print("No NVIDIA GPU was found; on a CPU texts are padded, in runs of like length.")
        return
    encoder = Transformer("none").build().cuda()
    table = torch.randn(VOCABULARY, encoder.hidden, device="cuda", requires_grad=True)
    weights = sum(part.numel() for name, part in encoder.named_parameters() if "encoder.layer" in name and part.dim() == 2)
    rate = _best_rate()
    print(f"{torch.cuda.get_device_name()}, {rate / 1e12:.0f} TFLOP/s in a large product")
    print(f"{'texts':>8}{'tokens':>10}{'padded ms':>12}{'end to end ms':>16}{'ratio':>8}{'limit':>8}")
    for n_texts in options.texts:
        tokens = _texts(n_texts, options.longest)
        took = {}
        ways: dict[str, Callable[..., bool]] = {"padded": lambda *_: False, "end to end": transformer.can_pack}
        for way, can_pack in ways.items():
            transformer.can_pack, before = can_pack, transformer.can_pack
            took[way] = _seconds_a_step(encoder, tokens, table)
            transformer.can_pack = before
        limit = 6 * weights * len(tokens.ids) / rate
        padded, ours = took["padded"], took["end to end"]
        print(f"{n_texts:>8,}{len(tokens.ids):>10,}{1e3 * padded:>12.1f}{1e3 * ours:>16.1f}{padded / ours:>8.1f}{limit / ours:>8.0%}")


def _texts(n: int, longest: int) -> TokenBatch:
    torch.manual_seed(0)
    lengths = torch.randint(4, longest + 1, (n,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    total = int(offsets[-1])
    return TokenBatch(torch.randint(1, VOCABULARY, (total,)).cuda(), torch.ones(total).cuda(), offsets.cuda())


def _seconds_a_step(encoder: TransformerEncoder, tokens: TokenBatch, table: Tensor) -> float:
    def step() -> None:
        encoder.zero_grad()
        table.grad = None
        with torch.autocast("cuda", dtype=torch.bfloat16):
            encoder(tokens, table).square().mean().backward()

    return _seconds(step)


def _best_rate() -> float:
    """FLOP/s."""
    n = 8192
    a, b = (torch.randn(n, n, device="cuda", dtype=torch.bfloat16) for _ in range(2))
    return 2 * n**3 / _seconds(lambda: a @ b)


def _seconds(work: Callable[[], object]) -> float:
    for _ in range(3):
        work()  # kernels are compiled and chosen
    torch.cuda.synchronize()
    start = time.perf_counter()
    for _ in range(STEPS):
        work()
    torch.cuda.synchronize()
    return (time.perf_counter() - start) / STEPS


if __name__ == "__main__":
    main()
