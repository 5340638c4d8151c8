"""HarborFrameworkConfig: agents in Harbor environments, trained by Miles.

Where the documentation's table and the code at a646bb4 differ the table wins: `untie_embeddings_and_output_weights` is
true and `eval_interval` 10.
"""

import dataclasses
from typing import Annotated, Any

from pydantic import ConfigDict
from pydantic.dataclasses import dataclass

from harborrl_trainer.config.about import About
from harborrl_trainer.config.miles import MilesFrameworkConfig


@dataclass(config=ConfigDict(extra="forbid", validate_assignment=True, defer_build=True))
class HarborFrameworkConfig(MilesFrameworkConfig):
    """A run whose trajectories come from Harbor agents."""

    miles_image: Annotated[str, About("image", home="trainer.image", emitted=False)] = "radixark/miles:dev-202604201238"
    """Container image with Miles, Megatron and SGLang. The default is the documented dated tag, built from
    `miles_src_commit`; it lacks flags of later launchers (docs/miles.md, "Versions")."""
    agent_import_path: Annotated[str, About("agent", home="agentServer.agents", emitted=False)] = ""
    """Class of the Harbor agent, `module:Class`. Default none: it has to be named. A HarborRLJob names it in
    `agentServer.agents`, and the agent server runs it."""
    agent_model_name: Annotated[str, About("agent", emitted=False)] = "model"
    """Model name that the agent puts into its requests. Default `model`: the session server serves one and asks for no
    other."""
    agent_kwargs: Annotated[dict[str, Any], About("agent", home="agentServer.agentKwargs", emitted=False)] = (
        dataclasses.field(default_factory=dict)
    )
    """Arguments of the agent's constructor. Default none: the agent's own."""
    environment_import_path: Annotated[
        str | None, About("agent", home="agentServer.sandbox.backend", emitted=False)
    ] = None
    """Class of the Harbor environment. Unset: the default sandbox; a HarborRLJob chooses a backend instead."""
    sandbox_timeout_secs: Annotated[int, About("agent", home="agentServer.sandbox.timeoutSeconds", emitted=False)] = (
        1800
    )
    """Life of a sandbox, seconds. The documented default of half an hour is below an agent time-out of 5400 s: a
    HarborRLJob that leaves it out gets the trial's ceiling and a margin."""
    sandbox_idle_timeout_secs: Annotated[
        int, About("agent", home="agentServer.sandbox.idleTimeoutSeconds", emitted=False)
    ] = 300
    """Seconds without a command after which a sandbox ends. Default 300 frees forgotten ones; a model that thinks
    longer than this between commands loses its sandbox."""
    task_root: Annotated[str, About("tasks", home="data.tasks.root", emitted=False)] = "/data/tasks"
    """Directory of Harbor task directories. The default is the documented mount."""
    task_glob: Annotated[str, About("tasks", home="data.tasks.glob", emitted=False)] = "*"
    """Which directories below `task_root` are tasks. Default all."""
    instruction_path: Annotated[str, About("tasks", home="data.tasks.instructionPath", emitted=False)] = (
        "instruction.md"
    )
    """File of a task that becomes the prompt. Default: Harbor's name for it."""
    input_key: Annotated[str, About("tasks")] = "prompt"
    """Column of the prompt in the JSONL data. Default prompt, as the data preparation writes it."""
    label_key: Annotated[str, About("tasks")] = "metadata"
    """Column of the label. Default metadata, which holds `instance_id`; the reward comes from the verifier."""
    apply_chat_template: Annotated[bool, About("tasks")] = True
    """Render prompts through the model's chat template. Default true. Agents build their own messages, so it shapes
    only what the data loader keeps."""
    enable_thinking: Annotated[bool, About("tasks", emitted=False)] = True
    """Passed to the chat template. Default true, as models are published; native reads it, Miles' session server
    renders by its own template."""
    rollout_shuffle: Annotated[bool, About("tasks")] = True
    """Shuffle prompts each epoch. Default true: neighbours in a data set are often alike."""
    recompute_granularity: Annotated[str, About("memory")] = "selective"
    """Activation recomputation of Megatron. Default selective: attention alone; `full` costs a forward pass and holds
    long trajectories."""
    max_position_embeddings: Annotated[int, About("model", least=1, most=1_000_000)] = 32768
    """Longest position that the trainer prepares for, in tokens. Default 32768. With rotary positions it binds nothing:
    Miles replaces it by its sequence length."""
    untie_embeddings_and_output_weights: Annotated[bool, About("model", follows_model=True)] = True
    """Separate input and output embeddings. Documented default true, which Miles refuses for a model that ties them:
    unset in a HarborRLJob it follows the model."""
    no_masked_softmax_fusion: Annotated[bool, About("memory")] = True
    """Do not fuse scaling, mask and softmax. Default true: the fused kernel bears lengths up to 16384 alone."""
    num_rollout: Annotated[int, About("batch", least=1, most=1_000_000)] = 200
    """Rollouts (steps) of the whole run. Default 200; absolute, so that a resume needs no change to it."""
    rollout_batch_size: Annotated[int, About("batch", least=1, most=1_000_000)] = 64
    """Prompts a rollout. Default 64: times 8 samples it is one optimizer step of 512."""
    rollout_max_response_len: Annotated[int, About("rollout", least=1, most=1_000_000)] = 1024
    """Longest reply of one turn, in tokens. Default 1024; a reply that is cut ends its trajectory."""
    sglang_mem_fraction_static: Annotated[float, About("memory", least=0, most=1)] = 0.7
    """Share of GPU memory that SGLang takes for weights and cache. Default 0.7 leaves room for a colocated trainer; too
    high ends in out-of-memory, too low in few requests at once."""
    train_iters: Annotated[int, About("batch", least=1, most=1_000_000)] = 50
    """Megatron's own iteration count, for its schedule. Default 50; rollouts decide how long a run is."""
    global_batch_size: Annotated[int, About("batch", least=1, most=1_000_000)] = 512
    """Samples an optimizer step. Default 512, one step a rollout; must divide `rolloutBatchSize x nSamplesPerPrompt`.
    """
    eval_interval: Annotated[int, About("checkpoint", least=0, most=1_000_000)] = 10
    """Rollouts between evaluations. Documented default 10. In a HarborRLJob `eval.interval` decides: left out without
    `eval`, since Miles refuses it without data, and refused beside it where it says another number, 0 included."""
    save_interval: Annotated[int, About("checkpoint", least=1, most=1_000_000)] = 10
    """Rollouts between checkpoints: what a failure can cost. Default 10: some hours of a large model."""
    miles_src_commit: Annotated[str, About("image", emitted=False)] = "9a003644739f4e6dd509e2e8337e8ae7e571941c"
    """Miles commit in the image; decides which flags are known. Default: that of the default image. An image of the
    versions table needs no word of it."""
    harbor_install_command: Annotated[str, About("image", home="agentServer.image", emitted=False)] = (
        "uv pip install --system git+https://github.com/laude-institute/harbor.git"
    )
    """How a Modal image gets Harbor. The trainer of a HarborRLJob needs no Harbor: the agent server's image has it."""
