"""Saves that end at any call of the operating system, saves and loads at once, files that change while they are read.

Whatever happens, a load gives one tree that was saved, whole, or says that there is none.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from safetensors import safe_open
from safetensors.numpy import load_file, save_file

import redistrib as rd
from redistrib.errors import WeightsFileError
from redistrib.launches import times
from redistrib.weights import open_files, placing
from redistrib.weights.folders import INDEX, files_in
from redistrib.weights.open_files import LocalFile
from tests.weights.deaths import Mortal

NAMES = ("a", "b", "c")


def tree(version: int, names: tuple[str, ...] = NAMES) -> dict[str, np.ndarray]:
    """Arrays that all say which version they are of."""
    return {name: np.full(8, version, np.float32) for name in names}


def version_of(arrays: dict[str, Any]) -> int:
    """The version of a tree; it must be whole, and of one version."""
    values = {float(value) for array in arrays.values() for value in np.asarray(array)}
    assert len(values) == 1, f"a mixed tree: {values}"
    version = int(values.pop())
    assert set(arrays) == set(NAMES), f"a partial tree: {sorted(arrays)}"
    return version


def loaded(path: Path) -> int | None:
    """The version that a load gives; None if it is refused."""
    try:
        return version_of(rd.load(path, jax.devices()[0]))
    except WeightsFileError:
        return None


def loaded_by_others(folder: Path) -> int | None:
    """The version that programs read which take `model.safetensors` first and the index then."""
    if (folder / "model.safetensors").is_file():
        return version_of(load_file(folder / "model.safetensors"))
    if not (folder / INDEX).is_file():
        return None
    arrays = {}
    for name, file in json.loads((folder / INDEX).read_text())["weight_map"].items():
        with safe_open(folder / file, framework="np") as opened:
            arrays[name] = opened.get_tensor(name)
    return version_of(arrays)


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """No waits for disks, and for clocks that tell changes in a file's place apart."""
    monkeypatch.setattr(open_files, "TICK", 0)
    monkeypatch.setattr(os, "fsync", lambda _: None)


ONE, SHARDS, PAIR = "5GB", 1, 64  # bytes of a file, so that there are one, three and two


def saved(folder: Path, version: int, shard_bytes: int | str) -> None:
    rd.save(tree(version), folder, shard_bytes=shard_bytes)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("after", [ONE, SHARDS], ids=["one", "shards"])
@pytest.mark.parametrize("before", [None, ONE, SHARDS], ids=["nothing", "one", "shards"])
def test_a_crash_at_any_call_leaves_the_earlier_tree_or_the_new_one(
    tmp_path: Path, before: int | str | None, after: int | str, record_property: Callable[[str, object], None]
) -> None:
    outcomes: Counter[int | None] = Counter()
    calls = 0
    while True:
        folder = tmp_path / str(calls)
        if before is not None:
            saved(folder, 1, before)
        process = Mortal(calls)
        with process.alive():
            saved(folder, 2, after)
        ended = not process.is_dead
        found = loaded(folder)
        outcomes[found] += 1
        assert found in ((2,) if ended else (1, 2) if before is not None else (None, 2)), (
            f"{process.calls[-1]}: {found}"
        )
        if before is not None:
            assert loaded_by_others(folder) in (1, 2)
        saved(folder, 3, after)  # over what the crash has left
        assert loaded(folder) == loaded_by_others(folder) == 3
        assert not [name for name in os.listdir(folder) if name.startswith(".")]
        if (folder / INDEX).exists():  # shards of a save that died, whose names are no others', are removed
            named = set(json.loads((folder / INDEX).read_text())["weight_map"].values())
            assert files_in(folder).tagged <= named
            others = set(files_in(folder).shards) - named  # the first ones have usual names, and stay
            assert others <= {f"model-{number:05d}-of-00003.safetensors" for number in (1, 2, 3)}
        if ended:
            break
        calls += 1
    assert calls > 15 and len(outcomes) == 2, outcomes
    record_property("crashes", calls)


@pytest.mark.usefixtures("quick")
def test_a_crash_leaves_the_file_or_the_new_one(tmp_path: Path) -> None:
    path = tmp_path / "weights.safetensors"
    for calls in range(100):
        rd.save(tree(1), path)
        process = Mortal(calls)
        with process.alive():
            rd.save(tree(2), path)
        assert loaded(path) in (1, 2)
        if not process.is_dead:
            break
    else:
        raise AssertionError("it ends")
    assert [file.name for file in tmp_path.iterdir()] == [path.name]


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize("call", ["mkdir", "open", "write", "posix_fallocate", "pwrite", "fsync", "rename", "replace"])
def test_an_error_at_any_call_leaves_the_earlier_tree(
    tmp_path: Path, call: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first, the second, ... call fails; where the new tree has its place already, the error says so."""
    saved(tmp_path, 1, SHARDS)
    act = getattr(os, call)
    for place in range(100):
        calls = 0

        def failing(*arguments: Any, place: int = place, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            if calls == place + 1:
                raise OSError(28, "No space left on device")
            return act(*arguments, **options)

        monkeypatch.setattr(os, call, failing)
        message = ""
        try:
            saved(tmp_path, 2, SHARDS)
        except WeightsFileError as error:
            message = str(error)
        monkeypatch.undo()
        if calls <= place:
            break
        expected = 1 if "nothing has been saved" in message or "cannot be read" in message else 2
        assert loaded(tmp_path) == loaded_by_others(tmp_path) == expected, message
        assert "No space left on device" in message or (call in ("open", "mkdir") and not message), message
        if "a loss of power may undo it" not in message:  # else both are needed
            assert len(os.listdir(tmp_path)) == 4, os.listdir(tmp_path)
        for name in os.listdir(tmp_path):
            (tmp_path / name).unlink()
        saved(tmp_path, 1, SHARDS)
    assert place > 0


def test_an_interrupt_when_the_index_has_its_place_removes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    saved(tmp_path, 1, SHARDS)
    replace = os.replace

    def interrupted(*arguments: Any) -> None:
        replace(*arguments)
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "replace", interrupted)
    with pytest.raises(KeyboardInterrupt):
        saved(tmp_path, 2, SHARDS)
    assert loaded(tmp_path) == 2


def test_a_live_save_loses_nothing_to_the_next(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Which removes the temporary folders of saves that have ended, and this one's is not."""
    write, nested = os.pwrite, []

    def writing(*arguments: Any) -> int:
        if not nested:
            nested.append(True)
            saved(tmp_path, 2, SHARDS)
        return write(*arguments)

    monkeypatch.setattr(os, "pwrite", writing)
    saved(tmp_path, 1, SHARDS)
    assert loaded(tmp_path) == 1 and len(os.listdir(tmp_path)) == 4


def test_without_locks_a_save_works_and_leaves_what_may_be_alive(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unsupported(*_: object) -> None:
        raise OSError(95, "Operation not supported")

    (tmp_path / ".redistrib-0123456789abcdef.partial").mkdir()
    monkeypatch.setattr(placing.fcntl, "flock", unsupported)
    saved(tmp_path, 1, SHARDS)
    saved(tmp_path, 2, ONE)
    assert loaded(tmp_path) == 2
    assert [name for name in os.listdir(tmp_path) if name.startswith(".redistrib-")]


def test_a_folder_that_is_being_replaced_is_waited_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved(tmp_path, 1, SHARDS)
    monkeypatch.setattr(times, "SAVE_SECONDS", 0.05)
    other, _ = placing._locked(tmp_path / ".redistrib.lock", 0)
    with pytest.raises(WeightsFileError, match="another save into the folder goes on; nothing has been saved"):
        saved(tmp_path, 2, SHARDS)
    placing._unlock(other)
    assert loaded(tmp_path) == 1
    saved(tmp_path, 2, SHARDS)
    assert loaded(tmp_path) == 2


# ------------------------------------------------------------------------------------------------ at once


@contextlib.contextmanager
def repeated(*acts: Callable[[int], None]) -> Iterator[list[Exception]]:
    """A context during which threads repeat acts, which are told how often they have run; their errors."""
    stop, errors = threading.Event(), list[Exception]()

    def run(act: Callable[[int], None]) -> None:
        count = 0
        try:
            while not stop.is_set():
                act(count)
                count += 1
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(act,)) for act in acts]
    for thread in threads:
        thread.start()
    try:
        yield errors
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def reads_during(path: Path, seconds: float, *acts: Callable[[int], None]) -> Counter[int | None]:
    """Loads of a path while others write there: how often each version, and how often an error."""
    outcomes: Counter[int | None] = Counter()
    end = time.monotonic() + seconds
    with repeated(*acts) as errors:
        while time.monotonic() < end or sum(outcomes.values()) < 10:
            outcomes[loaded(path)] += 1
    assert not errors, errors
    return outcomes


SECONDS = [1.0, pytest.param(20.0, marks=pytest.mark.long)]


@pytest.mark.parametrize("seconds", SECONDS)
def test_two_writers_and_a_reader_of_a_folder(tmp_path: Path, seconds: float) -> None:
    saved(tmp_path, 1, ONE)
    outcomes = reads_during(
        tmp_path,
        seconds,
        lambda count: saved(tmp_path, 10 + count % 5, (ONE, SHARDS, PAIR)[count % 3]),
        lambda count: saved(tmp_path, 20 + count % 5, (SHARDS, PAIR, ONE, SHARDS)[count % 4]),
    )
    assert outcomes[None] == 0, outcomes
    assert loaded(tmp_path) in {*range(10, 15), *range(20, 25)} and loaded(tmp_path) == loaded_by_others(tmp_path)
    assert not [name for name in os.listdir(tmp_path) if name.startswith(".")]
    named = set(json.loads((tmp_path / INDEX).read_text())["weight_map"].values())
    assert set(os.listdir(tmp_path)) == {*named, INDEX}


@pytest.mark.parametrize("seconds", SECONDS)
def test_two_writers_and_a_reader_of_a_file(tmp_path: Path, seconds: float) -> None:
    path = tmp_path / "weights.safetensors"
    rd.save(tree(1), path)
    outcomes = reads_during(
        path,
        seconds,
        lambda count: rd.save(tree(10 + count % 5), path),
        lambda count: rd.save(tree(20 + count % 5), path),
    )
    assert outcomes[None] == 0, outcomes
    assert os.listdir(tmp_path) == [path.name]


@pytest.mark.parametrize("seconds", SECONDS)
def test_a_file_that_others_rewrite_in_its_place_is_of_one_version_or_refused(tmp_path: Path, seconds: float) -> None:
    """What a program wrote before it pauses for longer than a tick is what the file holds: nothing tells it apart."""
    path = tmp_path / "weights.safetensors"
    save_file(tree(1), path)
    pauses: list[tuple[float, float]] = []

    def rewritten(count: int) -> None:
        whole = _bytes_of(tmp_path / "other", count % 5)
        with path.open("r+b", buffering=0) as file:  # of one size, or shorter for a while
            last = time.monotonic()
            if count % 3 == 0:
                file.truncate(len(whole) // 2)
            for k in range(0, len(whole), 16):
                file.write(whole[k : k + 16])
                now = time.monotonic()
                if now - last >= open_files.TICK / 2e9:
                    pauses.append((last, now))
                last = now
        time.sleep(0.03 if count % 2 else 0)

    mixed: list[tuple[float, float]] = []
    checked = 0
    end = time.monotonic() + seconds
    with repeated(rewritten) as errors:
        while time.monotonic() < end or checked < 10:
            begin = time.monotonic()
            try:
                loaded(path)
            except AssertionError:
                mixed.append((begin, time.monotonic()))
            checked += 1
    assert not errors, errors
    unexplained = [read for read in mixed if not any(a < read[1] and read[0] < b for a, b in pauses)]
    assert not unexplained, f"mixed trees, in {checked} loads: {unexplained}"
    assert len(mixed) < checked / 2


def _bytes_of(path: Path, version: int) -> bytes:
    save_file(tree(version), path)
    return path.read_bytes()


WRITER = """
import itertools, sys
import numpy as np
import redistrib as rd
first, folder = int(sys.argv[1]), sys.argv[2]
for count in itertools.count():
    tree = {name: np.full(8, first + count % 50, np.float32) for name in "abc"}
    rd.save(tree, folder, shard_bytes=(1, 64, "5GB")[count % 3])
    if count == 0:
        print("begun", flush=True)
"""


@pytest.mark.long
def test_processes_that_are_killed_while_they_save(
    tmp_path: Path, record_property: Callable[[str, object], None]
) -> None:
    """Two save into one folder at once; whenever one is killed the next begins."""
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2]), "JAX_PLATFORMS": "cpu"}
    folder = tmp_path / "weights"
    rng = random.Random(0)
    outcomes: Counter[int | None] = Counter()

    def started(first: int) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", WRITER, str(first), str(folder)]
        process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        assert process.stdout is not None and process.stdout.readline() == "begun\n", process.communicate()[1]
        return process

    writers = [started(100), started(200)]
    try:
        for kill in range(8):
            end = time.monotonic() + rng.uniform(0.3, 0.6)
            while time.monotonic() < end:
                outcomes[loaded(folder)] += 1
            writers[kill % 2].kill()
            _, errors = writers[kill % 2].communicate()
            assert not errors
            writers[kill % 2] = started(100 + 100 * (kill % 2))
    finally:
        for writer in writers:
            writer.kill()
            writer.communicate()
    assert outcomes[None] == 0 and sum(outcomes.values()) > 20, outcomes
    saved(folder, 3, ONE)
    assert loaded(folder) == 3 and not [name for name in os.listdir(folder) if name.startswith(".")]
    record_property("loads", sum(outcomes.values()))


def test_a_file_that_is_replaced_between_its_header_and_its_data(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By a file of the same size, whose tensors lie in another order."""
    path = tmp_path / "weights.safetensors"
    save_file({"a": np.full(8, 1, np.float32), "b": np.full(8, 2, np.float32)}, path)

    class Replaced(LocalFile):
        def read_into(self, buffer: memoryview, start: int) -> int:
            if start > 8:
                save_file({"b": np.full(8, 3, np.float32), "a": np.full(8, 4, np.float32)}, tmp_path / "new")
                (tmp_path / "new").replace(path)
            return super().read_into(buffer, start)

    monkeypatch.setattr(open_files, "open_file", Replaced)
    arrays = rd.load(path, jax.devices()[0])
    assert [arrays[name].tolist() for name in "ab"] == [[1.0] * 8, [2.0] * 8]


def test_a_file_that_is_rewritten_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "weights.safetensors"
    save_file(tree(1), path)

    class Rewritten(LocalFile):
        def read_into(self, buffer: memoryview, start: int) -> int:
            if start > 8:
                path.write_bytes(_bytes_of(tmp_path / "other", 2))
            return super().read_into(buffer, start)

    monkeypatch.setattr(open_files, "open_file", Rewritten)
    with pytest.raises(WeightsFileError, match="the file was changed in its place while it was read; load it again"):
        rd.load(path, jax.devices()[0])
