"""docs/coverage.md says what was run, and every public report has an owner's word."""

from __future__ import annotations

import coverage_table as coverage
import genuine

from ascend_hotfix.catalog import load_catalog


def test_the_document_is_not_stale() -> None:
    assert coverage.DOCUMENT.read_text(encoding="utf-8") == coverage.document(), (
        "run python tests/patches/coverage_table.py"
    )


def test_every_cell_has_a_result() -> None:
    assert {"|".join(cell) for cell in genuine.CELLS} <= set(coverage.results())


def test_a_status_is_known_and_a_fixed_report_names_patch_and_test() -> None:
    fixes = {f"{name}.{fix.id}" for name, source in load_catalog({}).sources.items() for fix in source.patch.fixes}
    known = {one["n"] for one in coverage.catalogue()}
    for number, status in coverage.statuses().items():
        assert number in known
        assert status["status"] in coverage.STATUSES, number
        if status["status"] == "fixed":
            assert status["test"], number
            assert {name.strip() for name in status["patch"].split(",")} <= fixes, number
        else:
            assert status["reason"], number
