"""Remote models: what a device asks of one, and what it gets.

Write your own: an object with `ask` and `close` (or `ask_async` and `close_async`, for `AsyncDevice`) is a remote. It
returns a `Reply` or raises one of the failures in `hinge.errors`; any other exception counts as `RemoteError`.

The device keeps the deadline, whatever the remote does: `ask` runs in a worker thread and is left behind when it is
late, `ask_async` in a task that is cancelled. A remote that always returns by the deadline may say so with a class
attribute `keeps_deadline = True`, and is then called directly, which saves the hand-over (about 50 µs).
"""

from hinge.remotes.remote import AsyncRemote as AsyncRemote
from hinge.remotes.remote import Deadline as Deadline
from hinge.remotes.remote import Remote as Remote
from hinge.remotes.remote import Reply as Reply
