"""Steps that a schedule takes only where they are possible."""

from __future__ import annotations

from tensorir.schedule.schedule import Schedule
from tensorir.support.errors import IllegalSchedule, ScheduleError, UnsupportedError


def attempt(s: Schedule, primitive: str, *args: object, **kwargs: object) -> Schedule:
    """`s` after a step, or as it is where the step is not possible."""
    try:
        made: Schedule = getattr(s, primitive)(*args, **kwargs)
    except (ScheduleError, IllegalSchedule, UnsupportedError):
        return s
    return made
