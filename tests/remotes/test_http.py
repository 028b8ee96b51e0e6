"""The HTTP client where its protocol library is missing; `test_open_inference.py` has it at work."""

import subprocess
import sys

import pytest


@pytest.mark.medium
def test_without_h11_the_package_is_imported_and_a_client_says_what_to_install() -> None:
    program = (
        "import sys; sys.modules['h11'] = None\n"
        "from hinge import *\n"
        "try:\n    OpenInference('http://localhost:1', 'm')\nexcept ImportError as error:\n    print(error)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "a remote over HTTP needs h11: pip install 'hinge-gate[device]'\n"
