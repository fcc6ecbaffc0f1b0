"""What the headers of a checkpoint say: which tensors there are, and which layers are in float."""

from __future__ import annotations

import json
import struct
from pathlib import Path

import pytest

from ascend_hotfix.records import PatchError, Scheme
from ascend_hotfix.seams.headers import in_float, tensor_names

NAMES = ("mtp.fc.weight", "mtp.fc.bias", "model.q_proj.weight", "model.q_proj.weight_scale", "model.k_proj.qweight")


def write(folder: Path, names: tuple[str, ...]) -> str:
    header = {name: {"dtype": "BF16", "shape": [0], "data_offsets": [0, 0]} for name in names}
    content = json.dumps({"__metadata__": {"format": "pt"}, **header}).encode()
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(content)) + content)
    return str(folder)


def test_names_come_from_the_headers_or_from_the_index(tmp_path: Path) -> None:
    assert tensor_names(write(tmp_path, NAMES)) == set(NAMES)
    other = tmp_path / "indexed"
    other.mkdir()
    (other / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"a.weight": "x.safetensors"}}))
    assert tensor_names(str(other)) == {"a.weight"}


@pytest.mark.parametrize("content", [b"", b"\xff" * 40])
def test_a_file_that_is_no_checkpoint_has_no_names(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "model.safetensors").write_bytes(content)
    assert tensor_names(str(tmp_path)) == frozenset()


@pytest.mark.parametrize(
    ("tensor", "expected"),
    [("mtp.fc.weight", True), ("model.q_proj.weight", False), ("model.k_proj.weight", False), ("absent.weight", False)],
)
def test_a_scale_beside_a_weight_tells_of_quantization(tmp_path: Path, tensor: str, expected: bool) -> None:
    assert in_float(write(tmp_path, NAMES), (tensor,)) is expected


@pytest.mark.parametrize(
    ("pattern", "when", "message"),
    [("**.gate", ("a.weight",), "cannot be filled in"), ("model.gate", ("a.*.weight",), "more '\\*' than the pattern")],
)
def test_a_condition_that_cannot_be_filled_in_is_refused(pattern: str, when: tuple[str, ...], message: str) -> None:
    with pytest.raises(PatchError, match=message):
        Scheme(pattern, when=when)
