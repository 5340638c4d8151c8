"""Rules over the advantage estimator, its penalties and corrections."""

from harborrl_trainer.launch.rules.rule import Rule, Values, equals, excludes, flag, number, on, set_to, without


def _asynchronous_ppo(values: Values) -> bool:
    corrected = any(on(values, name) for name in ("use_rollout_logprobs", "use_tis", "keep_old_actor"))
    return values["script"] == "train_async.py" and values.get("advantage_estimator") == "ppo" and not corrected


ALGORITHM = (
    Rule(
        lambda v: number(v, "kl_coef") != 0 and number(v, "kl_loss_coef") != 0,
        "--kl-coef {kl_coef} puts the KL penalty into the reward and --kl-loss-coef {kl_loss_coef} into the loss; set"
        " one of them to 0",
    ),
    *excludes("use_rollout_logprobs", "use_tis"),
    Rule(
        lambda v: (
            str(v.get("advantage_estimator", "")).startswith("reinforce_plus_plus")
            and not on(v, "normalize_advantages")
        ),
        "--advantage-estimator {advantage_estimator} needs --normalize-advantages; set normalizeAdvantages: true",
    ),
    Rule(
        without("get_mismatch_metrics", "custom_tis_function_path"),
        "--get-mismatch-metrics needs --custom-tis-function-path; add it, or remove the flag",
    ),
    Rule(
        lambda v: equals("advantage_estimator", "ppo")(v) and on(v, "kl_coef"),
        "--advantage-estimator ppo takes no --kl-coef ({kl_coef}); use --use-kl-loss instead",
    ),
    Rule(
        _asynchronous_ppo,
        "--advantage-estimator ppo in mode async trains on samples of older weights; add --use-tis,"
        " --use-rollout-logprobs or --keep-old-actor",
    ),
    Rule(without("use_opd", "opd_type"), "--use-opd needs --opd-type sglang or megatron; add it"),
    *(
        Rule(without(name, "use_opd"), f"{flag(name)} needs --use-opd; add it, or remove the flag")
        for name in ("opd_teacher_load", "opd_teacher_urls")
    ),
    Rule(
        lambda v: on(v, "use_opd") and equals("opd_type", "megatron")(v) and not on(v, "opd_teacher_load"),
        "--opd-type megatron needs --opd-teacher-load, the teacher's checkpoint; add it",
    ),
    *(
        Rule(
            set_to("opd_type", kind, name),
            f"{flag(name)} cannot be used with --opd-type {kind}; remove one of them",
        )
        for kind, name in (("sglang", "opd_teacher_load"), ("megatron", "opd_teacher_urls"))
    ),
    Rule(without("enable_mtp_training", "mtp_num_layers"), "--enable-mtp-training needs --mtp-num-layers; add it"),
)
