within 400 ready node1
echo "power-on to Ready, joining, with nodegate: $(since_power_on node1)"
