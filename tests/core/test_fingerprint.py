"""What the fixes did to a build is in the hash by which vLLM keys its compile caches."""

from __future__ import annotations

import pytest

from ascend_hotfix.ledger import LEDGER
from ascend_hotfix.seams import models


class VllmConfig:
    """Hashes as vLLM does: to ten characters."""

    def compute_hash(self) -> str:
        return "0123456789"


@pytest.fixture(autouse=True)
def fresh() -> None:
    LEDGER.entries.clear()


def test_a_build_without_hits_is_hashed_as_upstream_hashes_it() -> None:
    config = VllmConfig()
    models._leave_fingerprint(config)
    assert config.compute_hash() == "0123456789"


def test_hits_while_building_change_the_hash_and_hits_while_loading_do_not() -> None:
    config = VllmConfig()
    LEDGER.hit("patch", "fix", "lookup")
    models._leave_fingerprint(config)
    with_hit = config.compute_hash()
    LEDGER.hit("patch", "fix", "weights")
    assert with_hit.startswith("0123456789") and with_hit != "0123456789" == with_hit[:10]
    assert config.compute_hash() == with_hit
    LEDGER.hit("patch", "fix", "packed")
    assert config.compute_hash() != with_hit
