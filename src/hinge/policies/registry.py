"""Names turn into policies here, and nowhere else."""

import inspect
from collections.abc import Mapping
from typing import Any

from hinge.errors import InvalidState, UnknownName
from hinge.names import did_you_mean
from hinge.policies.base import Policy


def policy_names() -> list[str]:
    """The names of all policies that stand by themselves, those that users have defined included.

    >>> "hi-lcb" in policy_names()
    True
    """
    return sorted(name for name, policy in Policy.registry.items() if not policy.wraps)


def policy_class(name: str) -> type[Policy]:
    """The policy of that name.

    >>> policy_class("hi-lbc")
    Traceback (most recent call last):
    hinge.errors.UnknownName: no policy is called 'hi-lbc'; did you mean 'hi-lcb'?
    """
    if name in Policy.registry:
        return Policy.registry[name]
    raise UnknownName(f"no policy is called {name!r}{did_you_mean(name, policy_names())}")


def build(name: str, **settings: Any) -> Policy:
    """A policy by name, from settings that may hold more than it needs: it takes those that it knows.

    A policy that is fitted on labelled history takes `history` and `agreed`; one that cannot be built from what there
    is says what is missing.

    >>> build("hi-lcb", bins=16, alpha=0.52, offload_cost=0.5, horizon=1000, seed=1)
    HILCB(bins=16, alpha=0.52, offload_cost=0.5, offload_unseen=True)
    """
    chosen = policy_class(name)
    known = {key for policy in Policy.registry.values() for key in _settings(policy)}
    for key in settings:
        if key not in known:
            raise TypeError(f"build: no policy has a setting {key!r}{did_you_mean(key, known)}")
    maker = getattr(chosen, "fit", chosen) if "history" in settings else chosen
    parameters = inspect.signature(maker).parameters
    missing = [
        parameter.name
        for parameter in parameters.values()
        if parameter.default is parameter.empty and parameter.name not in settings
    ]
    if missing:
        hint = "; it is fitted on labelled history" if hasattr(chosen, "fit") else ""
        raise TypeError(f"{name}: needs {', '.join(missing)}{hint}")
    policy: Policy = maker(**{key: value for key, value in settings.items() if key in parameters})
    return policy


def _settings(policy: type[Policy]) -> set[str]:
    """What a policy can be built from, by its constructor or by fitting it."""
    makers = [policy, getattr(policy, "fit", policy)]
    return {name for maker in makers for name in inspect.signature(maker).parameters}


def restore(state: Mapping[str, Any]) -> Policy:
    """The policy that a saved state describes, whichever it is.

    >>> restore(build("kl", bins=8, offload_cost=0.3).state()).name
    'kl'
    """
    if not isinstance(state, Mapping) or not isinstance(state.get("policy"), str):
        raise InvalidState(f"state must be a dict that names its policy, got {state!r}")
    return policy_class(state["policy"]).restore(state)
