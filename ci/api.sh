#!/usr/bin/env bash
# The public interface of the Rust library, a name a line: items, and the methods of each type and trait.
#   ci/api.sh            compares it with docs/public-api.txt
#   ci/api.sh --write    writes it there
source "$(dirname "$0")/common.sh"
page=docs/public-api.txt
RUSTDOCFLAGS="-D warnings" cargo doc -p shmem-core --lib --no-deps --features test --quiet

# Only what the index of all items names: files of what was public once may lie beside.
interface() {
    local file item
    grep -o 'href="[^"]*\.html">' "$target/doc/shmem/all.html" | sed 's/^href="//; s/">$//' | sort -u |
        while read -r file; do
            [[ $file == *.*.html && $file != /* && $file != ../* && $file != *://* && -f $target/doc/shmem/$file ]] || continue
            item=${file%.html}
            echo "$(sed 's|/|::|g; s/\([a-z]*\)\.\([^.]*\)$/\2 (\1)/' <<<"$item")"
            # Without what traits of others bring: those are on the page after their own headings.
            sed '/id="trait-implementations"/,$d; /id="deref-methods/,$d; /id="synthetic-implementations"/,$d' \
                "$target/doc/shmem/$file" | grep -o 'id="\(ty\)\?method\.[a-z_0-9]*"\|id="variant\.[A-Za-z0-9]*"' |
                sed 's/^id="[a-z]*\./    /; s/"$//' | LC_ALL=C sort -u || true
        done
}
if [[ ${1:-} == --write ]]; then
    interface >"$page"
elif ! diff -u "$page" <(interface); then
    echo "the public interface is not that of $page: if it is meant to be so, run ci/api.sh --write" >&2
    exit 1
fi
