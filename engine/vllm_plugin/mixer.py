"""Writes M: for every token of a step, the coefficients its request is served with. Pure numpy and torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch

KEY = "population"
"""Where a request carries [basis, [column, …], [coefficient, …]] in ``SamplingParams.extra_args``."""


class Mixer:
    """Follows the scheduler: whatever tokens of whichever requests a step has, their rows of M are right.

    A request names the basis (number of folds) its coefficients refer to; folds since then are subtracted.
    """

    def __init__(self, columns: int, masks: Mapping[int, torch.Tensor]):
        self.columns = columns
        self._masks = masks
        self._folds: list[np.ndarray] = []
        self._vectors: dict[str, np.ndarray] = {}
        self._last: tuple[tuple[str, ...], bytes] | None = None
        self._filled = 0

    def fold(self, coefficients: np.ndarray) -> None:
        """From now on the weights hold ``coefficients`` (C,) of the columns."""
        self._folds.append(coefficients)
        self._vectors.clear()
        self._last = None

    def vector(self, request_id: str, extra: Mapping[str, Any] | None) -> np.ndarray:
        """The coefficients (C,) of a request in the present basis; zeros for one that carries none."""
        known = self._vectors.get(request_id)
        if known is not None:
            return known
        v = np.zeros(self.columns, dtype=np.float32)
        carried = (extra or {}).get(KEY)
        if carried is not None:
            basis, columns, coefficients = carried
            v[np.asarray(columns, dtype=np.intp)] = coefficients
            for folded in self._folds[int(basis) :]:
                v -= folded
        self._vectors[request_id] = v
        return v

    def write(self, ids: Sequence[str], tokens: np.ndarray, requests: Mapping[str, Any]) -> None:
        """Fills the rows of M for a step with ``tokens[i]`` tokens of request ``ids[i]``, in this order."""
        batch = (tuple(ids), np.asarray(tokens).tobytes())
        if batch == self._last:
            return
        if len(self._vectors) > 2 * len(requests) + 64:
            self._vectors = {i: v for i, v in self._vectors.items() if i in requests}
        rows = np.stack([self.vector(i, _extra(requests[i])) for i in ids])
        filled = torch.from_numpy(np.repeat(rows, tokens, axis=0))
        count = len(filled)
        for parts, mask in self._masks.items():
            mask[:count].view(count, parts, self.columns).copy_(filled[:, None, :])
            if self._filled > count:
                mask[count : self._filled] = 0
        self._filled = count
        self._last = batch


def _extra(request: Any) -> Mapping[str, Any] | None:
    params = request.sampling_params
    return params.extra_args if params is not None else None
