"""Runs of simulated users, judges with errors, weights of ratings."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"
branch_labels = None
depends_on = None

JSON = sa.JSON()
MESSAGE = ("run_id", "task", "category", "request_index", "episode_id", "weight")


def upgrade() -> None:
    op.create_table(
        "traffic_run",
        sa.Column("id", sa.String(), primary_key=True),
        sa.Column("name", sa.String(), nullable=False),
        sa.Column("notes", sa.String(), nullable=False),
        sa.Column("task", sa.String(), nullable=False),
        sa.Column("options", JSON, nullable=False),
        sa.Column("plan", JSON, nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("why", sa.String(), nullable=False),
        sa.Column("progress", JSON, nullable=False),
        sa.Column("result", JSON, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
    )
    op.create_table(
        "mark",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("kind", sa.String(), nullable=False),
        sa.Column("text", sa.String(), nullable=False),
        sa.Column("data", JSON, nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_mark_generation", "mark", ["generation"])
    op.create_table(
        "second_opinion",
        sa.Column("inference_id", sa.String(), sa.ForeignKey("message.id"), primary_key=True),
        sa.Column("observed", sa.Float(), nullable=False),
        sa.Column("truth", sa.Float(), nullable=True),
        sa.Column("blind", sa.Boolean(), nullable=False),
        sa.Column("judge", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("rater", sa.String(), nullable=True),
        sa.Column("skipped", sa.Boolean(), nullable=False),
        sa.Column("offered_at", sa.Float(), nullable=False),
        sa.Column("given_at", sa.Float(), nullable=True),
    )
    op.create_table(
        "implicit_signal",
        sa.Column("id", sa.Integer(), primary_key=True),
        sa.Column("inference_id", sa.String(), sa.ForeignKey("message.id"), nullable=False),
        sa.Column("rule", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("weight", sa.Float(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
    )
    op.create_index("ix_implicit_signal_inference_id", "implicit_signal", ["inference_id"])

    op.add_column(
        "message",
        sa.Column("run_id", sa.String(), sa.ForeignKey("traffic_run.id"), nullable=True),
        inline_references=True,
    )
    op.add_column("message", sa.Column("task", sa.String(), nullable=True))
    op.add_column("message", sa.Column("category", sa.String(), nullable=True))
    op.add_column("message", sa.Column("request_index", sa.Integer(), nullable=True))
    op.add_column("message", sa.Column("episode_id", sa.String(), nullable=True))
    op.add_column("message", sa.Column("weight", sa.Float(), nullable=False, server_default="1"))
    op.create_index("ix_message_run", "message", ["run_id", "created_at"], sqlite_where=sa.text("run_id IS NOT NULL"))
    for table in ("rating_event", "rating"):
        op.add_column(table, sa.Column("truth", sa.Float(), nullable=True))
        op.add_column(table, sa.Column("judge", sa.String(), nullable=True))
    op.add_column("merge_use", sa.Column("weight", sa.Float(), nullable=False, server_default="1"))


def downgrade() -> None:
    op.drop_column("merge_use", "weight")
    for table in ("rating_event", "rating"):
        op.drop_column(table, "judge")
        op.drop_column(table, "truth")
    op.drop_index("ix_message_run", "message")
    with op.batch_alter_table("message") as message:
        for name in MESSAGE:
            message.drop_column(name)
    for table in ("implicit_signal", "second_opinion", "mark", "traffic_run"):
        op.drop_table(table)
