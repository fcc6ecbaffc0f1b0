"""A patch module holds data: imports of records, one docstring, ``PATCH`` or ``PATCHES``."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from ascend_hotfix.catalog import load_catalog
from ascend_hotfix.records import RULE_FIELDS

FOLDER = Path(__file__).resolve().parents[2] / "patches"
MODULES = sorted(FOLDER.glob("[!_]*.py"))
CODE = (
    ast.FunctionDef,
    ast.AsyncFunctionDef,
    ast.ClassDef,
    ast.Lambda,
    ast.For,
    ast.While,
    ast.If,
    ast.With,
    ast.Try,
    ast.ListComp,
    ast.DictComp,
    ast.SetComp,
    ast.GeneratorExp,
    ast.Import,
)


@pytest.mark.parametrize("file", MODULES, ids=lambda file: file.stem)
def test_a_patch_module_has_no_code(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))

    assert [type(node).__name__ for node in ast.walk(tree) if isinstance(node, CODE)] == []
    assert ast.get_docstring(tree)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in imports} == {"ascend_hotfix.records"}
    assigned = [name.id for node in tree.body if isinstance(node, ast.Assign) for name in node.targets]
    assert assigned[-1] in ("PATCH", "PATCHES")
    assert all(name.isupper() for name in assigned)  # shared constants
    assert len(tree.body) == 1 + len(assigned) + len(imports)


def test_every_shipped_patch_can_be_read() -> None:
    catalog = load_catalog({})

    assert catalog.problems == []
    assert len(catalog.sources) >= len(MODULES)


def test_every_fix_says_when_it_goes_and_where_it_was_reported() -> None:
    for source in load_catalog({}).sources.values():
        for fix in source.patch.fixes:
            assert fix.retire, f"{source.patch.name}.{fix.id}"
            assert any(getattr(fix, name) for name in RULE_FIELDS)
