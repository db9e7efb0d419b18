#!/bin/sh
# Benchmarks start their peers with the project's own Python; on this host that is whichever `run` was told.
exec "${KINORA_PEER_PYTHON:-python3}" "$@"
