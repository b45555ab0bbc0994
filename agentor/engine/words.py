"""Words of the log that more than one part of the engine must know: of statuses and kinds of errors."""

from __future__ import annotations

INTERRUPTED = "interrupted"  # a status; also error_type of what was cut off and has no outcome
CANCELLED = "cancelled"  # a status; also error_type of a model call that was cut off
DENIED = "denied"  # error_type of a call that a person did not let run
DISABLED = "disabled"  # error_type of a call of a tool that is switched off
CANCEL = "cancel"  # `by` of a result that stands in for a cancelled call's
