"""Miles' own session server before a running SGLang: `python miles_sessions.py MODEL_DIR SGLANG_URL PORT`.

Needs Miles and SGLang on PYTHONPATH; nothing of ours is in it. Arguments are as Miles' own launch gives them.
"""

import sys
from argparse import Namespace

from miles.rollout.session.server import run_session_server

if __name__ == "__main__":
    model, engine, port = sys.argv[1:]
    run_session_server(
        Namespace(
            hf_checkpoint=model,
            session_server_instance_id="on-one-card",
            session_server_ip="127.0.0.1",
            session_server_port=int(port),
            save_debug_trajectory_data=None,
            sglang_speculative_algorithm=None,
            lora_rank=0,
            lora_adapter_path=None,
        ),
        engine,
    )
