. "$SCENARIO/../../carriers_prepare.sh"
. "$SCENARIO/../../ignite.sh"
bake
"$NODEGATE" export ignition --policy "$policy" --output "$ROOT/opt/config.ign"
ignite "$ROOT/opt/config.ign"
