#!/usr/bin/env bash
# Packs the crates that a user needs as cargo would upload them.
#   ci/package.sh            the packages, without building them
#   ci/package.sh --verify   builds each from its package, and installs shmrun and shmem-info from there
source "$(dirname "$0")/common.sh"
crates=(shmem-rdma-sys shmem-verbs shmem-soft shmem-connect shmem-device shmem-ib shmem-pmix shmem-mpi shmem-node shmem-pmi shmem-launch shmem-test shmem-macros shmem-core)
named=()
for crate in "${crates[@]}"; do named+=(-p "$crate"); done
# What is not committed is packed as well: it is this tree that is looked at.
pack() { cargo package --allow-dirty --quiet "$@" "${named[@]}" 2> >(grep -v '^warning: manifest has no\|^ *|\|see https\|^$' >&2); }
if [[ ${1:-} != --verify ]]; then
    pack --no-verify
    exit
fi
# In an empty directory, and with a place of its own where cargo unpacks crates: while its version is the same, cargo takes a
# package that it has built or unpacked once for unchanged. Downloads are those of the user.
build=$target/package/verify
rm -rf "$build"
at_exit "rm -rf '$build'"
home=${CARGO_HOME:-$HOME/.cargo}
mkdir -p "$build/home/registry/src"
for part in "$home"/{config.toml,credentials.toml,registry/index,registry/cache} "$home"/registry/src/[!-]*; do
    [[ ! -e $part ]] || ln -s "$part" "$build/home/${part#"$home"/}"
done
export CARGO_TARGET_DIR=$build CARGO_HOME=$build/home
pack
packages=$build/package
root=$build/installed
patches=()
for crate in "${crates[@]}"; do
    directory=$(echo "$packages/$crate"-[0-9]*.crate)
    directory=${directory%.crate}
    [[ -d $directory ]] || tar -xf "$directory.crate" -C "$packages"
    patches+=(--config "patch.crates-io.$crate.path='$directory'")
done
for crate in shmem-launch shmem-core; do
    cargo install --debug --quiet --root "$root" "${patches[@]}" --path "$packages/$crate"-*[0-9]
done
"$root/bin/shmrun" -n 2 --nodes 2 "$root/bin/shmem-info" >/dev/null
ls "$root/bin"
