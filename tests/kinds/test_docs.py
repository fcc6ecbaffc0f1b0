"""docs/records.md says what each record kind is for: it is made from the docstrings by ``python tests/kinds/test_docs.py``."""

from __future__ import annotations

import dataclasses
import inspect
import json
import re
from pathlib import Path

import pytest

from ascend_hotfix import names, records, versions
from ascend_hotfix.catalog import load_catalog

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "records.md"
CASES = ROOT / "tests" / "patches" / "cases" / "kinds.json"
ROLE = re.compile(r":\w+:`([^`]+)`")
FIELDS = {
    "config": "what is read of config.json, and how the draft is quantized",
    "describe": "the quant description, and the lists of other quantization configs",
    "layers": "how layers are built",
    "tensors": "what is given to load_weights",
    "packed": "fused modules and their shards",
    "types": "schemes by pattern",
    "drop": "tensors that nothing takes",
    "fill": "parameters that nothing fills",
}


def document() -> str:
    """The page: fields of a fix, the kinds that each takes, and the docstring of each kind."""
    lines = [
        "# Record kinds",
        "",
        "What a patch can say, made from the docstrings of `ascend_hotfix/{records,names,versions}.py`.",
        "",
        f"## `Fix`\n\n{inspect.getdoc(records.Fix)}\n",
        f"## Version ranges\n\n{inspect.getdoc(versions)}".rpartition("\n\n")[0],
        "",
        "## Rules: the fields `build`, `lookup`, `weights` and `params`",
        "",
        (inspect.getdoc(names._Run) or "").partition("\n\n")[2],
    ]
    for kind in records.RULE_FIELDS["lookup"]:
        lines += _section(kind)
    for field, what in FIELDS.items():
        lines += ["", f"## `{field}`: {what}"]
        for kind in records.RULE_FIELDS[field]:
            lines += _section(kind)
    return ROLE.sub(r"`\1`", "\n".join(lines)).replace("``", "`") + "\n"


def _section(kind: type) -> list[str]:
    """Its heading, with the fields that may be left out in brackets, and its docstring."""
    parameters = ", ".join(
        one.name
        if one.default is dataclasses.MISSING and one.default_factory is dataclasses.MISSING
        else f"[{one.name}]"
        for one in dataclasses.fields(kind)
    )
    return ["", f"### `{kind.__name__}({parameters})`", "", inspect.getdoc(kind) or ""]


def test_the_page_is_what_the_docstrings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == document(), "say python tests/kinds/test_docs.py"


def test_every_record_kind_is_in_the_page() -> None:
    kinds = {kind.__name__ for field, allowed in records.RULE_FIELDS.items() if field in FIELDS for kind in allowed}
    assert set(records.RULE_FIELDS) - set(FIELDS) == set(records.RENAMING_FIELDS)
    assert all(f"### `{name}(" in document() for name in kinds)


@pytest.mark.parametrize("field", ["config", "describe", "layers", "tensors"])
def test_every_kind_names_the_case_it_came_from(field: str) -> None:
    for kind in records.RULE_FIELDS[field]:
        text = inspect.getdoc(kind) or ""
        assert any(mark in text for mark in ("#", "PR", "vllm", "0.")), kind.__name__


def test_every_case_has_a_status_and_what_it_needs() -> None:
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    assert len(cases) == 40 and len({case["id"] for case in cases}) == 40
    catalog = load_catalog({})
    known = {f"{name}.{fix.id}" for name, source in catalog.sources.items() for fix in source.patch.fixes}
    for case in cases:
        assert case["status"] in ("fixed", "diagnosed", "out-of-scope"), case["id"]
        if case["status"] == "fixed":
            assert set(case["patch"].split(", ")) <= known, case["id"]
            file, _, name = case["test"].partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), case["id"]
        else:
            assert len(case["reason"]) > 40, case["id"]


if __name__ == "__main__":
    PAGE.write_text(document(), encoding="utf-8")
