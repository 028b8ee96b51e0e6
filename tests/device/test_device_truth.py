"""`device.truth`: true labels are taught to the policy, counted, saved, and refused where they make no sense."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from hinge import Answer, CostMatrix, Device, Gate, Isotonic, MeasuredCost, Policy, Target, Thompson, at_most
from hinge.costs import shifted_cost
from hinge.device.store import SqliteStore
from tests.device.worlds import KINDS, LOCAL, TRACE, Scripted, policy

each_kind = pytest.mark.parametrize("kind", KINDS, ids=["threads", "event loop"])
NAMES = ["cat", "dog"]


def opposed(**settings: Any) -> Device:
    """Local says class 1, remote class 0."""
    settings = {"policy": Isotonic(16, offload_cost=0.3), **settings}
    return Device(lambda sample: [0.0, sample], lambda _: 0, deadline_s=30, **settings)


@each_kind
def test_labels_of_offloads_shift_the_cost_and_all_labels_are_counted(kind: Any) -> None:
    assert TRACE.label is not None
    disagreements, gain, right, remote = 0, 0, 0, 0
    with kind(LOCAL, Scripted(), policy(offload_cost=0.3)) as device:
        for sample, true in enumerate(TRACE.label[:600].tolist()):
            answer = device.infer(sample)
            assert answer.local == TRACE.local[sample]
            device.truth(answer, true)
            right += answer.label == true
            if answer.source == "remote":
                remote += 1
                disagreements += TRACE.local[sample] != TRACE.remote[sample]
                gain += int(TRACE.remote[sample] == true) - int(TRACE.local[sample] == true)
        assert 0 < remote < 600
        assert (device.status.labelled, device.status.right) == (600, right)
        assert device.policy.shifted_cost == shifted_cost(0.3, disagreements, gain) > 0.3
        assert device.policy.offload_cost == 0.3
        assert device.infer(0).cost in (0.0, 0.3)  # what is paid is not shifted


@each_kind
def test_labels_survive_with_the_state(kind: Any, tmp_path: Path) -> None:
    with kind(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        for sample in range(50):
            device.truth(device.infer(sample), 0)
        shifted = device.policy.shifted_cost
        assert shifted > 0.5
    with kind(LOCAL, Scripted(), policy(), state=tmp_path) as device:
        assert device.policy.shifted_cost == shifted


def test_a_process_that_is_killed_loses_no_label(tmp_path: Path) -> None:
    device = opposed(state=tmp_path)
    device.truth(device.infer(3.0), 1)
    shifted = device.policy.shifted_cost
    copied = tmp_path / "copy"
    copied.mkdir()
    for file in ("state.db", "state.db-wal"):
        (copied / file).write_bytes((tmp_path / file).read_bytes())
    device.close()
    with opposed(state=copied) as again:
        assert again.policy.shifted_cost == shifted != 0.3


def test_a_rollback_takes_labels_back(tmp_path: Path) -> None:
    for _ in range(2):
        with SqliteStore(tmp_path, Gate(Isotonic(16, offload_cost=0.3))) as store:
            before = store.policy.shifted_cost
            store.apply(lambda policy: policy.learn_truth(1.0, 0.0))
    with SqliteStore(tmp_path) as store:
        assert store.policy.shifted_cost == shifted_cost(0.3, 2, 0)
        store.rollback()
        assert store.policy.shifted_cost == before == shifted_cost(0.3, 1, 0)
    with SqliteStore(tmp_path) as store:
        assert store.policy.shifted_cost == before


def test_names_and_numbers_of_classes_are_the_same_where_there_are_names() -> None:
    taught = []
    for true in ("dog", 1, np.int64(1)):
        with opposed(labels=NAMES) as device:
            answer = device.infer(3.0)
            assert (answer.label, answer.local) == ("cat", "dog")
            device.truth(answer, true)
            taught.append((device.policy.shifted_cost, device.status.right))
    assert taught == [(shifted_cost(0.3, 1, -1), 0)] * 3


@pytest.mark.parametrize(
    ("labels", "true", "error", "message"),
    [
        (None, "dog", TypeError, r"Device: label must be of the kind that the answers are \(1\), got 'dog'"),
        (NAMES, "cow", ValueError, "Device: label must be a possible answer, got an unknown label, 'cow'"),
        (NAMES, 2, ValueError, "an unknown label, 2"),
        (NAMES, None, ValueError, "no label, but None"),
        (None, float("nan"), ValueError, "no label, but nan"),
        (None, -1, ValueError, "label must be the number of a class, got -1: leave out samples without a label$"),
        (None, np.int64(-1), ValueError, "label must be the number of a class, got -1: leave out samples without"),
        (None, 0.5, ValueError, r"label must be the number of a class, got 0\.5$"),
    ],
)
def test_a_label_that_makes_no_sense_is_refused_and_not_counted(
    labels: Any, true: Any, error: Any, message: str
) -> None:
    with opposed(labels=labels) as device:
        with pytest.raises(error, match=message):
            device.truth(device.infer(3.0), true)
        assert (device.status.labelled, device.policy.shifted_cost) == (0, 0.3)


def test_a_label_may_be_below_zero_where_a_model_answers_so() -> None:
    class Signed:
        def answer(self, sample: Any) -> tuple[int, float]:
            return -1, 0.9

        def answer_many(self, samples: Any) -> list[tuple[int, float]]:
            return [self.answer(sample) for sample in samples]

    with Device(Signed(), lambda _: 1, Isotonic(16, offload_cost=0.3), deadline_s=30) as device:
        device.truth(device.infer(3.0), -1)
        assert (device.status.labelled, device.policy.shifted_cost) == (1, shifted_cost(0.3, 1, -1))


def test_answers_with_names_from_a_model_of_its_own_want_names() -> None:
    class Named:
        def answer(self, sample: Any) -> tuple[str, float]:
            return "dog", 0.9

        def answer_many(self, samples: Any) -> list[tuple[str, float]]:
            return [self.answer(sample) for sample in samples]

    with Device(Named(), lambda _: "cat", Isotonic(16, offload_cost=0.3), deadline_s=30) as device:
        with pytest.raises(TypeError, match="must be of the kind that the answers are"):
            device.truth(device.infer(3.0), 1)
        with pytest.raises(TypeError, match="answer must be one that a device gave"):
            device.truth("dog", "dog")  # type: ignore[arg-type]  # what is refused


def test_prices_of_mistakes_weigh_the_labels() -> None:
    prices = CostMatrix([[0, 1, 4], [2, 0, 1], [3, 3, 0]])
    with opposed(wrong=prices) as device:
        device.truth(device.infer(3.0), 2)  # local says 1, remote 0
        gain = prices.wrong(1, 2) - prices.wrong(0, 2)
        assert device.policy.shifted_cost == pytest.approx(shifted_cost(0.3, prices.wrong(1, 0), gain))


def test_an_answer_that_was_stored_meanwhile_still_teaches() -> None:
    with opposed() as device:
        answer: Answer = pickle.loads(pickle.dumps(device.infer(3.0)))
        device.truth(answer, 1)
        assert device.policy.shifted_cost == shifted_cost(0.3, 1, -1)


def test_a_remote_that_failed_and_a_shadow_of_local_teach_nothing() -> None:
    with opposed(shadow="local") as device:
        device.truth(device.infer(3.0), 1)
        assert (device.policy.shifted_cost, device.status.labelled, device.status.right) == (0.3, 1, 1)

    def away(sample: Any) -> int:
        raise ConnectionError

    with Device(lambda sample: [0.0, sample], away, Isotonic(16, offload_cost=0.3), deadline_s=30) as device:
        device.truth(device.infer(3.0), 0)
        assert (device.policy.shifted_cost, device.status.labelled, device.status.right) == (0.3, 1, 0)


@pytest.mark.parametrize(
    "stuck",
    [
        Thompson(16, offload_cost=0.3),
        at_most(Thompson(16, offload_cost=0.3), 0.5),
        Target(0.9),
        Isotonic(16),
    ],
    ids=lambda policy: policy.name,
)
def test_labels_are_all_counted_for_a_policy_that_cannot_use_them(stuck: Policy) -> None:
    price = MeasuredCost(wrong_answer=1.0, per_call=0.01)
    with opposed(policy=stuck, price=price if stuck.offload_cost is None else None) as device:
        answers = [device.infer(3.0) for _ in range(100)]
        for answer in answers:
            device.truth(answer, 1)  # local is right, remote wrong
        right = sum(answer.source == "local" for answer in answers)
        assert (device.status.labelled, device.status.right) == (100, right)
        assert right < 100
        assert device.state()["truths"] == [0.0, 0.0, 0.0]


def test_a_label_without_a_price_is_refused_whoever_answered() -> None:
    for shadow in ("local", "remote"):
        with opposed(wrong=CostMatrix([[0, 1], [1, 0]]), shadow=shadow) as device:
            with pytest.raises(ValueError, match="CostMatrix"):
                device.truth(device.infer(3.0), 2)
            assert device.status.labelled == 0


@each_kind
def test_an_answer_is_told_its_true_label_once(kind: Any) -> None:
    """Whoever gave it: an accepted one carries no decision of its own, and two may be equal."""
    for settings, source in (({}, "remote"), ({"shadow": "local"}, "local"), ({"shadow": "remote"}, "remote")):
        with kind(LOCAL, Scripted(), policy(offload_cost=0.3), **settings) as device:
            answers = [device.infer(sample) for sample in [0, 0, 1]]
            assert {answer.source for answer in answers} == {source}
            for answer in answers:
                device.truth(answer, 0)
                known = device.policy.shifted_cost
                for label in (0, 1):
                    with pytest.raises(ValueError, match=r"^Device: answer must be told its true label once, got"):
                        device.truth(answer, label)
                assert device.policy.shifted_cost == known
            assert device.status.labelled == 3


def test_accepted_answers_fallbacks_and_copies_are_each_told_once() -> None:
    with opposed(policy=Isotonic(16, offload_cost=1.0)) as device:  # which accepts everything
        accepted = [device.infer(3.0), *device.infer_many([3.0, 3.0])]
        assert {answer.offloaded for answer in accepted} == {False}
        copies = [pickle.loads(pickle.dumps(answer)) for answer in accepted]
        for number, answer in enumerate([*accepted, *copies], 1):
            device.truth(answer, 1)
            assert device.status.labelled == number
            with pytest.raises(ValueError, match="once"):
                device.truth(answer, 1)

    def away(sample: Any) -> int:
        raise ConnectionError

    with Device(lambda sample: [0.0, sample], away, Isotonic(16, offload_cost=0.3), deadline_s=30) as device:
        for number, answer in enumerate([device.infer(3.0) for _ in range(8)], 1):  # of the remote, then of the breaker
            device.truth(answer, 1)
            assert device.status.labelled == number


def test_a_label_that_was_refused_may_be_told_again_as_it_should_be() -> None:
    with opposed(labels=NAMES) as device:
        answer = device.infer(3.0)
        with pytest.raises(ValueError, match="an unknown label"):
            device.truth(answer, "cow")
        device.truth(answer, "dog")
        assert device.status.labelled == 1
