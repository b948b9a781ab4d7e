# mypy: disable-error-code="import-not-found"
"""A probabilistic label tree, and one classifier a label, by napkinXC with its defaults."""

from __future__ import annotations

from work_folder import Work, best_of_lists, folder_megabytes


def main(work: Work) -> None:
    from napkinxc.models import BR, PLT

    folder = work.scratch / "model"
    features, labels, test = (work.matrix(name) for name in ("train_features", "train_labels", "test_features"))
    if work.settings["kind"] == "plt":
        model = PLT(str(folder), seed=work.seed, threads=work.threads)
    else:  # DiSMEC's loss; its cut of small weights is napkinXC's default
        model = BR(str(folder), loss="squaredHinge", threads=work.threads)
    with work.training():
        model.fit(features, labels)
    with work.predicting():
        answers = model.predict_proba(test, top_k=work.k)
    work.finish(best_of_lists(answers, len(answers), work.k), folder_megabytes(folder))


if __name__ == "__main__":
    main(Work.from_arguments())
