"""Rules over the two drivers, weight transfer and fault tolerance."""

from collections.abc import Callable

from harborrl_trainer.launch.rules.rule import Rule, Values, both, equals, excludes, flag, on, set_to, without


def _asynchronous_excludes(*names: str) -> tuple[Rule, ...]:
    return tuple(
        Rule(
            both("fully_async", name),
            f"{flag(name)} cannot be used in mode async (--fully-async); remove it, or set trainer.mode: sync",
        )
        for name in names
    )


def _delta_without(name: str) -> Callable[[Values], bool]:
    delta = equals("update_weight_transfer_mode", "disk-delta")
    return lambda values: delta(values) and not on(values, name)


MODES = (
    Rule(
        lambda v: v["script"] == "train.py" and on(v, "fully_async"),
        "--fully-async runs under train_async.py alone; set trainer.mode: async",
    ),
    Rule(
        lambda v: v["script"] == "train_async.py" and on(v, "colocate"),
        "--colocate cannot be used in mode async; leave trainer.config.colocate out, or set trainer.mode: sync",
    ),
    *_asynchronous_excludes(
        "partial_rollout",
        "multi_lora_n_adapters",
        "rollout_function_path",
        "recompute_logprobs_via_prefill",
        "rollout_all_samples_process_path",
    ),
    Rule(
        lambda v: equals("pause_generation_mode", "in_place")(v) and equals("update_weight_transfer_mode", "p2p")(v),
        "--pause-generation-mode in_place and --update-weight-transfer-mode p2p exclude each other; use broadcast with"
        " in_place, or retract with p2p",
    ),
    *(
        Rule(
            set_to("update_weight_transfer_mode", mode, other),
            f"--update-weight-transfer-mode {mode} cannot be used with {flag(other)}; use broadcast",
        )
        for mode in ("p2p", "disk-delta")
        for other in ("colocate", "lora_rank", "prefill_num_servers")
    ),
    *(
        Rule(
            _delta_without(name),
            f"--update-weight-transfer-mode disk-delta needs {flag(name)}; add it, or use broadcast",
        )
        for name in ("update_weight_disk_dir", "update_weight_local_checkpoint_dir")
    ),
    *excludes("sglang_config", "prefill_num_servers"),
    Rule(
        without("mini_ft_controller_enable", "control_server_port"),
        "--mini-ft-controller-enable needs --control-server-port; add it",
    ),
)
