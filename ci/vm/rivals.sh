#!/usr/bin/env bash
# Compiles the benchmarks in C with the other OpenSHMEM libraries of this machine, for jobs that put them beside
# ours: Open MPI's, and Sandia's where SOS_PREFIX names the directory that it is installed in.
# Usage: ci/vm/rivals.sh DIRECTORY    what is shared with the guests
source "$(dirname "$0")/../common.sh"
rm -rf "$1/rivals" && mkdir -p "$1/rivals"
compile() { "$1" -std=gnu99 -O2 -DNO_SYMMETRIC_STATICS -o "$2" benches/rivals/p2p.c; }
if [[ $(oshcc --showme:version 2>&1) == *"Open SHMEM"* ]]; then
    compile oshcc "$1/rivals/p2p-open-mpi"
else
    echo "no oshcc of Open MPI (openmpi-bin, libopenmpi-dev): it is left out" >&2
fi
if [[ -n ${SOS_PREFIX:-} ]]; then
    compile "$SOS_PREFIX/bin/oshcc" "$1/rivals/p2p-sandia"
    cp -r "$SOS_PREFIX/lib" "$1/rivals/sandia-lib"
else
    echo "SOS_PREFIX names no Sandia OpenSHMEM: it is left out" >&2
fi
