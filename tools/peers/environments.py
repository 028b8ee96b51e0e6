"""One virtual environment per peer, outside the checkout, made on first use.

They lie in `$XDG_CACHE_HOME/hinge/peers` (`~/.cache/hinge/peers`), one folder per peer, version, Python and list of
requirements; the lists are in `requirements`, complete and pinned. They leave out what the peers ask for but what they
are started for here never imports, so they are installed as they stand, without dependencies.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import venv
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

_REQUIREMENTS = Path(__file__).with_name("requirements")
_STAMP = "complete"
_INSTALL_S = 600


class PeerUnavailable(RuntimeError):
    """A peer cannot be installed or started here."""


class PythonTooNew(PeerUnavailable):
    """A peer does not run on this Python."""


@dataclass(frozen=True)
class Environment:
    """The virtual environment of a peer."""

    peer: str
    version: str
    python_below: tuple[int, int] = (3, 14)  # the first Python that the peer does not run on

    @property
    def folder(self) -> Path:
        """Where it lies."""
        x, y = sys.version_info[:2]
        return cache() / f"{self.peer}-{self.version}-py{x}{y}-{self._key()}"

    @property
    def python(self) -> Path:
        """Its interpreter."""
        return self.folder / "bin" / "python"

    @property
    def site_packages(self) -> Path:
        """Where its packages are."""
        x, y = sys.version_info[:2]
        return self.folder / "lib" / f"python{x}.{y}" / "site-packages"

    def prepare(self) -> None:
        """Install the peer, unless that has been done."""
        self._check_python()
        stamp = self.folder / _STAMP
        if stamp.exists():
            return
        with _locked(self.folder.parent / f"{self.folder.name}.lock"):
            if not stamp.exists():  # another run may have made it meanwhile
                self._make()
                stamp.touch()

    def _check_python(self) -> None:
        if sys.version_info[:2] >= self.python_below:
            needed = ".".join(map(str, self.python_below))
            running = ".".join(map(str, sys.version_info[:2]))
            raise PythonTooNew(f"{self.peer} {self.version} needs Python < {needed}, this is {running}")

    def _key(self) -> str:
        """What the contents depend on: an environment holds compiled packages, and links to its interpreter."""
        contents = [self._requirements.read_text(), sys.version, sys.base_prefix]
        return hashlib.sha256("\n".join(contents).encode()).hexdigest()[:8]

    @property
    def _requirements(self) -> Path:
        return _REQUIREMENTS / f"{self.peer}.txt"

    def _make(self) -> None:
        shutil.rmtree(self.folder, ignore_errors=True)  # what an interrupted run left
        venv.create(self.folder, symlinks=True)
        pip = [sys.executable, "-m", "pip", "--python", str(self.python), "--disable-pip-version-check"]
        # modules are compiled when first imported: most never are
        install = ["install", "--quiet", "--no-deps", "--no-compile", "--requirement", str(self._requirements)]
        try:
            subprocess.run([*pip, *install], check=True, capture_output=True, text=True, timeout=_INSTALL_S)
        except subprocess.CalledProcessError as problem:
            raise PeerUnavailable(f"{self.peer} {self.version} could not be installed:\n{problem.stderr}") from None
        except subprocess.TimeoutExpired:
            raise PeerUnavailable(f"{self.peer} {self.version} took over {_INSTALL_S} s to install") from None


def cache() -> Path:
    """Where environments are kept."""
    home = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(home) / "hinge" / "peers"


@contextmanager
def _locked(path: Path) -> Iterator[None]:
    """Hold a lock; whoever holds it is done, or gives up, within the time that installing may take."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
