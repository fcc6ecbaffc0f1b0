"""What is said of a tensor at which a loader stopped, and of a name that is there under another number."""

from __future__ import annotations

import pytest

from ascend_hotfix.doctor.findings import Collector
from ascend_hotfix.doctor.judge import _refused, judge
from ascend_hotfix.doctor.observe import Frame
from ascend_hotfix.doctor.rehearsal import Part, Refused

NOT_THERE = "There is no module or parameter named 'layers.3.ffn.up' in Model"


@pytest.mark.parametrize(
    ("error", "text", "asked", "code", "said"),
    [
        ("KeyError", "'layers.3.ffn.up'", "layers.3.ffn.up", "tensor-refused", "asked layers.*.ffn.up"),
        ("ValueError", NOT_THERE, "", "tensor-refused", "asked layers.*.ffn.up"),
        ("AssertionError", "", "", "tensor-shape-refused", "of shape 8x4 such as t does not fit its parameter: Assert"),
        ("RuntimeError", "start (0) exceeds (8)", "", "tensor-shape-refused", "RuntimeError: start (0) exceeds (8)"),
        ("AttributeError", "'Linear' object has no attribute 'data'", "", "tensor-failed", "AttributeError: 'Linear'"),
    ],
)
def test_a_loaders_error_is_told_as_what_it_is(error: str, text: str, asked: str, code: str, said: str) -> None:
    class Tensor:
        shape = (8, 4)

    found = Collector()
    _refused(Refused("t", error, text, "linear.py:1", asked), Tensor(), found, "target")
    [finding] = found.findings()
    assert finding.code == code and said in finding.message and "linear.py:1" in finding.message


def test_a_name_that_differs_by_a_number_alone_is_told_so() -> None:
    frame = Frame("layers.7.up", "linear", missing=["layers.7.up.weight"], standin="W8A8")
    part = Part("target", frames=[frame], description={"layers.3.up.weight": "W8A8"})
    [finding] = judge(part, {}, ())
    assert finding.params == {"asked": "layers.*.up", "known": "layers.*.up of another number"}
