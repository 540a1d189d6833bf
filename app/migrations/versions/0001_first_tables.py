"""The first tables."""

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.create_table(
        "conversation",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("title", sa.String(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.Column("deleted_at", sa.Float(), nullable=True),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index(
        "ix_conversation_shown",
        "conversation",
        ["updated_at"],
        unique=False,
        sqlite_where=sa.text("deleted_at IS NULL"),
    )

    op.create_table(
        "generation",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("number", sa.Integer(), nullable=False),
        sa.Column("data", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_generation_number", "generation", ["number"], unique=False)

    op.create_table(
        "ledger_entry",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("entry", sa.JSON(), nullable=False),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_table(
        "merge",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("reason", sa.String(), nullable=False),
        sa.Column("mean_reward", sa.Float(), nullable=True),
        sa.Column("ratings", sa.Integer(), nullable=False),
        sa.Column("null", sa.Boolean(), nullable=False),
        sa.Column("late", sa.Integer(), nullable=False),
        sa.Column("signal_share", sa.Float(), nullable=True),
        sa.Column("drift", sa.Float(), nullable=False),
        sa.Column("merged_at", sa.Float(), nullable=False),
        sa.Column("merge_ms", sa.Float(), nullable=False),
        sa.Column("pause_ms", sa.Float(), nullable=False),
        sa.Column("fitness", sa.JSON(), nullable=False),
        sa.Column("counts", sa.JSON(), nullable=False),
        sa.Column("record", sa.JSON(), nullable=False),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_merge_state", "merge", ["state", "generation"], unique=False)

    op.create_table(
        "setting",
        sa.Column("key", sa.String(), nullable=False),
        sa.Column("value", sa.JSON(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.PrimaryKeyConstraint("key"),
    )
    op.create_table(
        "merge_use",
        sa.Column("merge_id", sa.Integer(), nullable=False),
        sa.Column("inference_id", sa.String(), nullable=False),
        sa.Column("generation", sa.Integer(), nullable=False),
        sa.Column("member", sa.Integer(), nullable=False),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["merge_id"],
            ["merge.id"],
        ),
        sa.PrimaryKeyConstraint("merge_id", "inference_id"),
    )
    op.create_table(
        "message",
        sa.Column("id", sa.String(), nullable=False),
        sa.Column("conversation_id", sa.String(), nullable=True),
        sa.Column("parent_id", sa.String(), nullable=True),
        sa.Column("turn", sa.Integer(), nullable=False),
        sa.Column("version", sa.Integer(), nullable=False),
        sa.Column("role", sa.String(), nullable=False),
        sa.Column("content", sa.String(), nullable=False),
        sa.Column("state", sa.String(), nullable=False),
        sa.Column("prompt", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("target", sa.String(), nullable=True),
        sa.Column("generation", sa.Integer(), nullable=True),
        sa.Column("member", sa.Integer(), nullable=True),
        sa.Column("seed", sa.BigInteger(), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("sampling", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("finish_reason", sa.String(), nullable=True),
        sa.Column("prompt_tokens", sa.Integer(), nullable=True),
        sa.Column("completion_tokens", sa.Integer(), nullable=True),
        sa.Column("reward", sa.Float(), nullable=True),
        sa.Column("error", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.Column("finished_at", sa.Float(), nullable=True),
        sa.ForeignKeyConstraint(
            ["conversation_id"],
            ["conversation.id"],
        ),
        sa.ForeignKeyConstraint(
            ["parent_id"],
            ["message.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
    )
    op.create_index("ix_message_conversation", "message", ["conversation_id", "turn", "version"], unique=False)
    op.create_index(
        "ix_message_rated", "message", ["generation"], unique=False, sqlite_where=sa.text("reward IS NOT NULL")
    )
    op.create_index(
        "ix_message_streaming", "message", ["state"], unique=False, sqlite_where=sa.text("state = 'streaming'")
    )

    op.create_table(
        "rating_event",
        sa.Column("id", sa.Integer(), nullable=False),
        sa.Column("inference_id", sa.String(), nullable=False),
        sa.Column("rater", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=True),
        sa.Column("comment", sa.String(), nullable=True),
        sa.Column("tags", sa.JSON(none_as_null=True), nullable=True),
        sa.Column("source", sa.String(), nullable=False),
        sa.Column("idempotency_key", sa.String(), nullable=True),
        sa.Column("created_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["inference_id"],
            ["message.id"],
        ),
        sa.PrimaryKeyConstraint("id"),
        sa.UniqueConstraint("idempotency_key"),
    )
    op.create_index("ix_rating_event_inference_id", "rating_event", ["inference_id"], unique=False)

    op.create_table(
        "rating",
        sa.Column("inference_id", sa.String(), nullable=False),
        sa.Column("rater", sa.String(), nullable=False),
        sa.Column("metric", sa.String(), nullable=False),
        sa.Column("value", sa.Float(), nullable=False),
        sa.Column("comment", sa.String(), nullable=True),
        sa.Column("event_id", sa.Integer(), nullable=False),
        sa.Column("updated_at", sa.Float(), nullable=False),
        sa.ForeignKeyConstraint(
            ["event_id"],
            ["rating_event.id"],
        ),
        sa.ForeignKeyConstraint(
            ["inference_id"],
            ["message.id"],
        ),
        sa.PrimaryKeyConstraint("inference_id", "rater", "metric"),
    )


def downgrade() -> None:
    for table in (
        "rating",
        "rating_event",
        "message",
        "merge_use",
        "setting",
        "merge",
        "ledger_entry",
        "generation",
        "conversation",
    ):
        op.drop_table(table)
