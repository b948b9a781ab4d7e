# mypy: disable-error-code="import-not-found"
"""The nearest training rows by BM25 (bm25s) vote for their labels."""

from __future__ import annotations

from work_folder import Work, array_megabytes, folder_megabytes, votes_of


def main(work: Work) -> None:
    import bm25s

    labels, rows, asked = work.matrix("train_labels"), work.texts("train"), work.texts("test")
    with work.training():
        index = bm25s.BM25(backend="numba")
        index.index(bm25s.tokenize(rows, show_progress=False), show_progress=False)
    neighbours = min(work.settings["neighbours"], len(rows))
    with work.predicting():
        queries = bm25s.tokenize(asked, return_ids=False, show_progress=False)
        near, similarities = index.retrieve(queries, k=neighbours, show_progress=False, n_threads=work.threads)
        found = votes_of(near, similarities, labels, work.k)
    index.save(work.scratch / "model")
    work.finish(found, folder_megabytes(work.scratch / "model") + array_megabytes(labels))


if __name__ == "__main__":
    main(Work.from_arguments())
