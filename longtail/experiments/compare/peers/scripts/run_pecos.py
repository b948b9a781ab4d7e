# mypy: disable-error-code="import-not-found"
"""PECOS XR-Linear with its defaults, on a tree of label centroids (PIFA)."""

from __future__ import annotations

from work_folder import Work, best_of_matrix, folder_megabytes


def main(work: Work) -> None:
    from pecos.xmc import Indexer, LabelEmbeddingFactory
    from pecos.xmc.xlinear.model import XLinearModel

    features, labels, test = (work.matrix(name) for name in ("train_features", "train_labels", "test_features"))
    with work.training():
        tree = Indexer.gen(LabelEmbeddingFactory.create(labels, features), seed=work.seed, threads=work.threads)
        model = XLinearModel.train(features, labels.tocsc(), C=tree, threads=work.threads)
    model.save(str(work.scratch / "model"))
    model = XLinearModel.load(str(work.scratch / "model"), is_predict_only=True)  # laid out for speed, as its manual advises
    with work.predicting():
        scores = model.predict(test, only_topk=work.k, threads=work.threads)
    work.finish(best_of_matrix(scores, work.k), folder_megabytes(work.scratch / "model"))


if __name__ == "__main__":
    main(Work.from_arguments())
