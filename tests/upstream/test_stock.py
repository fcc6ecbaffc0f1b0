"""The lab agrees with a table of what stock upstream does with every genuine checkpoint, so that a fix is measured
against it.

The table was made by ``stock.py`` and compared with an earlier survey by hand. A difference means that the lab has
changed what upstream sees, or that the environment is not the release it is called.
"""

from __future__ import annotations

import json

import pytest
import stock

from ascend_hotfix.sim.pool import Zygote


@pytest.mark.parametrize("subject", stock.subjects())
def test_stock_upstream_does_what_the_table_says(zygote: Zygote, request: pytest.FixtureRequest, subject: str) -> None:
    pair = request.node.callspec.params["zygote"]
    assert stock.outcome(zygote, subject) == json.loads(stock.TABLE.read_text())[pair][subject]
