"""Version ranges as patch authors mean them."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ascend_hotfix import versions
from ascend_hotfix.versions import fits, parse, range_problem

RELEASE = st.lists(st.integers(0, 40), min_size=2, max_size=4).filter(lambda parts: parts[:2] > [0, 1])
SUFFIX = st.sampled_from(["", "a1", "b2", "rc1", "rc3", ".post1", ".post2", "rc1.post1"])
VERSION = st.tuples(RELEASE, SUFFIX).map(lambda parts: ".".join(map(str, parts[0])) + parts[1])
LOCAL = st.sampled_from(["+cpu", "+empty", "+g0123abc.d20260101"])


@pytest.mark.parametrize(
    ("version", "spec", "expected"),
    [
        # A pre-release counts as its release
        ("0.30.0rc2", ">=0.30", True),
        ("0.30.0rc2", "<0.30", False),
        ("0.30.0rc2", ">0.29", True),
        ("0.30.0rc2", "==0.30", True),
        ("0.30.0rc2", "==0.30.*", True),
        ("0.30.0rc2", "!=0.30.*", False),
        ("0.30.0rc2", ">=0.30.1", False),
        ("0.13.0rc2", ">=0.13.0rc2,<=0.13.0rc3", True),
        ("0.13.0rc1", ">=0.13.0rc2,<=0.13.0rc3", False),
        ("0.13.0", "<=0.13.0rc3", False),
        ("0.13.0rc10", ">0.13.0rc9", True),
        # So do a post-release and a local version
        ("0.11.0.post1", "<=0.11.0", True),
        ("0.11.0.post1", "==0.11.0", True),
        ("0.11.0.post1", "<0.11.1", True),
        ("0.11.0.post1", ">=0.11.0.post2", False),
        ("0.30.0+cpu", "==0.30.0", True),
        ("0.30.0+empty", ">=0.30,<0.31", True),
        ("0.30.0rc2+g1a2b3c4", "<0.30", False),
        # A development version of a known base counts as that base
        ("0.24.1.dev12+gabc", ">=0.24,<0.25", True),
        ("0.24.0rc1.dev3", ">=0.24", True),
        # One of unknown base says nothing
        ("0.1.dev1+g0123abc", ">=0.30", True),
        ("0.1.dev1+g0123abc", "<0.11", True),
        ("0.1.0", ">=0.30", False),
        ("main", ">=0.30", True),
        ("", "<0.11", True),
        # Numbers, not text
        ("0.9.2", "<0.11", True),
        ("0.11", "==0.11.0", True),
        ("0.11.0", "==0.11.*", True),
        ("0.110.0", "==0.11.*", False),
        ("v0.11.0", ">=0.11", True),
        # Several clauses
        ("0.12.0", ">=0.11, <0.13", True),
        ("0.12.0", ">=0.11,!=0.12.*,<0.14", False),
        ("5.24.0", ">=5", True),
        ("4.57.6", ">=5", False),
    ],
)
def test_fits(version, spec, expected):
    assert fits(version, spec) is expected


ROWS = re.findall(r"^\| `(\S+)` \| (.*) \| (.*) \|$", versions.__doc__ or "", re.MULTILINE)


@pytest.mark.parametrize(("spec", "inside", "outside"), ROWS)
def test_the_table_of_the_document_is_true(spec, inside, outside):
    assert range_problem(spec) is None
    assert [one for one in inside.split(", ") if not fits(one, spec)] == []
    assert [one for one in outside.split(", ") if fits(one, spec)] == []


def test_the_table_has_every_operator():
    assert {re.split(r"\d", clause)[0] for spec, _, _ in ROWS for clause in spec.split(",")} == set(versions._COMPARE)


@pytest.mark.parametrize(
    ("spec", "says"),
    [
        ("0.11", "'0.11' is no version clause; write such as '>=0.11,<0.13'"),
        ("", "no version clause"),
        (">=0.11,", "no version clause"),
        ("~=0.11", "no version clause"),
        (">=main", "no version clause"),
        (">=0.11.*", "'.*' goes with == and != only"),
        (">=0.13,<0.11", "fits no version"),
        (">0.13,<0.13", "fits no version"),
        (">=0.13,<0.13", "fits no version"),
        ("==0.13,==0.14", "fits no version"),
        ("==0.13,<0.12", "fits no version"),
        (None, "must be a string"),
        (0.11, "must be a string"),
    ],
)
def test_a_range_that_cannot_work_is_named(spec, says):
    assert says in (range_problem(spec) or "")


@pytest.mark.parametrize(
    "spec", [">=0.11", "==0.13", ">=0.13,<=0.13", "==0.13.*,>=0.13.0rc2", "!=0.12", ">=0.13rc1,<0.14"]
)
def test_a_range_that_can_work_has_no_problem(spec):
    assert range_problem(spec) is None


def test_fits_refuses_a_malformed_range():
    with pytest.raises(ValueError, match="no version clause"):
        fits("0.11.0", "latest")


@given(VERSION, VERSION)
def test_exactly_one_of_below_equal_and_above_holds(version, bound):
    assert [fits(version, f"{op}{bound}") for op in ("<", "==", ">")].count(True) == 1


@given(VERSION, VERSION)
def test_each_operator_agrees_with_its_opposite(version, bound):
    for op, opposite in (("<", ">="), (">", "<="), ("==", "!=")):
        assert fits(version, f"{op}{bound}") is not fits(version, f"{opposite}{bound}")


@given(VERSION, VERSION, VERSION)
def test_several_clauses_all_have_to_fit(version, low, high):
    assert fits(version, f">={low},<{high}") is (fits(version, f">={low}") and fits(version, f"<{high}"))


@given(VERSION, LOCAL, VERSION, st.sampled_from(["<", "<=", "==", "!=", ">", ">="]))
def test_a_local_version_fits_like_its_public_one(version, local, bound, op):
    assert fits(version + local, op + bound) is fits(version, op + bound)


@given(VERSION)
def test_a_version_fits_itself_and_trailing_zeros_say_nothing(version):
    assert fits(version, f"=={version}")
    parts = version.split("rc")[0].split("a")[0].split("b")[0].split(".post")[0]
    assert fits(version, f"=={version.replace(parts, parts + '.0', 1)}")


@given(st.text(max_size=12))
def test_any_text_is_a_version_or_of_unknown_base(text):
    assert parse(text) is not None or fits(text, "<0.1") is True


@given(st.text(max_size=12))
def test_any_text_is_a_range_or_has_a_problem(text):
    if range_problem(text) is None:
        assert fits("0.30.0", text) in (True, False)


@pytest.mark.parametrize("version", ["9" * 5000, "0.18rc" + "9" * 5000, "0.18.post" + "9" * 5000, "0.18-" + "9" * 5000])
def test_a_number_of_thousands_of_digits_is_no_version(version):
    assert parse(version) is None
    assert fits(version, ">=0.18")
    assert "no version clause" in range_problem(f">={version}")
    assert len(range_problem(f">={version}")) < 500


def test_a_bound_of_the_longest_numbers_can_fit():
    assert range_problem(f">0.18.post{'9' * 40}") is None
    assert range_problem(f"<{'9' * 40},>{'9' * 40}") is not None
