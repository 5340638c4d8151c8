"""The verdict on one run of a trial, from what the agent server said and what Miles made of the session. Pure."""

from dataclasses import replace

from harborrl_trainer.miles.call import Call
from harborrl_trainer.miles.samples import Facts
from harborrl_trainer.rollout.outcomes import LENGTH_LIMIT, OnAgentTimeout, TrialReply, Verdict, aborted, judge
from harborrl_trainer.rollout.trials import end_without_reply

COLLECT_FAILED = "CollectFailed"
"""The session was there, and its samples did not come."""
SESSION_FAILED = "SessionFailed"
"""Miles broke before the trial was sent, which is where it opens the session."""
NO_REPLY = "NoReply"
"""The agent function broke, which Miles logs and passes over."""
MESSAGE_LIMIT = 300


def of_samples(call: Call, facts: Facts, policy: OnAgentTimeout) -> Verdict:
    """Miles handed samples over, or one without a token where it had none."""
    if call.error is not None:
        return of_error(call)
    if call.reply is None:
        return aborted("the agent function broke: see the log", outcome=NO_REPLY)
    if facts.turns == 0 and _made_model_calls(call.reply) and _good_in_itself(call.reply, policy):
        return aborted(
            f"{COLLECT_FAILED}: the agent made model calls and no sample came: the session was not handed over, or its "
            "prompt alone exceeds max_seq_len",
            retryable=call.reply.exit_status != LENGTH_LIMIT,
            outcome=COLLECT_FAILED,
        )
    return judge(
        call.reply,
        on_agent_timeout=policy,
        turns=facts.turns,
        cut_by_length=facts.truncated,
        generation_aborted=facts.aborted,
    )


def of_error(call: Call) -> Verdict:
    """The agent server gave no verdict; `call.error` says why."""
    if call.error is None:
        raise ValueError("a call without an error")
    end = end_without_reply(call.error, call.session)
    return replace(end.verdict, outcome=end.outcome)


def of_breakage(call: Call, broke: Exception, policy: OnAgentTimeout) -> Verdict:
    """Miles raised, mostly in collecting. What went wrong with the trial itself comes first."""
    if call.error is not None:
        return of_error(call)
    if call.reply is not None and not _good_in_itself(call.reply, policy):
        return _in_itself(call.reply, policy)
    name = SESSION_FAILED if call.reply is None else COLLECT_FAILED
    text = " ".join(str(broke).split())[:MESSAGE_LIMIT]
    return aborted(f"{name}: {type(broke).__name__}: {text}", outcome=name)


def _in_itself(reply: TrialReply, policy: OnAgentTimeout) -> Verdict:
    """Before the samples are seen."""
    return judge(reply, on_agent_timeout=policy, turns=1)


def _good_in_itself(reply: TrialReply, policy: OnAgentTimeout) -> bool:
    return _in_itself(reply, policy).status != "aborted"


def provisional(call: Call, policy: OnAgentTimeout) -> Verdict:
    """For Miles' generate, which takes it from the agent function before there are samples."""
    if call.error is not None:
        return of_error(call)
    return _in_itself(call.reply, policy) if call.reply else aborted("no reply", outcome=NO_REPLY)


def _made_model_calls(reply: TrialReply) -> bool:
    turns = reply.agent_metrics.get("turns")
    return isinstance(turns, (int, float)) and turns > 0
