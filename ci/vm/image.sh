#!/usr/bin/env bash
# Makes what a guest boots from: an unpacked Debian kernel that has Soft-RoCE and a file system in
# memory with nothing but the C library, libibverbs and its rxe provider, a shell, iproute2, dropbear.
# Debian's kernel is taken from its package, which is not installed.
# Usage: ci/vm/image.sh DIRECTORY    (an absolute path) gives DIRECTORY/vmlinux and DIRECTORY/initramfs
source "$(dirname "$0")/../common.sh"
here=$PWD/ci/vm
mkdir -p "$1"
cd "$1"
PATH=$PATH:/usr/sbin:/sbin
meta=${VM_KERNEL:-linux-image-6.12-amd64}

# The package that the name stands for at the moment, or the newest one that was fetched. (Whoever reads from
# a pipe here reads it to the end: `pipefail` takes a writer that was cut off for a failure.)
package=$(apt-cache depends "$meta" 2>/dev/null | awk '/Depends: linux-image-[0-9]/ && !found++ { print $2 }')
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
    # As root, apt would fetch as a user who may not write here.
    (cd fetch && timeout 600 apt-get -qq -o APT::Sandbox::User=root download "$package")
    mv fetch/*.deb "$package.deb"
    rmdir fetch
fi

# A boot image is a loader with the kernel packed inside. Unpacked it starts faster under emulation,
# by the PVH entry. Offsets: Documentation/arch/x86/boot.rst of Linux.
unpack_kernel() {
    local image=$1 sectors offset length
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

# Copies a program or a library with the libraries that it names, to the same places.
libraries_of() {
    { ldd "$1" 2>/dev/null || true; } | awk '/=> \// { print $3 } /^\t\/lib/ { print $1 }'
}
copy_file() {
    mkdir -p "root$(dirname "$2")"
    cp -L --remove-destination "$1" "root$2"
    local library
    while read -r library; do
        if [[ ! -e root$library ]]; then
            mkdir -p "root$(dirname "$library")"
            cp -L "$library" "root$library"
        fi
    done < <(libraries_of "$1")
}
busybox=$(command -v busybox)
cp "$busybox" root/bin/busybox
for applet in $("$busybox" --list); do
    [[ $applet == busybox ]] || ln -s busybox "root/bin/$applet"
done
# The shell is not busybox's, which would prefer its own `ip` to the real one.
for tool in bash ip rdma tc ibv_devinfo ibv_rc_pingpong dropbear dbclient; do
    copy_file "$(command -v "$tool")" "/bin/$tool"
done
ln -sf bash root/bin/sh
# Found by name at run time, so nothing that is copied above brings them.
for library in libibverbs.so.1 libgcc_s.so.1 libm.so.6 libdl.so.2 libpthread.so.0; do
    path=$(ldconfig -p | awk -v name="$library" '$1 == name && /x86-64/ && !found++ { print $NF }')
    copy_file "$path" "$path"
done
provider=$(echo /usr/lib/*/libibverbs/librxe-rdmav*.so)
copy_file "$provider" "$provider"
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
