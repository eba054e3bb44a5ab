. /opt/vm/machine.sh
within 120 started 1
picture 2
picture_tree 2
same_modules 1 2 # otherwise the comparison at the end would prove nothing
/opt/nodegate install
