"""`--custom-agent-function-path swe_agent_function.run`. Its folder stands on PYTHONPATH beside the package itself."""

from harborrl_trainer.miles.agent_function import abort, run

__all__ = ["abort", "run"]
