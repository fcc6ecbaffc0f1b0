"""Arming: once, by whoever comes first, and not at all when switched off."""

from __future__ import annotations

import pkgutil
from pathlib import Path

import pytest

from ascend_hotfix import gate, toggles

BOOTSTRAP = Path(gate.__file__).parent / "bootstrap"


def test_arms_in_front_of_every_finder(fresh):
    result = fresh("""
        from ascend_hotfix import gate
        gate.arm()
        result = [sys.meta_path.index(finder) for finder in ours()]
    """)
    assert result == [0]


def test_arming_again_changes_nothing(fresh):
    result = fresh("""
        from ascend_hotfix import gate
        gate.arm()
        before = list(sys.meta_path)
        gate.arm()
        gate.arm()
        result = [sys.meta_path == before, len(ours())]
    """)
    assert result == [True, 1]


def test_a_second_copy_of_the_package_does_not_arm_again(fresh):
    result = fresh("""
        from ascend_hotfix import gate
        gate.arm()
        for name in [name for name in sys.modules if name.startswith("ascend_hotfix")]:
            del sys.modules[name]
        from ascend_hotfix import gate
        gate.arm()
        result = len(ours())
    """)
    assert result == 1


@pytest.mark.parametrize("value", ["none", "0", "off", "false", "no", " NONE ", "Off"])
def test_switched_off_leaves_the_interpreter_alone(fresh, value):
    result = fresh(
        """
        before = list(sys.meta_path)
        from ascend_hotfix import gate
        gate.arm()
        result = [sys.meta_path == before, "ascend_hotfix.finder" in sys.modules]
        """,
        ASCEND_HOTFIX_MODELS=value,
    )
    assert result == [True, False]


@pytest.mark.parametrize("value", ["", "all", "qwen3_moe", "-qwen3_moe", "nonesuch"])
def test_any_other_choice_of_models_arms(fresh, value):
    result = fresh("from ascend_hotfix import gate; gate.arm(); result = len(ours())", ASCEND_HOTFIX_MODELS=value)
    assert result == 1


def test_switching_off_before_vllm_is_imported_still_counts(fresh):
    result = fresh("""
        import os
        from ascend_hotfix import gate
        gate.arm()
        os.environ["ASCEND_HOTFIX_MODELS"] = "none"
        import vllm.envs
        result = told
    """)
    assert result == []


def test_switching_on_later_arms_on_the_next_call(fresh):
    result = fresh(
        """
        import os
        from ascend_hotfix import gate
        gate.arm()
        del os.environ["ASCEND_HOTFIX_MODELS"]
        gate.arm()
        import vllm.envs
        result = told
        """,
        ASCEND_HOTFIX_MODELS="none",
    )
    assert result == ["vllm.envs"]


def test_arming_imports_nothing_but_gate_and_finder(fresh):
    result = fresh(
        """
        import os, sys
        before = set(sys.modules)
        from ascend_hotfix import gate
        gate.arm()
        result = sorted(set(sys.modules) - before)
        """,
        recorder=False,
    )
    assert result == ["ascend_hotfix", "ascend_hotfix.finder", "ascend_hotfix.gate", "ascend_hotfix.toggles"]


def test_modules_imported_before_arming_are_told_at_once(fresh):
    result = fresh("""
        import vllm.model_executor.models.llama, vllm.other
        from ascend_hotfix import gate
        gate.arm()
        result = [sorted(told)]
        gate.arm()
        result.append(len(told))
    """)
    assert result == [["vllm.model_executor.models.llama", "vllm.model_executor.models.utils"], 2]


def test_a_module_that_arms_while_it_is_imported_is_told_when_it_is_complete(fresh):
    fresh.write({"vllm/envs.py": "from ascend_hotfix import gate\ngate.arm()\nimport vllm.other\nLATE = 1\n"})
    result = fresh("""
        seams.on_import = lambda name, module: told.append((name, hasattr(module, "LATE")))
        import vllm.envs
        result = [list(told)]
        import vllm.model_executor.models.utils
        result.append(told)
    """)
    assert result[0] == []
    assert ["vllm.envs", True] in result[1] and len(result[1]) == 2


def test_a_forked_child_inherits_one_finder_and_its_own_seams(fresh):
    result = fresh("""
        import os
        from ascend_hotfix import gate
        gate.arm()
        read, write = os.pipe()
        child = os.fork()
        if not child:
            gate.arm()
            import vllm.envs
            os.write(write, f"{len(ours())} {told}".encode())
            os._exit(0)
        os.waitpid(child, 0)
        result = [os.read(read, 100).decode(), told]
    """)
    assert result == ["1 ['vllm.envs']", []]


def test_a_broken_installation_says_so_in_one_line_and_never_raises(fresh):
    result = fresh("""
        sys.modules["ascend_hotfix.finder"] = None
        from ascend_hotfix import gate
        gate.arm()
        result = len(ours())
    """)
    assert result == 0
    assert fresh.stderr.startswith("ascend-hotfix: not armed: ") and "Reinstall" in fresh.stderr
    assert len(fresh.stderr.splitlines()) == 1


def test_the_pth_line_arms_once_though_a_venv_runs_it_twice(fresh):
    result = fresh(f"""
        import site
        for _ in range(2):
            site.addpackage({str(BOOTSTRAP)!r}, "ascend-hotfix.pth", set())
        result = len(ours())
    """)
    assert (result, fresh.stderr) == (1, "")


def test_the_pth_line_of_a_half_removed_package_is_silent(fresh):
    fresh.write({"left/ascend-hotfix.pth": (BOOTSTRAP / "ascend-hotfix.pth").read_text()})
    result = fresh(f"""
        import site
        sys.path[:] = [entry for entry in sys.path if entry != {str(BOOTSTRAP.parents[1])!r}]
        site.addpackage("left", "ascend-hotfix.pth", set())
        result = [name for name in sys.modules if name.startswith("ascend_hotfix") and name != "ascend_hotfix.seams"]
    """)
    assert (result, fresh.stderr) == ([], "")


def test_the_start_file_names_the_gate():
    """Python 3.15 (PEP 829) calls each line of it, and then leaves the import line of the .pth of that name alone."""
    lines = (BOOTSTRAP / "ascend-hotfix.start").read_text(encoding="utf-8").splitlines()
    assert [pkgutil.resolve_name(line) for line in lines] == [gate.arm]
    assert (BOOTSTRAP / "ascend-hotfix.pth").is_file()


@pytest.mark.parametrize(
    ("value", "strict"), [(None, False), ("", False), ("0", False), ("off", False), ("1", True), ("true", True)]
)
def test_strict(monkeypatch, value, strict):
    monkeypatch.delenv(toggles.STRICT, raising=False)
    if value is not None:
        monkeypatch.setenv(toggles.STRICT, value)
    assert toggles.strict() is strict
