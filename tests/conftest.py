"""Settings of the whole suite."""

from __future__ import annotations

import contextlib
import os

with contextlib.suppress(ImportError):  # the upstream environments run their tests without hypothesis
    from hypothesis import settings

    # No deadline: the suite shares its cores. In CI the same examples every time.
    settings.register_profile("suite", deadline=None, derandomize=bool(os.environ.get("CI")))
    settings.load_profile("suite")
