"""``ascend-hotfix verify`` on folders that look like upstream's."""

from __future__ import annotations

import argparse
from pathlib import Path

import pytest

from ascend_hotfix import verify
from ascend_hotfix.catalog import Catalog, load_catalog
from ascend_hotfix.records import Fix, ModelPatch, Packed, Prefix

TABLE = "packed_modules_model_mapping: dict = {'tiny_moe': {'experts': ['experts.0.up_proj']}}\n"
CLASS = "class AscendModelSlimConfig:\n    def get_quant_method(self): ...\n"


def upstream(
    folder: Path, *, builder: str = "def initialize_model(): ...\n", config: str = TABLE + CLASS
) -> dict[str, Path]:
    files = {
        "vllm/model_executor/model_loader/utils.py": builder,
        "vllm_ascend/quantization/modelslim_config.py": config,
    }
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)
    return {"vllm": folder / "vllm", "vllm_ascend": folder / "vllm_ascend"}


def catalog(model_type: str = "tiny_moe", versions: str = ">=0.13,<0.18", **fields: object) -> Catalog:
    fields = fields or {"packed": (Packed("experts", ("experts.0.up_proj",)),)}
    fix = Fix(id="row", why="w", refs=("r",), versions={"vllm-ascend": versions}, **fields)  # type: ignore[arg-type]
    held = Catalog()
    held.add(ModelPatch(model_types=(model_type,), fixes=(fix,), name="tiny"), "here")
    return held


def state(held: Catalog, roots: dict[str, Path], version: str) -> str:
    (verdict,) = verify.verdicts(held, {"vllm": version, "vllm-ascend": version}, roots)
    return verdict.state


def test_a_row_that_upstream_lacks_is_needed_and_one_that_it_has_is_fixed(tmp_path: Path) -> None:
    roots = upstream(tmp_path)
    assert state(catalog("other_moe"), roots, "0.16.0") == "needed"
    assert state(catalog("tiny_moe"), roots, "0.16.0") == "already fixed"


def test_a_rename_is_not_taken_for_fixed_by_a_row(tmp_path: Path) -> None:
    held = catalog(packed=(Packed("experts", ("experts.0.up_proj",)),), lookup=(Prefix("a", "b"),))
    assert state(held, upstream(tmp_path), "0.16.0") == "needed"


@pytest.mark.parametrize(("version", "expected"), [("0.12.0", "not yet"), ("0.18.0", "already fixed")])
def test_outside_of_its_range_a_fix_is_for_later_or_no_more_needed(tmp_path: Path, version: str, expected: str) -> None:
    assert state(catalog("other_moe"), upstream(tmp_path), version) == expected


@pytest.mark.parametrize(("gone", "text"), [("builder", ""), ("config", TABLE)])
def test_a_place_that_is_gone_is_drifted(tmp_path: Path, gone: str, text: str) -> None:
    assert state(catalog("other_moe"), upstream(tmp_path, **{gone: text}), "0.16.0") == "drifted"


def test_a_fix_between_two_releases_is_needed_by_none() -> None:
    assert verify.needless(catalog(versions=">=0.13.1,<0.14")) == ["tiny.row"]
    assert verify.needless(catalog(versions=">=0.13,<0.14")) == []


def test_every_shipped_fix_is_for_some_supported_release_but_those_for_development_builds() -> None:
    assert verify.needless(load_catalog({})) == ["glm5.rot-weight"]


def test_without_upstream_the_command_says_where_to_run_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(verify, "_roots", dict)
    assert verify.command(argparse.Namespace()) == 2
    assert "run verify where vllm runs" in capsys.readouterr().err
