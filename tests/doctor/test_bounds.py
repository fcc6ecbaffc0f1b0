"""What a damaged or forged checkpoint says is told, and neither computed with nor built."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest
from writer import MAIN, Spec, tiny

from ascend_hotfix.doctor import run
from ascend_hotfix.doctor.checkpoint import read_checkpoint
from ascend_hotfix.doctor.findings import Finding
from ascend_hotfix.doctor.report import Options
from ascend_hotfix.doctor.static import check_static

BLOCKED = [("static", "done"), ("dry run", "skipped")]


def diagnose(spec: Spec, root: Path) -> list[Finding]:
    return check_static(read_checkpoint(spec.write(root)))


@pytest.mark.parametrize(
    ("key", "most"),
    [("num_hidden_layers", 4096), ("num_experts", 10_000), ("vocab_size", 100_000_000), ("hidden_size", 100_000_000)],
)
@pytest.mark.parametrize("value", [10**9, 10**4000])
def test_a_size_beyond_reason_is_one_plain_finding_and_is_not_built(
    key: str, most: int, value: int, tmp_path: Path
) -> None:
    spec = tiny()
    spec.config[key] = value
    report = run.diagnose(str(spec.write(tmp_path / "model")), Options(), {"vllm": "0.18.0", "vllm-ascend": "0.18.0"})
    (found,) = [one for one in report.findings if one.code == "config-value"]
    assert found.message.startswith(f"config.json: {key} is 10") and found.message.endswith(f"above 0, at most {most}")
    assert [(one.name, one.status) for one in report.stages] == BLOCKED


@pytest.mark.parametrize("where", ["text_config", "vision_config"])
def test_a_size_beyond_reason_in_an_inner_config(where: str, tmp_path: Path) -> None:
    spec = tiny()
    spec.config[where] = {"model_type": "x", "depth": 10**6, "intermediate_size": 10**12, "image_token_id": 10**12}
    said = [one.params["key"] for one in diagnose(spec, tmp_path) if one.code == "config-value"]
    assert sorted(said) == [f"{where}.depth", f"{where}.intermediate_size"]


def test_layers_that_are_absent_are_not_built(tmp_path: Path) -> None:
    spec = tiny()
    spec.config["num_hidden_layers"] = 4000
    report = run.diagnose(str(spec.write(tmp_path / "model")), Options(), {"vllm": "0.18.0", "vllm-ascend": "0.18.0"})
    assert [(one.name, one.status) for one in report.stages] == BLOCKED
    assert "layer-absent" in report.stages[1].reason


@pytest.mark.parametrize(
    "entry",
    [
        {"dtype": "I8", "shape": [int("9" * 4000)] * 3000, "data_offsets": [0, 1]},
        {"dtype": "I8", "shape": [1] * 65, "data_offsets": [0, 1]},
        {"dtype": "I8", "shape": [1 << 63], "data_offsets": [0, 1]},
        {"dtype": "I8", "shape": [1], "data_offsets": [0, 10**4299]},
        {"dtype": "I8", "shape": [1], "data_offsets": [1 << 63, 0]},
    ],
)
def test_numbers_of_a_header_that_no_file_has_are_a_corrupt_header(entry: dict[str, object], tmp_path: Path) -> None:
    root = tiny().write(tmp_path / "model")
    text = json.dumps({"huge.weight": entry}).encode()
    (root / MAIN).write_bytes(struct.pack("<Q", len(text)) + text + b"\0")
    report = run.diagnose(str(root), Options(), {})
    assert [one.code for one in report.findings if one.code == "header-corrupt"] == ["header-corrupt"]


def test_of_thousands_of_causes_the_rest_is_counted(tmp_path: Path) -> None:
    spec = tiny()
    for number in range(2000):
        spec.description[f"more.{number}.weight"] = f"ODD{number}"
    found = [one for one in diagnose(spec, tmp_path) if one.code == "scheme-unknown"]
    assert len(found) == 200 and sum(one.count for one in found) == 2000
