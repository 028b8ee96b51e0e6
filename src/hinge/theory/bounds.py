"""What the theorems promise: upper bounds on the regret of HI-LCB and HI-LCB-lite, and what no policy can beat.

Upper bounds (Theorems 1 and 2, from the lemmas of Appendix A that count the wrong decisions). Every bound is
Σ_{Φ_H} Δ_i · (bound on E[O_i]) + max_{Φ_L} Δ_j · (bound on E[Σ_{Φ_L} A_i]): offloads where local should have been
accepted, accepts where it should not. With the cost known the constants are 4 and 2, else 16 and 4.

A bin with Δ_i = 0 brings no 1/Δ_i: Φ_H is strict, so the bin is in Φ_L, and either decision costs the same there. As
Δ_i falls towards 0 from above the bounds do diverge, though the regret in bin i can never exceed Δ_i T.

The statements need α > 0.5. C1–C4 are as the paper asserts them; its use of Hoeffding's inequality with a random count
skips a union or peeling argument, and at α = 0.52 they are large: 2α/(2α−1) = 26. HI-LCB's bounds need
`Problem.oracle_is_threshold`; HI-LCB-lite's do not. The theorems are about one cost for all bins: with a cost for each,
they hold for a policy that is told, or learns, each of them.

Lower bounds (Theorem 3, and the same argument for many bins) are asymptotic, constant · log T up to O(1), for policies
whose regret stays small in *every* problem of their kind. They are 0 where nothing has to be learned at a price: no
licensed bin arrives, or the divergence is infinite because one offload settles the question (f = 1: the first cost paid
proves γ > 1 − f; γ = 1: the first agreement proves f > 0).

`stopping_floor` is exact: the least regret on average for one bin whose agreement f is uniform on (0, 1). It solves a
problem of optimal stopping. Accepting teaches nothing, so a policy that knows the horizon T and the prior offloads
first and accepts ever after. After n offloads, a of which agreed, the next agrees with chance f̂ = (a + 1) / (n + 2),
and

    V(n, a) = min( (T - n) (1 - f̂),  cost + f̂ V(n + 1, a + 1) + (1 - f̂) V(n + 1, a) ),      V(T, a) = 0

is the least expected cost of what is left. The oracle knows f and pays T E[min(1 - f, cost)] = T (cost - cost² / 2).
"""

import math

import numpy as np
from numpy.typing import NDArray

from hinge._checks import real, whole
from hinge.theory.problem import Problem, arrival_weights


def divergence(p: float, q: float) -> float:
    """Return kl(p, q) in nats, accurate also for p near q; infinite where q rules out what p allows.

    >>> round(divergence(0.75, 0.5), 6), divergence(0.5, 0.5), divergence(0.5, 0.0)
    (0.130812, 0.0, inf)
    """
    if (p > 0.0 and q <= 0.0) or (p < 1.0 and q >= 1.0):
        return math.inf
    return _one_side(p, q) + _one_side(1.0 - p, 1.0 - q)  # the linear parts cancel, and keep both sides >= 0


def _one_side(p: float, q: float) -> float:
    """Return p log(p/q) + q - p, by a series for p near q."""
    if p <= 0.0:
        return q
    x = (q - p) / p
    if abs(x) > 0.03:
        return p * math.log(p / q) + q - p
    return p * x * x * sum((-x) ** k / (k + 2) for k in range(11))


def adversarial_bound(problem: Problem, *, horizon: int, alpha: float) -> float:
    """Theorem 1 (a–d) for HI-LCB and HI-LCB-lite; also Theorem 2 (b, d), HI-LCB-lite under stochastic arrivals.

    Cost learned: Σ_{Φ_H} 16α/Δ_i · log T + C1, C1 = 4α/(2α−1) Σ_{Φ_H} Δ_i + 2α/(2α−1) (|Φ_L| + 1) max_{Φ_L} Δ_j.
    Cost known: Σ_{Φ_H} 4α/Δ_i · log T + C2, C2 = 2α/(2α−1) (Σ_{Φ_H} Δ_i + |Φ_L| max_{Φ_L} Δ_j).

    >>> adversarial_bound(Problem([0.25, 1.0], 0.5), horizon=1, alpha=1)  # C2 = 2 (½ + ¼)
    1.5
    """
    horizon, alpha = _checked("adversarial_bound", horizon, alpha)
    offloads = adversarial_wrong_offloads(problem, horizon=horizon, alpha=alpha)
    return float(_gaps(problem) @ offloads) + _wrong_accept_regret(problem, alpha)


def stochastic_bound(problem: Problem, *, horizon: int, alpha: float) -> float:
    """Theorem 2 (a, c) for HI-LCB, as Lemmas 14 and 15 prove it: the minimum over j ∈ Φ_H, j ≤ i, of a *sum*.

    Cost learned: Σ_{Φ_H} Δ_i w_i min_j {16α log T/(Δ_j² w_j) + 4α/((2α−1) w_j)} + 2α/(2α−1) (|Φ_L| + 1) max_{Φ_L} Δ_j.
    Cost known: 4α and 2α in the braces, and |Φ_L|. A bin that never arrives cannot be the j.

    Never below `stochastic_bound_printed` nor above `adversarial_bound`. It holds for the pure threshold policy
    (`offload_unseen=False`); for the literal Algorithm 1 add `forced_offload_regret`.

    >>> problem = Problem([0.25, 1.0, 1.0], 0.5, weights=[0.5, 0.25, 0.25])
    >>> stochastic_bound(problem, horizon=1, alpha=1)  # 2 (½ + ½ + ¼)
    2.5
    """
    horizon, alpha = _checked("stochastic_bound", horizon, alpha)
    arrival_weights("stochastic_bound", problem)
    offloads = stochastic_wrong_offloads(problem, horizon=horizon, alpha=alpha)
    return float(_gaps(problem) @ offloads) + _wrong_accept_regret(problem, alpha)


def stochastic_bound_printed(problem: Problem, *, horizon: int, alpha: float) -> float:
    """Theorem 2 (a, c) for HI-LCB as printed, which splits the minimum of a sum into a sum of two minima.

    Cost learned: Σ_{Φ_H} min_j {16α w_i Δ_i/(w_j Δ_j²)} log T + C3, j over Φ_H with j ≤ i and
    C3 = 4α/(2α−1) Σ_{Φ_H} Δ_i min_j (w_i/w_j) + 2α/(2α−1) (|Φ_L| + 1) max_{Φ_L} Δ_j.
    Cost known: 4α, and C4 = 2α/(2α−1) (Σ_{Φ_H} min_j (w_i Δ_i/w_j) + |Φ_L| max_{Φ_L} Δ_j).

    Smaller than what the lemmas give: to quote, not to rely on.

    >>> problem = Problem([0.25, 1.0, 1.0], 0.5, weights=[0.5, 0.25, 0.25])
    >>> stochastic_bound_printed(problem, horizon=1, alpha=1)
    2.5
    """
    horizon, alpha = _checked("stochastic_bound_printed", horizon, alpha)
    counted = _wrongly_offloaded(problem)
    gaps, weights = problem.gaps[counted], arrival_weights("stochastic_bound_printed", problem)[counted]
    growth = np.minimum.accumulate(_rate(problem, alpha) * math.log(horizon) / (gaps**2 * weights))
    constant = np.minimum.accumulate(_start(problem, alpha) / weights)
    return float((gaps * weights) @ (growth + constant)) + _wrong_accept_regret(problem, alpha)


def forced_offload_regret(problem: Problem, *, horizon: int) -> float:
    """Σ_{Φ_H} Δ_i (1 − (1 − w_i)^T): the regret of offloading each bin the first time that it comes.

    Algorithm 1 does so ("or O_φ = 0") whatever the other bins have shown, and the proof of Theorem 2 forgets it:
    its Lemma 13 takes 1 − LCB ≥ LCB_γ for the only reason to offload. With many rare bins this term alone exceeds
    Theorem 2 (a, c): 256 bins, f = 1, γ = 1, w_0 = ½ and the rest even give 256, against 96 at T = 10⁵, α = 1.

    >>> forced_offload_regret(Problem([0.25, 1.0], 0.5, weights=[0.5, 0.5]), horizon=2)  # ½ (1 − ¼)
    0.375
    """
    horizon = whole("forced_offload_regret", "horizon", horizon, 1)
    weights = arrival_weights("forced_offload_regret", problem)
    return float(_gaps(problem) @ (1 - (1 - weights) ** horizon))


def adversarial_wrong_offloads(problem: Problem, *, horizon: int, alpha: float) -> NDArray[np.float64]:
    """Lemmas 6 and 10: for each bin of Φ_H that arrives, a bound on E[O_i(T)]; 0 elsewhere.

    16α log T/Δ_i² + 4α/(2α−1); cost known: 4α log T/Δ_i² + 2α/(2α−1).

    >>> adversarial_wrong_offloads(Problem([0.25, 1.0], 0.5), horizon=1, alpha=1).tolist()
    [0.0, 2.0]
    """
    horizon, alpha = _checked("adversarial_wrong_offloads", horizon, alpha)
    counted = _wrongly_offloaded(problem)
    offloads = np.zeros(problem.bins)
    offloads[counted] = _rate(problem, alpha) * math.log(horizon) / problem.gaps[counted] ** 2 + _start(problem, alpha)
    return offloads


def stochastic_wrong_offloads(problem: Problem, *, horizon: int, alpha: float) -> NDArray[np.float64]:
    """Lemmas 14 and 15: for each bin of Φ_H that arrives, a bound on HI-LCB's E[O_i(T)]; 0 elsewhere.

    w_i · min over j ∈ Φ_H, j ≤ i, of (16α log T/Δ_j² + 4α/(2α−1)) / w_j; cost known: 4α and 2α.

    >>> problem = Problem([0.25, 1.0, 1.0], 0.5, weights=[0.25, 0.5, 0.25])
    >>> stochastic_wrong_offloads(problem, horizon=1, alpha=1).tolist()
    [0.0, 2.0, 1.0]
    """
    horizon, alpha = _checked("stochastic_wrong_offloads", horizon, alpha)
    counted = _wrongly_offloaded(problem)
    weights = arrival_weights("stochastic_wrong_offloads", problem)[counted]
    offloads = adversarial_wrong_offloads(problem, horizon=horizon, alpha=alpha)
    # Bins outside Φ_H and bins that never arrive are gone by now, so "every j ≤ i" is what came before.
    offloads[counted] = weights * np.minimum.accumulate(offloads[counted] / weights)
    return offloads


def wrong_accepts(problem: Problem, *, alpha: float) -> float:
    """Lemmas 8 and 12: a bound on E[Σ_{Φ_L} A_i(T)] for every T, 2α/(2α−1) (|Φ_L| + 1); cost known: |Φ_L|.

    >>> wrong_accepts(Problem([0.25, 0.75], 0.5, known_cost=False), alpha=1)
    4.0
    """
    alpha = _exploration("wrong_accepts", alpha)
    unlicensed = int(np.count_nonzero(problem.oracle_offloads & problem.arriving))
    return 2 * alpha / (2 * alpha - 1) * (unlicensed + (0 if problem.known_cost else 1))


def _checked(owner: str, horizon: object, alpha: object) -> tuple[int, float]:
    return whole(owner, "horizon", horizon, 1), _exploration(owner, alpha)


def _exploration(owner: str, alpha: object) -> float:
    value = real(owner, "alpha", alpha)
    if value <= 0.5:  # Σ n^(−2α) diverges
        raise ValueError(f"{owner}: alpha must be > 0.5 for the theorems to hold, got {alpha!r}")
    return value


def _rate(problem: Problem, alpha: float) -> float:
    return (4 if problem.known_cost else 16) * alpha


def _start(problem: Problem, alpha: float) -> float:
    return (2 if problem.known_cost else 4) * alpha / (2 * alpha - 1)


def _wrongly_offloaded(problem: Problem) -> NDArray[np.bool_]:
    return problem.licensed & problem.arriving


def _gaps(problem: Problem) -> NDArray[np.float64]:
    return np.where(_wrongly_offloaded(problem), problem.gaps, 0.0)


def _wrong_accept_regret(problem: Problem, alpha: float) -> float:
    # With Φ_L empty there is no wrong accept, and the maximum over it counts as 0.
    worst = problem.gaps[problem.oracle_offloads & problem.arriving].max(initial=0.0)
    return float(worst) * wrong_accepts(problem, alpha=alpha)


def single_bin_lower_bound(problem: Problem, *, horizon: int) -> float:
    """Theorem 3 for one bin: Δ_1 log T / D_B(γ ‖ 1 − f) with Bernoulli costs to learn.

    With the cost known only f can be mistaken, and it is Δ_1 log T / D_B(f ‖ 1 − γ).

    >>> single_bin_lower_bound(Problem([0.75], 0.5, known_cost=False), horizon=1)
    0.0
    >>> round(single_bin_lower_bound(Problem([0.75], 0.5), horizon=100_000), 3)  # ¼ · 11.5129 / 0.130812
    22.003
    """
    owner = "single_bin_lower_bound"
    horizon = whole(owner, "horizon", horizon, 1)
    if problem.bins != 1:
        raise ValueError(f"{owner}: problem must have one bin, got {problem.bins}")
    if problem.known_cost:
        return unstructured_lower_bound(problem, horizon=horizon)
    error, cost = 1 - problem.agreement[0], float(problem.offload_costs[0])
    return float(problem.gaps[0]) * math.log(horizon) / divergence(cost, error) if problem.licensed[0] else 0.0


def unstructured_lower_bound(problem: Problem, *, horizon: int) -> float:
    """Σ_{Φ_H} Δ_i log T / D_B(f_i ‖ 1 − γ), for policies that do not assume f monotone, such as HI-LCB-lite.

    A cost to be learned cannot lower it, and adds nothing sure: every offload teaches γ, those in Φ_L at no regret.

    >>> round(unstructured_lower_bound(Problem([0.75, 0.75], 0.5), horizon=100_000), 3)
    44.006
    """
    horizon = whole("unstructured_lower_bound", "horizon", horizon, 1)
    return float(_per_log(problem).sum()) * math.log(horizon)


def structured_lower_bound(problem: Problem, *, horizon: int) -> float:
    """Δ_i0 log T / D_B(f_i0 ‖ 1 − γ), i0 the lowest bin of Φ_H that arrives, for policies that assume f monotone.

    Only i0 has no lower bin to vouch for it; once it is proven, monotone f proves every bin above.

    >>> round(structured_lower_bound(Problem([0.25, 0.75, 0.75], 0.5), horizon=100_000), 3)
    22.003
    """
    horizon = whole("structured_lower_bound", "horizon", horizon, 1)
    return float(_per_log(problem)[:1].sum()) * math.log(horizon)


def _per_log(problem: Problem) -> NDArray[np.float64]:
    # Δ_i / D_B(f_i ‖ 1 − γ) for the bins of Φ_H that arrive, lowest first; Δ_i > 0 there, so the divergence is too.
    counted = _wrongly_offloaded(problem)
    known = zip(np.asarray(problem.agreement)[counted], problem.offload_costs[counted], strict=True)
    divergences = [divergence(f, 1 - cost) for f, cost in known]
    return problem.gaps[counted] / np.array(divergences, dtype=np.float64)


# -- the least regret that is possible on average ---------------------------------------------------------------------


_SURE = 46.0  # e^-46 is 10^-20


def stopping_floor(horizon: int, offload_cost: float) -> float:
    """The Bayes regret of the best policy for one bin that knows the horizon and that its agreement is uniform.

    Exact but for rounding and for states so far from q = 1 - cost that the posterior chance of the other side is below
    e^-46 (by Hoeffding: |a - n q| > √(23 n)). They are taken as settled, which moves the result by less than T e^-46.
    About T √(20 T) states are left: T = 100 000 takes seconds.

    >>> round(stopping_floor(1, 0.5), 6)  # one sample: half of the time the decision is wrong, by a quarter on average
    0.125
    >>> round(stopping_floor(6250, 0.5), 3)
    4.206
    """
    horizon = whole("stopping_floor", "horizon", horizon, 1)
    cost = real("stopping_floor", "offload_cost", offload_cost, 0, 1)
    return max(0.0, horizon * cost * cost / 2.0 - _saving(horizon, cost))


def _saving(horizon: int, cost: float) -> float:
    """What the best policy saves against offloading always: n × cost - V, by backward induction over n."""
    saved: NDArray[np.float64] = np.zeros(horizon + 2)  # by a, for the n at hand; right inside the band only
    low, high = _band(horizon, cost)
    for n in range(horizon - 1, -1, -1):
        low_after, high_after, (low, high) = low, high, _band(n, cost)
        saved[low:low_after] = 0.0  # offload for good
        beyond = np.arange(high_after + 1, high + 2)  # accept for good
        saved[beyond] = (horizon - n - 1) * ((beyond + 1) / (n + 3) - 1.0 + cost)
        agrees = np.arange(low + 1, high + 2) / (n + 2)
        here, one_more = saved[low : high + 1], saved[low + 1 : high + 2]
        offload = here + agrees * (one_more - here)
        saved[low : high + 1] = np.maximum(offload, (horizon - n) * (agrees - (1.0 - cost)))
    return float(saved[0])


def _band(n: int, cost: float) -> tuple[int, int]:
    """The agreements after n offloads that leave doubt about which side of q the agreement is on."""
    middle, reach = n * (1.0 - cost), math.sqrt(_SURE * n / 2.0)
    return max(0, math.floor(middle - reach)), min(n, math.ceil(middle + reach))
