"""Run the quick tests on every supported Python that is installed, each in a virtual environment of its own.

    python tools/pythons.py                     # what pytest is to run may follow: tests/policies tests/device

Pythons are looked for on the PATH and among pyenv's. The environments lie in `$XDG_CACHE_HOME/hinge/pythons`
(`~/.cache/hinge/pythons`), named by version and by a hash of pyproject.toml and constraints.txt, so that one is made
again only when those change. An extra whose packages have no wheel for a Python is left out there, and named.
"""

import glob
import hashlib
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SUPPORTED = ("3.11", "3.12", "3.13", "3.14")
NEEDED = ("test", "sim", "cli", "device", "server")
OPTIONAL = ("report", "plot", "images", "litert", "openvino")
QUICK = "not slow and not server and not docs and not embedded and not peers"
_STAMP = "installed"


def interpreters() -> dict[str, Path]:
    """The newest interpreter of each supported version."""
    pyenv = os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv"
    on_path = [place for place in map(shutil.which, (f"python{version}" for version in SUPPORTED)) if place]
    found: dict[str, tuple[tuple[int, ...], Path]] = {}
    for place in [*glob.glob(f"{pyenv}/versions/*/bin/python3"), *on_path]:  # pyenv's own before its shims
        version = _version(place)
        minor = ".".join(version.split(".")[:2])
        patch = tuple(int(part) for part in re.findall(r"\d+", version))
        if minor in SUPPORTED and patch > found.get(minor, ((0,), Path()))[0]:
            found[minor] = (patch, Path(place))
    return {minor: found[minor][1] for minor in SUPPORTED if minor in found}


def _version(python: str) -> str:
    program = "import platform; print(platform.python_version())"
    done = subprocess.run([python, "-c", program], capture_output=True, text=True, check=False)
    return done.stdout.strip()  # nothing, for a pyenv shim of a version that is not selected


def environment(python: Path) -> Path:
    """A virtual environment of a Python with what the quick tests need; made on first use."""
    contents = b"".join((ROOT / name).read_bytes() for name in ("pyproject.toml", "constraints.txt"))
    contents += " ".join((*NEEDED, *OPTIONAL)).encode()
    key = hashlib.sha256(contents).hexdigest()[:8]
    home = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    folder = home / "hinge" / "pythons" / f"{_version(str(python))}-{key}"
    if not (folder / _STAMP).exists():
        shutil.rmtree(folder, ignore_errors=True)  # what an interrupted run left
        subprocess.run([str(python), "-m", "venv", str(folder)], check=True)
        if (problem := _install(folder, NEEDED)) is not None:
            raise SystemExit(f"{python}: {problem}")
        absent = [extra for extra in OPTIONAL if _install(folder, (extra,)) is not None]
        (folder / _STAMP).write_text(" ".join(absent))
    return folder


def _install(folder: Path, extras: tuple[str, ...]) -> str | None:
    """Install the dependencies of extras; returns what went wrong."""
    command = [str(folder / "bin" / "python"), "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    command += ["--only-binary=:all:", "-c", str(ROOT / "constraints.txt"), f"{ROOT}[{','.join(extras)}]"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return None if done.returncode == 0 else done.stderr.strip()[-2000:]


def main(chosen: list[str]) -> int:
    """Test every Python; 1 if any fails."""
    found = interpreters()
    results: dict[str, int] = {}
    for minor, python in found.items():
        folder = environment(python)
        absent = (folder / _STAMP).read_text()
        print(f"\n--- Python {minor}: {python}" + (f", without wheels for: {absent}" if absent else ""), flush=True)
        command = [str(folder / "bin" / "python"), "-m", "pytest", "-q", "-n", "auto", "-m", QUICK, *chosen]
        variables = {**os.environ, "PYTHONPATH": str(ROOT / "src"), "PYTHONDONTWRITEBYTECODE": "1"}
        variables["NUMBA_CACHE_DIR"] = str(folder / "numba")
        results[minor] = subprocess.run(command, cwd=ROOT, env=variables, check=False).returncode
    print()
    for minor in SUPPORTED:
        said = "not installed here: NOT TESTED" if minor not in results else "failed" if results[minor] else "passed"
        print(f"Python {minor}: {said}")
    return int(any(results.values()))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:] or ["tests"]))
