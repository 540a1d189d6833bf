"""Every token of a step finds the coefficients of its own request in its row of M."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.vllm_plugin.mixer import KEY, Mixer

COLUMNS, TOKENS = 4, 40


def request(basis: int = 0, columns=(), coefficients=(), extra=True):
    carried = {KEY: [basis, list(columns), list(coefficients)]} if extra else None
    return SimpleNamespace(sampling_params=SimpleNamespace(extra_args=carried))


@pytest.fixture
def masks():
    return {parts: torch.full((TOKENS, parts * COLUMNS), 0.0) for parts in (1, 2, 3)}


def rows(masks, parts: int = 1) -> np.ndarray:
    """(tokens, C) of M, after checking that every part of a packed layer has the same."""
    blocks = masks[parts].view(TOKENS, parts, COLUMNS)
    assert (blocks == blocks[:, :1]).all()
    return blocks[:, 0].numpy()


def test_a_mixed_step(masks):
    mixer = Mixer(COLUMNS, masks)
    requests = {"a": request(0, [0, 2], [1.0, -2.0]), "b": request(extra=False), "c": request(0, [3], [0.5])}
    mixer.write(["c", "a", "b"], np.array([2, 3, 4]), requests)
    for parts in masks:
        got = rows(masks, parts)
        np.testing.assert_array_equal(got[:2], [[0, 0, 0, 0.5]] * 2)
        np.testing.assert_array_equal(got[2:5], [[1, 0, -2, 0]] * 3)
        assert not got[5:].any()


def test_requests_without_parameters_are_the_source(masks):
    mixer = Mixer(COLUMNS, masks)
    mixer.write(["pooling"], np.array([3]), {"pooling": SimpleNamespace(sampling_params=None)})
    assert not rows(masks).any()


def test_a_smaller_step_leaves_nothing_of_a_larger_one(masks):
    mixer = Mixer(COLUMNS, masks)
    requests = {"a": request(0, [0], [1.0]), "b": request(0, [1], [1.0])}
    mixer.write(["a", "b"], np.array([30, 10]), requests)
    mixer.write(["b"], np.array([1]), requests)
    np.testing.assert_array_equal(rows(masks)[0], [0, 1, 0, 0])
    assert not rows(masks)[1:].any()


def test_a_running_request_keeps_its_output_when_weights_take_over(masks):
    mixer = Mixer(COLUMNS, masks)
    requests = {"old": request(0, [0, 1], [0.25, 0.5]), "plain": request(0)}
    step = (["old", "plain"], np.array([1, 1]))
    mixer.write(*step, requests)
    mixer.fold(np.array([0.25, 0.125, 0, 0], dtype=np.float32))
    mixer.write(*step, requests)  # the same step again must not be taken for written
    np.testing.assert_array_equal(rows(masks)[:2], [[0, 0.375, 0, 0], [-0.25, -0.125, 0, 0]])
    requests["new"] = request(1, [1], [0.375])
    mixer.fold(np.array([0, 0, 1, 0], dtype=np.float32))
    mixer.write(["new", "old"], np.array([1, 2]), requests)
    np.testing.assert_array_equal(rows(masks)[:3], [[0, 0.375, -1, 0]] + [[0, 0.375, -1, 0]] * 2)


def test_requests_that_swap_places_swap_rows(masks):
    mixer = Mixer(COLUMNS, masks)
    requests = {"a": request(0, [0], [1.0]), "b": request(0, [1], [2.0])}
    mixer.write(["a", "b"], np.array([1, 1]), requests)
    mixer.write(["b", "a"], np.array([1, 1]), requests)
    np.testing.assert_array_equal(rows(masks)[:2], [[0, 2, 0, 0], [1, 0, 0, 0]])


def test_vectors_of_requests_that_are_gone_are_dropped(masks):
    mixer = Mixer(COLUMNS, masks)
    for i in range(1000):
        mixer.write([f"r{i}"], np.array([1]), {f"r{i}": request(0, [i % COLUMNS], [1.0])})
    assert len(mixer._vectors) < 100


coefficient = st.floats(-1, 1, width=32)
vector = st.lists(coefficient, min_size=COLUMNS, max_size=COLUMNS)
begins = st.tuples(st.just("begin"), vector)
folds = st.tuples(st.just("fold"), vector)
steps = st.tuples(st.just("step"), st.lists(st.tuples(st.integers(0, 9), st.integers(1, 6)), min_size=1, max_size=6))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.one_of(begins, folds, steps, steps), max_size=25))
def test_any_mix_of_requests_steps_and_folds(events):
    masks = {parts: torch.zeros(TOKENS, parts * COLUMNS) for parts in (1, 3)}
    mixer, requests, vectors, folded = Mixer(COLUMNS, masks), {}, {}, 0
    for kind, what in events:
        if kind == "begin":
            name = f"r{len(requests)}"
            requests[name] = request(folded, range(COLUMNS), what)
            vectors[name] = np.array(what, dtype=np.float32)
        elif kind == "fold":
            folded += 1
            mixer.fold(np.array(what, dtype=np.float32))
            vectors = {name: v - np.array(what, dtype=np.float32) for name, v in vectors.items()}
        elif requests:
            batch = {f"r{i % len(requests)}": n for i, n in what}
            mixer.write(list(batch), np.array(list(batch.values()), dtype=np.int32), requests)
            wanted = np.concatenate([np.repeat(vectors[name][None], n, 0) for name, n in batch.items()])
            for parts in masks:
                got = rows(masks, parts)
                np.testing.assert_allclose(got[: len(wanted)], wanted, atol=1e-6)
                assert not got[len(wanted) :].any()
