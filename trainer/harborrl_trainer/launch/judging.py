"""A whole command line: by the rules of admission, by those of the model, then each value by itself."""

from harborrl_trainer.launch.context import Context
from harborrl_trainer.launch.fleet_rules import FLEET
from harborrl_trainer.launch.model_rules import MODEL
from harborrl_trainer.launch.rules.admission import RULES, with_derived
from harborrl_trainer.launch.rules.rule import Values, first_broken, on
from harborrl_trainer.launch.values import unfit


def fault(values: Values, context: Context) -> str | None:
    """What is wrong first with the effective values."""
    training = (context.sizes["actorNodes"] or 1) * context.job.gpus_per_node
    rollout = training if on(values, "colocate") else context.sizes["rolloutGpus"] or training
    known = with_derived(values, script=context.script, training_gpus=training, rollout_gpus=rollout)
    asked = {"gpus": context.job.nodes * context.job.gpus_per_node, "tied": context.model and context.model.tied}
    said = first_broken((*RULES, *MODEL, *FLEET), {**known, **asked})
    said = said or unfit(values, context.version)
    return said and f"trainer: {said}"
