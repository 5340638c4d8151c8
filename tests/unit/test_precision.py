import copy

import torch

from harborrl_trainer.native.decoder import Decoder
from harborrl_trainer.native.kv_slots import Piece
from harborrl_trainer.native.policy import Policy, PolicyConfig, TrainSample
from harborrl_trainer.native.precision import round_linears, rounded, rounded_names
from support import tiny_model

SEQUENCE = tuple(range(40, 90))


def test_an_engine_with_rounded_layers_computes_what_the_trainer_computes_under_autocast() -> None:
    exact, engine_model = tiny_model.model(), tiny_model.model()
    round_linears(engine_model)
    decoder = Decoder(engine_model, slots=1, capacity=64, cache_type=torch.bfloat16)
    sampled = torch.log_softmax(decoder.prefill([Piece(0, 0, SEQUENCE[:-1])])[0], -1)[SEQUENCE[-1]]
    trained, unrounded = (_score(exact, compute) for compute in ("bfloat16", "float32"))
    assert abs(trained - float(sampled)) < abs(unrounded - float(sampled))
    assert abs(trained - float(sampled)) < 1e-3


def test_the_head_and_the_embedding_stay_exact() -> None:
    model = tiny_model.model()
    round_linears(model)
    assert model.get_output_embeddings().weight.dtype == torch.float32
    assert model.get_output_embeddings().weight is model.get_input_embeddings().weight


def test_rounded_weights_fill_a_rounded_model_completely() -> None:
    trained, engine_model = tiny_model.model(seed=5), tiny_model.model()
    published = rounded(dict(trained.named_parameters()), rounded_names(trained))
    round_linears(engine_model)
    decoder = Decoder(engine_model, slots=1, capacity=64, cache_type=torch.bfloat16)
    decoder.load(published)
    fresh = copy.deepcopy(trained)
    round_linears(fresh)
    for (name, loaded), (_, expected) in zip(engine_model.named_parameters(), fresh.named_parameters(), strict=True):
        assert torch.equal(loaded, expected), name


def _score(model: object, compute: str) -> float:
    config = PolicyConfig(1e-3, (0.9, 0.95), 0.0, 1.0, 0.2, 0.28, 1.0, 1, compute=compute)  # type: ignore[arg-type]  # each case is one of the two
    sample = TrainSample(0, SEQUENCE[:-1], SEQUENCE[-1:], (1,), (0.0,), 0.0)
    return Policy(model, config).score([sample])[0][0]
