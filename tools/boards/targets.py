"""The compilers and emulators, and what each needs to be told."""

import re
import subprocess
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hinge.embedded import C_FOLDER

HERE = Path(__file__).parent
STRICT = ("-std=c99", "-Wall", "-Wextra", "-Wconversion", "-pedantic", "-Werror")
_BARE = ("-nostdlib", "-nostartfiles", "-static")
_CORTEX = (*_BARE, f"-T{HERE / 'arm.ld'}")
_SEMIHOSTING = ("-semihosting-config", "enable=on,target=native")
_SILENT = ("-nographic", "-monitor", "none")
_QEMU = (*_SILENT, "-serial", "none")


@dataclass(frozen=True)
class Target:
    """A kind of board: its compiler, the flags that make a program for it, and what runs that."""

    name: str
    compiler: str
    board: str  # the C file that talks to it
    processor: tuple[str, ...]  # flags that every compilation needs
    link: tuple[str, ...] = ()
    emulator: tuple[str, ...] = ()
    libraries: tuple[str, ...] = ()
    slow: bool = False

    def compile(self, source: Path, out: Path, flags: tuple[str, ...]) -> None:
        """Compile a file of its own, as a library is built, without linking it."""
        _call(self.compiler, *self.processor, *STRICT, *flags, f"-I{C_FOLDER}", "-c", str(source), "-o", str(out))

    def link_shared(self, compiled: Path, out: Path) -> None:
        """Make a library that this machine can load."""
        _call(self.compiler, "-shared", str(compiled), "-o", str(out))

    def build(self, program: str, out: Path, flags: tuple[str, ...]) -> None:
        """Build one of the programs beside this file."""
        sources = [str(HERE / program), str(HERE / self.board)]
        folders = [f"-I{C_FOLDER}", f"-I{HERE}"]
        linking = [*self.link, *sources, "-o", str(out), *self.libraries]
        _call(self.compiler, *self.processor, *STRICT, *flags, *folders, *linking)

    def command(self, program: Path) -> list[str]:
        """What runs a program that was built for it."""
        return [*self.emulator, str(program)]

    def run(self, program: Path, seconds: float = 300.0) -> list[int]:
        """Run a program and return the numbers that it printed."""
        done = subprocess.run(self.command(program), capture_output=True, text=True, timeout=seconds, check=False)
        if done.returncode:
            raise RuntimeError(f"{self.name}: {program.name} ended with {done.returncode}: {done.stderr[-2000:]}")
        plain = re.sub(r"\x1b\[\d*m", " ", done.stdout + done.stderr)  # simavr prints in colours
        return [int(number, 16) for number in re.findall(r"\b[0-9A-F]{8}\b", plain)]


HOST = Target("host gcc", "gcc", "host.c", ())
CLANG = Target("host clang", "clang", "host.c", ())
M0 = Target(
    "cortex-m0",
    "arm-none-eabi-gcc",
    "arm.c",
    ("-mcpu=cortex-m0", "-mthumb", "-ffreestanding"),
    _CORTEX,
    ("qemu-system-arm", "-M", "microbit", *_QEMU, *_SEMIHOSTING, "-kernel"),
    ("-lgcc",),
)
M0_CLANG = Target(  # to compare sizes: it is not linked
    "cortex-m0, clang", "clang", "arm.c", ("--target=armv6m-none-eabi", "-mcpu=cortex-m0", "-mthumb", "-ffreestanding")
)
M3 = Target(
    "cortex-m3",
    "arm-none-eabi-gcc",
    "arm.c",
    ("-mcpu=cortex-m3", "-mthumb", "-ffreestanding"),
    _CORTEX,
    ("qemu-system-arm", "-M", "mps2-an385", *_QEMU, *_SEMIHOSTING, "-kernel"),
    ("-lgcc",),
)
RV32 = Target(
    "rv32",
    "riscv64-unknown-elf-gcc",
    "riscv.c",
    ("-march=rv32imac", "-mabi=ilp32", "-ffreestanding"),
    (*_BARE, f"-T{HERE / 'riscv.ld'}"),
    ("qemu-system-riscv32", "-M", "virt", "-bios", "none", *_SILENT, "-serial", "stdio", "-kernel"),
    ("-lgcc",),
)
AVR = Target(
    "avr",
    "avr-gcc",
    "avr.c",
    ("-mmcu=atmega328p",),
    emulator=("simavr", "-m", "atmega328p", "-f", "16000000"),
    libraries=("-lm",),
    slow=True,
)
HOSTS, BOARDS = (HOST, CLANG), (M0, M3, RV32, AVR)


def defines(settings: Mapping[str, str]) -> tuple[str, ...]:
    """Return the compiler's options for settings of `hinge.h`, such as a twin's."""
    return tuple(f"-DHINGE_{name}={value}" for name, value in settings.items())


def _call(*command: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)}\n{done.stdout}{done.stderr}")
