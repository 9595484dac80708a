#!/usr/bin/env bash
# Makes what a guest boots from: an unpacked Debian kernel that has Soft-RoCE and a file system in
# memory with nothing but the C library, libibverbs and its rxe provider, a shell, iproute2, dropbear.
# Debian's kernel is taken from its package, which is not installed. Neither is what a guest of another architecture
# takes besides, which is Debian's for that one, and the cross compiler's C library.
# Usage: ci/vm/image.sh DIRECTORY    (an absolute path) gives DIRECTORY/vmlinux and DIRECTORY/initramfs
# VM_ARCH is the guest's architecture: x86_64, or aarch64, whose kernel has pages of 16 KiB.
source "$(dirname "$0")/../common.sh"
here=$PWD/ci/vm
mkdir -p "$1"
cd "$1"
PATH=$PATH:/usr/sbin:/sbin
tools=(ip rdma tc ibv_devinfo ibv_rc_pingpong dropbear dbclient)
apt=(-o APT::Sandbox::User=root) # as root, apt would fetch as a user who may not write here
case ${VM_ARCH:-x86_64} in
x86_64)
    meta=linux-image-6.12-amd64
    libraries=$(ldconfig -p | awk '/x86-64/ { print $NF }')
    found() { command -v "$1"; }
    provider=$(echo /usr/lib/*/libibverbs/librxe-rdmav*.so)
    ;;
aarch64)
    # Lists of packages of its own: those of the machine know no other architecture.
    meta=linux-image-arm64-16k
    tools=(ip rdma ibv_devinfo getconf)
    mkdir -p apt/{lists,cache}/partial
    debian=$(sed -n 's/^VERSION_CODENAME=//p' /etc/os-release)
    printf 'deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] http://deb.debian.org/debian %s main\n' \
        "$debian" "$debian-backports" >apt/sources.list
    apt+=(-o APT::Architecture=arm64 -o APT::Architectures=arm64 -o Acquire::Languages=none
        -o "Dir::Etc::SourceList=$PWD/apt/sources.list" -o Dir::Etc::SourceParts=/dev/null
        -o "Dir::State::Lists=$PWD/apt/lists" -o "Dir::Cache=$PWD/apt/cache" -o Dir::State::status=/dev/null)
    # Without a network, what was fetched before will do.
    apt-get "${apt[@]}" update -qq || true
    others=(libc-bin bash libtinfo6 busybox-static iproute2 libbpf1 libelf1 libmnl0 libcap2 libbsd0 libmd0 zlib1g
        libibverbs1 ibverbs-providers ibverbs-utils libnl-3-200 libnl-route-3-200)
    # Once, or where others are wanted than there are.
    if [[ $(cat sysroot/.packages 2>/dev/null) != "$debian ${others[*]}" ]]; then
        rm -rf fetch sysroot && mkdir -p fetch/root
        (cd fetch && timeout 600 apt-get "${apt[@]}" -qq download "${others[@]}")
        for file in fetch/*.deb; do dpkg-deb -x "$file" fetch/root; done
        echo "$debian ${others[*]}" >fetch/root/.packages
        mv fetch/root sysroot
        rm -rf fetch
    fi
    libraries=$(find "$PWD/sysroot" /usr/aarch64-linux-gnu/lib -name '*.so.*')
    found() {
        local file
        for file in sysroot/{,usr/}{,s}bin/"$1"; do [[ ! -e $file ]] || { echo "$file"; return; }; done
        return 1
    }
    provider=$(echo sysroot/usr/lib/*/libibverbs/librxe-rdmav*.so)
    ;;
esac
meta=${VM_KERNEL:-$meta}

# The package that the name stands for at the moment, or the newest one that was fetched. (Whoever reads from
# a pipe here reads it to the end: `pipefail` takes a writer that was cut off for a failure.)
package=$(apt-cache "${apt[@]}" depends "$meta" 2>/dev/null | awk '/Depends: linux-image-[0-9]/ && !found++ { print $2 }')
if [[ -z $package ]]; then
    package=$(find . -maxdepth 1 -name 'linux-image-[0-9]*.deb' -printf '%f\n' | sort -V | tail -1)
    package=${package%.deb}
fi
if [[ -z $package ]]; then
    echo "the package lists know no $meta: apt-get update?" >&2
    exit 1
fi
version=${package#linux-image-}
if [[ ! -e $package.deb ]]; then
    echo "-- fetching $package"
    rm -rf fetch && mkdir fetch
    (cd fetch && timeout 600 apt-get -qq "${apt[@]}" download "$package")
    mv fetch/*.deb "$package.deb"
    rmdir fetch
fi

# A boot image is a loader with the kernel packed inside. Unpacked it starts faster under emulation,
# by the PVH entry. Offsets: Documentation/arch/x86/boot.rst of Linux.
unpack_kernel() {
    local image=$1 sectors offset length
    # Only x86 has a loader around it.
    if [[ ${VM_ARCH:-x86_64} != x86_64 ]]; then
        cat "$image"
        return
    fi
    sectors=$(od -An -tu1 -j $((0x1f1)) -N1 "$image")
    read -r offset length < <(od -An -tu4 -j $((0x248)) -N8 "$image")
    offset=$((offset + (sectors + 1) * 512))
    # The payload's last four bytes are its unpacked size.
    head -c $((offset + length - 4)) "$image" | tail -c $((length - 4)) >payload
    if [[ $(head -c 4 payload | od -An -tx1) == " 28 b5 2f fd" ]]; then
        zstd -dcq <payload
    else
        xz -dcq --single-stream <payload
    fi
    rm -f payload
}
if [[ ! -e vmlinux-$version ]]; then
    rm -rf kernel && mkdir kernel
    dpkg-deb --fsys-tarfile "$package.deb" |
        tar x -C kernel --wildcards './boot/vmlinuz*' './lib/modules/*/modules.*' './lib/modules/*/kernel/*'
    depmod -b kernel "$version"
    unpack_kernel "kernel/boot/vmlinuz-$version" >vmlinux.new
    mv vmlinux.new "vmlinux-$version"
fi
ln -sf "vmlinux-$version" vmlinux

# Everything below is quick, and made again each time, so that it is never stale.
rm -rf root
mkdir -p root/{bin,dev,etc/libibverbs.d,host,lib,proc,root,run,sys,tmp,usr,var/log}
ln -s ../bin root/usr/bin
ln -s bin root/sbin
ln -s ../bin root/usr/sbin

# Copies a program or a library with the libraries that it names, and those with theirs. Those of another architecture
# go where its loader looks first.
copy_file() {
    mkdir -p "root$(dirname "$2")"
    cp -L --remove-destination "$1" "root$2"
    local name
    while read -r name; do copy_library "$name"; done < <(readelf -d "$1" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
    name=$(readelf -l "$1" | sed -n 's/.*program interpreter: \(.*\)\]/\1/p')
    [[ -z $name || -e root$name ]] || copy_file "$(library "${name##*/}")" "$name"
}
library() { awk -v name="$1" -F / '$NF == name && !found++' <<<"$libraries"; }
copy_library() {
    local from to
    from=$(library "$1")
    [[ -n $from ]] || { echo "there is no library $1" >&2; exit 1; }
    to=$from
    [[ ${VM_ARCH:-x86_64} == x86_64 ]] || to=/lib/$1
    [[ -e root$to ]] || copy_file "$from" "$to"
}
cp "$(found busybox)" root/bin/busybox
# Those of the machine's own, which may be of another version.
for applet in $(busybox --list); do
    [[ $applet == busybox ]] || ln -s busybox "root/bin/$applet"
done
# The shell is not busybox's, which would prefer its own `ip` to the real one.
for tool in bash "${tools[@]}"; do
    copy_file "$(found "$tool")" "/bin/$tool"
done
ln -sf bash root/bin/sh
# Found by name at run time, so nothing that is copied above brings them.
for library in libibverbs.so.1 libgcc_s.so.1 libm.so.6 libdl.so.2 libpthread.so.0; do copy_library "$library"; done
copy_file "$provider" "/${provider#*sysroot/}"
echo "driver rxe" >root/etc/libibverbs.d/rxe.driver
echo "root:x:0:0:root:/root:/bin/sh" >root/etc/passwd
echo "root:x:0:" >root/etc/group
echo "/bin/sh" >root/etc/shells
printf '%s\n' "127.0.0.1 localhost" "10.5.0.1 node1" "10.5.0.2 node2" >root/etc/hosts

mapfile -t modules < <(sed 's/#.*//' "$here/modules" | xargs -n 1)
printf '%s\n' "${modules[@]}" >root/etc/modules
for module in "${modules[@]}"; do
    modprobe -d "$PWD/kernel" -S "$version" --show-depends "$module"
done | awk '$1 == "insmod" && !seen[$2]++ { print $2 }' | while read -r file; do
    to=root${file#"$PWD/kernel"}
    mkdir -p "$(dirname "$to")"
    case $file in
    *.xz) xz -dc "$file" >"${to%.xz}" ;;
    *) cp "$file" "$to" ;;
    esac
done
cp kernel/lib/modules/"$version"/modules.{builtin,builtin.modinfo,order} "root/lib/modules/$version/"
depmod -b root "$version"

install -m 755 "$here/init" root/init
(cd root && find . | cpio -o -H newc --quiet -R +0:+0) >initramfs.new
mv initramfs.new initramfs
