"""A broker believed what it found in its files: each file in turn is replaced by garbage.

`TROCKET_GARBAGE_CASES=5000` tries more, `TROCKET_SIM_SEED=7` others.
"""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from .garbage import judge, left_behind, replace, start

SEED = int(os.environ.get("TROCKET_SIM_SEED", "1"))
CASES = int(os.environ.get("TROCKET_GARBAGE_CASES", "160"))
PARTS = 4
CASES_OF_A_FOLDER = 10


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
async def test_garbage_in_any_file_is_right_told_or_refused_and_heals(part, autojump_clock):
    print(f"seed {SEED}, part {part}")
    outcomes: Counter[str] = Counter()
    problems = []
    for number in range(part, CASES, PARTS):
        if number // PARTS % CASES_OF_A_FOLDER == 0:
            folder = Random(f"{SEED}:{part}:{number}")
            left = await left_behind(folder, clean=number // PARTS // CASES_OF_A_FOLDER % 2 == 0)
        random = Random(f"{SEED}:{number}")
        disk = left.disk.copy()
        done = replace(disk, random)
        clean = random.random() < 0.5
        refused = disk.copy()
        first = await start(disk, left, clean=clean, first=True)
        second = await start(first.disk or refused, left, clean=True, first=False)
        outcomes[
            "refused" if first.refusal else "read-only" if first.read_only
            else "lost" if first.lost else "reported" if first.lines else "right"
        ] += 1  # fmt: skip
        problems += [f"case {number}: {done}: {each}" for each in judge(first, second)]
    print(dict(outcomes))
    assert problems == [], "\n".join(problems)
    assert set(outcomes) >= {"right", "reported"}, "the garbage was too weak to be seen"
