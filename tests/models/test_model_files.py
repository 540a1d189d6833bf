"""The embedded model is made once, whole or not at all; other models are checked before they are loaded."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import gguf
import pytest
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM, AutoTokenizer

from engine import model_files
from engine.model_files import FOLDER, ModelError, is_prepared, main, prepare_model


def write_model(folder: Path) -> Path:
    """A folder that passes for a model."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps({"architectures": ["LlamaForCausalLM"]}))
    (folder / "model.safetensors").write_bytes(b"x")
    (folder / "tokenizer.json").write_text("{}")
    return folder


class Converter:
    """Takes the place of the conversion, which takes half a minute."""

    def __init__(self) -> None:
        self.calls = 0
        self.failures = 0
        self.slow = threading.Event()
        self.slow.set()

    def __call__(self, gguf: Path, folder: Path) -> None:
        self.calls += 1
        (folder / "config.json").write_text("{")
        self.slow.wait(5)
        if self.failures:
            self.failures -= 1
            raise OSError("No space left on device")
        write_model(folder)
        (folder / "popserve.json").write_text(json.dumps({"version": model_files.VERSION}))


@pytest.fixture
def converter(monkeypatch: pytest.MonkeyPatch) -> Converter:
    fake = Converter()
    monkeypatch.setattr(model_files, "convert", fake)
    return fake


def test_it_is_made_once(tmp_path: Path, converter: Converter) -> None:
    assert not is_prepared(tmp_path)
    first = prepare_model("embedded", tmp_path)
    assert first == tmp_path / "models" / FOLDER
    assert is_prepared(tmp_path)
    assert prepare_model("embedded", tmp_path) == first
    assert converter.calls == 1


def test_a_failed_conversion_leaves_nothing_behind(tmp_path: Path, converter: Converter) -> None:
    converter.failures = 1
    with pytest.raises(OSError, match="No space"):
        prepare_model("embedded", tmp_path)
    assert not (tmp_path / "models" / FOLDER).exists()
    assert [path.suffix for path in (tmp_path / "models").iterdir()] in ([], [".lock"])
    prepare_model("embedded", tmp_path)
    assert is_prepared(tmp_path)


@pytest.mark.parametrize("damage", ["popserve.json", "config.json", "model.safetensors", "tokenizer.json"])
def test_a_half_written_folder_is_made_anew(tmp_path: Path, converter: Converter, damage: str) -> None:
    folder = Path(prepare_model("embedded", tmp_path))
    (folder / damage).unlink()
    leftover = tmp_path / "models" / f".{FOLDER}-killed"
    leftover.mkdir()
    assert not is_prepared(tmp_path)
    prepare_model("embedded", tmp_path)
    assert is_prepared(tmp_path)
    assert not leftover.exists()
    assert converter.calls == 2


def test_a_folder_of_an_older_conversion_is_made_anew(
    tmp_path: Path, converter: Converter, monkeypatch: pytest.MonkeyPatch
) -> None:
    prepare_model("embedded", tmp_path)
    monkeypatch.setattr(model_files, "VERSION", model_files.VERSION + 1)
    prepare_model("embedded", tmp_path)
    assert converter.calls == 2


def test_two_at_once_make_one(tmp_path: Path, converter: Converter) -> None:
    converter.slow.clear()
    made: list[Any] = []
    threads = [threading.Thread(target=lambda: made.append(prepare_model("embedded", tmp_path))) for _ in range(3)]
    for thread in threads:
        thread.start()
    converter.slow.set()
    for thread in threads:
        thread.join(10)
    assert made == [tmp_path / "models" / FOLDER] * 3
    assert converter.calls == 1


def test_a_missing_package_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_files, "PACKAGE", "no_such_package")
    with pytest.raises(ModelError, match="install no-such-package"):
        prepare_model("embedded", tmp_path)


def test_a_local_folder_is_returned(tmp_path: Path) -> None:
    folder = write_model(tmp_path / "mine")
    assert prepare_model(str(folder), tmp_path / "home") == folder


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda f: (f / "config.json").unlink(), "no config.json"),
        (lambda f: (f / "config.json").write_text("{"), "cannot be read"),
        (lambda f: (f / "config.json").write_text("{}"), "names no architecture"),
        (lambda f: (f / "model.safetensors").unlink(), r"no \*.safetensors"),
        (lambda f: (f / "tokenizer.json").unlink(), "no tokenizer"),
    ],
)
def test_a_local_folder_is_checked(tmp_path: Path, damage: Any, message: str) -> None:
    folder = write_model(tmp_path / "mine")
    damage(folder)
    with pytest.raises(ModelError, match=message):
        prepare_model(str(folder), tmp_path)


def test_a_hub_id_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert prepare_model("owner/name", tmp_path) == "owner/name"


@pytest.mark.parametrize("model", ["/no/such/folder", "./missing", "~/missing", "embeded", "a/b/c", ""])
def test_what_is_neither_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, model: str) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ModelError, match=r"no model at|no config\.json"):
        prepare_model(model, tmp_path)


def test_the_command_prints_the_folder_or_why_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = write_model(tmp_path / "mine")
    assert main(["--model", str(folder), "--home", str(tmp_path)]) == 0
    assert capsys.readouterr().out.strip() == str(folder)
    (folder / "tokenizer.json").unlink()
    assert main(["--model", str(folder), "--home", str(tmp_path)]) == 1
    assert "no tokenizer" in capsys.readouterr().err


@pytest.fixture(scope="module")
def embedded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Path(prepare_model("embedded", tmp_path_factory.mktemp("home")))


def test_the_embedded_weights_are_those_of_the_package(embedded: Path) -> None:
    tensors = {t.name: t for t in gguf.GGUFReader(model_files._gguf()).tensors}
    pairs = {
        "blk.7.ffn_down.weight": "model.layers.7.mlp.down_proj.weight",
        "blk.29.attn_v.weight": "model.layers.29.self_attn.v_proj.weight",
        "output_norm.weight": "model.norm.weight",
    }
    with safe_open(embedded / "model.safetensors", "pt") as made:
        for packed, plain in pairs.items():
            tensor = tensors[packed]
            expected = torch.from_numpy(gguf.dequantize(tensor.data, tensor.tensor_type).copy())
            assert torch.equal(made.get_tensor(plain), expected.to(torch.bfloat16))


def test_the_embedded_model_answers(embedded: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(embedded)
    model = AutoModelForCausalLM.from_pretrained(embedded, dtype=torch.float32)
    prompt = tokenizer("The capital of France is", return_tensors="pt")
    answer = model.generate(**prompt, max_new_tokens=4, do_sample=False)
    assert "Paris" in tokenizer.decode(answer[0])


def test_the_embedded_chat_template_renders_system_prompts_and_turns(embedded: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(embedded)
    turns = [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Bye"},
    ]
    render = {"tokenize": False, "add_generation_prompt": True}
    assert tokenizer.apply_chat_template(turns, **render) == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\nHello.<|im_end|>\n<|im_start|>user\nBye<|im_end|>\n<|im_start|>assistant\n"
    )
    assert tokenizer.apply_chat_template(turns[1:2], **render).startswith("<|im_start|>system\nYou are")
    assert tokenizer.convert_tokens_to_ids(["<|im_start|>", "<|im_end|>"]) == [1, 2]
    assert tokenizer.eos_token_id == 2


def test_the_embedded_tokenizer_reads_digits_one_by_one(embedded: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(embedded)
    assert tokenizer.tokenize("a  12") == ["a", "ĠĠ", "1", "2"]
    text = "Héllo  world\n\n\tx = 12.5 🙂"
    assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_the_embedded_folder_carries_its_licence_and_no_paths(embedded: Path) -> None:
    assert "Apache License" in (embedded / "LICENSE").read_text()
    assert "SmolLM2" in (embedded / "NOTICE").read_text()
    for name in ("config.json", "tokenizer_config.json", "generation_config.json"):
        assert "name_or_path" not in (embedded / name).read_text()
    assert json.loads((embedded / "config.json").read_text())["rms_norm_eps"] == 1e-5
