"""Every setting of the server, read from ``POPSERVE_…`` variables and ``.env``; every limit is checked here."""

from __future__ import annotations

from ipaddress import ip_address
from pathlib import Path
from typing import Literal, Self

from pydantic import AliasChoices, BaseModel, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict

from engine.population import PROFILES

PREFIX = "POPSERVE_"
SYSTEM_PROMPT = "You are a helpful assistant. Answer in one short sentence."


class Metric(BaseModel, extra="forbid", frozen=True):
    """A declared metric: what values it takes, how they map to 0..1, and its weight in a reply's reward."""

    kind: Literal["bool", "number"] = "number"
    low: float = Field(0.0, allow_inf_nan=False)
    high: float = Field(1.0, allow_inf_nan=False)
    weight: float = Field(1.0, gt=0, le=1000, allow_inf_nan=False)

    @model_validator(mode="after")
    def _range(self) -> Self:
        if self.low >= self.high:
            raise ValueError(f"low must be below high, not {self.low} and {self.high}")
        return self

    def describe(self) -> str:
        return "true or false" if self.kind == "bool" else f"a number from {self.low:g} to {self.high:g}"

    def parse(self, value: object) -> float:
        """The value as stored. Raises ValueError: a bool is no number, and a number no bool."""
        if self.kind == "bool":
            if not isinstance(value, bool):
                raise ValueError(self.describe())
            return float(value)
        if isinstance(value, bool) or not isinstance(value, int | float) or not self.low <= value <= self.high:
            raise ValueError(self.describe())
        return float(value)

    def reward(self, value: float) -> float:
        """The stored value on the scale 0..1."""
        return value if self.kind == "bool" else (value - self.low) / (self.high - self.low)


class AppSettings(BaseSettings):
    """The settings of one server. Raises pydantic's ValidationError; :func:`load` turns it into sentences."""

    model_config = SettingsConfigDict(
        env_prefix=PREFIX, env_file=".env", extra="ignore", populate_by_name=True, protected_namespaces=()
    )

    home: Path = Path("var")
    """Folder of the database, the converted model and the snapshots."""
    host: str = "127.0.0.1"
    port: int = Field(8000, ge=0, le=65535, validation_alias=AliasChoices("POPSERVE_PORT", "PORT"))
    model: str = Field("embedded", min_length=1)
    """``embedded``, a local folder, or a hub id."""
    engine: Literal["auto", "vllm", "transformers"] = "auto"
    profile: str = "room"
    """Population settings of a new home; later changes are made in the page and kept."""
    seed: int | None = Field(None, ge=0, lt=2**63)
    """Makes the drawn populations reproducible."""
    dtype: Literal["auto", "bfloat16", "float16", "float32"] = "auto"
    max_model_len: int | None = Field(None, ge=128, le=1_048_576)
    max_num_seqs: int | None = Field(None, ge=1, le=4096)
    max_num_batched_tokens: int | None = Field(None, ge=128, le=1_048_576)
    rows: int | None = Field(None, ge=2, le=1024)
    """Noise rows kept resident in the engine."""
    enforce_eager: bool = False
    """Starts sooner and serves slower: no compilation."""
    kv_cache_gib: float | None = Field(None, gt=0, le=4096)
    system_prompt: str = Field(SYSTEM_PROMPT, max_length=8000)
    temperature: float = Field(0.7, ge=0, le=2, allow_inf_nan=False)
    max_tokens: int = Field(256, ge=1, le=32_768)
    data: Path | None = None
    """Folder of public test sets (NAME/...), for tasks that need one; None: from the hub."""
    metrics: dict[str, Metric] = Field(
        default_factory=lambda: {"thumb": Metric(kind="bool"), "score": Metric(kind="number")}
    )
    """What may be rated, as JSON: {"name": {"kind", "low", "high", "weight"}}."""

    @field_validator("profile")
    @classmethod
    def _profile(cls, value: str) -> str:
        if value not in PROFILES:
            raise ValueError(f"choose from {', '.join(PROFILES)}, not {value!r}")
        return value

    @field_validator("host")
    @classmethod
    def _loopback(cls, value: str) -> str:
        try:
            local = value == "localhost" or ip_address(value).is_loopback
        except ValueError:
            local = False
        if not local:
            raise ValueError(
                f"{value!r} would open the server to the network, and it has no accounts yet: keep 127.0.0.1 and "
                "reach it from elsewhere through an SSH tunnel"
            )
        return value

    @field_validator("metrics")
    @classmethod
    def _metrics(cls, value: dict[str, Metric]) -> dict[str, Metric]:
        if value.get("thumb", Metric()).kind != "bool":
            raise ValueError("the chat's thumbs need the metric 'thumb' of kind 'bool'")
        if any(not name.isidentifier() or len(name) > 64 for name in value):
            raise ValueError("a metric's name is a word of letters, digits and underscores, at most 64 long")
        return value

    @property
    def database(self) -> Path:
        return self.home / "popserve.db"

    @property
    def files(self) -> Path:
        """Folder of users' own task files."""
        return self.home / "tasks"


class SettingsError(Exception):
    """Settings that are refused, one line each."""


def load(**changes: object) -> AppSettings:
    """The settings of the environment with changes. Raises SettingsError with a sentence for each fault."""
    try:
        return AppSettings(**changes)  # type: ignore[arg-type]
    except ValidationError as error:
        lines = []
        for fault in error.errors():
            name = str(fault["loc"][0]) if fault["loc"] else "settings"
            name = name if name.isupper() else PREFIX + name.upper()
            lines.append(f"{name}: {fault['msg'].removeprefix('Value error, ')}")
        raise SettingsError("\n".join(lines)) from error
