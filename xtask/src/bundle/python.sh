#!/bin/sh
# Benchmarks start their peers with the project's own Python; on this host that is whichever `run` was told, and with the
# libraries that are found without it.
export LD_LIBRARY_PATH="${KINORA_PEER_LIBRARIES-}"
exec "${KINORA_PEER_PYTHON:-python3}" "$@"
