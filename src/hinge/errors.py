"""What can go wrong, as a tree.

    HingeError
    ├── InvalidArgument                an argument that makes no sense; knows which
    │   ├── InvalidValue (ValueError)  a value out of range
    │   └── InvalidType  (TypeError)   the wrong kind of value
    ├── UnknownName      (ValueError)  no policy, trace or model of that name; says what was probably meant
    ├── InvalidDecision  (ValueError)  feedback for a decision that is not waiting for any
    ├── InvalidState     (ValueError)  a saved state that is damaged, newer than this version, or of another policy
    ├── InvalidTrace     (ValueError)  a recorded stream, or its file, that is damaged or makes no sense; says where
    ├── InvalidMessage   (ValueError)  a request or response of a server that is damaged, oversized or not ours
    ├── InvalidModel     (ValueError)  a model's file that is missing, damaged, must not be trusted, or does not fit
    └── RemoteFailed                   the remote gave no usable answer in time
        ├── RemoteUnreachable          no connection
        ├── RemoteLate                 no answer by the deadline
        ├── RemoteError                it reports an error of its own
        ├── RemoteRefused              it does not accept this sample
        ├── RemoteInvalid              its response cannot be used
        ├── TaskFailed                 the task cannot read or compare its answer, by an error of its own
        ├── PolicyFailed               nobody was asked, as the policy could not decide, by an error of its own
        ├── QueueTimeout               it was not asked, as no request slot was free by the deadline
        └── BreakerOpen                it failed too often to be asked now
"""


class HingeError(Exception):
    """Any error that Hinge raises on purpose."""


class InvalidArgument(HingeError):
    """An argument makes no sense: who was given it, its name, and what it must be.

    >>> raise InvalidValue("HILCB", "alpha", "must be > 0, got -1")
    Traceback (most recent call last):
    hinge.errors.InvalidValue: HILCB: alpha must be > 0, got -1
    """

    def __init__(self, owner: str, name: str, problem: str) -> None:
        super().__init__(owner, name, problem)
        self.owner, self.name, self.problem = owner, name, problem

    def __str__(self) -> str:
        return f"{self.owner}: {self.name} {self.problem}"


class InvalidValue(InvalidArgument, ValueError):
    """The value is out of range."""


class InvalidType(InvalidArgument, TypeError):
    """The value is of the wrong kind."""


class UnknownName(HingeError, ValueError):
    """Nothing is registered under that name."""


class InvalidDecision(HingeError, ValueError):
    """The decision was made by another policy, was learned before, or accepted and so has nothing to teach."""


class InvalidState(HingeError, ValueError):
    """The saved state cannot be continued from."""


class StateInUse(InvalidState):
    """Another process uses the folder."""


class InvalidTrace(HingeError, ValueError):
    """The trace has a value that makes no sense, or its file cannot be read."""


class InvalidMessage(HingeError, ValueError):
    """The message cannot be read, must not be trusted, or has no form that could be sent."""


class InvalidModel(HingeError, ValueError):
    """The model cannot be loaded, must not be trusted, or does not fit what it is used for."""


class RemoteFailed(HingeError):
    """The remote gave no usable answer in time; the device answers from its local model. Each subclass is one cause.

    The message may hold what the remote sent, so it is escaped and cut: it can be shown in a terminal and logged.

    >>> print(RemoteError("HTTP 500 \x1b[2J"))
    HTTP 500 \\x1b[2J
    """

    kind = "error"  # the label under which metrics and reports count the failure

    def __init__(self, problem: object = "") -> None:
        super().__init__(printable(problem))


class RemoteUnreachable(RemoteFailed):
    """No connection to the remote, or it broke before the response."""

    kind = "unreachable"


class RemoteLate(RemoteFailed):
    """No answer by the deadline."""

    kind = "late"


class RemoteError(RemoteFailed):
    """The remote reports an error of its own: HTTP 5xx, or an exception of the function that is asked."""


class RemoteRefused(RemoteFailed):
    """The remote does not accept this sample: it is not down, so the breaker does not count it."""

    kind = "refused"


class RemoteInvalid(RemoteFailed):
    """The response cannot be parsed, or does not fit the question."""

    kind = "invalid"


class TaskFailed(RemoteFailed):
    """The task is wrong, and not the remote, so the breaker does not count it: it raised what no task may, or gave no
    plain data.
    """

    kind = "task"


class PolicyFailed(RemoteFailed):
    """The policy is wrong, and not the remote, which was not asked: it raised what no policy may."""

    kind = "policy"


class QueueTimeout(RemoteFailed):
    """The remote was not asked: all requests that may be in flight at once (`in_flight`) were, until the deadline."""

    kind = "queue"


class CallsLeftBehind(QueueTimeout):
    """The remote was not asked: so many calls of it have not returned that no more threads are started for now."""


class BreakerOpen(RemoteFailed):
    """The circuit breaker is open: the remote failed too often to be asked now.

    Made for every offload of an outage, so its message is put together when it is read.

    >>> str(BreakerOpen("The breaker is open.")), str(BreakerOpen("The breaker is open.", RemoteLate("no answer")))
    ('The breaker is open', 'The breaker is open. Last: no answer')
    """

    kind = "breaker"

    __init__ = Exception.__init__  # in a third of the time; takes the situation and, if it is known, the last failure

    def __str__(self) -> str:
        situation, last = (*self.args, None)[:2]
        return str(situation).removesuffix(".") if last is None else f"{situation} Last: {last}"


def printable(value: object, most: int = 200) -> str:
    """The value as text that is safe to show: what is not printable is escaped, and what is long is cut.

    >>> print(printable("a\x1b]0;title\x07b"), printable("x" * 300, most=8))
    a\\x1b]0;title\\x07b xxxxxxx…
    """
    text = str(value)[: most + 1]
    if not text.isprintable():
        text = "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)
    return text if len(text) <= most else text[: most - 1] + "…"
