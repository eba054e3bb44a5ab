. /opt/vm/machine.sh
within 120 started 1
picture 2
# Two boots of the untouched machine look the same, or the comparison at the end would prove nothing.
same_tree 1 2
same_modules 1 2
/opt/nodegate install
