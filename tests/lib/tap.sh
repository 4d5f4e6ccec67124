# Sourced by shell tests: . "$CAIRN_ROOT/tests/lib/tap.sh"; ends with `tap_done`.
# shellcheck shell=sh
tap_n=0 tap_bad=0
CAIRN_ROOT=${CAIRN_ROOT:-$(pwd)}
case ":$PATH:" in *":${BIN:-$CAIRN_ROOT/bin}:"*) ;; *) PATH=${BIN:-$CAIRN_ROOT/bin}:$PATH ;; esac
if [ -z "${TEST_TMP:-}" ]; then TEST_TMP=$(mktemp -d); trap 'rm -rf "$TEST_TMP"' EXIT; fi
cd "$TEST_TMP" || exit 1

ok() { # ok STATUS WHAT
	tap_n=$((tap_n + 1))
	if [ "$1" -eq 0 ]; then echo "ok $tap_n - $2"; else tap_bad=$((tap_bad + 1)); echo "not ok $tap_n - $2"; fi
}
# run WANTED-STATUS WHAT COMMAND...: stdout in out, stderr in err
run() {
	want=$1 what=$2; shift 2
	"$@" >out 2>err; got=$?
	tap_n=$((tap_n + 1))
	if [ "$got" -eq "$want" ]; then echo "ok $tap_n - $what"; else
		tap_bad=$((tap_bad + 1)); echo "not ok $tap_n - $what (exit $got, want $want)"; sed 's/^/# /' err | tail -n 20; fi
}
is() { # is GOT WANT WHAT
	[ "$1" = "$2" ]; rc=$?
	ok $rc "$3"
	[ $rc -eq 0 ] || { echo "# got:  $1"; echo "# want: $2"; }
}
has() { # has FILE PATTERN WHAT
	grep -qE -- "$2" "$1"; rc=$?
	ok $rc "$3"
	[ $rc -eq 0 ] || { echo "# no /$2/ in:"; sed 's/^/# /' "$1" | tail -n 10; }
}
skip() { tap_n=$((tap_n + 1)); echo "ok $tap_n - $1 # SKIP $2"; }
tap_done() { echo "1..$tap_n"; [ "$tap_bad" -eq 0 ]; exit; }
