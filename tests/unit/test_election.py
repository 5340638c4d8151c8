"""At most one leads, whatever the network does; and somebody leads soon."""

from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from harborrl_operator.election import Candidate, Lease, Refused, Step, Timing

TIMING = Timing()


@dataclass
class Server:
    """The API server: one object, writes guarded by its version."""

    lease: Lease = field(default_factory=lambda: Lease("", "1"))
    writes: int = 1

    def answer(self, step: Step, lease: Lease) -> Lease | Refused:
        if step is Step.READ:
            return self.lease
        if lease.version != self.lease.version:
            return Refused.CONFLICT
        self.writes += 1
        self.lease = replace(lease, version=str(self.writes))
        return self.lease


@dataclass
class Question:
    step: Step
    lease: Lease
    sent: float
    answer: Lease | Refused | None = None
    is_abandoned: bool = False


@dataclass
class Process:
    """One candidate with its own clock and what it has on the wire."""

    candidate: Candidate
    offset: float
    speed: float
    asked: list[Question] = field(default_factory=list)

    def clock(self, now: float) -> float:
        return self.offset + self.speed * now

    def leads(self, now: float) -> bool:
        return self.candidate.seconds_left(self.clock(now)) > 0

    def pending(self) -> Question | None:
        return next((question for question in self.asked if not question.is_abandoned), None)


def act(process: Process, server: Server, action: str, which: int, now: float) -> None:
    """One thing that may happen: a question is sent, reaches the server (in any order), is answered, or is given up."""
    clock, question = process.clock(now), process.pending()
    if action == "ask" and question is None:
        step, lease = process.candidate.ask(clock)
        process.asked.append(Question(step, lease, clock))
    elif action == "arrive":
        waiting = [q for q in process.asked if q.answer is None]
        if waiting:
            late = waiting[which % len(waiting)]  # also one that its sender has given up long ago
            late.answer = server.answer(late.step, late.lease)
    elif action == "answer" and question is not None and question.answer is not None:
        process.candidate.hear(question.step, question.answer, sent=question.sent, now=clock)
        process.asked.remove(question)
    elif action == "give up" and question is not None:
        process.candidate.hear(question.step, Refused.LOST, sent=question.sent, now=clock)
        question.is_abandoned = True
    elif action == "stop":
        released = process.candidate.release()
        if released is not None and question is None:
            process.asked.append(Question(Step.WRITE, released, clock, is_abandoned=True))
    elif action == "delete":
        server.lease = Lease("")


EXCHANGE = ("ask", "arrive", "answer")
TROUBLES = ("ask", "arrive", "answer", "give up", "stop", "delete")
EVENTS = st.lists(
    st.tuples(
        st.integers(0, 1),
        st.one_of(st.just(EXCHANGE), st.just(EXCHANGE), st.sampled_from(TROUBLES).map(lambda action: (action,))),
        st.integers(0, 1),
        st.sampled_from([0.0, 0.0, 0.1, 1.0, 4.0, 9.0, 14.0, 16.6]),
    ),
    min_size=4,
    max_size=25,
)
CLOCKS = st.tuples(st.sampled_from([0.0, 1e6]), st.sampled_from([0.9, 1.0, 1.1]))


@settings(max_examples=1000)
@given(EVENTS, CLOCKS, CLOCKS)
def test_two_never_lead_at_once(events: list[Any], first: Any, second: Any) -> None:
    server, now = Server(), 0.0
    processes = [Process(Candidate(name, TIMING), *clock) for name, clock in (("a", first), ("b", second))]
    for who, actions, which, pause in events:
        now += pause
        for action in actions:
            act(processes[who], server, action, which, now)
        assert sum(process.leads(now) for process in processes) <= 1


def test_the_simulation_would_find_a_holder_that_acts_longer_than_its_lease() -> None:
    server, careless = Server(), Timing(duration=15.0, deadline=20.0)
    first, second = (Process(Candidate(name, careless), 0.0, 1.0) for name in "ab")
    for process, now in ((first, 0.0), (first, 0.0), (second, 1.0), (second, 16.5)):
        for action in ("ask", "arrive", "answer"):
            act(process, server, action, 0, now)
    assert first.leads(17.0)
    assert second.leads(17.0)


def talk(candidate: Candidate, server: Server, now: float) -> float:
    """One question and its answer; when the next is due."""
    step, lease = candidate.ask(now)
    candidate.hear(step, server.answer(step, lease), sent=now, now=now)
    return now + candidate.pause(now)


def talk_until(candidate: Candidate, server: Server, now: float, end: float) -> float:
    """Until it leads; the moment of that, `end` when it never does."""
    while now < end:
        due = talk(candidate, server, now)
        if candidate.seconds_left(now) > 0:
            return now
        now = max(due, now + 0.001)
    return end


def elected() -> tuple[Server, Candidate, Candidate]:
    """A server, who leads by it from the start, and a spare that has not spoken yet."""
    server, leader = Server(), Candidate("a", TIMING)
    assert talk_until(leader, server, 0.0, 5.0) < 1.0
    return server, leader, Candidate("b", TIMING)


def lose_an_answer(leader: Candidate, server: Server, *, sent: float, given_up: float) -> None:
    """What the leader writes is stored, and it does not hear so."""
    step, lease = leader.ask(sent)
    server.answer(step, lease)
    leader.hear(step, Refused.LOST, sent=sent, now=given_up)


def test_a_released_lease_is_taken_with_the_second_question() -> None:
    server, candidate = Server(), Candidate("a", TIMING)
    assert talk(candidate, server, 5.0) == 5.0
    talk(candidate, server, 5.0)
    assert candidate.seconds_left(5.0) == TIMING.deadline
    assert server.lease.transitions == 1


def test_a_spare_takes_over_within_17_seconds_of_the_last_renewal() -> None:
    server, _, spare = elected()
    due = talk(spare, server, 0.5)
    assert due < 2.0
    assert talk_until(spare, server, due, 60.0) <= 17.0


def test_a_leader_whose_answers_are_lost_stops_before_its_lease_can_be_taken() -> None:
    server, leader, _ = elected()
    lose_an_answer(leader, server, sent=3.0, given_up=6.0)
    assert leader.seconds_left(9.9) > 0
    assert leader.seconds_left(10.1) <= 0


def test_leading_is_counted_from_the_sending_of_a_write_and_not_from_its_answer() -> None:
    server, candidate = Server(), Candidate("a", TIMING)
    talk(candidate, server, 0.0)
    step, lease = candidate.ask(0.0)
    candidate.hear(step, server.answer(step, lease), sent=0.0, now=8.0)
    assert candidate.seconds_left(8.0) == TIMING.deadline - 8.0


def test_a_leader_whose_answer_was_lost_finds_its_own_write_and_goes_on() -> None:
    server, leader, _ = elected()
    lose_an_answer(leader, server, sent=3.0, given_up=4.0)
    assert leader.pause(4.0) == 0.0
    talk(leader, server, 4.0)
    talk(leader, server, 4.0)
    assert leader.seconds_left(4.0) == TIMING.deadline
    assert server.lease.transitions == 1


def test_a_lease_that_somebody_deleted_is_not_taken_while_its_holder_may_act() -> None:
    server, _, spare = elected()
    talk(spare, server, 1.0)
    server.lease = Lease("")
    assert talk_until(spare, server, 2.0, 60.0) >= 2.0 + TIMING.duration


def test_a_released_spare_has_nothing_to_store() -> None:
    server, leader, spare = elected()
    talk(spare, server, 1.0)
    assert spare.release() is None
    released = leader.release()
    assert released is not None
    assert (released.holder, leader.seconds_left(0.0) > 0) == ("", False)
