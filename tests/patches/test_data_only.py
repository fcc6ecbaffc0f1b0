"""A patch module holds data: imports of records, one docstring, ``PATCH``. Its folder says whom it is for."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import ascend_hotfix
from ascend_hotfix.catalog import SHIPPED, load_catalog
from ascend_hotfix.records import RULE_FIELDS, Fix

FOLDER = Path(__file__).resolve().parents[2] / "patches"
MODULES = sorted(FOLDER.rglob("[!_]*.py"))
FOLDER_OF_PACKAGE = Path(ascend_hotfix.__file__).parent / "patches"
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


def fixes_of(part: str) -> dict[str, tuple[Fix, ...]]:
    """Name of each patch in one of the folders -> its fixes."""
    sources = load_catalog({}).sources
    return {file.stem: sources[file.stem].patch.fixes for file in MODULES if file.parent.name == part}


@pytest.mark.parametrize("file", MODULES, ids=lambda file: f"{file.parent.name}/{file.stem}")
def test_a_patch_module_has_no_code(file: Path) -> None:
    tree = ast.parse(file.read_text(encoding="utf-8"))

    assert [type(node).__name__ for node in ast.walk(tree) if isinstance(node, CODE)] == []
    assert ast.get_docstring(tree)
    imports = [node for node in tree.body if isinstance(node, ast.ImportFrom)]
    assert {node.module for node in imports} == {"ascend_hotfix.records"}
    assigned = [name.id for node in tree.body if isinstance(node, ast.Assign) for name in node.targets]
    assert assigned[-1] == "PATCH"
    assert all(name.isupper() for name in assigned)  # shared constants
    assert len(tree.body) == 1 + len(assigned) + len(imports)


def test_every_shipped_patch_can_be_read() -> None:
    catalog = load_catalog({})

    assert catalog.problems == []
    assert [Path(source.origin).relative_to(FOLDER_OF_PACKAGE) for source in catalog.sources.values()] == [
        file.relative_to(FOLDER) for part in SHIPPED for file in MODULES if file.parent.name == part
    ]


def test_a_patch_has_the_name_of_its_file_and_no_two_files_have_one_name() -> None:
    assert list(load_catalog({}).sources) == [
        file.stem for part in SHIPPED for file in sorted((FOLDER / part).glob("[!_]*.py"))
    ]
    assert {file.parent for file in MODULES} == {FOLDER / part for part in SHIPPED}


def test_a_model_type_is_in_the_file_of_one_family() -> None:
    families = [{one for fix in fixes for one in fix.model_types} for fixes in fixes_of("models").values()]
    for index, family in enumerate(families):
        assert "*" not in family
        assert [family & other for other in families[index + 1 :] if family & other] == []


def test_a_fix_for_every_model_names_none() -> None:
    assert {fix.model_types for fixes in fixes_of("every").values() for fix in fixes} == {("*",)}


def test_every_fix_says_when_it_goes_and_where_it_was_reported() -> None:
    for source in load_catalog({}).sources.values():
        for fix in source.patch.fixes:
            assert fix.retire, f"{source.patch.name}.{fix.id}"
            assert any(getattr(fix, name) for name in RULE_FIELDS)
