"""Scores to confidence: how sure the local model is of its answer, from 0 to 1, where 1 is certain.

A confidence measure takes the scores of one sample (1-D) and returns a float, or of many (2-D, samples x classes) and
returns an array. With p the softmax of the scores, over m classes, p_1 >= p_2 >= ... in order:

    max_softmax    p_1
    margin         p_1 - p_2
    entropy        1 + sum(p log p) / log m
    logistic       sigma(intercept + top1 * p_1 + top2 * p_2)

`temperature` composes with each. Scores are the numbers before the softmax; those of a model that gives probabilities
are their logarithms, which a device and `Trace.from_scores` take by themselves; `Gate.decide`, which sees one sample
alone, does not. `max_probability` is the largest output as it is. Scores that are no finite numbers raise an error.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import sqrt
from reprlib import repr as brief
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hinge._checks import positive, real
from hinge.errors import InvalidState, InvalidValue

Floats = NDArray[np.float64]
LogisticWeights = tuple[float, float, float]

RESNET8_CIFAR10: LogisticWeights = (-4.634, 5.937, -3.042)  # arXiv 2407.11061, for a quantised ResNet-8
TEMPERATURE_RANGE = (0.01, 100.0)  # the range that `fit_temperature` searches
SUM_TOLERANCE = 0.01  # probabilities sum to 1 within this
LEAST_PROBABILITY = 1e-30  # any below is taken for it, as 0 has no logarithm
RIDGE = 1e-3  # the penalty of `fit_logistic`: next to nothing beside a dozen samples


class ConfidenceMeasure(Protocol):
    """Scores to confidence: a float for 1-D scores, a float64 array for 2-D (hence `Any`)."""

    def __call__(self, scores: ArrayLike, /) -> Any: ...


def max_softmax(scores: ArrayLike) -> Any:
    """The largest softmax probability, `p_1 = 1 / sum_k exp(s_k - max s)`.

    >>> round(max_softmax([2.0, 1.0, 0.0]), 4)
    0.6652
    >>> max_softmax([[2.0, 1.0, 0.0], [0.0, 0.0, 0.0]]).round(4)
    array([0.6652, 0.3333])
    """
    return _confidence(1 / _weights("max_softmax", scores)[1])


def max_probability(scores: ArrayLike) -> Any:
    """The largest output as it is, of a model whose outputs are from 0 to 1, also where they do not sum to 1.

    >>> max_probability([0.2, 0.9, 0.7])
    0.9
    >>> max_probability([0.2, 1.9])
    Traceback (most recent call last):
    hinge.errors.InvalidValue: max_probability: outputs must be from 0 to 1, got 1.9: scores need another
    """
    values = _checked("max_probability", scores)
    outside = values[(values < 0) | (values > 1)]
    if outside.size:
        raise InvalidValue("max_probability", "outputs", f"must be from 0 to 1, got {outside[0]}: scores need another")
    return _confidence(values.max(axis=-1))


def margin(scores: ArrayLike) -> Any:
    """The largest softmax probability less the second, `p_1 - p_2`.

    >>> round(margin([2.0, 1.0, 0.0]), 4)
    0.4205
    """
    shifted, total = _weights("margin", scores)
    return _confidence(-np.expm1(_second(shifted)) / total)


def entropy(scores: ArrayLike) -> Any:
    """One less the entropy of the softmax in units of its maximum, `1 + sum_k p_k log p_k / log m`.

    >>> round(entropy([2.0, 1.0, 0.0]), 4), entropy([0.0, 0.0])
    (0.2423, 0.0)
    """
    shifted, total = _weights("entropy", scores)
    mean = (np.exp(shifted) * shifted).sum(axis=-1) / total
    return _confidence(1 - (np.log(total) - mean) / np.log(shifted.shape[-1]))


def logistic(intercept: float, top1: float, top2: float) -> ConfidenceMeasure:
    """The decision module of arXiv 2407.11061: `sigma(intercept + top1 * p_1 + top2 * p_2)`.

    >>> measure = logistic(*RESNET8_CIFAR10)
    >>> round(measure([9.0, 1.0, 0.0]), 4), round(measure([1.0, 1.0, 0.0]), 4)
    (0.7857, 0.0319)
    """
    named = {"intercept": intercept, "top1": top1, "top2": top2}
    return _Logistic(*(real("logistic", name, weight) for name, weight in named.items()))


@dataclass(frozen=True)
class _Logistic:
    intercept: float
    top1: float
    top2: float

    def __call__(self, scores: ArrayLike) -> Any:
        first, second = _top_two("logistic", scores)
        return _confidence(_sigma(self.intercept + self.top1 * first + self.top2 * second))


def temperature(value: float) -> Callable[[ConfidenceMeasure], ConfidenceMeasure]:
    """Turns a measure of scores into the same measure of scores / value; a value above 1 tempers overconfidence.

    >>> round(temperature(1.5)(max_softmax)([3.0, 1.5, 0.0]), 4)
    0.6652
    """
    return partial(_Tempered, positive("temperature", "value", value))


@dataclass(frozen=True)
class _Tempered:
    value: float
    measure: ConfidenceMeasure

    def __post_init__(self) -> None:
        if not callable(self.measure):
            raise TypeError(f"temperature: measure must be a confidence measure, got {self.measure!r}")

    def __call__(self, scores: ArrayLike) -> Any:
        return self.measure(_checked("temperature", scores) / self.value)


def class_scores(outputs: NDArray[Any], samples: int) -> NDArray[Any]:
    """Rows of scores, one for each class, from the outputs of a model for so many samples, the first axis theirs.

    Axes of size 1 go. One number for each sample is the probability p of the second of two classes: 1 - p and p.

    >>> class_scores(np.array([[0.9], [0.2]]), 2)
    array([[0.1, 0.9],
           [0.8, 0.2]])
    >>> class_scores(np.zeros((1, 100, 4)), 1)
    Traceback (most recent call last):
    ValueError: outputs of shape [1, 100, 4] are not a score for each class: choose another output, if there is one
    >>> class_scores(np.array([21.5]), 1)
    Traceback (most recent call last):
    ValueError: one number for a sample must be the probability of the second of two classes, from 0 to 1, got 21.5: ...
    """
    shape = list(outputs.shape)
    sizes = [size for size in shape[1:] if size != 1]
    if not shape or shape[0] != samples or len(sizes) > 1 or 0 in sizes:
        raise ValueError(
            f"outputs of shape {shape} are not a score for each class: choose another output, if there is one"
        )
    if sizes:
        return outputs.reshape(samples, sizes[0])
    second = outputs.reshape(samples, 1)
    outside = second[~((second >= 0) & (second <= 1))]
    if outside.size:
        wanted = "one number for a sample must be the probability of the second of two classes, from 0 to 1"
        raise ValueError(f"{wanted}, got {outside[0]}: export the model with its sigmoid; a regression has no classes")
    return np.concatenate([1 - second, second], axis=1)


def are_probabilities(outputs: ArrayLike) -> bool:
    """Whether no output is below 0, and those of every row sum to 1, within what 8-bit integers leave of it.

    >>> are_probabilities([[0.2, 0.8], [1.0, 0.0]]), are_probabilities([0.2, 0.9]), are_probabilities([-1.0, 2.0])
    (True, False, False)
    """
    values = np.asarray(outputs)
    return bool(values.min() >= 0 and np.abs(values.sum(axis=-1, dtype=np.float64) - 1).max() <= SUM_TOLERANCE)


def log_probabilities(probabilities: ArrayLike) -> NDArray[Any]:
    """The scores of a model that gives probabilities, `log p`, whose softmax is p again.

    >>> round(max_softmax(log_probabilities([0.7, 0.3, 0.0])), 6)
    0.7
    """
    values = np.asarray(probabilities)
    if not values.min() >= 0:
        raise ValueError(f"probabilities must be 0 or more, as those before were, got {values.min()}")
    logarithms: NDArray[Any] = np.log(np.maximum(values, LEAST_PROBABILITY))
    return logarithms


def confidences(measure: ConfidenceMeasure, outputs: NDArray[Any]) -> Any:
    """The confidence in every row of a model's outputs: by their logarithms, where all of them are probabilities.

    >>> confidences(max_softmax, np.array([[0.25, 0.75], [0.5, 0.5]])).round(4)
    array([0.75, 0.5 ])
    """
    return measure(log_probabilities(outputs) if takes_scores(measure) and are_probabilities(outputs) else outputs)


def takes_scores(measure: ConfidenceMeasure) -> bool:
    """Whether a measure is one of those above that are defined by the softmax of scores.

    >>> takes_scores(temperature(1.5)(margin)), takes_scores(max), takes_scores(max_probability)
    (True, False, False)
    """
    if isinstance(measure, _Tempered):
        return takes_scores(measure.measure)
    return measure in (max_softmax, margin, entropy) or isinstance(measure, _Logistic)


def softmax_temperature(measure: ConfidenceMeasure) -> float | None:
    """The temperature at which `max_softmax` is this measure; None if it is another.

    >>> softmax_temperature(temperature(1.5)(max_softmax)), softmax_temperature(margin)
    (1.5, None)
    """
    if measure is max_softmax:
        return 1.0
    return measure.value if isinstance(measure, _Tempered) and measure.measure is max_softmax else None


def measure_state(measure: ConfidenceMeasure) -> dict[str, Any]:
    """What a saved gate says about its measure: a built-in one by name and parameters, any other by its place.

    Two lambdas in one place cannot be told apart; the arguments of a `partial`, an object's own `repr` and the
    `measure` of a task can.

    >>> measure_state(temperature(1.5)(margin))
    {'name': 'temperature', 'value': 1.5, 'measure': {'name': 'margin'}}
    >>> def length(scores):
    ...     return 1 / len(scores)
    >>> measure_state(length)["function"].split(":")[1]
    'length'
    """
    if isinstance(measure, NamedMeasure):
        return measure.state
    for name, built_in in _MEASURES.items():
        if measure is built_in:
            return {"name": name}
    if isinstance(measure, _Tempered):
        return {"name": "temperature", "value": measure.value, "measure": measure_state(measure.measure)}
    if isinstance(measure, _Logistic):
        return {"name": "logistic", **vars(measure)}
    settings: list[str] = []
    while isinstance(measure, partial):
        settings.append(f"{measure.args!r} {measure.keywords!r}")
        measure = measure.func
    named: Any = measure
    if isinstance(own := getattr(getattr(measure, "__self__", None), "measure", None), str):
        settings.append(own)
    if not hasattr(measure, "__qualname__"):
        named = type(measure)
        if named.__repr__ is not object.__repr__:  # which has no more than the object's address
            settings.append(repr(measure))
    place = {"function": f"{named.__module__}:{named.__qualname__}"}
    return {**place, "settings": " ".join(settings)[:1000]} if settings else place


def restore_measure(state: Mapping[str, Any]) -> ConfidenceMeasure:
    """The built-in measure whose `measure_state` this is; a function of the user's cannot be found by its name.

    >>> restore_measure({"name": "margin"}) is margin
    True
    >>> restore_measure({"function": "mine:length"})
    Traceback (most recent call last):
    hinge.errors.InvalidState: the state was made with the confidence measure 'mine:length': give it as confidence=
    """
    try:
        match dict(state):
            case {"name": str(name), **extra} if name in _MEASURES and not extra:
                return _MEASURES[name]
            case {"name": "temperature", "value": value, "measure": Mapping() as inner, **extra} if not extra:
                return temperature(value)(restore_measure(inner))
            case {"name": "logistic", "intercept": intercept, "top1": top1, "top2": top2, **extra} if not extra:
                return logistic(intercept, top1, top2)
            case {"function": str(place), **extra} if extra.keys() <= {"settings"}:
                wanted = f"the state was made with the confidence measure {place!r:.200}"
                raise InvalidState(f"{wanted}: give it as confidence=")
    except (TypeError, ValueError, RecursionError) as error:
        if isinstance(error, InvalidState):
            raise
        raise InvalidState(f"state: {error}") from error
    raise InvalidState(f"state: confidence must name a confidence measure, got {dict(state)!r:.200}")


class NamedMeasure:
    """A measure that a state names, and that is not at hand: it stands for itself and measures nothing.

    >>> measure_state(NamedMeasure({"function": "mine:length"}))
    {'function': 'mine:length'}
    """

    def __init__(self, state: Mapping[str, Any]) -> None:
        self.state = dict(state)

    def __call__(self, scores: ArrayLike) -> float:
        raise InvalidState(
            f"the state was made with the confidence measure {self.state!r:.200}: give it as confidence="
        )


_MEASURES: dict[str, ConfidenceMeasure] = {
    "max_softmax": max_softmax,
    "margin": margin,
    "entropy": entropy,
    "max_probability": max_probability,
}


def fit_temperature(scores: ArrayLike, labels: ArrayLike) -> float:
    """The temperature T at which `softmax(scores / T)` makes the labels most likely.

    Minimises `sum_t log sum_k exp(s_tk / T) - s_t,label / T`, convex in 1 / T, by Newton steps kept inside a bracket.
    T stays in `TEMPERATURE_RANGE`; it is 1 where no other makes the labels more likely. Of probabilities, as all rows
    tell, the scores are the logarithms.

    >>> round(fit_temperature([[2.0, 0.0]] * 4, [0, 0, 0, 1]), 6)  # sigma(2 / T) = 3/4
    1.820478
    """
    shifted = _weights("fit_temperature", _checked_scores("fit_temperature", scores))[0]
    samples, classes = shifted.shape
    columns = _checked_column("fit_temperature", "labels", labels, samples, classes - 1, "iu")
    right = shifted[np.arange(samples), columns]
    coldest, hottest = TEMPERATURE_RANGE
    low, high, inverse = 1 / hottest, 1 / coldest, 1.0
    slope, curvature = _slope(shifted, right, inverse)
    if slope < 0 and _slope(shifted, right, high)[0] <= 0:
        return coldest
    if slope > 0 and _slope(shifted, right, low)[0] >= 0:
        return hottest
    while slope != 0:
        low, high = (low, inverse) if slope > 0 else (inverse, high)
        newton = inverse - slope / curvature if curvature > 0 else low
        # Halfway in the logarithm where Newton's step leaves the bracket.
        previous, inverse = inverse, newton if low < newton < high else sqrt(low * high)
        if abs(inverse - previous) <= 1e-12 * previous:
            break
        slope, curvature = _slope(shifted, right, inverse)
    return 1 / inverse


def _slope(shifted: Floats, right: Floats, inverse: float) -> tuple[float, float]:
    """First and second derivative, by 1 / T, of the mean negative log-likelihood."""
    weights = np.exp(inverse * shifted)
    weights /= weights.sum(axis=-1, keepdims=True)
    mean = (weights * shifted).sum(axis=-1)
    spread = (weights * (shifted - mean[:, None]) ** 2).sum(axis=-1)
    return float((mean - right).mean()), float(spread.mean())


def fit_logistic(scores: ArrayLike, agreed: ArrayLike) -> LogisticWeights:
    """Intercept, top1 and top2 for `logistic`, fitted to which local answers agreed with the remote's.

    With x = intercept + top1 * p_1 + top2 * p_2 minimises `sum_t log(1 + exp(x_t)) - agreed_t x_t`, and a penalty that
    keeps the weights finite where a line parts the samples (`fitted_weights`). Of probabilities, as all rows tell, the
    scores are the logarithms.

    >>> scores = [[4.0, 0.0, 0.0], [3.0, 0.0, 1.0], [1.0, 0.5, 0.0], [0.2, 0.0, 0.1]]
    >>> measure = logistic(*fit_logistic(scores, [True, True, False, False]))
    >>> measure(scores[0]) > 0.9, measure(scores[3]) < 0.1
    (True, True)
    """
    first, second = _top_two("fit_logistic", _checked_scores("fit_logistic", scores))
    features = np.column_stack([np.ones_like(first), first, second])
    target = _checked_column("fit_logistic", "agreed", agreed, len(features), 1, "bfiu").astype(np.float64)
    intercept, top1, top2 = fitted_weights(features, np.ones(len(features)), target).tolist()
    return intercept, top1, top2


def fitted_weights(features: Floats, samples: Floats, agreements: Floats) -> Floats:
    """The weights of features whose logistic function is the chance to agree; a row stands for so many samples.

    Minimises `sum n log(1 + exp(x)) - a x` plus `RIDGE / 2` times the sum of the squared weights, by Newton's method.
    """
    weights = np.zeros(features.shape[1])

    def objective(weights: Floats) -> float:
        x = features @ weights
        return float((samples * np.logaddexp(0, x) - agreements * x).sum() + RIDGE / 2 * weights @ weights)

    for _ in range(100):
        chance = _sigma(features @ weights)
        gradient = features.T @ (samples * chance - agreements) + RIDGE * weights
        hessian = (features.T * (samples * chance * (1 - chance))) @ features + RIDGE * np.eye(len(weights))
        step = np.linalg.solve(hessian, gradient)
        while objective(weights - step) > objective(weights) and np.abs(step).max() > 1e-10:
            step /= 2
        weights -= step
        if np.abs(step).max() <= 1e-10 * (1 + np.abs(weights).max()):
            break
    return weights


def _confidence(values: Floats) -> Any:
    clipped = np.clip(values, 0.0, 1.0)  # rounding may leave [0, 1]
    return clipped if clipped.ndim else float(clipped)


def _sigma(x: Floats) -> Floats:
    sigma: Floats = np.exp(-np.logaddexp(0, -x))
    return sigma


def _top_two(owner: str, scores: ArrayLike) -> tuple[Floats, Floats]:
    shifted, total = _weights(owner, scores)
    return 1 / total, np.exp(_second(shifted)) / total


def _second(shifted: Floats) -> Floats:
    # Contiguous, as numpy may round strided numbers differently, and one sample must get what it gets in a batch.
    second: Floats = np.partition(shifted, -2, axis=-1)[..., -2].copy()
    return second


def _weights(owner: str, scores: ArrayLike) -> tuple[Floats, Floats]:
    """s - max s, whose exponentials are the softmax but for a factor, and the sum of these exponentials."""
    values = _checked(owner, scores)
    with np.errstate(over="ignore"):  # scores 1e308 and -1e308 are too far apart for a float
        shifted = np.maximum(values - values.max(axis=-1, keepdims=True), np.finfo(np.float64).min)
    return shifted, np.asarray(np.exp(shifted).sum(axis=-1))


def _checked(owner: str, scores: ArrayLike, dims: tuple[int, ...] = (1, 2)) -> Floats:
    """`scores` as finite numbers of two classes or more; or an error that names the first bad row."""
    array = _array(scores)
    if array.ndim not in dims:
        allowed = " or ".join(f"{dim}-D" for dim in dims)
        raise ValueError(f"{owner}: scores must be {allowed} (samples x classes), got {array.ndim}-D")
    if array.size == 0 or array.shape[-1] < 2:
        raise ValueError(f"{owner}: scores must have a sample and two classes or more, got shape {array.shape}")
    if array.dtype.kind not in "fiu":
        raise TypeError(f"{owner}: scores must be numbers, as many in every row, got {_first_odd(scores)}")
    values = array.astype(np.float64, order="C")
    bad = np.argwhere(~np.isfinite(values))
    if bad.size:
        place = ", ".join(f"{axis} {k}" for axis, k in zip(("row", "class")[-array.ndim :], bad[0], strict=True))
        raise InvalidValue(owner, "scores", f"must be finite, got {values[tuple(bad[0])]} in {place}")
    return values


def _checked_scores(owner: str, outputs: ArrayLike) -> Floats:
    """The scores of many samples, whose outputs may be probabilities; the device takes their logarithms, too."""
    values = _checked(owner, outputs, dims=(2,))
    return log_probabilities(values) if are_probabilities(values) else values


def _checked_column(owner: str, name: str, values: ArrayLike, rows: int, high: int, kinds: str) -> NDArray[Any]:
    """One number from 0 to `high` for each row of scores."""
    expected = f"{owner}: {name} must be {'integers' if kinds == 'iu' else 'numbers'} from 0 to {high}, one per row"
    array = _array(values)
    if array.shape != (rows,):
        raise ValueError(f"{expected}, got shape {array.shape} for {rows} rows")
    if array.dtype.kind not in kinds:
        raise TypeError(f"{expected}, got {brief(array.tolist())}")
    outside = np.flatnonzero(~((array >= 0) & (array <= high)))
    if outside.size:
        raise ValueError(f"{expected}, got {array[outside[0]]} in row {outside[0]}")
    return array


def _array(values: ArrayLike) -> NDArray[Any]:
    try:
        return np.asarray(values)
    except ValueError:  # rows of different lengths
        return np.fromiter(values, dtype=object)  # type: ignore[arg-type]  # only a sequence gets here


def _first_odd(scores: Any) -> str:
    """The first row, or score, that cannot stand beside the first as numbers."""
    kinds = (_array([scores[0], row]).dtype.kind for row in scores)
    place = next((k for k, kind in enumerate(kinds) if kind not in "fiu"), 0)
    return f"{brief(scores[place])} in {'class' if _array(scores[place]).ndim == 0 else 'row'} {place}"
