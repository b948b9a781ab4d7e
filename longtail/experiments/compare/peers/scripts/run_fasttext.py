# mypy: disable-error-code="import-not-found"
"""fastText: vectors of words and bigrams summed up, all labels in a tree of Huffman codes."""

from __future__ import annotations

import re

from work_folder import Work, best_of_lists

WORD = re.compile(r"\w+|[^\w\s]")
LABEL = "__label__"


def words_of(text: str) -> str:
    """Words in lower case with blanks between, as its manual wants them; none is taken for a label."""
    return " ".join(WORD.findall(text.lower().replace(LABEL, "label")))


def main(work: Work) -> None:
    import fasttext

    labels, texts = work.matrix("train_labels"), work.texts("train")
    rows = work.scratch / "train.txt"
    with open(rows, "w", encoding="utf-8") as file:
        for row, text in enumerate(texts):
            ids = labels.indices[labels.indptr[row] : labels.indptr[row + 1]]
            if len(ids):
                file.write(f"{' '.join(f'{LABEL}{label}' for label in ids)} {words_of(text)}\n")
    settings = {name: work.settings[name] for name in ("lr", "dim", "loss", "bucket")}
    with work.training():
        model = fasttext.train_supervised(
            str(rows), epoch=work.settings["epochs"], wordNgrams=2, thread=work.threads, seed=work.seed, verbose=0, **settings
        )
    asked = [words_of(text) for text in work.texts("test")]
    with work.predicting():
        names, chances = model.predict(asked, k=work.k)
    answers = (
        [(int(name.removeprefix(LABEL)), float(chance)) for name, chance in zip(*row, strict=True)]
        for row in zip(names, chances, strict=True)
    )
    found = best_of_lists(answers, len(asked), work.k)
    model.save_model(str(work.scratch / "model.bin"))
    work.finish(found, (work.scratch / "model.bin").stat().st_size / 1e6)


if __name__ == "__main__":
    main(Work.from_arguments())
