#!/usr/bin/env bash
# The TLS study of docs/benchmarks.md: the twenty configurations of the 2009 paper, Strowger and Kamailio in turn.
#
#     docs/benchmarks/2009/study.sh [DIRECTORY] [SERVER...]     # writes grid-SERVER.json and .html there; default: beside this script
#
# Needs root, two free CPUs, Debian's kamailio with kamailio-tls-modules, and `cargo build --release -p strowger -p sipstone`. The server
# runs on CPU 0 and is started anew for each configuration, the generator runs on CPU 1, ahead of everything else there. About fifty
# minutes a server: seven rates of 12 s for each configuration; SIPSTONE_OPTIONS can say otherwise ('--criterion tls2009' for the paper's
# 30 s + 120 s, '--rounds 3', '--peaks', '--tls-key rsa --tls-version 1.2'). One that was ended goes on where it was. What is committed
# beside this was measured with '--duration 4s --warm-up 700ms --cooldown 500ms' and the --rates that stand in it.
# Both servers read the same files. Kamailio's memory options are not its defaults, as in the study of 2007. The users are few, so that
# each of them has a callee with a contact of its own, and is met often enough for its session to be resumed.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$(realpath "${1:-$here}")
servers=("${@:2}")
[ ${#servers[@]} -gt 0 ] || servers=(strowger kamailio)
release=${CARGO_TARGET_DIR:-$root/target}/release
scratch=$(mktemp -d)
# The reports hold the commands; what stands in them should not be this machine's paths.
trap 'cp -f "$scratch"/grid-*.* "$out" || true; rm -rf "$scratch"' EXIT
mkdir "$scratch/files"
cp "$release/strowger" "$release/sipstone" "$scratch"
cp "$here"/*.cfg "$scratch/files"
cd "$scratch"
ulimit -n "$(ulimit -Hn)"

for server in "${servers[@]}"; do
    case $server in
        strowger) command='./strowger -f {dir}/grid.cfg' ;;
        kamailio) command='kamailio -DD -E -m 8192 -M 64 -x tlsf -X tlsf -P {dir}/kamailio.pid -f {dir}/grid.cfg' ;;
        *) echo "no server is called $server: strowger or kamailio" >&2; exit 1 ;;
    esac
    echo "== $server" >&2
    if [ -f "$out/grid-$server.json" ]; then cp "$out/grid-$server.json" .; fi
    # shellcheck disable=SC2086
    chrt -R -f 50 ./sipstone grid tls --target 127.0.0.1:5070 --sut-files files --sut-exec "$command" --sut-cpu 0 --cpus 1 \
        --users 100 --drain 12s --label "TLS grid, $server" --quiet ${SIPSTONE_OPTIONS:-} \
        --json "grid-$server.json" --html "grid-$server.html" || echo "exit $?" >&2
done
