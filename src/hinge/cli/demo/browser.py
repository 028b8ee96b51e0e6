"""Opens the live page, where there is a browser with a window of its own."""

import os
import sys
import webbrowser

from hinge.cli import show

_DISPLAYS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")


def open_page(url: str) -> None:
    """Say where the page is, and open it. A browser inside the terminal would be in the way, and is not started."""
    show.err.print(f"Live page: {url}", highlight=False, soft_wrap=True)
    if sys.platform in ("darwin", "win32") or any(os.environ.get(name) for name in _DISPLAYS):
        webbrowser.open(url)
