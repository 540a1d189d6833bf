"""What simulated users ask and what they like: a task samples requests and judges replies.

from engine.tasks import get
task = get("persona:brevity")
"""

from engine.tasks.base import Reply, Task
from engine.tasks.personas import PERSONAS

TASKS: dict[str, Task] = {task.name: task for task in PERSONAS}


def get(name: str) -> Task:
    """The task of that name. Raises ValueError with the names there are."""
    if name not in TASKS:
        raise ValueError(f"unknown task {name!r}: choose from {', '.join(TASKS)}")
    return TASKS[name]


__all__ = ["TASKS", "Reply", "Task", "get"]
