"""A step of a transformer: texts end to end against the padded layers of the Hugging Face library; on a GPU where there is one.

    python benchmarks/encode.py [--texts 1024 3500] [--longest 32]

Forward and backward of MiniLM's shape (6 layers of 384 dimensions, 12 attention heads), in bfloat16 where the hardware has units for
it, as training does it, and forward alone, as prediction does it; texts of 4 to `--longest` tokens. `limit` is what the products alone
would take at the best measured rate for a large product of such matrices, as a share of what a step takes.
"""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Callable
from functools import partial

import torch
from torch import Tensor

from longtail.core.memory import freed_memory_kept
from longtail.models.encoders import transformer
from longtail.models.encoders.transformer import Transformer, TransformerEncoder
from longtail.models.losses.all_labels import matrix_type, precision
from longtail.tokens.rows import TokenRows

VOCABULARY = 5_000  # distinct tokens of a batch
PRODUCT_DIM = {"cuda": 8192, "cpu": 4096}  # of the large product
REPEATS = {"cuda": 20, "cpu": 1}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--texts", type=int, nargs="+")
    parser.add_argument("--longest", type=int, default=32)
    options = parser.parse_args()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    encoder = Transformer("none").build().to(device)
    table = torch.randn(VOCABULARY, encoder.hidden_dim, device=device, requires_grad=True)
    weights = sum(part.numel() for name, part in encoder.named_parameters() if "encoder.layer" in name and part.dim() == 2)
    machine = torch.cuda.get_device_name() if device.type == "cuda" else f"{platform.machine()}, {torch.get_num_threads()} threads"
    with freed_memory_kept():  # as in training
        for what, kind, work, products in _works(device):
            rate = _best_rate(device, kind)
            print(f"{machine}, {what}, {kind}: {rate / 1e12:.3g} TFLOP/s in a large product")
            print(f"{'texts':>8}{'tokens':>10}{'padded ms':>12}{'end to end ms':>16}{'ratio':>8}{'limit':>8}")
            for n_texts in options.texts or ([1024, 3500] if device.type == "cuda" else [1, 16, 1024]):
                tokens = _texts(n_texts, options.longest, device)
                padded, ours = _compared(partial(work, encoder, tokens, table), device)
                limit = products * weights * len(tokens.ids) / rate
                times = f"{1e3 * padded:>12.1f}{1e3 * ours:>16.1f}{padded / ours:>8.1f}{limit / ours:>8.0%}"
                print(f"{n_texts:>8,}{len(tokens.ids):>10,}{times}")


Work = Callable[[TransformerEncoder, TokenRows, Tensor], None]


def _works(device: torch.device) -> list[tuple[str, torch.dtype, Work, int]]:
    """Each measurement: its name, the type it is computed in, the work, and FLOP for a weight and a token."""
    training: tuple[str, torch.dtype, Work, int] = ("training", matrix_type(device), _train, 6)
    return [training, ("prediction", matrix_type(device), _predict, 2)]


def _train(encoder: TransformerEncoder, tokens: TokenRows, table: Tensor) -> None:
    encoder.train().zero_grad()
    table.grad = None
    with precision(table.device):
        loss = encoder(tokens, table).square().mean()
    loss.backward()


@torch.no_grad()
def _predict(encoder: TransformerEncoder, tokens: TokenRows, table: Tensor) -> None:
    with precision(table.device):
        encoder.eval()(tokens, table)


def _compared(work: Callable[[], object], device: torch.device) -> tuple[float, float]:
    """Seconds of the library's layers, and of ours."""
    ours = transformer.can_pack
    transformer.can_pack = lambda *_: False
    padded = _seconds(work, device)
    transformer.can_pack = ours
    return padded, _seconds(work, device)


def _texts(n: int, longest: int, device: torch.device) -> TokenRows:
    torch.manual_seed(0)
    lengths = torch.randint(4, longest + 1, (n,))
    offsets = torch.cat([torch.zeros(1, dtype=torch.int64), lengths.cumsum(0)])
    total = int(offsets[-1])
    return TokenRows(torch.randint(1, VOCABULARY, (total,)), torch.ones(total), offsets, VOCABULARY).to(device)


def _best_rate(device: torch.device, kind: torch.dtype) -> float:
    """FLOP/s."""
    n = PRODUCT_DIM[device.type]
    a, b = (torch.randn(n, n, device=device).to(kind) for _ in range(2))
    return 2 * n**3 / _seconds(lambda: a @ b, device)


def _seconds(work: Callable[[], object], device: torch.device) -> float:
    """The median of some repeats: other work comes between on a shared machine."""
    wait = torch.cuda.synchronize if device.type == "cuda" else lambda: None
    for _ in range(2):
        work()  # kernels are compiled and chosen
    took = []
    for _ in range(5):
        wait()
        start = time.perf_counter()
        for _ in range(REPEATS[device.type]):
            work()
        wait()
        took.append((time.perf_counter() - start) / REPEATS[device.type])
    return sorted(took)[2]


if __name__ == "__main__":
    main()
