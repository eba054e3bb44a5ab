"$NODEGATE" install --root "$ROOT" --policy "$SCENARIO/policy.hcl"
