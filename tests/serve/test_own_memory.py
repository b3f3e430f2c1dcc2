from __future__ import annotations

import sys

import numpy as np
import psutil
import pytest

from calibrant.serve.own_memory import reserved_bytes, resident_bytes


@pytest.mark.skipif(sys.platform != "linux", reason="of /proc")
def test_it_is_what_others_see() -> None:
    before = resident_bytes()
    held = np.ones(64 << 20, np.uint8)
    seen, resident, reserved = psutil.Process().memory_info(), resident_bytes(), reserved_bytes()
    assert before is not None
    assert resident is not None
    assert reserved is not None
    assert resident - before > held.nbytes // 2
    assert abs(resident - seen.rss) < 16 << 20
    assert abs(reserved - seen.vms) < 64 << 20
