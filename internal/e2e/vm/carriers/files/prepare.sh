. "$SCENARIO/../../carriers_prepare.sh"
"$NODEGATE" export files --policy "$policy" --output "$ROOT"
