"""The rules over a whole command line: those of admission first, then those of the model."""

from harborrl_trainer.launch.context import Context
from harborrl_trainer.launch.model_rules import MODEL
from harborrl_trainer.launch.rules.admission import RULES, with_derived
from harborrl_trainer.launch.rules.rule import Values, first_broken, on


def fault(values: Values, context: Context) -> str | None:
    """The sentence of the first rule that the effective values break."""
    training = (context.sizes["actorNodes"] or 1) * context.job.gpus_per_node
    rollout = training if on(values, "colocate") else context.sizes["rolloutGpus"] or training
    known = with_derived(values, script=context.script, training_gpus=training, rollout_gpus=rollout)
    said = first_broken((*RULES, *MODEL), {**known, "tied": context.model.tied if context.model else None})
    return said and f"trainer: {said}"
