"""`load` under `jax.distributed`: each byte is read once over all processes, and errors are the same in all of them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file, save_file

from tests.processes import outputs_of
from tests.weights.files import arrays, drawn_tree, read_by_safetensors, same_bits, written

WORKER = Path(__file__).with_name("worker.py")


def results_of(outputs: list[str]) -> list[list[list]]:
    """What each process has printed."""
    return [
        [json.loads(line.removeprefix("RESULT ")) for line in output.splitlines() if line.startswith("RESULT ")]
        for output in outputs
    ]


@pytest.mark.parametrize(
    ("processes", "devices_each", "files"), [(2, 4, 1), pytest.param(4, 2, 3, marks=pytest.mark.long)]
)
def test_every_byte_is_read_once(tmp_path: Path, processes: int, devices_each: int, files: int) -> None:
    tensors = arrays()
    path = written(tmp_path, tensors, files)
    save_file({"wide": np.arange(2**16).reshape(256, 256) + 1 / 3}, tmp_path / "wide.safetensors")
    by_process = results_of(outputs_of(WORKER, processes, devices_each, str(path), "loads"))
    assert [[result[:2] for result in results] for results in by_process] == processes * [
        [
            ["grid", False],
            ["grid", True],
            ["replicas", False],
            ["rows", False],
            ["turned", False],
            ["sides", False],
            ["cast", False],
            ["renamed", False],
            ["wide", False],
            ["through", False],
            ["reshard through", False],
        ]
    ]
    for results in zip(*by_process, strict=True):
        name, local = results[0][:2]
        assert [result[2] for result in results] == processes * [0], name
        if local or name in ("cast", "renamed", "wide", "reshard through"):
            continue
        reads = sorted(tuple(read) for result in results for read in result[3])
        for (file, _, stop), (other, start, _) in itertools.pairwise(reads):
            assert file != other or stop <= start, name  # none twice
        size = sum(stop - start for _, start, stop in reads)
        chosen = (
            tensors
            if name not in ("turned", "through")
            else [t for t in tensors if t in ("layers.0.attn.q", "layers.0.attn.k")]
        )
        assert size == sum(tensors[tensor].nbytes for tensor in chosen)
        read = [sum(stop - start for _, start, stop in result[3]) for result in results]
        assert max(read) < 1.1 * size / processes + 8192, read
        if name == "through":
            continue
        for of_each, moved, bound in (result[4] for result in results):
            assert of_each == read, name
            if name == "replicas":  # one device of each process receives; the small tensors are padded
                assert bound == (processes - 1) * size < moved < 1.02 * bound


def assert_saved(folder: Path, seeds: range) -> None:
    """safetensors itself reads drawn trees, bit for bit."""
    for seed in seeds:
        read: dict[str, np.ndarray] = {}
        for file in (folder / str(seed)).glob("*.safetensors"):
            read |= read_by_safetensors(file)
        values = drawn_tree(seed)
        assert read.keys() - values.keys() == {"every process has a part of this"}
        assert all(same_bits(read[name], value) for name, value in values.items()), seed
        assert not list((folder / str(seed)).glob(".*"))


@pytest.mark.parametrize(
    ("saving", "loading"), [((2, 4), (4, 2)), ((4, 2), (2, 3)), ((2, 1), (1, 8))], ids=["2 to 4", "4 to 2", "2 to 1"]
)
def test_drawn_trees_come_back_in_other_layouts_and_processes(
    tmp_path: Path, saving: tuple[int, int], loading: tuple[int, int]
) -> None:
    seeds = range(20 * saving[0], 20 * saving[0] + 12)
    text = ",".join(map(str, seeds))
    outputs_of(WORKER, *saving, str(tmp_path), "save", text)
    assert_saved(tmp_path, seeds)
    for results in results_of(outputs_of(WORKER, *loading, str(tmp_path), "load", text)):
        assert results == [["load", False, 0, []]]


def test_errors_are_the_same_in_every_process(tmp_path: Path) -> None:
    path = written(tmp_path, arrays())
    outputs = outputs_of(WORKER, 2, 2, str(path), "refusals")
    refused = [[line for line in output.splitlines() if line.startswith("REFUSED")] for output in outputs]
    assert refused[0] == refused[1]
    expected = (
        "there is no tensor of this name; close names are embed.weight (in process ",  # of both, the first to say so
        "every process must see the same files (in process 1)",
        "bytes here, and",
        *["load different files, or under different names, shardings or options"] * 2,
        "the file ends before it does; it shrank while it was read (in process 1)",
        "REFUSED memory: MemoryLimitError",
    )
    assert len(refused[0]) == len(expected)
    for line, text in zip(refused[0], expected, strict=True):
        assert text in line
    assert [[result[2] for result in results] for results in results_of(outputs)] == [[0], [0]]


@pytest.mark.long
def test_processes_load_one_version_of_files_that_are_replaced(tmp_path: Path) -> None:
    outputs = outputs_of(WORKER, 2, 2, str(tmp_path / "file"), "replaced")
    first, second = (results[0][3] for results in results_of(outputs))
    assert first == second and len(first) == 20
    assert all(len(values) == 1 for values in first) and len({values[0] for values in first}) > 1, first
    assert not list((tmp_path / "replaced").glob(".*"))


@pytest.mark.parametrize(("processes", "devices_each"), [(2, 2), pytest.param(4, 2, marks=pytest.mark.long)])
def test_processes_save_together(tmp_path: Path, processes: int, devices_each: int) -> None:
    tensors = arrays()
    outputs = outputs_of(WORKER, processes, devices_each, str(tmp_path), "saves")
    total = sum(value.nbytes for value in tensors.values())
    for k, folder in enumerate(("cut", "whole")):
        read = {}
        for file in (tmp_path / folder).glob("*.safetensors"):
            read |= load_file(file)
        assert read.keys() == tensors.keys() and all(same_bits(read[name], tensors[name]) for name in tensors)
        written = [results[k][2] for results in results_of(outputs)]
        assert sum(written) == total and max(written) < 1.2 * total / processes, written
    refused = [[line for line in output.splitlines() if line.startswith("REFUSED")] for output in outputs]
    assert all(lines == refused[0] for lines in refused) and len(refused[0]) == 2
    assert "cannot be written: No space left on device; nothing has been saved (in process 1)" in refused[0][0]
    assert "the processes save different arrays; make the same call everywhere" in refused[0][1]
    assert not list((tmp_path / "full").iterdir())
