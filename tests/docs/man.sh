#!/bin/sh
# Manual pages say what the programs say: every program has one, with its purpose in the NAME line, and the options of
# --help are those of the page, those common to all in cairn(1).
. "$CAIRN_ROOT/tests/lib/tap.sh"
docs=$CAIRN_ROOT/docs

# name_line PAGE: the text of .Nd
name_line() { sed -n 's/^\.Nd //p' "$1"; }

# page_options PAGE: long options that have an entry of their own (.It Fl ...)
page_options() {
	sed -n 's/^\.It \(Fl .*\)/\1/p' "$1" | grep -o -- 'Fl -[a-z][a-z0-9-]*' | sed 's/^Fl -/--/' | sort -u
}
# letters PAGE: pairs of letter and long name
page_letters() { sed -n 's/^\.It Fl \([a-z]\) , Fl -\([a-z-]*\).*/-\1 --\2/p' "$1" | sort -u; }

help_options() { grep -oE '^ +(-[a-z], )?--[a-z][a-z0-9-]*' "$1" | grep -o -- '--[a-z0-9-]*' | sort -u; }
help_letters() { sed -n 's/^ *\(-[a-z]\), \(--[a-z-]*\).*/\1 \2/p' "$1" | sort -u; }

common="--config --device --help --isa --memory --quiet --threads --unset --verbose --version"
# shellcheck disable=SC2086
printf '%s\n' $common >common
n=0
for source in "$CAIRN_ROOT"/tools/*.c; do
	tool=$(basename "$source" .c)
	[ "$tool" != cairn ] || continue
	n=$((n + 1))
	page=$docs/cairn-$tool.1
	[ -e "$page" ]
	ok $? "$tool: a page"
	[ -e "$page" ] || continue
	"$BIN/$tool" --help >help 2>err
	ok $? "$tool: --help"
	is "$(name_line "$page")" "$(sed -n '/^$/ { n; p; q; }' help)" "$tool: NAME is the purpose"
	help_options help | grep -vxFf common >wanted
	page_options "$page" | grep -vxFf common >found
	is "$(comm -23 wanted found | tr '\n' ' ')" "" "$tool: every option is in the page"
	is "$(comm -13 wanted found | tr '\n' ' ')" "" "$tool: every option of the page is one"
	help_letters help | grep -vFf common >wanted
	page_letters "$page" | grep -vFf common >found
	is "$(cat found)" "$(cat wanted)" "$tool: letters"
	grep -q "^\.It Xr cairn-$tool 1\$" "$docs/cairn.1"
	ok $? "$tool: is in cairn(1)"
	is "$(sed -n "/^\.It Xr cairn-$tool 1\$/ { n; p; }" "$docs/cairn.1" | sed 's/; not built yet//')" "$(name_line "$page")" \
		"$tool: with its purpose"
done
[ $n -ge 6 ]
ok $? "$n programs"

# One that takes a recipe has all common options.
"$BIN/rollout" --help >help
help_options help | grep -xFf common >wanted
page_options "$docs/cairn.1" >found
is "$(cat found)" "$(cat wanted)" "cairn(1): the common options"
is "$(tr '\n' ' ' <wanted)" "$common " "are those of the list above"
help_letters help | grep -Ff common >wanted
is "$(page_letters "$docs/cairn.1")" "$(cat wanted)" "cairn(1): their letters"

# Every page that another names is there; of ours.
cat "$docs"/*.[157] | grep -oE '(Xr )?cairn(-[a-z-]+)? [157]' | sed -n 's/^Xr //p' | sort -u | while read -r name section; do
	[ -e "$docs/$name.$section" ] || echo "$name($section)"
done >absent
is "$(cat absent)" "" "every page that is referred to is there"

# Every reward function and every parameter of one is in cairn-score(1).
{
	grep -ohE '(options|params), "[a-z_]+"' "$CAIRN_ROOT"/tools/score/*.c
	grep -ohE '[^a-z_]param\(r, "[a-z_]+"' "$CAIRN_ROOT"/tools/score/*.c
	sed -n '/names\[\] = {/s/.*{\(.*\)}.*/\1/p' "$CAIRN_ROOT/tools/score/rewards.c" | grep -o '"[a-z]*"'
} | sed 's/.*"\([a-z_]*\)"/\1/' | sort -u >wanted
[ "$(wc -l <wanted)" -ge 15 ]
ok $? "$(wc -l <wanted) names of rewards and parameters"
while read -r word; do
	grep -qE "^\.(It )?(Cm|Li) $word( |\$)" "$docs/cairn-score.1" || echo "$word"
done <wanted >absent
is "$(cat absent)" "" "cairn-score(1): all of them"

# The exit statuses of cairn(1) are those of the header.
sed -n 's/^ \*	EX_[A-Z]* \([0-9]*\) .*/\1/p' "$CAIRN_ROOT/libcommon/die.h" | sort >wanted
sed -n '/^\.Sh EXIT STATUS/,/^\.Sh EXAMPLES/s/^\.It \([0-9][0-9]\)$/\1/p' "$docs/cairn.1" | sort >found
is "$(cat found)" "$(cat wanted)" "cairn(1): exit statuses"

if command -v mandoc >/dev/null; then
	for page in "$docs"/*.[157]; do
		said=$(mandoc -T lint -W warning "$page" 2>&1)
		ok $? "mandoc: $(basename "$page")"
		printf '%s\n' "$said" | sed -n '1,5s/^./# &/p'
	done
else
	skip "mandoc" "mandoc is not installed"
fi
tap_done
