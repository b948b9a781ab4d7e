"""Opening a model and answering imports nothing that only training needs."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from longtail import XMC
from tests.spelled import label_names, trained

ROOT = Path(__file__).parent.parent
TEXT, NEW = "morv nalk bush ment", "morv bush"

BY_PARTS = """
import sys
from pathlib import Path
import torch
from longtail.core.values import Texts
from longtail.inference.explain import explain
from longtail.inference.label_parts import tower_parts_of
from longtail.inference.new_labels import NewLabelMaker, check_texts, with_labels, without_labels
from longtail.storage.label_log import append, entries, replayed
from longtail.storage.model_folder import load_model, save_model

cpu, folder = torch.device("cpu"), Path(sys.argv[1])
model = load_model(folder, cpu)
print(model.ensemble.predict(Texts.of([sys.argv[2]]), 3, cpu).ids.tolist())
towers = [tower_parts_of(model, place) for place in range(len(model.scorers))]
assert explain(model, towers, sys.argv[2], None, None, cpu).parts
new = check_texts(model, [sys.argv[3]])
grown = with_labels(model, new, NewLabelMaker(model).make(new))
append(folder, 1, {"add": [sys.argv[3]]})
again = replayed(load_model(folder, cpu), NewLabelMaker(load_model(folder, cpu)), entries(folder))
assert again.label_texts == grown.label_texts
save_model(folder / "again", grown)
"""

BY_LOAD = """
import sys
import longtail

model = longtail.load(sys.argv[1], device="cpu")
print(model.predict([sys.argv[2]], k=3).ids.tolist())
assert model.explain(sys.argv[2]).parts
assert len(model.add_labels([sys.argv[3]])) == 1
model.remove_labels([0])
model.save(sys.argv[1] + "/again")
"""

LOADED = """
print([name for name in sys.modules if name.startswith(("longtail.training", "longtail.recipes"))])
"""


@pytest.fixture(params=["default", "eclare", "renee"])
def folder(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    shared = XMC(trained(request.param).recipe, device="cpu")
    shared.trained = trained(request.param).trained
    shared.save(tmp_path / "model")
    return tmp_path / "model"


@pytest.mark.parametrize("program", [BY_PARTS, BY_LOAD], ids=["by parts", "by longtail.load"])
def test_a_model_answers_without_training(program: str, folder: Path) -> None:
    before = XMC.load(folder, device="cpu").predict([TEXT], k=3).ids.tolist()
    assert TEXT not in label_names(24) and NEW not in label_names(24)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-c", program + LOADED, str(folder), TEXT, NEW]
    done = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environment)
    assert done.returncode == 0, done.stderr
    found, modules = done.stdout.splitlines()[-2:]
    assert found == str(before)
    assert modules == "[]"
