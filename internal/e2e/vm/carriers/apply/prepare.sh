. "$SCENARIO/../../carriers_prepare.sh"
