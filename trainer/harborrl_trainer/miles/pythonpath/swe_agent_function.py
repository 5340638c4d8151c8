"""`swe_agent_function.run`, as Miles' example names it. Its folder stands on PYTHONPATH beside the package itself."""

from harborrl_trainer.miles.swe_agent_function import abort, run

__all__ = ["abort", "run"]
