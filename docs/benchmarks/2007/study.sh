#!/usr/bin/env bash
# The study of docs/benchmarks.md: the scenarios of IBM 2007 over UDP without authentication, Strowger and Kamailio in turn.
#
#     docs/benchmarks/2007/study.sh [DIRECTORY]       # writes SCENARIO-SERVER.json there; default: beside this script
#
# Needs root, two free CPUs, Debian's kamailio, and `cargo build --release -p strowger -p sipstone`. The server runs on CPU 0 and is
# started anew for each trial, the generator runs on CPU 1, ahead of everything else there. About half an hour: full trials are
# 6 s long and made three times, where the paper's are 120 s and five; SIPSTONE_OPTIONS can say otherwise ('--duration 120s --confirm 5').
# Both servers read the same file. Kamailio's memory options are not its defaults: its default allocator collapses under this load, and
# 64 MB of shared memory hold the transactions of a tenth of a second.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../../.." && pwd)
out=$(realpath "${1:-$here}")
release=${CARGO_TARGET_DIR:-$root/target}/release
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
# The reports hold the commands; what stands in them should not be this machine's paths.
cp "$release/strowger" "$release/sipstone" "$here"/*.cfg "$scratch"
cd "$scratch"

measure() { # NAME SCENARIO CONFIGURATION FIRST-RATE
    for server in strowger kamailio; do
        case $server in
            strowger) command="./strowger -f $3.cfg" ;;
            kamailio) command="kamailio -DD -E -m 8192 -M 64 -x tlsf -X tlsf -P kamailio.pid -f $3.cfg" ;;
        esac
        echo "== $1, $server" >&2
        chrt -R -f 50 ./sipstone peak "$2" --target 127.0.0.1:5070 --start "$4" --warm-up 1s --duration 6s --drain 12s \
            --precision 3% --confirm 3 --overload 1.5,2 --label "$1, $server" --quiet ${SIPSTONE_OPTIONS:-} \
            --sut-exec "$command" --sut-cpu 0 --sut-restart --cpus 1 --json "$1-$server.json" || echo "exit $?" >&2
        cp "$1-$server.json" "$out"
    done
}

measure stateful invite stateful 4000
measure stateless invite stateless 4000
measure redirection redirect redirect 8000
measure registration register stateful 20000
