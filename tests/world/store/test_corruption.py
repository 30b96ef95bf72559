"""2,000 damages to stores that were stopped or killed: right data, or a word about it."""

from __future__ import annotations

import os
from collections import Counter
from random import Random

import pytest

from ..file_system import Image
from .corruption import FOLDERS, KINDS, check_damage, damage, victim

SEED = int(os.environ.get("TROCKET_SIM_SEED", "1"))
COUNT = 2_000
PER_VICTIM = 4
PARTS = 4


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_damage_is_never_served_and_never_kept_secret(part):
    outcomes: Counter[str] = Counter()
    problems: list[str] = []
    seed = SEED * 1000 + part
    while outcomes.total() < COUNT // PARTS:
        case = victim(seed)
        for folder in FOLDERS:
            for kind in KINDS:
                for number in range(PER_VICTIM):
                    files = {path: data[:] for path, data in case.image.files.items()}
                    image = Image(files, set(case.image.folders))
                    random = Random(f"{seed}:{folder}:{kind}:{number}")
                    harm = damage(image, random, folder, kind)
                    if harm is None:
                        continue
                    outcome, problem = check_damage(case, image, harm)
                    outcomes[outcome] += 1
                    if problem:
                        problems.append(f"seed {seed}: {harm}: {problem}")
        seed += PARTS
    print(f"seeds {SEED * 1000 + part}, +{PARTS} … {seed - PARTS}: {dict(outcomes)}")
    assert problems == []
    assert set(outcomes) >= {"right", "reported"}, "the damage was too weak to be seen"
