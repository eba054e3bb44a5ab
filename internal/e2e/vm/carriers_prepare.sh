# Common part of all carriers' prepare.sh: the binary, with which the test inspects the machine, and the policy.
policy=$SCENARIO/../../carriers.hcl
install -m 0755 "$NODEGATE" "$ROOT/opt/nodegate"
cp "$policy" "$ROOT/opt/"
bake() { install -D -m 0755 "$NODEGATE" "$ROOT/usr/local/bin/nodegate"; }
