"""Parts of the server's tooling that need no environment: the command, reading a log, moving names, measuring distance."""

from __future__ import annotations

import json
import math
import struct
from pathlib import Path
from typing import Any

import pytest
from compare import distance

from ascend_hotfix.sim import demo
from ascend_hotfix.sim.__main__ import arguments_of, main
from ascend_hotfix.sim.server import why_it_failed

CHECKPOINT = Path(__file__).parents[1] / "data" / "checkpoints" / "qwen3_moe-w8a8"


def _split(directory: Path) -> tuple[dict[str, Any], bytes]:
    """Header and data of the one safetensors file in a directory."""
    (path,) = directory.glob("*.safetensors")
    content = path.read_bytes()
    (length,) = struct.unpack_from("<Q", content)
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def test_moving_names_changes_names_only(tmp_path: Path) -> None:
    count = demo.move_names(CHECKPOINT, tmp_path / "moved")
    (old, data), (new, same_data) = _split(CHECKPOINT), _split(tmp_path / "moved")
    assert data == same_data
    assert list(new.values()) == list(old.values())
    assert [name.removeprefix("language_model.") for name in new] == list(old)
    assert count == sum(name.startswith("language_model.model.") for name in new) > 100


def test_moving_names_moves_the_description_and_the_index(tmp_path: Path) -> None:
    demo.move_names(CHECKPOINT, tmp_path / "moved")
    described = json.loads((tmp_path / "moved" / "quant_model_description.json").read_text())
    (index,) = (tmp_path / "moved").glob("*.index.json")
    for names in (described, json.loads(index.read_text())["weight_map"]):
        assert "language_model.model.layers.0.self_attn.q_proj.weight" in names
        assert not any(name.startswith("model.") for name in names)


def test_the_patch_of_the_demo_is_a_patch(tmp_path: Path) -> None:
    from ascend_hotfix.catalog import read_patch_file

    (tmp_path / "moved_names.py").write_text(demo.PATCH)
    assert read_patch_file(tmp_path / "moved_names.py")


def test_a_described_checkpoint_is_served_as_quantized() -> None:
    assert arguments_of(str(CHECKPOINT), ["--port", "1"])[-2:] == ["--quantization", "ascend"]


@pytest.mark.parametrize("option", [["--quantization", "ascend"], ["--quantization=compressed-tensors"], ["-q", "x"]])
def test_a_quantization_that_is_asked_for_stays(option: list[str]) -> None:
    assert arguments_of(str(CHECKPOINT), option) == ["serve", str(CHECKPOINT), *option]


def test_a_float_model_is_left_alone(tmp_path: Path) -> None:
    assert arguments_of(str(tmp_path), []) == ["serve", str(tmp_path)]


@pytest.mark.parametrize("arguments", [[], ["serve"], ["serve", "--port"], ["run", "model"]])
def test_wrong_use_is_told_how_to_use_it(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(arguments) == 2
    assert "usage: python -m ascend_hotfix.sim serve MODEL" in capsys.readouterr().err


def test_a_folder_that_is_not_there_is_told_before_anything_is_imported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["serve", str(tmp_path / "nowhere")]) == 2
    assert f"{tmp_path / 'nowhere'}: no such folder" in capsys.readouterr().err


LOG = """\
INFO 01-01 00:00:00 [config.py:1] Starting
(Worker pid=7) ERROR 01-01 00:00:01 [multiproc_executor.py:9] WorkerProc failed to start.
(Worker pid=7) ERROR 01-01 00:00:01 [multiproc_executor.py:9] Traceback (most recent call last):
(Worker pid=7) ERROR 01-01 00:00:01 [multiproc_executor.py:9] KeyError: 'model.layers.0.mlp.gate.weight'
(EngineCore pid=6) ERROR 01-01 00:00:02 [core.py:8] Exception: WorkerProc initialization failed
(APIServer pid=5) RuntimeError: Engine core initialization failed. See root cause above.
"""


def test_the_first_error_in_a_log_is_the_reason(tmp_path: Path) -> None:
    (tmp_path / "log").write_text(LOG)
    assert why_it_failed(tmp_path / "log") == "KeyError: 'model.layers.0.mlp.gate.weight'"


def test_a_log_without_an_error_gives_its_last_line(tmp_path: Path) -> None:
    (tmp_path / "log").write_text("INFO one\nvllm: error: unrecognized arguments: --quantisation\n\n")
    assert why_it_failed(tmp_path / "log") == "vllm: error: unrecognized arguments: --quantisation"


def _answer(tokens: list[int], *steps: float) -> dict[str, Any]:
    return {"prompt": [None], "steps": [[math.log(p), math.log(1 - p)] for p in steps], "tokens": tokens}


def test_distance_of_a_run_from_itself_is_zero() -> None:
    run = [_answer([0, 1], 0.9, 0.4)]
    assert distance(run, run).mean_kl == 0
    assert distance(run, run).same_best == distance(run, run).positions == 2


def test_distance_is_the_divergence_of_the_reference() -> None:
    found = distance([_answer([0], 0.5)], [_answer([0], 0.25)])
    assert found.mean_kl == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(0.5 / 0.75))


def test_distance_ends_where_the_runs_part() -> None:
    assert distance([_answer([0, 1], 0.9, 0.9)], [_answer([1, 1], 0.9, 0.9)]).positions == 1
