"""The package as a whole: its public names, what importing it costs, and what it runs without."""

import ast
import operator
import subprocess
import sys
from pathlib import Path

import pytest

import hinge

ROOT = Path(__file__).parents[1]
WITHOUT_NUMPY = """
import sys
sys.modules["numpy"] = None
from hinge import UniformBins, build
from hinge.policies import policy_names
for name in policy_names():
    history, agreed = [0, 1, 2, 3], [False, False, True, True]
    settings = dict(bins=4, offload_cost=0.5, horizon=100, agreement=[0.1, 0.2, 0.8, 0.9], threshold=0.5)
    policy = build(name, history=history, agreed=agreed, **settings)
    for bin in (0, 3, 3, 1):
        decision = policy.decide(bin)
        if decision.offload or policy.needs:
            policy.learn(decision, agreed=True, cost=0.5)
    type(policy).restore(policy.state()).explain(UniformBins(4).bin(0.9))
print(len(policy_names()))
"""
EXTRAS = """
import sys
for name in ("numba", "pyarrow", "cyclopts", "rich", "plotly", "onnxruntime", "httpcore2", "aiohttp",
             "ai_edge_litert", "openvino", "PIL", "prometheus_client", "uvicorn", "starlette"):
    sys.modules[name] = None
"""
# What programs that follow the documentation import. A name may move to another module; it may not leave this list.
STABLE = {
    *("AsyncDevice", "Device", "Gate", "HILCB", "HILCBLite", "OnnxModel", "OpenInference", "Probation", "UniformBins"),
    *("Threshold", "build", "evaluate", "load_trace", "max_softmax", "read_trace", "restore", "simulate"),
    "write_trace",
}


def in_a_process_of_its_own(program: str) -> str:
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=False)
    assert done.stderr == ""
    return done.stdout


def for_type_checkers() -> dict[str, str]:
    """Names and where they come from, as the block `if TYPE_CHECKING` of the package says."""
    source = ast.parse(Path(hinge.__file__).read_text("utf-8"))
    block = next(each for each in source.body if isinstance(each, ast.If))
    imports = [each for each in block.body if isinstance(each, ast.ImportFrom)]
    assert all(name.asname == name.name for each in imports for name in each.names)  # else it is not exported
    return {name.name: each.module or "" for each in imports for name in each.names}


def test_policies_run_without_numpy() -> None:
    assert int(in_a_process_of_its_own(WITHOUT_NUMPY)) == len(hinge.policies.policy_names())


def test_every_public_name_means_what_type_checkers_take_it_for() -> None:
    declared = for_type_checkers()
    assert sorted(declared) == sorted(name for name in dir(hinge) if name != "__version__")
    for name, module in declared.items():
        found = getattr(hinge, name)
        if module == "hinge":
            assert found is sys.modules[f"hinge.{name}"]
        else:
            assert found is getattr(sys.modules[module], name)


def test_the_names_of_the_stable_interface_are_public() -> None:
    assert set(hinge.__all__) >= STABLE
    assert 40 <= len(hinge.__all__) <= 50  # what everyone meets first; the rest has a module to be looked for in


@pytest.mark.medium
def test_importing_everything_needs_no_extra() -> None:
    printed = in_a_process_of_its_own(EXTRAS + "from hinge import *\nprint(Device.__name__, OpenInference.__name__)")
    assert printed.split() == ["Device", "OpenInference"]


def test_importing_the_package_imports_nothing_else() -> None:
    program = "import sys; before = set(sys.modules); import hinge; print(*sorted(set(sys.modules) - before))"
    assert in_a_process_of_its_own(program).split() == ["hinge"]


@pytest.mark.medium
def test_a_name_is_looked_up_once() -> None:
    program = "import hinge; hinge.HILCB, hinge.fashion; print('HILCB' in vars(hinge), 'fashion' in vars(hinge))"
    assert in_a_process_of_its_own(program).split() == ["True", "True"]


def test_an_unknown_attribute_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="'HILBC'"):
        operator.attrgetter("HILBC")(hinge)


def test_the_version_is_public() -> None:
    assert hinge.__version__.count(".") == 2
