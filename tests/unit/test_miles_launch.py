"""A job becomes a command line in the documented order, or is refused with the flag, the numbers and the way out."""

import json
import re
from pathlib import Path

import pytest

from harborrl_trainer.config import HarborFrameworkConfig
from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.job import JobDocument
from harborrl_trainer.launch.environment import PLAIN_PROXIES
from harborrl_trainer.launch.rules.batches import BATCHES
from harborrl_trainer.launch.rules.rule import first_broken
from harborrl_trainer.launch.rules.variables import VARIABLES
from harborrl_trainer.launch.sizing import Shape, adapters, asynchronous, fixed
from harborrl_trainer.miles.settings import Settings
from support.broken_rules import ADMISSION, ASYNC, LORA, MODEL, NONZERO_STD, Changes, extra
from support.launches import NEW, OLD, OLD_IMAGE, launched, of_preset, plain, value

TUNED = {"PYTHONUNBUFFERED", "CUDA_DEVICE_MAX_CONNECTIONS", "no_proxy", "NO_PROXY", "WANDB_RUN_ID", "WANDB_RESUME"}
"""Variables that give way to `trainer.env`."""

ASYNC_SHAPES = [
    ((8, 1, 8), (2, 56, 8)),
    ((8, 2, 8), (4, 48, 8)),
    ((8, 3, 8), (2, 40, 8)),
    ((8, 4, 8), (8, 32, 8)),
    ((4, 1, 8), (2, 24, 8)),
    ((2, 1, 4), (1, 4, 4)),
]
"""Nodes, training nodes, GPUs a node -> expert parallel size, rollout GPUs, GPUs an engine; seen of the launcher."""


@pytest.mark.parametrize(("asked", "computed"), ASYNC_SHAPES)
def test_the_asynchronous_launchers_table_is_computed_again(
    asked: tuple[int, int, int], computed: tuple[int, int, int]
) -> None:
    nodes, train, gpus = asked
    ep, rollout, engine = computed
    sizes = asynchronous(Shape(nodes, gpus, colocate=False, actor_nodes=train, parallelism={"tp": 4}, experts=64))
    assert (sizes["ep"], sizes["rolloutGpus"], sizes["engine"]) == (ep, rollout, engine)
    assert sizes["runningRequests"] == engine * 256 // 4
    assert sizes["chunkedPrefill"] == engine * 256


@pytest.mark.parametrize(
    ("nodes", "train", "gpus", "says"),
    [
        (8, 1, 6, "6 training GPUs cannot be split by tensor x pipeline x context parallel size = 4"),
        (8, 2, 6, "an engine of 6 GPUs"),
        (1, 1, 8, "1 nodes, of which 1 train, leave none for rollout; set it to at least 2"),
        (2, 2, 8, "2 nodes, of which 2 train, leave none for rollout; set it to at least 3"),
    ],
)
def test_an_asynchronous_shape_that_cannot_be_is_refused_with_its_numbers(
    nodes: int, train: int, gpus: int, says: str
) -> None:
    with pytest.raises(ConfigurationError) as caught:
        asynchronous(Shape(nodes, gpus, colocate=False, actor_nodes=train, parallelism={"tp": 4}, experts=64))
    assert says in str(caught.value)


@pytest.mark.parametrize(("nodes", "ep", "engine"), [(1, 8, 8), (2, 16, 16), (4, 32, 16)])
def test_the_adapters_launcher_spreads_experts_over_all_gpus(nodes: int, ep: int, engine: int) -> None:
    sizes = adapters(Shape(nodes, 8, colocate=True))
    assert (sizes["tp"], sizes["ep"], sizes["engine"], sizes["chunkedPrefill"]) == (8, ep, engine, 8192)


def test_rollout_beside_training_gets_what_the_training_nodes_leave() -> None:
    assert fixed(Shape(4, 8, colocate=False, actor_nodes=2))["rolloutGpus"] == 16
    assert fixed(Shape(4, 8, colocate=False, rollout_gpus=4))["rolloutGpus"] == 4
    assert fixed(Shape(2, 8, colocate=False, rollout_gpus=0))["rolloutGpus"] == 8
    with pytest.raises(ConfigurationError, match="leave 8; set it to at most 8"):
        fixed(Shape(2, 8, colocate=False, rollout_gpus=16))


def test_the_documented_order_is_fields_model_parallelism_raw_flags_and_the_fixed_tail() -> None:
    made = launched(plain(recipeArgs="--lr 2e-6 # faster", extraArgs="--use-tis", customConfigYaml="a_flag: 1"))
    order = ("--seed", "--num-layers", "--tensor-model-parallel-size", "--use-tis", "--hf-checkpoint", "--colocate")
    places = [made.argv.index(flag) for flag in (*order, "--custom-config-path")]
    assert places == sorted(places)
    assert value(made, "--lr") == ["2e-6"]
    config = HarborFrameworkConfig(untie_embeddings_and_output_weights=False, eval_interval=0)
    assert len(set(config.cli_args()) - set(made.argv)) < 20
    assert made.argv[0] == "train.py"
    assert made.files["/mnt/checkpoints/run/launch/custom-config.yaml"] == "a_flag: 1"


def test_a_flag_of_the_tail_that_is_not_the_operators_may_be_overridden() -> None:
    made = launched(plain(extraArgs="--tito-model default --rollout-function-path my.fn"))
    assert (value(made, "--tito-model"), value(made, "--rollout-function-path")) == (["default"], ["my.fn"])
    assert made.argv.count("--tito-model") == 1


def test_a_fresh_start_is_explicit_and_a_later_one_loads() -> None:
    assert value(launched(plain()), "--start-rollout-id") == ["0"]
    assert value(launched(plain()), "--load") is None
    later = launched(plain(), load="/mnt/checkpoints/old", start_rollout=8, optimizer=False)
    assert (value(later, "--load"), value(later, "--start-rollout-id")) == (["/mnt/checkpoints/old"], ["8"])
    assert value(later, "--no-load-optim") == []


def test_an_adapter_goes_on_with_all_rollouts_of_the_run_before_it() -> None:
    made = launched(of_preset("glm52-lora", config__numRollout=20), adapter=Path("/mnt/adapter"), start_rollout=8)
    assert (value(made, "--lora-adapter-path"), value(made, "--num-rollout")) == (["/mnt/adapter"], ["20"])
    assert value(made, "--load") is None


ADAPTER: Changes = {"lora": {"rank": 8, "alpha": 16, "targetModules": ["q_proj"]}}


@pytest.mark.parametrize(
    "job",
    [plain(**ADAPTER, model__refLoad="/mnt/converted"), of_preset("glm47-flash-sync", **ADAPTER, model__refLoad="/r")],
    ids=["documented order", "preset"],
)
def test_an_adapter_over_a_converted_checkpoint_goes_over_the_bridge_in_both_orders(job: JobDocument) -> None:
    made = launched(job)
    assert value(made, "--ref-load") == [str(job.model.path)]
    assert value(made, "--megatron-to-hf-mode") == ["bridge"]
    assert "an adapter is trained" in next(note.reason for note in made.adjustments if note.what == "--ref-load")


def test_the_whole_model_is_loaded_from_the_converted_checkpoint() -> None:
    assert value(launched(plain(model__refLoad="/mnt/converted")), "--ref-load") == ["/mnt/converted"]


def test_the_rollout_process_is_told_all_that_it_asks_for_but_what_only_the_pod_knows() -> None:
    """Against the page's table, which is what the wrapper reads."""
    page = (Path(__file__).resolve().parents[2] / "docs/contracts.md").read_text()
    asked = set(re.findall(r"^\| `([A-Z_]+)` \|", page.partition("| environment | meaning | unset |")[2], re.MULTILINE))
    made = launched(plain(), start_rollout=7)
    assert asked - made.env.keys() == {"HARBOR_ADMIN_SECRET", "HARBORRL_GIVE_UP_GROUPS", "HARBORRL_SESSION_TIMEOUT"}
    read = Settings.from_environment(made.env)
    assert (read.start_rollout, read.agent_name, read.ceiling_s) == (7, "bash", 900)
    assert read.verdict_file == Path("/mnt/checkpoints/run/launch/verdict.json")
    assert str(read.trials_dir).endswith("/a1/i1/trials")


def test_every_variable_that_is_ours_is_refused_in_trainer_env() -> None:
    free = set(launched(plain(envNames=["WANDB_API_KEY"])).env) - set(
        launched(plain(envNames=["WANDB_API_KEY", *TUNED])).env
    )
    assert free == TUNED
    ours = {name for name in launched(plain()).env if not name.startswith("HARBORRL_")} - TUNED
    assert ours == {*VARIABLES, *PLAIN_PROXIES}
    with pytest.raises(ConfigurationError, match="REFACTOR is decided by Miles 9a00364; remove it"):
        launched(plain(config__milesSrcCommit=OLD, envNames=["MILES_EXPERIMENTAL_ROLLOUT_REFACTOR"]))


def test_keys_stay_in_the_environment_and_the_curve_is_one_over_all_attempts() -> None:
    made = launched(plain(envNames=["WANDB_API_KEY"]))
    assert value(made, "--use-wandb") == []
    assert value(made, "--wandb-group") == ["quickstart"]
    assert "--wandb-key" not in made.argv
    assert (made.env["WANDB_RUN_ID"], made.env["WANDB_RESUME"]) == ("quickstart-5f0c2a9e", "allow")
    assert "--use-wandb" not in launched(plain()).argv
    own = launched(plain(envNames=["WANDB_API_KEY", "WANDB_PROJECT", "WANDB_RUN_ID", "no_proxy"]))
    assert "--wandb-project" not in own.argv
    assert {"WANDB_RUN_ID", "no_proxy"} & own.env.keys() == set()


def test_evaluation_is_asked_for_where_the_job_has_data_for_it() -> None:
    made = launched(plain(eval={"jsonl": "/mnt/tasks/eval.jsonl", "interval": 5, "samplesPerPrompt": 2}))
    assert value(made, "--eval-prompt-data") == ["eval", "/mnt/tasks/eval.jsonl"]
    assert (value(made, "--eval-interval"), value(made, "--n-samples-per-eval-prompt")) == (["5"], ["2"])
    assert value(launched(plain()), "--eval-interval") is None
    both = plain(eval={"jsonl": "/e", "interval": 20, "samplesPerPrompt": 1}, config__evalInterval=5)
    assert value(launched(both), "--eval-interval") == ["20"]
    own = launched(plain(**extra("--eval-interval 5 --eval-prompt-data e /e")))
    assert value(own, "--eval-interval") == ["5"]
    hook = "--custom-eval-rollout-log-function-path"
    ours = ["harborrl_trainer.miles.evaluation.only_scored"]
    asynchronous = plain(**ASYNC, eval={"jsonl": "/e", "interval": 5, "samplesPerPrompt": 1})
    assert [value(one, hook) for one in (made, own, launched(asynchronous))] == [ours, ours, ours]
    assert value(launched(plain()), hook) is None


def test_several_session_servers_are_a_half_open_range_of_ports() -> None:
    assert value(launched(plain(ports={"session": 30000, "sessionCount": 4})), "--session-server-port") == [
        "30000",
        "30004",
    ]


def test_embeddings_follow_the_model() -> None:
    assert "--untie-embeddings-and-output-weights" not in launched(plain()).argv
    glm = launched(plain(model={"path": "/mnt/models/GLM-4.7-Flash"}))
    assert glm.argv.count("--untie-embeddings-and-output-weights") == 1


REFUSED: list[tuple[Changes, str]] = [
    ({"recipeArgs": "--save /tmp"}, "trainer.recipeArgs: --save is decided by storage.checkpoints; remove it"),
    ({"extraArgs": "--session-server-port 1"}, "--session-server-port is decided by trainer.ports.session"),
    ({"extraArgs": "--sglang-router-ip 1.2.3.4"}, "--sglang-router-ip is decided by"),
    ({"extraArgs": "--dump-det /x"}, "--dump-det is decided by storage.traces"),
    ({"extraArgs": "--finetune"}, "--finetune is decided by resumeFrom"),
    ({"customConfigYaml": "no_load_optim: true"}, "no_load_optim is decided by resumeFrom"),
    ({"extraArgs": "--ref-load /mnt/other"}, "--ref-load is decided by model.refLoad"),
    ({"extraArgs": "--wandb-key abc"}, "--wandb-key looks like a secret"),
    ({"extraArgs": "--swiglo"}, "Miles 31f1ca9 knows no flag --swiglo; did you mean --swiglu?"),
    ({"extraArgs": "--swiglu 1"}, "--swiglu takes no value, and '1' follows it"),
    ({"extraArgs": "--seed"}, "--seed takes 1 value(s) and has 0"),
    ({"extraArgs": "--seed 1.5"}, "--seed takes a whole number, not '1.5'"),
    ({"extraArgs": "--lr fast"}, "--lr takes a number, not 'fast'"),
    ({"extraArgs": "lr 1"}, "'lr' follows no flag"),
    ({"extraArgs": "--x 'a"}, "trainer.extraArgs: No closing quotation"),
    ({"customConfigYaml": "1: 2"}, "trainer.customConfigYaml: Miles sets attributes by name, and 1 is none; remove it"),
    ({"customConfigYaml": "'a b': 2"}, "and 'a b' is none; remove it"),
    ({"customConfigYaml": "rollout-batch-size: 4"}, "would never read 'rollout-batch-size'; write rollout_batch_size"),
    ({"extraArgs": "--lora-rank 8 --target-modules all-linear"}, "extraArgs: --lora-rank is decided by trainer.lora"),
    ({"recipeArgs": "--target-modules q", "lora": LORA}, "recipeArgs: --target-modules is decided by trainer.lora"),
    ({"recipeArgs": "--lora-alpha 8"}, "recipeArgs: --lora-alpha is decided by trainer.lora"),
    ({"customConfigYaml": "lora_rank: 8"}, "customConfigYaml: lora_rank is decided by trainer.lora"),
    ({"customConfigYaml": "lr: 1e-6"}, "lr is the text '1e-6' to Miles' YAML reader; write 1.0e-06"),
    ({"customConfigYaml": "seed: '12'"}, "seed is the text '12' to Miles' YAML reader; write 12"),
    ({"customConfigYaml": "lr: fast"}, "customConfigYaml: lr takes a number, not 'fast'"),
    ({"customConfigYaml": "lr: [1, 2]"}, "lr takes a number, not [1, 2]"),
    ({"customConfigYaml": "seed: {a: 1}"}, "seed takes a whole number, not {'a': 1}"),
    ({"customConfigYaml": "seed: 1.5"}, "seed takes a whole number, not 1.5"),
    ({"customConfigYaml": "use_tis: 'false'"}, "use_tis takes true or false, not 'false'"),
    ({"customConfigYaml": "lr: null"}, "--lr None must be a number above 0"),
    ({"customConfigYaml": "clip_grad: .inf"}, "--clip-grad inf must be at least 0"),
    ({"customConfigYaml": "advantage_estimator: grpoo"}, "--advantage-estimator grpoo is none of grpo, gspo"),
    ({"extraArgs": "--clip-grad nan"}, "--clip-grad takes a number, not 'nan'"),
    ({"extraArgs": "--lr -1"}, "--lr -1 must be above 0; correct it"),
    ({"extraArgs": "--num-rollout 0"}, "--num-rollout 0 must be at least 1; correct it"),
    ({"extraArgs": "--adam-beta2 1"}, "--adam-beta2 1 must be at least 0 and below 1"),
    ({"extraArgs": "--tensor-model-parallel-size 0"}, "--tensor-model-parallel-size 0 must be at least 1"),
    ({"extraArgs": "--advantage-estimator grpoo"}, "did you mean grpo?"),
    ({"config__lrDecayStyle": "flat"}, "--lr-decay-style flat is none of constant, linear"),
    ({"customConfigYaml": "save: /tmp"}, "save is decided by storage.checkpoints"),
    ({"customConfigYaml": "hf_token: x"}, "hf_token looks like a secret"),
    ({"customConfigYaml": "- 1"}, "must be a mapping"),
    ({"customConfigYaml": "a: [1"}, "trainer.customConfigYaml: line"),
    ({"model__type": "glm9"}, "model.type: 'glm9' is not among the known types (glm4.7-flash"),
    ({"model": {"path": "/mnt/models/My-Model"}}, "directory 'My-Model' tells none; set model.type"),
    ({"preset": "glm9"}, "there is no 'glm9'; choose one of glm47-flash-sync"),
    ({"preset": "glm47-flash-async"}, "runs in mode async and the job says sync"),
    ({"config__milesSrcCommit": "beefbeef"}, "Miles beefbeef is not among the known versions (31f1ca9, 9a00364)"),
    ({"image": OLD_IMAGE}, "names Miles 31f1ca9, and image radixark/miles:dev-202604201238 holds 9a00364"),
    (ASYNC | {"config__milesSrcCommit": OLD}, "async needs --fully-async, which Miles 9a00364 does not know"),
    ({"ports__sessionCount": 2, "config__milesSrcCommit": OLD}, "Miles 9a00364 runs one session server and 2 are"),
    ({"lora": {"rank": 8, "alpha": 12.5, "targetModules": ["q"]}}, "trainer.lora.alpha: Miles takes a whole number"),
]


@pytest.mark.parametrize(("changes", "says"), REFUSED, ids=[says for _, says in REFUSED])
def test_what_cannot_be_launched_is_refused_in_one_line(changes: Changes, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        launched(plain(**changes))
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_values_of_the_right_kind_pass_in_the_yaml() -> None:
    text = "lr: 1.0e-6\nseed: 5\nuse_tis: true\nrollout_stop: [a, b]\nwandb_group: 5\nrollout_max_prompt_len: null\n"
    assert launched(plain(customConfigYaml=text)).argv[0] == "train.py"


def test_an_unknown_flag_of_sglang_or_of_ones_own_functions_is_kept_and_remarked_on() -> None:
    made = launched(plain(extraArgs="--sglang-new-thing 1"))
    assert "The image's own parser decides" in made.adjustments[-1].reason
    agent = launched(plain(extraArgs="--custom-agent-function-path my.run"))
    assert agent.argv.count("--custom-agent-function-path") == 1
    assert "its counters, outcomes and second tries are gone" in agent.adjustments[-1].reason
    own = launched(plain(extraArgs="--custom-rm-path my.reward --my-flag 1"))
    assert value(own, "--my-flag") == ["1"]


@pytest.mark.parametrize(
    ("name", "lost"),
    [
        ("custom_generate_function_path", "its counters, outcomes and second tries"),
        ("custom_agent_function_path", "its counters, outcomes and second tries"),
        ("custom_rm_path", "the verifier's verdict"),
        ("rollout_function_path", "its metrics are gone"),
        ("dynamic_sampling_filter_path", "must drop groups with aborted samples"),
        ("rm_type", "has no effect"),
        ("wandb_run_id", "secondary processes alone"),
        ("custom_eval_rollout_log_function_path", "counts an aborted trial of an evaluation as 0"),
    ],
)
def test_a_function_in_the_place_of_ours_is_said_with_what_is_lost_however_it_is_written(name: str, lost: str) -> None:
    flag = "--" + name.replace("_", "-")
    for changes in (extra(f"{flag} own.one"), {"customConfigYaml": f"{name}: own.one"}):
        (said,) = [note for note in launched(plain(**changes)).adjustments if name in note.what.replace("-", "_")]
        assert (said.value, lost in said.reason) == ("own.one", True)


def test_an_architecture_that_is_not_the_model_types_is_said_and_the_same_one_is_not() -> None:
    usual = launched(plain()).adjustments
    other = plain(recipeArgs="--num-layers 12\n--hidden-size 1024", customConfigYaml="num_query_groups: 4")
    said = launched(other).adjustments[len(usual) :]
    assert [(note.what, note.value) for note in said] == [("--num-layers", "12"), ("--num-query-groups", "4")]
    assert said[0].reason == "overrides 28 of model.type qwen3-0.6B: the weights have to fit it"
    assert launched(plain(extraArgs="--num-layers 28")).adjustments == usual


@pytest.mark.parametrize("flag", ["--num-epoch 3", "--exit-interval 5", "--exit-duration-in-mins 5"])
def test_a_flag_without_effect_is_said_to_have_none(flag: str) -> None:
    (said,) = [note for note in launched(plain(**extra(flag))).adjustments if flag.split(maxsplit=1)[0] in note.what]
    assert said.reason.startswith("has no effect")


def test_our_own_function_named_by_the_user_is_no_remark() -> None:
    made = launched(plain(**extra("--custom-rm-path harborrl_trainer.miles.generate.reward_func")))
    assert made.adjustments == launched(plain()).adjustments


def test_an_unknown_name_of_the_yaml_is_kept_and_remarked_on() -> None:
    """Also one with which a reserved one begins: Miles sets attributes by their full names."""
    assert "only a custom function" in launched(plain(customConfigYaml="a: 1")).adjustments[-1].reason
    made = launched(plain(customConfigYaml="temprature: 1"))
    assert "only a custom function can read it" in made.adjustments[-1].reason


BROKEN = [*ADMISSION, *MODEL]


@pytest.mark.parametrize(("changes", "says"), BROKEN, ids=[says for _, says in BROKEN])
def test_a_broken_rule_is_told_with_the_flag_the_numbers_and_the_change(changes: Changes, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        launched(plain(**changes))
    assert says in str(caught.value)
    assert "(unset)" not in str(caught.value)


def test_flags_that_fit_a_users_own_functions_are_kept_with_them() -> None:
    flags = "--custom-rm-path own.reward --reward-key score --eval-reward-key score"
    assert value(launched(plain(**extra(flags))), "--reward-key") == ["score"]
    flags = f"--custom-rm-path own.reward --dynamic-sampling-filter-path {NONZERO_STD}"
    assert value(launched(plain(**extra(flags))), "--dynamic-sampling-filter-path") == [NONZERO_STD]
    flags = "--rollout-function-path own.rollout --disable-rollout-global-dataset"
    assert value(launched(plain(**extra(flags))), "--disable-rollout-global-dataset") == []


def test_a_filter_that_reads_all_rewards_is_kept_where_miles_drops_aborted_groups_before() -> None:
    made = launched(plain(**ASYNC, **extra(f"--dynamic-sampling-filter-path {NONZERO_STD}")))
    assert value(made, "--dynamic-sampling-filter-path") == [NONZERO_STD]


def test_a_filter_of_the_users_own_is_told_what_it_must_drop() -> None:
    made = launched(plain(**extra("--dynamic-sampling-filter-path own.filter")))
    assert "groups with aborted samples" in made.adjustments[-1].reason
    ours = "miles.rollout.filter_hub.dynamic_sampling_filters.check_no_aborted"
    made = launched(plain(**extra(f"--dynamic-sampling-filter-path {ours}")))
    assert made.adjustments == launched(plain()).adjustments


def test_a_model_with_separate_embeddings_keeps_them() -> None:
    job = of_preset("glm47-flash-sync", config__untieEmbeddingsAndOutputWeights=False)
    with pytest.raises(ConfigurationError, match="the model has separate embeddings"):
        launched(job)


def test_a_plain_job_and_a_plain_asynchronous_one_break_no_rule() -> None:
    assert launched(plain(config__milesSrcCommit=NEW)).argv[0] == "train.py"
    made = launched(plain(**ASYNC))
    assert made.argv[0] == "train_async.py"
    assert (value(made, "--rollout-num-gpus"), value(made, "--actor-num-nodes")) == (["8"], ["1"])


def test_the_launch_of_every_job_is_plain_data() -> None:
    made = launched(of_preset("glm52-lora"))
    assert json.loads(json.dumps([list(made.argv), dict(made.env), dict(made.files)]))
    assert all(isinstance(word, str) for word in made.argv)


def test_the_session_servers_rules_hold_for_what_the_yaml_sets() -> None:
    """The flag is ours, so only the rules' own values can be asked."""
    v2 = {"use_session_server": "v2", "rollout_batch_size": "1", "n_samples_per_prompt": "1", "global_batch_size": "1"}
    for flag in ("group_rm", "partial_rollout", "recompute_logprobs_via_prefill"):
        assert first_broken(BATCHES, {**v2, flag: True, "true_on_policy_mode": True, "max_seq_len": "9"})
    assert first_broken(BATCHES, {**v2, "max_seq_len": "9"}) is None
    assert first_broken(BATCHES, {**v2, "use_session_server": "v3", "max_seq_len": "9"})
