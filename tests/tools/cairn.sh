#!/bin/sh
# cairn finds its programs in the tree and when installed, and hands on arguments and statuses.
# shellcheck shell=sh
. "$CAIRN_ROOT/tests/lib/tap.sh"

mkdir -p tree prefix/bin prefix/libexec/cairn
cp "$BIN/cairn" tree/
cp "$BIN/cairn" prefix/bin/
cat >tree/reshard <<'END'
#!/bin/sh
if [ "$1" = --help ]; then
	printf 'usage: cairn reshard CKPT\n       more\n\none layout -> another\n\n  -x  an option\n'
	exit 0
fi
printf '<%s>' "$@"
exit 42
END
sed 's/one layout/installed/' tree/reshard >prefix/libexec/cairn/reshard
printf '#!/bin/sh\necho system\n' >prefix/bin/score
printf 'no program\n' >tree/rollout.d
chmod +x tree/reshard prefix/libexec/cairn/reshard prefix/bin/score

run 42 "the program's status is the answer" tree/cairn reshard 'a b' '' --tp=2
is "$(cat out)" "<a b><><--tp=2>" "arguments go through unchanged"
for words in "" help --help; do
	# shellcheck disable=SC2086
	run 0 "cairn $words lists" tree/cairn $words
	has out '^  reshard +one layout -> another$' "cairn $words: a line a program, with its purpose"
done
is "$(grep -c '^  ' out)" 1 "nothing else is listed"
run 0 "help NAME" tree/cairn help reshard
is "$(sed -n 6p out)" "  -x  an option" "help NAME is the program's own help"
run 0 "--version" tree/cairn --version
has out '^cairn [0-9]+\.[0-9]+\.[0-9]+$' "version"
run 64 "an unknown name is a usage error" tree/cairn reshrad
has err 'cairn: found "reshrad".*nearest is reshard$' "and names the nearest"
is "$(wc -l <err)" 1 "in one line"
run 64 "help of an unknown name" tree/cairn help nothing-like-it
run 64 "no path as a name" tree/cairn ../tree/reshard
run 64 "not itself" tree/cairn cairn
run 64 "an unknown option" tree/cairn --frobnicate
run 69 "--jobs is not built" tree/cairn --jobs -
has err 'not built' "and says so"
run 42 "installed: libexec" prefix/bin/cairn reshard x
run 0 "installed: list" prefix/bin/cairn
has out '^  reshard +installed -> another$' "installed: purpose"
run 64 "programs beside an installed cairn are not ours" prefix/bin/cairn score
ln -s ../prefix/bin/cairn tree/link
run 42 "through a link" tree/link reshard
if [ -c /dev/full ]; then
	tree/cairn >/dev/full 2>err; is $? 74 "a full standard output is 74"
fi
tap_done
