. "$SCENARIO/../../carriers_prepare.sh"
bake
"$NODEGATE" export ignition --policy "$policy" --output "$ROOT/opt/config.ign"
go run ./ignition-standin "$ROOT/opt/config.ign" "$ROOT"
