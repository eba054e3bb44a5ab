. /opt/vm/machine.sh
within 120 started 1
picture 1
