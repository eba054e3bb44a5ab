# What every carrier's machine has: the binary, for the test to look with, and the policy. Sourced by their prepare.sh.
policy=$SCENARIO/../../carriers.hcl
install -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
cp "$policy" "$ROOT/opt/"
bake() { install -D -m 0755 "$NODEGATE" "$ROOT/usr/local/bin/nodegate"; }
