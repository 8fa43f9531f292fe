"""One run of the paper's benchmark on a real network."""

import random
from pathlib import Path

import pytest

from tests.benchmarks.paper.experiments import EXPERIMENTS, SCALE
from tests.benchmarks.paper.measures import Record
from tests.benchmarks.paper.network import Failure, Network

SMALL = 10


def counted(run: Record | None) -> Record:
    if run is None:
        pytest.skip("this machine is too busy for a WAN")
    return run


@pytest.mark.wan
def test_coget_runs_in_the_experiments_network(tmp_path: Path):
    experiment = EXPERIMENTS["anl+isi-ufl"]
    (tmp_path / f"{SMALL}.bin").write_bytes(random.Random(1).randbytes(SMALL * 1_000_000 // SCALE))
    schemes = {scheme.name: scheme for scheme in experiment.schemes}
    with Network(experiment, tmp_path) as network:
        alone = counted(network.run(schemes["ISI alone"], SMALL, seed=1))
        assert list(alone.delivered) == ["ISI"]
        for name in ("history", "conservative-5"):
            run = counted(network.run(schemes[name], SMALL, seed=1))
            assert set(run.delivered) == {"ANL", "ISI"}
            assert 0 < max(second or 0.0 for second in run.delivered.values()) <= run.seconds
        (tmp_path / f"{SMALL}.bin").unlink()
        with pytest.raises(Failure, match="ISI alone 10 MB 1: fails"):
            network.run(schemes["ISI alone"], SMALL, seed=1)
