"""What can go wrong, as a tree.

Arguments that make no sense raise plain `ValueError` or `TypeError` (see `hinge.arguments`).
What the world gets wrong raises one of these, each of them also a `HingeError`:

    HingeError
    ├── UnknownName      (ValueError)  no policy, trace or model of that name; says what was probably meant
    ├── InvalidDecision  (ValueError)  feedback for a decision that is not waiting for any
    ├── InvalidState     (ValueError)  a saved state that is damaged, newer than this version, or of another policy
    ├── InvalidTrace     (ValueError)  a recorded stream, or its file, that is damaged or makes no sense; says where
    ├── InvalidMessage   (ValueError)  a request or response of a server that is damaged, oversized or not ours
    ├── InvalidModel     (ValueError)  a model's file that is missing, damaged, must not be trusted, or does not fit
    └── RemoteFailed                   the remote did not answer in time, or nothing that can be used
"""


class HingeError(Exception):
    """Any error that Hinge raises about the world rather than about an argument."""


class UnknownName(HingeError, ValueError):
    """Nothing is registered under that name."""


class InvalidDecision(HingeError, ValueError):
    """The decision was made by another policy, was learned before, or accepted and so has nothing to teach."""


class InvalidState(HingeError, ValueError):
    """The saved state cannot be continued from."""


class InvalidTrace(HingeError, ValueError):
    """The trace has a value that makes no sense, or its file cannot be read."""


class InvalidMessage(HingeError, ValueError):
    """The message cannot be read, must not be trusted, or has no form that could be sent."""


class InvalidModel(HingeError, ValueError):
    """The model cannot be loaded, must not be trusted, or does not fit what it is used for."""


class RemoteFailed(HingeError):
    """The remote did not answer, not in time, or nothing that can be used; a device answers from its local model.

    `kind` sorts failures for those who count them: "unreachable"; "late"; "error", it reports one; "refused", it does
    not take this sample; "invalid", it answers nothing that makes sense; "breaker", it failed too often to be asked.
    """

    def __init__(self, problem: str, kind: str = "error") -> None:
        super().__init__(problem)
        self.kind = kind
