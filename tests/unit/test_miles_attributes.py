"""Keys of customConfigYaml, which Miles sets as attributes: many flags keep their value under another name."""

import pytest

from harborrl_trainer.errors import ConfigurationError
from harborrl_trainer.launch.versions import versions
from support.launches import launched, plain


@pytest.mark.parametrize("key", ["bias_swiglu_fusion", "rollout_global_dataset", "offload_train", "nccl_ub"])
def test_an_attribute_that_is_no_flags_name_is_known_and_its_kind_is_judged(key: str) -> None:
    assert launched(plain(customConfigYaml=f"{key}: true")).remarks == ()
    with pytest.raises(ConfigurationError, match=f"{key} takes true or false, not 3; correct it"):
        launched(plain(customConfigYaml=f"{key}: 3"))


@pytest.mark.parametrize(
    ("key", "attribute"),
    [
        ("no_bias_swiglu_fusion", "bias_swiglu_fusion"),
        ("fp8_format", "fp8"),
        ("norm_epsilon", "layernorm_epsilon"),
        ("no_offload_train", "offload_train"),
        ("persistent_save_interval", "save_interval"),
    ],
)
def test_a_flags_name_that_miles_would_never_read_is_refused_with_the_attribute(key: str, attribute: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        launched(plain(customConfigYaml=f"{key}: true"))
    assert str(caught.value).endswith(f"would never read '{key}'; set {attribute}")


def test_a_misspelt_flags_name_is_told_the_attribute() -> None:
    (remark,) = launched(plain(customConfigYaml="fp8_formats: e4m3")).remarks
    assert remark.reason.endswith("did you mean fp8?")


def test_each_attribute_of_the_tables_has_a_known_flag_and_leads_back_to_it() -> None:
    for version in versions().values():
        assert not [flag for flag in version.attributes if not version.knows(flag)]
        assert {version.setting(name) is not None for name in version.attributes.values()} == {True}


def test_a_flag_beside_a_users_own_function_is_said_in_sentences() -> None:
    remarks = launched(plain(extraArgs="--custom-generate-function-path a.b --my-own-flag 3")).remarks
    assert "known of Miles 31f1ca9. The image's own parser decides" in remarks[-1].reason
