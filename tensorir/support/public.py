"""What a user calls of the errors and warnings: a wrong call of it is told like any other.

They stand here because what tells of wrong calls needs the errors first.
"""

from __future__ import annotations

from tensorir.support import errors
from tensorir.support.tracebacks import user_api

__all__ = ["full_text", "silence"]

full_text = user_api(errors.full_text)
silence = user_api(errors.silence)
