"""A training that is killed goes on to the same bytes, or starts anew and says why.

Kills come in three kinds: an exception right after a state was written (every epoch of
every model and loss), SIGKILL at no chosen moment of a real process, and SIGKILL in the
middle of writing a file.
"""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
import signal
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

import train as script
from lastitem.errors import InputError
from lastitem.models.registry import build
from lastitem.study.settings import TrainingSettings, schema_of
from lastitem.training import loop as training
from lastitem.training.checkpoints import Checkpoint, key_of, random_states, set_random_states
from lastitem.training.loop import train
from tests.training.test_loop import (
    ITEMS,
    TRAINED,
    continued,
    cycle,
    hopeless_validation,
    random_histories,
    script_arguments,
    sequences_of,
    write_parts,
)

SOURCE = Path(__file__).parents[2] / "src"
OUTPUTS = ["curve.csv", "model.json", "model.safetensors"]
LOSSES = schema_of(TrainingSettings)["loss"]["enum"]
STATE = "unfinished.pt"
#: Bytes of the sha256 at the end of a state.
SEAL = 32
HISTORIES = [[*history, 3] for history in random_histories(12)]
SIZES = {"hidden_size": 8, "maximum_length": 10, "dropout": 0.3}
#: As a pipe sees it: without this variable Python keeps lines back that go into one.
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"} | {
    "PYTHONPATH": str(SOURCE)
}


class Killed(BaseException):
    """Stands for the end of a process."""


def dying(epoch):
    """A :class:`Checkpoint` whose process ends when the state of ``epoch`` has been
    written.
    """

    class Dying(Checkpoint):
        def save(self, content):
            super().save(content)
            if content["state"]["epoch"] == epoch:
                raise Killed

    return Dying


def tiny(architecture="sasrec", seed=0):
    torch.manual_seed(seed)
    return build(
        architecture, ITEMS, SIZES if architecture == "gru4rec" else {**SIZES, "blocks": 1}
    )


def raw(tensors):
    """The bytes of each tensor: equal numbers are not enough."""
    return {
        name: (str(tensor.dtype), tuple(tensor.shape), tensor.numpy().tobytes())
        for name, tensor in tensors.items()
    }


def read_state(path):
    """What a state holds; fails if it is not a whole one."""
    content = path.read_bytes()
    assert content == sealed(content[:-SEAL])
    return torch.load(io.BytesIO(content[:-SEAL]), weights_only=True)


def plain(held):
    """The same with the bytes of each tensor in its place, to be compared."""
    if isinstance(held, torch.Tensor):
        return raw({"": held})
    if isinstance(held, dict):
        return {name: plain(part) for name, part in held.items()}
    return [plain(part) for part in held] if isinstance(held, (list, tuple)) else held


# Every model and loss


@pytest.mark.parametrize("loss", LOSSES)
@pytest.mark.parametrize("architecture", TRAINED)
def test_stopped_after_each_epoch_everything_ends_the_same(tmp_path, architecture, loss):
    """Weights, curve, reports, best state, Adam's moments and random states of five
    processes are those of one, byte for byte.

    A round takes two epochs (one for BSARec, which has more samples), so that stops
    fall inside and between rounds. Each process begins with other weights and another
    global random state: nothing may come from anywhere but its state.
    """
    sequences, validation = (
        sequences_of(cycle(8, ITEMS, seed=0)),
        continued(cycle(20, ITEMS, seed=1)),
    )
    settings = TrainingSettings(
        loss=loss,
        num_negatives=3,
        batch_size=4,
        round_updates=3,
        maximum_epochs=5,
        learning_rate=0.01,
        length_groups=2,
        ema_decay=0.9 if loss == "softmax" else 0.0,
    )
    ends = []
    for name, stops in (("whole", [None]), ("stopped", [1, 2, 3, 4, None])):
        said = []
        for process, stop in enumerate(stops):
            model, lines = tiny(architecture, seed=process), []
            torch.manual_seed(100 + process)
            try:
                curve = train(
                    model,
                    sequences,
                    validation,
                    settings,
                    filter_seen=False,
                    seed=6,
                    report=lambda curve, _, lines=lines: lines.append(curve[-1]),
                    checkpoint=dying(stop)(tmp_path / name, "key", said.append),
                )
            except Killed:
                assert stop
        held = read_state(tmp_path / name)
        # Times are what differs: the sum, and one for each round, which only grows.
        times = [*held["state"].pop("reached"), held["state"].pop("seconds")]
        assert len(times) == len(curve) + 1 and times == sorted(times)
        ends.append((raw(model.state_dict()), curve, lines, plain(held)))
        assert said == [
            f"goes on after epoch {stop}, from {tmp_path / name}" for stop in stops[:-1]
        ]
    assert [line.epoch for line in ends[0][1]] == (
        [1, 2, 3, 4, 5] if architecture == "bsarec" else [2, 4, 5]
    )
    assert ends[0] == ends[1]
    held = ends[0][3]
    moments = {"step", "exp_avg", "exp_avg_sq"} | ({"average"} if loss == "softmax" else set())
    assert all({*of_one} == moments for of_one in held["optimizer"]["state"].values())
    assert held["weights"].keys() == held["state"]["best_weights"].keys() == ends[0][0].keys()
    assert held["random"].keys() == {"batches", "cpu"}


def test_a_state_of_the_last_epoch_trains_no_more(tmp_path, monkeypatch):
    """Killed between the last state and the model: the model is made of the best state
    in it. Early stopping counts as an end too.
    """
    for settings in ({"maximum_epochs": 3}, {"maximum_epochs": 50, "patience": 2}):
        ends = []
        for _ in range(2):
            model = tiny()
            curve = train(
                model,
                sequences_of(HISTORIES),
                hopeless_validation(),
                TrainingSettings(batch_size=6, round_updates=1, **settings),
                filter_seen=True,
                seed=3,
                checkpoint=Checkpoint(tmp_path / STATE, str(settings)),
            )
            ends.append((raw(model.state_dict()), curve))
            monkeypatch.setattr(training, "update", None)
        assert ends[0] == ends[1]
        assert len(curve) == 3
        monkeypatch.undo()


def test_without_a_path_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    train(
        tiny(),
        sequences_of(HISTORIES),
        hopeless_validation(),
        TrainingSettings(maximum_epochs=2),
        filter_seen=True,
        seed=3,
    )
    assert list(tmp_path.iterdir()) == []


# The script


def arguments_of(folder, epochs=5, training=None, **changed):
    """Tiny, with dropout, two updates an epoch, a round an epoch, and a patience that
    never ends it.
    """
    settings = {
        "batch_size": 6,
        "round_updates": 2,
        "maximum_epochs": epochs,
        "patience": epochs,
        "length_groups": 2,
        **(training or {}),
    }
    sizes = {"settings": json.dumps({**SIZES, "blocks": 1})}
    return script_arguments(
        folder, training=json.dumps(settings), state=folder / STATE, **sizes | changed
    )


def outputs(folder):
    """The bytes of all that a training leaves; there must be nothing else but what it
    was given.
    """
    left = sorted(
        path.name
        for path in folder.iterdir()
        if path.name not in ("train.parquet", "validation.parquet", "items.parquet")
    )
    assert left == OUTPUTS
    return {name: (folder / name).read_bytes() for name in left}


def whole(folder, histories=HISTORIES, **changed):
    """What an unbroken training leaves, made in a folder of its own."""
    folder.mkdir()
    write_parts(folder, histories)
    script.main(arguments_of(folder, **changed))
    return outputs(folder)


@pytest.fixture(scope="module")
def unbroken(tmp_path_factory):
    """What an unbroken training leaves, and the folder of one that ended after its
    second epoch.
    """
    folder = tmp_path_factory.mktemp("two")
    left = whole(folder / "whole")
    (folder / "killed").mkdir()
    write_parts(folder / "killed", HISTORIES)
    with pytest.MonkeyPatch.context() as patch, pytest.raises(Killed):
        patch.setattr(script, "Checkpoint", dying(2))
        script.main(arguments_of(folder / "killed"))
    assert not [name for name in OUTPUTS if (folder / "killed" / name).exists()]
    assert read_state(folder / "killed" / STATE)["state"]["epoch"] == 2
    return left, folder / "killed"


@pytest.fixture
def expected(unbroken):
    """The bytes of an unbroken training."""
    return unbroken[0]


@pytest.fixture
def killed(unbroken, tmp_path):
    """A folder in which a training ended after its second epoch; only the state is left
    of it.
    """
    return Path(shutil.copytree(unbroken[1], tmp_path / "killed"))


def start(*arguments):
    """A Python process whose lines can be read as it writes them."""
    command = [sys.executable, *map(str, arguments)]
    return subprocess.Popen(
        command, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )


def test_a_process_killed_at_three_moments_ends_in_the_same_files(tmp_path):
    """SIGKILL as soon as a drawn epoch is printed, which is somewhere in the next ones;
    DuoRec with negatives draws the most.
    """
    training = {"loss": "gbce", "num_negatives": 3}
    changed = {"architecture": "duorec", "epochs": 40, "training": training}
    expected = whole(tmp_path / "whole", **changed)
    folder = tmp_path / "killed"
    folder.mkdir()
    write_parts(folder, HISTORIES)
    reached = None
    for epoch in [
        *sorted(np.random.default_rng(19).choice(np.arange(2, 20), 3, replace=False)),
        None,
    ]:
        process, said, read = start(SOURCE / "train.py", *arguments_of(folder, **changed)), None, []
        for line in process.stdout:
            read.append(line)
            if found := re.search(r"goes on after epoch (\d+)", line):
                said = int(found[1])
            # Rounds of earlier processes are printed again, so only a later one counts.
            if (
                epoch
                and (found := re.search(r"epoch (\d+), .* loss ", line))
                and int(found[1]) >= max(epoch, (reached or 0) + 1)
            ):
                process.send_signal(signal.SIGKILL)
        assert process.wait() == (-signal.SIGKILL if epoch else 0), "".join(read)
        assert said == reached
        if epoch:
            reached = read_state(folder / STATE)["state"]["epoch"]
            assert reached >= epoch
            assert not [name for name in OUTPUTS if (folder / name).exists()]
    assert outputs(folder) == expected


DYING = """
import os, pathlib, runpy, signal, sys
write, calls, last = pathlib.Path.write_bytes, 0, int(sys.argv[1])
def die_in_the_middle(path, content):
    global calls
    calls += 1
    write(path, content)
    if calls == last:
        os.truncate(path, os.path.getsize(path) // 2)
        os.kill(os.getpid(), signal.SIGKILL)
pathlib.Path.write_bytes = die_in_the_middle
sys.argv = sys.argv[2:]
runpy.run_path(sys.argv[0], run_name="__main__")
"""


@pytest.mark.parametrize(("call", "epoch", "half"), [(2, 3, STATE), (4, 5, "model.safetensors")])
def test_killed_while_a_file_is_written(killed, expected, capsys, call, epoch, half):
    """The state of epoch 4, and the model behind the last state: half a file has
    another name, and is cleared away in the end.
    """
    process = start("-c", DYING, call, SOURCE / "train.py", *arguments_of(killed))
    output, _ = process.communicate()
    assert process.returncode == -signal.SIGKILL, output
    assert "goes on after epoch 2" in output, "the same key in another process"
    assert [path.name for path in killed.glob(".*")] == [
        f".{half}.{process.pid}.partial{Path(half).suffix}"
    ]
    assert read_state(killed / STATE)["state"]["epoch"] == epoch
    capsys.readouterr()
    script.main(arguments_of(killed))
    assert re.findall(r"goes on after epoch (\d+)", capsys.readouterr().out) == [str(epoch)]
    assert outputs(killed) == expected


def test_a_state_that_cannot_be_written_leaves_the_one_before(
    killed, expected, tmp_path, small_disk
):
    """A disk that takes no second state beside the first; with room, the training goes
    on from there.
    """
    before = (killed / STATE).read_bytes()
    disk = small_disk(sum(path.stat().st_size for path in killed.iterdir()) // 1024 + 8)
    for path in killed.iterdir():
        shutil.copy(path, disk)
    process = start(SOURCE / "train.py", *arguments_of(disk))
    output, _ = process.communicate()
    assert process.returncode == 1
    assert (
        f"train.py: error: {disk / STATE}: cannot be written: No space left on device; make room"
        " and run again" in output
    )
    assert (disk / STATE).read_bytes() == before
    assert list(disk.glob(".*")) == []
    subprocess.run(["mount", "-o", "remount,size=10m", str(disk)], check=True)
    script.main(arguments_of(disk))
    assert outputs(disk) == expected


def sealed(content):
    """Bytes with their sha256 behind them, as a state is written."""
    return content + hashlib.sha256(content).digest()


def rewritten(change):
    """Damage a state inside: ``change`` gets what it holds; the file is a sound one of
    its format, sealed anew.
    """

    def damage(content):
        held = torch.load(io.BytesIO(content[:-SEAL]), weights_only=True)
        change(held)
        written = io.BytesIO()
        torch.save(held, written)
        return sealed(written.getvalue())

    return damage


def another_epoch(content):
    """The number behind the name in the pickle, whose memo takes one byte or four."""
    changed, count = re.subn(rb"(epoch(?:q.|r.{4})K)\x02", b"\\1\x01", content, flags=re.DOTALL)
    assert count == 1
    return changed


def random_states_of_zeros(content):
    """The bytes of the generator of torch, which are among the longest."""
    held = torch.load(io.BytesIO(content[:-SEAL]), weights_only=True)
    state = held["random"]["cpu"].numpy().tobytes()
    assert content.count(state) == 1
    return content.replace(state, bytes(len(state)))


def flipped(content, place, bit=4):
    return content[:place] + bytes([content[place] ^ 1 << bit]) + content[place + 1 :]


def made_a_folder(content):
    """A bit of the directory at the end says that a part is a folder; torch then reads
    whatever lies in memory in its place, and no checksum of the archive tells.
    """
    name = content.rindex(b"archive/data/0")
    attributes = name - 46 + 38
    assert content[name - 46 : name - 42] == b"PK\1\2" and content[attributes] == 0
    return flipped(content, attributes)


def pickle_cut(content):
    """The pickle of the archive without its end, everything else as it was."""
    written = io.BytesIO()
    with (
        zipfile.ZipFile(io.BytesIO(content[:-SEAL])) as archive,
        zipfile.ZipFile(written, "w") as cut,
    ):
        for part in archive.infolist():
            whole = archive.read(part)
            cut.writestr(part.filename, whole[:-5] if part.filename.endswith("pkl") else whole)
    return sealed(written.getvalue())


def wider(held, *path):
    """Put a tensor with one row more in the place of another."""
    *outer, last = path
    for name in outer:
        held = held[name]
    old = held[last]
    held[last] = torch.zeros(old.shape[0] + 1, *old.shape[1:], dtype=old.dtype)


DAMAGES = {
    "empty": lambda content: b"",
    "seven bytes": lambda content: content[:7],
    "cut in the header": lambda content: content[:100],
    "cut in half": lambda content: content[: len(content) // 2],
    "one byte short": lambda content: content[:-1],
    "one byte more": lambda content: content + b"\0",
    "without its seal": lambda content: content[:-SEAL],
    "zeros": lambda content: bytes(len(content)),
    "a header without end": lambda content: (2**62).to_bytes(8, "little") + content[8:],
    "text": lambda content: b"not a state\n" * 50,
    "text that is sealed": lambda content: sealed(b"not a state\n" * 50),
    "nothing that is sealed": lambda content: sealed(b""),
    "a bit flipped in the middle": lambda content: flipped(content, len(content) // 2),
    "a bit flipped near the end": lambda content: flipped(content, len(content) - SEAL - 9),
    "a bit flipped in the seal": lambda content: flipped(content, len(content) - 9),
    "a part made a folder": made_a_folder,
    "another epoch": another_epoch,
    "random states of zeros": random_states_of_zeros,
    "pickle": lambda content: pickle.dumps({"model": [1, 2, 3]}),
    "pickle that is sealed": lambda content: sealed(pickle.dumps({"model": [1, 2, 3]}, 2)),
    "no values": rewritten(lambda held: held.pop("state")),
    "values cut": pickle_cut,
    "no key": rewritten(lambda held: held.pop("key")),
    "no weights": rewritten(lambda held: held["weights"].clear()),
    "no weights at all": rewritten(lambda held: held.pop("weights")),
    "a weight missing": rewritten(lambda held: held["weights"].pop("position.weight")),
    "a best weight missing": rewritten(
        lambda held: held["state"]["best_weights"].pop("position.weight")
    ),
    "a weight too many": rewritten(lambda held: held["weights"].update(more=torch.zeros(2))),
    "a longer table": rewritten(lambda held: wider(held, "weights", "position.weight")),
    "a longer best table": rewritten(
        lambda held: wider(held, "state", "best_weights", "position.weight")
    ),
    "another type": rewritten(
        lambda held: held["state"]["best_weights"].update(
            {"position.weight": torch.zeros(10, 8).double()}
        )
    ),
    "a number for a weight": rewritten(lambda held: held["weights"].update({"position.weight": 1})),
    "a moment of another shape": rewritten(
        lambda held: wider(held, "optimizer", "state", 1, "exp_avg")
    ),
    "a step for each": rewritten(
        lambda held: held["optimizer"]["state"][1].update(step=torch.zeros(3))
    ),
    "a moment of no parameter": rewritten(
        lambda held: held["optimizer"]["state"].update({99: {"exp_avg": torch.zeros(2)}})
    ),
    "a moment without a name": rewritten(
        lambda held: held["optimizer"]["state"].update(x=torch.zeros(2))
    ),
    "no random state": rewritten(lambda held: held["random"].pop("cpu")),
    "half a random state": rewritten(
        lambda held: held["random"].update(batches=held["random"]["batches"][:9].clone())
    ),
}


@pytest.mark.parametrize("damage", list(DAMAGES))
def test_nothing_of_a_damaged_state_is_used(killed, damage):
    """Same key or not to be read, and another shape included: no error, one line, and
    weights, moments and random states stay.
    """
    path, said = killed / STATE, []
    key = read_state(path)["key"]
    before_damage = path.read_bytes()
    path.write_bytes(DAMAGES[damage](before_damage))
    assert path.read_bytes() != before_damage
    model, generator = tiny(seed=9), torch.Generator().manual_seed(9)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)

    def everything():
        return (
            raw(
                {
                    **model.state_dict(),
                    "batches": generator.get_state(),
                    "cpu": torch.get_rng_state(),
                }
            ),
            optimizer.state_dict(),
        )

    before = everything()
    state = training._resumed(Checkpoint(path, key, said.append), model, optimizer, generator)
    assert plain(vars(state)) == plain(vars(training.State(model.state_dict())))
    assert state.epoch == 0 and state.curve == []
    assert said == [f"{path} is damaged: starts anew"]
    assert everything() == before


def test_a_bit_that_flips_anywhere_is_noticed(killed):
    """One of every sixteenth byte, and all eight of the last hundred bytes."""
    path, said = killed / STATE, []
    content, key = path.read_bytes(), read_state(path)["key"]
    bits = np.random.default_rng(0).integers(8, size=len(content)).tolist()
    places = [(place, bits[place]) for place in range(0, len(content), 16)]
    places += [(len(content) - back, bit) for back in range(1, 101) for bit in range(8)]
    for place, bit in places:
        path.write_bytes(flipped(content, place, bit))
        assert Checkpoint(path, key, said.append).load(lambda found: True) is None, (place, bit)
    assert said == [f"{path} is damaged: starts anew"] * len(places)
    path.write_bytes(content)
    assert Checkpoint(path, key, said.append).load(lambda found: True)["state"]["epoch"] == 2


@pytest.mark.parametrize("damage", ["cut in half", "a longer table"])
def test_a_damaged_state_starts_anew_and_says_so(killed, expected, capsys, damage):
    """The end is that of an unbroken training."""
    (killed / STATE).write_bytes(DAMAGES[damage]((killed / STATE).read_bytes()))
    script.main(arguments_of(killed))
    assert (
        capsys.readouterr().out.splitlines()[0]
        == f"[d loo sasrec seed=4] {killed / STATE} is damaged: starts anew"
    )
    assert outputs(killed) == expected


def test_what_goes_on_says_so(killed, expected, capsys):
    """The rounds that are done, that it goes on, and the others, a line each; and
    rewriting itself is no damage.
    """
    (killed / STATE).write_bytes(rewritten(lambda held: None)((killed / STATE).read_bytes()))
    script.main(arguments_of(killed))
    lines = capsys.readouterr().out.splitlines()
    assert lines.pop(0) == f"[d loo sasrec seed=4] goes on after epoch 2, from {killed / STATE}"
    assert [line.split(",")[0] for line in lines] == [
        f"[d loo sasrec seed=4] epoch {epoch}" for epoch in (1, 2, 3, 4, 5)
    ]
    assert outputs(killed) == expected


OTHER_SETTINGS = [
    {"seed": 5},
    {"architecture": "duorec"},
    {"settings": json.dumps({**SIZES, "blocks": 1, "hidden_size": 16})},
    {"settings": json.dumps({**SIZES, "blocks": 1, "dropout": 0.1})},
    {"training": {"learning_rate": 0.01}},
    {"training": {"loss": "sampled_softmax", "num_negatives": 3}},
    {"training": {"length_groups": 3}},
    {"epochs": 6},
    {"filter-seen": "false"},
    {"model": "sasrec-other"},
]


STARTS_ANEW = "is of other settings, data or code: starts anew"


@pytest.mark.parametrize("changed", OTHER_SETTINGS, ids=str)
def test_a_state_of_other_settings_is_not_used(killed, tmp_path, capsys, changed):
    script.main(arguments_of(killed, **changed))
    assert capsys.readouterr().out.splitlines()[0].endswith(f"{killed / STATE} {STARTS_ANEW}")
    assert outputs(killed) == whole(tmp_path / "whole", **changed)


@pytest.mark.parametrize("part", ["train", "validation", "items"])
def test_a_state_of_other_data_is_not_used(killed, tmp_path, monkeypatch, capsys, part):
    """One number of one part is another."""
    if part == "items":
        monkeypatch.setattr("tests.training.test_loop.ITEMS", ITEMS + 1)
    changed = {
        "train": [[5, *HISTORIES[0]], *HISTORIES[1:]],
        "validation": [[*HISTORIES[0][:-1], 5], *HISTORIES[1:]],
        "items": HISTORIES,
    }
    other = tmp_path / "other"
    other.mkdir()
    write_parts(other, changed[part])
    shutil.copy(other / f"{part}.parquet", killed)
    script.main(arguments_of(killed))
    assert capsys.readouterr().out.splitlines()[0].endswith(STARTS_ANEW)


@pytest.mark.parametrize(
    "edited", [None, "train.py", "lastitem/training/losses.py", "lastitem/models/interface.py"]
)
def test_a_state_of_other_code_is_not_used(killed, expected, tmp_path, monkeypatch, capsys, edited):
    """With the code copied and the data moved elsewhere it goes on: names do not count.
    With a byte more in a module it does not.
    """
    source = Path(
        shutil.copytree(SOURCE, tmp_path / "copy", ignore=shutil.ignore_patterns("__pycache__"))
    )
    folder = Path(shutil.move(killed, tmp_path / "moved"))
    if edited:
        with (source / edited).open("a", encoding="utf-8") as file:
            file.write("\n")
    monkeypatch.setattr(script, "__file__", str(source / "train.py"))
    script.main(arguments_of(folder))
    said = capsys.readouterr().out
    assert (STARTS_ANEW in said) == bool(edited)
    assert ("goes on after epoch 2" in said) == (not edited)
    assert outputs(folder) == expected


def test_a_model_without_epochs_needs_no_state(tmp_path):
    folder = tmp_path / "popularity"
    whole(folder, architecture="popularity", settings="{}")
    assert (folder / "model.safetensors").is_file()
    assert not list(folder.glob("*unfinished*")) and not list(folder.glob("*state*"))


# Divergence


def test_the_last_good_state_is_kept(killed, expected, monkeypatch):
    """A loss that is not finite stops with step and cause; no model is left, and the
    state is that of the epoch before.
    """
    update, calls = training.update, []

    def failing(*arguments):
        calls.append(arguments)
        total, labels = update(*arguments)
        return (total * torch.nan if len(calls) == 4 else total), labels

    with monkeypatch.context() as patch, pytest.raises(InputError) as error:
        patch.setattr(training, "update", failing)
        script.main(arguments_of(killed))
    assert (
        str(error.value)
        == "the training loss is nan at update 2 of epoch 4: lower learning_rate (now 0.001); "
        f"the state after epoch 3 is kept in {killed / STATE}"
    )
    held = read_state(killed / STATE)
    assert held["state"]["epoch"] == 3
    moments = held["optimizer"]["state"].values()
    for tensors in (held["weights"], held["state"]["best_weights"], *moments):
        assert all(bool(torch.isfinite(tensor).all()) for tensor in tensors.values())
    assert not [name for name in OUTPUTS if (killed / name).exists()]
    script.main(arguments_of(killed))
    assert outputs(killed) == expected


def test_weights_that_are_not_finite_are_never_a_state(tmp_path):
    """One update an epoch and no validation for long: the loss was finite, the step
    behind it was not.
    """
    settings = TrainingSettings(batch_size=100, maximum_epochs=20, learning_rate=1e39)
    with pytest.raises(
        InputError,
        match=(
            r"a weight is not finite after update 1 of epoch 1: lower learning_rate \(now 1e\+39\)$"
        ),
    ):
        train(
            tiny(),
            sequences_of(HISTORIES),
            hopeless_validation(),
            settings,
            filter_seen=True,
            seed=3,
            checkpoint=Checkpoint(tmp_path / STATE, "key"),
        )
    assert list(tmp_path.iterdir()) == []


# The key


def test_the_key_is_made_of_contents_and_values(tmp_path):
    """Not of names; bytes do not pass from one file to the next, and the order of
    settings does not count.
    """

    def key(*contents, **values):
        paths = []
        for content in contents:
            paths.append(tmp_path / f"{len(list(tmp_path.iterdir()))}")
            paths[-1].write_bytes(content)
        return key_of(paths, values)

    base = key(b"ab", b"cd", one=1, two={"three": 3})
    assert base == key(b"ab", b"cd", two={"three": 3}, one=1)
    others = [
        *(
            key(b"ab", b"cd", one=1, two={"three": 4}),
            key(b"ab", b"cd", one=1),
            key(b"ab", b"cd", one="1", two={"three": 3}),
        ),
        *(key(b"abc", b"d", one=1, two={"three": 3}), key(b"cd", b"ab", one=1, two={"three": 3})),
        *(
            key(b"abcd", one=1, two={"three": 3}),
            key(b"ab", b"cd", b"", one=1, two={"three": 3}),
            key(b"ab", b"ce", one=1, two={"three": 3}),
        ),
    ]
    assert len({base, *others}) == len(others) + 1


def test_the_random_state_is_that_of_the_gpu_that_trains(monkeypatch):
    """Of several GPUs it need not be torch's current one. Without GPUs here, a
    state is a byte that tells which one was meant.
    """
    kept = {}
    monkeypatch.setattr(
        torch.cuda, "get_rng_state", lambda device: torch.tensor([device.index], dtype=torch.uint8)
    )
    monkeypatch.setattr(
        torch.cuda, "set_rng_state", lambda state, device: kept.update({device.index: int(state)})
    )
    generator, place = torch.Generator(), torch.device("cuda:1")
    set_random_states(random_states(generator, place), generator, place)
    assert kept == {1: 1}
    assert "cuda" not in random_states(generator, torch.device("cpu")), (
        "a state of the CPU does not ask for a GPU"
    )
