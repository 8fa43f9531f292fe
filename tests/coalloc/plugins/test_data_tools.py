"""Python's data tools read real files through coget:// from two servers, as their users write it.

Each test needs a package of the extra `hosts`; tests of packages that are not installed are skipped.
"""

import json
import zipfile
from contextlib import ExitStack

import numpy as np
import pytest

from tests.support.nginx import Nginx

pytestmark = [pytest.mark.long, pytest.mark.filterwarnings("default")]  # warnings of the tools are theirs


@pytest.fixture
def web(tmp_path):
    with ExitStack() as stack:
        yield [stack.enter_context(Nginx(tmp_path / f"web{i}", tmp_path / f"run{i}")) for i in range(2)]


def both(web, name) -> str:
    """Copy a file of the first server to the second one, and return the name of both."""
    (web[1].root / name).write_bytes((web[0].root / name).read_bytes())
    return "coget://" + "|".join(server.url(name) for server in web)


def tool(name):
    return pytest.importorskip(name, reason=f"pip install 'coget[hosts]' brings {name}", exc_type=ImportError)


def csv(web, rows=20_000) -> str:
    lines = "".join(f"{i},{i * 0.5}\n" for i in range(rows))
    (web[0].root / "x.csv").write_text("n,half\n" + lines)
    return both(web, "x.csv")


def test_pandas_reads_csv_and_parquet(web):
    pandas = tool("pandas")
    frame = pandas.read_csv(csv(web))
    assert frame["half"].sum() == 0.5 * frame["n"].sum() == 0.5 * sum(range(20_000))
    tool("pyarrow")
    frame.to_parquet(web[0].root / "x.parquet")
    assert pandas.read_parquet(both(web, "x.parquet"), columns=["n"])["n"].equals(frame["n"])


def test_dask_reads_blocks_in_threads_and_in_processes(web):
    frames, dask = tool("dask.dataframe"), tool("dask")
    frame = frames.read_csv(csv(web), blocksize=50_000)
    assert frame.npartitions > 3
    for scheduler in ("threads", "processes"):
        with dask.config.set(scheduler=scheduler, num_workers=2):
            assert frame["n"].sum().compute() == sum(range(20_000))


def test_xarray_slices_a_netcdf_file(web):
    xarray = tool("xarray")
    tool("h5netcdf")
    values = np.random.default_rng(1).normal(size=(40, 200, 200))
    made = xarray.Dataset({"t": (("time", "y", "x"), values)})
    made.to_netcdf(web[0].root / "x.nc", engine="h5netcdf", encoding={"t": {"chunksizes": (1, 100, 100)}})
    import fsspec

    with fsspec.open(both(web, "x.nc")) as file, xarray.open_dataset(file, engine="h5netcdf") as found:
        assert np.array_equal(found["t"][7, 30:60, 40:50].values, values[7, 30:60, 40:50])


def test_zarr_reads_a_store_in_a_zip_file_and_below_a_server(web):
    zarr = tool("zarr")
    if int(zarr.__version__.partition(".")[0]) < 3:
        pytest.skip("zarr 3 reads through fsspec's asynchronous interface")
    values = np.arange(10_000).reshape(100, 100)
    made = zarr.create_array(str(web[0].root / "x.zarr"), shape=values.shape, chunks=(10, 10), dtype=values.dtype)
    made[:] = values
    store = zarr.storage.FsspecStore.from_url(f"coget://{web[0].url('x.zarr')}", read_only=True)
    assert np.array_equal(zarr.open_array(store, mode="r")[15:25, 5:95], values[15:25, 5:95])
    with zipfile.ZipFile(web[0].root / "x.zip", "w") as packed:
        for path in (web[0].root / "x.zarr").rglob("*"):
            packed.write(path, path.relative_to(web[0].root / "x.zarr"))
    store = zarr.storage.FsspecStore.from_url(f"zip::{both(web, 'x.zip')}", read_only=True)
    assert np.array_equal(zarr.open_array(store, mode="r")[:, 3], values[:, 3])


def test_intake_opens_an_entry_of_a_catalogue(web, tmp_path):
    intake = tool("intake")
    tool("pandas")
    url = csv(web)
    data = intake.readers.datatypes.CSV(url=url)
    assert intake.readers.PandasCSV(data).read()["n"].sum() == sum(range(20_000))


def test_uproot_reads_a_branch_of_a_root_file(web):
    uproot = tool("uproot")
    values = np.arange(50_000, dtype="f8")
    with uproot.recreate(web[0].root / "x.root") as file:
        file["events"] = {"energy": values}
    with uproot.open(both(web, "x.root")) as file:
        assert np.array_equal(file["events"]["energy"].array(library="np"), values)


def test_json_lines_come_through_open_files(web):
    import fsspec

    (web[0].root / "x.json").write_text("".join(json.dumps({"n": i}) + "\n" for i in range(1000)))
    with fsspec.open(both(web, "x.json"), "rt") as file:
        assert sum(json.loads(line)["n"] for line in file) == sum(range(1000))
