"""Brings a database to this version's tables, at start-up and from any older version."""

from __future__ import annotations

from pathlib import Path

from alembic import command
from alembic.config import Config
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection

MIGRATIONS = Path(__file__).parent / "migrations"


class NewerDatabase(Exception):
    """The database was written by a later version of popserve."""


def configuration(connection: Connection | None = None) -> Config:
    """Alembic's configuration, without a file."""
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS).replace("%", "%%"))
    config.attributes["connection"] = connection
    return config


def migrate(connection: Connection, path: Path) -> None:
    """Upgrades to the newest revision, in one transaction. Raises NewerDatabase when the file is ahead of the code."""
    config = configuration(connection)
    known = {script.revision for script in ScriptDirectory.from_config(config).walk_revisions()}
    present = MigrationContext.configure(connection).get_current_revision()
    if present is not None and present not in known:
        raise NewerDatabase(
            f"{path} was written by a newer version of popserve (revision {present}). Start that version, "
            "or point POPSERVE_HOME at another folder. The file was left as it is."
        )
    command.upgrade(config, "head")
    connection.commit()
