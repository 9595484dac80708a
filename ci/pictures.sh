#!/usr/bin/env bash
# The timeline and the page of made-up jobs: the one read with Perfetto's own schema, the other drawn by a browser, in
# light and dark, on a wide window and on a phone's. Nothing may go wrong there, overlap, or be loaded.
#   ci/pictures.sh [DIR]     also leaves pictures of the pages there
source "$(dirname "$0")/common.sh"
keep=
[[ -z ${1:-} ]] || keep=$(cd "$called_from" && realpath -m "$1")
cargo build --quiet -p shmem-launch --example pictures
directory=$(mktemp -d)
at_exit "rm -rf '$directory'"
jobs=(1 16 2500)
for pes in "${jobs[@]}"; do
    mkdir "$directory/$pes"
    "$target/debug/examples/pictures" "$directory/$pes" "$pes"
done

if python3 -c 'import perfetto.protos.perfetto.trace.perfetto_trace_pb2' 2>/dev/null; then
    for pes in "${jobs[@]}"; do python3 ci/trace.py "$directory/$pes/job.pftrace"; done
else
    skipped perfetto "Python finds no perfetto"
fi

browser=$(command -v chromium || command -v google-chrome || true)
[[ -n $browser ]] || cannot chromium "there is no browser"
# look PAGE SCHEME WIDTH WHAT...: 0 is dark, 1 is light.
look() {
    local page=$1 scheme=$2 width=$3
    shift 3
    timeout --kill-after 5 120 "$browser" --headless --no-sandbox --disable-gpu --hide-scrollbars \
        --user-data-dir="$directory/profile" --blink-settings=preferredColorScheme="$scheme" \
        --window-size="$width,3600" "$@" "file://$page" 2>"$directory/said"
}
failed=0
for pes in "${jobs[@]}"; do
    page=$directory/$pes/checked.html
    # The last such line is the page's own.
    { sed '$d' "$directory/$pes/job.html"; echo '<script>'; cat ci/page-check.js; echo '</script></html>'; } >"$page"
    for scheme in 0 1; do
        for width in 1200 500; do
            look "$page" "$scheme" "$width" --dump-dom >"$directory/dom" || { cat "$directory/said" >&2; exit 1; }
            root=$(grep -m 1 '^<html' "$directory/dom")
            for wanted in 'data-ready="yes"' 'data-unreadable=""' 'data-loaded=""' "data-width=\"$width\""; do
                [[ $root == *"$wanted"* ]] || failed=1
            done
            [[ $root != *data-error=* ]] || failed=1
            echo "$pes PEs, scheme $scheme, $width pixels: $root"
            [[ -z $keep ]] || {
                mkdir -p "$keep"
                look "$page" "$scheme" "$width" --screenshot="$keep/$pes-$scheme-$width.png" >/dev/null
            }
        done
    done
done
[[ $failed == 0 ]] || { echo "a page is not as it should be" >&2; exit 1; }
