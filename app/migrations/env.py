"""Alembic's entry: the connection comes from :mod:`app.migrate`."""

from alembic import context
from sqlmodel import SQLModel

import app.tables  # noqa: F401

connection = context.config.attributes["connection"]
context.configure(connection=connection, target_metadata=SQLModel.metadata, render_as_batch=True)
with context.begin_transaction():
    context.run_migrations()
