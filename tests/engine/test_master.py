"""The float32 master: the same bits from θ_0, from snapshots, across folds and pull-backs; bf16 never sums."""

from __future__ import annotations

import json
import os

import numpy as np
import pytest
import torch
from safetensors import safe_open
from safetensors.numpy import save_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine.checkpoint import Checkpoint
from engine.ledger import Fold, Ledger, Merge
from engine.master import Master, load_snapshot, replay, save_snapshot
from engine.noise import Direction, factors, gaussian

A, B, C, G = Direction(1), Direction(2, rank=4), Direction(3), Direction(4, "gaussian", 0)
Q = "model.layers.0.self_attn.q_proj.weight"
HISTORY = [
    Merge(0, ((A, 0.01), (B, -0.02)), 0.01),
    Fold(1, 0.99),
    Merge(1, ((A, 0.005), (C, 0.003)), 0.01),
    Fold(2, 1.0),
    Merge(2, ((G, 0.001),), 0.02),
    Fold(3, 0.99 * 0.98),
    Merge(3, ((B, 0.01), (C, -0.003)), 0.0),
]


def ledger(entries=HISTORY) -> Ledger:
    made = Ledger()
    for entry in entries:
        made.append(entry)
    return made


def digest(checkpoint: Checkpoint, entries=HISTORY, snapshots=None) -> str:
    made = ledger(entries)
    return replay(checkpoint, made, snapshots).digest(made.coefficients)


def explicit(checkpoint: Checkpoint, name: str, coefficients: dict[Direction, float]) -> np.ndarray:
    """θ_0 + Σ c ε in float64, apart from the code that serves."""
    theta = checkpoint.weights(name).astype(np.float64)
    for d, c in coefficients.items():
        if d.kind == "gaussian":
            theta += c * gaussian(d, name, theta.shape).astype(np.float64)
        elif theta.ndim == 2 and "proj" in name:
            b, a = factors(d, name, theta.shape)
            theta += c * (b.astype(np.float64) @ a.T)
    return theta


def test_theta_is_what_the_ledger_says(checkpoint):
    made = ledger()
    master = replay(checkpoint, made)
    for name, theta in master.all_weights(made.coefficients):
        assert theta.dtype == np.float32
        np.testing.assert_allclose(theta, explicit(checkpoint, name, made.totals()), atol=5e-7)


def test_all_weights_come_once_in_order(checkpoint):
    assert [n for n, _ in Master(checkpoint).all_weights({})] == checkpoint.names


def test_replaying_twice_gives_the_same_bits(checkpoint, small):
    assert digest(checkpoint) == digest(Checkpoint(small))


def test_every_generation_has_its_own_digest(checkpoint):
    generations = {digest(checkpoint, HISTORY[:n]) for n in (0, 1, 3, 5, 7)}
    assert len(generations) == 5


def test_a_fold_changes_no_bit_when_nothing_is_pulled_back(checkpoint):
    first = [HISTORY[0]]
    assert digest(checkpoint, [*first, Fold(1, 0.99)]) == digest(checkpoint, first)
    second = [*HISTORY[:2], Merge(1, ((A, 0.005), (C, 0.003)), 0.01)]
    assert digest(checkpoint, [*second, Fold(2, 1.0)]) == digest(checkpoint, second)
    assert digest(checkpoint, [*second, Fold(2, 0.99)]) != digest(checkpoint, second)


def test_the_live_master_has_the_bits_of_a_replay(checkpoint):
    live, made = Master(checkpoint), Ledger()
    for entry in HISTORY:
        if isinstance(entry, Fold):
            live.fold(dict(made.coefficients), entry.pull_back)
        made.append(entry)
    assert live.digest(made.coefficients) == digest(checkpoint)


@pytest.mark.parametrize("position", [2, 3, 4, 5, 6, 7])
def test_a_replay_from_a_snapshot_gives_the_same_bits(checkpoint, tmp_path, position):
    part = ledger(HISTORY[:position])
    save_snapshot(replay(checkpoint, part), tmp_path, position, part.head)
    fresh = Master(checkpoint)
    assert load_snapshot(fresh, tmp_path / f"{position:08d}.safetensors", ledger()) == position
    assert digest(checkpoint, snapshots=tmp_path) == digest(checkpoint)


def test_a_snapshot_spares_the_replay(checkpoint, tmp_path, monkeypatch):
    save_snapshot(replay(checkpoint, ledger()), tmp_path, len(HISTORY), ledger().head)
    monkeypatch.setattr(Master, "fold", lambda *_: pytest.fail("folded again what the snapshot holds"))
    assert replay(checkpoint, ledger(), tmp_path).folded


@pytest.fixture
def snapshots(checkpoint, tmp_path):
    """Sound snapshots at 4 and 6 entries."""
    for position in (4, 6):
        part = ledger(HISTORY[:position])
        save_snapshot(replay(checkpoint, part), tmp_path, position, part.head)
    return tmp_path


def edited(file, change_meta=lambda meta: None, change=lambda arrays: None):
    with safe_open(file, framework="numpy") as f:
        meta, arrays = dict(f.metadata()), {n: f.get_tensor(n).copy() for n in f.keys()}  # noqa: SIM118
    change_meta(meta)
    change(arrays)
    save_file(arrays, file, metadata=meta)


def halve(file):
    os.truncate(file, file.stat().st_size // 2)


def flip_a_bit(file):
    data = bytearray(file.read_bytes())
    data[-5] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize(
    "damage",
    [
        lambda f: f.write_bytes(b""),
        lambda f: f.write_bytes(b"not a snapshot" * 100),
        halve,
        flip_a_bit,
        lambda f: edited(f, lambda m: m.update(head="0" * 64)),
        lambda f: edited(f, lambda m: m.update(entries="1000")),
        lambda f: edited(f, lambda m: m.update(entries="many")),
        lambda f: edited(f, lambda m: m.clear()),
        lambda f: edited(f, change=lambda a: a.popitem()),
    ],
    ids=["empty", "foreign", "half", "bit", "head", "future", "no number", "no meta", "lost part"],
)
def test_a_damaged_snapshot_is_ignored(checkpoint, snapshots, damage):
    file = snapshots / "00000006.safetensors"
    damage(file)
    fresh = Master(checkpoint)
    assert load_snapshot(fresh, file, ledger()) is None
    assert fresh.folded == {}
    assert digest(checkpoint, snapshots=snapshots) == digest(checkpoint)


def test_a_snapshot_of_another_history_is_ignored(checkpoint, snapshots):
    other = [Merge(0, ((A, 0.02),), 0.0), *HISTORY[1:1]]
    other += [Fold(1), Merge(1, ((C, 0.01),)), Fold(2), Merge(2, ()), Merge(3, ())]
    assert digest(checkpoint, other, snapshots) == digest(checkpoint, other)


def test_a_snapshot_of_another_model_is_ignored(checkpoint, tmp_path):
    master = Master(checkpoint)
    master.folded = {"model.layers.7.mlp.up_proj.weight": np.ones((4, 4), dtype=np.float32)}
    save_snapshot(master, tmp_path, 6, ledger(HISTORY[:6]).head)
    assert digest(checkpoint, snapshots=tmp_path) == digest(checkpoint)


def test_half_written_files_are_never_taken_for_whole(checkpoint, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="no space"):
        save_snapshot(replay(checkpoint, ledger()), tmp_path, 7, ledger().head)
    assert list(tmp_path.iterdir()) == []


def test_the_newest_two_snapshots_stay_whatever_another_history_left(checkpoint, tmp_path):
    tmp_path.joinpath("00000900.safetensors").write_bytes(b"left over")
    tmp_path.joinpath("00000901.safetensors").write_bytes(b"left over")
    for position in (2, 4, 6):
        part = ledger(HISTORY[:position])
        save_snapshot(replay(checkpoint, part), tmp_path, position, part.head)
    assert sorted(f.name for f in tmp_path.iterdir()) == ["00000004.safetensors", "00000006.safetensors"]


# -- the traps of bf16 ------------------------------------------------------------------------------------------------


def test_folding_back_and_forth_leaves_the_checkpoint_alone(checkpoint):
    """Trap 1: members are never added to the weights and subtracted again. What is folded adds up apart from θ_0, so
    opposite folds cancel there to the last few bits of the step, not of the weight."""
    master, before = Master(checkpoint), {n: checkpoint.weights(n) for n in checkpoint.names}
    for _ in range(15):
        master.fold({A: 0.006})
        master.fold({A: -0.006})
    for name in checkpoint.names:
        np.testing.assert_array_equal(checkpoint.weights(name), before[name])
        np.testing.assert_array_equal(master.weights(name, {}), before[name])
    master.fold({A: 0.006, B: 0.003})
    master.fold({A: -0.006, B: -0.003})
    assert max(np.abs(f).max() for f in master.folded.values()) < 1e-8


def test_a_step_is_not_lost_to_rounding(checkpoint):
    """Trap 2: forty steps, each below half a bf16 unit of most weights, move as far as one step of the sum."""
    master, c = Master(checkpoint), 2e-5
    for _ in range(40):
        master.fold({A: c})
    moved = master.weights(Q, {}) - checkpoint.weights(Q)
    b, a = factors(A, Q, moved.shape)
    true = 40 * c * (b @ a.T)
    assert float((moved * true).sum() / np.linalg.norm(moved) / np.linalg.norm(true)) > 0.9999
    w = torch.from_numpy(checkpoint.weights(Q)).bfloat16()
    naive = w.clone()
    for _ in range(40):
        naive += torch.from_numpy(c * (b @ a.T)).bfloat16()
    lost = (naive - w).float().numpy()
    assert np.linalg.norm(lost - true) > 0.2 * np.linalg.norm(true)  # what the master is there for


def test_decay_is_not_rounded_away(checkpoint):
    """Trap 3: each merge decays by less than bf16 can tell, and it adds up."""
    entries = [Merge(0, ((A, 0.01),)), Fold(1)]
    for g in range(1, 21):
        entries += [Merge(g, ((C, 1e-9),), 0.001), Fold(g + 1, 0.999)]
    made = ledger(entries)
    moved = replay(checkpoint, made).weights(Q, {}) - checkpoint.weights(Q)
    b, a = factors(A, Q, moved.shape)
    np.testing.assert_allclose(moved, 0.01 * 0.999**20 * (b @ a.T), atol=5e-7)


# -- export -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_an_export_is_a_plain_model_folder(tiny, tmp_path, dtype):
    checkpoint, made = Checkpoint(tiny), ledger()
    master, folder = replay(checkpoint, made), tmp_path / "export"
    master.export(folder, made.coefficients, dtype)
    model = AutoModelForCausalLM.from_pretrained(folder)
    assert model.dtype == dtype
    assert AutoTokenizer.from_pretrained(folder).chat_template
    for name, p in model.named_parameters():
        expected = torch.from_numpy(master.weights(name, made.coefficients)).to(dtype)
        assert torch.equal(p.detach(), expected), name
    assert "torch_dtype" not in json.loads((folder / "config.json").read_text())
    with pytest.raises(FileExistsError):
        master.export(folder, made.coefficients)
