#!/bin/sh
# Install what building and testing need, where it is missing: as root or through
# sudo -n; otherwise print the one line to run, and exit 69.
set -eu

packages='gcc make pkg-config libhdf5-dev hdf5-tools libzstd-dev libyaml-dev libpcre2-dev libutf8proc-dev libgmp-dev libxxhash-dev libopenmpi-dev openmpi-bin jq perl'
missing=
for p in $packages ${CAIRN_EXTRA_PACKAGES:-}; do
	dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed' || missing="$missing $p"
done
[ -n "$missing" ] || exit 0
line="apt-get install -y --no-install-recommends$missing"
if [ "$(id -u)" = 0 ]; then
	run=
elif sudo -n true 2>/dev/null; then
	run=sudo
else
	echo "setup: packages are missing; run: sudo $line" >&2
	exit 69
fi
export DEBIAN_FRONTEND=noninteractive
echo "setup: installing$missing" >&2
# shellcheck disable=SC2086
$run $line >/dev/null 2>&1 || { $run apt-get update -qq >&2 && $run $line >/dev/null; }
